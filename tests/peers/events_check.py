"""events_check.py DRO: TensorBoard's own reader on the event files of runs. Every figure of metrics.jsonl must be
there under its tag, once for each evaluation, also when the run was stopped and went on."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

OPTIMIZER = ["eta", "lambda", "a", "log_u", "loss", "objective", "largest_weight", "effective", "caps",
             "floors", "fresh_starts", "examples", "epoch"]
SPLIT = ["objective", "loss", "accuracy", "balanced_accuracy", "worst_class_accuracy", "worst_group_accuracy",
         "macro_f1", "auroc", "calibration_error"]


def expected(line, classes, groups):
    """The scalars that the event of a line of metrics.jsonl must hold."""
    out = {f"optimizer/{name}": line[name] for name in OPTIMIZER}
    for heading, key, names in (("class", "class_weights", classes), ("group", "group_weights", groups)):
        for name, value in zip(names, line.get(key) or []):
            out[f"{heading}_weight/{name}"] = value
    for split in ("train", "test", "holdout", "window"):
        figures = line.get(split) or {}
        for name in SPLIT:
            out[f"{split}/{name}"] = figures.get(name)
        for name, value in zip(classes, figures.get("per_class", [])):
            out[f"{split}_class_accuracy/{name}"] = value
        for name, value in zip(groups, figures.get("per_group", [])):
            out[f"{split}_group_accuracy/{name}"] = value
    return {tag: value for tag, value in out.items() if value is not None}


def check(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    with open(os.path.join(folder, "result.json")) as file:
        result = json.load(file)
    path = os.path.join(folder, "events.out.tfevents.dro")
    events = list(EventFileLoader(path).Load())
    assert events[0].file_version == "brain.Event:2", events[0]
    board = EventAccumulator(folder, size_guidance={"scalars": 0})
    board.Reload()
    scalars = {}
    for tag in board.Tags()["scalars"]:
        for e in board.Scalars(tag):
            assert (e.step, tag) not in scalars, f"{tag} twice at step {e.step}"
            scalars[e.step, tag] = e.value
    wanted = {}
    for line in lines:
        for tag, value in expected(line, result["classes"], result.get("groups", [])).items():
            wanted[line["step"], tag] = value
    extra = {key for key in scalars if key not in wanted and not key[1].startswith("train/")
             and not key[1].startswith("train_")}
    assert not extra, extra
    for key, value in wanted.items():
        assert key in scalars, f"{key} is missing"
        assert abs(scalars[key] - value) <= 1e-6 * max(1, abs(value)), (key, scalars[key], value)
    print(f"  {os.path.basename(folder)}: {len(lines)} events, {len({t for _, t in wanted})} tags, all as in "
          "metrics.jsonl")


def train(*words):
    return subprocess.Popen([sys.argv[1], "train", "--threads", "1", *words], stdout=subprocess.DEVNULL)


def wait_for(path):
    for _ in range(400):
        if os.path.exists(path) and os.path.getsize(path):
            return
        time.sleep(0.02)
    sys.exit(f"FAILED: {path} does not come")


def main():
    with tempfile.TemporaryDirectory() as folder:
        glyphs = ["--data", "synth:glyphs,n=300,test=60,size=12,classes=3,holdout=0.2", "--epochs", "40",
                  "--out", os.path.join(folder, "images"), "--set", "checkpoint_every=0"]
        first = train(*glyphs)
        wait_for(os.path.join(folder, "images", "metrics.jsonl"))
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert train(*glyphs, "--resume").wait() == 0
        check(os.path.join(folder, "images"))
        table = os.path.join(folder, "t.csv")
        with open(table, "w") as file:
            file.write("x,place,y\n")
            for k in range(400):
                file.write(f"{(k * 37 % 100) / 50 - 1},p{k % 3},{'ja' if (k * 37 + k % 3 * 20) % 100 > 60 else 'nein'}\n")
        for tilt in ("example", "class", "group"):
            out = os.path.join(folder, tilt)
            assert train("--data", f"csv:{table},label=y,group=place,test={table}", "--tilt", tilt, "--epochs", "3",
                         "--out", out).wait() == 0
            check(out)


main()
