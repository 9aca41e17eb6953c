"""Runs, models and errors."""
import copy
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings

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
    rows = run.metrics
    rows = rows if isinstance(rows, list) else rows.to_dict("records")
    assert rows[-1]["step"] == 60
    accuracy = (run.model.predict(table[0]) == table[1]).mean()
    assert accuracy > 0.9
    assert json.dumps(run.result).count("%.4g" % accuracy) > 0  # the same as the library measured
    loaded = libdro.load(tmp_path / "run")
    assert list(loaded.classes) == ["a", "b"]
    assert (loaded.predict(table[0]) == run.model.predict(table[0])).all()


def test_kinds_of_data(table):
    """The same numbers in any form give the same model, and predict in any form."""
    X, y = table[0].astype(np.float32), table[1]
    X[X < 0] = 0
    forms = {"numpy": X, "lists": X.tolist()}
    for name, convert in (("scipy.sparse", "csr_matrix"), ("torch", "tensor"),
                          ("pandas", "DataFrame")):
        try:
            module = __import__(name, fromlist=[convert])
        except ImportError:
            continue
        forms[name] = getattr(module, convert)(X)
    if "pandas" in forms:
        try:
            import pyarrow
            forms["pyarrow"] = pyarrow.table({f"c{k}": X[:, k] for k in range(3)})
        except ImportError:
            pass
    expected = None
    for name, form in forms.items():
        run = libdro.train(data=libdro.Arrays(form, y, options="scale=none"), model="linear", lam=1)
        logits = run.model.logits(form)
        expected = logits if expected is None else expected
        assert np.allclose(logits, expected, atol=1e-4), name
    if "pandas" in forms:
        frame = forms["pandas"].add_prefix("c").assign(c2=y)
        with pytest.raises(ValueError, match="column 'c2' does not hold numbers, but the model"):
            libdro.train(data=(X, y), test=(frame, y))
        with pytest.raises(ValueError, match="column 'c2' does not hold numbers, but the model"):
            run.model.predict(frame)
    if "torch" in forms:
        assert (run.model.predict(forms["torch"]) == run.model.predict(X)).all()
        shared = libdro._arrays.as_numpy(forms["torch"])
        assert shared.ctypes.data == forms["torch"].data_ptr()  # no copy


def test_errors_in_values(table):
    """What is wrong with an array, a table or a label, and where."""
    X, y = table
    number = np.arange(400)
    for wrong, text in ((X[:0], "one example"), (X[:, :0], "one feature"), (X * 1j, "complex128"),
                        (np.full((400, 2), "x"), "does not hold numbers"),
                        (np.ma.masked_array(X, X > 3), "column 2 has"),
                        (np.full((400, 2), "NaT", "M8[D]"), "datetime64")):
        with pytest.raises(ValueError, match=text):
            libdro.Arrays(wrong, y[:len(wrong)])
    for wrong, text in ((np.where(number == 7, None, y), "row 7 is missing"),
                        (np.ma.masked_array(number, number == 7), "row 7 is missing"),
                        (number * 1j, "y has type complex128"),
                        (np.where(number == 7, np.nan, 1.5), "row 7 is missing"),
                        (np.where(number == 7, 1, y.astype(object)), "different types")):
        with pytest.raises(ValueError, match=text):
            libdro.Arrays(X, wrong)
    for wrong in (number - 1, number * 0.5, y, number * 2**40):
        with pytest.raises(ValueError, match="integers from 0 on"):
            libdro.Arrays(X, y, groups=wrong)
    with pytest.raises(ValueError, match="weights does not hold numbers"):
        libdro.Arrays(X, y, weights=y)
    with pytest.warns(UserWarning, match="real-valued target; for classes"):
        libdro.train(data=(X, (y == "b").astype(float)), model="linear", steps=1)


def test_kinds_of_labels(table):
    """Numbers that are no integers are a target, in an array of objects too."""
    X, y = table
    number = np.arange(400)
    for target in (X[:, 0], X[:, 0].astype(object), np.where(number == 7, 1, X[:, 0].astype("O"))):
        assert np.allclose(libdro.Arrays(X, target).targets, target.astype(np.float32))
    for classes in (number % 3, (number % 3).astype(object), np.ma.masked_array(number % 3),
                    (y == "b").astype(object)):
        assert libdro.Arrays(X, classes).classes.tolist() == sorted(set(classes.tolist()))


@pytest.mark.parametrize("names", [["01", "1"], ["1_0", "2"], ["+1", "1"], ["-1", "1"]])
def test_classes_that_look_like_numbers(table, names, tmp_path):
    X, y = table
    y = np.where(y == "a", *names)
    libdro.train(data=(X, y), model="linear", out=tmp_path / "run")
    model = libdro.load(tmp_path / "run")
    assert (model.predict(X).astype(str) == y).mean() > 0.9


def test_integers_that_are_no_classes(table):
    X, _ = table
    with pytest.warns(UserWarning, match="y has .* different integers in 400 rows"):
        libdro.train(data=(X, np.round(X[:, 0] * 100).astype(int)), model="linear", steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        libdro.train(data=(X, np.arange(400) % 20), model="linear", steps=1)


def test_lambda_twice(table):
    with pytest.raises(TypeError, match="lam and lambda_ are the same setting"):
        libdro.train(data=table, lam=1, lambda_=2)
    with pytest.raises(ValueError, match="objective=cvar:0.1 has no lambda: leave out"):
        run_of(table, objective="cvar:0.1", steps=1)


def test_numbers_that_float32_cannot_tell_apart(table):
    X, y = table
    times = X * [10, 1, 1] + [1.7e9, 1e3, 0]
    for data in ((times, y), (times.astype(np.int64), y)):
        with pytest.warns(UserWarning, match="X: column 0 goes from .* steps of 128 in float32"):
            libdro.Arrays(*data)
    with pytest.warns(UserWarning, match="^y goes from"):
        libdro.Arrays(X, times[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fine in (X, X * 1e30, times * 0 + 1.7e9, times.astype(np.float32), X * 1e9 + 1.7e9):
            libdro.Arrays(fine, y)
    pd = pytest.importorskip("pandas")
    with pytest.warns(UserWarning, match="X: column 'u' goes from"):
        libdro.Arrays(pd.DataFrame(times, columns=["u", "v", "w"]), y)
    pytest.importorskip("sklearn")
    from libdro.sklearn import DROClassifier
    with pytest.warns(UserWarning, match="X: column 0 goes from"):
        DROClassifier().fit(times, y)


def test_errors_in_sparse_matrices(table):
    sp = pytest.importorskip("scipy.sparse")
    with pytest.raises(ValueError, match="X has type complex"):
        libdro.Arrays(sp.csr_matrix(table[0] * 1j), table[1])
    X = sp.csr_matrix(table[0].astype(np.float32))
    for name, value in (("indices", 99), ("indices", -4), ("indptr", 10**6)):
        wrong = X.copy()
        getattr(wrong, name)[5] = value
        with pytest.raises(ValueError, match="a damaged sparse matrix"):
            libdro.Arrays(wrong, table[1])


def test_errors_in_tables(table):
    """The column is named; two of a name are two; dates are days."""
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(table[0], columns=["u", "v", "w"])
    assert libdro.Arrays(pd.concat([X, X], axis=1), table[1]).X.shape == (400, 6)
    with pytest.raises(TypeError, match="y is 'u': expected the labels themselves"):
        libdro.train(data=(X, "u"))
    when = pd.Timestamp("1970-01-03") + pd.to_timedelta(np.arange(400), unit="D")
    assert libdro.Arrays(X.assign(d=when), table[1]).X[5, 3] == 7
    model = libdro.train(data=(X.assign(d=1), table[1]), model="linear").model
    for values in (when.where(when != when[5]), np.where(np.arange(400) == 5, np.nan, 0),
                   pd.array([1] * 5 + [None] + [1] * 394, dtype="Int64")):
        for wrong in (X.assign(d=values), (X.assign(d=values), table[1])):
            with pytest.raises(ValueError, match="row 5, column 'd' has a value"):
                model.predict(wrong)
    for values in (np.where(np.arange(400) == 5, np.inf, np.nan), [1.0] * 5 + [1e39] * 395):
        with pytest.raises(ValueError, match="column 'd' has a value"):
            libdro.Arrays(X.assign(d=values), table[1])


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "polars"])
def test_columns_in_any_order(table, kind, tmp_path):
    """A model knows the columns of the table that it was trained on."""
    module = pytest.importorskip(kind)
    make = module.table if kind == "pyarrow" else module.DataFrame
    X = {name: table[0][:, k] for k, name in enumerate(("u", "v", "\u00e9\"w"))}
    other = make(dict(reversed(X.items()), more=np.zeros(400)))
    run = libdro.train(data=(make(X), table[1]), test=(other, table[1]), model="linear",
                       out=tmp_path / "run")
    expected = run.model.logits(table[0])
    assert run.result["test"]["accuracy"] > 0.9
    for model in (run.model, libdro.load(tmp_path / "run")):
        assert model.features == list(X)
        assert (model.logits(make(X)) == expected).all()
        assert (model.logits(other) == expected).all()
        assert (model.logits((other, table[1])) == expected).all()
        with pytest.raises(ValueError, match="X has no column 'v', which"):
            model.predict(make({"u": X["u"], "z": X["v"]}))
        del X["v"]
        with pytest.raises(ValueError, match="the columns of X are .'u', .*those of the model"):
            model.predict(libdro.Arrays(make(X), table[1]))
        X = {name: table[0][:, k] for k, name in enumerate(("u", "v", "\u00e9\"w"))}
    assert libdro.train(data=(make(X), table[1]), model="mlp:4", steps=5).model.features == list(X)
    with pytest.raises(ValueError, match="the columns of X are .*those of the model"):
        libdro.train(data=(make(X), table[1]), test=libdro.Arrays(other, table[1]))


def test_columns_whose_names_are_numbers(table):
    """In any order too, and pandas's 0, 1, 2 of columns without names."""
    pd = pytest.importorskip("pandas")
    X, y = pd.DataFrame(table[0]), table[1]
    for names in ([0, 1, 2], [7, 3, 5], [2, 0, 1], [("u", 1), ("u", 2), ("v", 1)], [0, "u", 2]):
        X.columns = pd.Index(names)
        model = libdro.train(data=(X, y), model="linear").model
        expected = model.predict_proba(X)
        assert np.allclose(model.predict_proba(X.to_numpy()), expected)
        assert np.allclose(model.predict_proba(X[[names[k] for k in (2, 1, 0)]]), expected)
        if names != [0, 1, 2]:
            with pytest.raises(ValueError, match="X has no column"):
                model.predict(X.set_axis(["p", "q", "r"], axis=1))


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "polars"])
def test_tables_for_a_model_of_a_csv_file(table, kind, tmp_path):
    """They are encoded like the file."""
    module = pytest.importorskip(kind)
    make = module.table if kind == "pyarrow" else module.DataFrame
    X, y, random = table[0], table[1], np.random.default_rng(0)
    columns = {"u": 100 * X[:, 0] + 7, "town": random.choice(["a", "b,c", 'd"'], 400), "v": X[:, 1]}
    rows = ["u,town,v,is it"] + ['%r,"%s",%r,%s' % (float(u), t.replace('"', '""'), float(v), label)
                                for u, t, v, label in zip(*columns.values(), y)]
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n")
    spec = f"csv:{tmp_path}/table.csv,label=is it"
    model = libdro.train(data=spec).model
    expected = model.predict_proba(spec)
    other = make(dict(reversed(columns.items())))
    assert np.allclose(model.predict_proba(other), expected, atol=1e-6)
    assert np.allclose(model.predict_proba(other[:1]), expected[:1], atol=1e-6)
    assert (model.predict(other) == y).mean() > 0.9
    assert np.allclose(model.explain((other, y), "mean")["losses"],
                       model.explain(spec, "mean")["losses"], atol=1e-5)
    with pytest.raises(TypeError, match="trained on a CSV file, or on a table with text or"):
        model.predict(X)
    with pytest.raises(libdro.DroError, match="town"):
        model.predict(make({"u": columns["u"], "v": columns["v"]}))
    of_arrays = libdro.train(data=table, model="linear").model
    with pytest.raises(libdro.DroError, match="arrays in memory"):
        of_arrays.predict(spec)


@pytest.fixture
def people():
    """A table with all kinds of columns, and y: what town says, with 5 % of the labels changed."""
    pd, rng, n = pytest.importorskip("pandas"), np.random.default_rng(0), 400
    town = rng.choice(["K\u00f6ln", "a,b", 'q"x', "two\nlines", "NA"], n)
    table = pd.DataFrame({
        "age": rng.normal(40, 10, n), "town": town, "member": rng.random(n) < 0.5,
        "zip": pd.Categorical(rng.choice([1, 2, 30], n)), 'odd, "name"': rng.integers(0, 5, n),
        "label": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="h")})
    for k, name in enumerate(("age", "town", "zip", "label")):
        table.loc[k::11 + k, name] = None
    y = np.where(np.isin(town, ["K\u00f6ln", "a,b"]) ^ (rng.random(n) < 0.05), "yes", "no")
    return table, y


def test_tables_with_text(people, tmp_path):
    """They are encoded like a CSV file, in training and by the model."""
    X, y = people
    out = tmp_path / "a, b"
    run = libdro.train(data=(X, y), test=(X[::-1], y[::-1]), model="linear", out=out)
    assert run.result["test"]["accuracy"] == run.result["train"]["accuracy"] > 0.88
    assert not [name for name in os.listdir(out) if "tables" in name]
    expected = run.model.predict_proba(X)
    assert len(run.model.classes) == 2 and (run.model.predict(X) == y).mean() > 0.88
    other = X[X.columns[::-1]].assign(more="?", label_="no label", zip=X["zip"].astype(float),
                                      town=X["town"].astype("category"))
    tables = [other]
    try:
        import pyarrow
        tables.append(pyarrow.Table.from_pandas(X.assign(zip=X["zip"].astype("Int64"))))
        tables.append(pyarrow.Table.from_pandas(X))  # with dictionaries
        import polars
        tables.append(polars.from_arrow(tables[1]).with_columns(
            polars.col("zip").cast(polars.String).cast(polars.Categorical)))
    except ImportError:
        pass
    for model in (run.model, libdro.load(out), pickle.loads(pickle.dumps(run.model))):
        for table in tables:
            assert (model.predict_proba(table) == expected).all()
        for kind in (int, float, "Int64", object):
            numbers = X.assign(member=X["member"].astype(kind))
            assert (model.predict_proba(numbers) == expected).all()
            for data in ((numbers, y), libdro.Arrays(numbers, y)):
                found = [model.explain(d, "mean")["value"] for d in (data, (X, y))]
                assert found[0] == found[1]
        new = X[:3].assign(town="elsewhere")
        assert (model.predict_proba(new) != expected[:3]).all()
        assert model.explain((X, y), "mean")["value"] > 0.01
        with pytest.raises(libdro.DroError, match="^X: no column 'town'"):
            model.predict(X[["age"]])
    numbers = X.assign(member=X["member"].astype(int))
    tested = libdro.train(data=(X, y), test=(numbers, y), model="linear").result
    assert tested["test"]["accuracy"] == tested["train"]["accuracy"]
    for table in tables[2:]:
        trained = libdro.train(data=(table, y), test=(X, y), model="linear").model
        assert np.allclose(trained.predict_proba(X), expected, atol=1e-6)


def test_missing_numbers(table):
    """A table of numbers is encoded only where training has missing values."""
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(table[0], columns=["u", "v", "w"])
    gaps = X.where(np.random.default_rng(0).random(X.shape) > 0.1)
    run = libdro.train(data=(gaps, table[1]), test=(X, table[1]), model="linear")
    assert run.result["test"]["accuracy"] > 0.9 and run.config["data"].startswith("csv:")
    assert (run.model.predict(X[["w", "v", "u"]]) == run.model.predict(X)).all()
    assert (run.model.predict(gaps) == table[1]).mean() > 0.8
    assert libdro.train(data=(X, table[1]), model="linear").config["data"] == "arrays:data"
    with pytest.raises(ValueError, match="has a value that is NaN"):
        libdro.train(data=(X, table[1]), test=(gaps, table[1]))


def test_text_alone(people):
    """Without numbers, with columns of the same name, and with the smallest tables."""
    pd = pytest.importorskip("pandas")
    X, y = people
    for only in (X[["town"]], X[["town", "zip", "zip", "town"]]):  # names need not differ
        run = libdro.train(data=(only, y), test=(only, y), model="linear")
        assert (run.model.predict(only) == y).mean() > 0.88
    run = libdro.train(data=(pd.DataFrame({0: ["a", None], 1: [1, 1]}), [7, 8]), model="linear")
    assert list(run.model.predict(pd.DataFrame({1: [1, 1], 0: [None, "a"]}))) == [8, 7]


def test_labels_beside_text(people, tmp_path):
    """What y is does not depend on the columns of X: whole numbers are classes, floats targets."""
    pd = pytest.importorskip("pandas")
    X, _ = people
    towns, place = np.unique(X["town"].fillna("NA"), return_inverse=True)
    for names, name in ((["9", "10", "100"], None), ([9, 10, -1], "label"), ([True, False], "3"),
                        ([" a", "b, c", "1.5"], "age"), (["1", "01", "x"], ""),
                        ([*range(900, 1000)], 7)):
        y = pd.Series(np.array(names)[(place if len(names) < 9 else X.index) % len(names)],
                      name=name)
        run = libdro.train(data=(X.assign(town=towns[place]), y), model="linear")
        assert run.model.classes.dtype == np.asarray(y).dtype
        assert sorted(run.model.classes.tolist()) == sorted(set(y))
        assert len(names) > 9 or (run.model.predict(X.assign(town=towns[place])) == y).all()
    y = np.where(X["town"] == "a,b", 1.25, np.float32(0.1))
    run = libdro.train(data=(X, y), test=(X, y), model="linear", out=tmp_path / "real")
    assert run.model.classes is None and np.abs(run.model.predict(X) - y).mean() < 0.1
    y = pd.Series(np.where(X["town"] == "a,b", "yes", "no"), name="in, town")
    run = libdro.train(data=(X, y), model="linear", out=tmp_path / "named")
    model = libdro.load(tmp_path / "named")
    assert (model.predict(X.assign(**{"in, town": "anything"})) == run.model.predict(X)).all()
    assert model.explain((X, y), "mean")["value"] < 0.1
    for wrong, text in (("NA", "class 'NA', which reads as a missing"), ("b ", "in the blanks")):
        with pytest.raises(ValueError, match=text):
            libdro.train(data=(X, np.array([wrong, "b", "c"])[place % 3]))


def test_groups_and_weights_beside_text(people):
    """They are no features, and options are those of csv."""
    X, y = people
    wrong = np.where(np.arange(400) < 300, y, np.where(y == "yes", "no", "yes"))
    groups = (X["member"] & (y == "yes")).to_numpy(int)
    arrays = libdro.Arrays(X, wrong, groups, (np.arange(400) < 300) * 1.0, "drop=age:zip")
    run = libdro.train(data=arrays, test=arrays, model="linear", tilt="group")
    assert (run.model.predict(X.drop(columns=["age", "zip"])) == y).mean() > 0.88
    found = run.model.explain(arrays, "kl:1", over="group")
    assert len(found["group_weights"]) == 2 and found["groups"].tolist() == groups.tolist()
    with pytest.raises(ValueError, match="groups: expected those of data and of test"):
        libdro.train(data=arrays, test=(X, y))
    with pytest.raises(TypeError, match="expected tables, as data and as test"):
        libdro.train(data=(X, y), test=(np.zeros((400, 6)), y))


def test_errors_in_tables_with_text(people, tmp_path):
    """They name the column, not the file; a run that did not begin leaves no folder."""
    X, y = people
    with pytest.raises(libdro.DroError, match="^data: line 9: column 'age': an infinite number"):
        libdro.train(data=(X.assign(age=np.where(X.index == 7, np.inf, 1.0), town="a b"), y),
                     out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    model = libdro.train(data=(X, y), model="linear").model
    with pytest.raises(libdro.DroError, match="^X: line 2: column 'age': 'x': expected a number"):
        model.predict(X.assign(age="x"))
    with pytest.raises(TypeError, match="on a table with text or missing values: give a table"):
        model.predict(np.zeros((3, 6)))
    with pytest.raises(ValueError, match="one example"):
        libdro.train(data=(X[:0], y[:0]))


def test_explain(table):
    X, y = table
    model = run_of(table).model
    found = model.explain((X, y), "kl:0.5")
    losses = -np.log(model.predict_proba(X)[np.arange(400), (y == "b").astype(int)])
    weights = np.exp(losses / 0.5)
    assert np.allclose(found["losses"], losses, atol=1e-5)
    assert np.allclose(found["weights"], weights / weights.sum(), atol=1e-6)
    assert found["order"][0] == losses.argmax() and 0 < found["effective"] < 1
    assert model.explain((X, y), "cvar:0.1")["value"] > found["mean_loss"]
    with pytest.raises(libdro.DroError, match="groups"):
        model.explain((X, y), "mean", over="group")
    with pytest.raises(TypeError, match="labels"):
        model.explain(X, "mean")
    of_numbers = libdro.train(data=(X, X[:, 0]), model="linear", test=(X, X[:, 0].astype(int)))
    assert of_numbers.model.explain((X, X[:, 0].astype(int)), "mean")["value"] > 0.01


def test_report_and_close(table, tmp_path):
    run = run_of(table, out=tmp_path / "run", test=table)
    page = run.report()
    assert "<html" in page.html and page._repr_html_().startswith("<iframe")
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    with run_of(table) as other:
        folder = other.folder
        assert other.result["step"] == 60
    with pytest.raises(libdro.StateError, match="closed"):
        other.result
    with pytest.raises(RuntimeError, match="out="):
        other.model
    assert not os.path.exists(folder)


def test_temporary_folders(table):
    """They go with the run, without a warning, and not with its copy in a fork. A pickled model
    contains its weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = run_of(table)
        folder, model, child = run.folder, run.model, os.fork()
        if child == 0:
            del run, model
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        assert run.result["step"] == 60
        with pytest.raises(TypeError, match="pickle run.model"):
            pickle.dumps(run)
        copies = pickle.loads(pickle.dumps(model)), copy.deepcopy(model)
        expected = model.predict(table[0])
        del run, model
        gc.collect()
        assert not os.path.exists(folder)
        for other in copies:
            assert (other.predict(table[0]) == expected).all()


def test_one_object_twice(table):
    """As training and as test data: the library is shown the same memory, which stays."""
    sp = pytest.importorskip("scipy.sparse")
    for X in (table[0], sp.csr_matrix(table[0].astype(np.float32))):
        arrays = libdro.Arrays(X, table[1])
        shown = [bytes(arrays._struct()) for _ in range(2)]
        assert shown[0] == shown[1]
        run = libdro.train(data=arrays, test=arrays, model="linear")
        assert run.result["test"]["accuracy"] == run.result["train"]["accuracy"]


def test_weights_of_examples(table):
    """Examples without weight are not learned; all metrics count by weights."""
    X, y = table
    wrong = np.where(np.arange(400) < 200, y, np.where(y == "a", "b", "a"))
    weights = (np.arange(400) < 200).astype(float)
    arrays = libdro.Arrays(X, wrong, weights=weights)
    run = libdro.train(data=arrays, test=arrays, model="linear", lam=1)
    assert run.result["test"]["accuracy"] > 0.9


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
    with pytest.raises(ValueError, match="lbfgs: lambda=0"):
        run_of(table, optimizer="lbfgs", lam=0)
    with pytest.raises(libdro.DroError, match="nowhere.csv"):
        libdro.train(data=tmp_path / "nowhere.csv")


def test_misuse(table, tmp_path):
    X, y = table
    with pytest.raises(ValueError, match="one per example"):
        libdro.train(data=(X, y[:-1]))
    with pytest.raises(ValueError, match="shape"):
        libdro.train(data=(X[0], y))
    with pytest.raises(TypeError, match="expected a SPEC"):
        libdro.train(data=17)
    with pytest.raises(TypeError, match="test is a str: expected"):
        libdro.train(data=table, test="csv:test.csv")
    with pytest.raises(TypeError, match="label=COLUMN"):
        libdro.train(data="people.csv", label="income")
    with pytest.raises(ValueError, match="out=FOLDER"):
        libdro.train(data=table, resume=True)
    for threads in (-1, 10**6, 2.5, "2"):
        with pytest.raises(ValueError, match="threads=.*0 .all processors. to 4096"):
            libdro.train(data=table, threads=threads)
    with pytest.raises(TypeError, match="backend is None"):
        libdro.train(data=table, backend=None)
    for wrong in (dict(out="a\0b"), dict(name="a\0b"), dict(data="csv:a\0b")):
        with pytest.raises(ValueError, match="null character"):
            libdro.train(**dict({"data": table}, **wrong))
    for header in (b"[]", b'{"__metadata__": 3}', b"\xff"):
        (tmp_path / "broken").write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(libdro.FormatError, match="safetensors"):
            libdro.load(tmp_path / "broken")
    (tmp_path / "broken").write_bytes(b"nothing")
    with pytest.raises(libdro.FormatError, match="safetensors"):
        libdro.load(tmp_path / "broken")
    with pytest.raises(libdro.DroError, match="7"):
        run_of(table).model.predict(np.zeros((4, 7)))
    with pytest.raises(ValueError, match="split is 7"):
        run_of(table).model.predict(X, split=7)
    bad = X.copy()
    bad[3, 1] = np.nan
    with pytest.raises(ValueError, match="row 3, column 1 has a value that is NaN"):
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


def test_resume_with_text(people, tmp_path, monkeypatch):
    """The table is given again, from any folder."""
    def stop(progress):
        if progress["step"] == 30:
            raise KeyboardInterrupt

    X, y = people
    monkeypatch.chdir(tmp_path)
    whole = run_of((X, y), out="whole")
    with pytest.raises(KeyboardInterrupt):
        run_of((X, y), out="part", progress=stop)
    assert os.path.exists("part/last.ckpt")
    with pytest.raises(libdro.DroError, match="the training data has changed"):
        run_of((X.assign(town=X["town"].to_numpy()[::-1]), y), out="part", resume=True)
    monkeypatch.chdir("part")
    part = run_of((X, y), out="../part", resume=True)
    assert part.ended == "done"
    with open(tmp_path / "part/weights.safetensors", "rb") as file:
        assert file.read() == (tmp_path / "whole/weights.safetensors").read_bytes()


INTERRUPTED = """
import numpy as np, libdro, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
rng = np.random.default_rng(0)
X, said = rng.normal(size=(2000, 20)), []
def progress(p):
    if p["step"] >= 20 and not said:
        said.append(print("on its way", flush=True))
try:
    libdro.train(data=(X, X[:, 0] > 0), model="mlp", steps=10**9, out=sys.argv[1],
                 progress=progress)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c(tmp_path):
    job = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(tmp_path / "run")],
                           stdout=subprocess.PIPE, text=True)
    assert job.stdout.readline() == "on its way\n"
    job.send_signal(signal.SIGINT)
    assert job.communicate(timeout=60)[0] == "interrupted\n" and job.returncode == 0
    assert (tmp_path / "run" / "last.ckpt").exists()


def test_threads_and_forks(table):
    """Runs in several threads at once; a model is used in a fork."""
    found = [None] * 3

    def work(k):
        found[k] = run_of(table, threads=1).model.logits(table[0])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()
    model = run_of(table).model
    child = os.fork()
    if child == 0:
        os._exit(0 if (model.logits(table[0]).shape == (400, 2)) else 1)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    assert done and status == 0


def test_import_is_quick():
    """NumPy's own import is most of it. The time is a benchmark's: here only what must not be
    loaded."""
    code = ("import sys, libdro; "
            "print(sorted({'sklearn', 'torch', 'pandas', 'scipy', 'tqdm'} & set(sys.modules)))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


def test_documentation():
    assert libdro.__version__.count(".") == 2
    for name in libdro.__all__:
        assert isinstance(getattr(libdro, name), int) or getattr(libdro, name).__doc__
    for name in ("lambda:", "eta:", "batch:", "epochs:"):
        assert f"    {name}" in libdro.train.__doc__
