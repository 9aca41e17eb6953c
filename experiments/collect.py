"""Copies what the documents need of an experiment's runs: collect.py FROM TO, folders (experiments/collect.sh).

Of every run result.json, without the confusion matrix and with files named without their folders, in one line; of
every sweep best.json, what the holdout chose, and scores.json, what it chose from: the settings in which its runs
differ and the figure of each on the holdout. With --curves also metrics.jsonl, as far as figures use it. The runs of
sweeps themselves (folders tune-*) stay behind; where they are gone there is no scores.json."""
import json
import os
import re
import sys


def plain(value):
    """Without confusion matrices; "cifar10:/a/b,x=1" becomes "cifar10:b,x=1"; numbers as they are."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k != "confusion"}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, str):
        return re.sub(r"[^:,=]*/(?=[^/])", "", value)
    return value


def point(line):
    """One evaluation: the columns of src/train/report.h."""
    e = json.loads(line)
    kept = {k: e[k] for k in ("step", "examples", "seconds", "largest_weight", "effective") if k in e}
    if e.get("train"):
        kept["train"] = {"objective": e["train"]["objective"]}
    names = ("accuracy", "balanced_accuracy", "worst_class_accuracy")
    kept["test"] = {k: e["test"][k] for k in names}
    return kept


def read(path):
    with open(path) as f:
        try:
            return json.load(f)
        except ValueError as error:
            sys.exit(f"{path}: {error}: remove that run's folder and run its script again")


def flat(settings):
    """A run's settings with those of its optimiser and its network in one."""
    together = {k: v for k, v in settings.items() if not isinstance(v, dict)}
    for part in settings.values():
        together.update(part if isinstance(part, dict) else {})
    return together


def scores(folder, by):
    """Of a sweep's folder: the runs' settings, as far as they differ, and `by` on the holdout, or "diverged"."""
    runs = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name, "result.json")
        if os.path.isfile(path):
            runs.append(read(path))
    settings = [flat(r["settings"]) for r in runs]
    differ = [k for k in (settings[0] if runs else ()) if any(s[k] != settings[0][k] for s in settings)]
    figures = ["diverged" if r["ended"] == "diverged" else r["holdout"][by] for r in runs]
    return [{**{k: s[k] for k in differ}, by: figure} for s, figure in zip(settings, figures)]


def write(path, values):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        for value in values:
            f.write(json.dumps(value, separators=(",", ":")) + "\n")


def copy(source, target, curves):
    for folder, _, files in sorted(os.walk(source)):
        to = os.path.join(target, os.path.relpath(folder, source))
        tuning = "/tune-" in folder + "/"
        for name in ("best.json", "result.json"):
            if name in files and (name == "best.json" or not tuning):
                value = read(os.path.join(folder, name))
                write(os.path.join(to, name), [plain(value)])
                tried = scores(folder, value["sweep"]["by"]) if name == "best.json" else []
                if tried:
                    write(os.path.join(to, "scores.json"), [tried])
        if curves and "metrics.jsonl" in files and not tuning:
            with open(os.path.join(folder, "metrics.jsonl")) as f:
                write(os.path.join(to, "metrics.jsonl"), [point(line) for line in f])


if __name__ == "__main__":
    words = [w for w in sys.argv[1:] if w != "--curves"]
    if len(words) != 2 or not os.path.isdir(words[0]):
        sys.exit(__doc__)
    copy(words[0], words[1], "--curves" in sys.argv)
