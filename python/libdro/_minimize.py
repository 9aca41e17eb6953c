"""One's own loss and gradient in NumPy, minimised by the library's optimisers."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from ._lib import ERR_END, Backward, Context, Forward, Labels, Problem
from ._optimizer import Guard, Optimizer

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_MEMBERS_MOST = 1 << 24


class Minimum:
    """`w`, the weights (float32), and `info`, a dictionary of what the optimiser saw last."""

    def __init__(self, w: NDArray[np.float32], info: dict[str, Any]) -> None:
        self.w, self.info = w, info

    def __repr__(self):
        return f"Minimum(step={self.info['step']}, objective={self.info['objective']:.6g})"


def _exactly(name, value, shape):
    value = np.asarray(value)
    if value.shape != shape or value.dtype.kind not in "fiub":
        raise ValueError(f"{name} returned shape {value.shape} and type {value.dtype}: expected "
                         f"{shape} and real numbers")
    return value


class _Callbacks(Guard):
    """The functions as the library calls them."""

    def __init__(self, forward, backward, dim, members):
        self.functions, self.dim, self.members = (forward, backward), dim, members

    def _parts(self, w, parts, count):
        """w as an array, and (ids, first, end) of each part."""
        first, found = 0, []
        for k in range(count):
            size = parts[k].count
            found.append((np.ctypeslib.as_array(parts[k].ids, (size,)).copy(), first, first + size))
            first += size
        return np.ctypeslib.as_array(w, (self.dim,)).copy(), found

    def forward(self, _, w, parts, count, losses):
        def call():
            point, found = self._parts(w, parts, count)
            out = np.ctypeslib.as_array(losses, (found[-1][2],))
            for ids, first, end in found:
                out[first:end] = _exactly("forward", self.functions[0](point, ids), (len(ids),))
        return self.call(call)

    def backward(self, _, w, parts, count, coef, grads):
        def call():
            point, found = self._parts(w, parts, count)
            given = np.ctypeslib.as_array(coef, (found[-1][2],))
            for k, (ids, first, end) in enumerate(found):
                gradient = self.functions[1](point, ids, given[first:end].copy())
                np.ctypeslib.as_array(grads[k], (self.dim,))[:] = _exactly(
                    "backward", gradient, (self.dim,))
        return self.call(call)

    def labels(self, _, ids, count, classes, groups):
        def call():
            at = np.ctypeslib.as_array(ids, (count,))
            for out, values in zip((classes, groups), self.members):
                if out and values is not None:
                    np.ctypeslib.as_array(out, (count,))[:] = values[at]
        return self.call(call)


def _members(name, values, n):
    if values is None:
        return None
    values = np.asarray(values)
    if values.shape != (n,) or values.dtype.kind not in "iu" or values.min() < 0 or \
            values.max() >= _MEMBERS_MOST:
        raise ValueError(f"{name}: expected {n} integers from 0 on, below {_MEMBERS_MOST}")
    return values.astype(np.int32)


def _count(name, value):
    if not isinstance(value, (int, np.integer)) or not 1 <= value < 2**63:
        raise ValueError(f"{name} is {value!r}: expected a whole number above 0")
    return int(value)


def minimize(forward: Callable[[NDArray[Any], NDArray[Any]], ArrayLike],
             backward: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], ArrayLike],
             w0: ArrayLike, n: int, optimizer: str = "recover", *, steps: int = 1000,
             classes: ArrayLike | None = None, groups: ArrayLike | None = None,
             callback: Callable[[dict[str, Any]], object] | None = None, backend: str = "auto",
             threads: int = 0, **settings: Any) -> Minimum:
    """Minimises lambda log E exp(loss/lambda) + r(w) over n examples of one's own.

    forward(w, ids) gives the losses of these examples, (len(ids),); backward(w, ids, coef) the
    gradient sum_i coef[i] d loss_i / dw, (len(w0),). ids are numbers in 0 .. n-1.
    classes, groups: the class and the group of each example, for tilt="class" and tilt="group".
    callback: called with a dictionary after each step; True ends the run.
    settings: those of the optimiser (`dro list optimizers recover`); lam or lambda_ for lambda.

    Returns a Minimum. An exception in a function ends the run and is raised."""
    n, steps = _count("n", n), _count("steps", steps)
    for name, function in (("forward", forward), ("backward", backward)):
        if not callable(function):
            raise TypeError(f"{name} is a {type(function).__name__}: expected a function")
    w = np.array(w0, dtype=np.float32)
    if w.ndim != 1 or not w.size:
        raise ValueError(f"w0 has shape {w.shape}: expected one axis with one weight at least")
    members = _members("classes", classes, n), _members("groups", groups, n)
    calls = _Callbacks(forward, backward, w.size, members)
    problem = Problem(dim=w.size, n=n, forward=Forward(calls.forward),
                      backward=Backward(calls.backward), labels=Labels(calls.labels))
    problem.classes, problem.groups = (0 if m is None else int(m.max()) + 1 for m in members)
    with Optimizer(optimizer, problem, calls, w, dict(settings, steps=steps),
                   Context(backend, threads)) as opt:
        while opt.step(end=ERR_END):
            if callback and callback(opt.info()):
                break
        opt.weights(w)
        return Minimum(w, opt.info())
