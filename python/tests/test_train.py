"""Runs, models and errors."""
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import libdro


def run_of(table, **settings):
    settings = dict({"model": "linear", "optimizer": "recover", "steps": 60, "batch": 20, "lam": 2},
                    **settings)
    return libdro.train(data=table, **settings)


def test_arrays(table, tmp_path):
    run = run_of(table, out=tmp_path / "run", test=table)
    assert run.ended == "done" and (tmp_path / "run" / "weights.safetensors").exists()
    assert float(run.config["optimizer_settings"]["lambda"]) == 2
    rows = run.metrics
    rows = rows if isinstance(rows, list) else rows.to_dict("records")
    assert rows[-1]["step"] == 60
    accuracy = (run.model.predict(table[0]) == table[1]).mean()
    assert accuracy > 0.9
    assert json.dumps(run.result).count("%.4g" % accuracy) > 0  # the same as the library measured
    loaded = libdro.load(tmp_path / "run")
    assert list(loaded.classes) == ["a", "b"]
    assert (loaded.predict(table[0]) == run.model.predict(table[0])).all()


def test_kinds_of_data(table):
    """The same numbers in any form give the same model, and predict in any form."""
    X, y = table[0].astype(np.float32), table[1]
    X[X < 0] = 0
    forms = {"numpy": X, "lists": X.tolist()}
    for name, convert in (("scipy.sparse", "csr_matrix"), ("torch", "tensor"),
                          ("pandas", "DataFrame")):
        try:
            module = __import__(name, fromlist=[convert])
        except ImportError:
            continue
        forms[name] = getattr(module, convert)(X)
    if "pandas" in forms:
        try:
            import pyarrow
            forms["pyarrow"] = pyarrow.table({f"c{k}": X[:, k] for k in range(3)})
        except ImportError:
            pass
    expected = None
    for name, form in forms.items():
        run = libdro.train(data=libdro.Arrays(form, y, options="scale=none"), model="linear", lam=1)
        logits = run.model.logits(form)
        expected = logits if expected is None else expected
        assert np.allclose(logits, expected, atol=1e-4), name
    if "pandas" in forms:
        frame = forms["pandas"].assign(word=y)
        with pytest.raises(ValueError, match="column 'word' does not hold numbers: encode"):
            libdro.train(data=(frame, y))
    if "torch" in forms:
        assert (run.model.predict(forms["torch"]) == run.model.predict(X)).all()
        shared = libdro._arrays.as_numpy(forms["torch"])
        assert shared.ctypes.data == forms["torch"].data_ptr()  # no copy


def test_explain(table):
    X, y = table
    model = run_of(table).model
    found = model.explain((X, y), "kl:0.5")
    losses = -np.log(model.predict_proba(X)[np.arange(400), (y == "b").astype(int)])
    weights = np.exp(losses / 0.5)
    assert np.allclose(found["losses"], losses, atol=1e-5)
    assert np.allclose(found["weights"], weights / weights.sum(), atol=1e-6)
    assert found["order"][0] == losses.argmax() and 0 < found["effective"] < 1
    assert model.explain((X, y), "cvar:0.1")["value"] > found["mean_loss"]
    with pytest.raises(libdro.DroError, match="groups"):
        model.explain((X, y), "mean", over="group")


def test_report_and_close(table, tmp_path):
    run = run_of(table, out=tmp_path / "run", test=table)
    page = run.report()
    assert "<html" in page.html and page._repr_html_().startswith("<iframe")
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    with run_of(table) as other:
        folder = other.folder
        assert other.result["step"] == 60
    with pytest.raises(libdro.StateError, match="closed"):
        other.result
    with pytest.raises(RuntimeError, match="out="):
        other.model
    assert not os.path.exists(folder)


def test_weights_of_examples(table):
    """Examples without weight are not learned; all metrics count by weights."""
    X, y = table
    wrong = np.where(np.arange(400) < 200, y, np.where(y == "a", "b", "a"))
    weights = (np.arange(400) < 200).astype(float)
    arrays = libdro.Arrays(X, wrong, weights=weights)
    run = libdro.train(data=arrays, test=arrays, model="linear", lam=1)
    assert run.result["test"]["accuracy"] > 0.9


def test_probabilities(table):
    model = run_of(table).model
    shares, logits = model.predict_proba(table[0]), model.logits(table[0]).astype(float)
    assert shares.shape == (400, 2) and np.allclose(shares.sum(axis=1), 1)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert np.allclose(shares, softmax, atol=1e-6)


def test_regression(table):
    X = table[0]
    y = X @ [1.0, -2.0, 0.5] + 3
    run = libdro.train(data=(X, y), model="linear", optimizer="sgd", steps=800, batch=20, eta=0.05)
    assert run.model.classes is None
    assert np.abs(run.model.predict(X) - y).mean() < 0.3 * np.abs(y - y.mean()).mean()


def test_spec(table, tmp_path):
    file = tmp_path / "people.csv"
    rows = [f"{a},{b},{c},{label}" for (a, b, c), label in zip(*table)]
    file.write_text("\n".join(["x,y,z,label"] + rows) + "\n")
    spec = f"csv:{file},label=label"
    run = run_of(spec, out=tmp_path / "run")
    model = libdro.load(run.weights)
    assert list(model.classes) == ["a", "b"]
    assert (model.predict(spec, split=libdro.TRAIN) == table[1]).mean() > 0.9


def test_errors_are_the_librarys(table, tmp_path):
    with pytest.raises(libdro.UnknownNameError, match="recovr.*recover"):
        run_of(table, optimizer="recovr")
    with pytest.raises(ValueError, match="lambda"):
        run_of(table, lam=-1)
    with pytest.raises(libdro.DroError, match="nowhere"):
        libdro.train(data=f"csv:{tmp_path}/nowhere.csv,label=x")
    with pytest.raises(libdro.DroError, match="bogus"):
        libdro.train(data=table, backend="bogus")


def test_misuse(table, tmp_path):
    X, y = table
    with pytest.raises(ValueError, match="one per example"):
        libdro.train(data=(X, y[:-1]))
    with pytest.raises(ValueError, match="shape"):
        libdro.train(data=(X[0], y))
    with pytest.raises(TypeError, match="expected a SPEC"):
        libdro.train(data=17)
    (tmp_path / "broken").write_bytes(b"nothing")
    with pytest.raises(libdro.FormatError, match="safetensors"):
        libdro.load(tmp_path / "broken")
    with pytest.raises(libdro.DroError, match="7"):
        run_of(table).model.predict(np.zeros((4, 7)))
    bad = X.copy()
    bad[3, 1] = np.nan
    with pytest.raises(ValueError, match="row 3 has a value that is NaN"):
        run_of((bad, y))


def test_stop_and_resume(table, tmp_path):
    def stop(progress):
        if progress["step"] == 30:
            raise KeyboardInterrupt

    whole = run_of(table, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_of(table, out=tmp_path / "part", progress=stop)
    assert (tmp_path / "part" / "last.ckpt").exists()
    part = run_of(table, out=tmp_path / "part", resume=True)
    assert part.ended == "done"
    with open(whole.weights, "rb") as a, open(part.weights, "rb") as b:
        assert a.read() == b.read()


INTERRUPTED = """
import numpy as np, libdro, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
rng = np.random.default_rng(0)
X, said = rng.normal(size=(2000, 20)), []
def progress(p):
    if p["step"] >= 20 and not said:
        said.append(print("on its way", flush=True))
try:
    libdro.train(data=(X, X[:, 0] > 0), model="mlp", steps=10**9, out=sys.argv[1],
                 progress=progress)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c(tmp_path):
    job = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(tmp_path / "run")],
                           stdout=subprocess.PIPE, text=True)
    assert job.stdout.readline() == "on its way\n"
    job.send_signal(signal.SIGINT)
    assert job.communicate(timeout=60)[0] == "interrupted\n" and job.returncode == 0
    assert (tmp_path / "run" / "last.ckpt").exists()


def test_threads_and_forks(table):
    """Runs in several threads at once; a model is used in a fork."""
    found = [None] * 3

    def work(k):
        found[k] = run_of(table, threads=1).model.logits(table[0])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()
    model = run_of(table).model
    child = os.fork()
    if child == 0:
        os._exit(0 if (model.logits(table[0]).shape == (400, 2)) else 1)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    assert done and status == 0


def test_import_is_quick():
    """NumPy's own import is most of it. The time is a benchmark's: here only what must not be
    loaded."""
    code = ("import sys, libdro; "
            "print(sorted({'sklearn', 'torch', 'pandas', 'scipy', 'tqdm'} & set(sys.modules)))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


def test_documentation():
    for name in ("lambda:", "eta:", "batch:", "epochs:"):
        assert f"    {name}" in libdro.train.__doc__
