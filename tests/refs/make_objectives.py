#!/usr/bin/env python3
"""Worst-case weights of given losses, by general-purpose solvers, for tests/test_objective.c.

usage: make_objectives.py > objectives.txt          needs numpy, scipy

Each case: a line "case NAME n", the losses, the prior, the value and the weights. kl is its definition; kl-radius and
chi2 are their convex duals in one scalar, solved by brentq; cvar is SciPy's linear program.
"""
import numpy as np
from scipy.optimize import brentq, linprog, minimize_scalar
from scipy.special import logsumexp

rng = np.random.default_rng(5)


def tilted(losses, prior, lam):
    z = losses / lam + np.log(prior)
    return np.exp(z - logsumexp(z))


def kl(q, prior):
    return sum(a * np.log(a / b) for a, b in zip(q, prior) if a > 0)


def solve_kl(losses, prior, lam):
    return lam * logsumexp(losses / lam, b=prior), tilted(losses, prior, lam)


def solve_kl_radius(losses, prior, rho):
    lam = np.exp(brentq(lambda x: kl(tilted(losses, prior, np.exp(x)), prior) - rho, -7, 12,
                        xtol=1e-14, rtol=1e-14))
    dual = minimize_scalar(lambda x: np.exp(x) * (logsumexp(losses / np.exp(x), b=prior) + rho),
                           bracket=(np.log(lam) - 1, np.log(lam) + 1), options=dict(xtol=1e-12))
    q = tilted(losses, prior, lam)
    assert abs(dual.fun - q @ losses) < 1e-9, (dual.fun, q @ losses)
    return q @ losses, q


def solve_cvar(losses, prior, alpha):
    r = linprog(-losses, A_eq=np.ones((1, len(losses))), b_eq=[1],
                bounds=[(0, p / alpha) for p in prior], method="highs")
    return -r.fun, r.x


def solve_chi2(losses, prior, rho):
    """The dual in eta; q from its slope by the losses."""
    def dual(eta):
        return eta + np.sqrt(1 + 2 * rho) * np.sqrt(prior @ np.maximum(losses - eta, 0) ** 2)

    def slope(eta):
        over = np.maximum(losses - eta, 0)
        return 1 - np.sqrt(1 + 2 * rho) * (prior @ over) / np.sqrt(prior @ over ** 2)

    low, high = losses.min() - 100 * np.ptp(losses), losses.max() - 1e-9 * np.ptp(losses)
    eta = brentq(slope, low, high, xtol=1e-15, rtol=1e-15)
    q = prior * np.maximum(losses - eta, 0)
    return dual(eta), q / q.sum()


SOLVERS = {"kl": solve_kl, "kl-radius": solve_kl_radius, "cvar": solve_cvar, "chi2": solve_chi2}
CASES = [("kl:1", 12), ("kl:0.05", 12), ("kl:1000000", 12), ("kl-radius:0.01", 12), ("kl-radius:0.5", 40),
         ("kl-radius:2", 40), ("cvar:0.1", 40), ("cvar:0.37", 12), ("cvar:1", 12), ("chi2:0.01", 12),
         ("chi2:1", 40), ("chi2:4", 40)]

print("# case OBJECTIVE n; losses; prior; value; weights    (make_objectives.py)")
for name, n in CASES:
    kind, argument = name.split(":")
    losses = rng.gamma(1.0, 1.0, n)
    prior = rng.uniform(0.2, 1.0, n)
    prior /= prior.sum()
    value, q = SOLVERS[kind](losses, prior, float(argument))
    assert abs(q.sum() - 1) < 1e-9
    print("case", name, n)
    for row in (losses, prior, [value], q):
        print(" ".join("%.17g" % x for x in row))
