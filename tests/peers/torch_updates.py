"""What SGD and RECOVER do with gradients, in PyTorch, as the benchmarks of it share it (step_speed.py, torch_gpu.py)."""
import torch


@torch.no_grad()
def sgd(w, m, grads, lr, wd):
    torch._foreach_mul_(m, 0.9)
    torch._foreach_add_(m, list(grads))
    torch._foreach_add_(m, w, alpha=wd)
    torch._foreach_add_(w, m, alpha=-lr)


@torch.no_grad()
def recover(w, w_old, v, u, at_old, at_new, a, lr, wd):
    """at_old, at_new: mean exp(loss / lambda) over one batch and its gradients at w_old and at w."""
    (g0, grads0), (g1, grads1) = at_old, at_new
    u.copy_((g1 + (1 - a) * (u - g0)).clamp(min=1.0))
    torch._foreach_sub_(v, grads0)
    torch._foreach_mul_(v, 1 - a)
    torch._foreach_add_(v, grads1)
    torch._foreach_copy_(w_old, w)
    d = torch._foreach_div(v, u)
    torch._foreach_add_(d, w, alpha=wd)
    torch._foreach_add_(w, d, alpha=-lr)
