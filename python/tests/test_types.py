"""The type hints of what users call."""
import importlib
import inspect
import subprocess
import sys

import pytest

import libdro

PUBLIC = {
    "libdro": ["train", "load", "minimize", "Arrays.__init__", "Run.report", "Run.close",
               "Model.predict", "Model.predict_proba", "Model.logits", "Model.explain"],
    "libdro.sklearn": [f"{kind}.{name}" for kind in ("DROClassifier", "DRORegressor")
                       for name in ("__init__", "fit", "partial_fit", "predict")] +
                      ["DROClassifier.predict_proba", "DROClassifier.predict_log_proba",
                       "DROClassifier.decision_function"],
    "libdro.torch": ["Tilt.__init__", "Tilt.forward", "Recover.__init__", "Recover.step",
                     "Recover.state_dict", "Recover.load_state_dict", "Recover.add_param_group"]}

PROGRAM = """
import numpy as np
import libdro

def forward(w: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return np.zeros(len(ids))

def backward(w: np.ndarray, ids: np.ndarray, coef: np.ndarray) -> np.ndarray:
    return np.zeros(1)

def trained(X: np.ndarray, y: np.ndarray) -> list[str]:
    with libdro.train(data=(X, y), model="linear", lam=1) as run:
        run.report().save("report.html")
        print(run.model.predict(X).shape, run.result["step"], libdro.load("run").classes)
        return run.notes

try:
    w = libdro.minimize(forward, backward, [0.0], 10, lam=1).w
except (libdro.RangeError, libdro.DroError) as error:
    print(error)
wrong_one: int = libdro.minimize(forward, backward, [0.0], 10)
wrong_two: int = libdro.train(5, out=3)
"""


@pytest.mark.parametrize("module", PUBLIC)
def test_public_functions(module):
    pytest.importorskip(module.partition(".")[2] or "numpy")
    for name in PUBLIC[module]:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        signature = inspect.signature(found)
        bare = [p.name for p in signature.parameters.values()
                if p.name != "self" and p.annotation is p.empty]
        assert not bare, f"{name}: {bare}"
        assert signature.return_annotation is not signature.empty, name


def test_a_program(tmp_path):
    """mypy has nothing to say of a program but what is wrong in it."""
    pytest.importorskip("mypy")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    out = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent",
                          f"--cache-dir={tmp_path / 'cache'}", str(file)],
                         capture_output=True, text=True)
    lines = [line for line in out.stdout.splitlines() if ": error: " in line]
    assert len(lines) == 3, out.stdout + out.stderr
    assert '"Minimum", variable has type "int"' in lines[0] and '"out"' in lines[2]
