"""A training step of a CIFAR ResNet: `dro bench step` against PyTorch on the same CPU, interleaved.

    python3 step_speed.py DRO [--model resnet20] [--batch 128] [--rounds 7] [--threads N]

Every round runs each of PyTorch's variants and ours once, in turn. Printed are the medians over the
rounds, and the medians of the rounds' ratios, which depend less on what else the machine does.
PyTorch's variants: `stock` (eager, default settings), `best` (the fastest of channels-last,
TorchScript and both, with jemalloc where it is installed). Steps: sgd (momentum), recover (two
evaluations per step), eval (no gradients). DRO_CPU=avx2 or sse in the environment limits both sides.
Nothing is asserted: this is a benchmark.
"""
import argparse, json, os, statistics, subprocess, sys, time

# What stands for DRO_CPU in PyTorch's own kernels and in its oneDNN.
LIMITS = {"avx2": ("avx2", "AVX2"), "sse": ("default", "SSE41")}
JEMALLOC = ("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "/usr/lib/libjemalloc.so.2")


def worker(kind, variant, blocks, batch, threads):
    """A process that runs three steps whenever it is told to, and prints the milliseconds of one."""
    import torch, torch.nn.functional as F
    import torch_updates
    from cifar_resnet import CifarResNet

    torch.set_num_threads(threads)

    x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    new, old = (CifarResNet(blocks, 3, 10) for _ in range(2))
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
        torch_updates.sgd(w, v, torch.autograd.grad(F.cross_entropy(new(x), y), w), lr=0.01, wd=2e-4)

    def side(net, params):
        g = torch.exp(F.cross_entropy(net(x), y, reduction="none") / 5).mean()
        return g.detach(), list(torch.autograd.grad(g * 5, params))

    u = torch.ones(())

    def recover():
        torch_updates.recover(w, w_old, v, u, side(old, w_old), side(new, w), a=0.5, lr=0.01, wd=2e-4)

    def evaluate():
        with torch.inference_mode():
            new(x)

    step = {"sgd": sgd, "recover": recover, "eval": evaluate}[kind]
    for _ in range(4):
        step()
    print("ready", f"PyTorch {torch.__version__} with {torch.backends.cpu.get_cpu_capability()}",
          flush=True)
    for _ in sys.stdin:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            step()
            times.append((time.perf_counter() - start) * 1e3)
        print(statistics.median(times), flush=True)


class Peer:
    def __init__(self, kind, variant, args):
        env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
        limit = LIMITS.get(os.environ.get("DRO_CPU", "").lower())
        if limit:
            env["ATEN_CPU_CAPABILITY"], env["ONEDNN_MAX_CPU_ISA"] = limit
        elif variant != "stock":
            env["ATEN_CPU_CAPABILITY"] = "avx512"
        lib = next((p for p in JEMALLOC if os.path.exists(p)), None)
        if variant != "stock" and lib:
            env["LD_PRELOAD"] = lib
            env["MALLOC_CONF"] = "dirty_decay_ms:-1,muzzy_decay_ms:-1"  # else it is slower than without
        command = [sys.executable, os.path.abspath(__file__), "--worker", kind, "--variant", variant, args.dro,
                   "--model", args.model, "--batch", str(args.batch), "--threads", str(args.threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=env, stderr=subprocess.DEVNULL)
        self.times = []
        ready, _, self.used = self.process.stdout.readline().strip().partition(" ")
        if ready != "ready":
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
    if kind == "sgd":
        print(f"{args.model}, batch {args.batch}, {args.threads} threads, {args.rounds} rounds; "
              f"{', '.join(sorted({p.used for p in peers}))}", flush=True)
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
    ratio = {v: statistics.median(a / b for a, b in zip(mine, p.times)) for v, p in zip(variants, peers)}
    print(f"{kind}: ours {here:.1f} ms ({min(mine):.1f} to {max(mine):.1f}), "
          f"PyTorch stock {times['stock']:.1f} ms, best ({best}) {times[best]:.1f} ms: "
          f"{ratio['stock']:.2f} of stock, {ratio[best]:.2f} of best; {memory:.0f} MiB at most",
          flush=True)
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
