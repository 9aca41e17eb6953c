#!/usr/bin/env python3
"""Compares the library's networks with PyTorch's and torchvision's: same weights, same input.

usage: nets_check.py NET_DUMP BACKEND [NAME...]

NET_DUMP is the program made of net_dump.c, NAME one or more of resnet20, resnet50, inception_v3, mobilenet_v2
(gradients),
sgd, recover (100 steps of resnet20); all of them when none is given.

Gradients: evaluation's logits and losses, training's losses, every parameter's gradient and every norm's
running statistics, with one part and with two, against PyTorch in double. A tensor's difference is the
norm of the difference over the norm (of a gradient below a thousandth of them all: over that); the
largest is printed and must be at most 1e-3. The names of the tensors must be torchvision's.

ReLU and max pool have kinks: where an input is within rounding of one, two right programs take different
sides, and the gradients below differ by 1e-3 to 1e-2 (PyTorch's own single precision does from its double
on networks of random weights). So `away_from_kinks` chooses weights that leave few inputs near one, and
where a part's difference is too large up to eight seeds are tried: chance differs in one, an error in all.

Steps: SGD with momentum by torch.optim.SGD; RECOVER as the paper's Algorithm 1 writes it, in u and v,
every batch at the new and at the old weights. PyTorch runs in single precision. The mean loss of each
step may differ by 1e-3 of itself. Training is chaotic, so it is gentle: a large eta or strong residual
branches make PyTorch's own single and double precision part by percents within 100 steps.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

from cifar_resnet import CifarResNet

LIMIT = 1e-3
# model: channels, height, width, outputs, examples of part 0 and part 1
SHAPES = {"resnet20": (3, 32, 32, 10, 8, 5), "resnet50": (3, 64, 64, 10, 6, 5),
          "inception_v3": (3, 299, 299, 10, 2, 2), "mobilenet_v2": (3, 96, 96, 10, 6, 5)}
SEEDS = 8
STEPS, BATCH, DISTINCT = 100, 16, 5
SMALL = (3, 16, 16, 10)  # of the steps


class Masked(nn.Module):
    """Dropout with a given mask in training."""
    mask = None

    def forward(self, x):
        return x * self.mask.reshape(x.shape) if self.training else x


def make(name, channels, outputs):
    if name == "resnet20":
        return CifarResNet(3, channels, outputs)
    if name == "resnet50":
        return torchvision.models.resnet50(weights=None, num_classes=outputs)
    if name == "mobilenet_v2":
        model = torchvision.models.mobilenet_v2(weights=None, num_classes=outputs)
        model.classifier[0] = model.dropout = Masked()
        return model
    model = torchvision.models.inception_v3(weights=None, num_classes=outputs, aux_logits=True,
                                            transform_input=True, init_weights=False)
    model.dropout = Masked()
    return model


def randomise(model):
    """Kaiming for the kernels; the rest away from its zeros and ones, so that it matters."""
    for name, t in model.state_dict().items():
        if t.dim() > 1:
            t.normal_(0, (2 / t[0].numel()) ** 0.5)
        elif name.endswith("running_mean") or name.endswith("bias"):
            t.uniform_(-0.1, 0.1)
        elif name.endswith("running_var") or name.endswith("weight"):
            t.uniform_(0.75, 1.25)


def away_from_kinks(model, x):
    """Shifts: of four channels three are open in (almost) every pixel, one is closed. Where a residual
    stream begins, all are open; the norms that add to it are small. The running statistics become
    those of x, as in a trained network. Before a ReLU6 a channel is narrow and below 0, between 0 and 6 or above."""
    for norm in [m[i - 1] for m in model.modules() if isinstance(m, nn.Sequential)
                 for i in range(len(m)) if isinstance(m[i], nn.ReLU6)]:
        norm.weight.data.mul_(0.4)
        where = torch.rand_like(norm.bias)
        norm.bias.data.add_(torch.where(where < 0.7, 3.0, torch.where(where < 0.85, -3.0, 9.0)))
    for name, t in [] if isinstance(model, torchvision.models.MobileNetV2) else model.state_dict().items():
        layer, what = name.rsplit(".", 1)
        if t.dim() != 1 or layer + ".running_var" not in model.state_dict():
            continue
        starts = "downsample" in layer or layer == "bn1" or (
            isinstance(model, CifarResNet) and layer.endswith(".0.bn2"))
        adds = layer.endswith("bn2" if isinstance(model, CifarResNet) else "bn3")
        if adds and not starts and what == "weight":
            t.mul_(0.3)
        elif what == "bias" and (starts or not adds):
            t.add_(4 if starts else torch.where(torch.rand_like(t) < 0.75, 4.0, -4.0))
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for m in norms:
        m.momentum = 1
    if hasattr(model, "dropout"):
        last = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
        model.dropout.mask = torch.ones(len(x), last.in_features)
    with torch.no_grad():
        model.train()(x)
    for m in norms:
        m.momentum = 0.1


# ---- exchange with net_dump ----

class Dump:
    def __init__(self, program, backend, model, shape, folder):
        self.command = [program, backend, model] + [str(n) for n in shape[:4]] + [folder]
        self.folder = folder
        lines = self.run("tensors").splitlines()
        self.tensors = [(w[0], w[1], tuple(map(int, w[2:]))) for w in map(str.split, lines)]

    def run(self, *words):
        return subprocess.run(self.command + [str(w) for w in words], check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def write(self, name, x):
        kind = np.int32 if name.endswith(".i32") else np.float32
        np.asarray(x).astype(kind).tofile(os.path.join(self.folder, name))

    def read(self, name):
        return torch.tensor(np.fromfile(os.path.join(self.folder, name), np.float32)).double()

    def write_weights(self, model):
        """The model's tensors in the library's order; both must have the same names and shapes."""
        state = {n: t for n, t in model.state_dict().items() if "num_batches" not in n}
        assert sorted(state) == sorted(t[0] for t in self.tensors), "the tensors' names differ"
        for name, _, shape in self.tensors:
            assert tuple(state[name].shape) == shape, "%s: the shapes differ" % name
        self.write("weights.f32", np.concatenate([state[t[0]].numpy().ravel() for t in self.tensors]))

    def split(self, flat, role):
        """{name: its part of a vector} of the tensors of one role."""
        shapes = [(name, int(np.prod(shape))) for name, what, shape in self.tensors if what == role]
        pieces = torch.split(flat, [count for _, count in shapes])
        return {name: piece for (name, _), piece in zip(shapes, pieces)}


def report(what, gap, limit=LIMIT):
    right = gap <= limit
    print("%-58s %.1e  %s" % (what, gap, "equal" if right else "DIFFERENT"), flush=True)
    return right


def gap(a, b, floor=0.0):
    b = b.detach().double().flatten()
    return float((a - b).norm() / max(float(b.norm()), floor))


# ---- gradients ----

def torch_part(model, x, labels, coef):
    """Losses and the gradient of their weighted sum, in training mode."""
    model.train()
    out, aux = model(x), None
    if isinstance(out, tuple):
        out, aux = out
    losses = F.cross_entropy(out, labels, reduction="none")
    if aux is not None:
        losses = losses + 0.4 * F.cross_entropy(aux, labels, reduction="none")
    names, parameters = zip(*model.named_parameters())
    grads = torch.autograd.grad((coef * losses).sum(), parameters)
    return losses.detach(), dict(zip(names, grads))


def torch_all(dump, model, x, labels, coef, counts):
    """Evaluation of part 0, then training of each part; the running statistics of part 0 alone."""
    model.eval()
    with torch.no_grad():
        logits = model(x[:counts[0]])
    parts, first = [], 0
    for k, count in enumerate(counts):
        at = slice(first, first + count)
        if hasattr(model, "dropout"):
            model.dropout.mask = dump.read("mask.f32").reshape(sum(counts), -1)[at]
        parts.append(torch_part(model, x[at], labels[at], coef[at]))
        if k == 0:
            running = {n: b.clone() for n, b in model.named_buffers() if "running" in n}
        first += count
    return logits, parts, running


def compare(dump, what, theirs, labels, counts):
    """What net_dump wrote for len(counts) parts against PyTorch's."""
    logits, parts, running = theirs
    right = [
        report(what + "logits", gap(dump.read("logits.f32"), logits)),
        report(what + "evaluated losses", gap(dump.read("evaluated.f32"), F.cross_entropy(
            logits, labels[:counts[0]], reduction="none"))),
        report(what + "losses", gap(dump.read("losses.f32"),
                                    torch.cat([p[0] for p in parts[:len(counts)]])))]
    gaps = {}
    for k, flat in enumerate(dump.read("grads.f32").chunk(len(counts))):
        whole = float(torch.cat([g.flatten() for g in parts[k][1].values()]).norm())
        gaps.update(((k, n), gap(g, parts[k][1][n], 1e-3 * whole))
                    for n, g in dump.split(flat, "trained").items())
    worst = max(gaps, key=gaps.get)
    report(what + "%d gradients" % len(gaps), gaps[worst])
    largest = {k: max(g for (part, _), g in gaps.items() if part == k) for k in range(len(counts))}
    print("    the largest: part %d, %s; the median: %.1e" % (*worst, np.median([*gaps.values()])))
    gaps = [gap(s, running[n]) for n, s in dump.split(dump.read("running.f32"), "running").items()]
    right.append(report(what + "%d running statistics" % len(gaps), max(gaps)))
    return all(right), largest


def try_gradients(program, backend, name, folder, seed):
    channels, height, width, outputs, *counts = SHAPES[name]
    torch.manual_seed(seed)
    total = sum(counts)
    x = torch.randn(total, channels, height, width)
    labels, coef = torch.randint(outputs, (total,)), torch.rand(total) + 0.5
    model = make(name, channels, outputs)
    randomise(model)
    away_from_kinks(model, x)
    dump = Dump(program, backend, name, SHAPES[name], folder)
    dump.write_weights(model)
    dump.write("x.f32", x)
    dump.write("labels.i32", labels)
    dump.write("coef.f32", coef)
    theirs, right, largest = None, True, {}
    for parts in (2, 1):
        dump.run("gradients", *counts[:parts])
        if theirs is None:  # masks are there now; part 0 is the same in both calls
            theirs = torch_all(dump, model.double(), x.double(), labels, coef.double(), counts)
        what = "%s %s, %d part%s: " % (backend, name, parts, "s"[:parts - 1])
        same, gaps = compare(dump, what, theirs, labels, counts[:parts])
        right = right and same
        largest.update(((parts, k), g) for k, g in gaps.items())
    return right, largest


def check_gradients(program, backend, name, folder):
    """All but the gradients must be right with every seed; each part's gradients with one of them."""
    best = {}
    for seed in range(7, 7 + SEEDS):
        right, largest = try_gradients(program, backend, name, folder, seed)
        best = {k: min(g, best.get(k, g)) for k, g in largest.items()}
        if not right or max(best.values()) <= LIMIT:
            return right
    return False


# ---- steps ----

def make_examples(batches):
    """The same DISTINCT batches over and over, each a noisy prototype per class."""
    labels = torch.randint(SMALL[3], (DISTINCT * BATCH,))
    x = torch.randn(SMALL[3], *SMALL[:3])[labels] + torch.randn(len(labels), *SMALL[:3])
    again = torch.arange(batches * BATCH) % len(labels)
    return x[again], labels[again]


def gentle(model):
    """Weak residual branches and small logits."""
    for name, t in model.state_dict().items():
        if name.endswith(".bn2.weight"):
            t.mul_(0.2)
        elif name == "linear.weight":
            t.mul_(0.1)


def sgd(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, weight_decay=1e-4)
    for x, labels in batches[:STEPS]:
        losses = F.cross_entropy(model(x), labels, reduction="none")
        yield losses.detach()
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()


SGD_SETTINGS = ("eta=0.005", "momentum=0.9", "weight_decay=0.0001", "warmup=0")
LAMBDA, A, ETA, DECAY = 2.0, 0.2, 0.02, 1e-4


def recover(model, batches):
    """u and v estimate E exp(loss / lambda) and its gradient; w moves along lambda v / u."""
    params = list(model.parameters())

    def tilted(x, labels, keep):
        """The batch's losses, g = mean exp(loss / lambda) and its gradient at the present weights.
        Only a batch at the newest weights may move the running statistics."""
        buffers = [b.clone() for b in model.buffers()]
        losses = F.cross_entropy(model(x), labels, reduction="none")
        g = torch.exp(losses.double() / LAMBDA).mean()
        grads = torch.autograd.grad(g, params)
        if not keep:
            for b, old in zip(model.buffers(), buffers):
                b.copy_(old)
        return losses.detach(), g.detach(), grads

    def put(values):
        with torch.no_grad():
            for p, value in zip(params, values):
                p.copy_(value)

    old = u = v = None
    for t, (x, labels) in enumerate(batches[:STEPS]):
        losses, g, dg = tilted(x, labels, True)
        yield losses
        w = [p.detach().clone() for p in params]
        if t == 0:
            u, v = g, [d.clone() for d in dg]
        else:
            put(old)
            _, g_old, dg_old = tilted(x, labels, False)
            before, u = u, g + (1 - A) * (u - g_old)
            assert 0.1 < u / before < 10  # else the library starts afresh
            v = [d + (1 - A) * (e - d_old) for d, e, d_old in zip(dg, v, dg_old)]
        old = w
        put([p - ETA * (LAMBDA / u * e + DECAY * p) for p, e in zip(w, v)])


RECOVER_SETTINGS = ("eta=%g" % ETA, "lambda=%g" % LAMBDA, "a_rule=fixed", "a=%g" % A, "guard=0",
                    "weight_decay=%g" % DECAY, "warmup=0", "eta_schedule=constant")
METHODS = {"sgd": (sgd, SGD_SETTINGS), "recover": (recover, RECOVER_SETTINGS)}


def check_steps(program, backend, name, folder):
    method, settings = METHODS[name]
    torch.manual_seed(11)
    model = make("resnet20", SMALL[0], SMALL[3])
    randomise(model)
    gentle(model)
    dump = Dump(program, backend, "resnet20", SMALL, folder)
    x, labels = make_examples(STEPS + 1)
    dump.write_weights(model)
    dump.write("x.f32", x)
    dump.write("labels.i32", labels)
    dump.run("train", name, STEPS, BATCH, *settings)
    model.train()
    theirs = torch.stack(list(method(model, list(zip(x.split(BATCH), labels.split(BATCH))))))
    ours = dump.read("losses.f32").reshape(STEPS, BATCH).mean(1)
    theirs = theirs.double().mean(1)
    what = "%s resnet20, %d steps of %s: " % (backend, STEPS, name)
    right = report(what + "losses", float(((ours - theirs) / theirs).abs().max()))
    print("    losses from %.3f to %.3f" % (theirs[:DISTINCT].mean(), theirs[-DISTINCT:].mean()))
    running = dict(model.named_buffers())
    gaps = [gap(s, running[n]) for n, s in dump.split(dump.read("running.f32"), "running").items()]
    return report(what + "running statistics", max(gaps), 10 * LIMIT) and right


def main():
    program, backend, *names = sys.argv[1:]
    wrong = []
    for name in names or [*SHAPES, *METHODS]:
        check = check_gradients if name in SHAPES else check_steps
        with tempfile.TemporaryDirectory() as folder:
            if not check(program, backend, name, folder):
                wrong.append(name)
    sys.exit("different: " + ", ".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
