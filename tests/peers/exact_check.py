#!/usr/bin/env python3
"""The exact minimum of KL-DRO logistic regression on a9a (lambda 1, no regulariser): libdro's lbfgs and newton, SciPy's
L-BFGS on NumPy, and KLDRO of the package `dro` with ECOS, interleaved, each on one core.

usage: exact_check.py DRO A9A_FILE [REPEATS=5]          needs exact_requirements.txt, and dro==0.4.3 without its own

Times are CPU seconds, medians. libdro's are of the whole program: reading the file, solving, evaluating, writing. The
others' are of the solution alone, SciPy's until its value is within 1e-7. KLDRO takes a radius; at 0.0864536 its lambda
is 1. Fails if libdro is not within 1e-7 of the minimum, not faster than SciPy at its better setting, not 50 times
faster than KLDRO, or takes 60 MB.
"""
import importlib
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import types

ONE_CORE = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
FEATURES, LAMBDA, RADIUS, GAP, MOST_MB = 123, 1.0, 0.0864536, 1e-7, 60


def read(path):
    import scipy.sparse
    labels, starts, columns, values = [], [0], [], []
    for line in open(path):
        words = line.split()
        labels.append(float(words[0]))
        for word in words[1:]:
            column, value = word.split(":")
            columns.append(int(column) - 1)
            values.append(float(value))
        starts.append(len(columns))
    import numpy
    shape = (len(labels), FEATURES)
    return scipy.sparse.csr_matrix((values, columns, starts), shape=shape), numpy.array(labels)


def objective(w, X, y, b=0.0):
    import numpy
    from scipy.special import logsumexp
    margin = y * (X @ w + b)
    loss = numpy.logaddexp(0, -margin)
    top = logsumexp(loss / LAMBDA)
    q = numpy.exp(loss / LAMBDA - top)
    return LAMBDA * (top - numpy.log(len(y))), X.T @ (q * (-y / (1 + numpy.exp(margin))))


# ---- each in a process of its own ----

class Reached(Exception):
    pass


def scipy_arm(path, pairs, goal):
    import numpy
    from scipy.optimize import minimize
    X, y = read(path)

    def watched(w):
        value, gradient = objective(w, X, y)
        if value <= goal:
            raise Reached
        return value, gradient

    start = time.process_time()
    try:
        minimize(watched, numpy.zeros(FEATURES), jac=True, method="L-BFGS-B",
                 options=dict(maxiter=100000, maxfun=200000, maxcor=pairs, ftol=0, gtol=0))
        value = float("nan")
    except Reached:
        value = goal
    return dict(cpu=time.process_time() - start, value=value)


def kldro_arm(path):
    """KLDRO without the rest of its package, which wants torch and others that it does not use."""
    import numpy
    for name in ("dro", "dro.linear_model"):
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(place, *name.split(".")) for place in sys.path]
        sys.modules[name] = package
    KLDRO = importlib.import_module("dro.linear_model.kl_dro").KLDRO
    X, y = read(path)
    X = X.toarray()
    model = KLDRO(FEATURES, model_type="logistic", fit_intercept=False, solver="ECOS", eps=RADIUS)
    start = time.process_time()
    model.fit(X, y)
    cpu = time.process_time() - start
    return dict(cpu=cpu, value=float(objective(numpy.array(model.theta), X, y)[0]))


def weights_of(path):
    """fc.weight and fc.bias of a safetensors file."""
    import numpy
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    tensors = []
    for name in ("fc.weight", "fc.bias"):
        begin, end = header[name]["data_offsets"]
        flat = numpy.frombuffer(data[8 + size + begin:8 + size + end], dtype="<f4")
        tensors.append(flat.astype(float).reshape(header[name]["shape"]))
    return tensors


def run(command):
    """CPU seconds and MB of a process. It has been a copy of this one for a moment, whose memory counts as its own:
    so NumPy is imported in the arms only."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=dict(os.environ, **ONE_CORE))
    output, errors = process.stdout.read(), process.stderr.read()
    status, usage = os.wait4(process.pid, 0)[1:]
    assert status == 0, errors.decode()
    return output, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def value_arm(path, weights):
    weight, bias = weights_of(weights)
    return dict(value=float(objective(weight[1] - weight[0], *read(path), b=bias[1] - bias[0])[0]))


def libdro_arm(dro, name, path):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        _, cpu, memory = run([dro, "train", "--data", "libsvm:" + path + ",scale=none",
                              "--model", "linear", "--optimizer", name,
                              "--lambda", "1", "--set", "reg=none", "--threads", "1", "--out", out])
        value = peer_arm(["value", path, os.path.join(out, "weights.safetensors")])["value"]
    return dict(cpu=cpu, memory=memory, value=value)


def peer_arm(arguments):
    output, _, memory = run([sys.executable, __file__, "--arm"] + [str(a) for a in arguments])
    return dict(json.loads(output), memory=memory)


# ---- all of them ----

def minimum():
    here = os.path.dirname(os.path.abspath(__file__))
    for line in open(os.path.join(here, "..", "refs", "a9a.txt")):
        if line.split()[0] == "1":
            return float(line.split()[1])


def main(dro, path, repeats=5):
    best = minimum()
    arms = {"libdro lbfgs": lambda: libdro_arm(dro, "lbfgs", path),
            "libdro newton": lambda: libdro_arm(dro, "newton", path),
            "scipy, 10 pairs (default)": lambda: peer_arm(["scipy", path, 10, best + GAP]),
            "scipy, 50 pairs": lambda: peer_arm(["scipy", path, 50, best + GAP])}
    results = {name: [] for name in arms}
    for k in range(repeats):
        for name, arm in arms.items():
            results[name].append(arm())
        if k == repeats // 2:
            results["KLDRO with ECOS"] = [peer_arm(["kldro", path])]
    print("%-26s %10s %8s %10s" % ("", "CPU s", "MB", "F - F*"))
    cpu = {}
    for name, runs in results.items():
        cpu[name] = statistics.median(r["cpu"] for r in runs)
        gap = max(r["value"] for r in runs) - best
        print("%-26s %10.3f %8.1f %10.1e" % (name, cpu[name], max(r["memory"] for r in runs), gap))
        if name.startswith("libdro"):
            assert abs(gap) <= GAP, gap
            assert max(r["memory"] for r in runs) < MOST_MB
    scipy = min(cpu["scipy, 10 pairs (default)"], cpu["scipy, 50 pairs"])
    for name in ("libdro lbfgs", "libdro newton"):
        print("%s: %.1f times faster than SciPy's better setting, %.1f than its default, %.0f than KLDRO" %
              (name, scipy / cpu[name], cpu["scipy, 10 pairs (default)"] / cpu[name],
               cpu["KLDRO with ECOS"] / cpu[name]))
    assert cpu["libdro lbfgs"] < scipy
    assert 50 * cpu["libdro lbfgs"] <= cpu["KLDRO with ECOS"]


if sys.argv[1] == "--arm":
    arm, path, rest = sys.argv[2], sys.argv[3], sys.argv[4:]
    if arm == "scipy":
        print(json.dumps(scipy_arm(path, int(rest[0]), float(rest[1]))))
    else:
        print(json.dumps(kldro_arm(path) if arm == "kldro" else value_arm(path, rest[0])))
else:
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:4]))
