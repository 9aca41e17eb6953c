"""An optimiser of the library over a problem whose functions are Python's."""
import ctypes as c

from ._lib import (ERR_CALLBACK, OK, Context, Info, lib, pointer, setting_name, setting_text)


class Guard:
    """Runs callbacks. The first exception is kept, and ends the step."""

    error = None

    def call(self, function):
        try:
            function()
            return OK
        except BaseException as error:
            self.error = self.error or error
            return ERR_CALLBACK

    def raise_first(self):
        error, self.error = self.error, None
        if error is not None:
            raise error


class Optimizer:
    """Created, set and started at w0. `guard` is the one its callbacks run in."""

    def __init__(self, name, problem, guard, w0, settings, backend="auto", threads=0):
        self._context, self._problem, self._guard = Context(backend, threads), problem, guard
        try:
            self._handle = self._context.create(lib.dro_optimizer_create,
                                                lib.dro_optimizer_destroy, name.encode(),
                                                c.byref(problem))
            for key, value in settings.items():
                self._check(lib.dro_optimizer_set(self._handle, setting_name(key).encode(),
                                                  setting_text(value)))
            self._check(lib.dro_optimizer_start(self._handle, pointer(w0)))
        except BaseException:
            self.close()
            raise

    def close(self):
        if self._context:
            self._context.__exit__()
            self._context = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    __del__ = close

    def _check(self, status):
        self._guard.raise_first()
        self._context.check(status)

    def step(self, end=None):
        """Takes a step; False if the status is `end`, the planned steps' or the stream's."""
        status = lib.dro_optimizer_step(self._handle)
        if status == end and self._guard.error is None:
            return False
        self._check(status)
        return True

    def skip(self):
        """Drops the batch that was refused."""
        self._check(lib.dro_optimizer_skip(self._handle))

    def scale_eta(self, factor):
        self._check(lib.dro_optimizer_scale_eta(self._handle, factor))

    def weights(self, out):
        """Copies the weights into a float32 array."""
        self._check(lib.dro_optimizer_weights(self._handle, pointer(out)))

    def address(self):
        """Where the weights are: what forward and backward get when they are asked about these."""
        return lib.dro_optimizer_w(self._handle)

    def info(self):
        info = Info()
        self._check(lib.dro_optimizer_info(self._handle, c.byref(info)))
        return info.as_dict()

    def save(self):
        state = (c.c_ubyte * lib.dro_optimizer_state_size(self._handle))()
        self._check(lib.dro_optimizer_save(self._handle, state, len(state)))
        return bytes(state)

    def load(self, state):
        self._check(lib.dro_optimizer_load(self._handle, state, len(state)))
