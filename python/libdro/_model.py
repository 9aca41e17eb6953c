"""A trained model: a weights file that a run has written."""
from __future__ import annotations

import contextlib
import ctypes as c
import json
import os
import struct
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from ._arrays import Arrays, as_numpy, as_rows, as_target, class_texts, in_order, same_columns
from ._lib import (HOLDOUT, TEST, TRAIN, Context, Explanation, Temporary, lib, path_text,
                   pointer, raise_status, text)
from ._table import as_booleans, columns_as_texts, csv_spec, is_table, write_csv

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEADER_MOST = 100_000_000  # bytes, as the format has it


def read_header(path):
    """The header of a safetensors file, and where its data begins."""
    with open(path, "rb") as file:
        start = file.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else _HEADER_MOST
        found = file.read(size) if size < _HEADER_MOST else b""
    try:
        header = json.loads(found.decode("utf-8"))
    except ValueError:
        header = None
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
        raise_status(-8, f"{path}: this is not a safetensors file")
    return header, 8 + size


def read_tensor(path, name):
    """A float32 tensor of a safetensors file."""
    header, begin = read_header(path)
    about = header[name]
    first, end = about["data_offsets"]
    with open(path, "rb") as file:
        file.seek(begin + first)
        return np.frombuffer(file.read(end - first), dtype="<f4").reshape(about["shape"])


def load(path: str | os.PathLike[str]) -> Model:
    """The model of a weights file, or of the folder of a run."""
    path = os.fspath(path)
    return Model(os.path.join(path, "weights.safetensors") if os.path.isdir(path) else path)


class Model:
    """predict() and predict_proba() take a table or images, as train() does, or a SPEC string.
    `classes` are the values that predict() gives; None: a real-valued output. `features` are the
    columns' names of a model that was trained on a table of numbers: of other tables it takes the
    columns with these names, in any order. A model that was trained on a CSV file, or on a table
    with text, categories or missing values, takes tables as well: it finds the columns by name and
    encodes them as in training. A pickled model contains its weights."""

    def __init__(self, path: str, classes: Any = None, backend: str = "auto",
                 threads: int = 0) -> None:
        self.path, self._backend, self._threads = path, backend, threads
        self._kept: Any = None  # the temporary folder that the file is in
        about = read_header(path)[0].get("__metadata__", {})
        if "dro.model" not in about:
            raise_status(-8, f"{path}: these weights were not written by a run of libdro")
        self.name: str = about["dro.model"]
        self._names = _names(path, about.get("dro.classes", "[]"))
        self._label = _csv_label(about.get("dro.encoding", ""))
        self._booleans = _csv_booleans(about.get("dro.encoding", ""))
        self.features: list[str] | None = \
            _names(path, about["dro.features"]) if "dro.features" in about else None
        self.classes: NDArray[Any] | None = \
            _values(self._names) if classes is None else np.asarray(classes)
        if classes is not None and self._label is not None:
            place = {name: k for k, name in enumerate(class_texts(classes))}
            self.classes = self.classes[[place[name] for name in self._names]]
        if not self._names:
            self.classes = None

    @contextlib.contextmanager
    def _open(self, data, split):
        """A predictor of the data: context, handle, the split and how many examples that has."""
        with Context(self._backend, self._threads) as ctx:
            data = os.fspath(data) if isinstance(data, os.PathLike) else data
            file = Temporary() if self._label is not None and not isinstance(data, str) else None
            arrays = None if isinstance(data, str) or file else self._arrays(data)
            spec = arrays.lend(ctx, "data") if arrays else data
            if file:
                ctx.folder, spec = file.name, self._csv(data, file.name)
            handle = ctx.create(lib.dro_predictor_open, lib.dro_predictor_close,
                                path_text(self.path), text(spec))
            if split not in (None, TRAIN, TEST, HOLDOUT):
                raise ValueError(f"split is {split!r}: expected libdro.TRAIN, TEST or HOLDOUT")
            counts = lib.dro_predictor_data(handle).contents.examples
            if split is None:
                split = TEST if counts[TEST] > 0 and isinstance(data, str) else TRAIN
            yield ctx, handle, split, counts[split]

    def _csv(self, data, folder):
        """The SPEC of a table as a CSV file: the model was trained on one, and encodes its columns.
        """
        if isinstance(data, Arrays) and data.table is not None:
            return data.write(folder, label=self._label or "label", booleans=self._booleans)
        X, y = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
        if not is_table(X):
            raise TypeError("this model was trained on a CSV file, or on a table with text or "
                            "missing values: give a table with its columns, or a SPEC")
        if not len(X):
            raise ValueError("X has no rows")
        path, label = os.path.join(folder, "X"), self._label or "label"
        found = [(name, as_booleans(values) if name in self._booleans else values)
                 for name, values in columns_as_texts(X) if name != label]
        write_csv(path, found + ([] if y is None else [(label, as_numpy(y))]))
        return csv_spec(path, label=None if y is None else label)

    @staticmethod
    def _check(status):
        if status != 0:
            raise_status(status, lib.dro_predictor_error().decode(errors="replace"))

    def _arrays(self, data):
        """Arrays, (X, y), or X alone, whose labels nobody looks at."""
        if isinstance(data, Arrays):
            same_columns(data, self.features)
            return data
        if isinstance(data, tuple) and len(data) == 2:
            y = as_target(data[1]) if self.classes is None else data[1]
            return Arrays(in_order(data[0], self.features), y, classes=self.classes)
        X = as_rows(in_order(data, self.features))
        if self.classes is None:
            return Arrays(X, np.zeros(X.shape[0], dtype=np.float32))
        return Arrays(X, np.full(X.shape[0], self.classes[0]), classes=self.classes)

    def _run(self, X, split, probabilities):
        with self._open(X, split) as (_, handle, split, count):
            outputs = 1 if self.classes is None else len(self.classes)
            logits = np.empty((count, outputs), dtype=np.float32)
            self._check(lib.dro_predictor_logits(handle, split, 0, count, pointer(logits), None))
            if not probabilities:
                return logits
            shares = np.empty((count, outputs), dtype=np.float64)
            self._check(lib.dro_predictor_probabilities(handle, count, pointer(logits),
                                                        pointer(shares)))
            return shares

    def logits(self, X: Any, split: int | None = None) -> NDArray[Any]:
        """(examples, classes). split of a SPEC: libdro.TRAIN, TEST or HOLDOUT; None: its test data
        where it has some."""
        return self._run(X, split, False)

    def predict(self, X: Any, split: int | None = None) -> NDArray[Any]:
        """The class with the largest output, or the real-valued output, of every example."""
        logits = self.logits(X, split)
        return logits[:, 0] if self.classes is None else self.classes[logits.argmax(axis=1)]

    def predict_proba(self, X: Any, split: int | None = None) -> NDArray[Any]:
        """The classes' probabilities, (examples, classes), with the prior of the training data."""
        if self.classes is None:
            raise ValueError("this model has a real-valued output and no probabilities")
        return self._run(X, split, True)

    def explain(self, data: Any, objective: str, over: str = "example",
                split: int | None = None) -> dict[str, Any]:
        """What the model finds hard: the worst-case distribution of an objective over the examples.

        data: (X, y), Arrays or a SPEC. objective: "kl:LAMBDA", "kl-radius:RHO", "cvar:ALPHA",
        "chi2:RHO" or "mean". over: "example", "class" or "group".

        Returns a dictionary: value, mean_loss, effective (sample size, a share of 1), losses and
        weights of the examples (the weights sum to 1), order (from the heaviest on), class_weights,
        group_weights and more (dro_explanation in dro/train.h)."""
        if not isinstance(data, (str, os.PathLike, tuple, Arrays)):
            raise TypeError("explain() needs the labels too: expected (X, y), Arrays or a SPEC")
        with self._open(data, split) as (ctx, handle, split, _):
            found = c.POINTER(Explanation)()
            ctx.check(lib.dro_predictor_explain(handle, split, text(objective), text(over),
                                                c.byref(found)))
            return self._copied(found.contents)

    def _copied(self, e):
        sizes = dict.fromkeys(("class_shares", "class_weights"), e.classes)
        sizes.update(dict.fromkeys(("group_shares", "group_weights"), e.group_count))
        out = {}
        for name, kind in e._fields_:
            value = getattr(e, name)
            if not isinstance(value, (int, float)):
                size = sizes.get(name, e.examples)
                value = np.ctypeslib.as_array(value, (size,)).copy() if value and size else None
            out[name] = value
        return out

    def __getstate__(self):
        with open(self.path, "rb") as file:
            return dict(self.__dict__, _kept=None, path=None, _file=file.read())

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._kept = Temporary()
        self.path = os.path.join(self._kept.name, "weights.safetensors")
        with open(self.path, "wb") as file:
            file.write(self.__dict__.pop("_file"))

    def __repr__(self):
        return f"Model({self.path!r}, {self.name!r})"


def _csv_label(encoding):
    """The name of the label's column of a model that was trained on a CSV file; None: it was
    not."""
    lines = encoding.split("\n")
    if not lines[0].startswith("csv "):
        return None
    names = [unquote(line.partition("'")[2]) for line in lines if line.startswith("label ")]
    return names[0] if names else "label"


def _csv_booleans(encoding):
    """The names of the columns whose words are False and True."""
    words = [line.split(" ") for line in encoding.split("\n") if line.startswith("words ")]
    return {unquote(w[1][1:]) for w in words if sorted(w[-2:]) == ["'False", "'True"] and
            w[-3] == "2"}


def _names(path, found):
    try:
        names = json.loads(found)
    except (TypeError, ValueError):
        names = None
    if not isinstance(names, list):
        raise_status(-8, f"{path}: the names in this weights file are damaged")
    return names


def _values(names):
    """Names that are all whole numbers are numbers, False and True are what they say."""
    if set(names) <= {"False", "True"}:
        return np.array([name == "True" for name in names])
    try:
        if all(str(int(name)) == name for name in names):  # "01" is a text
            return np.array([int(name) for name in names])
    except ValueError:
        pass
    return np.array(names)
