"""The little of libdro's C interface that the comparisons need: data sets as NumPy arrays.

The library is the one that lies beside the program $DRO."""
import ctypes as c
import os

import numpy as np

TRAIN, TEST, HOLDOUT = 0, 1, 2


class Info(c.Structure):
    _fields_ = [("format", c.c_char_p), ("kind", c.c_int), ("channels", c.c_int32), ("height", c.c_int32),
                ("width", c.c_int32), ("features", c.c_size_t), ("classes", c.c_int32),
                ("class_names", c.POINTER(c.c_char_p)), ("groups", c.c_int32),
                ("group_names", c.POINTER(c.c_char_p)), ("examples", c.c_int64 * 3),
                ("counts", c.POINTER(c.c_int64) * 3), ("bytes_read", c.c_uint64), ("memory", c.c_uint64),
                ("skipped", c.c_int32)]


class Examples(c.Structure):
    _fields_ = [("count", c.c_int64), ("labels", c.POINTER(c.c_int32)), ("targets", c.POINTER(c.c_float)),
                ("groups", c.POINTER(c.c_int32)), ("records", c.POINTER(c.c_int64)),
                ("pixels", c.POINTER(c.c_uint8)), ("x", c.POINTER(c.c_float)),
                ("starts", c.POINTER(c.c_int64)), ("columns", c.POINTER(c.c_int32)),
                ("values", c.POINTER(c.c_float)), ("paths", c.POINTER(c.c_char_p))]


class LoaderOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("batch", c.c_size_t), ("threads", c.c_int), ("seed", c.c_uint64),
                ("shuffle", c.c_bool), ("augment", c.c_bool), ("cuts", c.c_bool), ("size", c.c_int32),
                ("ahead", c.c_int32), ("sent", c.c_bool), ("ways", c.c_uint), ("first", c.c_size_t),
                ("end", c.c_size_t), ("operations", c.c_int32), ("magnitude", c.c_int32), ("cutout", c.c_int32),
                ("mixup", c.c_double), ("cutmix", c.c_double)]


class Loaded(c.Structure):
    _fields_ = [("position", c.c_uint64), ("count", c.c_size_t), ("ids", c.POINTER(c.c_int64)),
                ("labels", c.POINTER(c.c_int32)), ("groups", c.POINTER(c.c_int32)),
                ("pixels", c.POINTER(c.c_float)), ("cuts", c.c_void_p), ("device_pixels", c.c_void_p),
                ("mixes", c.c_void_p)]


lib = c.CDLL(os.path.join(os.path.dirname(os.path.abspath(os.environ["DRO"])), "libdro.so"))
lib.dro_context_error.restype = c.c_char_p
lib.dro_context_error.argtypes = [c.c_void_p]
lib.dro_data_close.argtypes = [c.c_void_p]
lib.dro_loader_destroy.argtypes = [c.c_void_p]
lib.dro_loader_draw.argtypes = [c.c_void_p, c.c_uint64, c.POINTER(Loaded)]
context = c.c_void_p()
assert lib.dro_context_create(b"ref", 2, c.byref(context)) == 0


def check(status):
    if status != 0:
        raise ValueError(lib.dro_context_error(context).decode())


class Data:
    """`with Data(spec) as d`: d.info, and d.split(TRAIN) with arrays as attributes (None: not there)."""

    def __init__(self, spec):
        self.handle, self.info = c.c_void_p(), Info()
        check(lib.dro_data_open(context, spec.encode(), c.byref(self.handle)))
        check(lib.dro_data_info_get(self.handle, c.byref(self.info)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        lib.dro_data_close(self.handle)

    def classes(self):
        return [self.info.class_names[k].decode() for k in range(self.info.classes)]

    def split(self, which):
        e, i = Examples(), self.info
        check(lib.dro_data_examples(self.handle, which, c.byref(e)))
        n = e.count
        shapes = {"labels": (n,), "targets": (n,), "groups": (n,), "records": (n,), "starts": (n + 1,),
                  "pixels": (n, i.channels, i.height, i.width), "x": (n, i.features)}
        if e.starts:
            shapes["columns"] = shapes["values"] = (e.starts[n],)
        for name, shape in shapes.items():
            pointer = getattr(e, name)
            array = np.ctypeslib.as_array(pointer, shape).copy() if pointer and 0 not in shape else None
            setattr(e, name + "_", array)
        return e

    def evaluated(self, size, count):
        """The first images of training as an evaluation sees them: (count, 3, size, size), normalised."""
        lib.dro_loader_options_default.restype = LoaderOptions
        o, loader, batch = lib.dro_loader_options_default(), c.c_void_p(), Loaded()
        o.batch, o.threads, o.shuffle, o.augment, o.size = count, 2, False, False, size
        check(lib.dro_loader_create(self.handle, TRAIN, c.byref(o), c.byref(loader)))
        check(lib.dro_loader_draw(loader, 0, c.byref(batch)))
        out = np.ctypeslib.as_array(batch.pixels, (count, 3, size, size)).copy()
        lib.dro_loader_destroy(loader)
        return out
