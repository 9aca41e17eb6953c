"""An optimiser of the library over a problem whose functions are Python's."""
import contextlib
import ctypes as c
import threading

from ._lib import (ERR_CALLBACK, OK, Info, interrupts, lib, pointer, raise_status, setting_name,
                   setting_text, text)


class Guard:
    """Runs callbacks. The first exception is kept, and ends the step."""

    error = None

    def stop(self, error):
        self.error = self.error or error

    def call(self, function):
        try:
            if self.error is not None:
                return ERR_CALLBACK
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
    """Created, set and started at w0. `guard` is the one its callbacks run in; `context` is closed
    with it."""

    _context = None

    def __init__(self, name, problem, guard, w0, settings, context):
        self._context, self._problem, self._guard = context, problem, guard
        self._lock = threading.Lock()
        try:
            self._handle = self._context.create(lib.dro_optimizer_create,
                                                lib.dro_optimizer_destroy, text(name),
                                                c.byref(problem))
            for key, value in settings.items():
                self._check(lib.dro_optimizer_set(self._handle, text(setting_name(key)),
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

    @contextlib.contextmanager
    def _use(self):
        """One thread at a time, in the process that made it, until it is closed."""
        if not self._lock.acquire(blocking=False):
            raise_status(-5, "this object is in use by another thread: use it from one thread at a "
                             "time, or make one for each")
        try:
            if not self._context:
                raise_status(-5, "this object is closed: make a new one")
            self._context.ready()
            yield self._handle
        finally:
            self._lock.release()

    def step(self, end=None):
        """Takes a step; False if the status is `end`, the planned steps' or the stream's."""
        with self._use() as handle:
            with interrupts(self._guard.stop):
                status = lib.dro_optimizer_step(handle)
            if status == end and self._guard.error is None:
                return False
            self._check(status)
            return True

    def skip(self):
        """Drops the batch that was refused."""
        with self._use() as handle:
            self._check(lib.dro_optimizer_skip(handle))

    def scale_eta(self, factor):
        with self._use() as handle:
            self._check(lib.dro_optimizer_scale_eta(handle, factor))

    def weights(self, out):
        """Copies the weights into a float32 array."""
        with self._use() as handle:
            self._check(lib.dro_optimizer_weights(handle, pointer(out)))

    def info(self):
        info = Info()
        with self._use() as handle:
            self._check(lib.dro_optimizer_info(handle, c.byref(info)))
        return info.as_dict()

    def save(self):
        with self._use() as handle:
            state = (c.c_ubyte * lib.dro_optimizer_state_size(handle))()
            self._check(lib.dro_optimizer_save(handle, state, len(state)))
        return bytes(state)

    def load(self, state):
        with self._use() as handle:
            self._check(lib.dro_optimizer_load(handle, state, len(state)))
