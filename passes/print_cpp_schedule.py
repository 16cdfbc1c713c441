"""Chooses how a kernel is cut into parallel and vector loops on a CPU.

- *points*: no reduction. The last axis is the vector loop; where another axis has the unit
  stride of some of the memory, both are cut into tiles so that each line is used while it is
  in the cache.
- *rows*: each outer point reduces over a contiguous row, in as many passes over the row as
  its reductions depend on one another. The row stays in the cache between passes.
- *split*: as rows, but there are too few rows to occupy the cores: each row is cut into a
  fixed number of parts whose results are combined in order.
- *columns*: the last outer axis is the contiguous one. A block of columns is reduced at once,
  one vector lane for each.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import sympy

from .loops import Axis, Expr, Kernel, Load, Op, Store
from .print_cpp_values import EXPENSIVE

PARTS = 64
"""Parts of a split row: enough for any machine's cores, few enough to combine quickly."""

_FEW = 16
"""Outer points that are too few to share among cores."""

_LONG_ROW = 32768
"""Elements from which a row is worth splitting."""

_MANY_ROWS = 4096
"""Rows of few columns from which they are worth splitting."""

_HALF = 8
"""Points that are too few for a vector."""

_LONG = 256
"""Points of a loop of many vectors."""

PARALLEL_WORK = 65536
"""Simple operations that take about as long as waking the other cores twice (30 us)."""


class Shape(enum.Enum):
    """The ways to print a kernel (see the module's docstring)."""

    POINTS = "points"
    ROWS = "rows"
    SPLIT = "split"
    COLUMNS = "columns"


@dataclass(frozen=True)
class Schedule:
    """How a kernel is printed.

    Attributes:
        shape: Which printer.
        outer: Outer axes in loop order.
        inner: Inner axes in loop order; the last one is the vector loop of `ROWS`.
        parallel: Condition under which cores share the work: True, False, or C++ text is
            made from this size by comparing it with `PARALLEL_WORK`.
        tile: For `POINTS`: the axis that is tiled together with the last one, if any.
        lanes: For `COLUMNS`: columns in a block.
        parts: For `COLUMNS`: the rows are cut into `PARTS` parts too.
    """

    shape: Shape
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    work: Expr
    tile: Axis | None = None
    lanes: int = 64
    parts: bool = False


def accesses(kernel: Kernel) -> list[tuple[Expr, int]]:
    """Index and element size of every load and store."""
    loads = [(v.index, v.dtype.itemsize) for v in kernel.values if isinstance(v, Load)]
    stores = [
        (s.index, s.buffer.dtype.itemsize) for s in kernel.body if isinstance(s, Store)
    ]
    return [(sympy.sympify(i), b) for i, b in loads + stores]


def stride_of(index: Expr, symbol: sympy.Symbol) -> Expr | None:
    """How far `index` moves when `symbol` grows by one; None if that is no constant."""
    if symbol not in index.free_symbols:
        return sympy.Integer(0)
    step = sympy.expand(index.subs(symbol, symbol + 1) - index)
    return None if symbol in step.free_symbols or step.has(sympy.Function) else step


def hint(size: Expr, default: int = 1024) -> int:
    """The size as a number; symbolic sizes are taken to be `default`."""
    size = sympy.sympify(size)
    return int(size) if size.is_Integer else default


def is_multiple(size: Expr, step: int) -> bool:
    """Whether a size is a number that `step` divides."""
    size = sympy.sympify(size)
    return bool(size.is_Integer) and int(size) % step == 0


def _unit(kernel: Kernel, axis: Axis) -> int:
    """Number of accesses that are contiguous along `axis`."""
    return sum(stride_of(i, axis.symbol) == 1 for i, _ in accesses(kernel))


def _strided(kernel: Kernel, axis: Axis, other: Axis | None = None) -> int:
    """Number of accesses that jump along `axis`, but for those that jump further along `other`."""
    steps = [
        (stride_of(i, axis.symbol), other and stride_of(i, other.symbol))
        for i, _ in accesses(kernel)
    ]
    return sum(step not in (0, 1) and not _farther(far, step) for step, far in steps)


def _farther(a: Expr | None, b: Expr | None) -> bool:
    """Whether both are known numbers, and `a` the larger one."""
    if a is None or b is None or not (a.is_Integer and b.is_Integer):
        return False
    return abs(int(a)) > abs(int(b))


def _work(kernel: Kernel) -> Expr:
    price = 1
    for value in kernel.values:
        if isinstance(value, Op):
            price += 8 if value.name in EXPENSIVE else 1
        elif isinstance(value, Load):
            price += 1
    points = math.prod(
        (sympy.sympify(a.size) for a in (*kernel.outer, *kernel.inner)),
        start=sympy.Integer(1),
    )
    return price * points


def _dear(kernel: Kernel) -> bool:
    return any(isinstance(v, Op) and v.name in EXPENSIVE for v in kernel.values)


def schedule(kernel: Kernel) -> Schedule:
    """Chooses the schedule of a kernel from its sizes and strides alone."""
    work = _work(kernel)
    if not kernel.inner:
        return _points(kernel, work)
    outer, inner = kernel.outer, kernel.inner
    rows = math.prod(hint(a.size) for a in outer)
    if outer:
        # Of lines that are jumped over, the nearer ones are in the cache; of short rows, all are.
        far = outer[-1] if hint(inner[-1].size) >= _FEW else None
        along_inner = _unit(kernel, inner[-1]) - _strided(kernel, inner[-1], far)
        along_outer = _unit(kernel, outer[-1]) - _strided(kernel, outer[-1])
        if along_outer > along_inner and hint(outer[-1].size) >= 8:
            rest = math.prod(hint(a.size) for a in inner)
            if len(outer) == 1 and hint(outer[0].size) <= 128 and rest >= _MANY_ROWS:
                lanes = (hint(outer[0].size) + 15) // 16 * 16
                parts = hint(inner[0].size) >= PARTS
                return Schedule(
                    Shape.COLUMNS, outer, inner, work, lanes=lanes, parts=parts
                )
            columns, blocks = hint(outer[-1].size), rows // max(hint(outer[-1].size), 1)
            lanes = 16
            while (
                lanes < 256 and lanes < columns and blocks * columns // (lanes * 2) >= 8
            ):
                lanes *= 2
            return Schedule(Shape.COLUMNS, outer, inner, work, lanes=lanes)
    if rows < _FEW and math.prod(hint(a.size) for a in inner) >= _LONG_ROW:
        return Schedule(Shape.SPLIT, outer, inner, work)
    return Schedule(Shape.ROWS, outer, inner, work)


def _points(kernel: Kernel, work: Expr) -> Schedule:
    outer = kernel.outer
    if len(outer) < 2:
        return Schedule(Shape.POINTS, outer, (), work)
    # The vector axis is the one along which most of the memory is contiguous.
    scores = {a: _unit(kernel, a) - _strided(kernel, a) for a in outer}
    best = max(outer, key=lambda a: (scores[a], outer.index(a)))
    longest = max(outer, key=lambda a: hint(a.size))
    if hint(best.size) < _HALF and hint(longest.size) >= _LONG and _dear(kernel):
        # A vector of functions and a store of each of its numbers: 3 x as fast as a part of one.
        rest = (*(a for a in outer if a is not longest), longest)
        return Schedule(Shape.POINTS, rest, (), work)
    order = (*(a for a in outer if a is not best), best)
    crossing = [
        a
        for a in order[:-1]
        if any(
            stride_of(i, a.symbol) == 1 and stride_of(i, best.symbol) not in (0, 1)
            for i, _ in accesses(kernel)
        )
    ]
    if crossing and hint(crossing[-1].size) >= 8 and hint(best.size) >= 8:
        tile = crossing[-1]
        order = (*(a for a in order[:-1] if a is not tile), tile, best)
        return Schedule(Shape.POINTS, order, (), work, tile=tile)
    return Schedule(Shape.POINTS, order, (), work)
