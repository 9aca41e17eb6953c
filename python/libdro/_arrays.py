"""NumPy arrays as data of the library."""
import ctypes as c

import numpy as np

from ._lib import ArraysStruct, lib, pointer


def _whole(name, values, count):
    values = np.asarray(values)
    if values.shape != (count,):
        raise ValueError(f"{name} has shape {values.shape}: expected ({count},), one per example")
    return values


class Arrays:
    """Examples in memory: X (examples, features), or uint8 images (examples, channels, height,
    width); y classes (any values) or, where y is of floats, a real-valued target.

    groups: one integer per example, from 0 on. options: as behind the comma of a SPEC, for example
    "holdout=0.1". classes: the values of y in the order of their numbers, where it is known."""

    def __init__(self, X, y, groups=None, weights=None, options="", classes=None):
        X = np.asarray(X)
        self.image = X.ndim == 4 and X.dtype == np.uint8
        if X.ndim != 2 and not self.image:
            raise ValueError(f"X has shape {X.shape} and type {X.dtype}: expected "
                             "(examples, features), or uint8 (examples, channels, height, width)")
        with np.errstate(over="ignore"):
            self.X = np.ascontiguousarray(X, dtype=np.uint8 if self.image else np.float32)
        if not self.image and not np.isfinite(self.X).all():
            row = int(np.argmin(np.isfinite(self.X).all(axis=1)))
            raise ValueError(f"X: row {row} has a value that is NaN, infinite or too large for "
                             "float32; fill in or drop such values")
        y = _whole("y", y, len(X))
        self.classes = self.labels = self.targets = None
        if y.dtype.kind == "f" and classes is None:
            self.targets = np.ascontiguousarray(y, dtype=np.float32)
        else:
            self.classes, self.labels = self._number(y, classes)
        self.groups = groups
        if groups is not None:
            self.groups = np.ascontiguousarray(_whole("groups", groups, len(X)), dtype=np.int32)
        self.weights = weights
        if weights is not None:
            self.weights = np.ascontiguousarray(_whole("weights", weights, len(X)), np.float32)
        self.options = options

    @staticmethod
    def _number(y, classes):
        if classes is None:
            classes, labels = np.unique(y, return_inverse=True)
            return classes, np.ascontiguousarray(labels, dtype=np.int32)
        classes = np.asarray(classes)
        unknown = np.setdiff1d(y, classes)
        if len(unknown):
            raise ValueError(f"y has {unknown[0]!r}, which is none of the classes")
        order = np.argsort(classes)
        return classes, order[np.searchsorted(classes, y, sorter=order)].astype(np.int32)

    def lend(self, context, name, test=None):
        """Makes the arrays known to the context; returns the SPEC. They must outlive it."""
        mine, other = self._struct(), test._struct() if test is not None else None
        context.check(lib.dro_arrays_lend(context.handle, name.encode(), c.byref(mine),
                                          c.byref(other) if other else None))
        return f"arrays:{name}" + (f",{self.options}" if self.options else "")

    def _struct(self):
        s = ArraysStruct(size=c.sizeof(ArraysStruct), count=len(self.X))
        if self.image:
            s.pixels = pointer(self.X)
            s.channels, s.height, s.width = self.X.shape[1:]
        else:
            s.x, s.features = pointer(self.X), self.X.shape[1]
        s.labels, s.targets = pointer(self.labels), pointer(self.targets)
        s.classes = 0 if self.classes is None else len(self.classes)
        s.groups, s.weights = pointer(self.groups), pointer(self.weights)
        return s


def as_arrays(data, classes=None):
    """Arrays as they are, or made of (X, y)."""
    if isinstance(data, Arrays):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return Arrays(*data, classes=classes)
    raise TypeError(f"data is a {type(data).__name__}: expected a SPEC string, (X, y) or Arrays")
