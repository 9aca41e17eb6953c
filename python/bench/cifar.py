"""A user's own ResNet-32 in PyTorch on CIFAR-10 with rare classes: plain SGD, Tilt + SGD and
Recover, with the settings of `dro train` for images. Prints the test accuracy of each run.

    python bench/cifar.py --data DIR [--method recover] [--seeds 3] [--epochs 120]

DIR has the official binary files (data_batch_1.bin ... test_batch.bin). The comparison:

    dro train --data cifar10:DIR,imratio=0.1 --model resnet32 --optimizer recover --batch 128 \\
        --epochs 120 --seed 1 --backend cuda"""
import argparse
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from resnet import resnet

from libdro.torch import Recover, Tilt

CLASSES, SIDE, PAD = 10, 32, 4


def read(folder, names):
    raw = np.concatenate([np.fromfile(os.path.join(folder, name), np.uint8) for name in names])
    raw = raw.reshape(-1, 1 + 3 * SIDE * SIDE)
    return raw[:, 1:].reshape(-1, 3, SIDE, SIDE), raw[:, 0].astype(np.int64)


def thin(x, y, ratio):
    """Of the first half of the classes the last examples are kept."""
    keep = np.ones(len(y), bool)
    for label in range(CLASSES // 2):
        ids = np.flatnonzero(y == label)
        keep[ids[:len(ids) - int(ratio * len(ids) + 1e-9)]] = False
    return x[keep], y[keep]


def augmented(padded, ids):
    """Random crops, every second one mirrored: (n, 3, 32, 32), channels last."""
    n, device = len(ids), padded.device
    within = torch.arange(SIDE, device=device)
    rows = torch.randint(0, 2 * PAD + 1, (n, 1), device=device) + within
    columns = torch.randint(0, 2 * PAD + 1, (n, 1), device=device) + within
    columns = torch.where(torch.rand(n, 1, device=device) < 0.5, columns.flip(1), columns)
    out = padded[ids[:, None, None], rows[:, :, None], columns[:, None, :]]  # (n, 32, 32, 3)
    return out.permute(0, 3, 1, 2)


class Data:
    """Both splits on the device, normalised; the training images with a margin of zeros, channels
    last."""

    def __init__(self, o):
        x, y = read(o.data, [f"data_batch_{k}.bin" for k in range(1, 6)])
        x, y = thin(x, y, o.imratio)
        if o.examples:
            chosen = np.random.default_rng(0).permutation(len(y))[:o.examples]
            x, y = x[chosen], y[chosen]
        test_x, test_y = read(o.data, ["test_batch.bin"])
        if o.examples:
            test_x, test_y = test_x[:o.examples], test_y[:o.examples]
        mean, deviation = (f(x / 255.0, (0, 2, 3)) for f in (np.mean, np.std))

        def ready(pixels):
            t = torch.from_numpy(pixels).to(o.device).float() / 255
            mean_, by = (torch.tensor(v, device=o.device).float().view(1, 3, 1, 1)
                         for v in (mean, deviation))
            return (t - mean_) / by

        self.padded = F.pad(ready(x), (PAD,) * 4).permute(0, 2, 3, 1).contiguous()
        self.y = torch.from_numpy(y).to(o.device)
        self.test_x = ready(test_x).to(memory_format=torch.channels_last)
        self.test_y = torch.from_numpy(test_y).to(o.device)


def optimizer_of(o, model, steps):
    """The optimiser, and how a batch's losses become a step."""
    def rate(step):  # a cosine, after a linear rise
        warmup = math.floor(0.04 * steps)
        rise = min(1, (step + 1) / warmup) if warmup else 1
        return rise * 0.5 * (1 + math.cos(math.pi * step / max(1, steps - 1))) + 1e-9

    if o.method == "recover":
        opt = Recover(model, lr=1.0, lam=o.lam, momentum=0.9, weight_decay=5e-4, a_rule="fixed",
                      a=0.9, guard=0.5, batch=o.batch)
    else:
        opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    plan = torch.optim.lr_scheduler.LambdaLR(opt, rate)
    tilt = Tilt(o.lam) if o.method == "tilt" else torch.mean

    def step(closure):
        if o.method == "recover":
            opt.step(closure)
        else:
            opt.zero_grad()
            tilt(closure()).backward()
            opt.step()
        plan.step()
    return step


def accuracy(o, model, data):
    """Over all classes, the rare half, the common half."""
    model.eval()
    with torch.no_grad(), torch.autocast(o.device, torch.bfloat16, enabled=o.bf16):
        right = torch.cat([model(x).argmax(1) for x in data.test_x.split(2000)]) == data.test_y
    model.train()
    rare = data.test_y < CLASSES // 2
    return [100 * part.float().mean().item() for part in (right, right[rare], right[~rare])]


def graphed(o, model):
    """The passes of the model as CUDA graphs; what the trial passes change is put back."""
    before = {k: v.clone() for k, v in model.state_dict().items()}
    x = torch.randn(o.batch, 3, SIDE, SIDE, device=o.device).to(memory_format=torch.channels_last)
    with torch.autocast(o.device, torch.bfloat16, enabled=o.bf16, cache_enabled=False):
        torch.cuda.make_graphed_callables(model, (x,))
    model.load_state_dict(before)


def run(o, data, seed):
    torch.manual_seed(seed)
    model = resnet(o.depth).to(o.device).to(memory_format=torch.channels_last)
    if o.device == "cuda" and not o.eager:
        graphed(o, model)
    per_epoch = len(data.y) // o.batch
    step = optimizer_of(o, model, o.epochs * per_epoch)
    began = time.perf_counter()
    for _ in range(o.epochs):
        ids = torch.randperm(len(data.y), device=o.device)[:per_epoch * o.batch]
        images, labels = augmented(data.padded, ids), data.y[ids]
        for x, y in zip(images.split(o.batch), labels.split(o.batch)):
            def closure():
                with torch.autocast(o.device, torch.bfloat16, enabled=o.bf16,
                                    cache_enabled=False):
                    outputs = model(x)
                return F.cross_entropy(outputs.float(), y, reduction="none")
            step(closure)
    if o.device == "cuda":
        torch.cuda.synchronize()
    return accuracy(o, model, data), time.perf_counter() - began


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--data", required=True)
    options.add_argument("--method", default="recover", choices=("sgd", "tilt", "recover"))
    options.add_argument("--imratio", type=float, default=0.1)
    options.add_argument("--lam", type=float, default=20.0)
    options.add_argument("--depth", type=int, default=32)
    options.add_argument("--batch", type=int, default=128)
    options.add_argument("--epochs", type=int, default=120)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--seeds", type=int, default=1, help="so many runs, from --seed on")
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--fp32", dest="bf16", action="store_false")
    options.add_argument("--eager", action="store_true", help="no CUDA graphs of the model")
    options.add_argument("--examples", type=int, help="a part of the images, for a trial")
    o = options.parse_args()
    torch.backends.cudnn.benchmark = True
    data, overall = Data(o), []
    for seed in range(o.seed, o.seed + o.seeds):
        (mean, rare, common), seconds = run(o, data, seed)
        overall.append(mean)
        print(f"{o.method} seed {seed}: test accuracy {mean:.2f} % (rare classes {rare:.2f}, "
              f"common {common:.2f}), {seconds:.1f} s", flush=True)
    print(f"{o.method}: {np.mean(overall):.2f} +- {np.std(overall):.2f} % over {o.seeds} runs of "
          f"{o.epochs} epochs")


main()
