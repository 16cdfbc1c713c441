"""Programs that add to places chosen by integer tensors, with values whose sums are exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def whole(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Whole numbers: their sums are the same in any order."""
    generator = torch.Generator().manual_seed(sum(size))
    return torch.randint(-9, 10, size, generator=generator).to(dtype)


def integers(*size: int, below: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Places, most of them several times."""
    generator = torch.Generator().manual_seed(sum(size) + below)
    return torch.randint(0, below, size, generator=generator, dtype=dtype)


X = whole(6, 20)
S, T = integers(40, below=6), integers(40, below=5)
FLAT = whole(6, 9)
COLUMNS = integers(6, 7, below=4)


def means(x: Any, s: Any, t: Any) -> Any:
    total = torch.zeros_like(x).index_add_(0, t, x[s])
    degree = torch.zeros(x.shape[0], dtype=x.dtype)
    degree = degree.scatter_add(0, t, torch.ones_like(t, dtype=x.dtype))
    return total / degree.clamp_min(1)[:, None]


def changed(x: Any, y: Any, s: Any, t: Any) -> Any:
    before = x * 2
    x.index_add_(0, t, y[s], alpha=3)
    return before + x


def added_to(x: Any, y: Any, s: Any, t: Any) -> Any:
    before = (x * 2).sum()
    x.index_add_(0, t, y[s])
    return before, x + 1


def changed_twice(x: Any, y: Any, s: Any, t: Any) -> Any:
    x.index_add_(0, t, y[s])
    x.index_add_(0, s, y[t])
    return x.relu_()


def read_meanwhile(x: Any, s: Any, t: Any) -> Any:
    x.index_add_(0, t, x[s])
    return x.flip(0)


def in_the_product(x: Any, w: Any, s: Any, t: Any) -> Any:
    h = x @ w
    h.index_add_(0, t, x[s] * 2).index_add_(0, s, x[t])
    return torch.sin(h)


def shared(x: Any, s: Any, t: Any) -> Any:
    message = torch.relu(x[s]) * 2
    zeros = torch.zeros_like(x)
    return message, zeros.index_add(0, t, message), zeros.index_add(0, s, message)


def kept(x: Any, s: Any, t: Any) -> Any:
    h = x * 2
    return h, h.index_add(0, t, x[s]), h[2]


def one_to_many(x: Any, i: Any) -> Any:
    """Points at which neither the place nor the value depends on the last axis."""
    zeros = torch.zeros(6, 4)
    return zeros.scatter_add(1, i[:, :1].expand(6, 7), torch.ones(6, 7)) * x[:, :4]


def drained(x: Any, t: Any) -> Any:
    """Written over, so that only the additions need memory."""
    x.zero_().index_add_(0, t, torch.ones(40, 20))


PROGRAMS: dict[str, Program] = {
    "means": (means, (X, S, T)),
    "into a sum": (lambda x, y, s, t: (x + y).index_add(0, t, x[s]), (X, X * 2, S, T)),
    "columns": (
        lambda x, y, t: x.index_add(-1, t, torch.sin(y) * 0 + y, alpha=2),
        (FLAT, whole(6, 40), T),
    ),
    "narrow index": (
        lambda x, s, t: torch.zeros_like(x).index_add_(0, t, x[s]),
        (X, S.to(torch.int32), T.to(torch.int32)),
    ),
    "float64": (
        lambda x, s, t: torch.zeros_like(x).index_add_(0, t, x[s] / 3 * 3),
        (X.double(), S, T),
    ),
    "integers": (
        lambda x, s, t: x.index_add(0, t, x[s], alpha=-2),
        (X.long(), S, T),
    ),
    "narrow integers": (lambda x, s, t: x.index_add(0, t, x[s]), (X.int(), S, T)),
    "scatter_add": (
        lambda x, i, y: (x - 1).scatter_add(1, i, y * 2),
        (FLAT, COLUMNS, whole(8, 9)),
    ),
    "scatter_add of rows": (
        lambda x, t, y: torch.zeros_like(x).scatter_add_(
            0, t[:, None].expand(-1, 20), y
        ),
        (X, T, whole(40, 20)),
    ),
    "scatter_reduce": (
        lambda x, i, y: x.scatter_reduce(1, i, y, "sum"),
        (FLAT, COLUMNS, whole(6, 9)),
    ),
    "one to many": (one_to_many, (FLAT, COLUMNS)),
    "rows to one place": (
        lambda i, y: torch.zeros(6, 4).scatter_add(1, i[:, :1].expand(6, 256), y),
        (COLUMNS, whole(6, 256)),
    ),
    "source expanded": (
        lambda x, t, y: x.index_add(0, t, y.expand(40, 20)),
        (X, T, whole(1, 20)),
    ),
    "destination expanded": (
        lambda x, s, t: torch.ones(20).expand(6, 20).index_add(0, t, x[s]),
        (X, S, T),
    ),
    "destination transposed": (
        lambda x, s, t: x.t().index_add(1, t, x[s].t()),
        (X, S, T),
    ),
    "rows of no block": (
        lambda x, s, t: torch.zeros_like(x).index_add_(0, t, x[s]),
        (whole(6, 100), S, T),
    ),
    "many": (
        lambda x, s, t: torch.zeros_like(x).index_add_(0, t, x[s]),
        (whole(6, 3), integers(3000, below=6), integers(3000, below=6)),
    ),
    "sums of rows": (
        lambda x, s, t: torch.zeros(6).index_add_(0, t, (x[s] * 2).sum(1)),
        (X, S, T),
    ),
    "three axes": (
        lambda x, t: torch.zeros(3, 5, 4).index_add_(1, t, x * 2),
        (whole(3, 40, 4), T),
    ),
    "input changed": (changed, (X, X * 3, S, T)),
    "input added to": (added_to, (X, X * 3, S, T)),
    "input changed twice": (changed_twice, (X, X * 3, S, T)),
    "input read meanwhile": (read_meanwhile, (X, S, T)),
    "input written over": (drained, (X, T)),
    "in the memory of a product": (in_the_product, (X, whole(20, 20), S, T)),
    "source shared": (shared, (X, S, T)),
    "destination kept": (kept, (X, S, T)),
}

EAGER: dict[str, Program] = {
    "bfloat16": (lambda x, s, t: x.index_add(0, t, x[s]), (X.bfloat16(), S, T)),
    "64 bits in memory": (
        lambda x, y, t: (x * 2).index_add(0, t, y),
        (X.double(), whole(40, 20).double(), T),
    ),
    "no index": (lambda x, s, t: x.index_add(0, t[:0], x[s[:0]]), (X, S, T)),
    "a scalar": (lambda x, t: x.sum().index_add(0, t[0] * 0, x[0, 0]), (X, T)),
    "a mean": (
        lambda x, i, y: x.scatter_reduce(1, i, y, "mean"),
        (FLAT, COLUMNS, FLAT),
    ),
    "few of old values": (
        lambda x, s, t: x.index_add(0, t[:3], x[s[:3]]),
        (X, S, T),
    ),
    "sorted by eager": (
        lambda x, s, t: x.index_put((t,), x[s], accumulate=True),
        (X, S, T),
    ),
}
"""What stays a call."""
