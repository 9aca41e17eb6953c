#!/usr/bin/env python3
"""The optimum of KL-DRO logistic regression on a9a, by SciPy's L-BFGS in double.

usage: make_a9a.py A9A_FILE > a9a.txt          needs numpy, scipy, scikit-learn

No regulariser, no bias column. One line per lambda: the value, F at the optimum, the norm of its
gradient. (Separable directions make w grow slowly: the value settles long before w does.)
"""
import sys
import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.datasets import load_svmlight_file

X, y = load_svmlight_file(sys.argv[1], n_features=123)
n = len(y)


def objective(w, lam):
    margin = y * (X @ w)
    loss = np.logaddexp(0, -margin)
    value = lam * (logsumexp(loss / lam) - np.log(n))
    p = np.exp(loss / lam - logsumexp(loss / lam))
    slope = -y / (1 + np.exp(margin))
    return value, X.T @ (p * slope)


print("# lambda  F  |grad F|    (make_a9a.py)")
for lam in (0.5, 1.0, 5.0, 100.0):
    r = minimize(objective, np.zeros(123), args=(lam,), jac=True, method="L-BFGS-B",
                 options=dict(maxiter=100000, maxfun=200000, maxcor=50, ftol=1e-16, gtol=1e-9))
    print("%g %.12g %.3g" % (lam, r.fun, np.linalg.norm(r.jac)))
