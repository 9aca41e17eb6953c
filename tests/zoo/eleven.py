"""The eleven problems that a new user found, each on generated data from the zoo: `make first-contact`.

    python3 eleven.py DRO ZOO [NUMBER ...]

Prints for each finding its command and what came of it. Run it with an older program to see what was wrong."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

DRO, ZOO = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
PATIENCE = 300


def data(name, seed=1):
    """A new folder with the data set, where the commands then run."""
    folder = tempfile.mkdtemp(prefix=f"eleven_{name}_")
    subprocess.run([ZOO, name, str(seed), folder], check=True)
    return folder


def spec(folder):
    with open(f"{folder}/about.json", encoding="utf-8") as f:
        name = json.load(f)["spec"]
    return "csv:" + name if name.startswith("train.csv") else name


def dro(folder, *words, show=True):
    """Runs dro in the folder; its output, both streams, and its seconds."""
    if show:
        print("$ dro " + " ".join(words))
    began = time.time()
    try:
        done = subprocess.run([DRO, *words], cwd=folder, text=True, timeout=PATIENCE, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        status, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        status, text = "none after 5 minutes", ""
    return status, text, time.time() - began


def result(folder, run="run"):
    try:
        with open(f"{folder}/{run}/result.json", encoding="utf-8") as f:
            return json.load(f)
    except (OSError, ValueError):
        return None


def say(*words):
    print("  " + " ".join(str(w) for w in words), flush=True)


def lines(text, *parts):
    for line in text.splitlines():
        if any(p in line for p in parts):
            say(line.strip())


def score(folder, *options, run="run"):
    status, text, _ = dro(folder, "train", "--data", spec(folder), "--out", run, "--threads", "1", *options)
    r = result(folder, run)
    if not r:
        say("status", status, text.strip().splitlines()[-1:] or "")
        return None
    t = r["test"]
    name = "auroc" if t.get("auroc") is not None else "accuracy"
    f = [json.loads(line).get("train", {}) for line in open(f"{folder}/{run}/metrics.jsonl", encoding="utf-8")]
    losses = [x["objective"] for x in f if x and x.get("objective") is not None]
    say(f"status {status}, {name} {t[name]:.4f}, worst class {t['worst_class_accuracy']:.4f}, calibration error "
        f"{t['calibration_error']:.4f}" + (f", largest F of the run {max(losses):.4g}" if losses else ""))
    lines(text, "warning", "above its start", "diverg", "halv", "hint")
    return r


def point1():
    """the default run on a table with far outliers"""
    for seed in (1, 2, 3):
        folder = data("credit", seed)
        score(folder, "--seed", str(seed))
        if seed == 1:
            score(folder, "--optimizer", "recover", run="recover")
            score(folder, "--optimizer", "recover", "--lambda", "0.001", run="small")
        shutil.rmtree(folder)


def point2():
    """npy and dense LIBSVM rows are standardised"""
    for name in ("npy-decades", "libsvm-dense"):
        score(data(name))


def point3():
    """rare binary features, in a table and as a stream"""
    folder = data("rare-bits")
    r = score(folder)
    if r:
        say("training loss", r["train"].get("loss"))
    rows = open(f"{folder}/train.csv", encoding="utf-8").read().splitlines()
    with open(f"{folder}/stream.csv", "w", encoding="utf-8") as f:
        f.write("\n".join(rows) + "\n" + "\n".join(rows[1:] * 4) + "\n")
    label = rows[0].split(",")[-1]
    for optimizer in ("recover", "sgd"):
        status, text, _ = dro(folder, "train", "--data", f"csv:stream.csv,label={label}",
                              "--progressive", "--optimizer", optimizer, "--out", f"s-{optimizer}")
        r = result(folder, f"s-{optimizer}")
        say("status", status, "progressive loss", (r or {}).get("test", {}).get("loss"))


def point4():
    """signs whose direction matters"""
    folder = data("arrows")
    for augment in ("auto", "no", "crop", "flip"):
        status, text, _ = dro(folder, "train", "--data", spec(folder), "--augment", augment, "--out", augment)
        r = result(folder, augment)
        say("status", status, "accuracy", r["test"]["accuracy"] if r else text.strip().splitlines()[-1:])
        lines(text, "augment")


def point5():
    """--max-time bounds a run"""
    folder = data("large")
    for model in ("resnet20", "resnet50"):
        status, text, seconds = dro(folder, "train", "--data", spec(folder), "--model", model, "--max-time", "10s",
                                    "--out", model)
        say("status", status, f"{seconds:.0f} s, weights written:",
            os.path.exists(f"{folder}/{model}/weights.safetensors"))


def point6():
    """one set of images, one normalisation, however it is named"""
    folder = data("files")
    for n, words in enumerate((("images:.,size=32",), ("images:.", "--size", "32"),
                               ("images:.", "--size", "32", "--model", "resnet20"),
                               ("images:test", "--init", "n0/weights.safetensors"))):
        status, text, _ = dro(folder, "train", "--data", *words, "--epochs", "1", "--out", f"n{n}")
        say("status", status)
        lines(text, "normalis")


def point7():
    """RECOVER at its default step on a small network with 96 x 96 images"""
    folder = data("large")
    for optimizer in ("recover", "sgd"):
        score(folder, "--model", "glyphnet", "--optimizer", optimizer, run=optimizer)


def point8():
    """--best"""
    folder = data("credit")
    status, text, _ = dro(folder, "train", "--data", spec(folder) + ",holdout=0.2", "--model", "mlp", "--best",
                          "loss", "--out", "run")
    r = result(folder)
    say("status", status, "best:", (r or {}).get("best"), sorted(f for f in os.listdir(folder + "/run") if "safetensors" in f))
    lines(text, "best")
    status, text, _ = dro(folder, "eval", "--weights", "run/weights.safetensors", "--data", spec(folder), "--json")
    for name, figures in (("eval:", json.loads(text)), ("run: ", (r or {}).get("test") or {})):
        say(name, "accuracy", figures.get("accuracy"), "loss", figures.get("loss"))


def point9():
    """probabilities of a model trained with the logit-adjusted loss"""
    folder = data("credit")
    dro(folder, "train", "--data", spec(folder), "--recipe", "imbalanced", "--out", "run")
    asked = spec(folder).split("test=")[1].split(",")[0]
    for prior in ((), ("--prior", "train"), ("--prior", "uniform")):
        status, text, _ = dro(folder, "predict", "--weights", "run/weights.safetensors", "--data", "csv:" + asked,
                              "--out", "p.csv", *prior)
        lines(text, "prior", "rror")
        if status == 0:
            rows = [line.split(",") for line in open(f"{folder}/p.csv", encoding="utf-8").read().splitlines()]
            column = max(k for k, name in enumerate(rows[0]) if name.startswith("p:"))
            p = [float(row[column]) for row in rows[1:]]
            say(f"mean probability of the second class {sum(p) / len(p):.3f}")


def point10():
    """the report: names in both directions, no range of one, a table by group"""
    folder = data("groups")
    rows = open(f"{folder}/train.csv", encoding="utf-8").read().splitlines()
    say("columns:", rows[0][:80])
    dro(folder, "train", "--data", spec(folder) + ",group=x6", "--out", "run")
    dro(folder, "report", "run")
    page = [f for f in os.listdir(folder + "/run") if f.endswith(".html")]
    text = open(f"{folder}/run/{page[0]}", encoding="utf-8").read() if page else ""
    say("43-43" in text, "range of one;", "of each group" in text, "by group;", "recall" in text, "precision-recall;",
        "eliab" in text, "reliability")


def point11():
    """small things that a newcomer meets"""
    folder = data("categories")
    name = spec(folder)
    for words in (("train", "--data", "csv:train.csv,label=wrong"), ("train", "--data", name, "--optimizer", "adam"),
                  ("train", "--data", name, "--model", "resnet19"), ("train", "--data", name, "--model", "resnet20"),
                  ("train", "--data", name, "--set", "batchsize=3"), ("train", "--data", name, "--lr", "0.1", "--epochs", "1")):
        status, text, _ = dro(folder, *words, "--out", "x")
        say("status", status, text.strip().splitlines()[:3])
    with open(f"{folder}/model.pth", "wb") as f:
        f.write(b"PK\3\4" + b"\0" * 100)
    status, text, _ = dro(folder, "train", "--data", name, "--init", "model.pth", "--out", "y")
    say("status", status, text.strip()[:300])
    rows = open(f"{folder}/train.csv", encoding="utf-8").read().splitlines()
    cells = [r.split(",") for r in rows[1:50]]
    category = next(k for k, cell in enumerate(cells[0]) if cell[:1].isalpha())
    unseen = [rows[0]] + [",".join(c[:category] + ["never-seen"] + c[category + 1:]) for c in cells]
    with open(f"{folder}/new.csv", "w", encoding="utf-8") as f:
        f.write("\n".join(unseen) + "\n")
    dro(folder, "train", "--data", name, "--out", "z")
    status, text, _ = dro(folder, "predict", "--weights", "z/weights.safetensors", "--data", "csv:new.csv", "--out", "p.csv")
    say("status", status, text.strip()[:300])
    folder = data("commas")
    status, text, _ = dro(folder, "data", spec(folder))
    say("decimal commas:", text.splitlines()[0])
    status, text, _ = dro(folder, "list", "settings", show=False)
    say("dro list settings has", [w for w in ("eval_train", "checkpoint_every", "deterministic", "tau", "smoothing")
                                  if w in text])


def main():
    for n in [int(w) for w in sys.argv[3:]] or range(1, 12):
        point = globals()[f"point{n}"]
        print(f"\n{n}. {point.__doc__}", flush=True)
        try:
            point()
        except Exception as e:  # an older program: show what it did, and go on
            say("stopped:", repr(e)[:200])


main()
