"""The tilt and RECOVER for any PyTorch model.

    tilt = libdro.torch.Tilt(lam=20)                          # any optimiser
    loss = tilt(F.cross_entropy(model(x), y, reduction="none"))
    loss.backward(); opt.step()

    opt = libdro.torch.Recover(model, lr=0.5, lam=20)         # the paper's method
    opt.step(lambda: F.cross_entropy(model(x), y, reduction="none"))"""
import contextlib
import ctypes
import math
import threading

import numpy as np
import torch
import torch.distributed as dist

from ._lib import Backward, Context, Draw, Forward, Problem
from ._optimizer import Guard, Optimizer


_SCALE_MOST = 2.0 ** 16  # of gradients, on their way through fp16


def _checked(losses):
    if not isinstance(losses, torch.Tensor) or losses.ndim != 1 or not len(losses):
        shape = tuple(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
        raise ValueError(f"losses have shape {shape}: expected one loss per example, (n,); "
                         'use reduction="none"')
    return losses


def _processes():
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _gathered(values):
    """Those of all processes one after another, and where this process's are among them. Without
    torch.distributed: as they are."""
    if _processes() == 1:
        return values, slice(0, len(values))
    counts = [None] * dist.get_world_size()
    dist.all_gather_object(counts, len(values))
    padded = values.new_zeros(max(counts))
    padded[:len(values)] = values
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    first = sum(counts[:dist.get_rank()])
    whole = torch.cat([part[:count] for part, count in zip(parts, counts)])
    return whole, slice(first, first + len(values))


class Tilt(torch.nn.Module):
    """Per-example losses become a scalar whose gradient is that of the robust objective
    lam log E exp(loss/lam): the library's scent (src/opt/opt_scent.c).

    over="example": the gradient is sum_i c_i grad loss_i with c_i = exp(loss_i/lam - log_u) / n.
    log_u follows log E exp(loss/lam) with weight gamma for the newest batch, and weighs a batch by
    what it was before it. Exponents beyond cap continue as the tangent; a batch of mean weight
    above heaviest is scaled down to it (0: never).

    over="class" or "group": robust over classes or groups, whose mean losses are tracked in the
    same way. Call it with the labels (or groups): tilt(losses, labels), integers from 0 on. count:
    how many there are; None: as many as have been seen, which on a GPU waits for the labels.
    prior: "uniform", or "data" for their shares.

    After eval() the estimate stays as it is. A batch with a loss that is not finite gives a loss
    that is not finite, and leaves the estimate as it was. Under DistributedDataParallel the losses
    of all processes are one batch, with one estimate; each process's loss is scaled so that DDP's
    mean of the gradients is their sum.

    objective is the running F, weights the last batch's, of mean near 1. It is made of PyTorch's
    operations: with tensors on a GPU nothing is copied to the host. state_dict() carries the
    estimate."""

    def __init__(self, lam, over="example", gamma=0.03, cap=10.0, heaviest=30.0, count=None,
                 prior="uniform"):
        super().__init__()
        for name, value, most in (("lam", lam, math.inf), ("gamma", gamma, 1.0)):
            if not 0 < value <= most:
                raise ValueError(f"{name} is {value}: expected above 0, at most {most}")
        for name, value, known in (("over", over, ("example", "class", "group")),
                                   ("prior", prior, ("uniform", "data"))):
            if value not in known:
                raise ValueError(f"{name} is {value!r}: expected one of {', '.join(known)}")
        self.lam, self.over, self.gamma, self.cap, self.heaviest = lam, over, gamma, cap, heaviest
        self.count, self.prior = count, prior
        self.register_buffer("log_u", torch.tensor(math.nan, dtype=torch.float64))
        if over != "example":
            self.register_buffer("u", torch.zeros(count or 0, dtype=torch.float64))
            self.register_buffer("counted", torch.zeros(count or 0, dtype=torch.float64))
        self.weights = None

    @property
    def objective(self):
        return self.lam * self.log_u

    def forward(self, losses, labels=None):
        _checked(losses)
        if (labels is None) == (self.over != "example"):
            raise ValueError(f"over={self.over!r}: call it as " + (
                "tilt(losses)" if self.over == "example" else "tilt(losses, labels)"))
        with torch.no_grad():
            if self.log_u.device != losses.device:
                self.to(losses.device)
            whole, mine = _gathered(losses.detach())
            if labels is None:
                coef = self._weigh(whole.double() / self.lam)
            else:
                coef = self._weigh_groups(whole.double(), self._members(labels, losses))
            self.weights = (coef * len(whole))[mine]
            coef = coef[mine] * _processes()
        return (coef.to(losses.dtype) * losses).sum()

    def _weigh(self, x):
        """Coefficients of a batch of loss/lam; moves log_u."""
        n, first = len(x), torch.isnan(self.log_u)
        fresh = torch.logsumexp(x, 0) - math.log(n)
        before = torch.where(first, fresh, self.log_u)
        over = (x - before - self.cap).clamp(min=0)
        slope = torch.exp(x - before - over)
        mean = (slope * (1 + over)).mean()
        share = torch.ones_like(mean)
        if self.heaviest > 0:
            share = torch.where(first, share, (self.heaviest / mean).clamp(max=1))
        if self.training:
            moved = before + torch.log(1 - self.gamma + self.gamma * share * mean)
            moved = torch.where(first, fresh, moved)
            self.log_u = torch.where(torch.isfinite(moved), moved, self.log_u)
        return share * slope / n

    def _members(self, labels, losses):
        labels = torch.as_tensor(labels, device=losses.device)
        if labels.shape != losses.shape or labels.is_floating_point():
            raise ValueError(f"labels have shape {tuple(labels.shape)} and type {labels.dtype}: "
                             f"expected integers of shape {tuple(losses.shape)}")
        labels = _gathered(labels.long())[0]
        if self.count is None:
            lowest, highest = int(labels.min()), int(labels.max())
            if lowest < 0:
                raise ValueError(f"labels have {lowest}: expected 0 or more")
            more = highest + 1 - len(self.u)
            if more > 0:
                self.u, self.counted = (torch.cat([t, t.new_zeros(more)])
                                        for t in (self.u, self.counted))
        return labels

    def _weigh_groups(self, losses, labels):
        """Coefficients of a batch; moves u, the mean losses of the groups."""
        zero = torch.zeros_like(self.u)
        sums, counts = zero.index_add(0, labels, losses), \
            zero.index_add(0, labels, torch.ones_like(losses))
        mean = sums / counts.clamp(min=1)
        moved = torch.where(self.counted > 0, (1 - self.gamma) * self.u + self.gamma * mean, mean)
        u, counted = torch.where(counts > 0, moved, self.u), self.counted + counts
        good = torch.isfinite(losses).all() & self.training
        if self.training:
            self.u = torch.where(good, u, self.u)
            self.counted = torch.where(good, counted, self.counted)
        else:
            u, counted = self.u, self.counted
        share = counted / counted.sum()
        prior = (counted > 0).double() if self.prior == "uniform" else share
        log_q = torch.log(prior) + u / self.lam
        log_sum = torch.logsumexp(log_q, 0)
        if self.training:
            now = log_sum - torch.log(prior.sum())
            self.log_u = torch.where(good, now, self.log_u)
        q = torch.exp(log_q - log_sum)
        return (q / (len(losses) * share))[labels]

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for name in ("u", "counted"):
            if prefix + name in state_dict and hasattr(self, name):  # as many groups as it has seen
                setattr(self, name, getattr(self, name).new_zeros(len(state_dict[prefix + name])))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self):
        return f"lam={self.lam}, over={self.over!r}, gamma={self.gamma}"


class Recover(torch.optim.Optimizer):
    """RECOVER: the library's optimiser, on the losses and gradients of a closure.

    opt = Recover(model, lr=0.5, lam=20)
    opt.step(lambda: F.cross_entropy(model(x), y, reduction="none"))

    A step evaluates the closure at the present weights and, from the second step on, at the weights
    of the step before: the same random numbers at both, and batch norm's running statistics move
    once (give the module, not its parameters). It must return one loss per example. A list of
    closures is one batch in pieces: every piece is evaluated once more, and the memory is that of
    the largest.

    lr: the step size; schedulers work. Parameter groups may have step sizes of their own, whose
    ratios stay as they are in the first step.
    clip: called with the parameters when their gradients are there, at both points:
    clip=lambda p: torch.nn.utils.clip_grad_norm_(p, 1.0).
    batch: most examples in a batch, of all processes together; None: as in the first step.
    classes: how many classes there are, for tilt="class"; step() then takes the labels.
    settings: further settings of the library's recover (`dro list optimizers recover`).

    The arithmetic of a step runs on the CPU: with parameters on a GPU, the weights and gradients
    travel. A batch with a loss that is not finite raises NumberError and leaves all as it was.
    Weights that were changed elsewhere are taken as they are, and the estimator starts afresh.
    Gradients are scaled by a power of two on their way, for fp16. zero_grad() is not needed:
    gradients in p.grad are left as they are. objective is the running F."""

    def __init__(self, model, lr, lam, batch=None, classes=0, clip=None, **settings):
        module = isinstance(model, torch.nn.Module)
        self._buffers = list(model.buffers()) if module else []
        params = model.parameters() if module else model
        if not lr > 0:
            raise ValueError(f"lr is {lr}: expected above 0")
        settings = {"eta_schedule": "constant", "warmup": 0, **settings}
        self._settings = dict(settings, lam=lam, eta=lr, form="two-point")
        self._base, self._batch, self._classes, self._clip = lr, batch, classes, clip
        self._optimizer = self._before = self._pending = self._ratios = self._units = None
        self._loss_scale, self._lock = _SCALE_MOST, threading.Lock()
        super().__init__(params, dict(lr=lr))
        self._params = [p for group in self.param_groups for p in group["params"]
                        if p.requires_grad]
        wrong = [p.dtype for p in self._params if p.dtype != torch.float32]
        if wrong:
            raise ValueError(f"parameters are {wrong[0]}: expected float32; use autocast for less")
        self._dim = sum(p.numel() for p in self._params)
        self._calls = _Calls(self)

    # ---- a step ----

    def step(self, closure, labels=None):
        """Takes a step; returns the mean loss of the batch at the weights before it."""
        pieces = list(closure) if isinstance(closure, (list, tuple)) else [closure]
        if not pieces or not all(map(callable, pieces)):
            raise TypeError("step() takes a function that returns the losses of the batch, or a "
                            "list of them: opt.step(lambda: F.cross_entropy(model(x), y, "
                            'reduction="none"))')
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("this optimiser is taking a step in another thread: use it from one "
                               "thread at a time")
        try:
            return self._step(pieces, labels)
        finally:
            self._lock.release()

    def _step(self, pieces, labels):
        rate = self._rate()
        if self._optimizer is None:
            self._units = self._measure()
        now = self._flat()
        if self._optimizer and not np.array_equal(now, self._w):
            self._optimizer = None
        calls = self._calls
        calls.begin(pieces, labels)
        try:
            old = self._optimizer is not None
            calls.look(self._before if old else now, again=old)
            if not old:
                self._start(now, len(calls.losses))
            self._optimizer.scale_eta(rate / self._base)
            calls.current = self._optimizer.address()
            self._optimizer.step()
        except BaseException:
            self._put(now)
            raise
        finally:
            calls.end()
        self._before = now
        self._optimizer.weights(self._w)
        self._put(self._w)
        return self._optimizer.info()["loss"]

    def _rate(self):
        """The step size, that of the first group. The library has one: w of a group with another is
        measured in units in which it is the right one."""
        rates = [float(group["lr"]) for group in self.param_groups if group["params"]]
        if not all(rate > 0 for rate in rates):
            raise ValueError(f"the step sizes are {rates}: expected above 0")
        ratios = [rate / rates[0] for rate in rates]
        if self._ratios is None:
            self._ratios = ratios
        if any(abs(a / b - 1) > 1e-6 for a, b in zip(self._ratios, ratios)):
            raise ValueError(f"the step sizes of the parameter groups are {rates}: their ratios "
                             f"must stay {self._ratios}; use one schedule for all groups")
        return rates[0]

    def _start(self, w, count):
        problem = Problem(dim=self._dim, n=0, classes=self._classes, forward=self._calls.c_forward,
                          backward=self._calls.c_backward, draw=self._calls.c_draw)
        self._batch = self._batch or count
        self._optimizer = Optimizer("recover", problem, self._calls, w,
                                    dict(self._settings, batch=self._batch), Context("cpu", 1))
        self._w = w.copy()
        if self._pending:
            self._optimizer.load(self._pending)
            self._pending = None

    def _measure(self):
        """What each weight is measured in, once the ratios of the step sizes are known; None: all
        in 1. A step moves a weight by the square of its unit, by the unit itself where it is
        scaled."""
        if all(ratio == 1 for ratio in self._ratios):
            return None
        power = 0.5 if self._settings.get("precondition", "none") == "none" else 1.0
        groups = [group for group in self.param_groups if group["params"]]
        return np.concatenate([np.full(p.numel(), ratio ** power, dtype=np.float32)
                               for ratio, group in zip(self._ratios, groups)
                               for p in group["params"] if p.requires_grad])

    def _flat(self):
        with torch.no_grad():
            w = torch.cat([p.reshape(-1) for p in self._params]).cpu().numpy()
        return w if self._units is None else w / self._units

    def _put(self, w):
        first = 0
        w = w if self._units is None else w * self._units
        with torch.no_grad():
            for p in self._params:
                p.copy_(torch.from_numpy(w[first:first + p.numel()]).view_as(p))
                first += p.numel()

    # ---- what it knows ----

    @property
    def objective(self):
        return self.info["objective"]

    @property
    def info(self):
        """A dictionary: step, loss, objective, log_u, a, effective sample size and more."""
        if not self._optimizer:
            raise RuntimeError("no step has been taken")
        return self._optimizer.info()

    def state_dict(self):
        state = super().state_dict()
        if self._optimizer:
            state["libdro"] = dict(
                state=torch.frombuffer(bytearray(self._optimizer.save()), dtype=torch.uint8),
                before=torch.from_numpy(self._before.copy()),
                w=torch.from_numpy(self._w.copy()), batch=self._batch,
                loss_scale=self._loss_scale)
        return state

    def load_state_dict(self, state_dict):
        state = dict(state_dict)
        mine = state.pop("libdro", None)
        super().load_state_dict(state)
        self._optimizer = None
        if mine is None:
            return
        w = mine["w"].numpy()
        if w.shape != (self._dim,):
            raise ValueError(f"the state is of {w.size} weights, the model has {self._dim}")
        self._batch, self._before = mine["batch"], mine["before"].numpy().copy()
        self._pending, self._loss_scale = mine["state"].numpy().tobytes(), mine["loss_scale"]
        self._ratios = None
        self._rate()
        self._units = self._measure()
        self._start(w.copy(), self._batch)
        self._put(self._w)


class _Calls(Guard):
    """A batch's closures as the library calls them: draw, then forward and backward at the weights
    before and at the present ones."""

    def __init__(self, owner):
        self.owner, self.current = owner, None
        self.c_forward, self.c_backward = Forward(self.forward), Backward(self.backward)
        self.c_draw = Draw(self.draw)

    def begin(self, pieces, labels):
        self.pieces, self.labels, self.losses, self.error = pieces, labels, None, None
        devices = {p.device for p in self.owner._params if p.is_cuda}
        self.random = torch.get_rng_state(), {d: torch.cuda.get_rng_state(d) for d in devices}

    def end(self):
        self.pieces = self.labels = self.losses = self.graph = None

    def rewind(self):
        """Random numbers as at the beginning of the step."""
        torch.set_rng_state(self.random[0])
        for device, state in self.random[1].items():
            torch.cuda.set_rng_state(state, device)

    @contextlib.contextmanager
    def unmoved(self):
        """Buffers that move (running statistics) are as before afterwards."""
        kept = [(b, b._version, b.clone()) for b in self.owner._buffers]
        yield
        with torch.no_grad():
            for buffer, version, value in kept:
                if buffer._version != version:
                    buffer.copy_(value)

    def look(self, w, again):
        """Evaluates the closures at w; `again`: at weights that are not the present ones."""
        self.owner._put(w)
        self.rewind()
        with self.unmoved() if again else contextlib.nullcontext():
            with torch.set_grad_enabled(len(self.pieces) == 1):
                parts = [_checked(piece()) for piece in self.pieces]
        self.graph, self.again = parts, again
        whole, self.mine = _gathered(torch.cat([part.detach().float() for part in parts]))
        self.losses = np.ascontiguousarray(whole.cpu().numpy())

    def draw(self, _, position, count, batch):
        def call():
            n = len(self.losses)
            if n > count:
                raise ValueError(f"a batch of {n} examples after one of {count}: give batch={n}, "
                                 "the most there will be")
            self.ids = np.arange(position, position + n, dtype=np.int64)
            batch[0].position, batch[0].count = position, n
            batch[0].ids = self.ids.ctypes.data_as(type(batch[0].ids))
            if self.labels is not None:
                own = torch.as_tensor(self.labels).reshape(-1)
                whole = _gathered(own)[0].cpu().numpy().astype(np.int32)
                if len(whole) != n:
                    raise ValueError(f"{len(whole)} labels for {n} losses")
                self.classes = whole
                batch[0].classes = whole.ctypes.data
        return self.call(call)

    def forward(self, _, w, parts, count, losses):
        def call():
            present = _address(w) == self.current
            if present and self.again:
                self.look(_array(w, self.owner._dim), again=False)
            _array(losses, len(self.losses))[:] = self.losses
        return self.call(call)

    def backward(self, _, w, parts, count, coef, grads):
        def call():
            whole = torch.from_numpy(_array(coef, len(self.losses))[self.mine] * _processes())
            out = _array(grads[0], self.owner._dim)
            params = self.owner._params
            kept = [p.grad for p in params]
            try:
                self._scaled_backward(whole, w)
                if self.owner._clip:
                    self.owner._clip(params)
                first = 0
                for p in params:
                    gradient = 0 if p.grad is None else p.grad.reshape(-1).cpu().numpy()
                    out[first:first + p.numel()] = gradient
                    first += p.numel()
            finally:
                for p, gradient in zip(params, kept):
                    p.grad = gradient
            if self.owner._units is not None:
                out *= self.owner._units
        return self.call(call)

    def _scaled_backward(self, coef, w):
        """Gradients of the losses times a power of two, divided by it: exact, and in fp16 small
        ones are not lost. Where they overflow, again with a smaller one."""
        owner = self.owner
        while True:
            scale = owner._loss_scale
            for p in owner._params:
                p.grad = None
            self._backward(coef * scale)
            found = [p.grad for p in owner._params if p.grad is not None]
            if not found:
                raise ValueError("the losses do not depend on the parameters: the closure must "
                                 "call the model, and not under torch.no_grad()")
            torch._foreach_mul_(found, 1 / scale)
            norms = torch.stack(torch._foreach_norm(found))
            if scale == 1 or torch.isfinite(norms).all():
                return
            owner._loss_scale = scale / 16
            again = self.again
            self.look(_array(w, owner._dim).copy(), again=True)  # statistics have moved already
            self.again = again

    def _backward(self, coef):
        if len(self.pieces) == 1:
            self.graph[0].backward(coef.to(self.graph[0]))
            return
        first = 0
        self.rewind()
        with self.unmoved():
            for piece in self.pieces:
                losses = piece()
                losses.backward(coef[first:first + len(losses)].to(losses))
                first += len(losses)


def _array(p, count):
    return np.ctypeslib.as_array(p, (count,))


def _address(p):
    return ctypes.cast(p, ctypes.c_void_p).value
