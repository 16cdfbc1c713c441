"""Rows of operators on operands of two dtypes, and on a tensor and a Python number.

`y` has another dtype than `x`, and in turn the shape of `x`, no dimension, or one row.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from srcjit.passes.low_precision import LOW_PRECISION
from tests.lowerings.operands import INTS, pairs
from tests.lowerings.table import Call, Operands

TWO = (
    "add sub mul div pow fmod remainder floor_divide maximum minimum fmax fmin eq ne lt le gt "
    "ge atan2 hypot copysign nextafter logical_and logical_or logical_xor bitwise_and bitwise_or "
    "bitwise_xor bitwise_left_shift bitwise_right_shift true_divide xlogy logaddexp logaddexp2 "
    "float_power heaviside"
).split()
"""Functions of two tensors."""


def _in_place(name: str) -> Call:
    return lambda t: getattr(t.x.clone(), f"{name}_")(t.y)


PROMOTED: dict[str, list[Call]] = {
    **{
        name: [
            lambda t, f=getattr(torch, name): f(t.x, t.y),
            lambda t, f=getattr(torch, name): f(t.y, t.x),
        ]
        for name in TWO
    },
    **{f"{name}_": [_in_place(name)] for name in TWO if hasattr(torch.Tensor, f"{name}_")},
    "add alpha": [
        lambda t: torch.add(t.x, t.y, alpha=2),
        lambda t: torch.sub(t.y, t.x, alpha=2),
    ],
    "div modes": [
        lambda t, m=m: torch.div(t.x, t.y, rounding_mode=m) for m in ("floor", "trunc")
    ],
    "where": [
        lambda t: torch.where(t.flag, t.x, t.y),
        lambda t: torch.where(t.flag, t.y, t.x),
        lambda t: torch.where(t.x > t.y, t.x, t.y),
        lambda t: torch.where(t.x, t.x, t.y) if t.x.dtype is torch.bool else t.x + 0,
    ],
    "clamp": [
        lambda t: torch.clamp(t.x, t.y),
        lambda t: torch.clamp(t.x, None, t.y),
        lambda t: torch.clamp(t.x, t.y, t.z),
    ],
    "addcmul": [lambda t: torch.addcmul(t.x, t.y, t.z)],
    "addcdiv": [lambda t: torch.addcdiv(t.x, t.y, t.z)],
    "lerp": [lambda t: torch.lerp(t.x, t.y, 0.3), lambda t: torch.lerp(t.x, t.z, t.y)],
    "cat": [
        lambda t: torch.cat([t.x, t.y.expand(t.x.shape)]),
        lambda t: torch.cat([t.y.expand(t.x.shape), t.x], -1),
    ],
    "stack": [lambda t: torch.stack([t.x, t.y.expand(t.x.shape)])],
    "copy_": [lambda t: t.x.clone().copy_(t.y)],
    "masked_fill": [lambda t: t.x.masked_fill(t.flag, t.y)],
    "type_as": [lambda t: t.x.type_as(t.y), lambda t: t.y.type_as(t.x)],
    "setitem": [lambda t: _set(t)],
}  # fmt: skip
"""Calls of two dtypes. Eager refuses some; then they are left out."""


def _set(t: Operands) -> torch.Tensor:
    made = t.x.clone()
    made[1:] = t.y[1:] if t.y.dim() == 2 and t.y.size(0) > 1 else t.y
    return made


NUMBERS: tuple[Any, ...] = (
    *(True, 0, 1, 2, 3, -1, -7, 31, 70, 100, 255, -128, 32767, 2**24 + 1, 2**31 - 1),
    *(-(2**31), 2**53 + 1, 2**63 - 1),
    *(0.0, -0.0, 0.1, 0.5, -0.5, 1.0, 2.0, 2.5, -3.0, 3.7, 1e-3, 1e-8, 1e6, 1e38),
    *(3.5e38, 1e-40, 1e300, math.inf, -math.inf, math.nan),
)
"""Python numbers; those that eager refuses for a dtype are left out."""

SYMBOLS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name)
    for name in "add sub mul truediv floordiv mod pow eq ne lt le gt ge".split()
}
BITS = "and_ or_ xor lshift rshift".split()


def _with_number(function: Callable[[Any, Any], Any], number: Any) -> list[Call]:
    return [
        lambda t: function(t.x, number),
        lambda t: function(number, t.x),
    ]


def _divided(x: torch.Tensor, number: Any, mode: str) -> torch.Tensor:
    floats = x.is_floating_point() or isinstance(number, float)
    if mode == "trunc" and not floats and torch.tensor(number).to(x.dtype) == -1:
        raise ValueError("eager's process dies of the smallest integer divided by -1")
    return torch.div(x, number, rounding_mode=mode)


NUMBERED: dict[str, list[Call]] = {
    **{
        f"{name} number": [c for n in NUMBERS for c in _with_number(f, n)]
        for name, f in SYMBOLS.items()
    },
    **{
        f"{name} number": [
            c
            for n in NUMBERS
            if isinstance(n, int)
            for c in _with_number(getattr(operator, name), n)
        ]
        for name in BITS
    },
    "where number": [
        call
        for n in NUMBERS
        for call in (
            lambda t, n=n: torch.where(t.flag, t.x, n),
            lambda t, n=n: torch.where(t.flag, n, t.x),
        )
    ],
    "masked_fill number": [
        lambda t, n=n: t.x.masked_fill(t.flag, n) for n in NUMBERS
    ],
    "full": [lambda t, n=n: torch.full_like(t.x, n) for n in NUMBERS],
    "fill_": [lambda t, n=n: t.x.clone().fill_(n) for n in NUMBERS],
    "clamp number": [
        call
        for n in NUMBERS
        for call in (
            lambda t, n=n: torch.clamp(t.x, min=n),
            lambda t, n=n: torch.clamp(t.x, max=n),
            lambda t, n=n: torch.clamp(t.x, n, 2 * n),
        )
    ],
    "pad": [
        lambda t, n=n: torch.nn.functional.pad(t.x, [1, 2], value=n) for n in NUMBERS
    ],
    "add alpha": [
        call
        for n in NUMBERS
        for call in (
            lambda t, n=n: torch.add(t.x, t.z, alpha=n),
            lambda t, n=n: torch.sub(t.x, t.z, alpha=n),
        )
    ],
    "addcmul number": [lambda t, n=n: torch.addcmul(t.x, t.z, t.x, value=n) for n in NUMBERS],
    "addcdiv number": [lambda t, n=n: torch.addcdiv(t.x, t.z, t.x, value=n) for n in NUMBERS],
    "lerp number": [lambda t, n=n: torch.lerp(t.x, t.z, n) for n in NUMBERS],
    "fmod number": [lambda t, n=n: torch.fmod(t.x, n) for n in NUMBERS],
    "div modes": [
        lambda t, n=n, m=m: _divided(t.x, n, m)
        for n in NUMBERS
        for m in ("floor", "trunc")
    ],
    "xlogy number": [c for n in NUMBERS for c in _with_number(torch.xlogy, n)],
    "float_power number": [
        c for n in NUMBERS for c in _with_number(torch.float_power, n)
    ],
    "threshold": [
        lambda t, n=n: torch.nn.functional.threshold(t.x, n, n) for n in NUMBERS
    ],
}  # fmt: skip
"""Calls of a tensor and a number."""

SHAPES = ("tensor", "no_dimension", "row")
"""Of the second operand."""


def mixed(dtype: torch.dtype, other: torch.dtype, shape: str) -> Operands:
    """The first operand of `pairs(dtype)` against a second of another dtype."""
    first, second = pairs(dtype), pairs(other)
    rows = min(first.x.size(0), second.x.size(0))
    x, z = first.x[:rows, :rows], first.z[:rows, :rows]
    y = second.y[:rows, :rows]
    if shape == "no_dimension":
        place = 2 + (len(str(dtype)) * 5 + len(str(other))) % (rows - 2)
        y = second.y[0, place]
    elif shape == "row":
        y = y[:1]
    whole = (*INTS, torch.bool)
    if dtype in whole and other in whole:
        # Eager's process dies of the smallest integer divided by -1, either way.
        # Beside a tensor a number has the tensor's dtype, in which others are -1, too.
        least = y.to(dtype) == -1 if shape == "no_dimension" else y == -1
        y = torch.where(least, 2, y).to(other) if other is not torch.bool else y
        z = torch.where(z == -1, 2, z).to(dtype) if dtype is not torch.bool else z
        x = torch.where(x == -1, 2, x).to(dtype) if dtype is not torch.bool else x
    if dtype in LOW_PRECISION:
        # Eager's loop over what its vectors leave rounds in other places.
        x, y, z = (a[:16, :16] if a.dim() else a for a in (x, y, z))
        rows = 16
    flag, places = first.flag[:rows, :rows], first.places[:rows, :rows] % rows
    return Operands(*(a.contiguous() for a in (x, y, z, flag)), places.contiguous())


def whole(dtype: torch.dtype) -> Operands:
    """`pairs`, as many as fill eager's vectors: what is left over rounds in other places."""

    def cut(a: torch.Tensor) -> torch.Tensor:
        count = a.numel() // 64 * 64 or a.numel() // 8 * 8
        return a.flatten()[:count].reshape(-1, 8)

    return Operands(*map(cut, pairs(dtype).tensors))
