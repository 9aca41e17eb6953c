"""Tilt against the library's scent on the same batches."""
import copy
import pickle

import numpy as np
import pytest

import libdro

torch = pytest.importorskip("torch")
from libdro.torch import Tilt  # noqa: E402

N, D, STEPS, ETA = 300, 5, 1000, 0.2
rng = np.random.default_rng(1)
X = rng.normal(size=(N, D))
S = np.where(rng.random(N) < 0.2, 1.0, -1.0)
Z = -(X + 0.7 * S[:, None]) * S[:, None]  # loss log(1 + exp(z w))
CLASSES = (S > 0).astype(np.int64)
GROUPS = np.arange(N) % 4


def forward(w, ids):
    return np.logaddexp(0, Z[ids] @ w.astype(float))


def backward(w, ids, coef):
    return (coef / (1 + np.exp(-(Z[ids] @ w.astype(float))))) @ Z[ids]


def library(optimizer, steps=STEPS, **settings):
    """Batches, weights after each step, and log_u."""
    batches, path, logs = [], [], []

    def noted(w, ids):
        batches.append(ids)
        path.append(w.copy())
        return forward(w, ids)

    out = libdro.minimize(noted, backward, np.zeros(D), N, optimizer, steps=steps, batch=16,
                          warmup=0, eta_schedule="constant", backend="ref",
                          classes=CLASSES, groups=GROUPS,
                          callback=lambda info: logs.append(info["log_u"]), **settings)
    assert len(batches) == steps
    return batches, np.array(path[1:] + [out.w]), np.array(logs)


def scent(lam, gamma, steps=STEPS, tilt="example", **more):
    return library("scent", steps, eta=ETA, lam=lam, gamma=gamma, precondition="none", momentum=0,
                   guard=0, tilt=tilt, **more)


def torch_path(batches, tilt, make=lambda w: torch.optim.SGD([w], lr=ETA), labels=None):
    """The losses are of float64 at weights of float32: one rounding less to differ in."""
    w = torch.zeros(D, requires_grad=True)
    z = torch.tensor(Z)
    opt = make(w)
    path, logs = [], []
    for ids in batches:
        opt.zero_grad()
        losses = torch.nn.functional.softplus(z[ids] @ w.double(), threshold=50)
        more = () if labels is None else (torch.tensor(labels[ids]),)
        tilt(losses, *more).backward()
        opt.step()
        path.append(w.detach().double().numpy().copy())
        logs.append(float(getattr(tilt, "log_u", 0)))
    return np.array(path), np.array(logs)


@pytest.mark.parametrize("over, lam", [("example", 5.0), ("example", 0.5), ("class", 0.2),
                                       ("group", 0.05)])
def test_same_as_scent(over, lam):
    batches, path, logs = scent(lam, 0.03, tilt=over)
    labels = {"example": None, "class": CLASSES, "group": GROUPS}[over]
    mine, my_logs = torch_path(batches, Tilt(lam, over), labels=labels)
    assert np.abs(mine - path).max() < 1e-6
    assert np.abs(my_logs - logs).max() < 1e-6
    plain, _ = torch_path(batches, torch.mean)
    assert np.abs(plain - path).max() > 1e-2  # the tilt makes a difference


@pytest.mark.parametrize("name, settings, make", [
    ("sgd", dict(eta=0.05, momentum=0.9), lambda w: torch.optim.SGD([w], 0.05, momentum=0.9)),
    ("sgd", dict(eta=0.05, momentum=0.9, nesterov="yes", weight_decay=0.01),
     lambda w: torch.optim.SGD([w], 0.05, momentum=0.9, nesterov=True, weight_decay=0.01)),
    # With weight decay PyTorch multiplies w by 1 - 1e-4, rounded to float32: 1e-5 after 1,000
    # steps.
    ("adamw", dict(eta=0.01, weight_decay=0),
     lambda w: torch.optim.AdamW([w], 0.01, weight_decay=0))])
def test_optimizers_are_torchs(name, settings, make):
    batches, path, _ = library(name, **settings)
    mine, _ = torch_path(batches, torch.mean, make)
    np.testing.assert_allclose(mine, path, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("objective, over", [
    ("cvar:0.2", "example"), ("chi2:0.5", "example"), ("kl-radius:0.1", "example"),
    ("cvar:0.5", "class"), ("chi2:0.1", "group")])
def test_objectives_are_the_librarys(objective, over):
    batches, path, _ = scent(1.0, 0.03, 300, tilt=over, objective=objective, heaviest=30)
    labels = {"example": None, "class": CLASSES, "group": GROUPS}[over]
    count = {"example": None, "class": 2, "group": 4}[over]
    tilt = Tilt(objective=objective, over=over, count=count)
    mine, _ = torch_path(batches[:150], tilt, labels=labels)
    assert np.abs(mine - path[:150]).max() < 1e-6
    other = Tilt(objective=objective, over=over, count=count)
    other.load_state_dict(tilt.state_dict())
    losses, more = torch.rand(16), () if labels is None else (torch.tensor(labels[:16]),)
    other.eval()
    assert other(losses, *more).item() == other(losses, *more).item()
    assert not torch.isfinite(other(losses * float("nan"), *more))
    assert tilt(losses, *more).item() == other(losses, *more).item()
    assert torch.isfinite(tilt.objective)


def test_state():
    batches = scent(1.0, 0.1, steps=50)[0]
    tilt = Tilt(1.0, gamma=0.1)
    torch_path(batches, tilt)
    other = Tilt(1.0, gamma=0.1)
    other.load_state_dict(tilt.state_dict())
    assert other.log_u.item() == tilt.log_u.item()
    assert other.objective.item() == tilt.objective.item()
    losses = torch.rand(8)
    assert tilt(losses).item() == other(losses).item() and torch.equal(tilt.log_u, other.log_u)


def test_state_of_groups(tmp_path):
    tilt, losses = Tilt(1.0, "group"), torch.rand(8)
    tilt(losses, torch.arange(8) % 3)
    torch.save(tilt.state_dict(), tmp_path / "tilt")
    other = Tilt(1.0, "group")
    other.load_state_dict(torch.load(tmp_path / "tilt"))
    labels = torch.arange(8) % 5
    assert tilt(losses, labels).item() == other(losses, labels).item()
    assert torch.equal(tilt.u, other.u) and len(tilt.u) == 5
    before = tilt.u.clone()
    assert not torch.isfinite(tilt(torch.full((8,), float("nan")), labels))
    assert torch.equal(tilt.u, before)
    tilt.eval()
    tilt(losses + 1, labels)
    assert torch.equal(tilt.u, before)
    with pytest.raises(RuntimeError, match="size mismatch"):
        Tilt(1.0, "group", count=4).load_state_dict(tilt.state_dict())
    Tilt(1.0, "group", count=5).load_state_dict(tilt.state_dict())


def test_autocast_and_accumulation():
    model, tilt = torch.nn.Linear(D, 2), Tilt(1.0)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(CLASSES)
    for k in range(6):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = torch.nn.functional.cross_entropy(model(x[k::6]), y[k::6], reduction="none")
        (tilt(losses) / 3).backward()
        if k % 3 == 2:
            opt.step()
            opt.zero_grad()
    assert torch.isfinite(tilt.objective) and tilt.weights.shape == (50,)


@pytest.mark.parametrize("over", ["example", "class"])
def test_within_a_model_of_half_precision(over):
    labels = () if over == "example" else (torch.arange(8) % 3,)
    tilts = Tilt(0.5, over), Tilt(0.5, over)
    torch.nn.ModuleList([tilts[1]]).half()
    for _ in range(3):
        losses = torch.rand(8)
        assert tilts[0](losses, *labels) == tilts[1](losses, *labels)
        tilts[1].bfloat16()
        assert all(map(torch.equal, tilts[0].buffers(), tilts[1].buffers()))


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
    assert torch.isfinite(Tilt(objective="cvar:0.1")(torch.rand(1 << 20)))
    tilt = Tilt(0.01)
    tilt(torch.zeros(4))
    loss = tilt(torch.full((4,), 100.0))  # exponents of 10,000
    assert torch.isfinite(loss) and tilt.weights.mean() <= 30.001


@pytest.mark.parametrize("over", ["example", "class"])
def test_compiled(over):
    """The tilt inside a compiled function."""
    tilts = Tilt(0.5, over, count=2), Tilt(0.5, over, count=2)
    compiled = torch.compile(tilts[0], backend="aot_eager")
    labels = () if over == "example" else (torch.tensor(CLASSES[:16]),)
    for k in range(3):
        losses = torch.rand(16, generator=torch.Generator().manual_seed(k))
        assert compiled(losses, *labels).item() == pytest.approx(tilts[1](losses, *labels).item())
    assert tilts[0].log_u.item() == pytest.approx(tilts[1].log_u.item())


def test_misuse():
    for wrong in (torch.tensor(1.0), torch.zeros(0), torch.zeros(2, 2)):
        with pytest.raises(ValueError, match='reduction="none"'):
            Tilt(1.0)(wrong)
    with pytest.raises(ValueError, match="lam is 0"):
        Tilt(0)
    for settings in (dict(), dict(objective=""), dict(lam=1, objective="cvar:0.1")):
        with pytest.raises(ValueError, match="give lam, or another objective"):
            Tilt(**settings)
    with pytest.raises(libdro.DroError, match="cvar:ALPHA"):
        Tilt(objective="var:0.1")
    with pytest.raises(ValueError, match="give count"):
        Tilt(objective="cvar:0.1", over="class")
    with pytest.raises(ValueError, match="gamma"):
        Tilt(1, gamma=2)
    with pytest.raises(ValueError, match="over is 'classes'"):
        Tilt(1, "classes")
    with pytest.raises(ValueError, match=r"tilt\(losses, labels\)"):
        Tilt(1, "class")(torch.rand(3))
    for labels in ([0, 1], [0.0, 1.0, 2.0]):
        with pytest.raises(ValueError, match="integers of shape"):
            Tilt(1, "class")(torch.rand(3), torch.tensor(labels))
    for count in (None, 3):
        with pytest.raises(ValueError, match="labels have -1: expected 0 to"):
            Tilt(1, "class", count=count)(torch.rand(3), torch.tensor([0, -1, 2]))
        with pytest.raises(ValueError, match="labels have 1000000000: expected 0 to"):
            Tilt(1, "class", count=count)(torch.rand(3), torch.tensor([0, 10**9, 2]))
    with pytest.raises(ValueError, match="labels do not hold integers: expected 3 from 0 on"):
        Tilt(1, "class")(torch.rand(3), ["a", "b", "a"])
    with pytest.raises(ValueError, match="takes at most 1048576"):
        Tilt(objective="cvar:0.1")(torch.rand((1 << 20) + 1))
    with pytest.raises(ValueError, match="type torch.int64: expected floating point"):
        Tilt(1)(torch.arange(3))
    for name, value in (("lam", "2"), ("cap", float("nan")), ("cap", -1), ("heaviest", -1),
                        ("gamma", None), ("count", 0), ("count", 2.5),
                        ("lam", torch.ones(2))):
        with pytest.raises(ValueError, match=f"{name} is"):
            Tilt(**{"lam": 1, name: value})


@pytest.mark.parametrize("settings", [dict(lam=0.5), dict(objective="cvar:0.2")])
def test_copies(settings):
    """A copy has the estimate and a life of its own."""
    tilt, losses = Tilt(**settings), torch.rand(8)
    assert torch.isnan(tilt.objective)
    tilt(losses + 1)
    for other in (copy.deepcopy(tilt), pickle.loads(pickle.dumps(tilt))):
        assert other.objective.item() == tilt.objective.item()
        other(losses)
        assert other.objective.item() != tilt.objective.item()
