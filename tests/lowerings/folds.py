"""Rows of reductions over every set of dimensions, with their options, and of scans and sorts.

Tensors have three dimensions, among them ones of one element and of none. Where eager raises
for a dimension of none, the call is left out.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from tests.lowerings.operands import rows
from tests.lowerings.table import Call, Operands

SETS = [list(dims) for n in (1, 2, 3) for dims in itertools.combinations(range(3), n)]
"""Every set of dimensions of three."""

OF_SETS: dict[str, list[dict[str, Any]]] = {
    "sum": [{}, {"dtype": torch.float32}, {"dtype": torch.float64}],
    "mean": [{}, {"dtype": torch.float32}],
    "nansum": [{}],
    "nanmean": [{}],
    "amax": [{}],
    "amin": [{}],
    "logsumexp": [{}],
    "count_nonzero": [{}],
    "any": [{}],
    "all": [{}],
    **{
        name: [{"correction": c} for c in (0, 1, 2, 0.5)] + [{"unbiased": False}]
        for name in ("var", "std", "var_mean", "std_mean")
    },
    "linalg.vector_norm": [{"ord": p} for p in (0, 1, 2, 3, 0.5, math.inf, -math.inf)],
}
"""Functions of a set of dimensions and of `keepdim`, with further options."""

OF_ONE: dict[str, list[dict[str, Any]]] = {
    "prod": [{}, {"dtype": torch.float32}, {"dtype": torch.float64}],
    "argmax": [{}],
    "argmin": [{}],
    "max": [{}],
    "min": [{}],
    "median": [{}],
    "nanmedian": [{}],
    "mode": [{}],
    "aminmax": [{}],
}
"""Functions of one dimension and of `keepdim`."""

ALONG: dict[str, list[dict[str, Any]]] = {
    "cumsum": [{}, {"dtype": torch.float32}, {"dtype": torch.float64}],
    "cumprod": [{}, {"dtype": torch.float64}],
    "cummax": [{}],
    "cummin": [{}],
    "logcumsumexp": [{}],
    "softmax": [{}, {"dtype": torch.float32}],
    "log_softmax": [{}, {"dtype": torch.float64}],
    "sort": [{}, {"descending": True, "stable": True}],
    "argsort": [{"stable": True}],
    "diff": [{}],
    "flip": [{}],
    "roll": [{}],
}
"""Functions along one dimension, whose result has as many elements."""


def _function(name: str) -> Any:
    found: Any = torch
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _along(name: str, dim: int, options: dict[str, Any]) -> Call:
    function = _function(name)
    if name == "flip":
        return lambda t: function(t.x, [dim])
    if name == "roll":
        return lambda t: function(t.x, 2, dim)
    return lambda t: function(t.x, dim=dim, **options)


def _folding(name: str, dim: Any, keepdim: bool, options: dict[str, Any]) -> Call:
    function = _function(name)
    if name == "count_nonzero":
        return lambda t: function(t.x, dim)
    if name == "aminmax":
        return lambda t: function(t.x, dim=dim, keepdim=keepdim)
    return lambda t: function(t.x, dim=dim, keepdim=keepdim, **options)


FOLDS: dict[str, list[Call]] = {
    **{
        name: [
            _folding(name, dims, keepdim, o)
            for dims in SETS
            for keepdim in (False, True)
            for o in options
        ]
        for name, options in OF_SETS.items()
    },
    **{
        name: [
            _folding(name, dim, keepdim, o)
            for dim in (0, 1, -1)
            for keepdim in (False, True)
            for o in options
        ]
        for name, options in OF_ONE.items()
    },
    **{
        name: [_along(name, dim, o) for dim in (0, 1, -1) for o in options]
        for name, options in ALONG.items()
    },
    **{
        f"{name} of all": [lambda t, f=_function(name): f(t.x)]
        for name in (
            "sum mean prod amax amin max min argmax argmin any all var std var_mean std_mean "
            "nansum nanmean count_nonzero median aminmax linalg.vector_norm"
        ).split()
    },
    "topk": [
        lambda t, largest=largest: torch.topk(t.x, 1, -1, largest)[0]
        for largest in (False, True)
    ],
    "kthvalue": [lambda t: torch.kthvalue(t.x, 1, -1)[0]],
}
"""All of them."""

SHAPES = {
    "odd": (5, 7, 9),
    "ones": (1, 6, 1),
    "rows": (3, 1, 200),
    "columns": (150, 2, 3),
    "none first": (0, 3, 4),
    "none between": (3, 0, 4),
    "none last": (3, 4, 0),
}
"""Sizes of the tensors."""


def folded(dtype: torch.dtype, shape: str) -> Operands:
    """Values with ties, and few that are not ordinary, in a shape, every second element of memory."""
    size = SHAPES[shape]
    made = rows(dtype)

    def spread(a: torch.Tensor) -> torch.Tensor:
        count = math.prod(size)
        places = torch.arange(count * 2) % a.numel()
        return a.flatten()[places].reshape(*size, 2)[..., 0]

    x, y, z, flag = (spread(a) for a in (made.x, made.y, made.z, made.flag))
    return Operands(x, y, z, flag, torch.zeros(size, dtype=torch.int64))
