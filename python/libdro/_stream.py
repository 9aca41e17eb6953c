"""A network of the library that learns from rows as they come."""
import ctypes as c

import numpy as np

from ._lib import Batch, Context, Draw, Fetch, NetBatch, NetSource, Problem, Shape, lib, pointer
from ._optimizer import Guard, Optimizer


class Stream(Guard):
    """A model ("linear", "mlp:128,64") and an optimiser of the library. learn() takes one step per
    batch; the state of the optimiser carries over from call to call."""

    _context = None

    def __init__(self, model, shape, settings, w=None, seed=0, threads=1):
        features, outputs, real, groups = shape
        self._real, self._outputs = real, outputs
        self._context = Context("cpu", threads)
        try:
            self._net = self._context.create(
                lib.dro_net_model, lib.dro_net_destroy, model.encode(),
                c.byref(Shape(features, 1, 1, outputs)))
            if real:
                self._context.check(lib.dro_net_set(self._net, b"loss", b"squared"))
            self._context.check(lib.dro_net_ready(self._net))
            self._context.check(lib.dro_net_init(self._net, seed))
            self.dim = lib.dro_net_dim(self._net)
            if w is None:
                w = np.ctypeslib.as_array(lib.dro_net_weights(self._net), (self.dim,)).copy()
            self._draw, self._fetch = Draw(self._drawn), Fetch(self._fetched)
            source = NetSource(size=c.sizeof(NetSource), draw=self._draw, fetch=self._fetch, n=0,
                               classes=0 if real else outputs, groups=groups)
            problem = Problem()
            self._context.check(lib.dro_net_problem(self._net, c.byref(source), c.byref(problem)))
            name = settings.pop("optimizer")
            self.optimizer = Optimizer(name, problem, self, w, settings, context=self._context)
        except BaseException:
            self.close()
            raise

    def close(self):
        if self._context:
            self._context.__exit__()
            self._context = None

    __del__ = close

    def learn(self, X, y, groups=None):
        """One step. X (n, features) float32; y (n) int32, or float32 where the target is real."""
        self._batch = X, y, groups
        self.optimizer.step()

    def weights(self):
        w = np.empty(self.dim, dtype=np.float32)
        self.optimizer.weights(w)
        return w

    def _drawn(self, _, position, count, batch):
        def call():
            X, y, groups = self._batch
            self._ids = np.arange(position, position + len(X), dtype=np.int64)
            batch[0] = Batch(position, len(X), self._ids.ctypes.data_as(c.POINTER(c.c_int64)),
                             None if self._real else pointer(y), pointer(groups), None)
        return self.call(call)

    def _fetched(self, _, batch, out):
        def call():
            X, y, _ = self._batch
            out[0] = NetBatch(count=len(X), x=pointer(X), labels=None if self._real else pointer(y),
                              targets=pointer(y) if self._real else None)
        return self.call(call)
