# %% [markdown]
# # A training run
#
# Nine in ten customers stay. A model that minimises the mean loss mostly learns about those. This
# tutorial trains one with RECOVER on the robust objective, looks at what the model finds hard, and
# resumes a run that was stopped.

# %%
import os
import tempfile

import matplotlib
import numpy as np

import libdro

matplotlib.use(os.environ.get("MPLBACKEND", "agg"))
import matplotlib.pyplot as plt  # noqa: E402

rng = np.random.default_rng(0)
n = 4000
leaves = rng.random(n) < 0.1
X = rng.normal(size=(n, 6)) + 1.2 * leaves[:, None] * [1, 1, 0.5, 0, 0, 0]
y = np.where(leaves, "leaves", "stays")
train, test = slice(0, 3000), slice(3000, n)

# %% [markdown]
# `data` may also be a pandas or pyarrow table with labels, a SciPy sparse matrix, a torch tensor,
# or the name of a file (`"csv:people.csv,label=income"`). All settings of the program `dro` are
# arguments; `help(libdro.train)` lists them. `lam` is lambda: small values emphasise high losses.

# %%
folder = os.path.join(tempfile.mkdtemp(), "run")
settings = dict(data=(X[train], y[train]), test=(X[test], y[test]), model="linear",
                optimizer="recover", lam=1.0, tilt="class", epochs=10)
run = libdro.train(**settings, out=folder)
print(f"balanced accuracy {run.result['test']['balanced_accuracy']:.3f}")
assert run.result["test"]["balanced_accuracy"] > 0.75

# %% [markdown]
# A folder can be loaded later, by another process. The last expression of a cell shows the report
# in a notebook: `run.report()`.

# %%
model = libdro.load(folder)
print(model.predict(X[:5]), model.predict_proba(X[:5]).round(2))
run.report().save(os.path.join(folder, "report.html"))

# %% [markdown]
# What does the model find hard? `explain` gives the weights of the worst-case distribution.

# %%
hard = model.explain((X[test], y[test]), "cvar:0.1")
print(f"mean loss {hard['mean_loss']:.3f}, of the worst tenth {hard['value']:.3f}")

figure, axes = plt.subplots(1, 2, figsize=(8, 3))
steps = run.metrics["step"] if hasattr(run.metrics, "columns") else [r["step"] for r in run.metrics]
losses = (run.metrics["test.objective"] if hasattr(run.metrics, "columns")
          else [r["test"]["objective"] for r in run.metrics])
axes[0].plot(steps, losses)
axes[0].set(xlabel="step", ylabel="F on the test data")
axes[1].hist([hard["losses"][y[test] == name] for name in ("stays", "leaves")], bins=20, log=True,
             label=["stays", "leaves"])
axes[1].set(xlabel="loss", ylabel="examples")
axes[1].legend()
figure.tight_layout()
figure.savefig(os.path.join(folder, "runs.png"))

# %% [markdown]
# Ctrl-C stops a run and leaves a checkpoint; here a function does the same. With `resume=True` the
# run continues, and ends with the same weights, byte for byte.


# %%
def stop(progress):
    if progress["step"] == 100:
        raise KeyboardInterrupt


stopped = folder + "-stopped"
try:
    libdro.train(**settings, out=stopped, progress=stop)
except KeyboardInterrupt:
    print("stopped")
again = libdro.train(**settings, out=stopped, resume=True)
with open(again.weights, "rb") as a, open(run.weights, "rb") as b:
    assert a.read() == b.read()
