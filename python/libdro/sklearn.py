"""An estimator for scikit-learn: a linear classifier that minimises the tilted loss."""
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ._arrays import Arrays
from ._model import read_tensor
from ._train import train


class DROClassifier(ClassifierMixin, BaseEstimator):
    """A linear softmax classifier of the minimum of lam log mean exp(loss/lam) + alpha/2 |w|^2.

    lam: smaller values emphasise high losses; larger ones approach the mean loss.
    solver: "lbfgs" or "newton", the exact minimum; or any optimiser of the library ("recover").
    alpha: strength of the l2 regulariser, which is on the intercept too.
    tilt: "example", "class" (all classes count the same) or "none".
    max_iter: most iterations of an exact solver, or steps of the others; None: as the library has it.
    settings: a dictionary of further settings of libdro.train().

    Columns are used as they are; put a scaler before it where they differ in size."""

    def __init__(self, lam=1.0, solver="lbfgs", alpha=1e-4, tilt="example", max_iter=None,
                 settings=None, random_state=None):
        self.lam = lam
        self.solver = solver
        self.alpha = alpha
        self.tilt = tilt
        self.max_iter = max_iter
        self.settings = settings
        self.random_state = random_state

    def fit(self, X, y):
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("DROClassifier needs samples of at least 2 classes in the data, but "
                             f"the data contains only one class: {self.classes_[0]!r}")
        arrays = Arrays(X, numbers.astype(np.int32), options="scale=none")
        settings = dict(model="linear", optimizer=self.solver, lam=self.lam, tilt=self.tilt,
                        reg="l2", reg_strength=self.alpha, steps=self.max_iter, eval_train="no",
                        seed=self._seed())
        run = train(data=arrays, **dict(settings, **(self.settings or {})))
        self.coef_ = read_tensor(run.weights, "fc.weight").astype(np.float64)
        self.intercept_ = read_tensor(run.weights, "fc.bias").astype(np.float64)
        self.result_ = run.result
        self.n_iter_ = int(self.result_["step"])
        return self

    def _seed(self):
        if self.random_state is None or isinstance(self.random_state, (int, np.integer)):
            return self.random_state
        return int(self.random_state.randint(2**31 - 1))

    def _logits(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        return X @ self.coef_.T + self.intercept_

    def decision_function(self, X):
        """The logits, (examples, classes); of two classes the margin of the second, (examples,)."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X):
        logits = self._logits(X)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def predict(self, X):
        logits = self._logits(X)
        return self.classes_[logits.argmax(axis=1)]
