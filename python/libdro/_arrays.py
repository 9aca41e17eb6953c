"""Tables and images in memory as data of the library."""
import ctypes as c

import numpy as np

from ._lib import ArraysStruct, lib, pointer


def is_sparse(X):
    return hasattr(X, "tocsr")


def as_numpy(values):
    """Arrays, lists, pandas, pyarrow and torch objects as NumPy arrays; memory is shared where it
    can be."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if not values.is_floating_point() or values.element_size() >= 4:
            return values.numpy()
        return values.float().numpy()
    if hasattr(values, "column_names") and hasattr(values, "columns"):  # pyarrow.Table
        return np.column_stack([_numbers(name, column.to_numpy()) for name, column in
                                zip(values.column_names, values.columns)])
    if hasattr(values, "dtypes") and hasattr(values, "columns"):  # pandas.DataFrame
        return np.column_stack([_numbers(name, values[name].to_numpy()) for name in values.columns])
    return np.asarray(values)


def _numbers(name, column):
    """A column of a table as float32."""
    try:
        return np.asarray(column, dtype=np.float32)
    except (ValueError, TypeError):
        raise ValueError(f"column {name!r} does not hold numbers: encode it "
                         "(pandas.get_dummies), or write the table to a CSV file and give "
                         'data="csv:FILE,label=COLUMN"') \
            from None


def _whole(name, values, count):
    values = as_numpy(values)
    if values.shape != (count,):
        raise ValueError(f"{name} has shape {values.shape}: expected ({count},), one per example")
    return values


def _finite(X, rows):
    """Refuses numbers that are not finite in float32. rows: the row of a place in X's values."""
    wrong = np.flatnonzero(~np.isfinite(X))
    if len(wrong):
        raise ValueError(f"X: row {rows(wrong[0])} has a value that is NaN, infinite or too "
                         "large for float32; fill in or drop such values")
    return X


def as_rows(X):
    """X as the library takes it: float32 rows, uint8 images, or CSR."""
    if is_sparse(X):
        X = X.tocsr()
        if not X.has_canonical_format or X.dtype != np.float32:
            X = X.astype(np.float32, copy=True)
            X.sum_duplicates()
        _finite(X.data, lambda k: np.searchsorted(X.indptr, k, side="right") - 1)
        return X
    X = as_numpy(X)
    if X.ndim == 4 and X.dtype == np.uint8:
        return np.ascontiguousarray(X)
    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape} and type {X.dtype}: expected (examples, "
                         "features), or uint8 (examples, channels, height, width)")
    with np.errstate(over="ignore"):
        X = np.ascontiguousarray(X, dtype=np.float32)
    return _finite(X, lambda k: k // X.shape[1])


class Arrays:
    """Examples in memory: X (examples, features) as an array, a SciPy sparse matrix, a pandas or
    pyarrow table or a torch tensor; or uint8 images (examples, channels, height, width). y: classes
    (any values) or, where y is of floats, a real-valued target.

    groups: one integer per example, from 0 on. weights: example weights, 0 or more. options: as
    behind the comma of a SPEC, for example "holdout=0.1". classes: the values of y in the order of
    their numbers, where it is known. Float32 arrays are not copied here; the library copies
    once."""

    def __init__(self, X, y, groups=None, weights=None, options="", classes=None):
        self.X = as_rows(X)
        count = self.X.shape[0]
        y = _whole("y", y, count)
        self.classes = self.labels = self.targets = None
        if y.dtype.kind == "f" and classes is None:
            self.targets = np.ascontiguousarray(y, dtype=np.float32)
        else:
            self.classes, self.labels = self._number(y, classes)
        self.groups = groups
        if groups is not None:
            self.groups = np.ascontiguousarray(_whole("groups", groups, count), dtype=np.int32)
        self.weights = weights
        if weights is not None:
            self.weights = np.ascontiguousarray(_whole("weights", weights, count), np.float32)
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
        X = self.X
        s = ArraysStruct(size=c.sizeof(ArraysStruct), count=X.shape[0])
        if is_sparse(X):
            self._csr = (np.ascontiguousarray(X.indptr, dtype=np.int64),
                         np.ascontiguousarray(X.indices, dtype=np.int32), X.data)
            s.starts, s.columns, s.values = map(pointer, self._csr)
            s.features = X.shape[1]
        elif X.ndim == 4:
            s.pixels = pointer(X)
            s.channels, s.height, s.width = X.shape[1:]
        else:
            s.x, s.features = pointer(X), X.shape[1]
        s.labels, s.targets = pointer(self.labels), pointer(self.targets)
        if self.classes is not None:
            names = [str(value).encode() for value in self.classes]
            self._names = (c.c_char_p * len(names))(*names)
            s.classes, s.class_names = len(names), self._names
        s.groups, s.weights = pointer(self.groups), pointer(self.weights)
        return s


def as_arrays(data, classes=None):
    """Arrays as they are, or made of (X, y)."""
    if isinstance(data, Arrays):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return Arrays(*data, classes=classes)
    raise TypeError(f"data is a {type(data).__name__}: expected a SPEC string, (X, y) or Arrays")
