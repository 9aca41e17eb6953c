#!/usr/bin/env python3
"""Makes nets.txt: what PyTorch gives for small networks, in double, for tests/test_net_torch.c.

Weights, pixels, labels and coefficients are not in the file: a number is a hash of a name and an index
(`numbers`), which the test computes too. Networks are written with torch.nn.functional, over tensors by
name, independently of the library. For each case the file has

    case NET LOSS SETTING VALUE TRAINED PARTS    SETTING and TRAINED are - when there is none
    losses  part 0, then part 1, in training mode
    grad PART TENSOR NORM PROJECTION FIRST MIDDLE LAST
    running TENSOR NORM PROJECTION               running statistics after part 0
    eval  the losses of part 0, evaluated with the statistics before
    logits NORM PROJECTION and the first 12

NORM is the 2-norm, PROJECTION the product with numbers("along TENSOR"). PARTS are sizes: 4 or 4,3.
"""
import math
import os

import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


# ---- numbers by name: FNV-1a of the name, then src/base/random.c ----

def fnv(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return h


def mix(x):
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def bits(seed, stream, counter):
    with np.errstate(over="ignore"):
        golden, odd = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1342543DE82EF95)
        key = mix(mix(np.uint64(seed) + golden) + np.uint64(stream) * odd)
        return mix(key + (np.asarray(counter, dtype=np.uint64) + np.uint64(1)) * golden)


def unit(seed, stream, counter):
    return (bits(seed, stream, counter) >> np.uint64(11)).astype(np.float64) * 2.0 ** -53


def numbers(name, *shape):
    """Uniform in [-1, 1)."""
    count = int(np.prod(shape))
    return (2 * unit(fnv(name), 0, np.arange(count)) - 1).reshape(shape)


def single(x):
    """As the library holds it: rounded to float32."""
    return torch.tensor(np.asarray(x).astype(np.float32).astype(np.float64))


class Tensors:
    """Parameters and running statistics, made when a network first asks for them."""
    def __init__(self, trained):
        self.all, self.grads, self.trained = {}, [], trained

    def __call__(self, name, *shape):
        if name not in self.all:
            self.all[name] = self.make(name, shape)
        return self.all[name]

    def make(self, name, shape):
        u, what = numbers(name, *shape), name.rsplit(".", 1)[1]
        if len(shape) > 1:
            u = u * np.sqrt(6.0 / np.prod(shape[1:]))
        elif what == "running_var":
            u = 1 + 0.5 * u
        elif what == "weight":
            u = 1 + 0.25 * u
        else:
            u = 0.125 * u
        value = single(u)
        if "running" not in what and self.trains(name):
            self.grads.append(name)
            value.requires_grad_()
        return value

    def trains(self, name):
        """Patterns here are names that end in *."""
        return self.trained == "-" or any(name.startswith(p[:-1]) for p in self.trained.split(","))


# ---- layers and networks ----

class Run:
    """One forward over one part; keeps the new running statistics."""
    def __init__(self, tensors, training, keys, cosine=False):
        self.t, self.training, self.keys, self.running = tensors, training, keys, {}
        self.cosine = cosine

    def conv(self, name, x, channels, kernel, stride=1, pad=0, bias=False, groups=1):
        kernel = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        w = self.t(name + ".weight", channels, x.shape[1] // groups, *kernel)
        b = self.t(name + ".bias", channels) if bias else None
        return F.conv2d(x, w, b, stride, pad, groups=groups)

    def depthwise(self, name, x, kernel, stride=1, pad=0, bias=False):
        return self.conv(name, x, x.shape[1], kernel, stride, pad, bias, x.shape[1])

    def norm(self, name, x, eps=1e-5):
        c = x.shape[1]
        w, b = self.t(name + ".weight", c), self.t(name + ".bias", c)
        mean, var = (self.t(name + ".running_" + k, c).clone() for k in ("mean", "var"))
        y = F.batch_norm(x, mean, var, w, b, self.training and w.requires_grad, 0.1, eps)
        self.running[name + ".running_mean"], self.running[name + ".running_var"] = mean, var
        return y

    def unit(self, name, x, channels, kernel, stride=1, pad=0, eps=1e-5, dot=(".conv", ".bn")):
        x = self.conv(name + dot[0], x, channels, kernel, stride, pad)
        return self.norm(name + dot[1], x, eps)

    def linear(self, name, x, outputs):
        x = x.flatten(1)
        if self.cosine:  # every linear layer of these networks is an output
            return 30 * F.normalize(x) @ F.normalize(self.t(name + ".weight", outputs, x.shape[1])).T
        w, b = self.t(name + ".weight", outputs, x.shape[1]), self.t(name + ".bias", outputs)
        return F.linear(x, w, b)

    def dropout(self, node, x, rate):
        """The library's own masks: a hash of the example's key, the node and the element."""
        if not self.training:
            return x
        stream = 0x64726F70 + (node << 32)
        u = np.stack([unit(key, stream, np.arange(x[0].numel())) for key in self.keys])
        return x * torch.tensor((u >= rate) / (1 - rate)).reshape(x.shape)


def shortcut(x, channels, stride):
    pad = (channels - x.shape[1]) // 2
    return F.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, pad, pad))


def resnet20(r, x):
    x = F.relu(r.unit("", x, 16, 3, 1, 1, dot=("conv1", "bn1")))
    for stage in (1, 2, 3):
        for k in range(3):
            channels, name = 8 << stage, "layer%d.%d" % (stage, k)
            stride = 2 if stage > 1 and k == 0 else 1
            y = F.relu(r.unit(name, x, channels, 3, stride, 1, dot=(".conv1", ".bn1")))
            y = r.unit(name, y, channels, 3, 1, 1, dot=(".conv2", ".bn2"))
            x = F.relu(y + (shortcut(x, channels, stride) if stride > 1 else x))
    return r.linear("linear", x.mean((2, 3)), 10), None


def branches(r, x):
    """A little of everything: build_branches in tests/test_net_torch.c is the same."""
    scale, shift = torch.tensor([0.5, 0.75, 1.25]), torch.tensor([-0.25, 0.5, 0.125])
    x = x * scale[:, None, None] + shift[:, None, None]
    x = F.max_pool2d(F.relu(r.unit("stem", x, 8, 3, 2, 0, 0.001)), 3, 2, 1)
    a = F.relu(r.unit("a", x, 4, 1))
    b = F.relu(r.unit("b1", x, 5, (1, 7), 1, (0, 3)))
    b = F.relu(r.unit("b2", b, 6, (7, 1), 1, (3, 0)))
    c = F.relu(r.unit("c", F.avg_pool2d(x, 3, 1, 1), 3, 1))
    x = torch.cat([a, b, c], 1)
    aux = F.relu(r.conv("aux.conv", F.avg_pool2d(x, 5, 3), 6, 1, bias=True))
    aux = r.linear("aux.fc", aux, 5)
    y = F.relu(r.unit("d1", x, 4, 1))
    y = F.relu(r.unit("d2", y, 4, 3, 2, 1))
    y = r.unit("d3", y, 16, 1)
    x = F.relu(y + r.unit("down", x, 16, 1, 2))
    x = F.relu(r.conv("last", x, 20, 3, 2, 1) + shortcut(x, 20, 2))
    x = r.dropout(41, x.mean((2, 3)), 0.5)
    return r.linear("fc", x, 5), aux


def inverted(r, x):
    """Depthwise convolutions and ReLU6: build_inverted in tests/test_net_torch.c is the same."""
    x = 5 * F.relu6(3 * r.unit("stem", x, 20, 3, 2, 1))
    y = F.relu6(r.depthwise("deep1", x, (2, 5), (1, 2), (1, 0), bias=True))
    y = F.relu6(r.norm("norm1", r.depthwise("deep2", y, 3, 1, 1)))
    z = r.norm("norm2", r.conv("last", y, 20, 1))
    y = F.relu6(4 * r.norm("norm3", r.depthwise("deep3", y + z, 3, 2, 1)))
    return r.linear("fc", y.mean((2, 3)), 5), None


NETS = {"resnet20": (resnet20, (3, 16, 16), 10, 0), "branches": (branches, (3, 27, 23), 5, 0.4),
        "inverted": (inverted, (3, 21, 19), 5, 0)}
SHARES = [0.4, 0.3, 0.15, 0.1, 0.05]


# ---- losses, per example ----

def loss(kind, value, z, labels):
    hot = F.one_hot(labels, z.shape[1]).to(z.dtype)
    if kind == "cross-entropy":
        return F.cross_entropy(z, labels, reduction="none", label_smoothing=value)
    if kind == "focal":
        ce = F.cross_entropy(z, labels, reduction="none")
        return (1 - torch.exp(-ce)) ** value * ce
    if kind == "label-aware":
        shares = torch.tensor(SHARES)
        place = (shares - shares.min()) / (shares.max() - shares.min())
        smooth = (value * torch.sin(math.pi / 2 * place))[labels][:, None]
        target = (1 - smooth) * hot + smooth / z.shape[1]
        return F.cross_entropy(z + torch.log(shares), target, reduction="none")
    if kind == "logit-adjusted":
        return F.cross_entropy(z + value * torch.log(torch.tensor(SHARES)), labels, reduction="none")
    if kind == "ldam":
        shares = torch.tensor(SHARES)
        return F.cross_entropy(z - hot * value * (shares.min() / shares) ** 0.25, labels, reduction="none")
    if kind == "squared":
        return ((z - hot) ** 2).sum(1) / 2
    assert kind == "logistic"
    return F.softplus(-(2 * hot - 1) * z).sum(1)


# net, loss, setting, value, trained, parts
CASES = [
    ("resnet20", "cross-entropy", "-", 0, "-", (4,)),
    ("resnet20", "cross-entropy", "smoothing", 0.1, "-", (4, 3)),
    ("resnet20", "focal", "focal_gamma", 2, "layer3.2.*,linear.*", (4, 3)),
    ("branches", "cross-entropy", "-", 0, "-", (4,)),
    ("branches", "cross-entropy", "-", 0, "-", (4, 3)),
    ("branches", "cross-entropy", "smoothing", 0.1, "-", (4, 3)),
    ("branches", "focal", "focal_gamma", 1.5, "-", (4, 3)),
    ("branches", "logit-adjusted", "tau", 1.25, "-", (4, 3)),
    ("branches", "ldam", "ldam_margin", 1.5, "-", (4, 3)),
    ("branches", "squared", "-", 0, "-", (4, 3)),
    ("branches", "logistic", "-", 0, "-", (4, 3)),
    ("branches", "cross-entropy", "-", 0, "b1.*,d2.*,fc.*", (4, 3)),
    ("branches", "cross-entropy", "-", 0, "aux.*,a.*", (4,)),
    ("inverted", "cross-entropy", "-", 0, "-", (4, 3)),
    ("inverted", "cross-entropy", "-", 0, "deep1.*,norm2.*,fc.*", (4,)),
    ("branches", "cross-entropy", "classifier", "cosine", "-", (4, 3)),
    ("branches", "logit-adjusted", "smoothing_head", 0.4, "-", (4, 3)),
]


def line(out, *words):
    out.write(" ".join(w if isinstance(w, str) else "%.9g" % w for w in words) + "\n")


def summary(name, x):
    """Norm and projection."""
    x = x.detach().flatten()
    return float(x.norm()), float(x @ torch.tensor(numbers("along " + name, x.numel())))


def write(out, net, kind, setting, value, trained, parts):
    build, shape, outputs, weight = NETS[net]
    total, tensors, first, losses, grads = sum(parts), Tensors(trained), 0, [], []
    x = single(1.5 * numbers("x", total, *shape))
    labels = torch.tensor((bits(fnv("labels"), 0, np.arange(total)) % np.uint64(outputs)).astype(int))
    coef = single(1 + 0.5 * numbers("coef", total))
    keys, cosine = range(100, 100 + total), value == "cosine"

    def per_example(logits, at):
        which = "label-aware" if setting == "smoothing_head" else kind
        return loss(which, 0 if cosine else value, logits, labels[at])

    for k, count in enumerate(parts):
        at = slice(first, first + count)
        run = Run(tensors, True, keys[at], cosine)
        logits, aux = build(run, x[at])
        l = per_example(logits, at)
        if aux is not None:
            l = l + weight * per_example(aux, at)
        losses += l.tolist()
        wanted = [tensors.all[name] for name in tensors.grads]
        grads.append(torch.autograd.grad((coef[at] * l).sum(), wanted, allow_unused=True))
        running = run.running if k == 0 else running
        first += count

    line(out, "case", net, kind, setting, value, trained, ",".join(map(str, parts)))
    line(out, "losses", *losses)
    for k in range(len(parts)):
        for name, g in zip(tensors.grads, grads[k]):
            flat = g.flatten()
            line(out, "grad", str(k), name, *summary(name, g), flat[0], flat[len(flat) // 2], flat[-1])
    for name, v in running.items():
        line(out, "running", name, *summary(name, v))
    at = slice(0, parts[0])
    with torch.no_grad():
        logits, _ = build(Run(tensors, False, keys[at], cosine), x[at])
    line(out, "eval", *per_example(logits, at).tolist())
    line(out, "logits", *summary("logits", logits), *logits.flatten()[:12].tolist())


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nets.txt")
    with open(path, "w") as out:
        out.write("# Made by make_nets.py with PyTorch; read by tests/test_net_torch.c.\n")
        for case in CASES:
            write(out, *case)


if __name__ == "__main__":
    main()
