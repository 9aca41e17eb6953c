"""Recover and Tilt on tensors of a GPU: as on the CPU, without waiting. Need a GPU, and
libdro_step_cuda.so beside the library."""
import copy

import numpy as np
import pytest

import libdro

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no GPU", allow_module_level=True)
import torch.nn.functional as F  # noqa: E402

from libdro import _lib  # noqa: E402
from libdro.torch import Recover, Tilt  # noqa: E402

if not _lib.step_module():
    pytest.skip("libdro has no libdro_step_cuda.so (no nvcc when it was built)",
                allow_module_level=True)

N, D, STEPS = 300, 5, 200
rng = np.random.default_rng(1)
Z = torch.tensor(rng.normal(size=(N, D)) + 0.7, dtype=torch.float64)
LABELS = torch.tensor((rng.random(N) < 0.3).astype(np.int64))


class Net(torch.nn.Module):
    """Computed in double, so that the CPU and the GPU differ in the optimiser's rounding only."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = torch.nn.Linear(D, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        x = torch.tanh(F.linear(x, self.first.weight.double(), self.first.bias.double()))
        return F.linear(x, self.second.weight.double(), self.second.bias.double())


def batch(step, device, size=32):
    ids = torch.arange(step * size, (step + 1) * size) % N
    return Z[ids].to(device), LABELS[ids].to(device)


def losses_of(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def flat(model):
    return torch.cat([p.detach().reshape(-1).cpu() for p in model.parameters()])


def trajectory(device, make, steps=STEPS, labels=False):
    """Weights after each step, and the optimiser."""
    model = Net().to(device)
    opt = make(model)
    path = []
    for step in range(steps):
        x, y = batch(step, device)
        opt.step(lambda: losses_of(model, x, y), *((y,) if labels else ()))
        path.append(flat(model))
    return torch.stack(path), opt


def groups(model):
    return Recover([dict(params=model.first.parameters()),
                    dict(params=model.second.parameters(), lr=0.02)], lr=0.1, lam=2)


def clipped(model):
    return Recover(model, lr=0.1, lam=2,
                   clip=lambda p: torch.nn.utils.clip_grad_norm_(p, 0.05))


@pytest.mark.parametrize("make", [
    lambda m: Recover(m, lr=0.1, lam=2), lambda m: Recover(m, lr=0.05, lam=0.3),
    lambda m: Recover(m, lr=0.1, lam=2, momentum=0.9, a_rule="fixed", a=0.9),
    lambda m: Recover(m, lr=0.01, lam=2, precondition="rms", weight_decay=0.01),
    lambda m: Recover(m, lr=0.1, lam=2, reg="l1", reg_strength=1e-3),
    lambda m: Recover(m, lr=0.05, objective="cvar:0.3"),
    lambda m: Recover(m, lr=0.05, objective="chi2:0.5"),
    lambda m: Recover(m, lr=0.05, objective="kl-radius:0.2"),
    lambda m: Recover(m, lr=0.1, lam=2, eta_schedule="cosine", steps=STEPS, warmup=20), groups,
    clipped], ids=["kl", "small", "momentum", "rms", "l1", "cvar", "chi2", "radius", "schedule",
                   "groups", "clip"])
def test_recover_as_on_the_cpu(make):
    (cpu, one), (gpu, other) = trajectory("cpu", make), trajectory("cuda", make)
    assert (cpu - gpu).abs().max() < 1e-5
    assert (cpu[-1] - cpu[0]).abs().max() > 1e-2
    a, b = one.info, other.info
    for name in ("step", "examples", "evaluations", "fresh_starts"):
        assert a[name] == b[name], name
    for name in ("eta", "a", "loss", "log_u", "objective", "effective"):
        assert b[name] == pytest.approx(a[name], rel=1e-4, abs=1e-5), name


def test_recover_over_classes():
    def make(model):
        return Recover(model, lr=0.1, lam=1, tilt="class", classes=2)
    (cpu, _), (gpu, opt) = (trajectory(d, make, labels=True) for d in ("cpu", "cuda"))
    assert (cpu - gpu).abs().max() < 1e-5
    model, (x, y) = Net().cuda(), batch(0, "cuda")
    opt = make(model)
    with pytest.raises(libdro.DataError, match="label 3 is 2"):
        for step in range(1000):
            wrong = torch.where(torch.arange(32, device="cuda") == 3, 2, y) if step == 2 else y
            opt.step(lambda: losses_of(model, x, y), wrong)
            torch.cuda.synchronize()
    assert opt.info["step"] == 2


def as_optimizer(tilt, model):
    opt = torch.optim.SGD(model.parameters(), 0.2)

    class Both:
        def step(self, closure, *labels):
            opt.zero_grad()
            tilt(closure(), *labels).backward()
            opt.step()
    return Both()


@pytest.mark.parametrize("over, lam", [("example", 2.0), ("example", 0.3), ("class", 0.5),
                                       ("group", 0.5)])
def test_tilt_as_on_the_cpu(over, lam):
    tilts = [Tilt(lam, over) for _ in range(2)]
    (cpu, _), (gpu, _) = (trajectory(d, lambda m: as_optimizer(t, m), labels=over != "example")
                          for d, t in zip(("cpu", "cuda"), tilts))
    assert (cpu - gpu).abs().max() < 1e-5
    assert tilts[1].objective.item() == pytest.approx(tilts[0].objective.item(), rel=1e-5)


@pytest.mark.parametrize("objective, over", [("cvar:0.3", "example"), ("chi2:0.5", "example"),
                                             ("kl-radius:0.1", "example"), ("cvar:0.6", "class")])
def test_tilt_of_other_objectives(objective, over):
    tilts = [Tilt(objective=objective, over=over, count=2) for _ in range(2)]
    (cpu, _), (gpu, _) = (trajectory(d, lambda m: as_optimizer(t, m), labels=over != "example")
                          for d, t in zip(("cpu", "cuda"), tilts))
    assert (cpu - gpu).abs().max() < 1e-5
    assert tilts[1].objective.item() == pytest.approx(tilts[0].objective.item(), rel=1e-4)
    losses = torch.rand(16, device="cuda", requires_grad=True)
    labels = () if over == "example" else (torch.arange(16, device="cuda") % 2,)
    with Waits():
        tilts[1](losses, *labels).backward()
    other = Tilt(objective=objective, over=over, count=2)
    other.load_state_dict(tilts[1].state_dict())
    assert other(losses.cpu(), *(y.cpu() for y in labels)).item() == pytest.approx(
        tilts[1](losses, *labels).item(), rel=1e-5)


class Waits:
    """An error for whatever waits for the GPU."""

    def __enter__(self):
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")

    def __exit__(self, *_):
        torch.cuda.set_sync_debug_mode("default")


def conv_net():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                               torch.nn.Dropout(0.3), torch.nn.Flatten(),
                               torch.nn.Linear(8 * 36, 10)).cuda()


def images(size=16):
    return torch.randn(size, 3, 8, 8, device="cuda"), torch.randint(0, 10, (size,), device="cuda")


@pytest.mark.parametrize("settings", [dict(lam=2), dict(lam=2, tilt="class", classes=10),
                                      dict(momentum=0.9, objective="cvar:0.5")])
def test_a_step_does_not_wait(settings):
    model, (x, y) = conv_net().to(memory_format=torch.channels_last), images()
    opt = Recover(model, lr=0.01, **settings)
    labels = (y,) if "tilt" in settings else ()
    opt.step(lambda: losses_of(model, x, y), *labels)  # makes the optimiser
    with Waits():
        for _ in range(5):
            loss = opt.step(lambda: losses_of(model, x, y), *labels)
    assert torch.isfinite(loss) and opt.info["step"] == 6
    assert model[1].num_batches_tracked.item() == 6
    if not settings:
        for over, more in (("example", ()), ("class", (y,))):
            tilt = Tilt(2.0, over, count=None if over == "example" else 10).cuda()
            losses = torch.rand(16, device="cuda", requires_grad=True)
            with Waits():
                tilt(losses, *more).backward()


def test_one_look_for_statistics_and_randomness():
    model, (x, y), seen = conv_net(), images(), []
    model[3].register_forward_hook(lambda _, a, out: seen.append((out == 0) & (a[0] != 0)))
    opt = Recover(model, lr=1e-9, lam=2)
    for _ in range(3):
        opt.step(lambda: losses_of(model, x, y))
    assert model[1].num_batches_tracked.item() == 3 and len(seen) == 5
    assert torch.equal(seen[1], seen[2]) and torch.equal(seen[3], seen[4])
    assert not torch.equal(seen[0], seen[1])


def test_state_from_device_to_device():
    """The state goes to a file and on to the other device, both ways; to the bit on one device."""
    def make(model):
        return Recover(model, lr=0.1, lam=2, momentum=0.9)

    for here, there in (("cuda", "cpu"), ("cpu", "cuda"), ("cuda", "cuda")):
        _, opt = trajectory(here, make, 20)
        model = Net().to(here)
        torch.nn.utils.vector_to_parameters(
            torch.cat([p.reshape(-1) for p in opt.param_groups[0]["params"]]), model.parameters())
        other = Net().to(there)
        other.load_state_dict(model.state_dict())
        of_other = make(other)
        of_other.load_state_dict(copy.deepcopy(opt.state_dict()))
        assert torch.equal(of_other.state_dict()["libdro"]["state"],
                           opt.state_dict()["libdro"]["state"])
        of_model = make(model)
        of_model.load_state_dict(opt.state_dict())
        for step in range(20, 40):
            for m, o, device in ((model, of_model, here), (other, of_other, there)):
                x, y = batch(step, device)
                o.step(lambda: losses_of(m, x, y))
        if here == there:
            assert torch.equal(flat(model), flat(other))
        assert (flat(model) - flat(other)).abs().max() < 1e-5


def test_the_model_moves():
    """Parameters that go to the GPU take the state along."""
    model, path = Net(), []
    opt = Recover(model, lr=0.1, lam=2)
    for step in range(40):
        device = "cpu" if step < 20 else "cuda"
        model.to(device)
        x, y = batch(step, device)
        opt.step(lambda: losses_of(model, x, y))
        path.append(flat(model))
    cpu, _ = trajectory("cpu", lambda m: Recover(m, lr=0.1, lam=2), 40)
    assert (cpu - torch.stack(path)).abs().max() < 1e-5 and opt.info["step"] == 40


def test_changed_weights_start_afresh():
    model = Net().cuda()
    opt = Recover(model, lr=0.1, lam=2, a_rule="fixed", a=0.5)
    for step in range(3):
        x, y = batch(step, "cuda")
        opt.step(lambda: losses_of(model, x, y))
    assert opt.info["a"] < 1
    with torch.no_grad():
        model.first.weight.data.add_(1)
    changed = model.first.weight.clone()
    opt.step(lambda: losses_of(model, x, y))
    assert opt.info["a"] == 1 and (model.first.weight - changed).abs().max() < 0.5
    opt.step(lambda: losses_of(model, x, y))
    assert opt.info["a"] < 1


def test_not_finite():
    """Refused on the GPU: nothing changes, a later step says so, and the run goes on."""
    model, (x, y) = Net().cuda(), batch(0, "cuda")
    opt = Recover(model, lr=0.1, lam=2)
    for _ in range(3):
        opt.step(lambda: losses_of(model, x, y))
    before = flat(model)
    opt.step(lambda: losses_of(model, x, y) * float("nan"))
    torch.cuda.synchronize()
    with pytest.raises(libdro.NumberError, match="loss 0 is nan at step 3"):
        opt.step(lambda: losses_of(model, x, y))
    assert torch.equal(flat(model), before) and opt.info["step"] == 3
    with pytest.raises(ZeroDivisionError):
        opt.step(lambda: 1 / 0)
    assert torch.equal(flat(model), before)
    opt.step(lambda: losses_of(model, x, y))
    assert not torch.equal(flat(model), before) and opt.info["step"] == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    """bf16; and fp16, whose scale is lowered until no gradient overflows."""
    model, (x, y) = conv_net(), images()
    opt = Recover(model, lr=0.1, lam=2)
    factor = 1.0 if dtype == torch.bfloat16 else 100.0

    def closure():
        with torch.autocast("cuda", dtype):
            outputs = model(x)
        return factor * losses_of(lambda _: outputs.float(), x, y) / factor

    first = closure().mean().item()
    for _ in range(60):
        opt.step(closure)
        torch.cuda.synchronize()
    model.eval()
    assert closure().mean().item() < 0.5 * first and opt.info["step"] > 40


def test_graphs():
    """A whole step is refused; a model that is a graph works, and its statistics move once."""
    model, (x, y) = conv_net(), images()
    model[3].p = 0.0
    plain = copy.deepcopy(model)
    opt = Recover(model, lr=0.01, lam=2)
    opt.step(lambda: losses_of(model, x, y))
    with pytest.raises(RuntimeError, match="cannot be captured in a CUDA graph"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            opt.step(lambda: losses_of(model, x, y))
    model = copy.deepcopy(plain)
    start = {k: v.clone() for k, v in model.state_dict().items()}
    torch.cuda.make_graphed_callables(model, (x,))
    model.load_state_dict(start)
    opts = [Recover(m, lr=0.01, lam=2) for m in (model, plain)]
    for _ in range(5):
        for m, o in zip((model, plain), opts):
            o.step(lambda: losses_of(m, x, y))
    for (name, a), b in zip(model.state_dict().items(), plain.state_dict().values()):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4, msg=name)


def test_streams():
    """On another stream, the current one."""
    stream = torch.cuda.Stream()
    (cpu, _) = trajectory("cpu", lambda m: Recover(m, lr=0.1, lam=2), 20)
    with torch.cuda.stream(stream):
        gpu, _ = trajectory("cuda", lambda m: Recover(m, lr=0.1, lam=2), 20)
    assert (cpu - gpu).abs().max() < 1e-5


def test_without_the_module(monkeypatch):
    """The arithmetic runs on the CPU, and says so."""
    monkeypatch.setattr("libdro.torch.step_module", lambda: None)
    cpu, _ = trajectory("cpu", lambda m: Recover(m, lr=0.1, lam=2), 20)
    with pytest.warns(UserWarning, match="libdro_step_cuda.so"):
        gpu, _ = trajectory("cuda", lambda m: Recover(m, lr=0.1, lam=2), 20)
    assert (cpu - gpu).abs().max() < 1e-5


def test_compiled():
    """torch.compile with inductor: dropout's masks are the same at both points."""
    pytest.importorskip("triton")
    model, (x, y), seen = conv_net(), images(), []
    compiled = torch.compile(model)
    opt = Recover(model, lr=1e-9, lam=2)

    def closure():
        losses = losses_of(compiled, x, y)
        seen.append(losses.detach().clone())
        return losses

    for _ in range(3):
        opt.step(closure)
    assert model[1].num_batches_tracked.item() == 3 and len(seen) == 5
    for k in (1, 3):
        torch.testing.assert_close(seen[k], seen[k + 1], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(seen[0], seen[1])
