"""Tables and images in memory as data of the library."""
from __future__ import annotations

import ctypes as c
import os
import re
import warnings
from typing import Any

import numpy as np

from ._lib import ArraysStruct, lib, pointer, text
from ._table import (are_booleans, as_booleans, cells, column_names, column_values, columns,
                     columns_as_texts, csv_spec, is_category, is_table, name_text, write_csv)

_GROUPS_MOST = 1 << 24
_STEPS = 100  # of float32 between the extremes of a column, at least
_MANY = 20  # different integers, with fewer examples of each: numbers rather than classes
_FEW = 10  # different values: classes rather than numbers
_MISSING = re.compile(r"[+-]?nan|na|\??", re.IGNORECASE)  # as csv reads it


class NotNumbers(ValueError):
    """A table has text, categories or missing values."""


def is_sparse(X):
    return hasattr(X, "tocsr")


def as_numpy(values):
    """Arrays, lists, pandas, pyarrow, polars and torch objects as NumPy arrays; memory is shared
    where it can be."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if not values.is_floating_point() or values.element_size() >= 4:
            return values.numpy()
        return values.float().numpy()
    if is_table(values):
        found = [_numbers(name, column_values(column)) for name, column in columns(values)]
        return np.column_stack(found) if found else np.empty((len(values), 0), np.float32)
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(float), np.nan) if values.mask.any() else values.data
    return np.asarray(values)


def _features(X):
    """The names of a table's columns, where each has one of its own. Those that pandas gives to
    columns without names, 0, 1 and so on, are none."""
    names = column_names(X)
    if names is None or names == [*range(len(names))]:
        return None
    texts = [*map(str, names)]
    return texts if len(set(texts)) == len(texts) else None


def in_order(X, names):
    """Of a table the columns of these names, in their order. Anything else is as it was."""
    given = _features(X)
    if names is None and given is not None and {*column_names(X)} == {*range(len(given))}:
        names = [*map(str, range(len(given)))]  # the model's columns had no names
    if names is None or given is None or given == names:
        return X
    missing = [name for name in names if name not in given]
    if missing:
        raise ValueError(f"X has no column {missing[0]!r}, which the model was trained with")
    if hasattr(X, "iloc"):
        return X.iloc[:, [given.index(name) for name in names]]
    return X.select(names)


def same_columns(arrays, names):
    """Refuses Arrays of a table with other columns, or in another order."""
    if None not in (names, arrays.features) and arrays.features != names:
        raise ValueError(f"the columns of X are {arrays.features}, those of the model {names}: "
                         "give a table, which is put in order")


def _numbers(name, column):
    """A column of a table as float32; dates as days since 1970."""
    if column.dtype.kind in "mM":
        since = column - np.datetime64(0, "D") if column.dtype.kind == "M" else column
        return (since / np.timedelta64(1, "D")).astype(np.float32)  # NaT becomes NaN
    try:
        return _real(f"column {name!r}", column)
    except (ValueError, TypeError):
        raise NotNumbers(f"column {name!r} does not hold numbers, but the model was trained on "
                         "numbers only") from None


def _real(name, values):
    """As float32; what is too large becomes infinite."""
    if values.dtype.kind in "cmM":
        raise ValueError(f"{name} has type {values.dtype}: expected real numbers")
    try:
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(values, dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} does not hold numbers ({error}): encode text and categories "
                         "first") from None


def look_for_steps(X):
    """Warns of columns whose values float32 cannot tell apart, such as times in seconds."""
    if is_table(X):
        found = [(f"column {name!r}", column_values(column)) for name, column in columns(X)]
    elif isinstance(X, np.ndarray) and X.ndim == 2:
        found = [(f"column {k}", column) for k, column in enumerate(X.T)] if _is_wide(X) else []
    else:
        return
    for name, column in found:
        _look_for_steps(f"X: {name}", column)


def _is_wide(values):
    """Whether its type has more digits than float32."""
    return values.dtype.kind in "iuf" and values.dtype.itemsize >= 4 and values.dtype != np.float32


def _look_for_steps(name, values):
    if not _is_wide(values) or not len(values):
        return
    low, high = float(values.min()), float(values.max())
    most = max(-low, high)
    if low < high and most < np.finfo(np.float32).max:
        step = float(np.spacing(np.float32(most)))
        if high - low < _STEPS * step:
            warnings.warn(f"{name} goes from {low:.10g} to {high:.10g}, and numbers of this size "
                          f"have steps of {step:.3g} in float32: subtract a constant",
                          stacklevel=4)


def _whole(name, values, count):
    values = as_numpy(values)
    if values.shape != (count,):
        raise ValueError(f"{name} has shape {values.shape}: expected ({count},), one per example")
    return values


def _column(name, values):
    """A NumPy array of one axis."""
    values = as_numpy(values)
    if values.ndim != 1:
        raise ValueError(f"{name} has shape {values.shape}: expected one axis")
    return values


def shown(value):
    """A value as Python writes it, without NumPy's type."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def _finite(X, place):
    """Refuses numbers that are not finite in float32. place: says where a place in X's values
    is."""
    wrong = np.flatnonzero(~np.isfinite(X))
    if len(wrong):
        kind = NotNumbers if np.isnan(X[wrong]).all() else ValueError
        raise kind(f"X: {place(wrong[0])} has a value that is NaN, infinite or too large for "
                   "float32; fill in or drop such values")


def _sparse_rows(X):
    X = X.tocsr()
    if X.dtype.kind == "c":
        raise ValueError(f"X has type {X.dtype}: expected real numbers")
    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}: expected (examples, features)")
    try:
        X.check_format(full_check=True)  # sum_duplicates() would trust the arrays
    except ValueError as error:
        raise ValueError(f"X: a damaged sparse matrix: {error}") from None
    if not X.has_canonical_format or X.dtype != np.float32:
        with np.errstate(over="ignore"):
            X = X.astype(np.float32, copy=True)
        X.sum_duplicates()
    _finite(X.data, lambda k: f"row {np.searchsorted(X.indptr, k, side='right') - 1}")
    return X


def as_rows(X):
    """X as the library takes it: float32 rows, uint8 images, or CSR."""
    names = column_names(X)
    X = _sparse_rows(X) if is_sparse(X) else as_numpy(X)
    images = X.ndim == 4 and X.dtype == np.uint8
    if X.ndim != 2 and not images:
        raise ValueError(f"X has shape {X.shape} and type {X.dtype}: expected (examples, "
                         "features), or uint8 (examples, channels, height, width)")
    if 0 in X.shape:
        raise ValueError(f"X has shape {X.shape}: expected one example and one feature at least")
    if is_sparse(X) or images:
        return X if is_sparse(X) else np.ascontiguousarray(X)
    X = _real("X", X)
    _finite(X.ravel(), lambda k: f"row {k // X.shape[1]}, column " + (
        repr(names[k % X.shape[1]]) if names else str(k % X.shape[1])))
    return X


def _without_gaps(y):
    """Refuses missing classes and targets."""
    missing = y != y if y.dtype.kind in "fmMc" else np.zeros(len(y), bool)
    if y.dtype.kind == "O":  # None, NaN, pandas.NA
        missing = np.array([v is None or str(v) in ("nan", "<NA>", "NaT") and
                            not isinstance(v, str) for v in y], dtype=bool)
    if missing.any():
        raise ValueError(f"y: row {missing.argmax()} is missing ({missing.sum()} such rows): drop "
                         "the rows without a value, from X too")
    return y


def _has_floats(y):
    """Whether an array of objects holds numbers alone, and not only whole ones."""
    kinds = set(map(type, y.tolist()))
    return all(issubclass(kind, (int, float, np.integer, np.floating)) and kind is not bool
               for kind in kinds) and any(issubclass(kind, (float, np.floating)) for kind in kinds)


def class_texts(classes):
    """The classes as they are in a CSV file."""
    texts = cells(np.asarray(classes))
    wrong = [text for text in texts if _MISSING.fullmatch(text)]
    if wrong:
        raise ValueError(f"y has the class {wrong[0]!r}, which reads as a missing value where X "
                         "has text, categories or missing values: rename it")
    if len(set(texts)) < len(texts):
        raise ValueError("y has classes that differ only in the blanks around them: remove these")
    return texts


def _label_name(name):
    """The name of a column for y: its own, as of a pandas.Series, if it can be in a SPEC."""
    name = name_text(name) if isinstance(name, str) and "\\" not in name else ""
    return name or "label"


def _unused(name, names):
    """A name that is not among others. It becomes one of them."""
    while name in names:
        name += "_"
    names.append(name)
    return name


def _group_numbers(groups, count):
    """Integers from 0 on as int32."""
    groups = _whole("groups", groups, count)
    if groups.dtype.kind not in "iub" or groups.min() < 0 or groups.max() >= _GROUPS_MOST:
        raise ValueError(f"groups: expected integers from 0 on, below {_GROUPS_MOST}: "
                         "numpy.unique(groups, return_inverse=True)[1] numbers any values")
    return np.ascontiguousarray(groups, dtype=np.int32)


class Arrays:
    """Examples in memory: X (examples, features) as an array, a SciPy sparse matrix, a pandas,
    pyarrow or polars table or a torch tensor; or uint8 images (examples, channels, height, width).
    y: classes (any values) or, where y is of floats, a real-valued target.

    groups: one integer per example, from 0 on. weights: example weights, 0 or more. options: as
    behind the comma of a SPEC, for example "holdout=0.1". classes: all possible values of y, in the
    order of the class numbers; None: those found in y. Float32 arrays are not copied here; the
    library copies once. Columns of dates become days since 1970.

    A table with text, categories or missing values is `encoded`: the library reads it from a
    temporary CSV file. Text, booleans and categories become one-hot. Numbers, dates and missing
    values are treated as in any CSV file, and options may be those of csv ("drop=COLUMN")."""

    def __init__(self, X: Any, y: Any, groups: Any = None, weights: Any = None,
                 options: str = "", classes: Any = None) -> None:
        self.table, self.features = X if is_table(X) else None, _features(X)
        self.X = self._not_numbers = None
        try:
            self.X = as_rows(X)
            if classes is None:
                look_for_steps(X)
        except NotNumbers as error:
            if self.table is None:
                raise
            self._not_numbers = str(error)
        self.encoded = self.X is None or (self.table is not None and
                                          any(is_category(column) for _, column in columns(X)))
        count = len(X) if self.X is None else self.X.shape[0]
        self._name = getattr(y, "name", None)
        if isinstance(y, str):
            raise TypeError(f"y is {y!r}: expected the labels themselves, such as table[{y!r}], "
                            f"and X without them: table.drop(columns={y!r})")
        y = _without_gaps(_whole("y", y, count))
        if y.dtype.kind == "O" and _has_floats(y):
            y = y.astype(np.float64)
        if y.dtype.kind == "c":
            raise ValueError(f"y has type {y.dtype}: expected classes or real numbers")
        self.classes = self.labels = self.targets = None
        if y.dtype.kind == "f" and classes is None:
            self.targets = _real("y", y)
            _look_for_steps("y", y)
        else:
            self.classes, self.labels = self._number(y, classes)
        self.groups = groups
        if groups is not None:
            self.groups = _group_numbers(groups, count)
        self.weights = weights
        if weights is not None:
            self.weights = _real("weights", _whole("weights", weights, count))
        self.options = options
        self._lent = None

    @staticmethod
    def _number(y, classes):
        try:
            found, labels = np.unique(y, return_inverse=True)
            if classes is None:
                return found, np.ascontiguousarray(labels, dtype=np.int32)
            classes = _column("classes", classes)
            unknown = np.setdiff1d(found, classes)
        except TypeError:
            raise ValueError("y and classes hold values of different types: expected all numbers "
                             "or all text") from None
        if len(unknown):
            raise ValueError(f"y has {shown(unknown[0])}, which is none of the classes")
        order = np.argsort(classes)
        return classes, order[np.searchsorted(classes, y, sorter=order)].astype(np.int32)

    def lend(self, context, name, test=None):
        """Makes the arrays known to the context; returns the SPEC. They must outlive it."""
        mine, other = self._struct(), test._struct() if test is not None else None
        context.check(lib.dro_arrays_lend(context.handle, name.encode(), c.byref(mine),
                                          c.byref(other) if other else None))
        return f"arrays:{name}" + (f",{self.options}" if self.options else "")

    def write(self, folder, test=None, label=None, booleans=None):
        """Writes the table into a folder, as a CSV file with the labels, groups and weights;
        returns the SPEC. label: the name of that column, in place of those of X with this name.
        booleans: the columns in which 0 and 1 are False and True; None: those that have these."""
        both = [self] + ([test] if test is not None else [])
        if any(arrays.table is None for arrays in both):
            raise TypeError("X has text, categories or missing values: expected tables, as data "
                            "and as test")
        if any((arrays.groups is None) != (self.groups is None) for arrays in both):
            raise ValueError("groups: expected those of data and of test, or of neither")
        names = [name_text(name) for name in column_names(self.table)]
        class_texts([] if self.classes is None else self.classes)
        label = label or _unused(_label_name(self._name), names)
        group = self.groups if self.groups is None else _unused("groups", names)
        weighted = any(arrays.weights is not None for arrays in both)
        weight = _unused("weights", names) if weighted else None
        by_name = any(name.isdigit() for name in names)  # they are found before numbers
        categories = ":".join(names[k] if by_name else str(k + 1) for k, (_, column)
                              in enumerate(columns(self.table)) if is_category(column))
        if booleans is None:
            found = columns_as_texts(self.table)
            booleans = {name for name, values in found if are_booleans(values)}
        paths = [os.path.join(folder, name) for name in ("data", "test")]
        for arrays, path in zip(both, paths):
            arrays._write(path, label, group, weight, booleans)
        spec = csv_spec(paths[0], label=label, target="real" if self.classes is None else "class",
                        test=paths[1] if test is not None else None, group=group, weight=weight)
        options = f",{self.options}" if self.options else ""
        for option, ours in ((",drop=", group), (",categorical=", categories)):
            if ours and option in options:
                options = options.replace(option, f"{option}{ours}:")
            elif ours:
                options += option + ours
        return spec + options

    def _write(self, path, label, group, weight, booleans):
        y = self.targets if self.classes is None else self.classes[self.labels]
        weights = np.ones(len(y)) if self.weights is None else self.weights
        own = [(label, y), (group, self.groups), (weight, weights)]
        found = [(name, as_booleans(values) if name in booleans else values)
                 for name, values in columns_as_texts(self.table) if name != label]
        write_csv(path, found + [pair for pair in own if pair[0] is not None])

    def _struct(self):
        """Its memory stays as long as the object, which may be lent more than once, as training and
        as test data."""
        if self._lent is None:
            self._lent = self._make_struct()
        return self._lent

    def _make_struct(self):
        X = self.X
        if X is None:
            raise NotNumbers(self._not_numbers)
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
            s.classes, s.class_names = len(self.classes), _texts(map(str, self.classes))
        if self.features is not None:
            s.feature_names = _texts(self.features)
        s.groups, s.weights = pointer(self.groups), pointer(self.weights)
        return s


def _texts(values):
    values = [text(value) for value in values]
    return (c.c_char_p * len(values))(*values)


def as_target(y):
    """Numbers as a real-valued target, where y is of integers too."""
    y = as_numpy(y)
    return y.astype(np.float64) if y.dtype.kind in "iub" else y


def as_arrays(data, like=None, name="data"):
    """Arrays as they are, or made of (X, y), with the classes of others or their kind of target."""
    if isinstance(data, Arrays):
        if like is not None:
            same_columns(data, like.features)
        return data
    if not isinstance(data, tuple) or len(data) != 2:
        form = "a SPEC string, (X, y) or Arrays" if like is None else "(X, y) or Arrays"
        raise TypeError(f"{name} is a {type(data).__name__}: expected {form}")
    if like is not None:
        X = in_order(data[0], like.features)
        y = as_target(data[1]) if like.targets is not None else data[1]
        return Arrays(X, y, classes=like.classes)
    arrays = Arrays(*data)
    if arrays.targets is not None and _looks_like_classes(arrays.targets):
        warnings.warn("y holds floats, so it is a real-valued target; for classes give integers "
                      "or text: y.astype(int)", stacklevel=3)
    if arrays.classes is not None and arrays.classes.dtype.kind in "iu":
        found, count = len(arrays.classes), len(arrays.labels)
        if found > max(_MANY, count / _MANY):
            warnings.warn(f"y has {found} different integers in {count} rows, and each is a class; "
                          "for a real-valued target give floats: y.astype(float)", stacklevel=3)
    return arrays


def _looks_like_classes(y):
    """A few whole numbers."""
    if len(np.unique(y[:1000])) > _FEW:
        return False
    found = np.unique(y)
    return 1 < len(found) <= _FEW and (found == np.round(found)).all()
