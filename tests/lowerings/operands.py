"""Adversarial operands for the table of lowerings, by dtype and layout."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from srcjit.passes.loops import FLOAT8
from tests.lowerings.table import Operands

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTS, torch.bool, *FLOAT8)

ORDINARY = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, 1e-3, 30.0, -30.0]


def special(dtype: torch.dtype) -> torch.Tensor:
    """Values at which operators have corner cases."""
    if dtype is torch.bool:
        return torch.tensor([True, False, False, True, True])
    if dtype in INTS:
        info = torch.iinfo(dtype)
        bits = info.bits
        values = [
            0,
            1,
            2,
            3,
            7,
            bits - 1,
            bits,
            100,
            info.max,
            info.max - 1,
            info.max // 3,
        ]
        values += [info.min, info.min + 1]
        values += [-1, -2, -7, -bits] if info.min < 0 else [200, 255, 128, 129]
        return torch.tensor(values).to(dtype)
    info = torch.finfo(dtype)
    values = [*ORDINARY, math.nan, math.inf, -math.inf, info.max, info.min, info.tiny]
    values += [info.smallest_normal / 4, -info.smallest_normal / 4, -104.3, 88.9, 9.9]
    return torch.tensor(values, dtype=torch.float64).to(dtype)


def pairs(dtype: torch.dtype) -> Operands:
    """Every special value against every other, in a square with odd rows."""
    values = special(dtype)
    n = len(values)
    x = values.repeat_interleave(n).reshape(n, n)
    y = values.repeat(n).reshape(n, n)
    if dtype in INTS and values.min() < 0:
        # Eager's process dies of the smallest integer divided by -1.
        y = torch.where((x == values.min()) & (y == -1), 2, y)
    z = values[(torch.arange(n * n) * 7 + 3) % n].reshape(n, n)
    flag = (torch.arange(n * n).reshape(n, n) * 5 // 3) % 2 == 0
    return Operands(x, y, z, flag, (torch.arange(n * n).reshape(n, n) * 3) % n)


def rows(dtype: torch.dtype) -> Operands:
    """Rows with ties and at most one value that is not ordinary, some of them NaN."""
    shape = (24, 36)
    generator = torch.Generator().manual_seed(3)
    if dtype is torch.bool:
        drawn = torch.rand(shape, generator=generator) > 0.5
        drawn[2], drawn[3], drawn[:, 5] = True, False, False
        x, y, z = drawn, drawn.roll(1, 0), ~drawn
    elif dtype in INTS:
        info = torch.iinfo(dtype)
        drawn = torch.randint(max(info.min, -9), 9, shape, generator=generator)
        x = drawn.to(dtype)
        for row, value in enumerate(special(dtype).tolist()):
            x[row, row + 1] = value
        y, z = x.roll(1, 0), x.roll(2, 1)
    else:
        drawn = (torch.randn(shape, generator=generator) * 8).round() / 4
        x = drawn.to(torch.float64)
        for row, value in enumerate(
            [math.nan, math.inf, -math.inf, -0.0, 300.0, -300.0]
        ):
            x[row, row + 1] = value
        x[6], x[7], x[8] = math.nan, -math.inf, 0.0
        x[9, 3], x[9, 7], x[10, 3], x[10, 9] = math.inf, math.inf, math.nan, math.inf
        x = x.to(dtype)
        y = torch.randn(shape, generator=generator).to(dtype)
        z = torch.randn(shape, generator=generator).to(dtype)
    places = torch.randint(0, shape[1], shape, generator=generator)
    places = places.clamp(max=shape[0] - 1)
    return Operands(x, y, z, drawn > 0, places)


Layout = Callable[[torch.Tensor], torch.Tensor]


def _transposed(a: torch.Tensor) -> torch.Tensor:
    return a.t().contiguous().t()


def _unaligned(a: torch.Tensor) -> torch.Tensor:
    wide = a.new_zeros(a.size(0), a.size(1) + 2)
    wide[:, 1:-1] = a
    return wide[:, 1:-1]


def _every_second(a: torch.Tensor) -> torch.Tensor:
    wide = a.new_zeros(a.size(0), 2 * a.size(1))
    wide[:, ::2] = a
    return wide[:, ::2]


def _expanded(a: torch.Tensor) -> torch.Tensor:
    return a[a.size(0) // 2].expand(a.shape)


def _channels_last(a: torch.Tensor) -> torch.Tensor:
    whole = a.flatten()
    part = whole[: len(whole) // 24 * 24].reshape(2, 3, -1, 4)
    return part.contiguous(memory_format=torch.channels_last)


LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda a: a,
    "transposed": _transposed,
    "unaligned": _unaligned,
    "every_second": _every_second,
    "expanded": _expanded,
    "channels_last": _channels_last,
    "no_dimension": lambda a: a[1, 2].clone(),
    "one_element": lambda a: a[2:3, 1:2].clone(),
    "empty": lambda a: a[:0].clone(),
    "empty_rows": lambda a: a[:, :0].clone(),
}
"""Ways to lay out the elements of a matrix, or few of them."""


def laid_out(operands: Operands, layout: str) -> Operands:
    """The operands in a layout; positions stay within the last dimension."""
    change = LAYOUTS[layout]

    def safe(a: torch.Tensor) -> torch.Tensor:
        if a.dtype in FLOAT8:
            return change(a.view(torch.uint8)).view(a.dtype)
        return change(a)

    *tensors, places = (safe(t) for t in operands.tensors)
    columns = tensors[0].size(-1) if tensors[0].dim() else 1
    limit = min([columns, *tensors[0].shape])
    return Operands(*tensors, places.remainder(limit) if limit else places)
