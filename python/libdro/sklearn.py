"""Estimators for scikit-learn: linear models and networks that minimise a robust objective.

    DROClassifier(lam=1).fit(X, y)                       # the exact minimum of a linear model
    DROClassifier(over="group").fit(X, y, groups=g)      # all groups matter alike
    DRORegressor(model="mlp").fit(X, y)"""
from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (_check_sample_weight, check_is_fitted, column_or_1d,
                                      validate_data)

from ._arrays import Arrays, is_sparse, look_for_steps, shown
from ._lib import setting_name
from ._model import read_header, read_tensor
from ._stream import Stream
from ._train import train

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

_EXACT = ("lbfgs", "newton")
_EXACT_MOST = 1024  # classes of the exact solvers
_DENSE_MOST = 4096  # columns of sparse rows that the library makes dense
_BATCH = 16  # rows of a step; fewer learn faster from each row, and cost more calls

_PARAMETERS = """
    model: "linear", or "mlp:128,64" with its hidden layers ("mlp": those). "auto": fit() tries both
        and keeps the one that is better on a holdout.
    objective: None: lam log mean exp(loss/lam) ("kl"). Or, of a linear model, "kl-radius:RHO",
        "cvar:ALPHA", "chi2:RHO" or "mean".
    lam: smaller values emphasise high losses, larger ones approach the mean loss; None: the
        library's rule, which is gentle.
    over: "example", "class", "group" (give fit the groups) or "none" (the mean loss).
    alpha: strength of the l2 regulariser, which is on the intercept too; None: the library's rule,
        a constant over the number of examples, or over the sum of their weights if that is larger.
    solver: None: the exact minimum of a linear model (lbfgs) of at most 1024 classes, otherwise
        recover. "newton", or any optimiser of the library.
    max_iter: most iterations of an exact solver, or steps of the others; None: the library's rule.
    settings: a dictionary of further settings of libdro.train(), for example {"eta": 0.01}.
    n_jobs: threads; None: 1, -1: one for each processor.

    Columns are used as they are: put a StandardScaler before it where they differ in size. Sparse
    rows of more than 4096 columns: model="linear", two classes or a real-valued target. Equal
    examples are merged into one with the sum of their weights, so that the result depends neither
    on the order of the rows nor on whether an example has a weight of 2 or is there twice.
    partial_fit() takes one step for each batch of 16 rows, with RECOVER unless `solver` names
    another stochastic optimiser; fit() starts anew. fit() warns (ConvergenceWarning) if an exact
    solver ends before the minimum. Fitted attributes: coef_ and intercept_ of a linear model (of
    two classes as in scikit-learn: one row, for the second class), weights_ (a list of matrix and
    bias for each layer), n_iter_, and result_ of fit()."""


class _Estimator(BaseEstimator):
    _real = False

    def __init__(self, model: str = "linear", objective: str | None = None,
                 lam: float | None = None, over: str = "example", alpha: float | None = None,
                 solver: str | None = None, max_iter: int | None = None,
                 settings: dict[str, Any] | None = None, n_jobs: int | None = None,
                 random_state: Any = None) -> None:
        self.model = model
        self.objective = objective
        self.lam = lam
        self.over = over
        self.alpha = alpha
        self.solver = solver
        self.max_iter = max_iter
        self.settings = settings
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ---- fit ----

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None,
            groups: Any = None) -> Self:
        """sample_weight: example weights, 0 or more. groups: one value per example, of any type,
        for over="group"."""
        if self.model != "auto":
            _hidden(self.model)  # says what is wrong with it
        look_for_steps(X)
        X, y = self._checked(X, y, reset=True)
        weights = _weights(sample_weight, X)
        y = self._encode_first(y, weights)
        self._check_wide(X)
        groups = self._groups(groups, X, first=True)
        total = X.shape[0] if weights is None else float(weights.sum())
        X, y, groups, weights = _merged(X, y, groups, weights)
        arrays = Arrays(X, y, groups=groups, weights=weights, options="scale=none",
                        classes=None if self._real else np.arange(len(self.classes_)))
        exact = self.model == "linear" and (self._real or len(self.classes_) <= _EXACT_MOST)
        solver = self.solver or ("lbfgs" if exact else "recover")
        settings = dict(model=self.model, optimizer=solver, steps=self.max_iter,
                        eval_train="no", eval_every=10**6, seed=self._seed(),
                        threads=self._threads(), progress=False, **self._objective(),
                        **self._strength(X, total))
        run = train(data=arrays, **dict(settings, **self._more_settings()))
        self._warn(run)
        about = read_header(run.weights)[0]
        self._take(_layers(run.weights, about, self.n_features_in_))
        self._learn_prior(about["__metadata__"])
        self.result_ = run.result
        self.n_iter_ = max(1, int(self.result_["step"]))
        self._stream, self._state = None, None
        return self

    def _more_settings(self):
        if not isinstance(self.settings, (dict, type(None))):
            raise TypeError(f"settings is {self.settings!r}: expected a dictionary")
        if "data" in (self.settings or ()):
            raise ValueError("settings has data: give it to fit(X, y)")
        return self.settings or {}

    @staticmethod
    def _warn(run):
        """Of an exact solver that was stopped."""
        solver = run.result["optimizer"]
        if solver in _EXACT and not any(note.startswith(solver) for note in run.notes):
            warnings.warn(f"{solver} did not reach the minimum in {run.result['step']} steps: "
                          "raise max_iter or scale the columns", ConvergenceWarning, stacklevel=4)

    def _objective(self):
        """The settings that say what is minimised."""
        if self.objective and self.lam is not None:
            raise ValueError(f"lam={self.lam} is not used with objective={self.objective!r}: give "
                             "one of them")
        chosen = dict(lam=self._gentle() if self.lam is None else self.lam, tilt=self.over,
                      objective=self.objective)
        if self.alpha is not None:
            chosen.update(reg="l2", reg_strength=self.alpha)
        return chosen

    def _check_wide(self, X):
        classes = 0 if self._real else len(self.classes_)
        if _is_wide(X) and (classes > 2 or self.model.startswith("mlp")):
            raise ValueError(
                f"X is sparse with {X.shape[1]} columns: above {_DENSE_MOST}, model must be "
                '"linear", and there must be two classes or a real-valued target. For more '
                "classes use OneVsRestClassifier(DROClassifier()), or fewer columns")

    def _gentle(self):
        """The library's rule for lam where the library does not see what the rule needs."""
        return None

    def _strength(self, X, total):
        """The library's rule for reg_strength, a prior worth one example or ten, counts the rows of
        X, which are all different. Here equal examples count each, a weight of 2 as two."""
        given = self.alpha is not None or not {"reg", "reg_strength"}.isdisjoint(
            self._more_settings())
        if given or self.model == "auto" or total <= X.shape[0]:
            return {}
        worth = 1
        if self.model != "linear":
            worth = 10
        elif not self._real and len(self.classes_) == 2 and not _is_wide(X):
            worth = 2  # two outputs share the margin
        return dict(reg="l2", reg_strength=worth / total)

    def _checked(self, X, y, reset):
        return validate_data(self, X, y, reset=reset, accept_sparse="csr", dtype=np.float32,
                             y_numeric=self._real, estimator=self)

    def _groups(self, groups, X, first):
        if groups is None:
            if self.over == "group":
                raise ValueError('over="group" needs the group of every example: '
                                 "fit(X, y, groups=...)")
            return None
        groups = np.asarray(groups)
        if groups.shape != (X.shape[0],):
            raise ValueError(f"groups have shape {groups.shape}: expected ({X.shape[0]},), one per "
                             "example")
        missing = np.array([value is None or value != value for value in groups.tolist()])
        if missing.any():
            raise ValueError(f"groups: row {missing.argmax()} is missing: give such rows a group "
                             "of their own")
        if first:
            self.groups_ = np.unique(groups)
        if not hasattr(self, "groups_"):
            raise ValueError("groups: give them to the first call too")
        unknown = np.setdiff1d(groups, self.groups_)
        if len(unknown):
            raise ValueError(f"group {shown(unknown[0])} is new: give all groups to the first call")
        return np.searchsorted(self.groups_, groups).astype(np.int32)

    def _seed(self):
        if self.random_state is None or isinstance(self.random_state, (int, np.integer)):
            return self.random_state
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _threads(self):
        jobs = 1 if self.n_jobs is None else self.n_jobs
        if not isinstance(jobs, (int, np.integer)):
            raise TypeError(f"n_jobs is {jobs!r}: expected a whole number or None")
        return 0 if jobs < 0 else max(1, jobs)

    # ---- a stream ----

    def _partial_fit(self, X, y, sample_weight, groups, first):
        if first:
            self._stream = self._state = None
        X, y = self._checked(X, y, reset=first)
        weights = _weights(sample_weight, X)
        y = self._encode_first(y, weights) if first else self._encode(y)
        groups = self._groups(groups, X, first)
        if weights is not None:
            rows = self._repeated(weights)
            X, y, groups = X[rows], y[rows], None if groups is None else groups[rows]
        if first or getattr(self, "_stream", None) is None:
            self._start_stream(X)
        for k in range(0, X.shape[0], _BATCH):
            rows = X[k:k + _BATCH]
            rows = rows.toarray() if is_sparse(rows) else np.ascontiguousarray(rows)
            self._stream.learn(rows, y[k:k + _BATCH].copy(),
                               None if groups is None else groups[k:k + _BATCH].copy())
        self._take(_unflatten(self._stream.weights(), self._shapes))
        self.n_iter_ = self._stream.optimizer.info()["step"]
        return self

    def _repeated(self, weights):
        """Rows as often as their weights say; a fraction is a chance."""
        if not hasattr(self, "_random"):
            self._random = np.random.RandomState(self._seed())
        whole = np.floor(weights).astype(int)
        whole += self._random.random_sample(len(weights)) < weights - whole
        return np.repeat(np.arange(len(weights)), whole)

    @staticmethod
    def _step(X):
        """A scaled step along a row changes its output by about eta times the sum of the columns'
        sizes: dro train's rule for streams."""
        squares = X.multiply(X).mean(axis=0) if is_sparse(X) else np.square(X).mean(axis=0)
        sizes = np.sqrt(np.asarray(squares, dtype=float)).ravel()
        return float(min(2 / max(sizes.mean() * min(len(sizes), 1000), 1e-9), 0.1))

    def _start_stream(self, X):
        hidden = _hidden(self.model)
        outputs = 1 if self._real else len(self.classes_)
        solver = "recover" if self.solver is None or self.solver in _EXACT else self.solver
        settings = dict(optimizer=solver, batch=_BATCH, eta=0.004 if hidden else self._step(X),
                        eta_schedule="auto", **self._objective())
        if settings["lam"] is None and not self._real:  # the library's rule for tables
            settings["lam"] = 50 * np.log(len(self.classes_))
        if solver == "recover":
            settings.update(form="two-point", precondition="rms")
        if solver in ("sgd", "adamw"):
            settings.pop("lam"), settings.pop("tilt")
        settings.update({setting_name(k): v for k, v in self._more_settings().items()})
        settings = {k: v for k, v in settings.items() if v is not None}
        shape = (self.n_features_in_, outputs, self._real,
                 len(self.groups_) if hasattr(self, "groups_") else 0)
        sizes = [self.n_features_in_] + hidden + [outputs]
        self._shapes = [(b, a) for a, b in zip(sizes, sizes[1:])]
        w, state = None, getattr(self, "_state", None)
        if hasattr(self, "weights_"):
            w = np.concatenate([part.ravel() for layer in self._standard() for part in layer])
            w = w.astype(np.float32)
        self._stream = Stream(self.model, shape, settings, w, self._seed() or 0, self._threads())
        if state is not None:
            self._stream.optimizer.load(state)

    def _forget_linear(self):
        """Of an earlier fit with another model."""
        for name in ("coef_", "intercept_"):
            self.__dict__.pop(name, None)

    def __getstate__(self):
        state = dict(super().__getstate__())
        stream = state.pop("_stream", None)
        if stream is not None:
            state["_state"] = stream.optimizer.save()
        return state

    # ---- predict ----

    def _outputs(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])
        for k, (matrix, bias) in enumerate(self.weights_):
            X = (np.maximum(X, 0) if k else X) @ matrix.T + bias
        return X


class DROClassifier(ClassifierMixin, _Estimator):
    __doc__ = "A softmax classifier: linear, or a network." + _PARAMETERS + """

    class_prior: the classes' shares where it is used: "train", as in the training data; "uniform";
        or an array in the order of classes_. None: what the objective implies, which is "train"
        unless it is over classes. Probabilities follow it, and predictions are the most probable
        class."""

    def __init__(self, model: str = "linear", objective: str | None = None,
                 lam: float | None = None, over: str = "example", alpha: float | None = None,
                 solver: str | None = None, max_iter: int | None = None,
                 settings: dict[str, Any] | None = None, n_jobs: int | None = None,
                 random_state: Any = None,
                 class_prior: str | ArrayLike | None = None) -> None:
        super().__init__(model, objective, lam, over, alpha, solver, max_iter, settings, n_jobs,
                         random_state)
        self.class_prior = class_prior

    def partial_fit(self, X: Any, y: Any, classes: Any = None,
                    sample_weight: ArrayLike | None = None, groups: Any = None) -> Self:
        """classes: all that there will be; needed in the first call."""
        first = not hasattr(self, "classes_")
        if first:
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit: all "
                                 "that there will be")
            self._all_classes = np.unique(classes)
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(f"classes {classes!r} are not those of the first call: "
                             f"{self.classes_!r}")
        self._partial_fit(X, y, sample_weight, groups, first)
        y = self._encode(column_or_1d(y))
        weights = 1.0 if sample_weight is None else np.asarray(sample_weight, dtype=float)
        self._counts = getattr(self, "_counts", 1) + np.bincount(
            y, np.broadcast_to(weights, y.shape), minlength=len(self.classes_))
        self._share = self._counts / self._counts.sum()
        self._shift = np.zeros(len(self.classes_))
        if self.over == "class":
            self._shift = np.log(self._share * len(self.classes_))
        return self

    def _encode_first(self, y, weights):
        check_classification_targets(y)
        seen = getattr(self, "_all_classes", None)
        self.classes_ = np.unique(y) if seen is None else seen
        used = y if weights is None else y[weights > 0]
        if len(self.classes_) < 2 or (seen is None and len(np.unique(used)) < 2):
            raise ValueError(f"{type(self).__name__} needs samples of at least 2 classes in the "
                             "data, but the data contains only one class: "
                             f"{shown(self.classes_[0])}")
        return self._encode(y)

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None,
            groups: Any = None) -> Self:
        for name in ("_all_classes", "_counts", "_random"):
            self.__dict__.pop(name, None)
        super().fit(X, y, sample_weight, groups)
        self._prior_shift()  # says what is wrong with class_prior
        weights = np.asarray(1.0 if sample_weight is None else sample_weight, dtype=float)
        total = np.broadcast_to(weights, np.asarray(y).shape[:1]).sum()
        self._counts = np.maximum(self._share * total, 1)  # partial_fit() goes on from them
        return self

    fit.__doc__ = _Estimator.fit.__doc__

    def _encode(self, y):
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y has {shown(unknown[0])}, which is none of the classes "
                             f"{self.classes_!r}")
        return np.searchsorted(self.classes_, y).astype(np.int32)

    def _learn_prior(self, about):
        self._share = np.array(json.loads(about["dro.prior"]))
        self._shift = np.array(json.loads(about.get("dro.prior_shift", "0")))

    def _take(self, layers):
        self._forget_linear()
        if len(layers[-1][1]) == 1:  # sparse rows of many features: the margin of the second class
            matrix, bias = layers[-1]
            layers[-1] = np.vstack([-matrix, matrix]) / 2, np.concatenate([-bias, bias]) / 2
        self.weights_ = [(m.astype(np.float64), b.astype(np.float64)) for m, b in layers]
        if len(layers) == 1:
            self.coef_, self.intercept_ = self.weights_[0]
            if len(self.classes_) == 2:
                self.coef_, self.intercept_ = np.diff(self.coef_, axis=0), np.diff(self.intercept_)

    def _standard(self):
        return self.weights_

    def _logits(self, X):
        return self._outputs(X) + self._prior_shift()

    def _prior_shift(self):
        """What class_prior adds to the logits."""
        if self.class_prior is None:
            return 0
        if isinstance(self.class_prior, str):
            if self.class_prior not in ("train", "uniform"):
                raise ValueError(f'class_prior is {self.class_prior!r}: expected "train", '
                                 '"uniform" or an array')
            if self.class_prior == "train":
                return self._shift
            prior = np.ones(len(self.classes_))
        else:
            try:
                prior = np.asarray(self.class_prior, dtype=float)
            except (ValueError, TypeError):
                prior = np.zeros(0)
            if prior.shape != self.classes_.shape or not (prior > 0).all():
                raise ValueError(f"class_prior is {self.class_prior!r}: expected "
                                 f"{len(self.classes_)} numbers above 0")
        if not self._share.all():
            raise ValueError(f"class_prior: class {shown(self.classes_[self._share.argmin()])} has "
                             "no example with a weight above 0, so no other prior can be given")
        return self._shift + np.log(prior / self._share)

    def decision_function(self, X: Any) -> NDArray[Any]:
        """The logits, (examples, classes); of two classes the margin of the second, (examples,)."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """The logarithms of predict_proba()."""
        return np.log(self.predict_proba(X))

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """The classes' probabilities, (examples, classes)."""
        logits = self._logits(X)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class."""
        logits = self._logits(X)
        return self.classes_[logits.argmax(axis=1)]


class DRORegressor(RegressorMixin, _Estimator):
    __doc__ = "Least squares: linear, or a network." + _PARAMETERS + """

    The loss is (prediction - y)^2 / 2 with y in standard deviations from its mean, as lam is;
    those of partial_fit() are the first call's, which should have many rows."""

    _real = True

    def partial_fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None,
                    groups: Any = None) -> Self:
        """One step for each batch of 16 rows."""
        return self._partial_fit(X, y, sample_weight, groups, not hasattr(self, "weights_"))

    def _checked(self, X, y, reset):
        X, y = super()._checked(X, y, reset)
        try:
            return X, np.asarray(y, dtype=np.float64)
        except (ValueError, TypeError):
            raise ValueError(f"y has type {y.dtype}: expected numbers") from None

    def _encode_first(self, y, weights):
        with np.errstate(over="ignore", invalid="ignore"):
            self._centre = float(np.average(y, weights=weights))
            deviation = float(np.sqrt(np.average((y - self._centre) ** 2, weights=weights)))
        if not np.isfinite(deviation):
            raise ValueError("y has values that are too large: divide it by a constant")
        self._scale = deviation if deviation > 0 else 1.0
        self._fourth = float(np.average(((y - self._centre) / self._scale) ** 4, weights=weights))
        return self._encode(y)

    def _gentle(self):
        given = {"lam", "lambda", "lambda_", "objective"}.intersection(self._more_settings())
        if given or self.objective or self.over == "none":
            return None
        return max(25.0, 12.5 * (self._fourth - 1))  # larger where the tail of y is heavy

    def _encode(self, y):
        return np.ascontiguousarray((y - self._centre) / self._scale, dtype=np.float32)

    def _learn_prior(self, about):
        pass

    def _take(self, layers):
        self._forget_linear()
        layers = [(m.astype(np.float64), b.astype(np.float64)) for m, b in layers]
        matrix, bias = layers[-1]
        self.weights_ = layers[:-1] + [(matrix * self._scale, bias * self._scale + self._centre)]
        if len(layers) == 1:
            self.coef_, self.intercept_ = self.weights_[0][0][0], float(self.weights_[0][1][0])

    def _standard(self):
        matrix, bias = self.weights_[-1]
        return self.weights_[:-1] + [(matrix / self._scale, (bias - self._centre) / self._scale)]

    def predict(self, X: Any) -> NDArray[Any]:
        """The target of every example, (examples,)."""
        return self._outputs(X)[:, 0]


def _is_wide(X):
    """Whether the library keeps X sparse; two classes then have one output."""
    return is_sparse(X) and X.shape[1] > _DENSE_MOST


def _weights(sample_weight, X):
    if sample_weight is None:
        return None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight: all weights are zero")
    return weights


def _hidden(model):
    """Sizes of the hidden layers."""
    if model in ("linear", "mlp"):
        return [] if model == "linear" else [128, 64]
    name, _, sizes = str(model).partition(":")
    if name != "mlp" or not all(size.isdigit() and int(size) for size in sizes.split(",")):
        raise ValueError(f'model is {model!r}: expected "linear" or "mlp:128,64" with the sizes of '
                         "the hidden layers")
    return [int(size) for size in sizes.split(",")]


def _layers(path, about, features):
    """Matrix and bias of each layer of a weights file."""
    layers = []
    for name in about:
        if name.endswith(".weight"):
            matrix = read_tensor(path, name)
            bias = name[:-len("weight")] + "bias"
            if bias in about:
                layers.append((matrix, read_tensor(path, bias)))
            else:  # sparse rows of many features: the last column is the constant
                layers.append((matrix[:, :features], matrix[:, features:].sum(axis=1)))
    return layers


def _unflatten(w, shapes):
    layers, first = [], 0
    for outputs, inputs in shapes:
        end = first + outputs * inputs
        layers.append((w[first:end].reshape(outputs, inputs), w[end:end + outputs]))
        first = end + outputs
    return layers


# ---- equal examples are one ----

def _hashes(X):
    """A number for each row; equal rows have equal ones."""
    random = np.random.default_rng(0)
    factors = random.integers(0, 2**63, size=X.shape[1], dtype=np.uint64) * 2 + 1
    if is_sparse(X):
        bits = X.data.astype(np.float32).view(np.uint32).astype(np.uint64)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(bits * factors[X.indices])])
        return sums[X.indptr[1:]] - sums[X.indptr[:-1]]
    total = np.zeros(X.shape[0], dtype=np.uint64)
    for column, factor in zip(X.T, factors):
        total += np.ascontiguousarray(column, np.float32).view(np.uint32).astype(np.uint64) * factor
    return total


def _merged(X, y, groups, weights):
    """The examples that are different, in an order that is theirs, and their weights: None if all
    are alike. Examples without weight are left out."""
    keep = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
    number = _hashes(X) + np.ascontiguousarray(y).view(np.uint32) * np.uint64(0x9E3779B97F4A7C15)
    if groups is not None:
        number += groups.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    number = number[keep]
    _, first, of = np.unique(number, return_index=True, return_inverse=True)
    if len(first) < len(keep) and not _same(X, y, groups, keep, keep[first][of]):
        return X, y, groups, weights  # two that are different have the same number
    mass = np.bincount(of, weights=None if weights is None else weights[keep])
    rows = keep[first]
    even = (mass == mass[0]).all()
    return (X[rows], y[rows], None if groups is None else groups[rows], None if even else mass)


def _same(X, y, groups, a, b):
    moved = a != b
    a, b = a[moved], b[moved]
    if is_sparse(X):
        rows = (X[a] != X[b]).nnz == 0
    else:
        rows = np.array_equal(X[a], X[b])
    return rows and np.array_equal(y[a], y[b]) and (groups is None or
                                                    np.array_equal(groups[a], groups[b]))
