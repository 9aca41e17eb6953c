#!/usr/bin/env python3
"""Checks cases of tests/refs/trajectories.txt with PyTorch: its autograd and its torch.optim.SGD.

    python tests/peers/torch_check.py [TRAJECTORIES=tests/refs/trajectories.txt]

Needs torch; `make test-peers` runs it. In float64 on the CPU, on the batches of the file's cases:

  sgd             every case without a regulariser, by torch.optim.SGD. w to 1e-9.
  cover, recover  the cases in TILTED, by Algorithm 1 as the paper writes it: u and v follow
                  g = mean exp(loss / lambda) and its gradient, and w moves along lambda v / u. The
                  library and make_trajectories.py keep log u and v / u instead. w and log u to 1e-7.

Prints one line per case with its largest difference and exits 1 if one is above its limit. Stops at
a case with a setting that is not handled here, rather than ignore it.
"""
import os
import sys

import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
MASK = (1 << 64) - 1
STREAM_ORDER = 0x6F72
TILTED = ("recover-convex", "cover-convex-eta2", "recover-nonconvex", "recover-convex-guard")

# What a case may say: the settings used here, with their defaults, and those that must stand at the
# value given. The cap on the exponents is not reached in TILTED.
USED = {"eta": 0.1, "eta_schedule": "constant", "warmup": 0.0, "poly_start": 100.0,
        "poly_power": 1 / 3, "stage_factor": 10.0, "stages": "", "steps": 0, "batch": 8, "seed": 1,
        "weight_decay": 0.0, "momentum": 0.9, "nesterov": "no", "lambda": 1.0, "a_rule": "auto",
        "a": 0.1, "a_c": 1.0, "guard": 0.25}
FIXED = {"order": "uniform", "lambda_schedule": "constant", "lambda_warmup": "0", "cap": "10",
         "tilt": "example", "group_prior": "uniform", "a_schedule": "constant", "a_warmup": "0",
         "a_decay": "1", "a_min": "0"}


class Problem:
    def __init__(self, name, y, x, w0):
        self.y, self.x, self.w0 = torch.tensor(y), torch.tensor(x), torch.tensor(w0)
        self.losses = {"convex": self.logistic, "nonconvex": self.network}.get(name)

    def logistic(self, w, ids):
        return -torch.nn.functional.logsigmoid(self.y[ids] * (self.x[ids] @ w))

    def network(self, w, ids):
        hidden = torch.tanh(self.x[ids] @ w[:12].reshape(3, 4).T)
        return (hidden @ w[12:] - self.y[ids]) ** 2 / 2


class Case:
    """A case: its settings as text, and its points {step: (log u or None, w)}."""
    def __init__(self, name):
        self.name, self.settings, self.points = name, {}, {}

    def __getitem__(self, setting):
        default = USED[setting]
        return type(default)(self.settings.get(setting, default))

    def ids(self, t):
        """The examples of batch t."""
        batch, n = self["batch"], len(self.problem.y)
        return [random_bits(self["seed"], STREAM_ORDER, k) * n >> 64
                for k in range(t * batch, (t + 1) * batch)]

    def as_steps(self, value):
        return value * self["steps"] // 1 if 0 < value < 1 else value

    def eta(self, t):
        eta, kind = self["eta"], self["eta_schedule"]
        if kind == "poly":
            eta /= (1 + t / self["poly_start"]) ** self["poly_power"]
        elif kind == "step":
            stages = map(float, self["stages"].split(","))
            eta /= self["stage_factor"] ** sum(self.as_steps(end) <= t for end in stages)
        else:
            assert kind == "constant", self.name
        warmup = self.as_steps(self["warmup"])
        return eta * (t + 1) / warmup if t < warmup else eta


def read(path):
    problems, cases, rows = {}, [], None
    for line in open(path):
        words = line.split()
        if not words or words[0] == "#":
            continue
        if words[0] == "problem" and "rows" in words:
            name, rows = words[1], []
        elif words[0] == "w0":
            problems[name] = Problem(name, [r[0] for r in rows], [r[3:] for r in rows],
                                     list(map(float, words[1:])))
            rows = None
        elif rows is not None:
            rows.append(list(map(float, words)))
        elif words[0] == "case":
            cases.append(Case(words[1]))
        elif words[0] == "problem":
            cases[-1].problem = problems[words[1]]
        elif words[0] == "at":
            log_u = None if words[4] == "-" else float(words[4])
            cases[-1].points[int(words[1])] = log_u, torch.tensor(list(map(float, words[5:])))
        elif "=" in line:
            setting, value = line.strip().split("=", 1)
            cases[-1].settings[setting] = value
    return cases


# Random numbers: src/base/random.c with Python integers.
def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def random_bits(seed, stream, counter):
    key = mix(mix(seed + 0x9E3779B97F4A7C15 & MASK) + stream * 0xD1342543DE82EF95 & MASK)
    return mix(key + (counter + 1) * 0x9E3779B97F4A7C15 & MASK)


# ---- the methods: generators that give (w, log u or None) after each step ----

def sgd(case):
    w = case.problem.w0.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=case.eta(0), momentum=case["momentum"],
                                weight_decay=case["weight_decay"],
                                nesterov=case["nesterov"] == "yes")
    for t in range(max(case.points)):
        optimizer.param_groups[0]["lr"] = case.eta(t)
        w.grad = None
        case.problem.losses(w, case.ids(t)).mean().backward()
        optimizer.step()
        yield w.detach().clone(), None


def algorithm1(case):
    lam, guard, rule = case["lambda"], case["guard"], case["a_rule"]
    assert guard > 0 and rule in ("fixed", "eta2"), case.name

    def tilted(w, ids):
        """g = mean exp(loss / lambda), its gradient, and the exponents."""
        w = w.clone().requires_grad_()
        x = case.problem.losses(w, ids) / lam
        g = x.exp().mean()
        return g.detach(), torch.autograd.grad(g, w)[0], x.detach()

    w, pace = case.problem.w0, 0
    for t in range(max(case.points)):
        g, dg, x = tilted(w, case.ids(t))
        if t == 0:
            u, v = g, dg
        else:
            g_old, dg_old, x_old = tilted(w_old, case.ids(t))
            a = case["a"] if rule == "fixed" else min(1, case["a_c"] * eta ** 2)
            u = g + (1 - a) * (u - g_old)
            v = dg + (1 - a) * (v - dg_old)
            # How fast the exponents move, per unit of eta: their weighted mean square.
            now = float((x.softmax(0) * (x - x_old) ** 2).sum()) / eta ** 2
            pace = max(now, 0.9 * pace + 0.1 * now)
        d = lam * v / u
        before = d if t == 0 else before
        # The guard (not in the paper): no step moves the exponents by more than `guard`, as measured
        # above, nor log u to first order, by the direction before this one.
        eta = min(case.eta(t), guard / max(pace, 1e-300) ** 0.5, guard * lam / float(before @ before))
        w_old, w, before = w, w - eta * (d + case["weight_decay"] * w), d
        yield w, float(u.log())


def difference(case, method):
    """The largest relative difference over all points; NaN if there is one."""
    gaps = []
    for t, (w, log_u) in enumerate(method(case), 1):
        if t in case.points:
            right_log_u, right = case.points[t]
            gaps.append(float((w - right).norm() / right.norm()))
            if log_u is not None:
                gaps.append(abs(log_u - right_log_u) / max(1, abs(right_log_u)))
    return float(torch.tensor(gaps).max())


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    cases = read(sys.argv[1] if len(sys.argv) > 1 else here + "/../refs/trajectories.txt")
    plain = [c for c in cases if c.name.startswith("sgd-") and "reg" not in c.settings]
    tilted = [c for c in cases if c.name in TILTED]
    assert plain and len(tilted) == len(TILTED), "cases are missing from the file"
    wrong = 0
    for case in plain + tilted:
        for name, value in case.settings.items():
            assert name in USED or FIXED.get(name) == value, (case.name, name, value)
        method, limit = (sgd, 1e-9) if case in plain else (algorithm1, 1e-7)
        gap = difference(case, method)
        wrong += not gap <= limit
        print("%-28s %.1e  %s" % (case.name, gap, "equal" if gap <= limit else "DIFFERENT"))
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
