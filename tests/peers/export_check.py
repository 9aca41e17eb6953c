"""Exported models: onnx's checker, and onnxruntime and the PyTorch module against `dro predict` on the same raw
inputs, as a table.

    python3 export_check.py DRO [--models NAME,...] [--images N] [--usual] [--cifar DIR] [--adult DIR] [--no-torch]

Models: those of `dro list models`, `table` (words, numbers and missing values, for each link of a loss) and `adult`;
all that can be had by default. Each is trained for thirty steps first. Images: N for each model (40). Without
options they are small and made up. --usual: as large as the model was made for. --cifar: a folder with CIFAR-10's
binary version; models made for 32 x 32 images, `linear` and `mlp` are trained and compared on it. --adult: a folder
with adult-train.csv and adult-test.csv; all raw rows of the latter are compared. --no-torch: ONNX only.

Probabilities may differ by 1e-4. Classes must be the same, except where two probabilities are within 1e-4 of each other
(tied).
"""
import argparse, collections, csv, importlib.util, json, os, random, subprocess, tempfile, time
import numpy as np, onnx, onnxruntime

MOST = 1e-4
SMALL = {32: 12, 224: 33, 299: 75}  # images as small as a model takes
AT_ONCE = 500                       # images in a file
BATCHES = 7, 50                     # the first batch and the others


def dro(*args):
    out = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"export_check: dro {' '.join(map(str, args))}: {out.stderr}")
    return out.stdout


# ---- the other programs: functions of a batch ----

def exported(run):
    path = f"{run}/model.onnx"
    dro("export", "--weights", f"{run}/weights.safetensors", "--onnx", path)
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda batch: session.run(None, batch)


def module(run):
    import torch
    dro("export", "--weights", f"{run}/weights.safetensors", "--torch", f"{run}/model.py")
    spec = importlib.util.spec_from_file_location("exported", f"{run}/model.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    net = made.load(f"{run}/weights.safetensors")

    def run_it(batch):
        with torch.no_grad():
            logits = net(torch.from_numpy(batch["pixels"]))
            shares, best = net.probabilities(logits).numpy(), net.classes(logits).tolist()
        return shares, np.array([made.CLASSES[k] for k in best])

    return run_it


# ---- comparing ----

def predicted(run, spec, classes):
    """Ours: probabilities and classes, or numbers and no classes."""
    answer = f"{run}/answer.csv"
    dro("predict", "--weights", f"{run}/weights.safetensors", "--data", spec, "--out", answer)
    with open(answer, newline="") as file:
        rows = list(csv.DictReader(file))
    columns = list(rows[0])[-max(1, classes):]
    return np.array([[float(r[n]) for n in columns] for r in rows]), [r["class"] for r in rows] if classes else []


class Comparison:
    """One row of the table: how far apart ours and each of the others are."""

    def __init__(self, what, shape, run, others, classes):
        self.what, self.shape, self.run, self.others, self.classes = what, shape, run, others, classes
        self.apart, self.differ, self.tied = (dict.fromkeys(others, zero) for zero in (0.0, 0, 0))
        self.count, self.seen, self.began = 0, collections.Counter(), time.time()

    def add(self, inputs, spec):
        ours, labels = predicted(self.run, spec, self.classes)
        for name, other in self.others.items():
            theirs, their_labels = self.ask(other, inputs, len(ours))
            self.apart[name] = max(self.apart[name], np.abs(ours - theirs).max() / max(1, np.abs(ours).max()))
            if labels:
                other_class = np.array([a != b for a, b in zip(labels, their_labels)])
                second, first = np.sort(ours)[:, -2:].T
                self.tied[name] += (other_class & (first - second <= MOST)).sum()
                self.differ[name] += (other_class & (first - second > MOST)).sum()
        self.count += len(ours)
        self.seen.update(labels)

    @staticmethod
    def ask(other, inputs, count):
        parts, at, size = ([], []), 0, BATCHES[0]
        while at < count:
            for part, value in zip(parts, other({k: v[at:at + size] for k, v in inputs.items()})):
                part.append(value)
            at, size = at + size, BATCHES[1]
        return [np.concatenate(part) if part else [] for part in parts]

    def cell(self, name):
        tied = f" ({self.tied[name]} tied)" if self.tied[name] else ""
        return f"{self.apart[name]:.1e}, {self.differ[name]}{tied}"

    def report(self):
        cells = [self.cell(n) if n in self.apart else "" for n in ("onnx", "torch")]
        print(f"| {self.what} | {self.shape} | {self.count} | {' | '.join(cells)} | {len(self.seen) or ''} |"
              f" {time.time() - self.began:.0f} |", flush=True)
        return max(self.apart.values()) <= MOST and not any(self.differ.values())


# ---- images ----

def made_up(side, count=None):
    """Large patches, as pictures have: on noise the rounding of deep networks alone is 1e-4."""
    draw, each, count = np.random.default_rng(1), -(-side // 4), count or args.images
    for at in range(0, count, AT_ONCE):
        patches = draw.integers(0, 256, (min(AT_ONCE, count - at), 3, 4, 4)).astype(np.uint8)
        yield np.ascontiguousarray(patches.repeat(each, 2).repeat(each, 3)[:, :, :side, :side])


def cifar(name):
    """The labels and the images of one of its files."""
    records = np.fromfile(f"{args.cifar}/{name}.bin", np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 0].astype(np.int32), records[:, 1:].reshape(-1, 3, 32, 32)


def train_cifar(name, run, files):
    if not os.path.exists(f"{files}/x.npy"):
        for file, batch, count in ("", "data_batch_1", 4000), ("test_", "test_batch", 100):
            labels, pixels = cifar(batch)
            np.save(f"{files}/{file}x.npy", pixels[:count])
            np.save(f"{files}/{file}y.npy", labels[:count])
    data = ",".join(f"{k}={files}/{v}.npy" for k, v in
                    (("labels", "y"), ("test", "test_x"), ("test_labels", "test_y")))
    dro("train", "--data", f"npy:{files}/x.npy,{data}", "--model", name, "--steps", 30, "--batch", 64, "--out", run)


def train_made_up(name, run, side):
    """Thirty steps on small images, which are cheap; then, where it is to take larger ones, one on those. Inception v3
    has more tensors from 299 x 299 on, so it takes all its steps there."""
    small = side if side > 256 else min(side, SMALL.get(side, side))
    first = run if small == side else f"{run}-small"
    data = f"synth:glyphs,n=60,test=8,classes=5,size={small}"
    if side > 256:  # glyphs are not as large
        os.makedirs(f"{run}-data")
        np.save(f"{run}-data/x.npy", next(made_up(side, 40)))
        np.save(f"{run}-data/y.npy", np.arange(40) % 5)
        data = f"npy:{run}-data/x.npy,labels={run}-data/y.npy"
    dro("train", "--data", data, "--model", name, "--steps", 30, "--batch", 8, "--lr", 0.001, "--out", first)
    if small != side:
        dro("train", "--data", f"synth:glyphs,n=60,test=8,classes=5,size={side}", "--model", name, "--steps", 1,
            "--batch", 4, "--lr", 1e-5, "--init", f"{first}/weights.safetensors", "--out", run)


def balance(run, side, classes):
    """Shifts the last biases until the classes are about equally probable for made-up images: a network that has
    hardly been trained gives all of them the same class."""
    path, pixels = f"{run}/weights.safetensors", next(made_up(side))[:40]
    np.save(f"{run}/pixels.npy", pixels)
    shares, _ = predicted(run, f"npy:{run}/pixels.npy", classes)
    with open(path, "rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    del head["__metadata__"]["dro.checksum"]
    places = [t["data_offsets"][0] for tensor, t in head.items()
              if tensor.endswith(".bias") and t["shape"] == [classes] and "Aux" not in tensor]
    biases = np.frombuffer(data, np.float32, classes, places[-1])
    biases -= np.log(np.maximum(shares, 1e-6)).mean(0).astype(np.float32)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def images(work, name, made_for):
    run, real = f"{work}/{name}", args.cifar and made_for <= 32
    side = 32 if real else SMALL.get(made_for, 12)
    if args.usual and not real:
        side = max(made_for, 12)
    if real:
        train_cifar(name, run, work)
        whole = cifar("test_batch")[1][:args.images]
        some = (whole[at:at + AT_ONCE] for at in range(0, len(whole), AT_ONCE))
    else:
        train_made_up(name, run, side)
        balance(run, side, 5)
        some = made_up(side)
    others = {"onnx": exported(run)} if args.no_torch else {"onnx": exported(run), "torch": module(run)}
    result = Comparison(name, f"{'CIFAR-10' if real else 'made up'}, {side} x {side}", run, others, 10 if real else 5)
    for pixels in some:
        np.save(f"{run}/pixels.npy", pixels)
        result.add({"pixels": pixels.astype(np.float32)}, f"npy:{run}/pixels.npy")
    return result.report()


# ---- tables ----

def made_up_table(work, loss, target):
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
    raw += [("1e6", "0", "piper", "no", "1"),  # a number far out, a word that training did not have
            ("1e300", "-1e300", "clerk", "no", "1")]
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", "pay", "job"])
        out.writerows(r[:3] for r in raw)
    number = lambda k: np.array([[float(r[k] or "nan")] for r in raw])
    inputs = {"age": number(0), "pay": number(1), "job": np.array([[r[2]] for r in raw], object)}
    result = Comparison(f"table, {loss}", f"made up, {target}", run, {"onnx": exported(run)},
                        2 if target == "classes" else 0)
    result.add(inputs, f"csv:{path}")
    return result.report()


def large_numbers(work):
    """Numbers of which float keeps too few digits: ids, and times in seconds and in milliseconds, within an hour."""
    random.seed(4)
    run, path = f"{work}/large", f"{work}/large.csv"
    rows = [[str(123456789000 + 7 * k + random.randrange(7)), f"{1.7e9 + k * 9:.0f}", str(1700000000000 + k * 9001)]
            for k in range(400)]
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([["id", "second", "ms", "y"],
                                    *([*r, "late" if k > 200 else "early"] for k, r in enumerate(rows))])
    dro("train", "--data", f"csv:{path},label=y,header=yes", "--model", "linear", "--epochs", 5, "--out", run)
    result = Comparison("table, large numbers", "made up", run, {"onnx": exported(run)}, 2)
    names = {"id": 0, "second": 1, "ms": 2}
    result.add({n: np.array([[float(r[k])] for r in rows]) for n, k in names.items()}, f"csv:{path},label=y")
    return result.report()


def odd_names(work):
    """Columns that are called as the graph's own values are, twice the same or not at all; one row at a time too."""
    random.seed(3)
    names = ["limit", "missing.0", "off_on", "label", "probabilities", "value", "features", "fc.weight", "a", "a", "", "y"]
    rows = [[f"{random.gauss(k, 2):.4f}" for k in range(11)] for _ in range(200)]
    run, path, fine = f"{work}/odd", f"{work}/odd.csv", True
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([names, *([*r, "yes" if float(r[0]) + float(r[8]) > 8 else "no"] for r in rows)])
    dro("train", "--data", f"csv:{path},label=y,header=yes", "--epochs", 3, "--out", run)
    session = exported(run)
    inputs = [entry.name for entry in onnx.load(f"{run}/model.onnx").graph.input]
    for count in 1, 40:
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([names[:-1], *rows[:count]])
        result = Comparison("table, odd names", f"made up, {count} rows", run, {"onnx": session}, 2)
        result.add({n: np.array([[float(r[k])] for r in rows[:count]]) for k, n in enumerate(inputs)},
                   f"csv:{path},header=yes")
        fine &= result.report()
    return fine


def thresholds(work):
    """A class from a probability on: in the middle of some, at all of them, and the loss's own prior taken away."""
    random.seed(7)
    path, fine = f"{work}/rare.csv", True
    for what, loss, threshold, value in (("a threshold", "cross-entropy", "f1", None), ("a tie", "cross-entropy", 0.5, 7),
                                         ("another prior", "logit-adjusted", 0.2, None),
                                         ("no threshold", "logit-adjusted", "none", None)):
        run, rows = f"{work}/{what}", []
        for k in range(400):
            x = random.gauss(0, 1)
            rows.append((f"{x:.4f}" if value is None else value, "uv"[k % 2 if value is not None else int(x > 1)]))
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([["x", "y"], *rows])
        spec = f"csv:{path},label=y"
        dro("train", "--data", spec, "--model", "linear", "--loss", loss, "--out", run)
        weights = f"{run}/weights.safetensors"
        dro("eval", "--weights", weights, "--data", spec, "--threshold", threshold, "--class", "v")
        result = Comparison(f"table, {what}", f"made up, {loss}", run, {"onnx": exported(run)}, 2)
        if value is not None:
            shares, labels = predicted(run, spec, 2)
            if shares[0][1] != 0.5 or set(labels) != {"v"}:
                raise SystemExit(f"export_check: {what}: {shares[0]} {set(labels)}")
            names = exported(run)({"x": np.array([[float(value)]])})
            fine &= list(names[1]) == ["v"]
        result.add({"x": np.array([[float(r[0])] for r in rows])}, spec)
        fine &= result.report()
    return fine


def sparse_rows(work, loss, target):
    """The linear model on sparse rows of a table, as a stream makes it, and one of more than 4096 features."""
    random.seed(5)
    classes = {"two": 2, "three": 3, "real": 0, "wide": 2}[target]
    run, path, rows = f"{work}/sparse-{loss}-{target}", f"{work}/sparse-{target}.csv", []
    for k in range(9000 if target == "wide" else 1200):
        x, word = random.gauss(50, 9), random.choice(["clerk", "smith", "piper"])
        score = x / 9 + 2 * (word == "smith")
        rows.append((f"{x:.4f}" if k % 20 else "", word, f"w{k // 2 % 4400}",
                     f"{score:.3f}" if target == "real" else "abc"[int(score > 6) + int(classes > 2 and score > 7)]))
    if target != "wide":
        rows = [r[:2] + r[3:] for r in rows]
    names = ["x", "word", "id"][:len(rows[0]) - 1]
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([[*names, "y"], *rows])
    kind = ["--epochs", 2] if target == "wide" else ["--progressive"]
    real = ",target=real" if target == "real" else ""
    spec = f"csv:{path},label=y{real}"
    if target == "wide":
        dro("train", "--data", spec, "--loss", loss, *kind, "--out", run)
    else:
        with open(path) as file:
            out = subprocess.run([program, "train", "--data", f"csv:-,label=y{real}", "--loss", loss, *kind, "--out", run],
                                 stdin=file, capture_output=True, text=True)
        if out.returncode:
            raise SystemExit(f"export_check: dro train: {out.stderr}")
    rows = rows[:300] + [("1e7", "never seen", "w")[:len(names)]]
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([names, *(r[:len(names)] for r in rows)])
    inputs = {n: np.array([[float(r[k] or "nan") if n == "x" else r[k]] for r in rows], None if n == "x" else object)
              for k, n in enumerate(names)}
    result = Comparison(f"sparse rows, {loss}", f"made up, {target}", run, {"onnx": exported(run)}, classes)
    result.add(inputs, f"csv:{path}")
    return result.report()


def sparse_network(work):
    """A network on rows of libsvm, whose columns are scaled and not centred."""
    random.seed(6)
    run, path, rows = f"{work}/few", f"{work}/few.svm", []
    for _ in range(400):
        rows.append({k: random.gauss(0, 10 ** (k % 5 - 2)) for k in random.sample(range(30), 6)})
    def write(label):
        with open(path, "w") as file:
            for r in rows:
                file.write(" ".join([label(r), *(f"{k + 1}:{r[k]:.6g}" for k in sorted(r))]) + "\n")
    write(lambda r: "+1" if sum(r.values()) > 0 else "-1")
    dro("train", "--data", f"libsvm:{path}", "--model", "mlp:8", "--optimizer", "adamw", "--epochs", 5, "--out", run)
    result = Comparison("sparse rows, mlp", "made up, two", run, {"onnx": exported(run)}, 2)
    dense = np.zeros((len(rows), 30), np.float32)
    for i, r in enumerate(rows):
        for k in r:
            dense[i, k] = float(f"{r[k]:.6g}")
    result.add({"features": dense}, f"libsvm:{path}")
    return result.report()


def adult(work):
    run, path = f"{work}/adult", f"{args.adult}/adult-test.csv"
    dro("train", "--data", f"csv:{args.adult}/adult-train.csv,label=15,test={path}", "--epochs", 1, "--out", run)
    session = exported(run)
    with open(path, newline="") as file:
        rows = [r for r in csv.reader(file, skipinitialspace=True) if len(r) == 15]
    inputs = {}
    for k, entry in enumerate(onnx.load(f"{run}/model.onnx").graph.input):
        cells = [[r[k]] for r in rows]
        words = entry.type.tensor_type.elem_type == onnx.TensorProto.STRING
        inputs[entry.name] = np.array(cells, object) if words else np.array(cells, np.float64)
    result = Comparison("adult", "raw cells", run, {"onnx": session}, 2)
    result.add(inputs, f"csv:{path},label=15")
    return result.report()


def main():
    fine = True
    models = {m["name"]: m["input"][1] for m in json.loads(dro("list", "models", "--json"))}
    names = args.models.split(",") if args.models else [*models, "table"] + ["adult"] * bool(args.adult)
    print("| model | input | examples | onnxruntime: apart, classes that differ | PyTorch | classes seen | s |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as work:
        for name in names:
            if name in models:
                fine &= images(work, name, models[name])
            elif name == "table":
                for loss, target in (("cross-entropy", "classes"), ("logistic", "classes"), ("squared", "classes"),
                                     ("squared", "real")):
                    fine &= made_up_table(work, loss, target)
                fine &= odd_names(work)
                fine &= large_numbers(work) & thresholds(work)
                for loss, target in (("logistic", "two"), ("squared", "two"), ("cross-entropy", "three"),
                                     ("squared", "real"), ("logistic", "wide")):
                    fine &= sparse_rows(work, loss, target)
                fine &= sparse_network(work)
            elif name == "adult" and args.adult:
                fine &= adult(work)
            else:
                raise SystemExit(f"export_check: --models {name}: expected {', '.join(models)}, table or, with"
                                 " --adult, adult")
    if not fine:
        raise SystemExit(f"FAILED: export_check: a row is more than {MOST} apart or has a class that differs")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("dro", type=os.path.abspath)
    ap.add_argument("--models")
    ap.add_argument("--images", type=int, default=40)
    ap.add_argument("--usual", action="store_true")
    ap.add_argument("--cifar")
    ap.add_argument("--adult")
    ap.add_argument("--no-torch", action="store_true")
    args = ap.parse_args()
    program = args.dro
    main()
