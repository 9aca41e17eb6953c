"""The examples of the README and the tutorials run."""
import os
import re
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
TUTORIALS = os.path.join(HERE, "..", "tutorials")


def run(script, folder, **env):
    out = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True,
                         env=dict(os.environ, MPLBACKEND="agg", **env), timeout=900)
    assert out.returncode == 0, out.stdout + out.stderr
    return out.stdout


def test_readme(tmp_path):
    with open(os.path.join(HERE, "..", "README.md"), encoding="utf-8") as file:
        examples = re.findall(r"```python\n(.*?)```", file.read(), re.S)
    assert len(examples) == 4
    for k, module in enumerate(("numpy", "pandas", "sklearn", "torch")):
        if module != "numpy":
            try:
                __import__(module)
            except ImportError:
                continue
        script = tmp_path / f"example_{module}.py"
        script.write_text("\n".join([examples[0], examples[k] if k else ""]))
        run(script, tmp_path)
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name, needs", [("runs", "numpy"), ("scikit_learn", "sklearn"),
                                         ("pytorch", "torch")])
def test_tutorial(name, needs, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip(needs)
    os.makedirs(tmp_path / "tmp")
    script = os.path.abspath(os.path.join(TUTORIALS, f"{name}.py"))
    run(script, tmp_path, TMPDIR=str(tmp_path / "tmp"))
    plots = [file for _, _, files in os.walk(tmp_path) for file in files if file.endswith(".png")]
    assert len(plots) == 1


@pytest.mark.parametrize("order", ["import libdro, torch", "import torch, libdro"])
def test_beside_torch(order, tmp_path):
    """Two OpenMP libraries in one process, in either order."""
    pytest.importorskip("torch")
    script = tmp_path / "both.py"
    script.write_text(f"""
{order}
import numpy as np
X = np.random.default_rng(0).normal(size=(300, 8))
run = libdro.train(data=(X, X[:, 0] > 0), model="mlp", epochs=2)
a = torch.rand(200, 200)
assert torch.isfinite(a @ a).all() and run.ended == "done"
print(run.model.predict(torch.tensor(X)).shape)
""")
    assert run(script, tmp_path) == "(300,)\n"
