"""Milliseconds per step of SGD and RECOVER on a GPU, as fast as PyTorch does it (bf16, the whole step a CUDA graph),
and those of `dro bench step` beside it.

    python3 torch_gpu.py [--dro PROGRAM,...] [--models resnet20,resnet32,resnet50,inception_v3]
                         [--optimizers sgd,recover] [--variants compile+cl,compile,eager+cl,eager]
                         [--rounds 3] [--batch N] [--wait FILE]

--dro: several programs, separated by commas, have a column each, named after their folders.
Every round times each of PyTorch's variants and ours once, in turn (the large networks, whose program takes seconds to
start, in one round); printed are the medians over the rounds, SGD / RECOVER, as rows of a table, of PyTorch's variants
the fastest. Variants: `compile` (torch.compile) or `eager`, with `+cl` channels-last; compile+cl alone by default.
--wait: after compiling waits until FILE is there, so that something else can be measured first. RECOVER evaluates the
batch at two points, one after the other, as a PyTorch user would write it. Without a GPU it says so and exits 77.
Nothing is asserted: this is a benchmark.
"""
import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
import torchvision

import torch_updates
from cifar_resnet import CifarResNet

NETWORKS = {  # image, classes, batch
    "resnet20": (32, 10, 128),
    "resnet32": (32, 10, 128),
    "resnet50": (224, 1000, 64),
    "inception_v3": (299, 1000, 64),
}
LARGE = 100  # images of so many pixels and more
DEVICE = "cuda"


def network(name):
    if name in ("resnet20", "resnet32"):
        return CifarResNet((int(name[6:]) - 2) // 6, 3, NETWORKS[name][1])
    more = dict(aux_logits=False, init_weights=False) if name == "inception_v3" else {}
    return getattr(torchvision.models, name)(weights=None, **more)


# ---- steps ----

def make_steps(name, batch, variant, lam=5.0, a=0.5, lr=0.01, wd=2e-4):
    size, classes = NETWORKS[name][:2]
    layout = torch.channels_last if variant.endswith("+cl") else torch.contiguous_format
    new = network(name).to(DEVICE).train().to(memory_format=layout)
    x = torch.randn(batch, 3, size, size, device=DEVICE).to(memory_format=layout)
    y = torch.randint(0, classes, (batch,), device=DEVICE)
    old = copy.deepcopy(new)
    compiled = variant.startswith("compile")
    f_new, f_old = (torch.compile(f) if compiled else f for f in (new, old))
    w_new, w_old = list(new.parameters()), list(old.parameters())
    v = [torch.zeros_like(p) for p in w_new]
    u = torch.ones((), device=DEVICE)

    def logits(f):
        with torch.autocast(DEVICE, torch.bfloat16):
            return f(x).float()

    def sgd():
        torch_updates.sgd(w_new, v, torch.autograd.grad(F.cross_entropy(logits(f_new), y), w_new), lr, wd)

    def evaluate(f, w):
        g = torch.exp(F.cross_entropy(logits(f), y, reduction="none") / lam).mean()
        return g.detach(), list(torch.autograd.grad(g * lam, w))

    def recover():
        torch_updates.recover(w_new, w_old, v, u, evaluate(f_old, w_old), evaluate(f_new, w_new), a, lr, wd)

    return {"sgd": sgd, "recover": recover}


def graph_of(step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


# ---- measuring ----

def theirs(graph, seconds=0.15):
    """The median of seven runs of about so long."""
    def some(count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            graph.replay()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / count
    count = max(3, int(seconds / 7 / some(5)))
    return statistics.median(some(count) for _ in range(7)) * 1e3


def ours(dro, model, optimizer, batch):
    size = NETWORKS[model][0]
    out = subprocess.run([dro, "bench", "step", "--backend", "cuda", "--precision", "bf16", "--model", model,
                          "--optimizer", optimizer, "--batch", str(batch), "--rounds", "30" if size >= LARGE else "200",
                          "--json"], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(out.stderr.strip())
    return json.loads(out.stdout)["ms_per_step"]


def compile_all(model, batch, args):
    """The graph of each optimiser and variant; what it works on stays with it."""
    graphs, begin = {}, time.time()
    for variant in args.variants.split(","):
        steps = make_steps(model, batch, variant)
        for optimizer in args.optimizers.split(","):
            graphs[optimizer, variant] = graph_of(steps[optimizer]), steps
    print(f"{model}: compiled in {time.time() - begin:.0f} s", file=sys.stderr, flush=True)
    return graphs


def measure(model, batch, graphs, args):
    optimizers, times = args.optimizers.split(","), {}
    for _ in range(1 if NETWORKS[model][0] >= LARGE else args.rounds):
        for key, (graph, _) in graphs.items():
            times.setdefault(key, []).append(theirs(graph))
        for dro in args.dro:
            for optimizer in optimizers:
                times.setdefault((optimizer, dro), []).append(ours(dro, model, optimizer, batch))
    medians = {key: statistics.median(found) for key, found in times.items()}
    best = {o: min((k for k in graphs if k[0] == o), key=medians.get) for o in optimizers}
    row = [" / ".join(f"{medians[key]:.3f}" for key in keys)
           for keys in [best.values()] + [[(o, dro) for o in optimizers] for dro in args.dro]]
    row.append(" / ".join(best[o][1] for o in optimizers))
    print(f"| {model} | {batch} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--dro", type=lambda text: text.split(","), default=[])
    ap.add_argument("--models", default=",".join(NETWORKS))
    ap.add_argument("--optimizers", default="sgd,recover")
    ap.add_argument("--variants", default="compile+cl")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--batch", type=int)
    ap.add_argument("--wait")
    args = ap.parse_args()
    if not torch.cuda.is_available():
        print("torch_gpu: skipped: PyTorch sees no GPU", file=sys.stderr)
        sys.exit(77)
    torch.backends.cudnn.benchmark = True
    batches = {m: args.batch or NETWORKS[m][2] for m in args.models.split(",")}
    graphs = {m: compile_all(m, b, args) for m, b in batches.items()}
    while args.wait and not os.path.exists(args.wait):
        time.sleep(0.1)
    names = ["libdro"] if len(args.dro) == 1 else [os.path.basename(os.path.dirname(dro)) for dro in args.dro]
    what = args.optimizers.replace(",", " / ") + ", ms"
    columns = [what, "batch", f"PyTorch {torch.__version__}", *names, "its variant"]
    print("| " + " | ".join(columns) + " |")
    print("| " + " | ".join("---" for _ in columns) + " |")
    for model, batch in batches.items():
        measure(model, batch, graphs[model], args)
