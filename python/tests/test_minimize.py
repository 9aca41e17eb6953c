"""Functions of one's own."""
import numpy as np
import pytest

import libdro

rng = np.random.default_rng(5)
X = rng.normal(size=(200, 4))
Y = X @ [1.0, -1.0, 2.0, 0.5] + 0.1 * rng.normal(size=200)


def forward(w, ids):
    return (X[ids] @ w - Y[ids]) ** 2 / 2


def backward(w, ids, coef):
    return (coef * (X[ids] @ w - Y[ids])) @ X[ids]


def objective(w, lam):
    losses = forward(w, np.arange(200)) / lam
    return lam * (np.log(np.exp(losses - losses.max()).mean()) + losses.max())


@pytest.mark.parametrize("optimizer, eta", [("recover", 0.1), ("sgd", 0.01)])
def test_minimum(optimizer, eta):
    out = libdro.minimize(forward, backward, np.zeros(4), 200, optimizer, steps=800, batch=16,
                          eta=eta)
    assert out.w.shape == (4,) and out.info["step"] == 800
    assert objective(out.w, 1.0) < 0.02 < objective(np.zeros(4), 1.0)


def test_groups():
    seen = libdro.minimize(forward, backward, np.zeros(4), 200, tilt="group", lam=0.5, steps=50,
                           groups=np.arange(200) % 3)
    assert seen.info["step"] == 50
    with pytest.raises(libdro.DroError, match="groups"):
        libdro.minimize(forward, backward, np.zeros(4), 200, tilt="group")
    with pytest.raises(ValueError, match="200 integers"):
        libdro.minimize(forward, backward, np.zeros(4), 200, groups=[1, 2])


def test_callback():
    steps = []
    out = libdro.minimize(forward, backward, np.zeros(4), 200,
                          callback=lambda info: steps.append(info["step"]) or len(steps) == 7)
    assert steps == list(range(1, 8)) and out.info["step"] == 7


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_exceptions_come_back(where):
    def fail(*_):
        raise ZeroDivisionError("mine")

    functions = {"forward": forward, "backward": backward, where: fail}
    with pytest.raises(ZeroDivisionError, match="mine"):
        libdro.minimize(functions["forward"], functions["backward"], np.zeros(4), 200)


def test_misuse():
    with pytest.raises(ValueError, match="forward returned shape"):
        libdro.minimize(lambda w, ids: 1.0, backward, np.zeros(4), 200)
    with pytest.raises(libdro.NumberError):
        libdro.minimize(lambda w, ids: np.full(len(ids), np.nan), backward, np.zeros(4), 200)
    with pytest.raises(ValueError, match="one axis"):
        libdro.minimize(forward, backward, np.zeros((2, 2)), 200)
    with pytest.raises(libdro.UnknownNameError, match="colour"):
        libdro.minimize(forward, backward, np.zeros(4), 200, colour=3)
    for n, steps in ((0, 9), (-1, 9), (2**70, 9), (10.5, 9), (None, 9), (200, 0), (200, -1)):
        with pytest.raises(ValueError, match="expected a whole number above 0"):
            libdro.minimize(forward, backward, np.zeros(4), n, steps=steps)
    with pytest.raises(ValueError, match="type complex128: expected"):
        libdro.minimize(lambda w, ids: 1j * ids, backward, np.zeros(4), 200)
    with pytest.raises(TypeError, match="backward is a int: expected a function"):
        libdro.minimize(forward, 3, np.zeros(4), 200)
    with pytest.raises(ValueError, match="groups: expected 200 integers"):
        libdro.minimize(forward, backward, np.zeros(4), 200, groups=np.arange(200) * 2**31)
