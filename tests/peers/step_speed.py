"""A training step of a CIFAR ResNet: `dro bench step` against PyTorch on the same CPU, interleaved.

    python3 step_speed.py DRO [--model resnet20] [--batch 128] [--rounds 7] [--threads N]

Every round runs each of PyTorch's variants and ours once, in turn; the medians over the rounds and their
ratios are printed. PyTorch's variants: `stock` (eager, as one writes it), `best` (the fastest of channels-last,
TorchScript and both, with jemalloc where it is installed). Steps: sgd (momentum), recover (two evaluations per
step), eval (no gradients). Nothing is asserted: this is a benchmark.
"""
import argparse, json, os, statistics, subprocess, sys, time

JEMALLOC = ("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "/usr/lib/libjemalloc.so.2")


def worker(kind, variant, blocks, batch, threads):
    """A process that runs three steps whenever it is told to, and prints the milliseconds of one."""
    import torch, torch.nn as nn, torch.nn.functional as F

    torch.set_num_threads(threads)

    class Block(nn.Module):
        def __init__(self, cin, cout, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(cout)
            self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(cout)
            self.grow = cout - cin

        def forward(self, x):
            y = F.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            if self.grow > 0:
                half = self.grow // 2
                x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, half, half))
            return F.relu(y + x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(16)
            layers, cin = [], 16
            for cout in (16, 32, 64):
                for j in range(blocks):
                    layers.append(Block(cin, cout, 2 if j == 0 and cout > 16 else 1))
                    cin = cout
            self.layers = nn.Sequential(*layers)
            self.linear = nn.Linear(64, 10)

        def forward(self, x):
            return self.linear(self.layers(F.relu(self.bn1(self.conv1(x)))).mean((2, 3)))

    x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    new, old = Net(), Net()
    if "cl" in variant:
        new, old = (m.to(memory_format=torch.channels_last) for m in (new, old))
        x = x.to(memory_format=torch.channels_last)
    if kind == "eval":
        new.eval()
    if "script" in variant:
        new, old = torch.jit.script(new), torch.jit.script(old)
        if kind == "eval":
            new = torch.jit.freeze(new)
    w, w_old = list(new.parameters()), list(old.parameters())
    v = [torch.zeros_like(p) for p in w]

    def sgd():
        g = torch.autograd.grad(F.cross_entropy(new(x), y), w)
        with torch.no_grad():
            torch._foreach_mul_(v, 0.9)
            torch._foreach_add_(v, list(g))
            torch._foreach_add_(v, w, alpha=2e-4)
            torch._foreach_add_(w, v, alpha=-0.01)

    def side(net, params):
        g = torch.exp(F.cross_entropy(net(x), y, reduction="none") / 5).mean()
        return g.detach(), list(torch.autograd.grad(g * 5, params))

    u = torch.ones(())

    def recover(a=0.5):
        g0, grad0 = side(old, w_old)
        g1, grad1 = side(new, w)
        with torch.no_grad():
            u.copy_((g1 + (1 - a) * (u - g0)).clamp(min=1.0))
            torch._foreach_sub_(v, grad0)
            torch._foreach_mul_(v, 1 - a)
            torch._foreach_add_(v, grad1)
            torch._foreach_copy_(w_old, w)
            d = torch._foreach_div(v, u)
            torch._foreach_add_(d, w, alpha=2e-4)
            torch._foreach_add_(w, d, alpha=-0.01)

    def evaluate():
        with torch.inference_mode():
            new(x)

    step = {"sgd": sgd, "recover": recover, "eval": evaluate}[kind]
    for _ in range(4):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            step()
            times.append((time.perf_counter() - start) * 1e3)
        print(statistics.median(times), flush=True)


class Peer:
    def __init__(self, kind, variant, args):
        env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), ATEN_CPU_CAPABILITY="avx512")
        lib = next((p for p in JEMALLOC if os.path.exists(p)), None)
        if variant != "stock" and lib:
            env["LD_PRELOAD"] = lib
            env["MALLOC_CONF"] = "dirty_decay_ms:-1,muzzy_decay_ms:-1"  # else it is slower than without
        if variant == "stock":
            del env["ATEN_CPU_CAPABILITY"]
        command = [sys.executable, os.path.abspath(__file__), "--worker", kind, "--variant", variant, args.dro,
                   "--model", args.model, "--batch", str(args.batch), "--threads", str(args.threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=env, stderr=subprocess.DEVNULL)
        self.times = []
        if self.process.stdout.readline().strip() != "ready":
            raise SystemExit(f"step_speed: PyTorch's {kind} {variant} did not start")

    def run(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.times.append(float(self.process.stdout.readline()))

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def ours(kind, args):
    out = subprocess.run([args.dro, "bench", "step", "--model", args.model, "--batch", str(args.batch),
                          "--optimizer", kind, "--rounds", "5", "--threads", str(args.threads), "--json"],
                         check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def compare(kind, args):
    variants = ["stock", "cl", "script", "cl+script"]
    peers, mine, memory = [Peer(kind, v, args) for v in variants], [], 0
    for _ in range(args.rounds):
        for peer in peers:
            peer.run()
            time.sleep(0.5)  # until its threads no longer spin
        result = ours(kind, args)
        mine.append(result["ms_per_step"])
        memory = max(memory, result["peak_mib"])
    for peer in peers:
        peer.stop()
    times = {v: statistics.median(p.times) for v, p in zip(variants, peers)}
    best = min(times, key=times.get)
    here = statistics.median(mine)
    print(f"{kind}: ours {here:.1f} ms ({min(mine):.1f} to {max(mine):.1f}), PyTorch stock {times['stock']:.1f} ms, "
          f"best ({best}) {times[best]:.1f} ms: {here / times['stock']:.2f} of stock, {here / times[best]:.2f} of "
          f"best; {memory:.0f} MiB at most", flush=True)
    return here


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("dro")
    ap.add_argument("--model", default="resnet20", choices=["resnet20", "resnet32", "resnet56"])
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--rounds", type=int, default=7)
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--worker")
    ap.add_argument("--variant")
    args = ap.parse_args()
    if args.worker:
        worker(args.worker, args.variant, {"resnet20": 3, "resnet32": 5, "resnet56": 9}[args.model], args.batch,
               args.threads)
    else:
        times = {kind: compare(kind, args) for kind in ("sgd", "recover", "eval")}
        print(f"a RECOVER step costs {times['recover'] / times['sgd']:.2f} SGD steps")
