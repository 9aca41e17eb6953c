"""The zoo (`make zoo`): the default `dro train` against scikit-learn on awkward data sets, paired over seeds.

    zoo.py DRO ZOO [--only NAME,...] [--seeds N] [--jobs N] [--limit SECONDS] [--into FILE#NAME] [-- OPTIONS OF dro train]

Tables: AUROC (accuracy for more classes) and calibration error against a standardised LogisticRegression; with
`--recipe imbalanced` the balanced accuracy against class_weight="balanced"; `--model mlp` against MLPClassifier.
Images: the accuracy of the default against our own SGD without augmentation. For every row: the mean difference, the
lower 95 % bound of it over the seeds (Student's t), and the calibration errors. A run that fails, diverges or ends above
its start is counted. BELOW: the bound of a table is below -0.005, or the mean of an image set below -0.02.

Each result is kept in zoo.jsonl beside the program, so the same command resumes: `--limit` starts nothing more after
so many seconds. Another program, or other options, begin anew. Needs numpy and scikit-learn, and no network. Writes
the table to zoo.txt as well, with the rows that are not good enough at its end. Status 1: there are such rows;
3: the limit was reached."""
import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")
import numpy as np

warnings.filterwarnings("ignore")
LONGEST = ("large", "many", "files", "two", "million", "wide", "hundred", "ratio-1000", "rare-pairs", "twelve",
           "credit", "heavy", "rare-bits")
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
    done = subprocess.run([dro, "train", *options, "--out", out, "--threads", "1"], cwd=folder,
                          capture_output=True, text=True)
    trouble = done.stderr if done.returncode else ""
    if re.search(r"diverged|ended at \S+, above the ", done.stderr + done.stdout):
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
            "accuracy": test["accuracy"], "loss": test["loss"], "trouble": trouble}


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


def cpu_seconds():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def one(dro, zoo, name, seed, more):
    folder = tempfile.mkdtemp(prefix=f"zoo_{name}_")
    began = cpu_seconds()
    try:
        subprocess.run([zoo, name, str(seed), folder], check=True)
        with open(f"{folder}/about.json", encoding="utf-8") as f:
            about = json.load(f)
        rows = (one_picture if about.get("images") else one_table)(dro, folder, about, seed, more)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"name": name, "seed": seed, "cpu_seconds": round(cpu_seconds() - began, 1), "rows": rows}


def summary(kind, pairs):
    """The figures of a row of the table, and what is not good enough about it."""
    difference = np.array([a["score"] - b["score"] for a, b in pairs])
    n = len(difference)
    spread = difference.std(ddof=1) / math.sqrt(n) if n > 1 else 0.0
    lower = difference.mean() - T95.get(n - 1, 2.0) * spread
    ours = np.mean([a["calibration"] for a, _ in pairs])
    theirs = np.mean([b["calibration"] for _, b in pairs])
    troubles = [a["trouble"] for a, _ in pairs if a["trouble"]]
    images, weighed = kind == "images", kind == "recipe"
    wrong = []
    if difference.mean() < -IMAGE_MARGIN if images else lower < -MARGIN:
        wrong.append("BELOW")
    if not images and not weighed and ours > max(CALIBRATION_MOST * theirs, CALIBRATION_FLOOR):
        wrong.append("CALIBRATION")
    if troubles:
        wrong.append("TROUBLE")
    return [np.mean([a["score"] for a, _ in pairs]), np.mean([b["score"] for _, b in pairs]), difference.mean(), lower,
            ours, theirs, n, len(troubles)], " ".join(wrong), troubles


def line_of(name, kind, figures, wrong):
    dro, peer, mean, lower, ours, theirs, n, troubles = figures
    return (f"{name:14} {kind:7} {dro:.4f} {peer:.4f} {mean:+.4f} {lower:+.4f}  {ours:.4f} {theirs:.4f} {n:5} {troubles:8}"
            f"  {wrong}").rstrip()


HEAD = f"{'':14} {'':7} {'dro':6} {'peer':6} {'mean':7} {'lower':7}  calibration   seeds troubles"


def markdown(table, seeds):
    out = ["| data set | what | dro | reference | difference | lower bound | calibration error | of the reference |",
           "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, kind, figures, wrong in table:
        dro, peer, mean, lower, ours, theirs, _, _ = figures
        mark = "**" if "BELOW" in wrong else ""
        rough = "**" if "CALIBRATION" in wrong else ""
        out.append(f"| {name} | {kind} | {dro:.4f} | {peer:.4f} | {mean:+.4f} | {mark}{lower:+.4f}{mark} "
                   f"| {rough}{ours:.4f}{rough} | {theirs:.4f} |")
    runs = sum(row[2][6] for row in table)
    troubles = sum(row[2][7] for row in table)
    out.append("")
    out.append(f"{runs} runs, {seeds} seeds each: {troubles} failed, diverged or ended with a loss that is "
               f"too high. Of {len(table)} rows {sum('BELOW' in row[3] for row in table)} missed the target for the "
               f"difference, {sum('CALIBRATION' in row[3] for row in table)} the one for calibration.")
    return "\n".join(out) + "\n"


def write_into(where, text):
    """Replaces what stands between <!-- NAME --> and <!-- end --> of a document."""
    file, name = where.split("#")
    with open(file, encoding="utf-8") as f:
        page = f.read()
    mark = f"<!-- {name} -->\n"
    start = page.index(mark) + len(mark)
    end = page.index("<!-- end -->", start)
    with open(file, "w", encoding="utf-8") as f:
        f.write(page[:start] + text + page[end:])


def fingerprint(dro, zoo, more):
    mark = hashlib.sha256(repr(more).encode())
    for program in (dro, zoo):
        with open(program, "rb") as f:
            mark.update(f.read())
    return mark.hexdigest()[:16]


def kept(path, mark):
    """What an earlier call of the same program has done, by name and seed."""
    done = {}
    try:
        with open(path, encoding="utf-8") as f:
            for line in f:
                try:
                    result = json.loads(line)
                except ValueError:
                    continue
                if result["program"] == mark:
                    done[result["name"], result["seed"]] = result
    except OSError:
        pass
    return done


def run_all(a, tasks, done, mark, path):
    """Runs what is not done yet; how many tasks the limit left out."""
    began, missing = time.time(), [t for t in tasks if t not in done]
    missing.sort(key=lambda t: (LONGEST.index(t[0]) if t[0] in LONGEST else len(LONGEST), t[1]))
    waiting, running, count = missing[::-1], set(), 0
    print(f"zoo: {len(tasks) - len(missing)} of {len(tasks)} done before; {len(missing)} to do, {a.jobs} at a time",
          flush=True)
    with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool, open(path, "a", encoding="utf-8") as log:
        while waiting or running:
            late = a.limit and time.time() - began > a.limit
            while waiting and not late and len(running) < a.jobs:
                running.add(pool.submit(one, a.dro, a.zoo, *waiting.pop(), a.more))
            if not running:
                break
            ended, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ended:
                result = {**future.result(), "program": mark}
                log.write(json.dumps(result) + "\n")
                log.flush()
                done[result["name"], result["seed"]] = result
                count += 1
                if count % 20 == 0:
                    print(f"zoo: {count} of {len(missing)} done, {time.time() - began:.0f} s", flush=True)
    return len(waiting)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("dro")
    p.add_argument("zoo")
    p.add_argument("--only", default="")
    p.add_argument("--seeds", type=int, default=10)
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--limit", type=float, default=0)
    p.add_argument("--into", default="")
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
    wanted = [n for k, n in listed if not only or n in only or (k if k == "images" else "tables") in only]
    tasks = [(n, s) for n in wanted for s in range(1, 1 + a.seeds)]
    mark, path = fingerprint(a.dro, a.zoo, a.more), os.path.dirname(a.dro) + "/zoo.jsonl"
    done = kept(path, mark)
    left = run_all(a, tasks, done, mark, path)
    table, output = [], [HEAD]
    for name in wanted:
        results = [done[t] for t in tasks if t[0] == name and t in done]
        for kind in results[0]["rows"] if results else []:
            figures, wrong, troubles = summary(kind, [r["rows"][kind] for r in results])
            table.append((name, kind, figures, wrong))
            output.append(line_of(*table[-1]))
            output += ["    " + text.strip().splitlines()[-1][:160] for text in troubles[:1]]
    bad = [row for row in table if row[3]]
    minutes = sum(done[t]["cpu_seconds"] for t in tasks if t in done) / 60
    output += ["", f"{len(table)} rows, {minutes:.0f} core-minutes; {len(bad)} are not good enough:" if bad else
               f"{len(table)} rows, {minutes:.0f} core-minutes; all good"]
    output += [line_of(*row) for row in bad]
    if left:
        output.append(f"zoo: {left} of {len(tasks)} not done yet: run the same command again")
    text = "\n".join(output) + "\n"
    print(text, end="", flush=True)
    with open(os.path.dirname(a.dro) + "/zoo.txt", "w", encoding="utf-8") as f:
        f.write(text)
    if a.into and not left:
        write_into(a.into, markdown(table, a.seeds))
    sys.exit(3 if left else 1 if bad else 0)


if __name__ == "__main__":
    main()
