"""The kernels of the last passes that cuda_trace.c wrote down, by name.

    python3 table.py kernels.csv [STEPS]

A queued step begins with a take_kernel that comes from a graph, and one that the host drives (where there are no
others) with a pack_kernel; the table is of the last STEPS of them (20): how often a kernel runs in a step, microseconds
a step and each, and at the end how long a step lasts, how much of it some kernel runs, and the sum of all kernels (more
than that when they run side by side).
"""
import re
import sys

rows = []
for line in open(sys.argv[1]):
    start, end, stream, graph, name = line.rstrip("\n").split(",", 4)
    rows.append((int(start), int(end), int(graph), name))
rows.sort()
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
marks = [r[0] for r in rows if r[2] and "take_kernel" in r[3]]
if not marks:
    marks = [r[0] for r in rows if r[2] and "pack_kernel" in r[3] and "unpack" not in r[3]]
marks = marks[-steps - 1:]
steps = len(marks) - 1
rows = [r for r in rows if marks[0] <= r[0] < marks[-1]]


def short(name):
    name = re.sub(r"^_Z\d*", "", name)
    return name[:100]


table = {}
for start, end, _, name in rows:
    t = table.setdefault(short(name), [0, 0])
    t[0] += 1
    t[1] += end - start
busy, reach = 0, 0
for start, end, _, _ in rows:
    busy += max(0, end - max(start, reach))
    reach = max(reach, end)
print(f"{'times':>6} {'us/step':>9} {'us each':>8}  kernel")
for name, (count, ns) in sorted(table.items(), key=lambda t: -t[1][1]):
    print(f"{count / steps:6.1f} {ns / steps / 1e3:9.1f} {ns / count / 1e3:8.1f}  {name}")
total = sum(t[1] for t in table.values())
print(f"{steps} steps: {(marks[-1] - marks[0]) / steps / 1e3:.1f} us each, "
      f"{busy / steps / 1e3:.1f} with a kernel, {total / steps / 1e3:.1f} in sum, "
      f"{len(rows) / steps:.0f} kernels")
