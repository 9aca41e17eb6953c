"""libdro: train models that do not ignore rare and difficult examples.

    run = libdro.train(data=(X, y), model="linear", optimizer="recover", lam=1)
    libdro.load("run").predict(X)
    libdro.minimize(forward, backward, w0, n, lam=0.1)      # your own loss and gradient
    libdro.sklearn.DROClassifier, libdro.torch.Tilt          # imported on first use"""
from typing import Any

from ._arrays import Arrays
from ._lib import ERRORS, HOLDOUT, TEST, TRAIN, DroError, lib as _library
from ._minimize import Minimum, minimize
from ._model import Model, load
from ._train import Run, train

__version__: str = _library.dro_version().decode()
globals().update({kind.__name__: kind for kind in ERRORS.values()})

__all__ = ["Arrays", "DroError", "HOLDOUT", "Minimum", "Model", "Run", "TEST", "TRAIN", "load",
           "minimize", "train"]
__all__.extend(kind.__name__ for kind in ERRORS.values())


def __getattr__(name: str) -> Any:
    if name in ("sklearn", "torch"):
        import importlib
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'libdro' has no attribute {name!r}")
