# %% [markdown]
# # RECOVER and the tilt for a PyTorch model
#
# Both need one thing from you: a loss for each example (`reduction="none"`) instead of their mean.

# %%
import os
import tempfile

import matplotlib
import torch
import torch.nn as nn
import torch.nn.functional as F

from libdro.torch import Recover, Tilt

matplotlib.use(os.environ.get("MPLBACKEND", "agg"))
import matplotlib.pyplot as plt  # noqa: E402

LAM = 0.5
torch.manual_seed(0)
n = 3000
y = (torch.rand(n) < 0.08).long()                     # a rare class
x = torch.randn(n, 2) + 1.5 * y[:, None] * torch.tensor([1.0, 1.0])


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))


def batches(epochs, size=64):
    for _ in range(epochs):
        for ids in torch.randperm(n).split(size):
            yield x[ids], y[ids]


def recall(model):
    """Of each class."""
    with torch.no_grad():
        right = model(x).argmax(1) == y
    return [float(right[y == k].float().mean()) for k in (0, 1)]


def objective(model):
    """F over all examples: what Tilt and Recover minimise."""
    with torch.no_grad():
        losses = F.cross_entropy(model(x), y, reduction="none")
    return LAM * float(torch.logsumexp(losses / LAM, 0) - torch.log(torch.tensor(float(n))))


# %% [markdown]
# The usual way, and the same with the tilt: one line more. It works with any optimiser, with AMP,
# with DistributedDataParallel and with gradient accumulation.

# %%
usual = network()
opt = torch.optim.SGD(usual.parameters(), lr=0.2)
for inputs, labels in batches(8):
    opt.zero_grad()
    F.cross_entropy(usual(inputs), labels).backward()
    opt.step()

tilted, tilt, weights = network(), Tilt(lam=LAM), []
opt = torch.optim.SGD(tilted.parameters(), lr=0.1)
for inputs, labels in batches(8):
    opt.zero_grad()
    loss = tilt(F.cross_entropy(tilted(inputs), labels, reduction="none"))
    loss.backward()
    opt.step()
    weights.append([float(tilt.weights[labels == k].mean()) for k in (0, 1)])
print("the running F:", float(tilt.objective))

# %% [markdown]
# RECOVER is the method of the paper: it evaluates a batch at two points, corrects its estimate of
# the gradient by the difference, and so removes the bias that one point has. The closure returns
# the losses. There is no `zero_grad` and no `backward`.

# %%
robust, values = network(), []
opt = Recover(robust, lr=1.0, lam=LAM)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 8 * 47, eta_min=0.01)
for inputs, labels in batches(8):
    opt.step(lambda: F.cross_entropy(robust(inputs), labels, reduction="none"))
    schedule.step()
    values.append(opt.objective)

# %% [markdown]
# Robust over classes: the labels go along.

# %%
fair, by_class = network(), Tilt(lam=0.1, over="class")
opt = torch.optim.Adam(fair.parameters(), lr=0.01)
for inputs, labels in batches(8):
    opt.zero_grad()
    by_class(F.cross_entropy(fair(inputs), labels, reduction="none"), labels).backward()
    opt.step()

for name, model in (("mean loss", usual), ("Tilt", tilted), ("Recover", robust),
                    ("Tilt over classes", fair)):
    print("%-18s F %.3f, recall of the common class %.3f, of the rare one %.3f" %
          (name, objective(model), *recall(model)))
assert objective(robust) < objective(usual) and recall(fair)[1] > recall(usual)[1] + 0.1

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 3))
axes[0].plot(weights, label=["common class", "rare class"])
axes[0].set(xlabel="step", ylabel="mean weight in the batch")
axes[0].legend()
axes[1].plot(values)
axes[1].set(xlabel="step", ylabel="RECOVER's running F")
figure.tight_layout()
folder = tempfile.mkdtemp()
figure.savefig(os.path.join(folder, "pytorch.png"))

# %% [markdown]
# A checkpoint is the two `state_dict`s; a resumed run continues to the bit.

# %%
opt = Recover(robust, lr=0.2, lam=LAM)
opt.step(lambda: F.cross_entropy(robust(x[:64]), y[:64], reduction="none"))
torch.save(dict(model=robust.state_dict(), opt=opt.state_dict()), os.path.join(folder, "state.pt"))
other = network()
of_other = Recover(other, lr=0.2, lam=LAM)
state = torch.load(os.path.join(folder, "state.pt"))
other.load_state_dict(state["model"])
of_other.load_state_dict(state["opt"])
for model, optimiser in ((robust, opt), (other, of_other)):
    optimiser.step(lambda: F.cross_entropy(model(x[64:128]), y[64:128], reduction="none"))
assert all(torch.equal(p, q) for p, q in zip(robust.parameters(), other.parameters()))
