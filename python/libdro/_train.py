"""Training: settings become a run, a run becomes a Run."""
from __future__ import annotations

import contextlib
import ctypes as c
import html
import json
import os
import shutil
import sys
import tempfile
from typing import Any, Callable

from ._arrays import as_arrays
from ._lib import (Context, Temporary, Watch, WatchNote, WatchStep, interrupts, lib, path_text,
                   raise_status, setting_name, setting_text, settings_table)
from ._model import Model

_ENDS = ("not ended", "done", "patience", "time", "interrupted", "diverged")


class Report:
    """A page about runs: `html` is its text; save() writes it; a notebook shows it."""

    def __init__(self, text: str) -> None:
        self.html = text

    def save(self, path: str | os.PathLike[str]) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def _repr_html_(self) -> str:
        return ('<iframe style="width: 100%; height: 40em; border: 0" '
                f'srcdoc="{html.escape(self.html)}"></iframe>')


class Run:
    """The outcome of a training run: `result` and `config` (dictionaries), `metrics` (a row per
    evaluation), `notes` (the library's remarks during the run), `ended` and `folder`. close()
    removes a temporary folder; `with train(...) as run:` closes it."""

    def __init__(self, folder: str, ended: str = "done", notes: Any = (),
                 classes: Any = None) -> None:
        self.folder, self.ended, self._classes = folder, ended, classes
        self.notes: list[str] = list(notes)
        self._kept: Any = None  # the temporary folder, which goes when the Run does
        self._closed = False

    def close(self) -> None:
        """Removes the folder if it is temporary; a model that was taken keeps it."""
        self._closed, self._kept = True, None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _path(self, name):
        if self._closed:
            raise_status(-5, "this run is closed: take what you need before close(), or give "
                             "train() a folder with out=")
        return os.path.join(self.folder, name)

    def _json(self, name):
        with open(self._path(name), encoding="utf-8") as file:
            return json.load(file)

    @property
    def result(self) -> dict[str, Any]:
        """The final figures (result.json)."""
        return self._json("result.json")

    @property
    def config(self) -> dict[str, Any]:
        """All settings (config.json)."""
        return self._json("config.json")

    @property
    def metrics(self) -> Any:
        """A pandas DataFrame with columns like "test.accuracy"; without pandas a list of
        dictionaries."""
        with open(self._path("metrics.jsonl"), encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        try:
            import pandas
        except ImportError:
            return rows
        return pandas.json_normalize(rows)

    @property
    def weights(self) -> str:
        """The path of the weights file."""
        return self._path("weights.safetensors")

    @property
    def model(self) -> Model:
        """The trained model, as libdro.load() gives it."""
        model = Model(self.weights, classes=self._classes)
        model._kept = self._kept
        return model

    def report(self) -> Report:
        """A page with the figures and plots of the run; the last expression of a notebook's cell
        shows it."""
        with Context("ref", 1) as ctx, tempfile.TemporaryDirectory(prefix="libdro-") as folder:
            handle = ctx.create(lib.dro_report_create, lib.dro_report_destroy)
            ctx.check(lib.dro_report_add(handle, path_text(self._path(""))))
            page = os.path.join(folder, "report.html")
            ctx.check(lib.dro_report_html(handle, path_text(page)))
            with open(page, encoding="utf-8") as file:
                return Report(file.read())

    def __getstate__(self):
        if self._kept:
            raise TypeError("the folder of this run is temporary and cannot be pickled: pickle "
                            "run.model, or give train() a folder with out=")
        return self.__dict__

    def __repr__(self):
        return "\n    ".join([f"Run({self.folder!r}, ended={self.ended!r})"] + self.notes)


class _Bar:
    """Progress with tqdm, where it is installed: on a terminal or in a notebook."""

    def __init__(self):
        try:
            from tqdm.auto import tqdm
        except ImportError:
            self._bar = None
            return
        quiet = False if "ipykernel" in sys.modules else None  # None: unless stderr is a terminal
        self._bar = tqdm(unit="step", delay=1, leave=False, disable=quiet)

    def __call__(self, progress):
        bar = self._bar
        if bar is None or bar.disable:
            return
        bar.total = progress["steps"] or None
        bar.update(progress["step"] - bar.n)
        bar.set_postfix(loss=f"{progress['loss']:.4g}", F=f"{progress['objective']:.4g}",
                        refresh=False)

    def close(self):
        if self._bar is not None:
            self._bar.close()


class _Watcher:
    """Receives the library's callbacks. An exception in one, Ctrl-C too, ends the run with a
    checkpoint. It is raised when the library has returned."""

    def __init__(self, progress):
        self.progress, self.notes, self.error = progress, [], None
        self.struct = Watch(step=WatchStep(self._step), note=WatchNote(self._note))

    def stop(self, error):
        self.error = self.error or error

    def _step(self, _, seen):
        try:
            if self.progress:
                p = seen.contents
                self.progress({name: getattr(p, name) for name, _ in p._fields_})
        except BaseException as error:
            self.stop(error)
        return self.error is not None

    def _note(self, _, text):
        try:
            self.notes.append(text.decode(errors="replace"))
        except BaseException as error:
            self.stop(error)


def _run(ctx, handle, folder, resume, progress):
    """The run itself; its notes."""
    bar = _Bar() if progress is True else None
    watcher = _Watcher(bar or progress or None)
    try:
        with interrupts(watcher.stop):
            status = lib.dro_train_run(handle, path_text(folder), resume, c.byref(watcher.struct))
    finally:
        if bar:
            bar.close()
    if watcher.error is not None:
        raise watcher.error
    ctx.check(status)
    return watcher.notes


@contextlib.contextmanager
def _tables(folder):
    """A folder for tables as files while a run reads them, in that of the run: when it is resumed
    its data has the same path."""
    place, new = os.path.join(os.path.abspath(folder), ".libdro-tables"), not os.path.exists(folder)
    os.makedirs(place, exist_ok=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if new:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(place))  # empty: there was no run


def train(data: Any = None, model: str | None = None, optimizer: str | None = None,
          out: str | os.PathLike[str] | None = None, *, test: Any = None, resume: bool = False,
          progress: bool | Callable[[dict[str, Any]], object] = True, backend: str = "auto",
          threads: int = 0, **settings: Any) -> Run:
    if resume and out is None:
        raise ValueError("resume=True needs the folder of the run: out=FOLDER")
    if "label" in settings:
        raise TypeError('label is part of the SPEC: data="csv:FILE,label=COLUMN"')
    same = [name for name in ("lam", "lambda_", "lambda") if settings.get(name) is not None]
    if len(same) > 1:
        raise TypeError(f"{same[0]} and {same[1]} are the same setting: give one of them")
    kept = None if out is not None else Temporary()
    folder = kept.name if kept else os.fspath(out)
    settings = dict({"model": model, "optimizer": optimizer}, **settings)
    classes, arrays = None, None
    spec = data = os.fspath(data) if isinstance(data, os.PathLike) else data
    with Context(backend, threads) as ctx, contextlib.ExitStack() as files:
        handle = ctx.create(lib.dro_train_create, lib.dro_train_destroy)
        if data is not None and not isinstance(data, str):
            arrays = as_arrays(data)
            classes = arrays.classes
            test = as_arrays(test, arrays, "test") if test is not None else None
            if arrays.encoded:
                ctx.folder = files.enter_context(_tables(folder))
                spec = arrays.write(ctx.folder, test)
            else:
                spec = arrays.lend(ctx, "data", test)
        elif test is not None:
            raise TypeError("test goes with data in arrays; a SPEC names its test data itself")
        for name, value in dict(settings, data=spec).items():
            if value is not None:
                ctx.check(lib.dro_train_set(handle, setting_name(name).encode(),
                                            setting_text(value)))
        notes = _run(ctx, handle, folder, resume, progress)
        run = Run(folder, _ENDS[lib.dro_train_ended(handle)], notes, classes)
    run._kept = kept
    return run


def _document():
    lines = ["Trains a model and returns a Run.", "",
             "data: a SPEC string (as of `dro train --data`), (X, y) or libdro.Arrays.",
             "    X: a NumPy array, a SciPy sparse matrix, a torch tensor, or a pandas, pyarrow or",
             "    polars table. A table with text, categories or missing values is encoded like a",
             "    CSV file, and so are the tables that its model predicts.",
             "    y: integers, booleans or text are classes, floats a real-valued target.",
             "    None: synthetic images of characters.",
             "test: (X, y) or Arrays to measure on, where data is in arrays.",
             "out: the run's folder; None: a temporary one, removed with the Run and its model.",
             "resume: continue from the folder's newest checkpoint; give the same data again.",
             "progress: True: a bar, where tqdm is installed; False: none; or a function that is",
             "    called with a dictionary once per step. An exception that it raises, or Ctrl-C,",
             "    ends the run with a checkpoint and is then raised.",
             "backend, threads: the hardware; threads=0 takes all processors.", "",
             "settings (write lam or lambda_ for lambda; lists for lists; True for yes).",
             "In brackets: what it may be; the default."]
    for name, fallback, choices, meaning, _ in settings_table():
        about = "; ".join(text for text in (choices, fallback) if text)
        lines.append(f"    {name}: {meaning}" + (f" [{about}]" if about else ""))
    return "\n".join(lines) + "\n"


train.__doc__ = _document()
