"""Runs, models and errors."""
import json

import numpy as np
import pytest

import libdro


def run_of(table, **settings):
    settings = dict({"model": "linear", "optimizer": "recover", "steps": 60, "batch": 20, "lam": 2},
                    **settings)
    return libdro.train(data=table, **settings)


def test_arrays(table, tmp_path):
    run = run_of(table, out=tmp_path / "run", test=table)
    assert run.ended == "done" and (tmp_path / "run" / "weights.safetensors").exists()
    assert float(run.config["optimizer_settings"]["lambda"]) == 2
    assert run.metrics and run.metrics[-1]["step"] == 60
    accuracy = (run.model.predict(table[0]) == table[1]).mean()
    assert accuracy > 0.9
    assert json.dumps(run.result).count("%.4g" % accuracy) > 0  # the same as the library measured
    loaded = libdro.load(tmp_path / "run")
    assert list(loaded.classes) == [0, 1]  # the file numbers the classes of arrays
    assert (run.model.classes[loaded.predict(table[0])] == run.model.predict(table[0])).all()


def test_probabilities(table):
    model = run_of(table).model
    shares, logits = model.predict_proba(table[0]), model.logits(table[0]).astype(float)
    assert shares.shape == (400, 2) and np.allclose(shares.sum(axis=1), 1)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert np.allclose(shares, softmax, atol=1e-6)


def test_regression(table):
    X = table[0]
    y = X @ [1.0, -2.0, 0.5] + 3
    run = libdro.train(data=(X, y), model="linear", optimizer="sgd", steps=800, batch=20, eta=0.05)
    assert run.model.classes is None
    assert np.abs(run.model.predict(X) - y).mean() < 0.3 * np.abs(y - y.mean()).mean()


def test_spec(table, tmp_path):
    file = tmp_path / "people.csv"
    rows = [f"{a},{b},{c},{label}" for (a, b, c), label in zip(*table)]
    file.write_text("\n".join(["x,y,z,label"] + rows) + "\n")
    spec = f"csv:{file},label=label"
    run = run_of(spec, out=tmp_path / "run")
    model = libdro.load(run.weights)
    assert list(model.classes) == ["a", "b"]
    assert (model.predict(spec, split=libdro.TRAIN) == table[1]).mean() > 0.9


def test_errors_are_the_librarys(table, tmp_path):
    with pytest.raises(libdro.UnknownNameError, match="recovr.*recover"):
        run_of(table, optimizer="recovr")
    with pytest.raises(ValueError, match="lambda"):
        run_of(table, lam=-1)
    with pytest.raises(libdro.DroError, match="nowhere"):
        libdro.train(data=f"csv:{tmp_path}/nowhere.csv,label=x")
    with pytest.raises(libdro.DroError, match="bogus"):
        libdro.train(data=table, backend="bogus")


def test_misuse(table, tmp_path):
    X, y = table
    with pytest.raises(ValueError, match="one per example"):
        libdro.train(data=(X, y[:-1]))
    with pytest.raises(ValueError, match="shape"):
        libdro.train(data=(X[0], y))
    with pytest.raises(TypeError, match="expected a SPEC"):
        libdro.train(data=17)
    (tmp_path / "broken").write_bytes(b"nothing")
    with pytest.raises(libdro.FormatError, match="safetensors"):
        libdro.load(tmp_path / "broken")
    with pytest.raises(libdro.DroError, match="7"):
        run_of(table).model.predict(np.zeros((4, 7)))
    bad = X.copy()
    bad[3, 1] = np.nan
    with pytest.raises(ValueError, match="row 3 has a value that is NaN"):
        run_of((bad, y))


def test_stop_and_resume(table, tmp_path):
    def stop(progress):
        if progress["step"] == 30:
            raise KeyboardInterrupt

    whole = run_of(table, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_of(table, out=tmp_path / "part", progress=stop)
    assert (tmp_path / "part" / "last.ckpt").exists()
    part = run_of(table, out=tmp_path / "part", resume=True)
    assert part.ended == "done"
    with open(whole.weights, "rb") as a, open(part.weights, "rb") as b:
        assert a.read() == b.read()


def test_documentation():
    for name in ("lambda:", "eta:", "batch:", "epochs:"):
        assert f"    {name}" in libdro.train.__doc__
