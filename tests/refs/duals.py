"""kl-radius, cvar and chi2 online (src/backend/objectives.h), for make_trajectories.py.

The scalars of an objective are a threshold and a multiplier. Over examples they follow by Newton's
method what the moments of the weights are off; over groups they are solved for, here by bisection.
"""
import math

import numpy as np

RATE, WIDE, NARROW, NEAR, FAR = 0.1, 0.2, 0.01, 0.5, 4
LEAST, LEAP, TIED, LINEAR = 1e-4, 0.2, 1e3, 3


def bisect(f, low, high):
    """Where f, which falls, passes 0."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) > 0 else (low, middle)
    return middle


class Scalars:
    def __init__(self, run, groups=False):
        self.groups = groups
        name, argument = run.s.objective.split(":")
        self.run, self.kind, self.argument = run, name, float(argument)
        self.log_u, self.count, self.most, self.slope, self.t = 0, 0, 0, 0, 0
        self.off = None

    def x(self, losses):
        if self.kind == "kl-radius":
            return np.minimum(losses / self.multiplier - self.log_u, self.run.s.cap)
        return (losses - self.threshold) / self.multiplier

    def weights(self, losses):
        x = self.x(losses)
        if self.kind == "kl-radius":
            return np.exp(x)
        return np.clip(x, 0, 1 / self.argument) if self.kind == "cvar" else np.maximum(x, 0)

    def moments(self, losses, p):
        """What they are off."""
        w, rho = self.weights(losses), self.argument
        if self.kind == "kl-radius":
            return np.array([p @ (w * (self.x(losses) - rho - 1)) + 1, 0])
        second = p @ w ** 2 - 1 - 2 * rho if self.kind == "chi2" else 0
        return np.array([p @ w - 1, second])

    def lam(self):
        if not self.count:
            return None
        lam = self.excess if self.kind == "cvar" else self.multiplier
        if self.kind != "kl-radius" or self.groups:
            lam = max(lam, TIED * self.least * (1 if self.groups else self.share))
        slow = self.kind == "kl-radius" or self.groups and self.run.case.optimizer in ("cover", "recover")
        return lam if slow else (1 + (LINEAR - 1) * (1 if self.groups else self.share)) * lam

    def eta(self):
        return self.run.eta(self.t) * self.run.stretch

    def ramp(self):
        return self.argument * max(NARROW, WIDE * min(1, self.eta() / self.most)) * self.excess

    def rate(self):
        most = max(self.most, self.eta())
        return max(RATE * math.sqrt(self.eta() / most), 1 / (self.count + 1))

    def coming_rate(self):
        """That of the step to come: a is at least this."""
        self.count += 1
        rate = self.rate()
        self.count -= 1
        return rate

    def note(self, losses, p, rate):
        w, x = self.weights(losses), self.x(losses)
        slope = {"kl-radius": w * (x - self.argument) ** 2, "chi2": w > 0, "cvar": None}[self.kind]
        if self.kind == "cvar":
            slope = np.maximum(0, 1 - np.abs(losses - self.threshold) / (NEAR * self.excess))
        excess = p @ (w * losses) - self.threshold * (p @ w - 1) - p @ losses
        self.slope += rate * (p @ slope - self.slope)
        self.excess = max(self.excess + rate * (excess - self.excess), self.least)

    def begin(self, losses, p):
        mean = p @ losses
        spread = math.sqrt(p @ (losses - mean) ** 2)
        size = max(abs(mean), spread)
        self.least, self.excess = LEAST * size, max(spread, 0.1 * size)
        self.threshold, self.most, self.count = mean, self.eta(), 1
        self.multiplier = max(spread / math.sqrt(2 * self.argument), 0.1 * size)
        if self.kind == "cvar":
            self.multiplier = self.ramp()
        if self.kind != "kl-radius":
            self.find_threshold(losses, p)

    def find_threshold(self, losses, p):
        def mass(threshold):
            self.threshold = threshold
            return p @ self.weights(losses) - 1
        self.threshold = bisect(mass, losses.min() - self.multiplier, losses.max())

    def scale_by(self, x):
        before = self.multiplier
        self.multiplier = max(before * math.exp(np.clip(x, -LEAP, LEAP)), self.least)
        if self.kind == "kl-radius":
            self.log_u -= math.log(self.multiplier / before) * (self.argument + self.log_u)

    def move(self):
        rate, self.most = self.rate(), max(self.most, self.eta())
        if self.kind == "kl-radius":
            self.scale_by(rate * self.off[0] / max(self.slope, 0.1 * self.argument))
        elif self.kind == "cvar":
            by = self.off[0] * NEAR * self.excess / max(self.slope, 1e-300)
            self.threshold += rate * np.clip(by, -FAR * self.excess, FAR * self.excess)
            self.multiplier = self.ramp()
        else:  # (p e + d, 2 e + 2 c d) = off, e in units of lambda, d of log lambda
            c, p = 1 + 2 * self.argument, self.slope
            det = max(c * p - 1, 0.1)
            e = (c * self.off[0] - self.off[1] / 2) / det
            d = (p * self.off[1] / 2 - self.off[0]) / det
            scale = rate / max(1, rate * abs(e), rate * abs(d) / LEAP)
            self.threshold += self.multiplier * scale * e
            self.scale_by(scale * d)
        self.count += 1

    def solve(self, losses, p):
        """Over groups: the scalars for these mean losses."""
        if not self.count:
            self.begin(losses, p)
        else:
            self.count += 1
        self.most = max(self.most, self.eta())
        if self.kind == "cvar":
            self.multiplier = self.ramp()
            self.find_threshold(losses, p)
        elif self.kind == "kl-radius":
            def radius(x):
                self.multiplier = math.exp(x)
                y = losses / self.multiplier
                self.log_u = y.max() + math.log(p @ np.exp(y - y.max()))
                w = np.exp(y - self.log_u)
                return p @ (w * (y - self.log_u)) - self.argument
            radius(bisect(radius, math.log(self.least), 20))
        else:
            def radius(x):
                self.multiplier = math.exp(x)
                self.find_threshold(losses, p)
                return p @ self.weights(losses) ** 2 - 1 - 2 * self.argument
            radius(bisect(radius, math.log(self.least), 20))
        self.note(losses, p, 1)


class DualExamples(Scalars):
    """An estimator of make_trajectories.py."""
    before = None

    def gradient(self, now, scale=1):
        return (scale * self.weights(now[0])[:, None] * now[1]).mean(0)

    def ready(self, losses):
        self.p = np.full(len(losses), 1 / len(losses))
        self.share = min(1, self.eta() / self.most) if self.most else 1
        if not self.count:
            self.begin(losses, self.p)
            self.log_u = None
        elif self.off is not None:
            self.move()
        if self.log_u is None or self.off is None:
            x = losses / self.multiplier
            self.log_u = x.max() + math.log(np.exp(x - x.max()).mean())

    def fresh(self, ids, now, lam):
        self.ready(now[0])
        self.start_afresh(now)

    def start_afresh(self, now):
        x = now[0] / self.multiplier
        self.log_u = x.max() + math.log(np.exp(x - x.max()).mean())
        self.off = self.moments(now[0], self.p)
        self.d = self.gradient(now)
        self.note(now[0], self.p, self.rate())
        self.here = (self.threshold, self.multiplier, self.log_u)
        self.t += 1

    def recur(self, ids, now, old, lam, a):
        # the old point, with the scalars of its step
        g0, m0 = self.gradient(old), self.moments(old[0], self.p)
        mean0 = self.weights(old[0]).mean()
        self.ready(now[0])
        before, g1 = self.d, self.gradient(now)
        keep = 1 - (max(a, RATE) if self.kind == "kl-radius" else a)
        off = self.moments(now[0], self.p) + keep * (self.off - m0)
        ratio = 1
        if self.kind == "kl-radius":
            ratio = self.weights(now[0]).mean() + (1 - a) * (1 - mean0)
            off[0] = 1 + (off[0] - 1) / ratio - math.log(ratio)
        check = ratio if self.kind == "kl-radius" else 1 + off[0]
        self.run.ratio_gap = min(self.run.ratio_gap, abs(check - 0.1), abs(check - 10))
        self.note(now[0], self.p, self.rate())
        if not 0.1 <= check <= 10:
            raise AssertionError("a fresh start: choose another case")
        self.c = self.weights(now[0])
        self.log_u += math.log(ratio)
        self.d = (g1 + (1 - a) * (before - g0)) / ratio
        self.off = off
        self.t += 1
        return g1, g0, before

    def moved(self, ids, now, old, lam):
        return self.c @ ((now[0] - old[0]) / self.lam()) ** 2 / self.c.sum()

    def batch(self, now, heaviest):
        """sgd and adamw: weights by what was known before the batch."""
        self.ready(now[0])
        mean, rate = self.weights(now[0]).mean(), self.rate()
        share = min(1, heaviest / mean) if self.kind == "kl-radius" else 1
        g = self.gradient(now, share)
        self.off = self.moments(now[0], self.p)
        self.note(now[0], self.p, rate)
        if self.kind == "kl-radius":
            self.log_u += math.log(1 - rate + rate * share * mean)
        self.t += 1
        return g
