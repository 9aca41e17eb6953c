"""The estimators."""
import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

import libdro

pytest.importorskip("sklearn")
import scipy.sparse as sp  # noqa: E402
import sklearn  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.linear_model import LogisticRegression, Ridge  # noqa: E402
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate  # noqa: E402
from sklearn.multiclass import OneVsRestClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from libdro.sklearn import DROClassifier, DRORegressor, _merged  # noqa: E402

CHECKS = """
import sys, warnings
from sklearn.utils.estimator_checks import check_estimator
from libdro.sklearn import DROClassifier, DRORegressor
warnings.simplefilter("ignore")
found = check_estimator(eval(sys.argv[1]), on_fail=None, on_skip=None)
bad = [(r["check_name"], r["status"], str(r["exception"])) for r in found
       if r["status"] != "passed"]
print(len(found), "checks", *bad, sep="\\n")
sys.exit(bool(bad) or len(found) < 50)
"""


@pytest.mark.parametrize("estimator", [
    "DROClassifier()", "DRORegressor()", "DROClassifier(model='mlp:16')",
    "DRORegressor(model='mlp:16')"])
def test_check_estimator(estimator):
    """All checks, the one that SciPy must be told of included."""
    out = subprocess.run([sys.executable, "-c", CHECKS, estimator], capture_output=True, text=True,
                         env=dict(os.environ, SCIPY_ARRAY_API="1"))
    assert out.returncode == 0, out.stdout + out.stderr


def test_large_lambda_is_logistic_regression(table):
    X, y = table[0] * [1, 30, 0.2] + 5, table[1]
    mine = DROClassifier(over="none", alpha=1e-3).fit(X, y)
    # Two logits with |w|^2 / 2 each are one margin with half of it, and a thousandth of the
    # intercept is regularised.
    ones = np.column_stack([X, np.full(len(X), 1000 ** 0.5)])
    other = LogisticRegression(C=1 / (0.5e-3 * len(X)), fit_intercept=False, tol=1e-10,
                               max_iter=100000).fit(ones, y)
    assert np.allclose(mine.decision_function(X), other.decision_function(ones), atol=2e-2)


def test_large_lambda_is_least_squares(table):
    X = table[0] * [1, 3, 0.2] + 5
    y = X @ [100.0, -200.0, 50.0] + 300 + np.random.default_rng(0).normal(size=len(X))
    mine = DRORegressor(over="none", alpha=1e-7).fit(X, y)
    other = Ridge(alpha=1e-6).fit(X, y)
    assert np.allclose(mine.predict(X), other.predict(X), atol=0.05 * y.std())
    assert mine.score(X, y) > 0.999 and mine.coef_.shape == (3,)


def test_regularised_as_the_rows_are_many():
    """Merged into a few, they are as hard to move."""
    X = np.random.default_rng(0).integers(0, 2, size=(2000, 3)).astype(float)
    z = X @ [2.0, -1.0, 0.5] - 1
    y = (np.random.default_rng(1).random(2000) < 1 / (1 + np.exp(-z))).astype(int)
    expected = LogisticRegression().fit(X, y).predict_proba(X)
    assert np.abs(DROClassifier(lam=1e6).fit(X, y).predict_proba(X) - expected).max() < 5e-3
    real = DRORegressor(lam=1e6).fit(X, z)
    assert np.abs(real.predict(X) - Ridge().fit(X, z).predict(X)).max() < 5e-3 * z.std()
    once = np.random.default_rng(2).normal(size=(50, 3))  # the library's rule, continued
    labels = (once[:, 0] > 0).astype(int)
    again = np.tile(once, (2, 1)), np.tile(labels, 2)
    for model in ("linear", "mlp:4"):
        mine = DROClassifier(model, random_state=0).fit(*again)
        strength = (2 if model == "linear" else 10) / 100
        same = DROClassifier(model, random_state=0, alpha=strength).fit(*again)
        assert (mine.predict_proba(once) == same.predict_proba(once)).all()


def test_lambda_is_the_librarys(table):
    """Of targets with a heavy tail, and of a mean that is not 0."""
    X, rng = table[0], np.random.default_rng(0)
    for y in (rng.normal(size=400), 7 + np.exp(2 * rng.normal(size=400))):
        expected = libdro.train(data=(X, y), model="linear").result["lambda"]
        assert DRORegressor().fit(X, y).result_["lambda"] == pytest.approx(expected, rel=1e-4)
    assert expected > 100
    assert DRORegressor(settings={"lambda": 3}).fit(X, y).result_["lambda"] == 3


def test_tilt_lowers_the_worst_loss(table):
    X, y = table
    number = (y == "b").astype(int)

    def losses(**settings):
        shares = DROClassifier(alpha=1e-4, **settings).fit(X, y).predict_proba(X)
        return -np.log(shares[np.arange(len(y)), number])

    mean, robust = losses(lam=1000.0), losses(lam=0.2)
    assert robust.max() < 0.8 * mean.max() and robust.mean() > mean.mean()
    worst = losses(objective="cvar:0.05")
    assert np.sort(worst)[-20:].mean() < np.sort(mean)[-20:].mean()


def test_as_the_library_predicts(table):
    X, y = table[0] * [1, 30, 0.2] + 5, table[1]
    for model in ("linear", "mlp:8"):
        mine = DROClassifier(model, lam=0.5, solver="recover", max_iter=50, random_state=3,
                             alpha=1e-4).fit(X, y)
        X32, number, _, _ = _merged(X.astype(np.float32), (y == "b").astype(np.int32), None, None)
        arrays = libdro.Arrays(X32, number, options="scale=none")
        run = libdro.train(data=arrays, model=model, optimizer="recover", steps=50, lam=0.5, seed=3,
                           reg="l2", reg_strength=1e-4, tilt="example", eval_train="no",
                           eval_every=10**6, threads=1)
        logits = run.model.logits(X)
        assert np.allclose(mine.decision_function(X), logits[:, 1] - logits[:, 0], atol=1e-3)
        assert mine.n_iter_ == 50


def test_company(table):
    """Three classes, pipelines, searches, processes, pickles, clones."""
    X, y = table[0], np.digitize(table[0][:, 0], [-1, 1])
    search = GridSearchCV(make_pipeline(StandardScaler(), DROClassifier(n_jobs=2)),
                          {"droclassifier__lam": [0.5, 5.0]}, cv=2, n_jobs=2).fit(X, y)
    best = search.best_estimator_
    assert search.best_score_ > 0.8 and best.predict_proba(X).shape == (len(X), 3)
    again = pickle.loads(pickle.dumps(best))
    assert (again.predict_proba(X) == best.predict_proba(X)).all()
    assert clone(best).get_params()["droclassifier__lam"] == best.get_params()["droclassifier__lam"]
    calibrated = CalibratedClassifierCV(DROClassifier(lam=0.5), cv=3).fit(*table)
    assert calibrated.score(*table) > 0.9


def test_sparse_is_dense(table):
    X, y = np.maximum(table[0], 0), table[1]
    for estimator in (DROClassifier(lam=1), DROClassifier("mlp:4", max_iter=40, random_state=1)):
        dense = clone(estimator).fit(X, y).decision_function(X)
        sparse = clone(estimator).fit(sp.csr_array(X), y).decision_function(sp.coo_array(X))
        assert np.allclose(dense, sparse, atol=1e-3)
    wide = sp.random(300, 6000, density=0.01, format="csr", random_state=0)
    labels = np.asarray(wide[:, :3000].sum(axis=1)).ravel() > np.asarray(
        wide[:, 3000:].sum(axis=1)).ravel()
    assert DROClassifier(alpha=1e-6).fit(wide, labels).score(wide, labels) > 0.95
    for estimator, y in ((DROClassifier(), np.arange(300) % 3), (DROClassifier("mlp"), labels),
                         (DRORegressor("mlp"), labels)):
        with pytest.raises(ValueError, match="sparse with 6000 columns: above 4096, model must be"):
            estimator.fit(wide, y)
    three = OneVsRestClassifier(DROClassifier(alpha=1e-6)).fit(wide, np.arange(300) % 3)
    assert three.score(wide, np.arange(300) % 3) > 0.95


def test_more_classes_than_the_exact_solvers_take():
    rng = np.random.default_rng(0)
    y = np.arange(2200) % 1100
    X = 3 * rng.normal(size=(1100, 8))[y] + 0.1 * rng.normal(size=(2200, 8))
    model = DROClassifier(max_iter=100, random_state=0).fit(X, y)
    assert model.result_["optimizer"] == "recover"
    assert model.score(X, y) > 20 / 1100  # better than by chance


def test_coefficients_of_two_classes(table):
    """As in scikit-learn: one row, which is the decision function's."""
    X, y = table
    mine, other = DROClassifier(lam=2).fit(X, y), LogisticRegression().fit(X, y)
    assert mine.coef_.shape == other.coef_.shape and mine.intercept_.shape == (1,)
    assert np.corrcoef(mine.coef_[0], other.coef_[0])[0, 1] > 0.9
    assert np.allclose(X @ mine.coef_[0] + mine.intercept_, mine.decision_function(X))
    mine.partial_fit(X, y)
    assert np.allclose(X @ mine.coef_[0] + mine.intercept_, mine.decision_function(X))


def test_warnings(table):
    """Of a solver that was stopped; none of one that was not."""
    X, y = table
    with pytest.warns(ConvergenceWarning, match="lbfgs did not reach the minimum in 2 steps"):
        DROClassifier(max_iter=2).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DROClassifier().fit(X, y)
        DRORegressor().fit(X, X[:, 0])


def test_misuse(table):
    X, y = table
    for estimator in (DROClassifier, DRORegressor):
        target = y if estimator is DROClassifier else X[:, 0]
        for model in ("tree", "mlp:", "mlp:a,b", "mlp:0", 3, None):
            for call in ("fit", "partial_fit"):
                more = [["a", "b"]] if (estimator, call) == (DROClassifier, "partial_fit") else []
                with pytest.raises(ValueError, match="model is"):
                    getattr(estimator(model), call)(X, target, *more)
        with pytest.raises(TypeError, match="settings is 'eta=1'"):
            estimator(settings="eta=1").fit(X, target)
        with pytest.raises(ValueError, match="settings has data"):
            estimator(settings={"data": "csv:x"}).fit(X, target)
        with pytest.raises(TypeError, match="n_jobs is '2'"):
            estimator(n_jobs="2").fit(X, target)
    with pytest.raises(ValueError, match="lbfgs: lambda=0"):
        DROClassifier(lam=0).fit(X, y)
    for prior in ("x", [1, 0], [1, 1, 1]):
        with pytest.raises(ValueError, match="class_prior is"):
            DROClassifier(class_prior=prior).fit(X, y)
    for groups, text in ((np.where(y == "a", 1.0, np.nan), "is missing"),
                         (np.where(y == "a", "x", None), "is missing"), (X, "groups have shape")):
        with pytest.raises(ValueError, match=text):
            DROClassifier(over="group").fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="only one class: 'a'"):
        DROClassifier().fit(X, np.full(400, "a"))
    with pytest.raises(ValueError, match="expected numbers"):
        DRORegressor().fit(X, y)
    with pytest.raises(ValueError, match="too large"):
        DRORegressor().fit(X, X[:, 0] * 1e200)


def test_groups(table):
    """The objective over groups lowers the loss of the worst one; groups are routed in a search."""
    X, y = table
    rng = np.random.default_rng(0)
    groups = np.where(rng.random(400) < 0.1, "rare", "usual")
    X = X.copy()
    X[groups == "rare", 0] *= -1

    def worst(estimator, **given):
        shares = estimator.fit(X, y, **given).predict_proba(X)
        losses = -np.log(shares[np.arange(400), (y == "b").astype(int)])
        return max(losses[groups == g].mean() for g in ("rare", "usual"))

    robust = worst(DROClassifier(lam=0.05, over="group"), groups=groups)
    assert robust < 0.9 * worst(DROClassifier())
    with pytest.raises(ValueError, match="groups="):
        DROClassifier(over="group").fit(X, y)
    with sklearn.config_context(enable_metadata_routing=True):
        robust = DROClassifier(lam=0.05, over="group").set_fit_request(groups=True)
        with pytest.raises(Exception, match="groups"):
            cross_validate(make_pipeline(StandardScaler(), robust), X, y, cv=2, error_score="raise")
        found = cross_validate(make_pipeline(StandardScaler(), robust), X, y, cv=GroupKFold(2),
                               params={"groups": np.arange(400) % 4}, error_score="raise")
        assert len(found["test_score"]) == 2


def test_class_prior(table):
    X, y = table
    plain = DROClassifier().fit(X, y)
    shares = {prior: DROClassifier(class_prior=prior).fit(X, y).predict_proba(X)
              for prior in ("train", "uniform")}
    assert np.allclose(shares["train"], plain.predict_proba(X))
    odds = shares["uniform"] / np.array([(y == "a").mean(), (y == "b").mean()]) ** -1
    again = odds / odds.sum(axis=1, keepdims=True)
    assert np.allclose(again, shares["train"], atol=1e-6)
    given = DROClassifier(class_prior=[0.5, 0.5]).fit(X, y)
    assert np.allclose(given.predict_proba(X), shares["uniform"], atol=1e-6)
    assert (given.predict(X) == "b").sum() > (plain.predict(X) == "b").sum()
    with pytest.raises(ValueError, match="uniform"):
        DROClassifier(class_prior="none").fit(X, y).predict(X)
    with pytest.raises(ValueError, match="expected 2 numbers"):
        DROClassifier(class_prior={"a": 0.5, "b": 0.5}).fit(X, y)
    over = DROClassifier(over="class", class_prior="train").fit(X, y)
    assert abs(over.predict_proba(X)[:, 1].mean() - (y == "b").mean()) < 0.05
    y = np.where(np.arange(len(y)) % 50 == 0, "c", y)  # a class without weight
    assert np.isfinite(DROClassifier().fit(X, y, y != "c").predict_proba(X)).all()
    with pytest.raises(ValueError, match="class 'c' has no example with a weight"):
        DROClassifier(class_prior="uniform").fit(X, y, y != "c")


def test_shares_of_a_stream(table):
    """They are of the weights, and go on from those of a fit."""
    X, y = table
    weights = np.where(y == "b", 5.0, 1.0)
    expected = [weights[y == name].sum() / weights.sum() for name in ("a", "b")]
    model = DROClassifier(over="class", class_prior="train")
    for _ in range(3):
        model.partial_fit(X, y, ["a", "b"], weights)
    assert np.allclose(model._share, expected, atol=0.01)
    few = np.append(np.flatnonzero(y == "b")[:3], np.flatnonzero(y == "a")[:1])
    for given in (None, weights):
        before = model.fit(X, y, given).predict_proba(X)
        model.partial_fit(X[few], y[few])
        assert np.abs(model.predict_proba(X) - before).mean() < 0.05


def test_coefficients_of_another_model(table):
    for model in (DROClassifier(), DRORegressor()):
        y = table[1] if isinstance(model, DROClassifier) else table[0][:, 0]
        assert hasattr(model.fit(table[0], y), "coef_")
        model.set_params(model="mlp:4", max_iter=20).fit(table[0], y)
        assert not hasattr(model, "coef_") and not hasattr(model, "intercept_")


@pytest.mark.parametrize("model", ["linear", "mlp:8"])
def test_stream(model):
    """Chunks of a stream come close to a fit of all of it; a pickle goes on to the bit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40000, 5)).astype(np.float32)
    y = np.where(X @ [1, -1, 0.5, 0, 2] + rng.normal(size=len(X)) > 1, "yes", "no")
    batches = [slice(k, k + 1000) for k in range(0, len(X), 1000)]
    mine = DROClassifier(model, lam=1.0, random_state=0)
    for at in batches[:20]:
        mine.partial_fit(X[at], y[at], classes=["no", "yes"])
    other = pickle.loads(pickle.dumps(mine))
    for at in batches[20:]:
        mine.partial_fit(X[at], y[at])
        other.partial_fit(sp.csr_array(X[at]), y[at])
    assert (mine.predict_proba(X) == other.predict_proba(X)).all()
    whole = DROClassifier(lam=1.0).fit(X[:10000], y[:10000])
    assert mine.score(X, y) > whole.score(X, y) - 0.02
    target = (X @ [1, -1, 0.5, 0, 2] * 30 + 100).astype(float)
    real = DRORegressor(model, random_state=0)
    for at in batches:
        real.partial_fit(X[at], target[at])
    assert real.score(X, target) > (0.99 if model == "linear" else 0.8)


def test_stream_of_weights_and_groups(table):
    X, y = table
    wrong = np.where(np.arange(400) < 200, y, np.where(y == "a", "b", "a"))
    mine = DROClassifier(over="group", random_state=0)
    for _ in range(30):
        mine.partial_fit(X, wrong, ["a", "b"], np.arange(400) < 200, groups=np.arange(400) % 3)
    assert mine.score(X, y) > 0.9
    with pytest.raises(ValueError, match="group 7 is new"):
        mine.partial_fit(X, y, groups=np.full(400, 7))
    with pytest.raises(ValueError, match="give them to the first call too"):
        DROClassifier().partial_fit(X, y, ["a", "b"]).partial_fit(X, y, groups=np.zeros(400))
    with pytest.raises(ValueError, match="lam=1 is not used with objective='cvar:0.1'"):
        DROClassifier(lam=1, objective="cvar:0.1").fit(X, y)
    with pytest.raises(ValueError, match="none of the classes"):
        mine.partial_fit(X, np.full(400, "c"), groups=np.zeros(400))
    with pytest.raises(ValueError, match="first call"):
        DROClassifier().partial_fit(X, y)


def test_partial_fit_of_many_columns():
    """Rows that are learned from once, of any number of columns: better than a guess before each is
    seen."""
    random = np.random.default_rng(0)
    for columns in (5, 300):
        X = 1 + 3 * random.normal(size=(3000, columns))
        z = 2 * ((X - 1) / 3) @ random.normal(size=columns) / np.sqrt(columns)
        y = (random.random(len(z)) < 1 / (1 + np.exp(-z))).astype(int)
        model, losses = DROClassifier(), []
        for k in range(0, len(X), 100):
            rows, labels = X[k:k + 100], y[k:k + 100]
            if k:
                p = model.predict_proba(rows)[np.arange(len(labels)), labels]
                losses.append(-np.log(p).mean())
            model.partial_fit(rows, labels, classes=[0, 1])
        assert np.mean(losses) < 0.65
