"""One small program for each way that real code uses tensors themselves."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F

from tests.programs import case
from tests.programs.features import x35


@case
def slicing():
    def f(x):
        y = x[1:, ::2]
        z = x[..., None, -1]
        return y, z, x[:, 1] + x[0, 0], x[[0, 2]]

    return f, (x35(),)


@case
def shape_and_size():
    def f(x):
        b, n = x.shape
        if x.dim() == 2 and n > 4:
            x = x.view(b, 1, n)
        return x.expand(b, x.size(0), -1).reshape(-1, n), x.shape, x.numel()

    return f, (x35(),)


@case
def store_to_slice():
    def f(x):
        y = torch.zeros_like(x)
        y[0] = x[1]
        y[:, 2] += 3
        x[1, 1] = 7.0
        return y

    return f, (x35(),)


@case
def masked_store():
    def f(x):
        y = x.clone()
        y[y < 0] = 0.5
        return y

    return f, (x35(),)


@case
def in_place_methods():
    def f(x):
        y = x * 2
        y.add_(1).clamp_(min=0)
        x.mul_(0.5)
        return y

    return f, (x35(),)


@case
def detach_and_clone():
    def f(x):
        y = x.clone()
        z = y.detach()
        z.add_(1)
        return y, z, x.data * 2

    return f, (x35(),)


@case
def numpy_constant():
    def f(x):
        w = np.linspace(0, 1, x.shape[1]).astype(np.float32)
        return x * torch.from_numpy(w) + np.pi

    return f, (x35(),)


@case
def to_numpy_and_back():
    def f(x):
        y = x.sin()
        z = np.asarray(y.numpy()).cumsum(axis=1)
        return torch.as_tensor(z) * 2

    return f, (x35(),)


@case
def math_functions():
    def f(x):
        d = x.size(-1)
        return x * math.sqrt(d) / math.log(d + 1) + math.pi, math.ceil(d / 2)

    return f, (x35(),)


@case
def special_values():
    def f(x):
        return (
            x.relu(),
            torch.sign(x),
            x.clamp(-1, 1),
            x.round(),
            torch.maximum(x, -x),
            x == x,
        )

    values = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 0.5, 1.5, 2.5]
    return f, (torch.tensor(values),)


@case
def type_promotion():
    def f(i, h, b):
        return i + 1.5, h * 2, i * h, b + b, b * h, i.to(torch.float64) + h

    return f, (
        torch.arange(4),
        torch.ones(4).half(),
        torch.tensor([True, False, True, True]),
    )


@case
def reductions():
    def f(x):
        return (
            x.sum(0), x.mean(1, keepdim=True), x.var(), x.std(1), x.amax(1), x.argmax(1),
            x.max(dim=1), x.logsumexp(1), x.softmax(0), x.log_softmax(1), x.norm(), x.prod(),
            x.cumsum(1), x.any(), x.all(1),
        )  # fmt: skip

    return f, (x35(),)


@case
def losses():
    def f(x, target):
        return F.cross_entropy(x, target), F.mse_loss(x, x * 2), F.nll_loss(x, target)

    return f, (x35(), torch.tensor([0, 4, 2]))


@case
def embedding_and_gather():
    table = torch.randn(10, 4)

    def f(index):
        e = F.embedding(index, table)
        return (
            e.sum(1),
            torch.gather(e, 1, index[..., None].clamp(max=1)),
            F.one_hot(index, 10),
        )

    return f, (torch.tensor([[1, 9], [3, 0]]),)


@case
def einsum_and_matmul():
    def f(a, b):
        return torch.einsum("ij,kj->ik", a, b), a @ b.T, torch.bmm(a[None], b.T[None])

    return f, (x35(), x35() + 1)


@case
def expanded_input():
    def f(x):
        return x + 1, x.contiguous(), x.sum(0)

    return f, (torch.arange(4.0).expand(3, 4),)


@case
def same_tensor_twice():
    def f(x, y):
        x.add_(1)
        return x * y

    x = x35()
    return f, (x, x)


@case
def overlapping_views():
    def f(x, y):
        x.mul_(2)
        return x.sum() + y.sum()

    x = torch.arange(6.0)
    return f, (x[:4], x[2:])
