"""How reductions over columns run: results that are neighbours lie side by side in memory.

A program takes a strip of columns and walks down its rows. The sum of the columns of a matrix
of float32

    kernel sum over i < 8192, inner k < 16384:
        total = sum(x[i + 8192*k])
        y[i] = total  (outer)

becomes

    total = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    for start in tl.range(0, 16384, COLUMNS, num_stages=6):
        k = start + tl.arange(0, COLUMNS)[None, :]
        x = tl.load(x_ptr + i + 8192 * k)
        total += x
    total = tl.sum(total, 1, keep_dims=True)

Strips are as wide as one line of the cache. Few programs that each have many bytes on their
way to shared memory (`num_stages`) read as fast as many that wait for registers, and leave
fewer partial results, mostly none: a second kernel takes 3 µs. What a variance needs is had in
the same sweep: each place of the tile keeps a mean of its own, and squares of the distances from
it (`passes.online.Centred`). The numbers below were measured on an H200.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from .loops import Kernel, Load, Store, symbols_of, walk
from .print_triton_axes import accesses, share, static, stride

MULTIPROCESSORS = 132
"""Of an H100 or H200; other GPUs have from 80 to 160."""

LINE = 128
"""Bytes of a row that a program reads."""

STEP = 64 * LINE
"""Bytes that a program asks for at a time."""

VECTOR = 16
"""Bytes of the widest load."""

IN_FLIGHT = 72 * 1024 * MULTIPROCESSORS
"""Bytes on their way that keep the memory busy; more disturb each other."""

MOST_AHEAD = 7
"""Steps that one program has on their way at most."""

ENOUGH = 88
"""Programs that can have that many."""

SHORTEST_SPLIT = 2048
"""Rows that one program walks over sooner than a second kernel starts."""

SHORTEST_PART = 256
"""Rows below which a part is not worth a program."""

HELD = 128
"""Rows that a program holds in registers where it needs them again: 16 KB of its strip."""


@dataclass(frozen=True)
class ColumnTile:
    """How a program covers its columns.

    Attributes:
        columns: Neighbouring results.
        rows: What is reduced over at a time.
        looped: Whether there are more rows.
        warps: Warps of the program.
        stages: Steps on their way to shared memory, the one that is used included; 0 loads
            into registers.
    """

    columns: int
    rows: int
    looped: bool
    warps: int
    stages: int = 0


def rows_are_columns(kernel: Kernel) -> bool:
    """Whether neighbouring outer points, not neighbouring inner ones, lie side by side."""
    if not kernel.outer:
        return False
    inner = outer = 0.0
    for index, width in accesses(kernel):
        if stride(index, kernel.inner[-1]) == 0:
            continue
        moved = width * share(index, (*kernel.outer, *kernel.inner))
        inner += moved * (stride(index, kernel.inner[-1]) == 1)
        outer += moved * (stride(index, kernel.outer[-1]) == 1)
    return outer > inner


def column_tile(
    kernel: Kernel, points: int | None, length: int | None, sweeps: int
) -> ColumnTile:
    """The tile of a kernel.

    Args:
        kernel: A reduction over columns.
        points: How many columns there are, if that is known.
        length: How many rows.
        sweeps: How often the rows are needed.
    """
    bound = _power_of_two(points) if points is not None else 1 << 30
    columns = min(64, bound)
    if length is not None and length <= 64:
        rows = _power_of_two(length)
        return ColumnTile(columns, rows, False, _warps(columns * rows, 8, 4))
    width, line = _width(kernel), _line(kernel)
    if length is not None and length <= HELD and sweeps > 1:
        rows = _power_of_two(length)
        return ColumnTile(line, rows, False, _warps(line * rows, 32, 8))
    plain = ColumnTile(columns, 64, True, _warps(columns * 64, 16, 8))
    streams = _streams(kernel)
    if not streams or length is None or _stores_rows(kernel):
        return plain
    # Unknown numbers of columns are taken for many.
    tiles = -(-points // line) if points is not None else 4 * MULTIPROCESSORS
    warps = 8 if tiles <= 2.25 * MULTIPROCESSORS else 4
    if tiles > 4.5 * MULTIPROCESSORS:
        line, tiles = 2 * line, -(-tiles // 2)
    rows = max(1, STEP // (width * line))
    # More programs than there is room for would begin when the first are through.
    if tiles > 8 * MULTIPROCESSORS or length <= rows:
        return plain
    ahead = min(MOST_AHEAD, max(2, round(IN_FLIGHT / (tiles * STEP))))
    if streams > ahead:
        return plain
    return ColumnTile(line, rows, True, warps, -(-ahead // streams) + 1)


def column_parts(kernel: Kernel, points: int, length: int) -> int:
    """Into how many parts the rows are cut; 1 leaves the kernel whole.

    Args:
        kernel: A reduction over columns.
        points: How many columns there are.
        length: How many rows.
    """
    stores = _stores_rows(kernel)
    if _streams(kernel):
        tiles = -(-points // _line(kernel))
        few = tiles < ENOUGH and length > SHORTEST_SPLIT
        parts = _power_of_two(-(-2 * ENOUGH // tiles)) if few else 1
    else:
        wanted = 4 * MULTIPROCESSORS // -(-points // 64)
        parts = 1 << max(0, wanted.bit_length() - 1)
    if stores:
        # What is stored of every element is a kernel of its own, with programs of its own.
        parts = max(2, parts)
    return max(1, min(parts, length // SHORTEST_PART))


def _power_of_two(n: int) -> int:
    """The smallest power of two that is at least `n`."""
    return 1 << max(0, n - 1).bit_length()


def _warps(elements: int, per_thread: int, limit: int) -> int:
    return max(1, min(limit, elements // (32 * per_thread)))


def _width(kernel: Kernel) -> int:
    """Bytes of an element of what is read down the columns."""
    loads = [v for v in kernel.values if isinstance(v, Load)]
    found = [v.dtype.itemsize for v in loads if stride(v.index, kernel.outer[-1]) == 1]
    return max(found, default=4)


def _line(kernel: Kernel) -> int:
    """How many neighbouring columns a line of the cache holds."""
    size = static(kernel.outer[-1].size)
    line = max(1, LINE // _width(kernel))
    return line if size is None else min(line, _power_of_two(size))


def _stores_rows(kernel: Kernel) -> bool:
    """Whether something is stored of every element."""
    return any(isinstance(s, Store) and s.level == "inner" for s in kernel.body)


def _streams(kernel: Kernel) -> int:
    """How many tensors are read strip by strip, if that can be done ahead; else 0.

    Ahead is for what is at known places, a multiple of 16 bytes from one row to the next:
    loads of fewer than 4 bytes cannot go to shared memory by themselves.
    """
    inner = {a.symbol for a in kernel.inner}
    column = kernel.outer[-1]
    found = set()
    for value in kernel.values:
        if not isinstance(value, Load) or not symbols_of(value) & inner:
            continue
        depends = value.mask is not None and any(
            isinstance(v, Load) for v in walk([value.mask])
        )
        if value.indirect or depends:
            return 0
        along = stride(value.index, column)
        if along == 0:
            continue
        unit = max(1, VECTOR // value.dtype.itemsize)
        size = static(column.size)
        begins = value.index.xreplace({column.symbol: sympy.Integer(0)})
        whole = len(kernel.outer) == 1 or (size is not None and size % unit == 0)
        if along != 1 or not whole or not _divisible(begins, unit):
            return 0
        found.add((value.buffer, value.index))
    return len(found)


def reads_of_rows(kernel: Kernel) -> bool:
    """Whether what has one value a row differs between the other outer axes (parts, batches)."""
    *rest, column = (a.symbol for a in kernel.outer)
    inner = {a.symbol for a in kernel.inner}
    symbols = (v.index.free_symbols for v in kernel.values if isinstance(v, Load))
    return any(
        column not in s and inner & s and not s.isdisjoint(rest) for s in symbols
    )


def _divisible(expr: sympy.Expr, unit: int) -> bool:
    """Whether an expression is certainly a multiple of a number."""
    return all(
        term.as_coeff_Mul()[0] % unit == 0
        for term in sympy.Add.make_args(sympy.expand(expr))
    )
