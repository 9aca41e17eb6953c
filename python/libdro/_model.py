"""A trained model: a weights file that a run has written."""
import json
import os
import struct

import numpy as np

from ._arrays import Arrays
from ._lib import TEST, TRAIN, Context, lib, pointer, raise_status

_HEADER_MOST = 100_000_000  # bytes, as the format has it


def read_header(path):
    """The header of a safetensors file, and where its data begins."""
    with open(path, "rb") as file:
        start = file.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else _HEADER_MOST
        text = file.read(size) if size < _HEADER_MOST else b""
    try:
        return json.loads(text.decode("utf-8")), 8 + size
    except ValueError:
        raise_status(-8, f"{path}: this is not a safetensors file")


def read_tensor(path, name):
    """A float32 tensor of a safetensors file."""
    header, begin = read_header(path)
    about = header[name]
    first, end = about["data_offsets"]
    with open(path, "rb") as file:
        file.seek(begin + first)
        return np.frombuffer(file.read(end - first), dtype="<f4").reshape(about["shape"])


def load(path):
    """The model of a weights file, or of the folder of a run."""
    path = os.fspath(path)
    return Model(os.path.join(path, "weights.safetensors") if os.path.isdir(path) else path)


class Model:
    """predict() and predict_proba() take an array or a SPEC string. `classes` are the values that
    predict() gives; None: a real-valued output."""

    def __init__(self, path, classes=None, backend="auto", threads=0):
        self.path, self._backend, self._threads = path, backend, threads
        self._kept = None  # the temporary folder that the file is in
        about = read_header(path)[0].get("__metadata__", {})
        if "dro.model" not in about:
            raise_status(-8, f"{path}: these weights were not written by a run of libdro")
        self.name = about["dro.model"]
        names = json.loads(about.get("dro.classes", "[]"))
        self.classes = _values(names) if classes is None else np.asarray(classes)
        if not names:
            self.classes = None

    def _run(self, X, split, probabilities):
        with Context(self._backend, self._threads) as ctx:
            spec, arrays = X, None
            if not isinstance(X, str):
                arrays = self._unlabelled(np.asarray(X))
                spec = arrays.lend(ctx, "data")
            handle = ctx.create(lib.dro_predictor_open, lib.dro_predictor_close,
                                os.fsencode(self.path), spec.encode())
            counts = lib.dro_predictor_data(handle).contents.examples
            if split is None:
                split = TEST if counts[TEST] > 0 and arrays is None else TRAIN
            count, outputs = counts[split], 1 if self.classes is None else len(self.classes)
            logits = np.empty((count, outputs), dtype=np.float32)
            status = lib.dro_predictor_logits(handle, split, 0, count, pointer(logits), None)
            if status == 0 and probabilities:
                shares = np.empty((count, outputs), dtype=np.float64)
                status = lib.dro_predictor_probabilities(handle, count, pointer(logits),
                                                         pointer(shares))
                logits = shares
            if status != 0:
                raise_status(status, lib.dro_predictor_error().decode(errors="replace"))
            return logits

    def _unlabelled(self, X):
        if self.classes is None:
            return Arrays(X, np.zeros(len(X), dtype=np.float32))
        return Arrays(X, np.zeros(len(X), dtype=np.int32))

    def logits(self, X, split=None):
        """(examples, classes). split of a SPEC: libdro.TRAIN, TEST or HOLDOUT; None: its test data
        where it has some."""
        return self._run(X, split, False)

    def predict(self, X, split=None):
        logits = self.logits(X, split)
        return logits[:, 0] if self.classes is None else self.classes[logits.argmax(axis=1)]

    def predict_proba(self, X, split=None):
        if self.classes is None:
            raise ValueError("this model has a real-valued output and no probabilities")
        return self._run(X, split, True)

    def __repr__(self):
        return f"Model({self.path!r}, {self.name!r})"


def _values(names):
    """Names that are all whole numbers are numbers."""
    try:
        return np.array([int(name) for name in names])
    except ValueError:
        return np.array(names)
