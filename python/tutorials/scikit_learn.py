# %% [markdown]
# # Robust estimators in scikit-learn
#
# `DROClassifier` is a logistic regression that minimises lam log mean exp(loss/lam) instead of the
# mean loss: it gives weight to what the model gets wrong. The minimum is exact.

# %%
import os
import tempfile

import matplotlib
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from libdro.sklearn import DROClassifier, DRORegressor

matplotlib.use(os.environ.get("MPLBACKEND", "agg"))
import matplotlib.pyplot as plt  # noqa: E402

rng = np.random.default_rng(0)


def people(n):
    """A small group, 5 % of the people, for which the first feature means the opposite."""
    group = np.where(rng.random(n) < 0.05, "small", "large")
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 3)) + 1.5 * (2 * y[:, None] - 1) * [1, 0.7, 0]
    X[group == "small", 0] *= -1
    return X, y, group


X, y, group = people(4000)
X_test, y_test, group_test = people(8000)


def accuracies(model):
    right = model.predict(X_test) == y_test
    return [right[group_test == name].mean() for name in ("large", "small")]


# %% [markdown]
# The mean loss ignores the small group. `over="group"` makes the objective robust over groups:
# their names go to `fit`. Predicting does not need them.

# %%
usual = LogisticRegression().fit(X, y)
robust = DROClassifier(over="group", lam=0.05).fit(X, y, groups=group)
print("accuracies of the large and the small group")
print("  LogisticRegression   %.3f %.3f" % tuple(accuracies(usual)))
print("  DROClassifier        %.3f %.3f" % tuple(accuracies(robust)))
assert accuracies(robust)[1] > accuracies(usual)[1] + 0.1

# %% [markdown]
# Smaller lam, more robust. The plot shows the exchange.

# %%
lams = np.geomspace(0.02, 10, 8)
curves = np.array([accuracies(DROClassifier(over="group", lam=lam).fit(X, y, groups=group))
                   for lam in lams])
figure, axis = plt.subplots(figsize=(5, 3))
for curve, name in zip(curves.T, ("large group", "small group")):
    axis.semilogx(lams, curve, "o-", label=name)
axis.set(xlabel="lam", ylabel="accuracy")
axis.legend()
figure.tight_layout()
figure.savefig(os.path.join(tempfile.mkdtemp(), "groups.png"))

# %% [markdown]
# Pipelines, searches and everything else of scikit-learn work as with its own estimators.

# %%
search = GridSearchCV(make_pipeline(StandardScaler(), DROClassifier()),
                      {"droclassifier__lam": [0.5, 2.0, 10.0]}, cv=3).fit(X, y)
print("the best lam for the mean accuracy:", search.best_params_)

# %% [markdown]
# A stream: `partial_fit` takes chunks; memory does not grow.

# %%
stream = DROClassifier("mlp:16", lam=1.0, random_state=0)
for _ in range(40):
    chunk, labels, _ = people(1000)
    stream.partial_fit(chunk, labels, classes=[0, 1])
print("after 40,000 rows: accuracy %.3f" % stream.score(X_test, y_test))
assert stream.score(X_test, y_test) > 0.85

# %% [markdown]
# `DRORegressor` does the same for real-valued targets.

# %%
target = X @ [1.0, -2.0, 0.5] + rng.normal(size=len(X))
print("R2 %.3f" % DRORegressor(lam=2.0).fit(X, target).score(X, target))
