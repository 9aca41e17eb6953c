"""Exported models: onnx's checker, and onnxruntime and the PyTorch module against `dro predict` on the same raw
inputs.

    python3 export_check.py DRO [MODEL...]

Every model of `dro list models` (or those named) after thirty steps of training on small made-up images, a table
with words, numbers and missing values for each link of a loss, and rows. Probabilities may differ by 1e-4;
classes must be the same.
"""
import csv, importlib.util, json, os, random, subprocess, sys, tempfile
import numpy as np, onnx, onnxruntime, torch

MOST = 1e-4
SIDES = {32: 12, 224: 33, 299: 75}  # images as small as a model takes


def dro(*args):
    out = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"export_check: dro {' '.join(map(str, args))}: {out.stderr}")
    return out.stdout


def exported(run):
    path = f"{run}/model.onnx"
    dro("export", "--weights", f"{run}/weights.safetensors", "--onnx", path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options)
    return lambda batch: session.run(None, batch)


def module(run):
    """The PyTorch module as a function like a session's."""
    dro("export", "--weights", f"{run}/weights.safetensors", "--torch", f"{run}/model.py")
    spec = importlib.util.spec_from_file_location("exported", f"{run}/model.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    net = made.load(f"{run}/weights.safetensors")

    def run_it(batch):
        with torch.no_grad():
            shares = net.probabilities(net(torch.from_numpy(batch["pixels"]))).numpy()
        return shares, np.array([made.CLASSES[k] for k in shares.argmax(1)])

    return run_it


def compare(what, session, inputs, spec, run, classes):
    """Both programs' answers for the same examples, in batches of two sizes. session: a function of a batch."""
    dro("predict", "--weights", f"{run}/weights.safetensors", "--data", spec, "--out", f"{run}/answer.csv")
    with open(f"{run}/answer.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    count, parts = len(rows), ([], [])
    for at in range(0, count, 7):
        batch = {k: v[at:at + 7] for k, v in inputs.items()}
        for part, value in zip(parts, session(batch)):
            part.append(value)
    names = list(rows[0])
    if not classes:
        ours = np.array([[float(r[names[-1]])] for r in rows])
        theirs, same = np.concatenate(parts[0]), True
    else:
        ours = np.array([[float(r[n]) for n in names[-classes:]] for r in rows])
        theirs, labels = map(np.concatenate, parts)
        same = [r["class"] for r in rows] == list(labels)
    apart = np.abs(ours - theirs).max() / max(1, np.abs(ours).max())
    print(f"{what}: {count} examples, {apart:.1e} apart, classes {'alike' if same else 'DIFFER'}", flush=True)
    if not (apart <= MOST and same):
        raise SystemExit(f"FAILED: export_check: {what}")


def images(work, name, side):
    run = f"{work}/{name}"
    dro("train", "--data", f"synth:glyphs,n=60,test=8,size={side},classes=5", "--model", name, "--steps", 30,
        "--batch", 8, "--lr", 0.001, "--out", run)
    # Large patches, as pictures have: on noise the rounding of deep networks alone is 1e-4.
    patches = np.random.default_rng(1).integers(0, 256, (40, 3, 4, 4)).astype(np.uint8)
    pixels = patches.repeat(-(-side // 4), 2).repeat(-(-side // 4), 3)[:, :, :side, :side].copy()
    np.save(f"{run}/pixels.npy", pixels)
    for what, session in ((f"{name}, ONNX", exported(run)), (f"{name}, PyTorch", module(run))):
        compare(what, session, {"pixels": pixels.astype(np.float32)}, f"npy:{run}/pixels.npy", run, 5)


def table(work, loss, target):
    random.seed(2)
    run, path, raw = f"{work}/{loss}-{target}", f"{work}/{loss}-{target}.csv", []
    for k in range(400):
        age, pay = random.gauss(40, 12), random.paretovariate(1.1)
        job = random.choice(["clerk", "nurse, night", "smith", "?"])
        raw.append((f"{age:.3f}" if k % 11 else "", f"{pay:.4f}", job if k % 13 else "NA",
                    "yes" if age + pay > 42 else "no", f"{age / 10 + pay:.3f}"))
    keep = 3 if target == "classes" else 4
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", "pay", "job", "label"])
        out.writerows([*r[:3], r[keep]] for r in raw)
    real = ",target=real" if target == "real" else ""
    dro("train", "--data", f"csv:{path},label=label{real}", "--loss", loss, "--epochs", 3, "--out", run)
    raw.append(("1e6", "0", "piper", "no", "1"))  # a number far out, a word that training did not have
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", "pay", "job"])
        out.writerows(r[:3] for r in raw)
    number = lambda k: np.array([[float(r[k] or "nan")] for r in raw], np.float32)
    inputs = {"age": number(0), "pay": number(1), "job": np.array([[r[2]] for r in raw], object)}
    compare(f"table, {loss}, {target}", exported(run), inputs, f"csv:{path}", run, 2 if target == "classes" else 0)


if __name__ == "__main__":
    program = os.path.abspath(sys.argv[1])
    models = json.loads(dro("list", "models", "--json"))
    with tempfile.TemporaryDirectory() as work:
        for model in models:
            name = model["name"]
            if sys.argv[2:] and name not in sys.argv[2:]:
                continue
            images(work, name, SIDES.get(model["input"][1], 12))
        if not sys.argv[2:] or "table" in sys.argv[2:]:
            for loss, target in (("cross-entropy", "classes"), ("logistic", "classes"), ("squared", "classes"),
                                 ("squared", "real")):
                table(work, loss, target)
