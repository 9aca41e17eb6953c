"""The tilt and RECOVER for any PyTorch model.

    tilt = libdro.torch.Tilt(lam=20)                          # any optimiser
    loss = tilt(F.cross_entropy(model(x), y, reduction="none"))
    loss.backward(); opt.step()

    opt = libdro.torch.Recover(model, lr=0.5, lam=20)         # the paper's method
    opt.step(lambda: F.cross_entropy(model(x), y, reduction="none"))"""
from __future__ import annotations

import contextlib
import ctypes
import math
import numbers
import threading
import warnings
from typing import Any, Callable, Iterable, Sequence

import numpy as np
import torch
import torch.distributed as dist

from ._lib import (ERR_CALLBACK, ERRORS, Backward, Context, Draw, Forward, Lent, Problem,
                   StepBatch, lib, settings_table, step_module)
from ._optimizer import Guard, Optimizer

NumberError = ERRORS[-7]

_SCALE_MOST = 2.0 ** 16  # of gradients, on their way through fp16
_TILT_BATCH = 1 << 20  # most examples of a batch for another objective than kl
_GROUPS_MOST = 1 << 20  # where count is not given


def _checked(losses):
    if not isinstance(losses, torch.Tensor) or losses.ndim != 1 or not len(losses):
        shape = tuple(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
        raise ValueError(f"losses have shape {shape}: expected one loss per example, (n,); "
                         'use reduction="none"')
    if not losses.is_floating_point():
        raise ValueError(f"losses have type {losses.dtype}: expected floating point")
    return losses


def _labels(labels, count, device):
    """One integer per example."""
    try:
        labels = torch.as_tensor(labels, device=device)
    except (ValueError, TypeError):
        raise ValueError(f"labels do not hold integers: expected {count} from 0 on, as "
                         "numpy.unique(labels, return_inverse=True)[1] gives them") from None
    if labels.shape != (count,) or labels.is_floating_point() or labels.is_complex():
        raise ValueError(f"labels have shape {tuple(labels.shape)} and type {labels.dtype}: "
                         f"expected integers of shape {(count,)}")
    return labels.long()


def _above_zero(name, value, most=math.inf):
    one = isinstance(value, torch.Tensor) and value.numel() == 1
    if not (one or isinstance(value, numbers.Real)) or not 0 < value <= most:
        raise ValueError(f"{name} is {value!r}: expected a number above 0" +
                         ("" if most == math.inf else f", at most {most:g}"))
    return value


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
    log_u is the logarithm of a moving average of exp(loss/lam), with weight gamma for the newest
    batch. A batch is weighed with the log_u from before it. Above cap, exp is replaced by its
    tangent. A batch whose mean weight is above heaviest is scaled down to it (0: never).

    over="class" or "group": robust over classes or groups, whose mean losses are tracked in the
    same way. Call it with the labels (or groups): tilt(losses, labels), integers from 0 on. count:
    how many there are; None: as many as have been seen; on a GPU this waits for the labels.
    prior: "uniform", or "data" for their shares.

    objective: instead of lam, another objective of the library: "cvar:0.1", "chi2:1" or
    "kl-radius:0.5". Its arithmetic is the library's; over classes or groups it needs count.

    After eval() the estimate stays as it is. A batch with a loss that is not finite gives a loss
    that is not finite, and leaves the estimate as it was. Under DistributedDataParallel the losses
    of all processes are one batch, with one estimate; each process's loss is scaled so that DDP's
    mean of the gradients is their sum.

    objective is the running F; weights are those of the last batch, of mean near 1. With lam the
    tilt consists of PyTorch's operations. On a GPU a single number is copied to the host, once:
    whether the first batch gave an estimate. state_dict() contains the estimate."""

    def __init__(self, lam: float | None = None, over: str = "example", gamma: float = 0.03,
                 cap: float = 10.0, heaviest: float = 30.0, count: int | None = None,
                 prior: str = "uniform", objective: str | None = None) -> None:
        super().__init__()
        if (lam is None) == (not objective):
            raise ValueError("give lam, or another objective: Tilt(20) or "
                             'Tilt(objective="cvar:0.1")')
        if lam is not None:
            _above_zero("lam", lam)
        _above_zero("gamma", gamma, 1.0)
        _above_zero("cap", cap)
        if heaviest != 0:
            _above_zero("heaviest", heaviest)
        if count is not None and (not isinstance(count, numbers.Integral) or count < 1):
            raise ValueError(f"count is {count!r}: expected a whole number above 0, or None")
        for name, value, known in (("over", over, ("example", "class", "group")),
                                   ("prior", prior, ("uniform", "data"))):
            if value not in known:
                raise ValueError(f"{name} is {value!r}: expected one of {', '.join(known)}")
        self.lam, self.over, self.gamma, self.cap, self.heaviest = lam, over, gamma, cap, heaviest
        self.count, self.prior, self._spec = count, prior, objective
        self._last = self._steps = self._saved = None
        self._begun = False  # log_u is known to be a number
        if objective:
            if over != "example" and not count:
                raise ValueError(f"objective={objective!r}, over={over!r}: give count, how many "
                                 "there are")
            self._start(torch.device("cpu"))  # says what is wrong with the objective
            return
        self.register_buffer("log_u", torch.tensor(math.nan, dtype=torch.float64))
        if over != "example":
            self.register_buffer("u", torch.zeros(count or 0, dtype=torch.float64))
            self.register_buffer("counted", torch.zeros(count or 0, dtype=torch.float64))

    @property
    def objective(self) -> torch.Tensor:
        """The running F; NaN before the first batch."""
        if not self._spec:
            return self.lam * self.log_u
        info = self._steps.info()
        return torch.tensor(info["objective"] if info["step"] else math.nan)

    def forward(self, losses: torch.Tensor, labels: Any = None) -> torch.Tensor:
        """losses: one per example, (n,). labels: integers, for classes or groups. Returns the
        scalar to call backward() on."""
        _checked(losses)
        if (labels is None) == (self.over != "example"):
            raise ValueError(f"over={self.over!r}: call it as " + (
                "tilt(losses)" if self.over == "example" else "tilt(losses, labels)"))
        with torch.no_grad():
            whole, mine = _gathered(losses)
            if not self._spec and self.log_u.device != losses.device:
                self.to(losses.device)
            if self._spec:
                coef = self._weigh_by_library(whole, labels)
            elif labels is None:
                coef = self._weigh(whole.double() / self.lam)
            else:
                coef = self._weigh_groups(whole.double(), self._members(labels, losses))
            self._last = coef, mine
            if _processes() > 1:
                coef = coef[mine] * _processes()
            coef = coef.to(losses.dtype)
        return torch.dot(coef, losses)

    def _apply(self, *arguments, **named):
        """The estimate stays in double precision where the model around it becomes half()."""
        before = dict(self._buffers)
        super()._apply(*arguments, **named)
        for name, buffer in self._buffers.items():
            if buffer.dtype != torch.float64:
                self._buffers[name] = before[name].to(buffer.device)
        return self

    @property
    def weights(self) -> torch.Tensor | None:
        """Those of the last batch, of mean near 1; None before the first."""
        if self._last is None:
            return None
        coef, mine = self._last
        return (coef * len(coef))[mine]

    def _weigh(self, x):
        """Coefficients of a batch of loss/lam; moves log_u. On a GPU each operation costs its
        launch, so there are few."""
        first, before = None, self.log_u
        if not self._begun:
            first = torch.isnan(before)
            before = torch.where(first, x.amax(), before)
        off = x - before
        capped = off.clamp(max=self.cap)
        slope = capped.exp()
        total = torch.addcmul(slope, slope, off - capped).sum()
        mean = total / len(x)
        share = (mean.clamp(max=self.heaviest) if self.heaviest > 0 else mean) / total
        moved = torch.rsub(share * total, 1 - self.gamma, alpha=-self.gamma)
        if first is not None:
            share = torch.where(first, 1 / total, share)
            moved = torch.where(first, mean, moved)
        if self.training:
            moved = before + torch.log(moved)
            self.log_u = torch.where(torch.isfinite(moved), moved, self.log_u)
            if first is not None:
                self._look_begun()
        return slope * share

    def _look_begun(self):
        """Whether there is an estimate, once; this waits for the device."""
        if not torch.compiler.is_compiling() and not (
                self.log_u.is_cuda and torch.cuda.is_current_stream_capturing()):
            self._begun = not torch.isnan(self.log_u).item()

    def _start(self, device):
        """The library's optimiser of the same kind, whose one weight does not move."""
        settings = dict(objective=self._spec, tilt=self.over, gamma=self.gamma, cap=self.cap,
                        heaviest=self.heaviest, group_prior=self.prior, batch=_TILT_BATCH, eta=1,
                        eta_schedule="constant", warmup=0, precondition="none", momentum=0,
                        guard=0)
        problem = Problem(dim=1, classes=self.count or 0, groups=self.count or 0,
                          forward=_FORWARD, backward=_BACKWARD, draw=_DRAW)
        state = self._saved or (self._steps and self._steps.save())
        self._steps = _Steps("scent", problem, np.zeros(1, np.float32), settings, device)
        if state:
            self._steps.load(state)
        self._saved = None

    @torch.compiler.disable
    def _weigh_by_library(self, losses, labels):
        if len(losses) > _TILT_BATCH:
            raise ValueError(f"a batch of {len(losses)} losses: objective={self._spec!r} takes at "
                             f"most {_TILT_BATCH}, of all processes together; split the batch")
        device = _device_of_steps([losses])
        if self._steps.device != device:
            self._start(device)
        if labels is not None:
            labels = self._members(labels, losses).to(device).contiguous()
        try:
            self._steps.begin()
        except NumberError:  # of an earlier batch on a GPU, whose loss was not finite either
            self._steps.begin()
        try:
            coef = self._steps.weigh(False, losses, labels)
            self._steps.end() if self.training else self._steps.cancel()
        except NumberError:
            coef = torch.full_like(losses, math.nan, dtype=torch.float32)
        return coef.to(losses.device).double()

    def _members(self, labels, losses):
        labels = _gathered(_labels(labels, len(losses), losses.device))[0]
        if self.count is None or not (labels.is_cuda or torch.compiler.is_compiling()):
            self._check_range(int(labels.min()), int(labels.max()))
        return labels

    def _check_range(self, lowest, highest):
        """Refuses labels that are no numbers of groups; makes place for new ones."""
        count = self.count or _GROUPS_MOST
        if lowest < 0 or highest >= count:
            hint = "" if self.count else "; number them one after another"
            raise ValueError(f"labels have {lowest if lowest < 0 else highest}: expected 0 to "
                             f"{count - 1}{hint}")
        more = 0 if self.count else highest + 1 - len(self.u)
        if more > 0:
            self.u, self.counted = (torch.cat([t, t.new_zeros(more)])
                                    for t in (self.u, self.counted))

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

    def __getstate__(self):
        state = dict(self.__dict__)
        if self._spec:
            state.update(_saved=self._steps.save(), _steps=None)
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        if self._spec:
            self._start(torch.device("cpu"))

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._spec:
            destination[prefix + "steps"] = _bytes_tensor(self._steps.save())

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        if self._spec and prefix + "steps" in state_dict:
            self._saved = state_dict.pop(prefix + "steps").cpu().numpy().tobytes()
            self._start(self._steps.device)
        for name in ("u", "counted"):
            # Without count, as many groups as it has seen.
            if prefix + name in state_dict and hasattr(self, name) and not self.count:
                setattr(self, name, getattr(self, name).new_zeros(len(state_dict[prefix + name])))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._begun = False

    def extra_repr(self) -> str:
        what = f"objective={self._spec!r}" if self._spec else f"lam={self.lam}"
        return f"{what}, over={self.over!r}, gamma={self.gamma}"


# Settings of the library's and PyTorch's optimisers, which a group of parameters cannot have.
_NOT_OF_A_GROUP = {row[0] for row in settings_table()} - {"name"} | {
    "lam", "betas", "eps", "alpha", "dampening", "maximize", "amsgrad", "rho"}

_NOT_OF_THE_MODEL = ("the losses do not depend on the parameters: the closure must call the model, "
                     "not detach its output, and not run under torch.no_grad()")


class Recover(torch.optim.Optimizer):
    """RECOVER: the library's optimiser, on the losses and gradients of a closure.

    opt = Recover(model, lr=0.5, lam=20)
    opt.step(lambda: F.cross_entropy(model(x), y, reduction="none"))

    A step evaluates the closure at the present weights and, from the second step on, at the weights
    of the step before: PyTorch's random numbers are the same at both, and batch norm's running
    statistics move once (give the module, not its parameters). The closure must return one loss per
    example, of the same examples each time: draw the batch before the step, and augment it there
    too, unless with PyTorch's random numbers. A list of closures is one batch in pieces. Each piece
    is evaluated once more, and the memory needed is that of the largest piece.

    lr: the step size; schedulers work. Parameter groups may have step sizes of their own, whose
    ratios stay as they are in the first step; other settings are the same for all.
    clip: called with the parameters when their gradients are there, at both points:
    clip=lambda p: torch.nn.utils.clip_grad_norm_(p, 1.0).
    batch: most examples in a batch, of all processes together; None: as in the first step.
    objective: instead of lam, another objective of the library: "cvar:0.1", "chi2:1" or
    "kl-radius:0.5".
    classes: how many classes or groups there are, for tilt="class" and tilt="group"; step() then
    takes the labels: opt.step(closure, labels).
    settings: further settings of the library's recover (`dro list optimizers recover`).

    A batch with a loss that is not finite raises NumberError and leaves all as it was. Weights that
    were changed elsewhere are taken as they are, and the estimator starts afresh. Gradients are
    scaled by a power of two on their way, for fp16: use no GradScaler. zero_grad() is not needed:
    gradients in p.grad are left as they are. objective is the running F.

    With parameters on a GPU the state is there too, and a step copies nothing to the host and does
    not wait. So a step with a number that is not finite, which changes nothing, is reported by a
    later step; those in between change nothing either. objective, info and state_dict() wait. A
    step cannot be part of a CUDA graph; the model within the closure can. A package without
    libdro_step_cuda.so computes on the CPU instead, with copies of the weights and gradients."""

    def __init__(self, model: torch.nn.Module | Iterable[Any], lr: float, lam: float | None = None,
                 batch: int | None = None, classes: int = 0,
                 clip: Callable[[list[torch.nn.Parameter]], object] | None = None,
                 **settings: Any) -> None:
        module = isinstance(model, torch.nn.Module)
        params = model.parameters() if module else model
        self._buffers = _Buffers(model if module else None)
        if (lam is None) == (not settings.get("objective")):
            raise ValueError("give lam, or another objective: Recover(model, lr=0.5, lam=20) or "
                             'Recover(model, lr=0.5, objective="cvar:0.1")')
        for name, here, example in (("eta", "lr", "lr=0.5"),
                                    ("over", "tilt", 'lr=0.5, tilt="class", classes=2')):
            if name in settings:
                raise TypeError(f"{name} is called {here} here: Recover(model, {example}, lam=20)")
        if settings.get("form", "two-point") != "two-point":
            raise ValueError(f"form is {settings['form']!r}: expected \"two-point\", which it "
                             "always is")
        if clip is not None and not callable(clip):
            raise TypeError(f"clip is {clip!r}: expected a function of the parameters, such as "
                            "lambda p: torch.nn.utils.clip_grad_norm_(p, 1.0)")
        lr = float(_above_zero("lr", lr))
        tilts = {settings.get("tilt"), settings.get("switch_tilt")} & {"class", "group"}
        self._labelled = bool(tilts)
        if tilts and (not isinstance(classes, numbers.Integral) or classes < 1):
            raise ValueError(f"tilt={min(tilts)!r}: give classes, how many there are")
        settings = {"eta_schedule": "constant", "warmup": 0, **settings}
        self._settings = dict(settings, eta=lr, form="two-point")
        if lam is not None:
            self._settings["lam"] = lam
        self._base, self._batch, self._classes, self._clip = lr, batch, classes, clip
        self._steps = self._ratios = self._units = self._strides = None
        self._seen = {}  # views of the vectors
        self._loss_scale, self._lock = _SCALE_MOST, threading.Lock()
        super().__init__(params, dict(lr=lr))

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Before the first step only."""
        if self._steps:
            raise RuntimeError("Recover takes no parameters after its first step: make a new one")
        other = _NOT_OF_A_GROUP.intersection(group)
        if other:
            raise ValueError(f"a parameter group has {min(other)}: expected lr alone; Recover's "
                             "other settings are the same for all parameters")
        super().add_param_group(group)
        self._params = self._trained()
        wrong = [p.dtype for p in self._params if p.dtype != torch.float32]
        if wrong:
            raise ValueError(f"parameters are {wrong[0]}: expected float32; use autocast for less")
        self._dim = sum(p.numel() for p in self._params)

    def _trained(self):
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

    def __getstate__(self):
        raise TypeError("a Recover cannot be copied or pickled: make one for the other model, and "
                        "load_state_dict(state_dict())")

    # ---- a step ----

    def step(self, closure: Callable[[], torch.Tensor] | Sequence[Callable[[], torch.Tensor]],
             labels: Any = None) -> Any:
        """Takes a step; returns the mean loss of the batch at the weights before it: a number, on a
        GPU a tensor."""
        pieces = list(closure) if isinstance(closure, (list, tuple)) else [closure]
        if not pieces or not all(map(callable, pieces)):
            raise TypeError("step() takes a function that returns the losses of the batch, or a "
                            "list of them: opt.step(lambda: F.cross_entropy(model(x), y, "
                            'reduction="none"))')
        self._check_trained()
        if self._params[0].is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("a step of Recover cannot be captured in a CUDA graph: capture the "
                               "model within the closure (torch.cuda.make_graphed_callables)")
        if (labels is not None) != self._labelled:
            raise ValueError("over classes or groups, the labels go to the step: opt.step(closure, "
                             "labels)" if self._labelled else
                             'labels are for tilt="class" and tilt="group"')
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("this optimiser is taking a step in another thread: use it from one "
                               "thread at a time")
        try:
            return self._step(_Batch(self, pieces), labels)
        finally:
            self._lock.release()

    def _check_trained(self):
        trained = self._trained()
        if not trained:
            raise ValueError("no parameter requires a gradient")
        if len(trained) != len(self._params) or any(a is not b for a, b in zip(trained,
                                                                             self._params)):
            raise RuntimeError("requires_grad has changed since this Recover was made: make a new "
                               "one")

    def _step(self, batch, labels):
        rate, twice = self._rate(), False
        if self._steps and self._steps.device != _device_of_steps(self._params):
            self._move()
        if self._steps:
            self._take_changes()
            self._steps.scale_eta(rate / self._base)
            twice = self._begin()
        try:
            if twice:
                self._put(self._steps.before)
                batch.look(again=True)
                self._evaluate(batch, labels, True)
                self._put(self._steps.w)
            batch.look()
            if not self._steps:
                self._start(len(batch.losses))
                self._steps.scale_eta(rate / self._base)
                self._begin()
            self._evaluate(batch, labels, False)
            self._steps.end()
        except BaseException:
            self._buffers.restore()
            if self._steps:
                self._steps.cancel()
                self._put(self._steps.w)
            raise
        self._put(self._steps.w)
        return batch.losses.mean() if self._steps.device.type == "cuda" else \
            self._steps.info()["loss"]

    def _begin(self):
        """Whether the batch is evaluated at both points. On a GPU, gradients that overflow are
        noticed late: the scale is lowered for the steps to come."""
        while True:
            try:
                return self._steps.begin()
            except NumberError as error:
                if self._loss_scale == 1 or not str(error).startswith("gradient"):
                    raise
                self._loss_scale /= 16

    def _evaluate(self, batch, labels, before):
        """From the losses to the gradient."""
        if len(batch.losses) > self._batch:
            n = len(batch.losses)
            raise ValueError(f"a batch of {n} examples after one of {self._batch}: give batch={n}, "
                             "the most there will be")
        if labels is not None:
            own = batch.mine.stop - batch.mine.start
            labels = _gathered(_labels(labels, own, self._steps.device))[0].contiguous()
        coef = self._steps.weigh(before, batch.losses, labels)
        to = self._steps.gradient_before if before else self._steps.gradient
        while True:
            try:
                self._backward(batch, coef, to)
            finally:
                self._buffers.restore()
            if self._loss_scale == 1 or to.is_cuda or torch.isfinite(to.sum()):
                return
            self._loss_scale /= 16
            batch.look(again=True)  # statistics have moved already

    def _backward(self, batch, coef, to):
        """The gradient of the losses times a power of two, divided by it: exact, and in fp16 small
        ones are not lost."""
        kept = [p.grad for p in self._params]
        try:
            for p in self._params:
                p.grad = None
            batch.backward(coef[batch.mine] * (self._loss_scale * _processes()))
            for p in self._params:
                if p.grad is not None and p.grad.is_sparse:
                    p.grad = p.grad.to_dense()
            found = [p.grad for p in self._params if p.grad is not None]
            if not found:
                raise ValueError(_NOT_OF_THE_MODEL)
            if self._clip:
                torch._foreach_mul_(found, 1 / self._loss_scale)
                self._clip(self._params)
            views = self._views(to)
            if len(found) < len(self._params):
                to.zero_()
                views = [v for v, p in zip(views, self._params) if p.grad is not None]
            with torch.no_grad():
                torch._foreach_copy_(views, found)
            # As in plain training, the memory of the gradients stays until the next: else malloc
            # would give the pages of all activations back, and every pass would fault them in.
            self._last_gradients = found
            factor = 1.0 if self._clip else 1 / self._loss_scale
            if self._units is not None:
                to.mul_(self._units * factor)
            elif factor != 1:
                to.mul_(factor)
        finally:
            for p, gradient in zip(self._params, kept):
                p.grad = gradient

    def _rate(self):
        """The step size, that of the first group. The library has one: w of a group with another is
        measured in units in which it is the right one. All may be 0, as at the end of a schedule or
        at the beginning of a warm-up."""
        groups = [group for group in self.param_groups if group["params"]]
        rates = [float(group["lr"]) for group in groups]
        none = not any(rates)
        if none and self._ratios is not None:
            return 0.0
        bases = [float(group.get("initial_lr", 0)) for group in groups] if none else rates
        if not all(0 < rate < math.inf for rate in bases):
            raise ValueError(f"the step sizes are {rates}: expected all above 0, or all 0 in a "
                             "schedule")
        ratios = [rate / bases[0] for rate in bases]
        if self._ratios is None:
            self._ratios = ratios
        if any(abs(a / b - 1) > 1e-6 for a, b in zip(self._ratios, ratios)):
            raise ValueError(f"the step sizes of the parameter groups are {rates}: their ratios "
                             f"must stay {self._ratios}; use one schedule for all groups")
        return rates[0]

    # ---- the weights: the model's, and the optimiser's flat ones ----

    def _start(self, count):
        self._batch = self._batch or count
        self._strides = self._strides or [_strides(p) for p in self._params]
        device = _device_of_steps(self._params)
        if device.type == "cpu" and self._params[0].is_cuda:
            warnings.warn("libdro_step_cuda.so is missing or does not load: Recover computes its "
                          "steps on the CPU, with copies of the weights and gradients",
                          stacklevel=4)
        self._units, self._seen = self._measure(device), {}
        w = torch.empty(self._dim)
        self._gather(self._params, w)
        if self._units is not None:
            w /= self._units.cpu()
        settings = dict(self._settings, batch=self._batch)
        problem = Problem(dim=self._dim, classes=self._classes, groups=self._classes,
                          forward=_FORWARD, backward=_BACKWARD, draw=_DRAW)
        self._steps = _Steps("recover", problem, w.numpy(), settings, device)
        self._spare = torch.empty_like(self._steps.w)
        self._seen = {flat.data_ptr(): self._views(flat) for flat in (
            self._spare, self._steps.w, self._steps.before, self._steps.gradient,
            self._steps.gradient_before)}

    def _measure(self, device):
        """What each weight is measured in, once the ratios of the step sizes are known; None: all
        in 1. A step moves a weight by the square of its unit, by the unit itself where it is
        scaled."""
        if all(ratio == 1 for ratio in self._ratios):
            return None
        power = 0.5 if self._settings.get("precondition", "none") == "none" else 1.0
        groups = [group for group in self.param_groups if group["params"]]
        return torch.cat([torch.full((p.numel(),), ratio ** power, device=device)
                          for ratio, group in zip(self._ratios, groups)
                          for p in group["params"] if p.requires_grad])

    def _views(self, flat):
        """Parts of a flat tensor as the parameters lie in memory."""
        if flat.data_ptr() in self._seen:
            return self._seen[flat.data_ptr()]
        first, views = 0, []
        for p, strides in zip(self._params, self._strides):
            views.append(flat[first:first + p.numel()].as_strided(p.shape, strides))
            first += p.numel()
        return views

    def _gather(self, tensors, flat):
        with torch.no_grad():
            torch._foreach_copy_(self._views(flat), tensors)

    def _put(self, flat):
        """The parameters become these weights. Autocast around a step keeps copies of the old ones.
        """
        torch.clear_autocast_cache()
        if self._units is not None:
            flat = torch.mul(flat, self._units, out=self._spare)
        with torch.no_grad():
            torch._foreach_copy_(self._params, self._views(flat))

    def _take_changes(self):
        """Weights that were changed elsewhere."""
        now, w = self._spare, self._steps.w
        self._gather(self._params, now)
        was = w if self._units is None else w * self._units
        if now.is_cuda:
            changed = torch.ne(now, was).any()
        elif torch.equal(now, was):
            return
        else:
            changed = None
        self._steps.replace(now if self._units is None else now / self._units, changed)

    def _move(self):
        """The parameters have gone to another device."""
        state = self._steps.save()
        self._start(self._batch)
        self._steps.load(state)

    # ---- what it knows ----

    @property
    def objective(self) -> float:
        """The running F."""
        return self.info["objective"]

    @property
    def info(self) -> dict[str, Any]:
        """A dictionary: step, loss, objective, log_u, a, effective sample size and more."""
        if not self._steps:
            raise RuntimeError("no step has been taken")
        return self._steps.info()

    def state_dict(self) -> dict[str, Any]:
        """With the library's state, as a tensor of bytes."""
        state = super().state_dict()
        if self._steps:
            state["libdro"] = dict(
                state=_bytes_tensor(self._steps.save()), batch=self._batch,
                loss_scale=self._loss_scale, strides=self._strides)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of a Recover with the same settings, over parameters of the same shapes, which become
        those of the state."""
        state = dict(state_dict)
        mine = state.pop("libdro", None)
        super().load_state_dict(state)
        self._steps = None
        if mine is None:
            return
        wrong = len(mine["strides"]) != len(self._params) or any(
            _extent(p.shape, strides) != p.numel()
            for p, strides in zip(self._params, mine["strides"]))
        if wrong:
            raise ValueError("this state is of another model: its parameters have other shapes")
        self._batch, self._loss_scale = mine["batch"], mine["loss_scale"]
        self._strides, self._ratios = mine["strides"], None
        self._rate()
        self._start(self._batch)
        self._steps.load(mine["state"].cpu().numpy().tobytes())
        self._put(self._steps.w)


class _Steps(Optimizer):
    """An optimiser of the library, whose losses and gradients are brought to it. w, before,
    gradient and gradient_before are its vectors, on `device`."""

    def __init__(self, name, problem, w, settings, device):
        super().__init__(name, problem, Guard(), w, settings, Context("cpu", 1))
        self.device = device
        lent = Lent(size=ctypes.sizeof(Lent))
        with self._use() as handle:
            if device.type == "cuda":
                lent.module, lent.stream = step_module(), self._stream()
                self._check(lib.dro_step_lend(handle, ctypes.byref(lent)))  # how much it needs
                self._memory = torch.zeros(lent.bytes, dtype=torch.uint8, device=device)
                lent.memory = self._memory.data_ptr()
            self._check(lib.dro_step_lend(handle, ctypes.byref(lent)))
        self.w, self.before, self.gradient, self.gradient_before = (
            address and self._tensor(address, len(w))
            for address in (lent.w, lent.before, lent.gradient, lent.gradient_before))

    def _tensor(self, address, dim):
        if self.device.type == "cuda":
            first = address - self._memory.data_ptr()
            return self._memory[first:first + 4 * dim].view(torch.float32)
        return torch.from_numpy(np.ctypeslib.as_array(
            ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (dim,)))

    def _stream(self):
        return torch.cuda.current_stream(self.device).cuda_stream \
            if self.device.type == "cuda" else None

    def begin(self):
        twice = ctypes.c_bool()
        with self._use() as handle:
            self._check(lib.dro_step_begin(handle, self._stream(), ctypes.byref(twice)))
        return twice.value

    def weigh(self, before, losses, labels):
        """Coefficients of the losses."""
        losses = losses.to(self.device, torch.float32).contiguous()
        coef = torch.empty_like(losses)
        batch = StepBatch(len(losses), losses.data_ptr(),
                          None if labels is None else labels.data_ptr(), coef.data_ptr())
        with self._use() as handle:
            self._check(lib.dro_step_weigh(handle, before, ctypes.byref(batch)))
        return coef

    def end(self):
        with self._use() as handle:
            self._check(lib.dro_step_end(handle))

    def cancel(self):
        with self._use() as handle:
            self._check(lib.dro_step_cancel(handle))

    def replace(self, w, changed):
        with self._use() as handle:
            self._check(lib.dro_step_replace(handle, w.data_ptr(), None if changed is None
                                             else changed.data_ptr(), self._stream()))


class _Buffers:
    """A module's buffers (running statistics), which move once in a step."""

    def __init__(self, module):
        self._slots = [(part, name) for part in module.modules() for name in part._buffers] \
            if module is not None else []
        self._kinds, self._kept = [], False

    def _now(self):
        return [part._buffers[name] for part, name in self._slots
                if part._buffers.get(name) is not None]

    def keep(self):
        """As they are now; those that are kept already stay."""
        if self._kept:
            return
        now = self._now()
        before = [buffer for buffers, _ in self._kinds for buffer in buffers]
        if len(now) != len(before) or {*map(id, now)} != {*map(id, before)}:  # moved to a device
            kinds = {}
            for buffer in now:
                kinds.setdefault((buffer.dtype, buffer.device), []).append(buffer)
            self._kinds = [(buffers, [torch.empty_like(b) for b in buffers])
                           for buffers in kinds.values()]
        for buffers, values in self._kinds:
            torch._foreach_copy_(values, buffers)
        self._kept = True

    def restore(self):
        """After the backward pass, which may read them. All of them: a CUDA graph does not say
        what it moves."""
        if self._kept:
            with torch.no_grad():
                for buffers, values in self._kinds:
                    torch._foreach_copy_(buffers, values)
        self._kept = False


class _Batch:
    """The closures of a batch, at one point or two."""

    def __init__(self, owner, pieces):
        self._pieces, self._first, self._buffers = pieces, True, owner._buffers
        self._count = None  # losses of this process
        devices = {p.device for p in owner._params if p.is_cuda}
        self._random = torch.get_rng_state(), {d: torch.cuda.get_rng_state(d) for d in devices}

    def _rewind(self):
        """Random numbers as at the beginning of the step."""
        if not self._first:
            torch.set_rng_state(self._random[0])
            for device, state in self._random[1].items():
                torch.cuda.set_rng_state(state, device)
        self._first = False

    def look(self, again=False):
        """Evaluates the closures; `again`: the buffers are to be restored."""
        self._rewind()
        if again:
            self._buffers.keep()
        with torch.set_grad_enabled(len(self._pieces) == 1):
            self._graph = [_checked(piece()) for piece in self._pieces]
        own = [part.detach().float() for part in self._graph]
        own = own[0] if len(own) == 1 else torch.cat(own)
        before, self._count = self._count, len(own)
        self.losses, self.mine = _gathered(own)
        if before not in (None, len(own)):
            raise ValueError(f"the closure gave {before} losses, then {len(own)} in the same step: "
                             "draw the batch before the step, not in the closure")

    def backward(self, coef):
        if len(self._pieces) == 1:
            self._backward(self._graph[0], coef)
            return
        first = 0
        self._rewind()
        self._buffers.keep()
        for piece in self._pieces:
            losses = piece()
            self._backward(losses, coef[first:first + len(losses)])
            first += len(losses)

    @staticmethod
    def _backward(losses, coef):
        if not losses.requires_grad:
            raise ValueError(_NOT_OF_THE_MODEL)
        losses.backward(coef.to(losses))


# Never called: the losses and gradients are brought.
_FORWARD, _BACKWARD, _DRAW = (kind(lambda *_: ERR_CALLBACK) for kind in (Forward, Backward, Draw))


def _device_of_steps(tensors):
    """Where the state is: with the tensors, if the library has steps for their device."""
    devices = {t.device for t in tensors}
    device = devices.pop() if len(devices) == 1 else torch.device("cpu")
    return device if device.type == "cuda" and step_module() else torch.device("cpu")


def _bytes_tensor(data):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _extent(shape, strides):
    """How many numbers a tensor spans in memory; 0: it has other axes."""
    if len(shape) != len(strides) or 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))


def _strides(p):
    """Those of p where it lies densely in memory, so that copies are of memory as it is."""
    dense = p.is_contiguous() or (p.ndim == 4 and
                                  p.is_contiguous(memory_format=torch.channels_last))
    return p.stride() if dense else torch.empty(p.shape, device="meta").stride()
