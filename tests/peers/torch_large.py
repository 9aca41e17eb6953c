"""Milliseconds per step of SGD and RECOVER on torchvision's large networks, as fast as PyTorch does it:
torch.compile, channels-last, bf16, the whole step a CUDA graph.

    python3 torch_large.py [--models resnet50,inception_v3] [--batch 64] [--wait FILE]

--wait: after compiling, before timing, waits until FILE is there, so that something else can be measured first.
RECOVER evaluates the batch at two points, one after the other, as a PyTorch user would write it.
"""
import argparse
import copy
import json
import os
import time

import torch
import torch.nn.functional as F
import torchvision

SIZES = {"resnet18": 224, "resnet50": 224, "inception_v3": 299}


def network(name):
    more = dict(aux_logits=False, init_weights=False) if name == "inception_v3" else {}
    return getattr(torchvision.models, name)(weights=None, **more).cuda().train()


def make_steps(name, batch, lam=5.0, a=0.5, lr=0.01, wd=2e-4):
    size = SIZES[name]
    new = network(name).to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (batch,), device="cuda")
    old = copy.deepcopy(new)
    f_new, f_old = torch.compile(new), torch.compile(old)
    w_new, w_old = list(new.parameters()), list(old.parameters())
    v = [torch.zeros_like(p) for p in w_new]
    u = torch.ones((), device="cuda")

    def logits(f):
        with torch.autocast("cuda", torch.bfloat16):
            return f(x).float()

    def sgd():
        grads = torch.autograd.grad(F.cross_entropy(logits(f_new), y), w_new)
        with torch.no_grad():
            torch._foreach_mul_(v, 0.9)
            torch._foreach_add_(v, list(grads))
            torch._foreach_add_(v, w_new, alpha=wd)
            torch._foreach_add_(w_new, v, alpha=-lr)

    def evaluate(f, w):
        g = torch.exp(F.cross_entropy(logits(f), y, reduction="none") / lam).mean()
        return g.detach(), list(torch.autograd.grad(g * lam, w))

    def recover():
        g0, grad0 = evaluate(f_old, w_old)
        g1, grad1 = evaluate(f_new, w_new)
        with torch.no_grad():
            u.copy_((g1 + (1 - a) * (u - g0)).clamp(min=1.0))
            torch._foreach_sub_(v, grad0)
            torch._foreach_mul_(v, 1 - a)
            torch._foreach_add_(v, grad1)
            torch._foreach_copy_(w_old, w_new)
            d = torch._foreach_div(v, u)
            torch._foreach_add_(d, w_new, alpha=wd)
            torch._foreach_add_(w_new, d, alpha=-lr)

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


def median_ms(graph, reps=20):
    times = []
    for _ in range(7):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(reps):
            graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / reps * 1e3)
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--models", default="resnet50,inception_v3")
    ap.add_argument("--optimizers", default="sgd,recover")
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--wait")
    args = ap.parse_args()
    torch.backends.cudnn.benchmark = True
    graphs = {}
    for model in args.models.split(","):
        begin = time.time()
        steps = make_steps(model, args.batch)
        for name in args.optimizers.split(","):
            graphs[model, name] = graph_of(steps[name])
        print(f"{model}: compiled in {time.time() - begin:.0f} s", flush=True)
    while args.wait and not os.path.exists(args.wait):
        time.sleep(0.1)
    for (model, name), graph in graphs.items():
        ms = median_ms(graph)
        print(json.dumps(dict(model=model, optimizer=name, batch=args.batch, ms=round(ms, 3))),
              flush=True)
