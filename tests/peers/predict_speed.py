"""Prediction beside onnxruntime on the same cores: the time for one image, and images per second of a stream.

    python3 predict_speed.py DRO [--models NAME,...] [--threads N] [--rounds N]

Both programs have the same model (`dro export --onnx`) and the same images in memory, bytes that they normalise
themselves, and give probabilities. Ours goes through dro_predictor_logits() and _probabilities() of the library beside
DRO; a stream is batches of 64. Measured in turns; printed are medians and the ratio of ours to onnxruntime's.
"""
import argparse, ctypes as c, os, statistics, subprocess, tempfile, time
import numpy as np, onnxruntime

SIDES = {"resnet18": 224, "resnet50": 224, "mobilenet_v2": 224}
BATCH, TRAIN = 64, 0  # images without labels are the training split


class Ours:
    def __init__(self, dro, weights, spec, threads):
        self.lib = lib = c.CDLL(os.path.join(os.path.dirname(os.path.abspath(dro)), "libdro.so"))
        lib.dro_context_error.restype = c.c_char_p
        lib.dro_predictor_error.restype = c.c_char_p
        lib.dro_predictor_classes.restype = c.c_int32
        lib.dro_predictor_logits.argtypes = [c.c_void_p, c.c_int, c.c_int64, c.c_size_t, c.c_void_p,
                                             c.c_void_p]
        lib.dro_predictor_probabilities.argtypes = [c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]
        context, self.predictor = c.c_void_p(), c.c_void_p()
        assert lib.dro_context_create(b"cpu", threads, c.byref(context)) == 0
        if lib.dro_predictor_open(context, weights.encode(), spec.encode(), c.byref(self.predictor)):
            raise SystemExit(lib.dro_context_error(context).decode())
        classes = lib.dro_predictor_classes(self.predictor)
        self.logits, self.shares = np.empty((BATCH, classes), np.float32), np.empty((BATCH, classes))

    def run(self, first, count):
        at = self.logits.ctypes.data
        if self.lib.dro_predictor_logits(self.predictor, TRAIN, first, count, at, None):
            raise SystemExit(self.lib.dro_predictor_error().decode())
        self.lib.dro_predictor_probabilities(self.predictor, count, at, self.shares.ctypes.data)
        return self.shares[:count]


def measure(run, examples, count):
    """Seconds for an image, all examples in batches of `count`."""
    start = time.perf_counter()
    for first in range(0, examples, count):
        run(first, count)
    return (time.perf_counter() - start) / examples


def compare(args, work, name):
    side, run = SIDES.get(name, 32), f"{work}/{name}"
    subprocess.run([args.dro, "train", "--data", f"synth:glyphs,n=60,test=8,size={side},classes=10", "--model", name,
                    "--steps", "2", "--batch", "6", "--out", run], check=True, capture_output=True)
    subprocess.run([args.dro, "export", "--weights", f"{run}/weights.safetensors", "--onnx", f"{run}/m.onnx"],
                   check=True, capture_output=True)
    examples = 256 if side == 32 else 64
    pixels = np.random.default_rng(1).integers(0, 256, (examples, 3, side, side)).astype(np.uint8)
    np.save(f"{run}/x.npy", pixels)
    ours = Ours(args.dro, f"{run}/weights.safetensors", f"npy:{run}/x.npy", args.threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = args.threads, 3
    session = onnxruntime.InferenceSession(f"{run}/m.onnx", options, providers=["CPUExecutionProvider"])
    theirs = lambda first, count: session.run(
        ["probabilities"], {"pixels": pixels[first:first + count].astype(np.float32)})[0]
    apart = np.abs(ours.run(0, BATCH) - theirs(0, BATCH)).max()
    if not apart < 1e-3:  # noise is not what the networks are for: the rounding of deep ones is some 1e-4
        raise SystemExit(f"{name}: {apart:.1e} apart")
    for what, count in (("one image", 1), ("a stream", BATCH)):
        some = examples if count > 1 else min(examples, 64)
        times = [(measure(ours.run, some, count), measure(theirs, some, count)) for _ in range(args.rounds)]
        a, b = (statistics.median(t[k] for t in times) * 1e3 for k in (0, 1))
        ratio = statistics.median(x / y for x, y in times)
        print(f"{name}, {what}: dro {a:.3f} ms per image, onnxruntime {b:.3f}, ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("dro")
    parser.add_argument("--models", default="glyphnet,resnet20,resnet18,mobilenet_v2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    print(f"onnxruntime {onnxruntime.__version__}, {args.threads} threads, {args.rounds} rounds")
    with tempfile.TemporaryDirectory() as work:
        for name in args.models.split(","):
            compare(args, work, name)
