#!/usr/bin/env python3
"""Compares two reference files number by number.

usage: compare.py OLD NEW [TOLERANCE=1e-9] [COLUMNS=all]

Words must be equal; numbers may differ by TOLERANCE, relative to the larger of 1 and their size. With
COLUMNS only that many words of a line count.
"""
import sys

old, new = (open(name).read().splitlines() for name in sys.argv[1:3])
tolerance = float(sys.argv[3]) if len(sys.argv) > 3 else 1e-9
columns = int(sys.argv[4]) if len(sys.argv) > 4 else None
assert len(old) == len(new), "%d lines against %d" % (len(old), len(new))
count = 0
for number, (a, b) in enumerate(zip(old, new), 1):
    left, right = a.split()[:columns], b.split()[:columns]
    assert len(left) == len(right), "line %d: %s | %s" % (number, a[:60], b[:60])
    for x, y in zip(left, right):
        try:
            u, v = float(x), float(y)
        except ValueError:
            assert x == y, "line %d: %s | %s" % (number, x, y)
            continue
        assert abs(u - v) <= tolerance * max(1, abs(u), abs(v)), "line %d: %s | %s" % (number, x, y)
        count += 1
print("equal: %d numbers" % count)
