"""The zoo (`make zoo`): the default `dro train` beside scikit-learn on awkward data sets, paired over seeds.

    zoo.py DRO ZOO [--only NAME,NAME] [--seeds N] [--jobs N] [--json FILE] [-- OPTIONS OF EVERY dro train]

Tables: AUROC (accuracy for more classes) and calibration error beside a standardised LogisticRegression; with
`--recipe imbalanced` the balanced accuracy beside class_weight="balanced"; `--model mlp` beside MLPClassifier.
Images: the default beside our own SGD without augmentation, `images` seeds each. For every row: the mean difference,
the lower 95 % bound of it over the seeds (Student's t), and the ratio of the calibration errors. A run that fails,
diverges or ends above its start is counted. Ends with status 1 if a row is not good enough."""
import argparse
import concurrent.futures
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")
MARGIN, IMAGE_MARGIN, CALIBRATION_MOST, CALIBRATION_FLOOR = 0.005, 0.02, 2.0, 0.02
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}


def calibration_error(p, y):
    """Expected, over 15 bins of the largest probability: as dro reports it."""
    best, top = p.argmax(axis=1), p.max(axis=1)
    bins = np.minimum((top * 15).astype(int), 14)
    error = 0.0
    for b in range(15):
        inside = bins == b
        if inside.any():
            error += inside.mean() * abs(top[inside].mean() - (best[inside] == y[inside]).mean())
    return error


def balanced(prediction, y):
    return float(np.mean([(prediction[y == c] == c).mean() for c in np.unique(y)]))


def score(p, y, classes):
    from sklearn.metrics import roc_auc_score
    return roc_auc_score(y, p[:, 1]) if classes == 2 else float((p.argmax(axis=1) == y).mean())


def load(folder, about):
    if about["spec"].startswith("libsvm"):
        from sklearn.datasets import load_svmlight_file
        x, y = load_svmlight_file(f"{folder}/train.svm")
        xt, yt = load_svmlight_file(f"{folder}/test.svm", n_features=x.shape[1])
        dense = x.nnz > 0.5 * x.shape[0] * x.shape[1]
        return (x.toarray(), y, xt.toarray(), yt) if dense else (x, y, xt, yt)
    a, b = np.load(f"{folder}/peer_train.npy"), np.load(f"{folder}/peer_test.npy")
    return a[:, :-1], a[:, -1], b[:, :-1], b[:, -1]


def prepared(folder, about):
    """Standardised numbers (the mean where missing), one-hot categories."""
    from scipy import sparse
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    x, y, xt, yt = load(folder, about)
    if sparse.issparse(x):
        scaler = StandardScaler(with_mean=False).fit(x)
        return scaler.transform(x), y.astype(int), scaler.transform(xt), yt.astype(int)
    categories = about.get("categories", [])
    numbers = [c for c in range(x.shape[1]) if c not in categories]
    t = ColumnTransformer([("n", make_pipeline(SimpleImputer(), StandardScaler()), numbers),
                           ("c", OneHotEncoder(handle_unknown="ignore"), categories)])
    return t.fit_transform(x), y.astype(int), t.transform(xt), yt.astype(int)


def peers(folder, about, seed):
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    x, y, xt, yt = prepared(folder, about)
    models = {"linear": LogisticRegression(max_iter=1000)}
    if "recipe" in about["also"]:
        models["recipe"] = LogisticRegression(max_iter=1000, class_weight="balanced")
    if "mlp" in about["also"]:
        models["mlp"] = MLPClassifier((128, 64), random_state=seed)
    out = {}
    for name, model in models.items():
        model.fit(x, y)
        p = model.predict_proba(xt)
        out[name] = {"score": balanced(p.argmax(axis=1), yt) if name == "recipe"
                     else score(p, yt, about["classes"]),
                     "calibration": calibration_error(p, yt)}
    return out


def run(dro, folder, name, options):
    """One run of dro: its figures, and what went wrong."""
    out = f"{folder}/{name}"
    began = time.time()
    done = subprocess.run([dro, "train", *options, "--out", out, "--threads", "1"], cwd=folder,
                          capture_output=True, text=True)
    trouble = done.stderr if done.returncode else ""
    for word in ("diverged", "above its start", "ended above"):
        if word in done.stderr or word in done.stdout:
            trouble = done.stderr
    try:
        with open(f"{out}/result.json", encoding="utf-8") as f:
            result = json.load(f)
    except OSError:
        return {"score": 0.0, "calibration": 1.0, "balanced": 0.0, "accuracy": 0.0,
                "trouble": done.stderr or "no result"}
    test = result["test"]
    return {"score": test["auroc"] if test.get("auroc") is not None else test["accuracy"],
            "calibration": test["calibration_error"], "balanced": test["balanced_accuracy"],
            "accuracy": test["accuracy"], "loss": test["loss"], "trouble": trouble,
            "seconds": time.time() - began}


def one_table(dro, folder, about, seed, more):
    spec = ["--data", about["spec"], "--seed", str(seed), *more]
    rows = {}
    theirs = peers(folder, about, seed)
    for name, options in (("linear", []), ("recipe", ["--recipe", "imbalanced"]),
                          ("mlp", ["--model", "mlp"])):
        if name not in theirs:
            continue
        ours = run(dro, folder, name, spec + options)
        if name == "recipe":
            ours["score"] = ours["balanced"]
        rows[name] = (ours, theirs[name])
    return rows


def one_picture(dro, folder, about, seed, more):
    spec = ["--data", about["spec"], "--seed", str(seed), *more]
    ours = run(dro, folder, "own", spec)
    plain = run(dro, folder, "sgd", spec + ["--optimizer", "sgd", "--augment", "no"])
    ours["score"], plain["score"] = ours["accuracy"], plain["accuracy"]
    return {"images": (ours, plain)}


def one(dro, zoo, name, seed, more):
    folder = tempfile.mkdtemp(prefix=f"zoo_{name}_")
    try:
        subprocess.run([zoo, name, str(seed), folder], check=True)
        with open(f"{folder}/about.json", encoding="utf-8") as f:
            about = json.load(f)
        rows = (one_picture if about.get("images") else one_table)(dro, folder, about, seed, more)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return name, seed, rows


def summary(name, kind, pairs):
    """A line of the table, and whether it is good enough."""
    difference = np.array([a["score"] - b["score"] for a, b in pairs])
    n = len(difference)
    spread = difference.std(ddof=1) / math.sqrt(n) if n > 1 else 0.0
    lower = difference.mean() - T95.get(n - 1, 2.0) * spread
    ours = np.mean([a["calibration"] for a, _ in pairs])
    theirs = np.mean([b["calibration"] for _, b in pairs])
    troubles = [a["trouble"] for a, _ in pairs if a["trouble"]]
    images, weighed = kind == "images", kind == "recipe"
    fine = lower > -(IMAGE_MARGIN if images else MARGIN) and not troubles
    calibrated = images or weighed or ours <= max(CALIBRATION_MOST * theirs, CALIBRATION_FLOOR)
    line = (f"{name:14} {kind:7} {np.mean([a['score'] for a, _ in pairs]):.4f} "
            f"{np.mean([b['score'] for _, b in pairs]):.4f} {difference.mean():+.4f} {lower:+.4f}  "
            f"{ours:.4f} {theirs:.4f}  {len(troubles)}  "
            f"{'' if fine else 'BELOW '}{'' if calibrated else 'CALIBRATION'}")
    return line.rstrip(), fine and calibrated, troubles


def main():
    p = argparse.ArgumentParser()
    p.add_argument("dro")
    p.add_argument("zoo")
    p.add_argument("--only", default="")
    p.add_argument("--seeds", type=int, default=10)
    p.add_argument("--image-seeds", type=int, default=3)
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--json", default="")
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    a = p.parse_args(words[:cut])
    a.more = words[cut + 1:]
    a.dro, a.zoo = os.path.abspath(a.dro), os.path.abspath(a.zoo)
    listed = [line.split(":")[0].split() for line in
              subprocess.run([a.zoo], capture_output=True, text=True, check=True).stdout.splitlines()]
    only = [w for w in a.only.replace(",", " ").split() if w]
    unknown = [w for w in only if w not in [n for _, n in listed] + ["tables", "images"]]
    if unknown:
        sys.exit(f"zoo: no data set {unknown[0]}")
    wanted = [(k, n) for k, n in listed if not only or n in only or
              (k == "table" and "tables" in only) or (k == "images" and "images" in only)]
    tasks = [(n, s) for k, n in wanted
             for s in range(1, 1 + (a.seeds if k == "table" else min(a.seeds, a.image_seeds)))]
    print(f"{'':14} {'':7} {'dro':6} {'peer':6} {'mean':7} {'lower':7}  calibration    troubles",
          flush=True)
    results, all_fine, seen = {}, True, {}
    with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool:
        futures = [pool.submit(one, a.dro, a.zoo, n, s, a.more) for n, s in tasks]
        for future in concurrent.futures.as_completed(futures):
            name, _, rows = future.result()
            results.setdefault(name, []).append(rows)
            seen[name] = seen.get(name, 0) + 1
            if seen[name] < sum(n == name for n, _ in tasks):
                continue
            for kind in results[name][0]:
                line, fine, troubles = summary(name, kind, [r[kind] for r in results[name]])
                print(line, flush=True)
                for text in troubles[:1]:
                    print("    " + text.strip().splitlines()[-1][:160], flush=True)
                all_fine = all_fine and fine
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump(results, f)
    print("zoo: all good" if all_fine else "zoo: NOT good enough")
    sys.exit(0 if all_fine else 1)


if __name__ == "__main__":
    main()
