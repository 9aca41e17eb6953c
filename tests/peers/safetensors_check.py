#!/usr/bin/env python3
"""Checks weights files against Python's safetensors, in both directions.

    python tests/peers/safetensors_check.py PROGRAM   (build/tests/peer_safetensors_copy)

Needs safetensors, torch and numpy; `make test-peers` runs it. PROGRAM copies a file through the library.

  types    Python writes every type that we read, the copy is float32: equal to Python's own conversion,
           bit for bit, with the same names, shapes and metadata.
  strict   damaged files: whatever we take, Python takes too.

Prints one line each and exits 1 if one is wrong.
"""
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import safetensors
import safetensors.torch
import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
SHAPES = ((), (1,), (0,), (5000,), (3, 4), (2, 0, 3), (2, 3, 3, 3), (1, 2, 1, 2, 1, 2, 1, 2))


def copy(program, source, target):
    return subprocess.run([program, source, target], capture_output=True, text=True)


def values(shape, dtype):
    """Random bits that are finite in single precision."""
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    size = torch.empty(0, dtype=dtype).element_size()
    t = torch.randint(0, 256, (count * size,), dtype=torch.uint8).view(dtype).reshape(shape).clone()
    if dtype in FLOATS:
        t[~t.float().isfinite()] = 0.1
    return t


def bits(tensor):
    return tensor.numpy().tobytes()


def check_types(program, work):
    names = ("plain", "layer1.0.bn1.running_mean", "\u00e9 \u6f22 \U0001f600", "\"\\/\n\t\x01")
    tensors = {"%s %s %d" % (names[k % 4], str(d), k): values(s, d)
               for d in FLOATS + WHOLE for k, s in enumerate(SHAPES)}
    metadata = {"format": "pt", "note": "\u00fc\"\\\n\U0001f600"}
    source, target = os.path.join(work, "a"), os.path.join(work, "b")
    safetensors.torch.save_file(tensors, source, metadata)
    done = copy(program, source, target)
    if done.returncode:
        return done.stderr.strip()
    with safetensors.safe_open(target, "pt") as f:
        if f.metadata() != metadata:
            return "metadata differs"
        if sorted(f.keys()) != sorted(tensors):
            return "names differ"
        for name, tensor in tensors.items():
            got = f.get_tensor(name)
            if got.dtype != torch.float32 or got.shape != tensor.shape:
                return "%s: type or shape differs" % name
            if bits(got) != bits(torch.from_numpy(narrow(tensor))):
                return "%s: values differ" % name
    # Once more: what we wrote, we read, and the second copy is the first.
    done = copy(program, target, source)
    if done.returncode or open(source, "rb").read() != open(target, "rb").read():
        return "a copy of the copy differs " + done.stderr
    return ""


def narrow(tensor):
    """NumPy's conversion; it has no bfloat16, which is the upper half of a float."""
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy()
    return tensor.numpy().astype(np.float32)


def check_strict(program, work):
    rng = random.Random(1)
    source, target = os.path.join(work, "a"), os.path.join(work, "b")
    good = safetensors.torch.save({"a": torch.ones(2, 3), "b": torch.zeros(1, dtype=torch.int64)},
                                  {"format": "pt"})
    taken = 0
    for _ in range(600):
        data = bytearray(good)
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(data) - 32)
            data[at] = rng.choice(b'0123456789 {}[]:,"ab') if rng.random() < 0.8 else rng.randrange(256)
        with open(source, "wb") as f:
            f.write(data)
        done = copy(program, source, target)
        if done.returncode not in (0, 1) or (done.returncode == 1 and done.stderr.count("\n") != 1):
            return "status %d: %s" % (done.returncode, done.stderr)
        if done.returncode == 0:
            taken += 1
            safetensors.torch.load_file(source)
            safetensors.torch.load_file(target)
    return "" if 0 < taken < 600 else "%d of 600 damaged files were taken" % taken


def main():
    torch.manual_seed(1)
    wrong = 0
    for check in check_types, check_strict:
        with tempfile.TemporaryDirectory() as work:
            what = check(sys.argv[1], work)
        wrong += what != ""
        print("%-12s %s" % (check.__name__[6:], what or "equal"))
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
