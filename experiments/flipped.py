"""Prints how many of the k examples with the largest weights have a flipped label; k is the number of flipped labels.

flipped.py ARM OBJECTIVE FOLDER: reads explain.csv and true.csv of FOLDER, which `dro explain --out` has written
(experiments/flipped.sh)."""
import csv
import os
import sys


def rows(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


arm, objective, folder = sys.argv[1:]
truth = {r["example"]: r["label"] for r in rows(os.path.join(folder, "true.csv"))}
found = rows(os.path.join(folder, "explain.csv"))
wrong = {r["example"] for r in found if r["label"] != truth[r["example"]]}
found.sort(key=lambda r: (-float(r["weight"]), -float(r["loss"])))
top = {r["example"] for r in found[: len(wrong)]}
print(f"{arm} {objective}: {len(wrong)} of {len(found)} labels are wrong; of the {len(wrong)} largest weights "
      f"{100 * len(top & wrong) / max(len(wrong), 1):.1f} % are on wrong labels")
