"""Rows of a tile that read the same: two repetitions of what is as large as the result.

Before (a rotary embedding: each of 256 heads turns by the same angles):

    kernel turn over h < 256, j < 4096, m < 128:
        y[524288*h + 128*j + m] = mul(x[524288*h + 128*j + m], cos[128*j + m])

After:

    kernel turn over h_tile < 128, j_tile < 1024, h < 2, j < 4, m < 128:
        y[1048576*h_tile + 512*j_tile + 524288*h + 128*j + m] =
            mul(x[…], cos[512*j_tile + 128*j + m])

A program whose eight rows are four positions of two heads loads half as much of `cos` as one
with eight positions of one head. It comes from the L2 cache either way, which must deliver it
beside what comes from memory: on an H200, 0.8 % of the time of a rotary embedding. More
repetitions would be farther apart in memory than they gain.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import sympy

from .indexing import substitute
from .loops import Axis, Buffer, Expr, Kernel, Load, Store, symbol
from .print_triton_axes import indices, map_indices, static, stride

TILE = 1024
"""Points of a program: what `print_triton_schedule` takes where rows are short."""

WIDTHS = (64, 128, 256)
"""Rows that are short, and long enough for whole lines of the cache."""

TOGETHER = 2
"""Repetitions in a program."""


def repeat_in_tiles(kernel: Kernel) -> Kernel:
    """Orders the rows of a pointwise kernel, whose axes are merged, so that tiles repeat.

    The kernel is returned as it is unless it reads, again and again along one axis, at least
    half of the bytes that it reads and writes once.
    """
    if kernel.inner or len(kernel.outer) < 3:
        return kernel
    *before, repeated, row, column = kernel.outer
    width = static(column.size)
    if width not in WIDTHS or not _is_repeated(kernel, repeated, row, column):
        return kernel
    few = TILE // width // TOGETHER
    table: dict[Expr, Expr] = {e: e for e in indices(kernel)}
    taken = {s for e in table for s in e.free_symbols}
    high, low = _cut(repeated, TOGETHER, taken), _cut(row, few, taken)
    if high is None or low is None:
        return kernel
    apart = {
        inner.symbol: step * outer.symbol + inner.symbol
        for step, (outer, inner) in ((TOGETHER, high), (few, low))
    }
    table = {e: sympy.expand(substitute(e, apart)) for e in table}
    order = (*before, high[0], low[0], high[1], low[1], column)
    return replace(map_indices(kernel, table), outer=order)


def _cut(axis: Axis, size: int, taken: set[sympy.Symbol]) -> tuple[Axis, Axis] | None:
    """The axis as one of tiles and one of points in a tile; None if it leaves a rest.

    Merged again, the two are the axis, symbol and all, so that a schedule fits either way.
    """
    points = static(axis.size)
    if points is None or points % size or points == size:
        return None
    wanted = f"{axis.symbol}_tile"
    names = (symbol(f"{wanted}_{n}" if n else wanted) for n in itertools.count())
    tiles = Axis(
        next(n for n in names if n not in taken), sympy.Integer(points // size)
    )
    return tiles, Axis(axis.symbol, sympy.Integer(size))


def _is_repeated(kernel: Kernel, repeated: Axis, row: Axis, column: Axis) -> bool:
    places: list[tuple[Buffer, Expr]] = [
        (s.buffer, sympy.sympify(s.index)) for s in kernel.body if isinstance(s, Store)
    ]
    for value in kernel.values:
        if isinstance(value, Load):
            if value.indirect:
                return False
            places.append((value.buffer, value.index))
    again: dict[Buffer, int] = {}
    once: dict[Buffer, int] = {}
    for buffer, index in places:
        if stride(index, column) != 1:
            return False
        if any(stride(index, a) == 1 for a in kernel.outer if a is not column):
            return False
        used = index.free_symbols
        if repeated.symbol not in used and row.symbol in used:
            again[buffer] = buffer.dtype.itemsize
        else:
            once[buffer] = buffer.dtype.itemsize
    return 2 * sum(again.values()) >= sum(once.values())
