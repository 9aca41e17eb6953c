#!/usr/bin/env python3
"""Reference trajectories of every optimiser: plain NumPy in float64, written from the equations.

    python3 tests/refs/make_trajectories.py            writes tests/refs/trajectories.txt
    python3 tests/refs/make_trajectories.py --summary  prints one line per case, writes nothing

Needs NumPy, any version. tests/test_trajectory.c runs the same cases through the library. This file
shares no code with the library and is not generated from it: when the two differ, one of them is
wrong. Every case is also run with w and the losses rounded to float32 in every step; a case that
such rounding moves by more than 1e-5 would test chaos, not the method, and is refused here.
"""
import itertools
import math
import os
import sys

import numpy as np

from duals import DualExamples, Scalars

CHECKPOINTS = (1, 2, 3, 5, 10, 20, 50, 100, 150, 200)
STREAM_ORDER, STREAM_DUAL = 0x6F72, 0x6475
MASK = (1 << 64) - 1


# ---- random numbers: src/base/random.c with Python integers ----

def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def random_bits(seed, stream, counter):
    key = mix((mix(seed + 0x9E3779B97F4A7C15 & MASK) + stream * 0xD1342543DE82EF95) & MASK)
    return mix(key + (counter + 1) * 0x9E3779B97F4A7C15 & MASK)


def random_unit(seed, stream, counter):
    return (random_bits(seed, stream, counter) >> 11) * 2.0 ** -53


def random_below(seed, stream, counter, n):
    return random_bits(seed, stream, counter) * n >> 64


def uniform(seed, stream, shape, low=-1.0, high=1.0):
    """An array of numbers with three decimals: they print short and mean the same everywhere."""
    size = int(np.prod(shape))
    flat = [random_unit(seed, stream, k) for k in range(size)]
    return np.round(low + (high - low) * np.array(flat), 3).reshape(shape)


# ---- the problems: (losses, gradients) of each example ----

class Problem:
    def __init__(self, x, y):
        self.x, self.y, self.n = x, y, len(x)
        i = np.arange(self.n)
        self.labels = {"class": (y > 0).astype(int), "group": np.where(i % 16 == 7, 2, i % 2)}
        self.groups = {"class": 2, "group": 3}

    def shares(self, level):
        return np.bincount(self.labels[level], minlength=self.groups[level]) / self.n


class Convex(Problem):
    """log(1 + exp(-y <x, w>))"""
    def __init__(self):
        x = uniform(7, 1, (64, 8))
        teacher = uniform(7, 2, (8,))
        y = np.where(x @ teacher + uniform(7, 3, (64,), -0.2, 0.2) > 0.55, 1.0, -1.0)
        y[[4, 21, 50]] *= -1  # the hard rows
        super().__init__(x, y)
        self.w0 = np.round(uniform(7, 4, (8,)) * 32) / 64

    def __call__(self, w, ids):
        x, y = self.x[ids], self.y[ids]
        margin = y * (x @ w)
        return np.logaddexp(0, -margin), (-y / (1 + np.exp(margin)))[:, None] * x


class Nonconvex(Problem):
    """(sum_k v_k tanh(<u_k, x>) - y)^2 / 2, w = (u_1, u_2, u_3, v)"""
    def __init__(self):
        x = uniform(8, 1, (64, 4))
        teacher = uniform(8, 2, (3, 4), -2, 2)
        y = np.tanh(x @ teacher.T) @ np.array([1.0, -0.8, 0.6]) + uniform(8, 3, (64,), -0.1, 0.1)
        y = np.round(y + 0.4, 3)
        y[[9, 33, 58]] += 1.5  # the hard rows
        super().__init__(x, np.round(y, 3))
        self.w0 = np.round(uniform(8, 4, (15,)) * 48) / 64

    def __call__(self, w, ids):
        x, y, u, v = self.x[ids], self.y[ids], w[:12].reshape(3, 4), w[12:]
        h = np.tanh(x @ u.T)
        error = h @ v - y
        du = (error[:, None] * v * (1 - h * h))[:, :, None] * x[:, None, :]
        return error ** 2 / 2, np.hstack([du.reshape(len(x), 12), error[:, None] * h])


class Composite(Problem):
    """f(E g): g = (<r, w>, <r, w>^2), f(u) = -u1 + 2 (u2 - u1^2). Gives g and its Jacobian."""
    def __init__(self):
        x = uniform(9, 1, (64, 5)) + np.array([0.3, 0.1, -0.2, 0.4, 0.0])
        super().__init__(np.round(x, 3), np.zeros(64))
        self.w0 = np.round(uniform(9, 4, (5,)) * 32) / 64

    def __call__(self, w, ids):
        r = self.x[ids]
        s = r @ w
        return np.stack([s, s * s], 1), np.stack([r, 2 * s[:, None] * r], 1)

    @staticmethod
    def outer(u):
        return np.array([-1 - 4 * u[0], 2.0])


PROBLEMS = {"convex": Convex(), "nonconvex": Nonconvex(), "composite": Composite()}


# ---- what all methods share: settings, schedules, draws, the proximal step ----

DEFAULTS = dict(
    eta=0.1, eta_schedule="constant", eta_end=0, warmup=0, stage_factor=10, steps=0, stages=[],
    poly_start=100, poly_power=1 / 3, theory_mu=0.1, theory_factor=1, batch=8, order="uniform",
    seed=1, weight_decay=0, reg="none", reg_strength=0, reg_ratio=0.5, reg_block=1, reg_low=-1,
    reg_high=1, reg_radius=1,
    **{"lambda": 1}, lambda_schedule="constant", lambda_end=1, lambda_start=100, lambda_warmup=0,
    lambda_factor=1, tilt="example", group_prior="uniform", switch_step=0, switch_lambda=0,
    switch_tilt="same", cap=10,
    precondition="none", momentum=0, beta2=0, epsilon=1e-8, longest=1,
    a_rule="auto", a=0.1, a_schedule="constant", a_end=0, a_warmup=0, a_decay=1, a_c=1, a_min=0,
    guard=0.25, objective="", gamma=0.03, heaviest=3, ema=0, sam=0,
    sam_over="example")


class Run:
    """One case: its settings, where the drawing order stands, and what was counted."""
    def __init__(self, case, rounding):
        self.case, self.problem, self.rounding = case, PROBLEMS[case.problem], rounding
        self.s = type("Settings", (), {**DEFAULTS, **case.settings})
        self.lam0 = {**DEFAULTS, **case.settings}["lambda"]
        self.position = self.examples = self.evaluations = self.dual_draws = 0
        self.fresh_starts, self.caps, self.ratio_gap, self.draw_gap = 0, 0, np.inf, np.inf
        self.w0 = self.problem.w0
        self.dual, self.stretch = None, 1
        self.robust = ":" in self.s.objective
        self.boundaries, planned = [], 0
        for end in map(self.as_steps, self.s.stages):
            if end > planned:
                self.boundaries.append(end)
                planned = end

    def as_steps(self, value):
        return math.floor(value * self.s.steps) if 0 < value < 1 else value

    def theory_stage(self, t):
        at, s = 0, self.s
        for k in itertools.count():
            at += math.ceil(s.theory_factor * max(48 / (s.eta * s.theory_mu) * 2 ** (k / 2),
                                                  4 / s.eta ** 2 * 2 ** k))
            if t < at:
                return k

    def schedule(self, t, value, kind, end, start, warmup, factor, power=1):
        s = self.s
        if kind == "poly":
            value = value / (1 + t / s.poly_start) ** (power * s.poly_power)
        elif kind == "step":
            value = value / factor ** sum(b <= t for b in self.boundaries)
        elif kind == "theory":
            value = value / 2 ** (power * self.theory_stage(t) / 2)
        elif kind == "cosine":
            value = end + (value - end) * (1 + math.cos(math.pi * min(t / (s.steps - 1), 1))) / 2
        warmup = self.as_steps(warmup)
        return start + (value - start) * (t + 1) / warmup if t < warmup else value

    def heaviest(self, t):
        eta = self.eta(t)
        return self.s.heaviest * max(self.eta(k) for k in range(t + 1)) / eta if eta else math.inf

    def eta(self, t):
        s = self.s
        return self.schedule(t, s.eta, s.eta_schedule, s.eta_end, 0, s.warmup, s.stage_factor)

    def a(self, t):
        s = self.s
        return self.schedule(t, s.a, s.a_schedule, s.a_end, 1, s.a_warmup, s.a_decay, power=2)

    def switched(self, t):
        return self.s.switch_step and t >= self.s.switch_step

    def lam(self, t):
        s = self.s
        if self.dual:
            return self.dual.lam()
        if self.switched(t) and s.switch_lambda:
            return s.switch_lambda
        return self.schedule(t, self.lam0, s.lambda_schedule, s.lambda_end, s.lambda_start,
                             s.lambda_warmup, s.lambda_factor)

    def level(self, t):
        s = self.s
        return s.switch_tilt if self.switched(t) and s.switch_tilt != "same" else s.tilt

    def last(self, t):
        return self.s.steps and t + 1 >= self.s.steps

    def draw(self, count):
        """The ids of the next `count` positions."""
        at = range(self.position, self.position + count)
        self.position += count
        self.examples += count
        return np.array([random_below(self.s.seed, STREAM_ORDER, k, self.problem.n) for k in at])

    def draw_by(self, p, count):
        """Ids drawn with probabilities p."""
        total, ids = np.cumsum(p), []
        for _ in range(count):
            u = random_unit(self.s.seed, STREAM_DUAL, self.dual_draws) * total[-1]
            self.dual_draws += 1
            self.draw_gap = min(self.draw_gap, np.abs(total - u).min())
            ids.append(int(np.argmax(total > u)))
        self.examples += count
        return np.array(ids)

    def full(self, w, ids):
        """Losses and gradients of examples at w."""
        self.evaluations += len(ids)
        losses, gradients = self.problem(w, ids)
        return self.rounding(losses), gradients

    def losses(self, w, ids):
        return self.full(w, ids)[0]

    def ascend(self, w, ids):
        """SAM: where the gradients of a step at w are taken."""
        if not self.s.sam:
            return w
        g, labels = self.full(w, ids)[1], self.problem.labels["class"][ids]
        if self.s.sam_over == "class":
            g = np.array([g[labels == c].mean(0) for c in np.unique(labels)])
        g = g.mean(0)
        return self.rounding(w + self.s.sam * g / np.linalg.norm(g))

    def prox(self, x, step):
        s, strength = self.s, step * self.s.reg_strength
        if s.reg == "l2":
            x = x / (1 + strength)
        elif s.reg == "l1":
            x = soft(x, strength)
        elif s.reg == "elastic":
            x = soft(x, strength * s.reg_ratio) / (1 + strength * (1 - s.reg_ratio))
        elif s.reg == "group":
            blocks = [x[k:k + s.reg_block] for k in range(0, len(x), s.reg_block)]
            x = np.concatenate([b * max(0, 1 - strength / np.linalg.norm(b)) for b in blocks])
        elif s.reg == "box":
            x = np.clip(x, s.reg_low, s.reg_high)
        elif s.reg == "ball":
            x = x * min(1, s.reg_radius / np.linalg.norm(x))
        return self.rounding(x)

    def step(self, w, d, eta):
        return self.prox(w - eta * (d + self.s.weight_decay * w), eta)

    # E(x) and E'(x): exp, continued beyond the cap as its tangent.
    def value(self, x):
        cap = self.s.cap
        return np.where(x <= cap, np.exp(np.minimum(x, cap)), np.exp(cap) * (1 + x - cap))

    def slope(self, x):
        self.caps += int((x > self.s.cap).sum())
        return np.exp(np.minimum(x, self.s.cap))


def soft(x, threshold):
    return np.sign(x) * np.maximum(np.abs(x) - threshold, 0)


def log_mean_exp(x):
    return x.max() + math.log(np.mean(np.exp(x - x.max())))


def mean_of(weights, gradients):
    return (weights[:, None] * gradients).mean(0)


# ---- estimators: what is tracked of the batches, per level of the tilt ----
#
#   fresh(ids, now, lam)             start from one batch; `now` is (losses, gradients) at w
#   big(ids, now, lam)               start a stage of civr from its big batch
#   recur(ids, now, old, lam, a)     the same batch at the new and the old point; gives G1, G0 and
#                                    the direction before, or None when it started afresh instead
#   move(ids, losses, lam, rate)     a plain moving average (ascpg, absgd)
#   direction(ids, now, lam)         the weighted gradient of a batch
#   d                                the direction

class Examples:
    def __init__(self, run, level):
        self.run, self.flat, self.log_u, self.lam = run, level == "none", None, None

    def x(self, losses, lam):
        return 0 * losses if self.flat else losses / lam

    def fresh(self, ids, now, lam):
        x = self.x(now[0], lam)
        self.log_u, self.lam, self.before = log_mean_exp(x), lam, None
        self.d = mean_of(np.exp(x - self.log_u), now[1])

    big = fresh

    def recur(self, ids, now, old, lam, a):
        run = self.run
        x1, x0 = self.x(now[0], lam) - self.log_u, self.x(old[0], self.lam) - self.log_u
        ratio = run.value(x1).mean() + (1 - a) * (1 - run.value(x0).mean())
        run.ratio_gap = min(run.ratio_gap, abs(ratio - 0.1), abs(ratio - 10))
        if not 0.1 <= ratio <= 10:
            run.fresh_starts += 1
            return self.fresh(ids, now, lam)
        before, g1, g0 = self.d, mean_of(run.slope(x1), now[1]), mean_of(run.slope(x0), old[1])
        self.d = (g1 + (1 - a) * (before - g0)) / ratio
        self.before = self.log_u  # what the weights of this batch are relative to
        self.log_u += math.log(ratio)
        self.lam = lam
        return g1, g0, before

    def moved(self, ids, now, old, lam):
        x = self.x(now[0], lam)
        c = self.run.slope(x - self.before) if self.before is not None else np.exp(x - self.log_u)
        return (c * (self.x(now[0], lam) - self.x(old[0], lam)) ** 2).sum() / c.sum()

    def carry_over(self, losses, lam):
        """A moving average when lambda has moved: lambda log u stays, unless the batch is far from it."""
        if self.log_u is not None and self.lam != lam:
            new = log_mean_exp(self.x(losses, lam))
            self.log_u *= self.lam / lam
            if abs(new - self.log_u) > math.log(10):
                self.log_u = new
                self.run.fresh_starts += 1
        self.lam = lam

    def move(self, ids, losses, lam, rate):
        new = log_mean_exp(self.x(losses, lam))
        self.carry_over(losses, lam)
        if self.log_u is None or rate == 1:
            self.log_u = new
        else:
            self.log_u = np.logaddexp(math.log(1 - rate) + self.log_u, math.log(rate) + new)

    def direction(self, ids, now, lam):
        self.carry_over(now[0], lam)
        return mean_of(self.run.slope(self.x(now[0], lam) - self.log_u), now[1])


class Groups:
    def __init__(self, run, level):
        self.run, self.labels, self.size = run, run.problem.labels[level], run.problem.groups[level]
        self.given = run.problem.shares(level) if run.case.shares else None
        self.u, self.seen = np.zeros(self.size), np.zeros(self.size, bool)
        self.counts, self.q = np.zeros(self.size), None
        self.away = np.zeros(self.size)  # steps since each group was last present
        # Kalman's: variance of u in units of an example's, noise of a change and of an example
        self.rho, self.change, self.noise = np.ones(self.size), {}, {}

    def gains(self, ids, m1, m0, present, k):
        """The weight of the batch's mean in each group's u."""
        counts, gains = np.bincount(self.labels[ids], minlength=self.size), np.ones(self.size)
        for g in np.flatnonzero(present):
            n = counts[g]
            if not self.seen[g]:
                self.rho[g] = 1 / n
                continue
            delta = k[g] ** 2 * self.change[g] / self.noise[g] if self.noise.get(g) else 0
            rho = self.rho[g] + delta / n
            gain = min(1, max(rho / (1 / n + rho), math.sqrt(delta), 1 - (1 - self.run.s.a_min) ** k[g]))
            gains[g], self.rho[g] = gain, (1 - gain) ** 2 * rho + gain ** 2 / n
            change, noise = n * (m1[g] - m0[g]) ** 2, n * (m0[g] - self.u[g]) ** 2
            known = self.noise.get(g)
            self.change[g] = 0.9 * self.change[g] + 0.1 * change if known else change
            self.noise[g] = 0.9 * self.noise[g] + 0.1 * noise if known else noise
        return gains

    def renew(self, ids, present):
        """u of these groups begins again with the batch."""
        counts = np.bincount(self.labels[ids], minlength=self.size)
        self.rho[present] = 1 / counts[present]
        for g in np.flatnonzero(present):
            self.change[g] = self.noise[g] = 0

    def count(self, ids):
        self.counts += np.bincount(self.labels[ids], minlength=self.size)

    def share(self):
        return self.counts / self.counts.sum() if self.given is None else self.given

    def prior(self):
        uniform_prior = np.full(self.size, 1 / self.size)
        return self.share() if self.run.s.group_prior == "data" else uniform_prior

    def means(self, ids, losses):
        """Mean loss of each group in a batch, and which groups are in it."""
        counts = np.bincount(self.labels[ids], minlength=self.size)
        sums = np.bincount(self.labels[ids], losses, minlength=self.size)
        return sums / np.maximum(counts, 1), counts > 0

    def weigh(self, lam):
        """q from u, over the groups that were seen."""
        x = np.log(self.prior()[self.seen]) + self.u[self.seen] / lam
        total = np.logaddexp.reduce(x)
        self.q = np.zeros(self.size)
        self.q[self.seen] = np.exp(x - total)
        self.log_u = total - math.log(self.prior()[self.seen].sum())

    def gradient(self, ids, gradients, q):
        g = self.labels[ids]
        return mean_of(q[g] / self.share()[g], gradients)

    def fresh(self, ids, now, lam):
        self.count(ids)
        self.u, self.seen = self.means(ids, now[0])
        self.renew(ids, self.seen)
        self.away = np.where(self.seen, 0, self.away + 1)
        self.weigh(lam)
        self.q_old = self.q
        self.d = self.gradient(ids, now[1], self.q)

    def big(self, ids, now, lam):
        self.count(ids)
        self.q_old = self.prior() if self.q is None else self.q
        self.d = self.gradient(ids, now[1], self.q_old)
        means, present = self.means(ids, now[0])
        self.renew(ids, present)
        self.away = np.where(present, 0, self.away + 1)
        self.u, self.seen = np.where(present, means, self.u), self.seen | present
        self.weigh(lam)

    def recur(self, ids, now, old, lam, a):
        self.count(ids)
        before = self.d
        g1, g0 = self.gradient(ids, now[1], self.q), self.gradient(ids, old[1], self.q_old)
        self.d = g1 + (1 - a) * (before - g0)
        m1, present = self.means(ids, now[0])
        m0, _ = self.means(ids, old[0])
        k, gain = np.ones(self.size), a
        if self.run.s.a_rule == "auto" and a > 0:  # civr's is 0
            k = self.away + 1
            gain = self.gains(ids, m1, m0, present, k)
        moved = np.where(self.seen, m1 + (1 - gain) * (self.u - m1 + k * (m1 - m0)), m1)
        self.away = np.where(present, 0, self.away + 1)
        self.u, self.seen = np.where(present, moved, self.u), self.seen | present
        self.q_old = self.q
        self.weigh(lam)
        return g1, g0, before

    def moved(self, ids, now, old, lam):
        (m1, present), (m0, _) = self.means(ids, now[0]), self.means(ids, old[0])
        q = np.where(present, self.q, 0)
        return (q * ((m1 - m0) / lam) ** 2).sum() / q.sum() if q.sum() > 0 else 0

    def move(self, ids, losses, lam, rate):
        self.count(ids)
        means, present = self.means(ids, losses)
        moved = np.where(self.seen, (1 - rate) * self.u + rate * means, means)
        self.u, self.seen = np.where(present, moved, self.u), self.seen | present
        self.weigh(lam)

    def direction(self, ids, now, lam):
        return self.gradient(ids, now[1], self.q)


class DualGroups(Groups):
    """Groups that are weighed by another objective than kl."""
    def __init__(self, run, level):
        super().__init__(run, level)
        self.scalars = Scalars(run, True)

    def lam(self):
        return self.scalars.lam()

    def weigh(self, lam):
        u, p = self.u[self.seen], self.prior()[self.seen]
        self.scalars.solve(u, p / p.sum())
        q = p * self.scalars.weights(u)
        self.q = np.zeros(self.size)
        self.q[self.seen] = q / q.sum()
        self.scalars.t += 1
        self.log_u = None

    def moved(self, ids, now, old, lam):
        return super().moved(ids, now, old, self.lam())

    def batch(self, ids, now):
        self.move(ids, now[0], None, self.run.s.gamma if self.q is not None else 1)
        return self.gradient(ids, now[1], self.q)


class Mapping:
    """u = E g and v = E dg/dw of a general compositional problem."""
    log_u = u = None

    def __init__(self, run, level):
        self.outer = run.problem.outer

    @property
    def d(self):
        return self.v.T @ self.outer(self.u)

    def fresh(self, ids, now, lam):
        self.u, self.v = now[0].mean(0), now[1].mean(0)

    big = fresh

    def recur(self, ids, now, old, lam, a):
        before, j1, j0 = self.v, now[1].mean(0), old[1].mean(0)
        self.u = now[0].mean(0) + (1 - a) * (self.u - old[0].mean(0))
        self.v = j1 + (1 - a) * (self.v - j0)
        return j1, j0, before

    def move(self, ids, g, lam, rate):
        self.u = g.mean(0) if self.u is None else (1 - rate) * self.u + rate * g.mean(0)

    def direction(self, ids, now, lam):
        return now[1].mean(0).T @ self.outer(self.u)


def estimator(run, level):
    if run.case.problem == "composite":
        return Mapping(run, level)
    if run.robust and not run.s.objective.startswith("kl:"):
        run.dual = (DualGroups if level in ("class", "group") else DualExamples)(*(
            (run, level) if level in ("class", "group") else (run,)))
        return run.dual
    return (Groups if level in ("class", "group") else Examples)(run, level)


class Guard:
    """eta of cover and recover: no step may change log-weights by more than guard (rms)."""
    def __init__(self, run):
        self.run, self.pace, self.before, self.held, self.square = run, 0, 0, 0, 0

    def eta(self, t, moved, fresh, d, flat):
        eta, guard = self.run.eta(t), self.run.s.guard
        if moved is not None and self.before > 0 and guard:
            pace = moved / self.before ** 2
            self.pace = max(pace, 0.9 * self.pace + 0.1 * pace)
        if guard and self.pace > 0 and guard / math.sqrt(self.pace) < eta:
            eta, self.held = guard / math.sqrt(self.pace), self.held + 1
        if fresh:
            self.square = d @ d
        if guard and not flat and self.square > 0 and guard * self.run.lam(t) / self.square < eta:
            eta, self.held = guard * self.run.lam(t) / self.square, self.held + 1
        self.before, self.square = eta, d @ d
        return eta


class WeightOfNew:
    """a of cover and recover."""
    def __init__(self, run):
        self.run, self.rho, self.moved, self.noise, self.fall = run, 1, None, None, 0

    def fresh(self):
        self.rho = 1

    def a(self, t):
        s = self.run.s
        delta = self.moved / self.noise if self.noise else 0
        a = self.choose(t, s, delta)
        self.next_rho = (1 - a) ** 2 * (self.rho + delta) + a ** 2
        return a

    def choose(self, t, s, delta):
        if s.a_rule == "fixed":
            return self.run.a(t)
        if s.a_rule == "eta2":
            return min(1, s.a_c * self.eta ** 2)
        known = self.rho + delta
        least = self.run.dual.coming_rate() if isinstance(self.run.dual, DualExamples) else 0
        return min(1, max(s.a_min, least, known / (1 + known), math.sqrt(delta), 1 - math.exp(-self.fall)))

    def observe(self, g1, g0, before):
        self.rho = self.next_rho
        moved, noise = ((g1 - g0) ** 2).sum(), ((g0 - before) ** 2).sum()
        first = self.moved is None
        self.moved = moved if first else 0.9 * self.moved + 0.1 * moved
        self.noise = noise if first else 0.9 * self.noise + 0.1 * noise


ONE_BATCH = ("scent", "sgd", "adamw")


class Moments:
    """Momentum and preconditioner: the scaled step p, and eta as p limits it."""
    def __init__(self, run):
        s = self.s = run.s
        self.run, self.m, self.v, self.c1, self.c2, self.t, self.shortened = run, 0, 0, 1, 1, 0, 1
        self.b1 = s.momentum or (0.9 if s.precondition == "adam" else 0)

    def take(self, d, g, eta, lam):
        s = self.s
        b2, self.t = s.beta2 or 1 - (self.t + 1) ** -0.9, self.t + 1
        self.m, self.c1 = self.b1 * self.m + (1 - self.b1) * d, self.c1 * self.b1
        self.v, self.c2 = b2 * self.v + (1 - b2) * g * g, self.c2 * b2
        self.scale = np.ones_like(d)
        if s.precondition != "none":
            self.scale = 1 / (np.sqrt(self.v / (1 - self.c2)) + s.epsilon)
        self.p = self.m / (1 - self.c1) * self.scale
        size, fall = math.sqrt((self.p ** 2).mean()), eta * max(self.p @ d, 0) / lam
        share = s.longest / size if s.precondition != "none" and size > s.longest > 0 else 1
        heavy = self.run.case.optimizer in ONE_BATCH and self.b1 and s.precondition == "none"
        grouped = self.run.level(self.t - 1) in ("class", "group")
        guard = s.guard * (1 - self.b1) if heavy and not grouped else s.guard
        share = guard / fall if guard and fall * share > guard else share
        if self.run.case.optimizer in ONE_BATCH and s.guard and lam < math.inf:
            second = self.v / (1 - self.c2) if s.precondition != "none" else g * g
            change = eta * math.sqrt(s.batch * (self.p ** 2 * second).sum()) / lam
            share = 1 / change if change * share > 1 else share
        if heavy:  # eta recovers slowly
            share = min(share, self.shortened + (1 - self.b1) / 5 * (1 - self.shortened))
            self.shortened = share
        self.fall = fall * share
        return eta * share

    def step(self, w, eta):
        return self.run.prox(w - eta * (self.p + self.s.weight_decay * w), eta * self.scale)


# ---- the methods: generators that give (w, log_u) after each step ----
#
# log_u is the estimate at the w from which the step was made, like loss and objective in dro_info.

def tilted(run):
    """sgd and adamw on a robust objective."""
    s, w, adam = run.s, run.w0, run.case.optimizer == "adamw"
    if s.objective.startswith("kl:"):
        run.lam0 = float(s.objective[3:])
    run.stretch = 1 if adam else 1 / (1 - s.momentum)
    s.precondition = "adam" if adam else "none"
    s.momentum = s.beta1 if adam else s.momentum
    s.longest = s.longest if adam else 0
    est, moments = estimator(run, s.tilt), Moments(run)
    for t in itertools.count():
        z = run.draw(s.batch)
        now = run.full(w, z)
        if isinstance(est, DualExamples):
            g = est.batch(now, run.heaviest(t))
        elif isinstance(est, DualGroups):
            g = est.batch(z, now)
        elif t == 0:
            est.move(z, now[0], run.lam(t), 1)
            g = est.direction(z, now, run.lam(t))
        else:
            g, mean = est.direction(z, now, run.lam(t)), run.value(now[0] / run.lam(t) - est.log_u).mean()
            share = min(1, run.heaviest(t) / mean)
            g, est.log_u = share * g, est.log_u + math.log(1 - s.gamma + s.gamma * share * mean)
        w = moments.step(w, moments.take(g, g, run.eta(t) * run.stretch, run.lam(t)))
        yield w, est.log_u if s.objective.startswith("kl") and s.tilt == "example" else None


def sgd(run):
    if run.robust:
        yield from tilted(run)
    s, w, m = run.s, run.w0, 0
    for t in itertools.count():
        z = run.draw(s.batch)
        _, gradients = run.full(run.ascend(w, z), z)
        g = gradients.mean(0) + s.weight_decay * w
        m = s.momentum * m + g
        eta = run.eta(t)
        move = g + s.momentum * m if s.nesterov == "yes" else m
        w = run.prox(w - eta * move, eta / (1 - s.momentum))
        yield w, None


def adamw(run):
    if run.robust:
        yield from tilted(run)
    s, w, m, v = run.s, run.w0, 0, 0
    for t in itertools.count():
        _, gradients = run.full(w, run.draw(s.batch))
        g = gradients.mean(0)
        m = s.beta1 * m + (1 - s.beta1) * g
        v = s.beta2 * v + (1 - s.beta2) * g * g
        scale = 1 / (np.sqrt(v / (1 - s.beta2 ** (t + 1))) + s.epsilon)
        scaled = m / (1 - s.beta1 ** (t + 1)) * scale
        w = run.prox(w - run.eta(t) * (scaled + s.weight_decay * w), run.eta(t) * scale)
        yield w, None


def cover(run):
    b, w, rule, guard = run.s.batch, run.w0, WeightOfNew(run), Guard(run)
    moments = Moments(run) if run.s.precondition != "none" or run.s.momentum else None
    z, old = run.draw(b), None
    for t in itertools.count():
        at = run.ascend(w, z)
        now = run.full(at, z)
        if t == 0 or run.level(t) != run.level(t - 1):
            est = estimator(run, run.level(t))
            est.fresh(z, now, run.lam(t))
            rule.fresh()
            seen = moved = None
        else:
            seen = est.recur(z, now, old, run.lam(t), rule.a(t))
            rule.observe(*seen) if seen else rule.fresh()
            composite = run.case.problem == "composite"
            moved = None if composite else est.moved(z, now, old, run.lam(t))
        flat = run.case.problem == "composite" or run.level(t) == "none"
        rule.eta = guard.eta(t, moved, not seen, est.d, flat or moments)
        rule.fall = 0 if flat else rule.eta * (est.d @ est.d) / run.lam(t)
        if moments:
            lam = math.inf if flat else run.lam(t)
            rule.eta = moments.take(est.d, seen[0] if seen else est.d, rule.eta, lam)
            rule.fall, guard.before = moments.fall, rule.eta
        if not run.last(t):  # the next batch, at the same point
            z = run.draw(b)
            old = run.full(at, z)
        w = moments.step(w, rule.eta) if moments else run.step(w, est.d, rule.eta)
        run.held = guard.held
        dual = run.dual and not run.s.objective.startswith("kl-radius")
        yield w, None if dual else est.log_u


def ascpg(run):
    s, w, est = run.s, run.w0, estimator(run, run.s.tilt)
    for t in itertools.count():
        z = run.draw(s.batch)
        if t:
            est.move(z, run.losses(point, z), run.lam(t - 1), beta)
        now = run.full(w, z)
        if t == 0:
            est.move(z, now[0], run.lam(0), 1)
        eta = run.eta(t) / (t + 1) ** s.eta_power
        beta = min(1, s.beta_scale * s.eta / (t + 1) ** s.beta_power)
        new, log_u = run.step(w, est.direction(z, now, run.lam(t)), eta), est.log_u
        point, w = run.rounding((1 - 1 / beta) * w + new / beta), new
        yield w, log_u


def civr(run):
    s, w, t, est = run.s, run.w0, 0, estimator(run, run.s.tilt)
    big, growing = s.big, run.case.optimizer == "rcivr"
    for stage in itertools.count(1):
        root = math.isqrt(big - 1) + 1  # ceil(sqrt(big))
        batch, length = s.batch or root, root if growing else s.inner or root
        z = run.draw(big)
        est.big(z, run.full(w, z), run.lam(t))
        for j in range(length):
            if j:
                est.recur(z, run.full(w, z), old, run.lam(t), 0)
            if j + 1 < length:
                z = run.draw(batch)
                old = run.full(w, z)
            w = run.step(w, est.d, run.eta(t))
            t += 1
            yield w, est.log_u
        if growing and stage % s.passes == 0:
            big = math.floor(big * s.big_growth + 0.5)


def absgd(run):
    s, w, m, est = run.s, run.w0, 0, estimator(run, run.s.tilt)
    for t in itertools.count():
        z = run.draw(s.batch)
        now = run.full(w, z)
        est.move(z, now[0], run.lam(t), s.gamma)
        m = s.momentum * m + est.direction(z, now, run.lam(t)) + s.weight_decay * w
        w = run.prox(w - run.eta(t) * m, run.eta(t) / (1 - s.momentum))
        yield w, est.log_u


# The primal-dual ones: p in R^n.

def primal(run, w, p):
    """A batch for w: its ids, losses and the gradient of sum p_i loss_i."""
    b, n = run.s.batch, run.problem.n
    z = run.draw(b) if run.s.sampling == "uniform" else run.draw_by(p, b)
    losses, gradients = run.full(w, z)
    weights = n * p[z] if run.s.sampling == "uniform" else np.ones(b)
    return z, losses, mean_of(weights, gradients)


def dual(run, z, losses, p, lam):
    """The gradient in p; an example that is twice in the batch counts twice."""
    n, g = run.problem.n, np.zeros(len(p))
    np.add.at(g, z, n * (losses - lam * (np.log(n * p[z]) + 1)) / len(z))
    return g


def project(p, floor):
    """Onto { p: sum p = 1, p_i >= floor }."""
    mass, x = 1 - floor * len(p), p - floor
    falling = np.sort(x)[::-1]
    shifts = (np.cumsum(falling) - mass) / np.arange(1, len(p) + 1)
    keep = np.nonzero(falling > shifts)[0][-1]
    return floor + np.maximum(x - shifts[keep], 0)


def scent(run):
    s, w, est, moments = run.s, run.w0, estimator(run, run.s.tilt), Moments(run)
    for t in itertools.count():
        z = run.draw(s.batch)
        now = run.full(w, z)
        if t == 0 or s.tilt != "example":
            est.move(z, now[0], run.lam(t), s.gamma if t else 1)
            g = est.direction(z, now, run.lam(t))
        else:  # weights by the estimate before the batch
            g, mean = est.direction(z, now, run.lam(t)), run.value(now[0] / run.lam(t) - est.log_u).mean()
            share = min(1, run.heaviest(t) / mean)
            g, est.log_u = share * g, est.log_u + math.log(1 - s.gamma + s.gamma * share * mean)
        eta = moments.take(g, g, run.eta(t), math.inf if s.tilt == "none" else run.lam(t))
        w = moments.step(w, eta)
        yield w, est.log_u


def stoc_agda(run):
    s, n, w, p = run.s, run.problem.n, run.w0, np.full(run.problem.n, 1 / run.problem.n)
    for t in itertools.count():
        z, _, g = primal(run, w, p)
        w = run.step(w, g, run.eta(t) / (1 + t / s.tau1))
        z = z if s.sampling == "uniform" else run.draw(s.batch)
        g = dual(run, z, run.losses(w, z), p, run.lam(t))
        p = project(p + s.dual_eta / (1 + t / s.tau2) * g, s.delta / n)
        yield w, None


def both(run, w, p, t):
    """The gradients of pg-smd2 and pes-sgda, in w and in p at the same point."""
    z, losses, g = primal(run, w, p)
    if run.s.sampling == "p":
        z = run.draw(run.s.batch)
        losses = run.losses(w, z)
    return g, dual(run, z, losses, p, run.lam(t)), (z, losses)


def proximal_step(run, w, g, ref, eta):
    s = run.s
    x = (w - eta * (g + s.weight_decay * w) + eta * s.gamma * ref) / (1 + eta * s.gamma)
    return run.prox(x, eta / (1 + eta * s.gamma))


def pg_smd2(run):
    s, n, w, p, t = run.s, run.problem.n, run.w0, np.full(run.problem.n, 1 / run.problem.n), 0
    for k in itertools.count():
        ref, total = w, 0
        for j in range(s.stage_steps * (k + 1)):
            g, _, sample = both(run, w, p, t)
            w = proximal_step(run, w, g, ref, run.eta(t) / (k + 1))
            x = np.zeros(n)  # the changes, each one limited by the cap
            for i, loss in zip(*sample):
                one = n * (loss - run.lam(t) * (math.log(n * p[i]) + 1)) / len(sample[0])
                run.caps += abs(s.dual_eta / (k + 1) * one) > s.cap
                x[i] += np.clip(s.dual_eta / (k + 1) * one, -s.cap, s.cap)
            p = p * np.exp(x)
            p, total = p / p.sum(), total + w
            if j + 1 == s.stage_steps * (k + 1):
                w = run.rounding(total / (j + 1))
                x = run.losses(w, np.arange(n)) / run.lam(t)
                p = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
            t += 1
            yield w, None


def pes_sgda(run):
    s, n, w, p, t = run.s, run.problem.n, run.w0, np.full(run.problem.n, 1 / run.problem.n), 0
    for k in itertools.count():
        length, slower = s.stage_steps * s.stage_growth ** k, s.stage_growth ** k
        ref, total, total_p = w, 0, 0
        for j in range(length):
            g, gp, _ = both(run, w, p, t)
            w = proximal_step(run, w, g, ref, run.eta(t) / slower)
            p = project(p + s.dual_eta / slower * gp, s.delta / n)
            total, total_p = total + w, total_p + p
            if j + 1 == length:
                w, p = run.rounding(total / length), total_p / length
            t += 1
            yield w, None


METHODS = {"sgd": sgd, "adamw": adamw, "cover": cover, "recover": cover, "ascpg": ascpg, "civr": civr,
           "rcivr": civr, "absgd": absgd, "scent": scent, "stoc-agda": stoc_agda, "pg-smd2": pg_smd2,
           "pes-sgda": pes_sgda}


# ---- the cases ----

# Written into every case: an optimiser may have its own defaults for these.
COMMON = "eta eta_schedule warmup batch order seed"
ROBUST = COMMON + " lambda lambda_schedule lambda_warmup cap"
TILTED = ROBUST + " tilt group_prior"
STORM = TILTED + " a_rule a a_schedule a_warmup a_decay a_min guard precondition momentum"
SCALED = TILTED + " guard precondition momentum beta2 longest"
ALWAYS = {"sgd": COMMON, "adamw": COMMON, "cover": STORM, "recover": STORM, "ascpg": TILTED, "civr": TILTED,
          "rcivr": TILTED, "absgd": TILTED, "scent": SCALED, "stoc-agda": ROBUST, "pg-smd2": ROBUST,
          "pes-sgda": ROBUST}
OWN = {  # settings of one optimiser, unless the case says otherwise
    "sgd": dict(momentum=0.9, nesterov="no"),
    "adamw": dict(beta1=0.9, beta2=0.999, epsilon=1e-3, weight_decay=0.01),
    "ascpg": dict(eta_power=0.5, beta_power=0.4, beta_scale=2),
    "civr": dict(big=64, inner=0, batch=0),
    "rcivr": dict(big=16, big_growth=2, passes=2, batch=0),
    "absgd": dict(momentum=0.9, gamma=0.1),
    "scent": dict(gamma=0.1, heaviest=3, precondition="adam", epsilon=1e-3),
    "stoc-agda": dict(tau1=100, dual_eta=1e-3, tau2=100, delta=0.01, sampling="uniform"),
    "pg-smd2": dict(stage_steps=25, dual_eta=5e-3, gamma=0.1, sampling="uniform"),
    "pes-sgda": dict(stage_steps=20, stage_growth=3, dual_eta=1e-3, gamma=0.1, delta=0.01,
                     sampling="uniform"),
}


class Case:
    def __init__(self, optimizer, problem, label="", shares=False, **settings):
        if "lam" in settings:
            settings["lambda"] = settings.pop("lam")
        self.optimizer, self.problem, self.shares = optimizer, problem, shares
        self.name = "-".join(filter(None, [optimizer, problem, label]))
        self.settings = {k: DEFAULTS[k] for k in ALWAYS[optimizer].split()}
        self.settings.update(OWN.get(optimizer, {}))
        self.settings.update(settings)
        if problem == "composite":
            for name in "tilt group_prior cap lambda lambda_schedule lambda_warmup".split():
                self.settings.pop(name)


def cases():
    convex, nonconvex, composite = "convex", "nonconvex", "composite"
    # Every optimiser on every kind of problem that it takes.
    yield Case("sgd", convex, eta=0.05)
    yield Case("sgd", nonconvex, eta=0.02, weight_decay=0.01)
    yield Case("sgd", convex, "nesterov", eta=0.05, nesterov="yes", weight_decay=0.02)
    yield Case("sgd", nonconvex, "nesterov", eta=0.02, nesterov="yes", momentum=0.8, seed=5)
    yield Case("sgd", convex, "no-momentum", eta=0.4, momentum=0, seed=3)
    yield Case("adamw", convex, eta=0.02)
    yield Case("adamw", nonconvex, eta=0.01, beta1=0.8, beta2=0.95, weight_decay=0.1, reg="l1",
               reg_strength=0.02)
    yield Case("cover", convex, eta=0.2, a_rule="auto")
    yield Case("cover", nonconvex, eta=0.1, a_rule="auto", lam=2)
    yield Case("recover", convex, eta=0.2, a_rule="fixed", a=0.3, lam=0.5)
    yield Case("recover", nonconvex, eta=0.1, a_rule="fixed", a=0.5, weight_decay=0.01)
    yield Case("ascpg", convex, eta=0.4)
    yield Case("ascpg", nonconvex, eta=0.3, lam=2, weight_decay=0.01)
    yield Case("civr", convex, eta=0.2)
    yield Case("civr", nonconvex, eta=0.1, big=100, inner=15, batch=8, weight_decay=0.01)
    yield Case("rcivr", convex, eta=0.2)
    yield Case("rcivr", nonconvex, eta=0.1, big=40, big_growth=1.3, passes=5, batch=6)
    yield Case("absgd", convex, eta=0.05)
    yield Case("absgd", nonconvex, eta=0.02, gamma=0.3, momentum=0.8, weight_decay=0.01)
    yield Case("recover", convex, "rms", eta=0.03, precondition="rms", epsilon=1e-3)
    yield Case("recover", nonconvex, "adam", eta=0.02, precondition="adam", lam=2, reg="elastic",
               reg_strength=0.02, epsilon=1e-3, weight_decay=0.01)
    yield Case("cover", convex, "momentum", eta=0.1, momentum=0.8)
    yield Case("recover", convex, "class-adam", eta=0.03, precondition="adam", beta2=0.95,
               epsilon=1e-3, tilt="class", reg="l2", reg_strength=0.05)
    yield Case("scent", convex, eta=0.03)
    yield Case("scent", nonconvex, eta=0.02, lam=2, precondition="rms", beta2=0.9, longest=0.5,
               weight_decay=0.01)
    yield Case("scent", convex, "heavy", eta=0.03, lam=0.3, heaviest=1.2, gamma=0.3)
    yield Case("scent", convex, "heavy-later", eta=0.03, lam=0.3, heaviest=0.9, gamma=0.3,
               eta_schedule="poly", poly_start=10)
    yield Case("scent", convex, "momentum", eta=0.2, precondition="none", momentum=0.9, tilt="class")
    for name in ("stoc-agda", "pg-smd2", "pes-sgda"):
        for sampling in ("uniform", "p"):
            yield Case(name, convex, sampling, eta=0.2, sampling=sampling, seed=14)
            yield Case(name, nonconvex, sampling, eta=0.1, sampling=sampling, lam=2, seed=14,
                       weight_decay=0.01)
    yield Case("cover", composite, eta=0.1, a_rule="fixed", a=0.3)
    yield Case("recover", composite, eta=0.2, a_rule="fixed", a=0.5, steps=200, seed=2)
    yield Case("cover", composite, "auto", eta=0.1, a_rule="auto", weight_decay=0.02)
    yield Case("recover", composite, "eta2", eta=0.1, a_rule="eta2", a_c=20, reg="l1",
               reg_strength=0.02)
    yield Case("ascpg", composite, eta=0.3)
    yield Case("civr", composite, eta=0.1)
    yield Case("rcivr", composite, eta=0.1, reg="l2", reg_strength=0.1)

    # The weight of the newest batch.
    yield Case("cover", convex, "eta2", eta=0.3, eta_schedule="poly", a_rule="eta2", a_c=5)
    yield Case("recover", nonconvex, "auto", eta=0.1, a_rule="auto", a_min=0.05, seed=2)
    yield Case("recover", convex, "auto-warmup", eta=0.4, warmup=30, a_rule="auto", lam=0.7)
    yield Case("cover", convex, "a-poly", eta=0.2, a_rule="fixed", a=0.9, a_schedule="poly",
               poly_start=20)
    yield Case("recover", convex, "a-step", eta=0.3, eta_schedule="step", stage_factor=3, a=0.8,
               a_rule="fixed", a_schedule="step", a_decay=2, stages=[60, 120])
    yield Case("cover", convex, "a-cosine", eta=0.2, a_rule="fixed", a=0.9, a_end=0.1, steps=200,
               a_schedule="cosine")
    yield Case("recover", convex, "a-theory", eta=0.5, a_rule="fixed", a=0.9, a_schedule="theory",
               a_warmup=20, theory_mu=0.2, theory_factor=0.1)

    # Schedules of eta, with warm-up.
    yield Case("sgd", convex, "poly-warmup", eta=0.1, eta_schedule="poly", poly_start=50,
               poly_power=0.5, warmup=10)
    yield Case("sgd", nonconvex, "step-warmup", eta=0.03, eta_schedule="step", stage_factor=4,
               stages=[0.5, 0.75], steps=200, warmup=0.1)
    yield Case("recover", convex, "theory-warmup", eta=0.5, eta_schedule="theory", theory_mu=0.1,
               theory_factor=0.05, warmup=15, a_rule="fixed", a=0.4)
    yield Case("cover", nonconvex, "cosine-warmup", eta=0.15, eta_schedule="cosine", eta_end=0.01,
               steps=200, warmup=12, a_rule="auto")
    yield Case("civr", convex, "step", eta=0.3, eta_schedule="step", stages=[50, 100], warmup=5,
               stage_factor=2)
    yield Case("absgd", convex, "cosine", eta=0.05, eta_schedule="cosine", steps=200, warmup=0.05)
    yield Case("ascpg", convex, "warmup", eta=0.4, eta_schedule="poly", warmup=10)
    yield Case("stoc-agda", convex, "step", eta=0.3, eta_schedule="step", stages=[80], warmup=10)
    yield Case("pg-smd2", convex, "poly", eta=0.3, eta_schedule="poly", warmup=8)
    yield Case("pes-sgda", convex, "poly", eta=0.3, eta_schedule="poly", warmup=8)

    # Schedules of lambda, and the switch.
    yield Case("cover", convex, "lambda-cosine", eta=0.1, lam=5, lambda_schedule="cosine",
               lambda_end=0.7, steps=200, a_rule="fixed", a=0.4)
    yield Case("recover", convex, "lambda-poly", eta=0.1, lam=3, lambda_schedule="poly",
               poly_start=30, poly_power=0.5, lambda_start=10, lambda_warmup=20)
    yield Case("recover", nonconvex, "lambda-step", eta=0.1, lam=4, lambda_schedule="step",
               lambda_factor=2, stages=[50, 100], a_rule="auto")
    yield Case("cover", convex, "lambda-theory", eta=0.4, lam=4, lambda_schedule="theory",
               theory_mu=0.2, theory_factor=0.1, a_rule="fixed", a=0.5)
    yield Case("recover", convex, "switch-lambda", eta=0.2, lam=5, switch_step=60, switch_lambda=1,
               a_rule="fixed", a=0.3)
    yield Case("absgd", nonconvex, "switch-lambda", eta=0.02, lam=5, switch_step=70,
               switch_lambda=1)
    yield Case("ascpg", nonconvex, "lambda-step", eta=0.3, lam=4, lambda_schedule="step",
               lambda_factor=1.5, stages=[40])
    yield Case("civr", nonconvex, "lambda-poly", eta=0.1, lam=3, lambda_schedule="poly",
               lambda_start=10, lambda_warmup=10)
    yield Case("stoc-agda", convex, "switch-lambda", eta=0.2, lam=5, switch_step=60,
               switch_lambda=0.5)
    yield Case("pg-smd2", nonconvex, "lambda-step", eta=0.1, lam=4, lambda_schedule="step",
               lambda_factor=4, stages=[60], sampling="p", seed=5)

    # Regularisers.
    yield Case("sgd", convex, "l2", eta=0.05, reg="l2", reg_strength=0.1)
    yield Case("sgd", convex, "l1", eta=0.05, reg="l1", reg_strength=0.05)
    yield Case("recover", convex, "elastic", eta=0.2, reg="elastic", reg_strength=0.1,
               reg_ratio=0.4)
    yield Case("cover", convex, "group-lasso", eta=0.2, reg="group", reg_strength=0.1, reg_block=3)
    yield Case("cover", convex, "box", eta=0.2, reg="box", reg_low=-0.3, reg_high=0.5,
               weight_decay=0.01)
    yield Case("recover", nonconvex, "ball", eta=0.1, reg="ball", reg_radius=1.5)
    yield Case("ascpg", convex, "l1", eta=0.4, reg="l1", reg_strength=0.03)
    yield Case("civr", convex, "ball", eta=0.2, reg="ball", reg_radius=0.8)
    yield Case("rcivr", convex, "elastic", eta=0.2, reg="elastic", reg_strength=0.05)
    yield Case("absgd", convex, "group-lasso", eta=0.05, reg="group", reg_strength=0.05,
               reg_block=2)
    yield Case("stoc-agda", convex, "l1", eta=0.2, reg="l1", reg_strength=0.03)
    yield Case("pg-smd2", convex, "l2", eta=0.2, reg="l2", reg_strength=0.1, weight_decay=0.01)
    yield Case("pes-sgda", convex, "box", eta=0.2, reg="box", reg_low=-0.4, reg_high=0.4)

    # Where the tilt acts. Seeds 11, 12 and 20 draw the rare group late: it is unseen at first.
    yield Case("cover", convex, "class", eta=0.2, tilt="class", a_rule="auto")
    yield Case("recover", convex, "group", eta=0.2, tilt="group", lam=0.5, a_rule="fixed", a=0.4)
    yield Case("recover", nonconvex, "group-data", eta=0.1, tilt="group", group_prior="data",
               a_rule="auto", seed=20)
    yield Case("cover", convex, "class-shares", True, eta=0.2, tilt="class", group_prior="data",
               a_rule="fixed", a=0.3, weight_decay=0.01)
    yield Case("recover", nonconvex, "group-shares", True, eta=0.1, tilt="group", a_rule="auto")
    yield Case("recover", convex, "group-lambda", eta=0.2, tilt="group", lam=4, batch=4, seed=12,
               lambda_schedule="poly", poly_start=20, poly_power=0.5, switch_step=100,
               switch_lambda=0.7, a_rule="eta2", a_c=10)
    yield Case("recover", convex, "switch-class", eta=0.2, lam=2, switch_step=60,
               switch_tilt="class", switch_lambda=0.7, a_rule="auto")
    yield Case("cover", nonconvex, "switch-group", eta=0.1, tilt="none", switch_step=50,
               switch_tilt="group", a_rule="auto", steps=200)
    yield Case("cover", convex, "switch-example", eta=0.2, tilt="group", switch_step=50,
               switch_tilt="example", a_rule="fixed", a=0.3)
    yield Case("recover", convex, "class-to-group", eta=0.2, tilt="class", switch_step=40, batch=4,
               switch_tilt="group", group_prior="data", a_rule="auto", seed=4)
    yield Case("cover", nonconvex, "none", eta=0.1, tilt="none", a_rule="auto")
    yield Case("ascpg", convex, "class", eta=0.4, tilt="class", group_prior="data")
    yield Case("ascpg", convex, "group", eta=0.3, tilt="group", batch=5, seed=12)
    yield Case("ascpg", convex, "none", eta=0.3, tilt="none")
    yield Case("civr", convex, "class", True, eta=0.2, tilt="class")
    yield Case("civr", nonconvex, "group-data", True, eta=0.1, tilt="group", group_prior="data",
               big=36, batch=4)
    yield Case("rcivr", convex, "group", True, eta=0.2, tilt="group")
    yield Case("absgd", convex, "class", eta=0.05, tilt="class", gamma=0.2)
    yield Case("absgd", nonconvex, "group", eta=0.02, tilt="group", group_prior="data", lam=0.5,
               seed=11)

    # The guard, at work.
    yield Case("recover", convex, "guard", eta=1, lam=0.3, a_rule="fixed", a=0.5)
    yield Case("cover", nonconvex, "guard-auto", eta=0.3, lam=1, a_rule="auto", guard=0.1)
    yield Case("recover", convex, "guard-class", eta=2, lam=0.2, tilt="class", guard=0.05)

    # Other objectives than kl.
    yield Case("sgd", convex, "cvar", eta=0.02, objective="cvar:0.6", batch=16, seed=3)
    yield Case("sgd", nonconvex, "kl", eta=0.02, objective="kl:2", weight_decay=0.01, reg="l2",
               reg_strength=0.05)
    yield Case("sgd", nonconvex, "kl-radius", eta=0.01, objective="kl-radius:0.2", steps=200,
               eta_schedule="cosine", batch=16)
    yield Case("sgd", convex, "chi2-class", eta=0.05, objective="chi2:0.1", tilt="class")
    yield Case("adamw", convex, "chi2", eta=0.02, objective="chi2:0.5", beta2=0.99, longest=0.8)
    yield Case("adamw", nonconvex, "cvar", eta=0.01, objective="cvar:0.5", warmup=20, batch=16)
    yield Case("adamw", convex, "kl-radius-group", eta=0.02, objective="kl-radius:0.1",
               tilt="group", batch=16)
    yield Case("recover", nonconvex, "cvar", eta=0.05, objective="cvar:0.5", batch=10, seed=2)
    yield Case("recover", convex, "cvar", eta=0.1, objective="cvar:0.6", batch=10, a_rule="fixed",
               a=0.5)
    yield Case("cover", convex, "kl-radius", eta=0.1, objective="kl-radius:0.1", a_rule="auto",
               batch=10)
    yield Case("recover", nonconvex, "chi2", eta=0.05, objective="chi2:0.3", batch=10, a_rule="fixed",
               a=0.4)
    yield Case("recover", convex, "rms-kl-radius", eta=0.03, objective="kl-radius:0.1", batch=10,
               precondition="rms", epsilon=1e-3)
    yield Case("cover", convex, "cvar-group", eta=0.1, objective="cvar:0.8", tilt="group", batch=10)
    yield Case("cover", convex, "cvar-class", eta=0.1, objective="cvar:0.7", tilt="class", batch=10,
               a_rule="fixed", a=0.5)
    yield Case("sgd", convex, "heavy", eta=0.05, objective="kl:0.2", batch=10, guard=0.1)
    yield Case("recover", convex, "chi2-group", eta=0.1, objective="chi2:0.2", tilt="group",
               batch=10, a_rule="fixed", a=0.5)

    # The average of the weights.
    yield Case("sgd", nonconvex, "ema", eta=0.05, ema=0.95)
    yield Case("recover", convex, "ema", eta=0.2, lam=1, a_rule="auto", ema=0.8)
    yield Case("adamw", convex, "ema", eta=0.02, beta2=0.99, ema=0.9)
    yield Case("ascpg", convex, "ema", eta=0.3, ema=0.9)
    yield Case("civr", nonconvex, "ema", eta=0.05, ema=0.9)
    yield Case("cover", composite, "ema", eta=0.05, a_rule="fixed", a=0.3, ema=0.7)

    # Sharpness-aware steps.
    yield Case("sgd", nonconvex, "sam", eta=0.03, sam=0.1, weight_decay=0.01)
    yield Case("sgd", convex, "sam-class", eta=0.05, sam=0.2, sam_over="class", momentum=0.5)
    yield Case("recover", convex, "sam", eta=0.1, lam=1, a_rule="auto", sam=0.1)
    yield Case("recover", nonconvex, "sam-class", eta=0.05, lam=2, a_rule="fixed", a=0.3, sam=0.05,
               sam_over="class", tilt="class", ema=0.9)

    # The cap and the fresh start.
    yield Case("cover", nonconvex, "cap", eta=0.03, lam=0.4, cap=1, a_rule="fixed", a=0.5)
    yield Case("absgd", nonconvex, "cap", eta=0.01, lam=0.4, cap=1)
    yield Case("ascpg", nonconvex, "cap", eta=0.1, lam=0.4, cap=1)
    yield Case("pg-smd2", convex, "cap", eta=0.1, cap=1, batch=16, dual_eta=0.6, stage_steps=15)
    yield Case("recover", nonconvex, "fresh", eta=0.03, lam=0.2, a_rule="fixed", a=0.97, seed=3)
    yield Case("cover", nonconvex, "fresh-auto", eta=0.03, lam=0.2, a_rule="auto", seed=2)
    yield Case("civr", nonconvex, "fresh", eta=0.03, lam=0.2, seed=3)


# ---- running them and writing the file ----

def trajectory(case, rounding=lambda x: x):
    run = Run(case, rounding)
    points, average = [], run.w0
    for t, (w, log_u) in zip(range(1, CHECKPOINTS[-1] + 1), METHODS[case.optimizer](run)):
        keep = min(run.s.ema, t / (9 + t))  # t is 1 at the first step
        average = w = keep * average + (1 - keep) * w if keep else w
        if t in CHECKPOINTS:
            points.append((t, run.examples, run.evaluations, log_u, w))
    return run, points


def moved(points, others):
    """The most that rounding moves w (relative) or log_u."""
    worst = 0
    for (_, _, _, log_u, w), (_, _, _, log_v, x) in zip(points, others):
        worst = max(worst, np.linalg.norm(w - x) / np.linalg.norm(w))
        if log_u is not None:
            worst = max(worst, abs(log_u - log_v) / max(1, abs(log_u)))
    return worst


def objective(case, w):
    """F over all examples, for the summary."""
    problem, s = PROBLEMS[case.problem], {**DEFAULTS, **case.settings}
    losses = problem(w, np.arange(problem.n))[0]
    if case.problem == "composite":
        u = losses.mean(0)
        return -u[0] + 2 * (u[1] - u[0] ** 2)
    if case.optimizer in ("sgd", "adamw") or s["objective"] or s["tilt"] == "none":
        return losses.mean()
    if s["tilt"] in ("class", "group"):
        labels = problem.labels[s["tilt"]]
        losses = np.array([losses[labels == g].mean() for g in range(labels.max() + 1)])
    return s["lambda"] * log_mean_exp(losses / s["lambda"])


def text(value):
    if isinstance(value, list):
        return ",".join(map(text, value))
    return value if isinstance(value, str) else repr(value)


def line(numbers):
    return " ".join("%.17g" % x for x in numbers)


def write_problem(out, name, problem):
    rows, columns = problem.x.shape
    out.write("problem %s rows %d columns %d dim %d\n" % (name, rows, columns, len(problem.w0)))
    out.write("# y, class, group, x\n")
    for y, c, g, x in zip(problem.y, problem.labels["class"], problem.labels["group"], problem.x):
        out.write("%g %d %d %s\n" % (y, c, g, " ".join("%g" % value for value in x)))
    out.write("w0 %s\n\n" % line(problem.w0))


def write_case(out, case, points):
    out.write("case %s\noptimizer %s\nproblem %s\nshares %s\n"
              % (case.name, case.optimizer, case.problem, "given" if case.shares else "counted"))
    for name, value in case.settings.items():
        out.write("%s=%s\n" % (name, text(value)))
    for t, examples, evaluations, log_u, w in points:
        out.write("at %d %d %d %s %s\n" % (t, examples, evaluations,
                                           "-" if log_u is None else "%.17g" % log_u, line(w)))
    out.write("end\n\n")


def main():
    summary = "--summary" in sys.argv
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trajectories.txt")
    out = open(os.devnull if summary else path, "w")
    out.write("# Written by make_trajectories.py; do not edit. A case is its settings, then\n"
              "# at STEP EXAMPLES EVALUATIONS LOG_U W...\n\n")
    for name, problem in PROBLEMS.items():
        write_problem(out, name, problem)
    names = set()
    for case in cases():
        assert case.name not in names, case.name
        names.add(case.name)
        run, points = trajectory(case)
        _, rounded = trajectory(case, lambda x: np.float32(x).astype(float))
        change = moved(points, rounded)
        if summary:
            held = getattr(run, "held", 0)
            print("%-32s F %9.5f -> %9.5f  rounding %.0e  fresh %d  caps %d  held %d"
                  % (case.name, objective(case, run.w0), objective(case, points[-1][4]), change,
                     run.fresh_starts, run.caps, held))
        assert change < 1e-5, (case.name, change)
        # Decisions must not hang on the last digits: the ratio's bounds, the draws by p.
        assert run.ratio_gap > 1e-3, (case.name, run.ratio_gap)
        assert run.draw_gap > 2e-6, (case.name, run.draw_gap)
        write_case(out, case, points)
    out.close()


if __name__ == "__main__":
    main()
