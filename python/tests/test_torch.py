"""Tilt against the library's scent on the same batches."""
import numpy as np
import pytest

import libdro

torch = pytest.importorskip("torch")
from libdro.torch import Tilt  # noqa: E402

N, D, STEPS, ETA = 300, 5, 200, 0.2
rng = np.random.default_rng(1)
X = rng.normal(size=(N, D))
S = np.where(rng.random(N) < 0.2, 1.0, -1.0)
Z = -(X + 0.7 * S[:, None]) * S[:, None]  # loss log(1 + exp(z w))


def forward(w, ids):
    return np.logaddexp(0, Z[ids] @ w)


def backward(w, ids, coef):
    return (coef / (1 + np.exp(-(Z[ids] @ w)))) @ Z[ids]


def library(lam, gamma):
    """Weights and log_u after each step, and the batches."""
    batches, path = [], []

    def noted(w, ids):
        batches.append(ids)
        path.append(w.copy())
        return forward(w, ids)

    logs = []
    out = libdro.minimize(noted, backward, np.zeros(D), N, "scent", steps=STEPS, batch=16, eta=ETA,
                          lam=lam, gamma=gamma, precondition="none", momentum=0, guard=0, warmup=0,
                          backend="ref", callback=lambda info: logs.append(info["log_u"]))
    assert len(batches) == STEPS
    return batches, np.array(path[1:] + [out.w]), np.array(logs)


def torch_path(batches, dtype, tilt):
    w = torch.zeros(D, dtype=dtype, requires_grad=True)
    z = torch.tensor(Z, dtype=dtype)
    opt = torch.optim.SGD([w], lr=ETA)
    path, logs = [], []
    for ids in batches:
        opt.zero_grad()
        tilt(torch.nn.functional.softplus(z[ids] @ w, threshold=50)).backward()
        opt.step()
        path.append(w.detach().double().numpy().copy())
        logs.append(float(tilt.log_u))
    return np.array(path), np.array(logs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lam", [5.0, 0.5])
def test_same_as_scent(dtype, lam):
    batches, path, logs = library(lam, 0.03)
    mine, my_logs = torch_path(batches, getattr(torch, dtype), Tilt(lam))
    scale = np.abs(path).max()
    assert np.abs(mine - path).max() < 1e-5 * scale
    assert np.abs(my_logs - logs).max() < 1e-5
    plain, _ = torch_path(batches, torch.float64, Tilt(1e9))
    assert np.abs(plain - path).max() > 1e-2 * scale  # the tilt makes a difference


def test_state():
    batches = library(1.0, 0.1)[0]
    tilt = Tilt(1.0, gamma=0.1)
    torch_path(batches[:50], torch.float32, tilt)
    other = Tilt(1.0, gamma=0.1)
    other.load_state_dict(tilt.state_dict())
    assert other.log_u.item() == tilt.log_u.item()
    assert other.objective.item() == tilt.objective.item()
    losses = torch.rand(8)
    assert tilt(losses).item() == other(losses).item() and torch.equal(tilt.log_u, other.log_u)


def test_eval_and_not_finite():
    tilt = Tilt(1.0)
    tilt(torch.rand(8))
    before = tilt.log_u.item()
    assert not torch.isfinite(tilt(torch.tensor([1.0, float("nan")])))
    assert tilt.log_u.item() == before
    tilt.eval()
    tilt(torch.rand(8) + 5)
    assert tilt.log_u.item() == before


def test_bounds():
    tilt = Tilt(0.01)
    tilt(torch.zeros(4))
    loss = tilt(torch.full((4,), 100.0))  # exponents of 10,000
    assert torch.isfinite(loss) and tilt.weights.mean() <= 30.001


def test_misuse():
    for wrong in (torch.tensor(1.0), torch.zeros(0), torch.zeros(2, 2)):
        with pytest.raises(ValueError, match='reduction="none"'):
            Tilt(1.0)(wrong)
    with pytest.raises(ValueError, match="lam is 0"):
        Tilt(0)
    with pytest.raises(ValueError, match="gamma"):
        Tilt(1, gamma=2)
