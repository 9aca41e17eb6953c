"""The estimator."""
import pickle

import numpy as np
import pytest

import libdro

pytest.importorskip("sklearn")
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

from libdro.sklearn import DROClassifier  # noqa: E402


def test_check_estimator():
    results = check_estimator(DROClassifier(), on_fail=None, on_skip=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    assert not failed
    assert sum(r["status"] == "passed" for r in results) > 50


def test_large_lambda_is_logistic_regression(table):
    X, y = table[0] * [1, 30, 0.2] + 5, table[1]
    mine = DROClassifier(tilt="none", alpha=1e-3).fit(X, y)
    # Two logits with |w|^2 / 2 each are one margin with half of it, and its intercept is also kept small.
    ones = np.column_stack([X, np.ones(len(X))])
    other = LogisticRegression(C=1 / (0.5e-3 * len(X)), fit_intercept=False, tol=1e-10,
                               max_iter=100000).fit(ones, y)
    assert np.allclose(mine.decision_function(X), other.decision_function(ones), atol=2e-2)


def test_tilt_lowers_the_worst_loss(table):
    X, y = table
    number = (y == "b").astype(int)

    def losses(lam):
        shares = DROClassifier(lam=lam).fit(X, y).predict_proba(X)
        return -np.log(shares[np.arange(len(y)), number])

    mean, robust = losses(1000.0), losses(0.2)
    assert robust.max() < 0.8 * mean.max() and robust.mean() > mean.mean()


def test_as_the_library_predicts(table):
    X, y = table[0] * [1, 30, 0.2] + 5, table[1]
    mine = DROClassifier(lam=0.5, solver="recover", max_iter=50, random_state=3).fit(X, y)
    arrays = libdro.Arrays(X, y, options="scale=none")
    run = libdro.train(data=arrays, model="linear", optimizer="recover", steps=50, lam=0.5, seed=3,
                       reg="l2", reg_strength=1e-4, tilt="example", eval_train="no")
    logits = run.model.logits(X)
    assert np.allclose(mine.decision_function(X), logits[:, 1] - logits[:, 0], atol=1e-3)
    assert mine.n_iter_ == 50


def test_company(table):
    """Three classes, pipelines, searches, pickles."""
    X, y = table[0], np.digitize(table[0][:, 0], [-1, 1])
    search = GridSearchCV(make_pipeline(StandardScaler(), DROClassifier()),
                          {"droclassifier__lam": [0.5, 5.0]}, cv=2).fit(X, y)
    best = search.best_estimator_
    assert search.best_score_ > 0.8 and best.predict_proba(X).shape == (len(X), 3)
    again = pickle.loads(pickle.dumps(best))
    assert (again.predict_proba(X) == best.predict_proba(X)).all()
