"""Recover against the library's recover on the same batches, and in the company of PyTorch."""
import contextlib
import copy
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import libdro

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from libdro.torch import Recover  # noqa: E402

N, D, STEPS = 300, 5, 1000
rng = np.random.default_rng(1)
Z = rng.normal(size=(N, D)) + 0.7
LABELS = (rng.random(N) < 0.3).astype(np.int64)


def numpy_forward(w, ids):
    return np.logaddexp(0, -(Z[ids] @ w))


def numpy_backward(w, ids, coef):
    return -(coef / (1 + np.exp(Z[ids] @ w))) @ Z[ids]


def of_library(settings):
    """Batches and weights before each step, and the last weights."""
    batches, path, calls = [], [], []

    def noted(w, ids):
        calls.append((w.copy(), ids.copy()))
        return numpy_forward(w, ids)

    out = libdro.minimize(noted, numpy_backward, np.zeros(D), N, "recover", steps=STEPS, batch=16,
                          form="two-point", backend="cpu", threads=1, eta_schedule="constant",
                          warmup=0, classes=LABELS, **settings)
    for k, (w, ids) in enumerate(calls):  # of a step: at the weights before, then the present
        if k + 1 == len(calls) or not np.array_equal(calls[k + 1][1], ids):
            batches.append(ids)
            path.append(w)
    assert len(batches) == STEPS
    return batches, np.array(path), out.w


@pytest.mark.parametrize("settings", [
    dict(lam=5.0, eta=0.2), dict(lam=0.5, eta=0.05), dict(lam=1.0, eta=0.01, precondition="rms"),
    dict(lam=1.0, eta=0.1, momentum=0.9), dict(lam=1.0, eta=0.1, tilt="class"),
    dict(objective="cvar:0.2", eta=0.05)])
def test_same_as_library(settings):
    batches, path, last = of_library(settings)
    z = torch.tensor(Z)
    w = torch.zeros(D, requires_grad=True)
    mine = {k: v for k, v in settings.items() if k != "eta"}
    # The library, which knows n, remembers at most an epoch: a is at least batch / n.
    opt = Recover([w], lr=settings["eta"], classes=2, a_min=16 / N, **mine)
    for ids, expected in zip(batches, path):
        np.testing.assert_allclose(w.detach().numpy(), expected, atol=1e-6, rtol=1e-6)
        labels = LABELS[ids] if "tilt" in settings else None
        opt.step(lambda: F.softplus(-(z[ids] @ w.double()), threshold=50), labels)
    np.testing.assert_allclose(w.detach().numpy(), last, atol=1e-6, rtol=1e-6)
    assert np.abs(last).max() > 0.1


def network(dropout=0.2, norm=True):
    torch.manual_seed(3)
    middle = [torch.nn.BatchNorm1d(16)] if norm else []
    return torch.nn.Sequential(torch.nn.Linear(D, 16), *middle, torch.nn.Tanh(),
                               torch.nn.Dropout(dropout), torch.nn.Linear(16, 2))


def losses_of(model, ids):
    x, y = torch.tensor(Z, dtype=torch.float32)[ids], torch.tensor(LABELS)[ids]
    return F.cross_entropy(model(x), y, reduction="none")


def batch(step, size=32):
    return torch.arange(step * size, (step + 1) * size) % N


def test_one_look_for_statistics_and_randomness():
    model, seen = network(), []
    opt = Recover(model, lr=0.1, lam=2)
    model[3].register_forward_hook(lambda _, x, out: seen.append((out == 0) & (x[0] != 0)))
    for step in range(4):
        opt.step(lambda: losses_of(model, batch(step)))
    assert model[1].num_batches_tracked.item() == 4
    assert len(seen) == 7  # the first step has no weights before it
    for k in (1, 3, 5):
        assert torch.equal(seen[k], seen[k + 1])
    assert not torch.equal(seen[0], seen[1])


def test_state_goes_on_to_the_bit(tmp_path):
    model = network()
    opt = Recover(model, lr=0.1, lam=2, momentum=0.9)
    for step in range(5):
        opt.step(lambda: losses_of(model, batch(step)))
    torch.save((model.state_dict(), opt.state_dict(), torch.get_rng_state()), tmp_path / "state")
    other = network()
    of_other = Recover(other, lr=0.1, lam=2, momentum=0.9)
    weights, state, random = torch.load(tmp_path / "state")
    other.load_state_dict(weights)
    of_other.load_state_dict(state)
    for m, o in ((model, opt), (other, of_other)):
        torch.set_rng_state(random)
        for step in range(5, 10):
            o.step(lambda: losses_of(m, batch(step)))
    for a, b in zip(model.state_dict().values(), other.state_dict().values()):
        assert torch.equal(a, b)
    assert opt.objective == of_other.objective
    assert opt.state_dict()["libdro"]["state"].equal(of_other.state_dict()["libdro"]["state"])


def test_pieces_are_one_batch():
    models = network(0, False), network(0, False)
    opts = [Recover(m, lr=0.1, lam=2) for m in models]
    for step in range(20):
        ids = batch(step)
        opts[0].step(lambda: losses_of(models[0], ids))
        opts[1].step([lambda k=k: losses_of(models[1], ids[k:k + 12]) for k in (0, 12, 24)])
    for a, b in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_scheduler_and_gradients_of_others():
    models, schedules = (network(0), network(0)), (0.1, 0.05)
    opt = Recover(models[0], lr=0.1, lam=2)
    plan = torch.optim.lr_scheduler.StepLR(opt, step_size=3, gamma=0.5)
    for p in models[0].parameters():
        p.grad = torch.ones_like(p)
    for step in range(6):
        opt.step(lambda: losses_of(models[0], batch(step)))
        assert opt.info["eta"] == pytest.approx(schedules[step // 3])
        plan.step()
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in models[0].parameters())


def test_autocast_short_batches_and_changed_weights():
    model = network()
    opt = Recover(model, lr=0.1, lam=2, batch=40, a_rule="fixed", a=0.5)

    def closure():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return losses_of(model, batch(step, size)).float()

    for step, size in ((0, 32), (1, 32), (2, 7), (3, 40)):
        assert np.isfinite(opt.step(closure))
    assert opt.info["a"] == 0.5
    with torch.no_grad():
        model[0].weight.add_(1)
    changed = model[0].weight.clone()
    opt.step(closure)
    assert (model[0].weight - changed).abs().max() < 0.5
    assert opt.info["a"] == 1  # the estimator starts afresh


def test_autocast_around_the_step():
    """Its copies of the weights in bf16 are of the point that is evaluated."""
    found = []
    for around in (True, False):
        model = network(0, False)
        opt = Recover(model, lr=0.3, lam=2)
        with torch.autocast("cpu", dtype=torch.bfloat16) if around else contextlib.nullcontext():
            for step in range(20):
                ids = batch(step)

                def closure():
                    with torch.autocast("cpu", dtype=torch.bfloat16):
                        return losses_of(model, ids)
                opt.step(closure)
        found.append(torch.cat([p.detach().ravel() for p in model.parameters()]))
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


def test_schedules_from_zero():
    """A warm-up that begins at 0, which moves nothing, then at a part of lr."""
    model = network(0, False)
    opt = Recover([dict(params=model[:1].parameters()),
                   dict(params=model[1:].parameters(), lr=0.05)], lr=0.1, lam=2)
    plan = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: step / 4)
    for step in range(4):
        before = [p.detach().clone() for p in model.parameters()]
        opt.step(lambda: losses_of(model, batch(step)))
        assert opt.info["eta"] == pytest.approx(0.1 * step / 4)
        same = [torch.allclose(p, q, atol=1e-6) for p, q in zip(model.parameters(), before)]
        assert all(same) if step == 0 else not any(same)
        plan.step()
    opt = Recover(model, lr=0.1, lam=2)
    torch.optim.lr_scheduler.LinearLR(opt, start_factor=0.25)
    opt.step(lambda: losses_of(model, batch(0)))
    assert opt.info["eta"] == pytest.approx(0.025)


@pytest.mark.parametrize("settings, labelled", [
    (dict(objective="cvar:0.2"), False), (dict(lam=0.5, tilt="class", classes=2), True),
    (dict(objective="chi2:0.5", tilt="group", classes=2), True)])
def test_objectives(settings, labelled):
    model = network(0)
    opt = Recover(model, lr=0.05, **settings)
    for step in range(30):
        ids = batch(step)
        labels = torch.tensor(LABELS)[ids] if labelled else None
        opt.step(lambda: losses_of(model, ids), labels)
    assert 0 < opt.objective < 1 and opt.info["effective"] < 0.99


def paths(make_opts, make_closure, steps=8, norm=False):
    """Weights after some steps of two optimisers over copies of one network."""
    found = []
    for make in make_opts:
        model = network(0, norm)
        opt = make(model)
        for step in range(steps):
            opt.step(make_closure(model, step))
        found.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
    return found


def test_param_groups():
    """A step size of its own for a layer: as slow as it says, and the same for all is one group."""
    def groups(model, rate, **more):
        return Recover([dict(params=model[:1].parameters()),
                        dict(params=model[1:].parameters(), lr=rate)], lr=0.1, lam=2, **more)

    def closure(model, step):
        return lambda: losses_of(model, batch(step))

    one, same, slow = paths([lambda m: Recover(m, lr=0.1, lam=2), lambda m: groups(m, 0.1),
                             lambda m: groups(m, 0.01)], closure)
    assert torch.equal(one, same)
    model = network(0, False)
    start = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    first = sum(p.numel() for p in model[:1].parameters())
    for more, power in (({}, 1), (dict(precondition="rms"), 1)):
        fast, slow = paths([lambda m: groups(m, 0.1, guard=0, **more),
                            lambda m: groups(m, 0.001, guard=0, **more)], closure, steps=1)
        moved = (fast - start).abs(), (slow - start).abs()
        torch.testing.assert_close(moved[0][:first], moved[1][:first], rtol=1e-3, atol=1e-6)
        ratio = moved[1][first:].sum() / moved[0][first:].sum()
        assert abs(ratio - 0.01) < 0.002
    opt = groups(model, 0.01)
    opt.step(lambda: losses_of(model, batch(0)))
    opt.param_groups[1]["lr"] = 0.02
    with pytest.raises(ValueError, match="one schedule for all groups"):
        opt.step(lambda: losses_of(model, batch(1)))


def test_clipping():
    seen = []

    def clip(params):
        seen.append(float(torch.nn.utils.clip_grad_norm_(params, 0.01)))

    model = network(0, False)
    opt = Recover(model, lr=0.1, lam=2, clip=clip)
    for step in range(3):
        before = [p.detach().clone() for p in model.parameters()]
        opt.step(lambda: losses_of(model, batch(step)))
    moved = torch.sqrt(sum(((p - q) ** 2).sum() for p, q in zip(model.parameters(), before)))
    assert len(seen) == 5 and min(seen) > 0.02 and moved < 0.1 * 0.04


def test_sparse_gradients():
    """Of an embedding, as with dense ones; clipped as well."""
    paths = []
    for sparse in (False, True):
        torch.manual_seed(0)
        table = torch.nn.Embedding(20, 4, sparse=sparse)
        opt = Recover(table, lr=0.1, lam=2,
                      clip=lambda p: torch.nn.utils.clip_grad_norm_(p, 0.5))
        for step in range(3):
            opt.step(lambda: (table(batch(step) % 20) - 1).square().sum(1))
        paths.append(table.weight.detach().clone())
    assert torch.equal(*paths)


def test_half_precision():
    """fp16: gradients that it cannot hold without a scale; and a scale that is too large is
    lowered."""
    def closure(model, step, factor=1.0):
        def losses():
            with torch.autocast("cpu", dtype=torch.float16):
                hidden = model(torch.tensor(Z, dtype=torch.float32)[batch(step)])
            return factor * F.cross_entropy(hidden.float(), torch.tensor(LABELS)[batch(step)],
                                            reduction="none")
        return losses

    exact, half = paths([lambda m: Recover(m, lr=0.1, lam=2)] * 2,
                        lambda m, s: (lambda: losses_of(m, batch(s)))), \
        paths([lambda m: Recover(m, lr=0.1, lam=2)], closure)
    assert (exact[0] - half[0]).abs().max() < 2e-3
    model = network(0, True)
    opt = Recover(model, lr=1e-6, lam=2e4)
    opt.step(closure(model, 0, 1e4))
    assert opt._loss_scale < 2.0 ** 16 and model[1].num_batches_tracked.item() == 1


def inductor_works():
    try:
        torch.compile(lambda x: torch.sin(x) + 1)(torch.zeros(64))
        return True
    except Exception as error:  # of the compiler, under several names
        print(error)
        return False


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(backend):
    """torch.compile: dropout's masks are the same at both points, statistics move once."""
    if backend == "inductor" and not inductor_works():
        pytest.skip("inductor does not compile here: it needs a C++ compiler and Python's headers")
    model, seen = network(0.5), []
    compiled = torch.compile(model, backend=backend)
    opt = Recover(model, lr=1e-9, lam=2)

    def closure():
        losses = losses_of(compiled, batch(0))
        seen.append(losses.detach().clone())
        return losses

    for _ in range(3):
        opt.step(closure)
    assert model[1].num_batches_tracked.item() == 3 and len(seen) == 5
    for k in (1, 3):
        torch.testing.assert_close(seen[k], seen[k + 1], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(seen[0], seen[1])


def test_lightning():
    """Manual optimisation."""
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization, self.model = False, network(0)

        def configure_optimizers(self):
            return Recover(self.model, lr=0.1, lam=2)

        def training_step(self, ids, index):
            self.optimizers().step(lambda: losses_of(self.model, ids[0]))

    module = Module()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(256)), 32)
    trainer = lightning.Trainer(max_epochs=1, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, accelerator="cpu",
                                enable_model_summary=False)
    trainer.fit(module, data)
    mine, = paths([lambda m: Recover(m, lr=0.1, lam=2)], lambda m, s: (
        lambda: losses_of(m, batch(s))), norm=True)
    theirs = torch.cat([p.detach().reshape(-1) for p in module.model.parameters()])
    assert torch.equal(mine, theirs)


def test_threads_and_forks():
    model = network(0)
    opt = Recover(model, lr=0.1, lam=2)
    opt.step(lambda: losses_of(model, batch(0)))
    errors = []

    def other():
        try:
            opt.step(lambda: losses_of(model, batch(1)))
        except RuntimeError as error:
            errors.append(str(error))

    def closure():
        if not errors:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        return losses_of(model, batch(1))

    opt.step(closure)
    assert errors and "another thread" in errors[0]
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        try:
            opt.objective
        except RuntimeError as error:
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_learns():
    model = network()
    opt = Recover(model, lr=0.3, lam=2)
    with torch.no_grad():
        start = losses_of(copy.deepcopy(model).eval(), torch.arange(N)).mean()
    x = torch.randn(N, D)
    y = (x[:, 0] + x[:, 1] > 1.5).long()
    for step in range(300):
        ids = batch(step)
        opt.step(lambda: F.cross_entropy(model(x[ids]), y[ids], reduction="none"))
    model.eval()
    with torch.no_grad():
        assert F.cross_entropy(model(x), y) < 0.3 < start


def test_misuse():
    model = network()
    opt = Recover(model, lr=0.1, lam=2)
    with pytest.raises(RuntimeError, match="no step"):
        opt.objective
    for wrong in (lambda: losses_of(model, batch(0)).mean(), lambda: 1.0,
                  lambda: losses_of(model, batch(0))[:0]):
        with pytest.raises(ValueError, match='reduction="none"'):
            opt.step(wrong)
    with pytest.raises(TypeError, match="function"):
        opt.step(losses_of(model, batch(0)))
    opt.step(lambda: losses_of(model, batch(0)))
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(libdro.NumberError, match="nan"):
        opt.step(lambda: losses_of(model, batch(1)) * float("nan"))
    with pytest.raises(ZeroDivisionError):
        opt.step(lambda: 1 / 0)
    with pytest.raises(ValueError, match="give batch=64"):
        opt.step(lambda: losses_of(model, batch(1, 64)))
    batches = iter([batch(1), batch(1, 20)])
    with pytest.raises(ValueError, match="gave 32 losses, then 20 in the same step: draw"):
        opt.step(lambda: losses_of(model, next(batches)))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before))
    opt.step(lambda: losses_of(model, batch(1)))
    with pytest.raises(ValueError, match="do not depend on the parameters"):
        opt.step(lambda: torch.rand(32, requires_grad=True))
    with pytest.raises(ValueError, match="float32"):
        Recover(network().double(), lr=0.1, lam=2)
    with pytest.raises(libdro.DroError, match="lambda"):
        Recover(model, lr=0.1, lam=-1).step(lambda: losses_of(model, batch(1)))
    with pytest.raises(ValueError, match="do not depend on the parameters"):
        opt.step(lambda: losses_of(model, batch(1)).detach())
    with pytest.raises(ValueError, match="give lam, or another objective"):
        Recover(model, lr=0.1)
    for lr in (0, "a", float("nan"), float("inf")):
        with pytest.raises(ValueError, match="lr is|step sizes are .inf"):
            Recover(model, lr=lr, lam=1).step(lambda: losses_of(model, batch(1)))
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="load_state_dict"):
            copied(opt)


def test_misuse_of_settings():
    for settings in (dict(), dict(lam=2, objective="cvar:0.1")):
        with pytest.raises(ValueError, match="give lam, or another objective"):
            Recover(network(), lr=0.1, **settings)
    with pytest.raises(TypeError, match="eta is called lr"):
        Recover(network(), lr=0.1, lam=2, eta=0.1)
    with pytest.raises(TypeError, match="over is called tilt here"):
        Recover(network(), lr=0.1, lam=2, over="class")
    with pytest.raises(libdro.RangeError, match="lambda=-1.0: expected"):
        Recover(network(), lr=0.1, lam=torch.tensor(-1.0)).step(
            lambda: losses_of(network(), batch(0)))
    with pytest.raises(ValueError, match='expected "two-point"'):
        Recover(network(), lr=0.1, lam=2, form="exact")
    with pytest.raises(TypeError, match="clip is 1.0: expected a function"):
        Recover(network(), lr=0.1, lam=2, clip=1.0)


def test_misuse_of_labels():
    model, labels = network(), torch.tensor(LABELS)[batch(0)]
    plain = Recover(model, lr=0.1, lam=2)
    over = Recover(model, lr=0.1, lam=2, tilt="class", classes=2)
    with pytest.raises(ValueError, match='labels are for tilt="class"'):
        plain.step(lambda: losses_of(model, batch(0)), labels)
    with pytest.raises(ValueError, match="opt.step.closure, labels"):
        over.step(lambda: losses_of(model, batch(0)))
    for wrong in (labels[:3], labels + 0.5, labels[:, None]):
        with pytest.raises(ValueError, match="expected integers of shape"):
            over.step(lambda: losses_of(model, batch(0)), wrong)
    with pytest.raises(libdro.DroError, match="expected 0 to 1"):
        over.step(lambda: losses_of(model, batch(0)), labels + 5)
    with pytest.raises(ValueError, match="give classes"):
        Recover(model, lr=0.1, lam=2, tilt="group")


def test_misuse_of_parameters():
    """Parameters that come, go or change are not silently left as they are."""
    model, more = network(0), torch.nn.Parameter(torch.zeros(2))
    opt = Recover(model, lr=0.1, lam=2)
    opt.add_param_group(dict(params=[more]))
    for step in range(2):
        opt.step(lambda: (losses_of(model, batch(step)) + more.sum()))
    assert more.abs().min() > 0.01
    with pytest.raises(RuntimeError, match="after its first step"):
        opt.add_param_group(dict(params=[torch.nn.Parameter(torch.zeros(2))]))
    model[0].requires_grad_(False)
    with pytest.raises(RuntimeError, match="requires_grad has changed"):
        opt.step(lambda: losses_of(model, batch(2)))
    for wrong in ("weight_decay", "betas", "lam", "momentum"):
        with pytest.raises(ValueError, match=f"a parameter group has {wrong}: expected lr alone"):
            Recover([{"params": network().parameters(), wrong: 0.1, "name": "x"}], lr=0.1, lam=2)
    with pytest.raises(ValueError, match="no parameter requires a gradient"):
        Recover(network().requires_grad_(False), lr=0.1, lam=2).step(lambda: torch.rand(3))
    state = opt.state_dict()
    of_other = Recover([*torch.nn.Linear(4, 16).parameters(), *network(0)[1:].parameters(), more],
                       lr=0.1, lam=2)
    state["param_groups"] = of_other.state_dict()["param_groups"]
    with pytest.raises(ValueError, match="of another model"):
        of_other.load_state_dict(state)


DISTRIBUTED = """
import os, sys, torch, torch.distributed as dist, torch.nn.functional as F
from libdro.torch import Recover, Tilt
rank, world, store, out, kind = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
torch.manual_seed(0)
x, y = torch.randn(300, 5), torch.randint(0, 2, (300,))
model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
inner = model
if world > 1:
    model = torch.nn.parallel.DistributedDataParallel(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
if kind == "recover":
    opt = Recover(model, lr=0.1, lam=2)
tilt = Tilt(2)
for step in range(30):
    ids = torch.arange(step * 20, step * 20 + 20) % 300
    mine = ids if world == 1 else (ids[:13], ids[13:])[rank]   # uneven shares
    closure = lambda: F.cross_entropy(model(x[mine]), y[mine], reduction="none")
    if kind == "recover":
        opt.step(closure)
    else:
        opt.zero_grad(); tilt(closure()).backward(); opt.step()
extra = opt.info["log_u"] if kind == "recover" else tilt.log_u.item()
torch.save((inner.state_dict(), extra), out + str(rank))
"""


@pytest.mark.parametrize("kind", ["recover", "tilt"])
def test_distributed(tmp_path, kind):
    script = tmp_path / "run.py"
    script.write_text(DISTRIBUTED)
    env = dict(os.environ, OMP_NUM_THREADS="1")

    def run(world):
        store, out = tmp_path / f"store{world}", tmp_path / f"out{world}-"
        jobs = [subprocess.Popen([sys.executable, script, str(rank), str(world), store, out, kind],
                                 env=env) for rank in range(world)]
        assert [job.wait(timeout=240) for job in jobs] == [0] * world
        return [torch.load(f"{out}{rank}") for rank in range(world)]

    (one, log_u), = run(1)
    first, second = run(2)
    assert first[1] == second[1] == pytest.approx(log_u, abs=1e-5)
    for key in one:
        assert torch.equal(first[0][key], second[0][key])
        torch.testing.assert_close(first[0][key], one[key], atol=1e-5, rtol=1e-4)
