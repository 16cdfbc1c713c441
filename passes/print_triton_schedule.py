"""Chooses how a loop nest runs on a GPU: which axes a program covers, in blocks of what size.

Axes that every access walks through as one are merged first, and each group of axes that a
program covers is flattened to a single symbol. The 2-D copy with a row vector

    kernel add over i < 64, j < 1024:
        y[1024*i + j] = add(x[1024*i + j], w[j])

becomes tiles of rows and columns, because `w` needs `j` alone; without `w` it would be flat:

    >>> import sympy, torch
    >>> from srcjit.passes.loops import *
    >>> i, j = (
    ...     Axis(symbol("i"), sympy.Integer(64)),
    ...     Axis(symbol("j"), sympy.Integer(1024)),
    ... )
    >>> def tensor(name, *size):
    ...     stride = (size[1], 1) if len(size) == 2 else (1,)
    ...     exprs = lambda t: tuple(map(sympy.Integer, t))
    ...     return Buffer(
    ...         name, torch.float32, torch.device("cuda"), exprs(size), exprs(stride)
    ...     )
    >>> at = 1024 * i.symbol + j.symbol
    >>> total = op(
    ...     "add", Load(tensor("x", 64, 1024), at), Load(tensor("w", 1024), j.symbol)
    ... )
    >>> kernel = Kernel("add", (i, j), (), (Store(tensor("y", 64, 1024), at, total),))
    >>> schedule(kernel)
    Schedule(groups=(Group(axes=(i,), block=1), Group(axes=(j,), block=1024)), looped=False, num_warps=8, lanes=0, stages=0, streams=False)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from .definitions import DEAR
from .loops import (
    Axis,
    Expr,
    Kernel,
    Load,
    Op,
    Reduce,
    Ref,
    Store,
    Value,
    symbols_of,
    walk,
)
from .online import Form, Raised, online_forms, online_levels
from .print_triton_axes import accesses, choosing, share, static, stride
from .print_triton_columns import (
    MULTIPROCESSORS,
    column_tile,
    reads_of_rows,
    rows_are_columns,
)

ELEMENTS_PER_THREAD = 8
"""Enough loads in flight to hide the latency of memory, few enough registers."""

PERSISTENT_LIMIT = 32768
"""The longest row that one program holds in registers (32 elements of 1024 threads)."""

STREAMED = 128 * 2**20
"""Bytes of a result of which no cache holds a good part until it is read (an H200 has 50 MB of L2)."""


@dataclass(frozen=True)
class Group:
    """Axes that are flattened to one dimension of a program's tile.

    Attributes:
        axes: Outermost first.
        block: Points that one program covers at a time (a power of two); 1 makes the
            position a scalar.
    """

    axes: tuple[Axis, ...]
    block: int

    @property
    def size(self) -> Expr:
        return sympy.Mul(*(a.size for a in self.axes))

    def __repr__(self) -> str:
        names = ", ".join(str(a.symbol) for a in self.axes)
        return f"Group(axes=({names},), block={self.block})"


@dataclass(frozen=True)
class Schedule:
    """How one kernel runs.

    Attributes:
        groups: The dimensions of the tile, slowest first. A reduction has two: its outer and
            its inner axes. A pointwise kernel has one (flat), two (tiles of rows and
            columns), or three, of which the first has block 1.
        looped: The program walks over the last group block by block (reductions only);
            otherwise that group's block covers all of it, or the grid does.
        num_warps: Warps of 32 threads per program.
        lanes: Parts of the row that keep a running maximum and sum of their own while the
            program walks (see `passes.online`); a divisor of the block.
        stages: Blocks that are on their way while the program walks; 0 or 1 asks for one
            when it is needed.
        streams: Every element is touched once, and there is more than the caches hold: they
            are told to keep none of it.
    """

    groups: tuple[Group, ...]
    looped: bool
    num_warps: int
    lanes: int = 0
    stages: int = 0
    streams: bool = False


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least `n`."""
    return 1 << max(0, n - 1).bit_length()


# --- choosing -------------------------------------------------------------------------------


def schedule(kernel: Kernel) -> Schedule:
    """Chooses the schedule of a kernel whose axes are merged."""
    return _reduction(kernel) if kernel.inner else _pointwise(kernel)


def _warps(elements: int, per_thread: int = ELEMENTS_PER_THREAD, limit: int = 8) -> int:
    return max(1, min(limit, elements // (32 * per_thread)))


def _pointwise(kernel: Kernel) -> Schedule:
    axes = kernel.outer
    found = accesses(kernel)
    chosen = choosing(kernel)
    unit = {
        axis: sum(
            width * share(index, axes, chosen.get(index, frozenset()))
            for index, width in found
            if stride(index, axis) == 1
        )
        for axis in axes
    }
    if len(axes) >= 2:
        # The column axis is the one along which most bytes lie side by side.
        column = max(reversed(axes), key=lambda a: unit[a])
        across = [
            a
            for a in axes
            if a is not column
            and any(stride(i, a) == 1 and stride(i, column) != 0 for i, _ in found)
        ]
        if across:
            row = max(across, key=lambda a: unit[a])
            plan = _transposing(axes, row, column)
            # A tile of a few elements is no gain over a flat walk, which fills its programs.
            return (
                plan
                if plan.groups[-1].block * plan.groups[-2].block >= 256
                else _flat(kernel)
            )
        width = static(column.size)
        block = _column_block(width)
        if width is None or -(-width // block) * block <= 1.25 * width:
            rest = tuple(a for a in axes if a is not column)
            rows = max(
                1, min(1024 // block, power_of_two(static(Group(rest, 1).size) or 1024))
            )
            return Schedule(
                (Group(rest, rows), Group((column,), block)),
                False,
                _warps(rows * block, _points_per_thread(kernel)),
            )
    return _flat(kernel)


def _column_block(width: int | None) -> int:
    """The widest block of up to 1024 columns that wastes least of a row."""
    if width is None:
        return 256
    waste = {b: -(-width // b) * b - width for b in (1024, 512, 256, 128, 64)}
    if width <= 1024:
        waste = {b: w for b, w in waste.items() if b <= power_of_two(max(64, width))}
    return min(waste, key=lambda b: (waste[b] > 0.125 * width, -b))


def _flat(kernel: Kernel) -> Schedule:
    group = Group(kernel.outer, 1)
    size = static(group.size)
    streams = _streams(kernel)
    per_thread = _points_per_thread(kernel)
    threads = 256 if streams and _widest(kernel) <= 2 and per_thread == 8 else 128
    block = threads * per_thread
    if size is not None:
        block = max(32, min(block, power_of_two(size)))
    plan = (replace(group, block=block),)
    return Schedule(plan, False, _warps(block, per_thread), streams=streams)


LONG = DEAR - frozenset("exp exp2 sigmoid div sqrt rsqrt".split())
"""Primitives that take dozens of instructions on a GPU."""


def _widest(kernel: Kernel) -> int:
    """Bytes of an element of the widest tensor that has one for each point."""
    every = {a.symbol for a in kernel.outer}
    full = (w for index, w in accesses(kernel) if every <= index.free_symbols)
    return max(full, default=4)


def _points_per_thread(kernel: Kernel) -> int:
    """Points of a pointwise kernel that one thread computes.

    A thread asks for 16 bytes at a time, so that is what it has of each tensor: less needs
    more requests, more keeps registers waiting. Measured on an H200, 64 Mi points of float32:
    four points take 0.988 to 0.998 of the time of eight, with one vector for all rows 0.991,
    but with two 1.026. Of narrower tensors four points will do if there are three or more
    (bfloat16: 0.955 to 0.998; two 1.009, one 1.26). What takes long to compute keeps a thread
    busy with more of them: the error function over bfloat16, 16 points 0.92 to 0.98 of eight,
    eight points of float32 0.995 of four.
    """
    wide = _widest(kernel) >= 4
    if any(isinstance(v, Op) and v.name in LONG for v in kernel.values):
        return ELEMENTS_PER_THREAD if wide else 2 * ELEMENTS_PER_THREAD
    every = {a.symbol for a in kernel.outer}
    column = {a.symbol for a in kernel.outer[-1:]}
    read = [(v.buffer, symbols_of(v)) for v in kernel.values if isinstance(v, Load)]
    whole = {buffer for buffer, used in read if every <= used}
    vectors = {buffer for buffer, used in read if column <= used} - whole
    few = len(vectors) < 2 if wide else len(whole) > 2
    return 4 if few else ELEMENTS_PER_THREAD


def _streams(kernel: Kernel) -> bool:
    """True if each element is touched at one point only, and results are large.

    Measured on an H200, bfloat16 128 Mi elements: 0.997 of the time, together with blocks of
    4 KiB. What is written over what was read is left alone: AdamW took 1.011 times as long.
    """
    if len(kernel.outer) != 1:
        return False
    (axis,) = kernel.outer
    read = {v.buffer.name for v in kernel.values if isinstance(v, Load)}
    written = {b.name: b for b in kernel.outputs}
    size = static(axis.size)
    if size is None or not read.isdisjoint(written):
        return False
    once = all(index == axis.symbol for index, _ in accesses(kernel))
    return once and all(size * b.dtype.itemsize >= STREAMED for b in written.values())


def _transposing(axes: tuple[Axis, ...], row: Axis, column: Axis) -> Schedule:
    def block(axis: Axis) -> int:
        return min(64, power_of_two(static(axis.size) or 64))

    rows, columns = block(row), block(column)
    groups: list[Group] = []
    rest = tuple(a for a in axes if a is not row and a is not column)
    if rest:
        groups.append(Group(rest, 1))
    groups += [Group((row,), rows), Group((column,), columns)]
    return Schedule(tuple(groups), False, _warps(rows * columns))


def _reduction(kernel: Kernel) -> Schedule:
    outer = Group(kernel.outer, 1)
    inner = Group(kernel.inner, 1)
    points, length = static(outer.size), static(inner.size)
    bound = power_of_two(points) if points is not None else 1 << 30
    if rows_are_columns(kernel):
        tile = column_tile(kernel, points, length, _sweeps(kernel))
        *rest, column = kernel.outer
        columns = [replace(outer, block=tile.columns)]
        width = static(column.size)
        if reads_of_rows(kernel) and width is not None:
            # A program whose columns are of one part or batch loads one vector for its rows.
            covered = -(-width // tile.columns) * tile.columns
            if covered <= 1.25 * width:
                strip = Group((column,), tile.columns)
                columns = [Group(tuple(rest), 1), strip]
        groups = (*columns, replace(inner, block=tile.rows))
        return Schedule(groups, tile.looped, tile.warps, stages=tile.stages)
    if length is None or (
        power_of_two(length) * max(1, _held_rows(kernel)) > PERSISTENT_LIMIT
        or _takes_more_than_rows(kernel, length)
    ):
        return _walk(kernel, outer, inner)
    steps = _steps(kernel, length)
    if steps is not None:
        return Schedule((outer, replace(inner, block=steps[0])), True, steps[1])
    block = power_of_two(length)
    rows = 1
    if block < 1024:
        # Short rows share a program, but not so that multiprocessors stand idle.
        spare = max(1, bound // (2 * MULTIPROCESSORS))
        rows = max(1, min(1024 // block, power_of_two(spare), bound))
    per_thread = _elements_per_thread(kernel, block * rows)
    return Schedule(
        (replace(outer, block=rows), replace(inner, block=block)),
        False,
        _warps(block * rows, per_thread, 32),
    )


def _sweeps(kernel: Kernel) -> int:
    """How often a kernel needs what it reduces over."""
    stores = any(isinstance(s, Store) and s.level == "inner" for s in kernel.body)
    levels = online_levels(kernel, walking_forms(kernel))
    return max(levels.values(), default=0) + stores


def _takes_more_than_rows(kernel: Kernel, length: int) -> bool:
    """Whether registers would not do for rows that need not be held at all.

    What is dear takes several for each element; a loop does it for a few elements at a time.
    """
    if max(reduction_levels(kernel).values()) > 1 or any(
        isinstance(s, Store) and s.level == "inner" for s in kernel.body
    ):
        return False
    dear = _dear_values(kernel)
    return dear > 0 and power_of_two(length) * (1 + dear) > PERSISTENT_LIMIT


def _dear_values(kernel: Kernel) -> int:
    """Values of each point that take many instructions."""
    inner = {a.symbol for a in kernel.inner}
    return sum(
        isinstance(v, Op) and v.name in DEAR and bool(symbols_of(v) & inner)
        for v in kernel.values
    )


def _steps(kernel: Kernel, length: int) -> tuple[int, int] | None:
    """Block and warps for rows that are sooner read again than held (measured on an H200).

    What the first sweep read is in the cache next to the multiprocessor. Few registers mean
    many rows at a time, some of which load while others store; but what is dear must not be
    computed twice.
    """
    inner = {a.symbol for a in kernel.inner}
    if not any(isinstance(s, Store) and s.level == "inner" for s in kernel.body):
        return None
    levels = reduction_levels(kernel)
    phases: dict[Value, set[int]] = {}
    for statement in kernel.body:
        phase = level_of(statement.value, levels)
        for v in walk([statement.value]):
            if isinstance(v, Op) and v.name in DEAR and symbols_of(v) & inner:
                phases.setdefault(v, set()).add(phase)
    if any(len(found) > 1 for found in phases.values()):
        return None
    sweeps = max(levels.values())
    narrow = min((width for _, width in accesses(kernel) if width > 1), default=4)
    if sweeps == 1 and 4096 <= length <= 16384:
        whole = power_of_two(length)
        block = min(whole // 2, whole // 4, key=lambda b: (-(-length // b) * b, -b))
        return block, 16 if whole >= 8192 else 8
    if sweeps == 2 and narrow <= 2 and 4096 < length < 16384:
        return power_of_two(length) // 2, 8
    if sweeps == 2 and narrow <= 2 and length >= 16384:
        return 4096, 16 if length <= 16384 else 32
    return None


def _elements_per_thread(kernel: Kernel, elements: int) -> int:
    """How many elements of rows that are held whole a thread has (measured on an H200).

    Threads wait for each other at every reduction: the fewer, the better, as long as enough
    bytes are on their way.
    """
    narrow = min((width for _, width in accesses(kernel) if width > 1), default=4)
    if narrow > 2:
        return ELEMENTS_PER_THREAD if elements <= 4096 else 16
    waits = max(reduction_levels(kernel).values())
    return 32 if waits > 1 or elements <= 4096 else 16


def _walk(kernel: Kernel, outer: Group, inner: Group) -> Schedule:
    """A program that walks over its row."""
    length = static(inner.size)
    forms = walking_forms(kernel)
    levels = online_levels(kernel, forms)
    passes = max(levels.values(), default=0) + any(
        isinstance(s, Store) and s.level == "inner" for s in kernel.body
    )
    if length is None:
        block, warps = 2048, 8
    elif passes == 1:
        dear = _dear_values(kernel)
        # The more registers an element takes, the fewer a thread has at a time.
        widest = 8192 if forms or dear == 0 else 4096 if dear < 3 else 2048
        block, warps = min(widest, power_of_two(length)), 8 if forms else 16
    else:
        # The row is read again: few rows at a time, so that they stay in the L2 cache.
        streams = len(levels) + len(_inner_loads(kernel))
        block = min(16384 if streams <= 3 else 8192, power_of_two(length))
        # What is dear takes many instructions, of which a compiler sees each element's.
        warps = 32 if forms and block == 16384 else 16
    lanes = min(block, 32 * warps) if forms else 0
    return Schedule((outer, replace(inner, block=block)), True, warps, lanes)


def lane_elements(kernel: Kernel, plan: Schedule) -> int:
    """How many elements of a lane lie side by side: those that a thread loads at once."""
    narrow = min((w for _, w in accesses(kernel)), default=4)
    return min(plan.groups[-1].block // plan.lanes, 16 // max(narrow, 2))


def walking_forms(kernel: Kernel) -> dict[str, Form]:
    """The sums that a program which walks gets in the sweep of what they are relative to.

    For squares of distances that is so where rows are columns. Other rows are held whole.
    """
    columns = rows_are_columns(kernel)
    found = online_forms(kernel, guarded=columns)
    return {n: f for n, f in found.items() if columns or isinstance(f, Raised)}


def _inner_loads(kernel: Kernel) -> set[Load]:
    inner = {a.symbol for a in kernel.inner}
    return {v for v in kernel.values if isinstance(v, Load) and symbols_of(v) & inner}


def _held_rows(kernel: Kernel) -> int:
    """Rows that a program holds while it waits for a reduction: those needed before and after."""
    levels = reduction_levels(kernel)
    phases: dict[Load, set[int]] = {}
    rows = _inner_loads(kernel)
    for statement in kernel.body:
        phase = level_of(statement.value, levels)
        for value in walk([statement.value]):
            if value in rows:
                assert isinstance(value, Load)
                phases.setdefault(value, set()).add(phase)
    return sum(len(found) > 1 for found in phases.values())


# --- phases of a reduction ------------------------------------------------------------------


def reduction_levels(kernel: Kernel) -> dict[str, int]:
    """Name of each reduction -> how many passes over the inner axes it needs, itself included."""
    levels: dict[str, int] = {}
    for statement in kernel.body:
        if isinstance(statement, Reduce):
            levels[statement.name] = 1 + level_of(statement.value, levels)
    return levels


def level_of(value: Value, levels: Mapping[str, int]) -> int:
    """The highest level of the reductions that a value uses."""
    return max((levels[v.name] for v in walk([value]) if isinstance(v, Ref)), default=0)


def uses(roots: list[Value]) -> dict[Value, int]:
    """How often each value is an operand (a root counts as one use)."""
    counts: dict[Value, int] = dict.fromkeys(roots, 0)
    for root in roots:
        counts[root] += 1
    for value in walk(roots):
        for operand in value.operands:
            counts[operand] = counts.get(operand, 0) + 1
    return counts


def is_half_cast(value: Value) -> bool:
    """Whether a value is a rounding to a 16-bit float."""
    return (
        isinstance(value, Op)
        and value.name == "cast"
        and value.dtype in (torch.bfloat16, torch.float16)
    )


def flatten_group(
    group: Group, name: str
) -> tuple[sympy.Symbol, dict[sympy.Symbol, Any]]:
    """The symbol of a flattened group, and each axis in terms of it."""
    if len(group.axes) == 1:
        return group.axes[0].symbol, {}
    flat = sympy.Symbol(name, integer=True, nonnegative=True)
    parts: dict[sympy.Symbol, Any] = {}
    step = sympy.Integer(1)
    for position, axis in reversed(list(enumerate(group.axes))):
        digit = flat if step == 1 else FloorDiv(flat, step)
        parts[axis.symbol] = digit if position == 0 else Mod(digit, axis.size)
        step = step * axis.size
    return flat, parts
