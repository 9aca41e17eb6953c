"""The C library through ctypes: loading it, its structures, its errors as exceptions.

The library is the file libdro.so beside this one; the environment's DRO_LIBRARY names another."""
import contextlib
import ctypes as c
import functools
import os
import shutil
import signal
import tempfile
import threading
import weakref

import numpy as np

_here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libdro.so")
_file = os.environ.get("DRO_LIBRARY") or _here
try:
    lib = c.CDLL(_file)
except OSError as error:
    raise ImportError(f"libdro: the C library does not load: {error}. Install the wheel, or let "
                      "DRO_LIBRARY name the libdro.so of a build") from error

TRAIN, TEST, HOLDOUT = 0, 1, 2
OK, ERR_CALLBACK, ERR_END = 0, -9, -10
_THREADS_MOST = 4096


# ---- errors ----

class DroError(Exception):
    """The library refused or failed; the text says what would be right. `code` is dro_status."""

    code = 0


def _error(name, code, base, about):
    return type(name, (DroError, base), {"code": code, "__module__": "libdro", "__doc__": about})


ERRORS = {kind.code: kind for kind in (
    _error("ArgumentError", -1, ValueError, "An argument is wrong."),
    _error("UnknownNameError", -2, ValueError, "No setting, optimiser or format has this name."),
    _error("RangeError", -3, ValueError, "A value is outside its range."),
    _error("OutOfMemoryError", -4, MemoryError, "There is no memory."),
    _error("StateError", -5, RuntimeError, "An object is closed, in use or of another process."),
    _error("UnsupportedError", -6, NotImplementedError, "This combination does not exist."),
    _error("NumberError", -7, ArithmeticError, "A loss, gradient or weight is not finite."),
    _error("FormatError", -8, ValueError, "A file or a saved state is not what it should be."),
    _error("CallbackError", -9, RuntimeError, "A function of the caller has failed."),
    _error("EndError", -10, RuntimeError, "There are no more examples or steps."),
    _error("DataError", -11, ValueError, "The data is wrong; the text names the place."),
    _error("FileError", -12, OSError, "A file cannot be read or written."),
    _error("DeviceError", -13, RuntimeError, "The GPU or its driver has failed."),
)}


def raise_status(status, text):
    text = text or lib.dro_status_text(status).decode()
    raise ERRORS.get(status, DroError)(text)


# ---- structures of the headers ----

class Param(c.Structure):
    _fields_ = [("name", c.c_char_p), ("kind", c.c_int), ("fallback", c.c_char_p),
                ("low", c.c_double), ("high", c.c_double), ("choices", c.c_char_p),
                ("meaning", c.c_char_p)]


class Setting(c.Structure):
    _fields_ = [("param", Param), ("owner", c.c_int), ("common", c.c_bool)]


class ArraysStruct(c.Structure):
    _fields_ = [("size", c.c_size_t), ("count", c.c_int64), ("x", c.c_void_p),
                ("features", c.c_size_t), ("pixels", c.c_void_p), ("channels", c.c_int32),
                ("height", c.c_int32), ("width", c.c_int32), ("labels", c.c_void_p),
                ("classes", c.c_int32), ("targets", c.c_void_p), ("groups", c.c_void_p),
                ("weights", c.c_void_p), ("starts", c.c_void_p), ("columns", c.c_void_p),
                ("values", c.c_void_p), ("class_names", c.POINTER(c.c_char_p)),
                ("feature_names", c.POINTER(c.c_char_p))]


class DataInfo(c.Structure):
    _fields_ = [("format", c.c_char_p), ("kind", c.c_int), ("channels", c.c_int32),
                ("height", c.c_int32), ("width", c.c_int32), ("features", c.c_size_t),
                ("classes", c.c_int32), ("class_names", c.POINTER(c.c_char_p)),
                ("groups", c.c_int32), ("group_names", c.POINTER(c.c_char_p)),
                ("examples", c.c_int64 * 3)]  # the rest is not read


class Batch(c.Structure):
    _fields_ = [("position", c.c_uint64), ("count", c.c_size_t), ("ids", c.POINTER(c.c_int64)),
                ("classes", c.c_void_p), ("groups", c.c_void_p), ("handle", c.c_void_p)]


_float_p = c.POINTER(c.c_float)
Forward = c.CFUNCTYPE(c.c_int, c.c_void_p, _float_p, c.POINTER(Batch), c.c_int, _float_p)
Backward = c.CFUNCTYPE(c.c_int, c.c_void_p, _float_p, c.POINTER(Batch), c.c_int, _float_p,
                       c.POINTER(_float_p))
Draw = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_uint64, c.c_size_t, c.POINTER(Batch))
Labels = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(c.c_int64), c.c_size_t,
                     c.POINTER(c.c_int32), c.POINTER(c.c_int32))


class Problem(c.Structure):
    _fields_ = [("size", c.c_size_t), ("user", c.c_void_p), ("dim", c.c_size_t), ("n", c.c_int64),
                ("forward", Forward), ("backward", Backward), ("draw", Draw),
                ("gather", c.c_void_p), ("labels", Labels), ("accept", c.c_void_p),
                ("classes", c.c_int32), ("groups", c.c_int32), ("class_share", c.c_void_p),
                ("group_share", c.c_void_p), ("example_weights", c.c_void_p),
                ("param_blocks", c.c_void_p), ("param_block_count", c.c_size_t),
                ("max_batch", c.c_size_t), ("memory", c.c_int), ("library", c.c_void_p),
                ("reg_free_first", c.c_size_t), ("reg_free_count", c.c_size_t)]

    def __init__(self, **fields):
        super().__init__(size=c.sizeof(Problem), **fields)


class Lent(c.Structure):
    _fields_ = [("size", c.c_size_t), ("module", c.c_void_p), ("stream", c.c_void_p),
                ("memory", c.c_void_p), ("bytes", c.c_size_t), ("w", c.c_void_p),
                ("before", c.c_void_p), ("gradient", c.c_void_p),
                ("gradient_before", c.c_void_p)]


class StepBatch(c.Structure):
    _fields_ = [("count", c.c_size_t), ("losses", c.c_void_p), ("labels", c.c_void_p),
                ("coef", c.c_void_p)]


class Shape(c.Structure):
    _fields_ = [(name, c.c_int32) for name in ("channels", "height", "width", "outputs")]


class NetBatch(c.Structure):
    _fields_ = [("count", c.c_size_t), ("x", c.c_void_p), ("labels", c.c_void_p),
                ("targets", c.c_void_p), ("keys", c.c_void_p), ("images", c.c_void_p),
                ("ids", c.c_void_p), ("cuts", c.c_void_p), ("mixes", c.c_void_p)]


Fetch = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Batch), c.POINTER(NetBatch))


class NetSource(c.Structure):
    _fields_ = [("size", c.c_size_t), ("user", c.c_void_p), ("fetch", Fetch), ("draw", Draw),
                ("gather", c.c_void_p), ("labels", c.c_void_p), ("n", c.c_int64),
                ("classes", c.c_int32), ("groups", c.c_int32), ("class_share", c.c_void_p),
                ("group_share", c.c_void_p), ("images", c.c_bool), ("max_batch", c.c_size_t)]


class Explanation(c.Structure):
    _fields_ = [("value", c.c_double), ("mean_loss", c.c_double), ("lambda", c.c_double),
                ("threshold", c.c_double), ("divergence", c.c_double), ("effective", c.c_double),
                ("examples", c.c_int64), ("losses", c.POINTER(c.c_double)),
                ("weights", c.POINTER(c.c_double)), ("labels", c.POINTER(c.c_int32)),
                ("predictions", c.POINTER(c.c_int32)), ("outputs", c.POINTER(c.c_float)),
                ("groups", c.POINTER(c.c_int32)), ("order", c.POINTER(c.c_int64)),
                ("classes", c.c_int32), ("group_count", c.c_int32),
                ("class_shares", c.POINTER(c.c_double)), ("class_weights", c.POINTER(c.c_double)),
                ("group_shares", c.POINTER(c.c_double)), ("group_weights", c.POINTER(c.c_double))]


class Info(c.Structure):
    _fields_ = [("step", c.c_uint64), ("examples", c.c_uint64), ("evaluations", c.c_uint64),
                ("eta", c.c_double), ("lambda", c.c_double), ("a", c.c_double),
                ("loss", c.c_double), ("log_u", c.c_double), ("objective", c.c_double),
                ("regulariser", c.c_double), ("largest_weight", c.c_double),
                ("effective", c.c_double), ("caps", c.c_uint64), ("floors", c.c_uint64),
                ("fresh_starts", c.c_uint64), ("gradient_norm", c.c_double), ("gap", c.c_double),
                ("threshold", c.c_double), ("radius", c.c_double)]

    def as_dict(self):
        return {name: getattr(self, name) for name, _ in self._fields_}


class Progress(c.Structure):
    _fields_ = [("step", c.c_uint64), ("steps", c.c_uint64), ("epoch", c.c_double),
                ("epochs", c.c_double), ("seconds", c.c_double), ("left", c.c_double),
                ("examples_per_s", c.c_double), ("loss", c.c_double), ("objective", c.c_double),
                ("effective", c.c_double), ("evaluating", c.c_char_p),
                ("evaluated", c.c_double), ("lambda", c.c_double), ("threshold", c.c_double),
                ("radius", c.c_double)]


WatchStep = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(Progress))
WatchNote = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)


class Watch(c.Structure):
    _fields_ = [("size", c.c_size_t), ("user", c.c_void_p), ("step", WatchStep),
                ("evaluated", c.c_void_p), ("note", WatchNote)]

    def __init__(self, **fields):
        super().__init__(size=c.sizeof(Watch), **fields)


# ---- functions: what each takes; those that give no status are named below ----

_p, _s, _n, _pp = c.c_void_p, c.c_char_p, c.c_size_t, c.POINTER(c.c_void_p)
_ARGUMENTS = {
    "dro_context_create": [_s, c.c_int, _pp],
    "dro_context_destroy": [_p],
    "dro_context_error": [_p],
    "dro_backend_missing": [_s],
    "dro_backend_name": [c.c_int],
    "dro_status_text": [c.c_int],
    "dro_version": [],
    "dro_setting_at": [c.c_int, c.POINTER(Setting)],
    "dro_setting_name": [_s],
    "dro_arrays_lend": [_p, _s, c.POINTER(ArraysStruct), c.POINTER(ArraysStruct)],
    "dro_train_create": [_p, _pp],
    "dro_train_destroy": [_p],
    "dro_train_set": [_p, _s, _s],
    "dro_train_run": [_p, _s, c.c_bool, c.POINTER(Watch)],
    "dro_train_result": [_p],
    "dro_train_config": [_p],
    "dro_train_ended": [_p],
    "dro_predictor_open": [_p, _s, _s, _pp],
    "dro_predictor_close": [_p],
    "dro_predictor_error": [],
    "dro_predictor_data": [_p],
    "dro_predictor_classes": [_p],
    "dro_predictor_class_name": [_p, c.c_int32],
    "dro_predictor_logits": [_p, c.c_int, c.c_int64, _n, _p, _p],
    "dro_predictor_probabilities": [_p, _n, _p, _p],
    "dro_optimizer_create": [_p, _s, c.POINTER(Problem), _pp],
    "dro_predictor_explain": [_p, c.c_int, _s, _s, c.POINTER(c.POINTER(Explanation))],
    "dro_report_create": [_p, _pp],
    "dro_report_destroy": [_p],
    "dro_report_add": [_p, _s],
    "dro_report_html": [_p, _s],
    "dro_net_model": [_p, _s, c.POINTER(Shape), _pp],
    "dro_net_destroy": [_p],
    "dro_net_set": [_p, _s, _s],
    "dro_net_ready": [_p],
    "dro_net_init": [_p, c.c_uint64],
    "dro_net_dim": [_p],
    "dro_net_weights": [_p],
    "dro_net_problem": [_p, c.POINTER(NetSource), c.POINTER(Problem)],
    "dro_optimizer_destroy": [_p],
    "dro_optimizer_set": [_p, _s, _s],
    "dro_optimizer_start": [_p, _p],
    "dro_optimizer_step": [_p],
    "dro_optimizer_skip": [_p],
    "dro_optimizer_scale_eta": [_p, c.c_double],
    "dro_optimizer_weights": [_p, _p],
    "dro_optimizer_state_size": [_p],
    "dro_optimizer_save": [_p, _p, _n],
    "dro_optimizer_load": [_p, _s, _n],
    "dro_optimizer_info": [_p, c.POINTER(Info)],
    "dro_step_lend": [_p, c.POINTER(Lent)],
    "dro_step_begin": [_p, _p, c.POINTER(c.c_bool)],
    "dro_step_weigh": [_p, c.c_bool, c.POINTER(StepBatch)],
    "dro_step_end": [_p],
    "dro_step_cancel": [_p],
    "dro_step_replace": [_p, _p, _p, _p],
}
_TEXTS = ("dro_version", "dro_context_error", "dro_backend_missing", "dro_backend_name",
          "dro_status_text", "dro_setting_name",
          "dro_train_result", "dro_train_config", "dro_predictor_error",
          "dro_predictor_class_name")
for _name, _types in _ARGUMENTS.items():
    getattr(lib, _name).argtypes = _types
    getattr(lib, _name).restype = c.c_char_p if _name in _TEXTS else c.c_int
for _name in ("dro_context_destroy", "dro_train_destroy", "dro_predictor_close",
              "dro_optimizer_destroy", "dro_net_destroy", "dro_report_destroy"):
    getattr(lib, _name).restype = None
lib.dro_predictor_data.restype = c.POINTER(DataInfo)
lib.dro_optimizer_state_size.restype = lib.dro_net_dim.restype = c.c_size_t
lib.dro_net_weights.restype = c.POINTER(c.c_float)


# ---- what all doors use ----

def text(value):
    """A string as the library takes it."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is a {type(value).__name__}: expected text")
    return _without_null(value, value.encode("utf-8", "surrogateescape"))


def path_text(value):
    """A path as the library takes it."""
    return _without_null(value, os.fsencode(value))


def _without_null(value, encoded):
    if b"\0" in encoded:
        raise ValueError(f"{value!r} contains a null character: remove it")
    return encoded


def _backends():
    index = 0
    while (name := lib.dro_backend_name(index)) is not None:
        yield name.decode()
        index += 1


@functools.lru_cache(None)
def step_module():
    """The steps of a GPU, libdro_step_cuda.so beside the library: the address of its table; None
    where it is not or cannot be loaded."""
    file = os.path.join(os.path.dirname(os.path.abspath(_file)), "libdro_step_cuda.so")
    try:
        return c.addressof(c.c_char.in_dll(c.CDLL(file), "dro_step_cuda"))
    except OSError:
        return None


class Temporary:
    """A folder that is removed with the last object that holds this one, in the process that made
    it: a fork has copies of the objects, not of the folder."""

    def __init__(self):
        self.name = tempfile.mkdtemp(prefix="libdro-")
        weakref.finalize(self, self._remove, self.name, os.getpid())

    @staticmethod
    def _remove(name, process):
        if process == os.getpid():
            shutil.rmtree(name, ignore_errors=True)


class Context:
    """A context of the library, for one call or one object; `with` destroys it and what it
    holds."""

    def __init__(self, backend="auto", threads=0):
        if not isinstance(backend, str):
            raise TypeError(f"backend is {backend!r}: expected a name, such as \"auto\"")
        if not isinstance(threads, (int, np.integer)) or not 0 <= threads <= _THREADS_MOST:
            raise_status(-3, f"threads={threads}: expected a whole number from 0 (all processors) "
                             f"to {_THREADS_MOST}")
        self.handle, self._owned, self._process = c.c_void_p(), [], os.getpid()
        self.folder = None  # of temporary files, which messages do not name
        status = lib.dro_context_create(text(backend), int(threads), c.byref(self.handle))
        if status != OK:
            missing = lib.dro_backend_missing(text(backend))
            raise_status(status, missing.decode() if missing else
                         f"this build has no backend {backend!r}: expected auto or one of "
                         + ", ".join(_backends()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.handle and self._process == os.getpid():  # a fork has the memory, not the threads
            for destroy, handle in reversed(self._owned):
                destroy(handle)
            lib.dro_context_destroy(self.handle)
        self.handle, self._owned = None, []

    def ready(self):
        """Raises an exception if the context cannot be used."""
        if not self.handle:
            raise_status(-5, "this object is closed: make a new one")
        if self._process != os.getpid():
            raise_status(-5, "this object was made before a fork, and its threads are in the "
                             "parent: make it in the process that uses it")

    def check(self, status):
        if status != OK:
            message = lib.dro_context_error(self.handle).decode(errors="replace")
            if self.folder:
                message = message.replace(os.path.join(self.folder, ""), "")
            raise_status(status, message)

    def create(self, function, destroy, *arguments):
        """Calls function(context, *arguments, &handle); the handle goes before the context does."""
        handle = c.c_void_p()
        self.check(function(self.handle, *arguments, c.byref(handle)))
        self._owned.append((destroy, handle))
        return handle


@contextlib.contextmanager
def interrupts(stop):
    """While the library calls back, Ctrl-C calls stop(KeyboardInterrupt()) instead of raising an
    exception: ctypes would drop one that is raised on the way into a callback."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: stop(KeyboardInterrupt()))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pointer(array):
    return None if array is None else array.ctypes.data


def settings_table():
    """All settings as the library describes them: (name, default, choices, meaning, owner)."""
    setting, index = Setting(), 0
    while lib.dro_setting_at(index, c.byref(setting)) == OK:
        p = setting.param
        yield (p.name.decode(), (p.fallback or b"").decode(), (p.choices or b"").decode(),
               (p.meaning or b"").decode(), setting.owner)
        index += 1


def setting_name(name):
    """lambda is a word of Python's: lam and lambda_ are the same setting."""
    return "lambda" if name in ("lam", "lambda_") else name


def setting_text(value):
    if hasattr(value, "detach"):  # a torch tensor
        value = value.tolist()
    if isinstance(value, (bool, np.bool_)):
        return b"yes" if value else b"no"
    if isinstance(value, (list, tuple, np.ndarray)):
        return b",".join(map(setting_text, value))
    if isinstance(value, (float, np.floating)):
        return repr(float(value)).encode()
    return text(os.fspath(value) if isinstance(value, os.PathLike) else str(value))
