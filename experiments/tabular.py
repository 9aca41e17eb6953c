"""The peers of experiments/tabular.sh: scikit-learn on the same rows, and the worst group of everybody's predictions.

    tabular.py split CSV OUT SEED            a stratified third of the rows becomes OUT/test.csv
    tabular.py peers NAME DATA OUT SEED      fits scikit-learn's models; settings by balanced accuracy on a holdout
    tabular.py groups NAME DATA OUT SEED     adds the worst group to the result.json of the seed's runs in OUT

NAME is a9a, adult or mammography, DATA the folder of the files. A result.json has the form of dro train's. Groups
are the cells of (sex, income) for adult, the classes otherwise. Needs numpy and scikit-learn."""
import csv
import glob
import json
import os
import sys
import time

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

SEX, INCOME = 9, 14


def rows(path):
    with open(path) as f:
        return [[v.strip() for v in r] for r in csv.reader(f) if r]


def adult(path):
    """Features as strings and numbers, labels, and sex as the group."""
    table = rows(path)
    label = np.array([r[INCOME].rstrip(".") == ">50K" for r in table], int)
    return [r[:INCOME] for r in table], label, np.array([r[SEX] == "Male" for r in table], int)


def load(name, folder):
    """train X, y; test X, y, groups; a function that makes the features' encoder."""
    if name == "a9a":
        x, y = load_svmlight_file(f"{folder}/a9a", n_features=123)
        tx, ty = load_svmlight_file(f"{folder}/a9a.t", n_features=123)
        y, ty = (y > 0).astype(int), (ty > 0).astype(int)
        return x.toarray(), y, tx.toarray(), ty, ty, lambda: None
    if name == "mammography":
        a, b = rows(f"{folder}/train.csv"), rows(f"{folder}/test.csv")
        x, tx = (np.array([r[:-1] for r in t], float) for t in (a, b))
        y, ty = (np.array([r[-1].strip("'") == "1" for r in t], int) for t in (a, b))
        return x, y, tx, ty, ty, StandardScaler
    x, y, _ = adult(f"{folder}/adult-train.csv")
    tx, ty, sex = adult(f"{folder}/adult-test.csv")
    numeric = [0, 2, 4, 10, 11, 12]
    words = [k for k in range(INCOME) if k not in numeric]
    x, tx = np.array(x, object), np.array(tx, object)
    return x, y, tx, ty, 2 * sex + ty, lambda: ColumnTransformer(
        [("numbers", StandardScaler(), numeric), ("words", OneHotEncoder(handle_unknown="ignore"), words)])


def worst_group(right, groups):
    return min(float(right[groups == g].mean()) for g in np.unique(groups))


def figures(truth, predicted, scores, groups):
    right = predicted == truth
    per_class = [float(right[truth == k].mean()) for k in (0, 1)]
    return {"examples": len(truth), "accuracy": float(right.mean()), "balanced_accuracy": float(np.mean(per_class)),
            "worst_class_accuracy": min(per_class), "worst_group_accuracy": worst_group(right, groups),
            "auroc": float(roc_auc_score(truth, scores)), "per_class": per_class}


def models(seed):
    """name: (settings to choose from, what makes the model)"""
    strengths = [0.01, 0.1, 1.0, 10.0, 100.0]
    alphas = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2]
    return {
        "sklearn-lr": (strengths, lambda c: LogisticRegression(C=c, max_iter=2000)),
        "sklearn-lr+weights": (strengths, lambda c: LogisticRegression(C=c, max_iter=2000, class_weight="balanced")),
        "sklearn-sgd+weights": (alphas, lambda a: SGDClassifier(loss="log_loss", alpha=a, class_weight="balanced",
                                                                random_state=seed)),
    }


def whole(encoder, model):
    return make_pipeline(encoder, model) if encoder is not None else model


def peers(name, folder, out, seed):
    x, y, tx, ty, groups, encoder = load(name, folder)
    a, b = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y, random_state=seed)
    for label, (choices, make) in models(seed).items():
        path = f"{out}/{label}-seed{seed}"
        if os.path.exists(f"{path}/result.json"):
            continue
        started, scored = time.time(), []
        for c in choices:
            fitted = whole(encoder(), make(c)).fit(x[a], y[a])
            scored.append(balanced_accuracy_score(y[b], fitted.predict(x[b])))
        best = choices[int(np.argmax(scored))]
        tuned, started = time.time() - started, time.time()
        fitted = whole(encoder(), make(best)).fit(x, y)
        took = time.time() - started
        result = {"optimizer": label, "seed": seed, "seconds": took, "tuning_seconds": tuned, "chosen": best,
                  "holdout": {"balanced_accuracy": float(max(scored))},
                  "test": figures(ty, fitted.predict(tx), fitted.decision_function(tx), groups)}
        os.makedirs(path, exist_ok=True)
        with open(f"{path}/result.json", "w") as f:
            json.dump(result, f, indent=1)


def add_groups(name, folder, out, seed):
    """The runs' own predictions on the test set, predict.csv, against the truth."""
    _, _, _, truth, groups, _ = load(name, folder)
    for path in glob.glob(f"{out}/*-seed{seed}/predict.csv"):
        file = os.path.join(os.path.dirname(path), "result.json")
        with open(file) as f:
            result = json.load(f)
        table = rows(path)
        names = [h[2:] for h in table[0][3:]]
        predicted = np.array([names.index(r[1]) for r in table[1:]])
        right = predicted == truth
        own = result["test"]["accuracy"]
        assert abs(right.mean() - own) < 1e-6, f"{path}: accuracy {right.mean()}, the run says {own}"
        result["test"]["worst_group_accuracy"] = worst_group(right, groups)
        with open(file, "w") as f:
            json.dump(result, f, indent=1)


def split(path, out, seed):
    table = rows(path)
    label = [r[-1] for r in table]
    parts = train_test_split(table, test_size=1 / 3, stratify=label, random_state=seed)
    os.makedirs(out, exist_ok=True)
    for part, file in zip(parts, ("train.csv", "test.csv")):
        with open(f"{out}/{file}", "w", newline="") as f:
            csv.writer(f).writerows(part)


if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "split":
        split(arguments[0], arguments[1], int(arguments[2]))
    elif command == "peers":
        peers(arguments[0], arguments[1], arguments[2], int(arguments[3]))
    elif command == "groups":
        add_groups(*arguments)
    else:
        sys.exit(__doc__)
