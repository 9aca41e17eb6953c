"""Training: settings become a run, a run becomes a Run."""
import ctypes as c
import json
import os
import tempfile

from ._arrays import as_arrays
from ._lib import (Context, Watch, WatchNote, WatchStep, lib, setting_name, setting_text,
                   settings_table)
from ._model import Model

_ENDS = ("not ended", "done", "patience", "time", "interrupted", "diverged")


class Run:
    """What a training run has left: `result` and `config` (dictionaries), `metrics` (one dictionary
    per evaluation), `notes` (lines the library said on the way), `ended` and `folder`."""

    def __init__(self, folder, ended="done", notes=(), classes=None):
        self.folder, self.ended, self.notes, self._classes = folder, ended, list(notes), classes
        self._kept = None  # the temporary folder, which goes when the Run does

    def _json(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return json.load(file)

    @property
    def result(self):
        return self._json("result.json")

    @property
    def config(self):
        return self._json("config.json")

    @property
    def metrics(self):
        with open(os.path.join(self.folder, "metrics.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    @property
    def weights(self):
        """The path of the weights file."""
        return os.path.join(self.folder, "weights.safetensors")

    @property
    def model(self):
        """The trained model, as libdro.load() gives it."""
        model = Model(self.weights, classes=self._classes)
        model._kept = self._kept
        return model

    def __repr__(self):
        return f"Run({self.folder!r}, ended={self.ended!r})"


class _Watcher:
    """Hears the library's callbacks. An exception in one, Ctrl-C too, ends the run in order: with a
    checkpoint. It is raised when the library has returned."""

    def __init__(self, progress):
        self.progress, self.notes, self.error = progress, [], None
        self.struct = Watch(step=WatchStep(self._step), note=WatchNote(self._note))

    def _step(self, _, seen):
        try:
            if self.progress:
                p = seen.contents
                self.progress({name: getattr(p, name) for name, _ in p._fields_})
        except BaseException as error:
            self.error = self.error or error
        return self.error is not None

    def _note(self, _, text):
        try:
            self.notes.append(text.decode(errors="replace"))
        except BaseException as error:
            self.error = self.error or error


def train(data=None, model=None, optimizer=None, out=None, *, test=None, resume=False,
          progress=None, backend="auto", threads=0, **settings):
    kept = None if out is not None else tempfile.TemporaryDirectory(prefix="libdro-")
    folder = kept.name if kept else os.fspath(out)
    settings = dict(settings, model=model, optimizer=optimizer)
    classes, spec, arrays = None, data, None
    watcher = _Watcher(progress)
    with Context(backend, threads) as ctx:
        handle = ctx.create(lib.dro_train_create, lib.dro_train_destroy)
        if data is not None and not isinstance(data, str):
            arrays = as_arrays(data)
            classes = arrays.classes
            test = as_arrays(test, classes) if test is not None else None
            spec = arrays.lend(ctx, "data", test)
        elif test is not None:
            raise TypeError("test goes with data in arrays; a SPEC names its test data itself")
        for name, value in dict(settings, data=spec).items():
            if value is not None:
                ctx.check(lib.dro_train_set(handle, setting_name(name).encode(),
                                            setting_text(value)))
        status = lib.dro_train_run(handle, os.fsencode(folder), resume, c.byref(watcher.struct))
        if watcher.error is not None:
            raise watcher.error
        ctx.check(status)
        run = Run(folder, _ENDS[lib.dro_train_ended(handle)], watcher.notes, classes)
    run._kept = kept
    return run


def _document():
    lines = ["Trains a model and returns a Run.", "",
             "data: a SPEC string (as of `dro train --data`), (X, y) or libdro.Arrays.",
             "test: (X, y) or Arrays to measure on, where data is in arrays.",
             "out: the run's folder; None: a temporary one, removed with the Run and its model.",
             "resume: continue from the folder's newest checkpoint.",
             "progress: called with a dictionary once per step. An exception that it raises, or",
             "    Ctrl-C, ends the run with a checkpoint and is then raised.",
             "backend, threads: the hardware; threads=0 takes all processors.", "",
             "settings (write lam or lambda_ for lambda; lists for lists; True for yes).",
             "In brackets: what it may be; the default."]
    for name, fallback, choices, meaning, _ in settings_table():
        about = "; ".join(text for text in (choices, fallback) if text)
        lines.append(f"    {name}: {meaning}" + (f" [{about}]" if about else ""))
    return "\n".join(lines) + "\n"


train.__doc__ = _document()
