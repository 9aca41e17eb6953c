"""DROClassifier beside scikit-learn's LogisticRegression and SGDClassifier, all with balanced
classes: seconds of fit (wall and processor, medians of three, interleaved) and balanced accuracy on
the test data. And partial_fit over generated rows: seconds and memory.

    python bench/estimators.py NAME=TRAIN,TEST ...     # libsvm files; or .csv without a header
    python bench/estimators.py --stream 10000000"""
import argparse
import resource
import statistics
import time
import warnings

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from libdro.sklearn import DROClassifier


def read(paths):
    """X and y of a training and of a test file; the last column of a CSV file is the label."""
    train, test = paths.split(",")
    if train.endswith(".csv"):
        import pandas
        tables = [pandas.read_csv(path, header=None, skipinitialspace=True)
                  for path in (train, test)]
        label = tables[0].columns[-1]
        ys = [t.pop(label).astype(str).str.rstrip(".").to_numpy() for t in tables]
        both = pandas.get_dummies(pandas.concat(tables))
        X = both.to_numpy(dtype=np.float32)
        return X[:len(ys[0])], ys[0], X[len(ys[0]):], ys[1]
    X, y = load_svmlight_file(train, dtype=np.float32)
    other = load_svmlight_file(test, n_features=X.shape[1], dtype=np.float32)
    return X, y, *other


def table(names):
    print(f"{'data':8} {'rows':>7} {'estimator':46} {'seconds':>8} {'processor':>10} "
          f"{'balanced accuracy':>18}")
    for name in names:
        name, paths = name.split("=", 1)
        X, y, X_test, y_test = read(paths)
        ways = {
            'DROClassifier(over="class")': DROClassifier(over="class", n_jobs=-1),
            'DROClassifier(class_prior="uniform")': DROClassifier(class_prior="uniform", n_jobs=-1),
            'LogisticRegression(class_weight="balanced")': LogisticRegression(
                class_weight="balanced", max_iter=1000),
            'SGDClassifier(class_weight="balanced")': SGDClassifier(
                class_weight="balanced", loss="log_loss", random_state=0)}
        times, scores = {way: [] for way in ways}, {}
        for _ in range(3):
            for way, estimator in ways.items():
                scaler = MaxAbsScaler() if hasattr(X, "tocsr") else StandardScaler()
                model = make_pipeline(scaler, estimator)
                began, used = time.perf_counter(), time.process_time()
                model.fit(X, y)
                times[way].append((time.perf_counter() - began, time.process_time() - used))
                scores[way] = balanced_accuracy_score(y_test, model.predict(X_test))
        for way in ways:
            wall, used = map(statistics.median, zip(*times[way]))
            print(f"{name:8} {X.shape[0]:7} {way:46} {wall:8.2f} {used:10.2f} {scores[way]:18.4f}")


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def stream(rows, chunk=10000, features=20):
    """Memory is the largest that the process has had."""
    rng = np.random.default_rng(0)
    w, model = rng.normal(size=features), DROClassifier(lam=1.0, random_state=0)
    began, spent = time.perf_counter(), 0.0
    for k in range(0, rows, chunk):
        X = rng.standard_normal((chunk, features), dtype=np.float32)
        y = X @ w + rng.standard_normal(chunk) > 2
        start = time.perf_counter()
        model.partial_fit(X, y, classes=[False, True])
        spent += time.perf_counter() - start
        if (k // chunk) % max(1, rows // chunk // 10) == 0 or k + chunk >= rows:
            print(f"{k + chunk:10} rows, {time.perf_counter() - began:6.1f} s, of them partial_fit "
                  f"{spent:6.1f} s, {megabytes():.1f} MB, accuracy {model.score(X, y):.4f}",
                  flush=True)


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--stream", type=int)
    options.add_argument("data", nargs="*")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    table(given.data)
    if given.stream:
        stream(given.stream)
