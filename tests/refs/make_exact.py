#!/usr/bin/env python3
"""Minima of robust linear models, by SciPy in double, for tests/test_exact.c.

usage: make_exact.py > exact.txt          needs numpy, scipy

First the table: "rows n features classes", then for each row its class and its features (dense, some zero). Then for
each case: "case MODEL LOSS OVER OBJECTIVE L1 L2 F". MODEL net has a bias and an output per class, trained as a whole
(bias regularised too); rows has one output, no bias, and class 0 against the others as -1 and +1 (squared: the class
as a real target). |w|_1 is handled by w = u - v with u, v >= 0. kl-radius and chi2 are solved jointly in w and their
scalar (log lambda, eta), cvar jointly in w, eta and one slack for each example, by SLSQP.
"""
import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

rng = np.random.default_rng(11)
N, D, C = 90, 6, 3
X = np.round(rng.normal(size=(N, D)) * (rng.uniform(size=(N, D)) < 0.7) * [1, 1, 2, 0.2, 1, 5], 4)
true = rng.normal(size=(C, D)) / [1, 1, 2, 0.2, 1, 5]
y = np.argmax(X @ true.T + rng.gumbel(size=(N, C)) + [0.8, 0, -0.5], axis=1)
X = X.astype(np.float32).astype(float)


def losses_of(model, loss, w):
    """Losses (N) and their gradients (N, dim)."""
    if model == "rows":
        z = X @ w
        if loss == "squared":
            return (z - y) ** 2 / 2, (z - y)[:, None] * X
        s = np.where(y > 0, 1.0, -1.0)
        return np.logaddexp(0, -s * z), (-s / (1 + np.exp(s * z)))[:, None] * X
    W, b = w[:C * D].reshape(C, D), w[C * D:]
    z = X @ W.T + b
    hot = np.eye(C)[y]
    if loss == "logit-adjusted":
        z = z + np.log(np.bincount(y, minlength=C) / N)
    if loss == "squared":
        value, slope = ((z - hot) ** 2).sum(1) / 2, z - hot
    elif loss == "logistic":
        s = 2 * hot - 1
        value, slope = np.logaddexp(0, -s * z).sum(1), -s / (1 + np.exp(s * z))
    else:
        target = hot if loss != "smoothed" else 0.9 * hot + 0.1 / C
        top = logsumexp(z, axis=1, keepdims=True)
        value, slope = (target * (top - z)).sum(1), np.exp(z - top) - target
    return value, np.hstack([(slope[:, :, None] * X[:, None, :]).reshape(N, -1), slope])


def over(model, of, value, grads):
    """What the objective is over: losses, their gradients, all with the same prior."""
    if of == "example":
        return value, grads
    group = (y > 0).astype(int) if model == "rows" else y
    one = np.array([(group == k) / (group == k).sum() for k in range(group.max() + 1)])
    return one @ value, one @ grads


def robust(model, loss, of, objective, l2, w, scalar):
    """The value, its gradient by w and by the scalar."""
    kind, number = objective.split(":") if ":" in objective else (objective, "0")
    number = float(number)
    value, grads = over(model, of, *losses_of(model, loss, w))
    n = len(value)
    if kind == "mean":
        F, q, slope = value.mean(), np.full(n, 1 / n), 0
    elif kind in ("kl", "kl-radius"):
        lam = number if kind == "kl" else np.exp(scalar)
        rho = 0 if kind == "kl" else number
        top = logsumexp(value / lam)
        q = np.exp(value / lam - top)
        F = lam * (top - np.log(n)) + lam * rho
        slope = (F / lam - q @ value / lam) * lam if kind == "kl-radius" else 0
    else:
        part = np.maximum(value - scalar, 0)
        root = np.sqrt((part ** 2).mean())
        F = scalar + np.sqrt(1 + 2 * number) * root
        q = np.sqrt(1 + 2 * number) * part / n / max(root, 1e-300)
        slope = 1 - q.sum()
    return F + l2 / 2 * w @ w, grads.T @ q + l2 * w, slope


def solve_cvar(model, loss, of, alpha, l1, l2, dim):
    def parts(v):
        return v[:dim] - v[dim:2 * dim], v[2 * dim], v[2 * dim + 1:]

    start_w = np.zeros(dim)
    n = len(over(model, of, *losses_of(model, loss, start_w))[0])

    def value(v):
        w, eta, slack = parts(v)
        g = l2 * w
        return (eta + slack.sum() / (alpha * n) + l2 / 2 * w @ w + l1 * v[:2 * dim].sum(),
                np.concatenate([g + l1, -g + l1, [1], np.full(n, 1 / (alpha * n))]))

    def room(v):
        w, eta, slack = parts(v)
        return slack + eta - over(model, of, *losses_of(model, loss, w))[0]

    def room_slopes(v):
        grads = over(model, of, *losses_of(model, loss, parts(v)[0]))[1]
        return np.hstack([-grads, grads, np.ones((n, 1)), np.eye(n)])

    start = np.concatenate([np.zeros(2 * dim), [1], np.ones(n)])
    bounds = [(0, None)] * (2 * dim) + [(None, None)] + [(0, None)] * n
    r = minimize(value, start, jac=True, method="SLSQP", bounds=bounds, options=dict(maxiter=2000, ftol=1e-13),
                 constraints=[dict(type="ineq", fun=room, jac=room_slopes)])
    assert r.success, r.message
    return r.fun


def solve(model, loss, of, objective, l1, l2):
    dim = D if model == "rows" else C * D + C
    if objective.startswith("cvar"):
        return solve_cvar(model, loss, of, float(objective[5:]), l1, l2, dim)

    def split(v):
        F, g, slope = robust(model, loss, of, objective, l2, v[:dim] - v[dim:2 * dim], v[-1])
        return F + l1 * v[:2 * dim].sum(), np.concatenate([g + l1, -g + l1, [slope]])

    def whole(v):
        F, g, slope = robust(model, loss, of, objective, l2, v[:dim], v[-1])
        return F, np.concatenate([g, [slope]])

    options = dict(maxiter=100000, maxfun=200000, maxcor=40, ftol=1e-17, gtol=1e-11)
    if l1 > 0:
        bounds = [(0, None)] * (2 * dim) + [(None, None)]
        return minimize(split, np.zeros(2 * dim + 1), jac=True, method="L-BFGS-B", bounds=bounds, options=options).fun
    return minimize(whole, np.zeros(dim + 1), jac=True, method="L-BFGS-B", options=options).fun


print("# the table, then cases: MODEL LOSS OVER OBJECTIVE L1 L2 F    (make_exact.py)")
print("rows", N, D, C)
for i in range(N):
    print(y[i], " ".join("%.9g" % v for v in X[i]))
CASES = """
rows logistic example kl:1 0 0
rows logistic example kl:0.3 0 0.02
rows logistic class kl:0.5 0 0.01
rows logistic example mean 0.02 0
rows logistic example kl:1 0.01 0.03
rows squared example kl:2 0 0
rows squared example kl:1 0.05 0.01
net cross-entropy example kl:1 0 0
net cross-entropy example kl:0.2 0 0.05
net cross-entropy class kl:0.1 0 0.02
net cross-entropy example mean 0.01 0.01
net smoothed example kl:1 0 0.01
net logit-adjusted example kl:2 0 0.01
net squared example kl:0.5 0 0
net squared class kl:0.5 0.01 0.02
net logistic example kl:1 0 0.01
rows logistic example kl-radius:0.1 0 0
rows squared example kl-radius:0.5 0.02 0.01
net cross-entropy class kl-radius:0.05 0 0.02
rows logistic example chi2:0.1 0 0
net cross-entropy example chi2:1 0 0.01
rows squared example chi2:0.2 0.02 0
rows logistic example cvar:0.6 0 0
rows squared example cvar:0.5 0.02 0.01
net cross-entropy example cvar:0.3 0 0.01
rows logistic class cvar:0.75 0 0.01
"""
for line in CASES.split("\n")[1:-1]:
    model, loss, of, objective, l1, l2 = line.split()
    print("case", line, "%.12g" % solve(model, loss, of, objective, float(l1), float(l2)))
