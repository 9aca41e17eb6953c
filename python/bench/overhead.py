"""What Tilt and Recover cost beside plain PyTorch: a ResNet-20 of CIFAR's size, made-up images,
steps interleaved, medians. Tilt + SGD over SGD; Recover over two plain forward and backward passes.
On a busy machine read the processor time, with OMP_NUM_THREADS=1.

    python bench/overhead.py [--device cuda] [--rounds 30] [--batch 128]"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from resnet import resnet

from libdro.torch import Recover, Tilt


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--device", default="cpu")
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--batch", type=int, default=128)
    o = options.parse_args()
    x = torch.randn(o.batch, 3, 32, 32, device=o.device)
    y = torch.randint(0, 10, (o.batch,), device=o.device)
    models = {name: resnet(20).to(o.device) for name in ("sgd", "tilt", "twice", "recover")}
    sgd = {name: torch.optim.SGD(models[name].parameters(), 0.01)
           for name in ("sgd", "tilt", "twice")}
    tilt, recover = Tilt(5.0), Recover(models["recover"], lr=0.01, lam=5.0)

    def losses(name):
        return F.cross_entropy(models[name](x), y, reduction="none")

    def plain(name, passes, to_loss):
        for _ in range(passes):
            sgd[name].zero_grad()
            to_loss(losses(name)).backward()
        sgd[name].step()

    ways = {"sgd": lambda: plain("sgd", 1, torch.mean), "tilt": lambda: plain("tilt", 1, tilt),
            "twice": lambda: plain("twice", 2, torch.mean),
            "recover": lambda: recover.step(lambda: losses("recover"))}
    times = {name: [] for name in ways}
    for round in range(o.rounds + 3):
        for name, way in ways.items():
            if o.device == "cuda":
                torch.cuda.synchronize()
            began, used = time.perf_counter(), time.process_time()
            way()
            if o.device == "cuda":
                torch.cuda.synchronize()
            if round >= 3:
                times[name].append((time.perf_counter() - began, time.process_time() - used))
    for k, kind in enumerate(("wall time", "processor time")):
        middle = {name: statistics.median(t[k] for t in times[name]) for name in ways}
        print(f"{kind}: Tilt + SGD over SGD {middle['tilt'] / middle['sgd']:.3f}, "
              f"Recover over two passes {middle['recover'] / middle['twice']:.3f}")


main()
