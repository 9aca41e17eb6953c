import os

# The networks are tiny: threads of PyTorch that wait for work would only take time from each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture
def table():
    """Two classes that a line nearly divides; class 'b' is rare."""
    rng = np.random.default_rng(3)
    y = np.where(rng.random(400) < 0.15, "b", "a")
    X = rng.normal(size=(400, 3)) + np.where(y == "b", 1.5, -1.5)[:, None] * [1, 0.5, 0]
    return X, y
