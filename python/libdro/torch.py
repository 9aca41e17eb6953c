"""The tilt for any PyTorch model.

    tilt = libdro.torch.Tilt(lam=20)
    loss = tilt(F.cross_entropy(model(x), y, reduction="none"))
    loss.backward(); opt.step()"""
import math

import torch


class Tilt(torch.nn.Module):
    """Per-example losses become a scalar whose gradient is sum_i c_i grad loss_i, with
    c_i = exp(loss_i/lam - log_u) / n: the library's scent (src/opt/opt_scent.c).

    log_u follows log E exp(loss/lam) with weight gamma for the newest batch, and weighs a batch by
    what it was before it. Exponents beyond cap continue as the tangent; a batch of mean weight above
    heaviest is scaled down to it (0: never). After eval() log_u stays as it is. A batch with a loss
    that is not finite gives a loss that is not finite, and leaves log_u as it was.

    objective is the running lam log_u, weights the last batch's, of mean near 1. Nothing is copied to
    the host. state_dict() carries log_u."""

    def __init__(self, lam, gamma=0.03, cap=10.0, heaviest=30.0):
        super().__init__()
        for name, value, most in (("lam", lam, math.inf), ("gamma", gamma, 1.0)):
            if not 0 < value <= most:
                raise ValueError(f"{name} is {value}: expected above 0, at most {most}")
        self.lam, self.gamma, self.cap, self.heaviest = lam, gamma, cap, heaviest
        self.register_buffer("log_u", torch.tensor(math.nan, dtype=torch.float64))
        self.weights = None

    @property
    def objective(self):
        return self.lam * self.log_u

    def forward(self, losses):
        if losses.ndim != 1 or not len(losses):
            raise ValueError(f"losses have shape {tuple(losses.shape)}: expected one loss per "
                             'example, (n,); use reduction="none"')
        with torch.no_grad():
            if self.log_u.device != losses.device:
                self.log_u = self.log_u.to(losses.device)
            coef = self._weigh(losses.detach().double() / self.lam)
            self.weights = coef * len(losses)
        return (coef.to(losses.dtype) * losses).sum()

    def _weigh(self, x):
        """Coefficients of a batch of loss/lam; moves log_u."""
        n, first = len(x), torch.isnan(self.log_u)
        fresh = torch.logsumexp(x, 0) - math.log(n)
        before = torch.where(first, fresh, self.log_u)
        over = (x - before - self.cap).clamp(min=0)
        slope = torch.exp(x - before - over)
        mean = (slope * (1 + over)).mean()
        share = torch.ones_like(mean)
        if self.heaviest > 0:
            share = torch.where(first, share, (self.heaviest / mean).clamp(max=1))
        if self.training:
            moved = before + torch.log(1 - self.gamma + self.gamma * share * mean)
            moved = torch.where(first, fresh, moved)
            self.log_u = torch.where(torch.isfinite(moved), moved, self.log_u)
        return share * slope / n

    def extra_repr(self):
        return f"lam={self.lam}, gamma={self.gamma}"
