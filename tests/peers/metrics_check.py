"""metrics_check.py DRO: trains on made-up tables, predicts, and compares what `dro eval` says with scikit-learn's
figures of the same predictions: accuracy, balanced accuracy, macro F1, AUROC, confusion matrix, log loss; the
calibration error with its definition in NumPy."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from sklearn import metrics


def run(*words):
    return subprocess.run([sys.argv[1], *words], check=True, capture_output=True, text=True).stdout


def write_table(path, rng, rows, classes):
    x = rng.normal(size=(rows, 4))
    score = x @ rng.normal(size=(4, classes)) + rng.gumbel(size=(rows, classes)) - np.arange(classes)
    y = score.argmax(1)
    with open(path, "w") as out:
        out.write("a,b,c,d,y\n")
        for row, label in zip(x, y):
            out.write(",".join(f"{v:.6f}" for v in row) + f",k{label}\n")
    return [f"k{label}" for label in y]


def calibration(p, hit, bins=15):
    place = np.minimum(np.ceil(p * bins).astype(int) - 1, bins - 1)
    return sum(abs(hit[place == k].sum() - p[place == k].sum()) for k in range(bins)) / len(p)


def compare(name, ours, theirs, tolerance=1e-6):
    if not np.allclose(ours, theirs, rtol=0, atol=tolerance):
        sys.exit(f"FAILED: {name}: {ours}, scikit-learn has {theirs}")


def check(folder, classes):
    rng = np.random.default_rng(classes)
    table = os.path.join(folder, f"{classes}.csv")
    names = write_table(table, rng, 2000, classes)
    data = f"csv:{table},label=y"
    out = os.path.join(folder, f"run{classes}")
    run("train", "--data", data, "--epochs", "2", "--threads", "1", "--json", "--out", out)
    weights = os.path.join(out, "weights.safetensors")
    ours = json.loads(run("eval", "--weights", weights, "--data", data, "--split", "train", "--json"))
    rows = json.loads(run("predict", "--weights", weights, "--data", data, "--split", "train", "--json"))
    labels = ours["classes"]
    truth = np.array([labels.index(names[row["example"]]) for row in rows])
    p = np.array([row["probabilities"] for row in rows])
    guess = p.argmax(1)
    compare("accuracy", ours["accuracy"], metrics.accuracy_score(truth, guess))
    compare("balanced accuracy", ours["balanced_accuracy"], metrics.balanced_accuracy_score(truth, guess))
    compare("macro F1", ours["macro_f1"], metrics.f1_score(truth, guess, average="macro"))
    compare("confusion", ours["confusion"], metrics.confusion_matrix(truth, guess))
    compare("per class", ours["per_class"], metrics.recall_score(truth, guess, average=None))
    compare("loss", ours["loss"], metrics.log_loss(truth, p), 1e-5)
    compare("calibration", ours["calibration_error"], calibration(p.max(1), guess == truth), 1e-5)
    if classes == 2:
        compare("AUROC", ours["auroc"], metrics.roc_auc_score(truth, p[:, 1]))
    print(f"{classes} classes: accuracy {ours['accuracy']:.4f}, all figures agree")


with tempfile.TemporaryDirectory() as folder:
    for count in (2, 3, 7):
        check(folder, count)
