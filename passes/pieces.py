"""Pieces: parts of an axis on which what `cat`, `pad` and `roll` ask has one answer.

Before (`cat([a, b])` of 5 and 4 elements; a `Load` with a mask is 0 where that is false):

    y[i] = where(i < 5, a[i if i < 5], b[i - 5 if i >= 5])          i < 9

After:

    y[i] = a[i]                                                     i < 5
    y[i] = b[i - 5]                                                 5 <= i < 9

An index that wraps around is one of two sums: `x[(i + 8) % 9]` is `x[i + 8]` at 0 and `x[i - 1]`
behind it. What is asked about several axes (`9 * i + j < 30`) has one answer on most of the
first of them, and parts of the rest are cut again where it has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from .indexing import ZERO, Ranges, lower_bound_is_zero, simplify, upper_bound
from .loops import (
    Axis,
    Const,
    Expr,
    IndexValue,
    Load,
    Op,
    Store,
    Value,
    rebuild,
    walk,
)

MAX_CUTS = 5
"""Places at which one axis is cut."""

MAX_VALUES = 600
"""Values that the pieces of one axis compute together: text that is compiled."""

SHORT = 16
"""Points that are no vector: neighbouring pieces that are shorter stay one."""

_LEVELS = {"lt": (0,), "ge": (0,), "le": (1,), "gt": (1,), "eq": (0, 1), "ne": (0, 1)}
"""Where the answer changes, as values of the difference of the operands."""


@dataclass(frozen=True)
class Piece:
    """The points of an axis from `first` to `last`, and the statements there.

    Attributes:
        same: Value of the whole -> its value in the piece.
    """

    first: Expr
    last: Expr
    stores: tuple[Store, ...]
    same: Mapping[Value, Value]


def pieces(
    stores: Sequence[Store],
    axis: Axis,
    ranges: Ranges,
    shortest: int = 1,
    origins: Ranges = MappingProxyType({}),
) -> tuple[Piece, ...]:
    """Cuts an axis where what the stores ask is decided; one piece where nothing is gained.

    Args:
        stores: Statements of a kernel without reductions.
        axis: What is cut.
        ranges: How many points each axis has.
        shortest: Neighbours of fewer points than this are left together.
        origins: The first points of axes that do not begin at 0.
    """
    shift = {s: s + first for s, first in origins.items()}
    local = rewritten(stores, shift, ranges)[0] if shift else stores
    values = list(walk(s.value for s in local))
    cuts = _merged([ZERO, *_cuts(values, local, axis, ranges), axis.size], shortest)
    if len(cuts) <= 2 or (len(cuts) - 1) * len(values) > MAX_VALUES:
        return (Piece(ZERO, axis.size, tuple(stores), {}),)
    found = []
    for first, last in pairwise(cuts):
        table = {**shift, axis.symbol: axis.symbol + first}
        back = {s: 2 * s - moved for s, moved in table.items()}
        within = {**ranges, axis.symbol: sympy.expand(last - first)}
        found.append(Piece(first, last, *rewritten(stores, table, within, back)))
    return tuple(found)


def _merged(cuts: list[Expr], shortest: int) -> list[Expr]:
    kept = cuts[:1]
    for cut, after in pairwise(cuts[1:]):
        if not (_short(kept[-1], cut, shortest) and _short(cut, after, shortest)):
            kept.append(cut)
    return [*kept, cuts[-1]]


def _short(first: Expr, last: Expr, shortest: int) -> bool:
    extent = last - first
    return bool(extent.is_Integer) and int(extent) < shortest


# ── where to cut ──────────────────────────────────────────────────────────────────────────


def _cuts(
    values: Iterable[Value], stores: Sequence[Store], axis: Axis, ranges: Ranges
) -> list[Expr]:
    """Points of an axis, ascending, at which an answer may change or a sum may wrap."""
    found: dict[Expr, None] = {}
    for expr, level in _questions(values, stores, axis, ranges):
        for cut in _crossing(expr, level, axis, ranges):
            found[cut] = None
    ordered: list[Expr] = []
    for cut in found:
        if cut.is_Integer and axis.size.is_Integer and not 0 < cut < axis.size:
            continue
        if not (_at_most(ZERO, cut) and _at_most(cut, axis.size)):
            return []
        place = sum(_at_most(known, cut) for known in ordered)
        if not all(_at_most(cut, later) for later in ordered[place:]):
            return []
        ordered.insert(place, cut)
    return ordered if len(ordered) <= MAX_CUTS else []


def _at_most(first: Expr, second: Expr) -> bool:
    """True if `first <= second` is certain."""
    return bool(sympy.expand(second - first).is_nonnegative)


def _questions(
    values: Iterable[Value], stores: Sequence[Store], axis: Axis, ranges: Ranges
) -> Iterator[tuple[Expr, Expr]]:
    """Expressions of an axis, and a value whose reaching makes a difference."""
    indices: dict[Expr, None] = {sympy.sympify(s.index): None for s in stores}
    for value in values:
        if isinstance(value, Op) and value.name in _LEVELS:
            gap = difference(value)
            if gap is not None and axis.symbol in gap.free_symbols:
                for level in _LEVELS[value.name]:
                    yield gap, sympy.Integer(level)
                indices[gap] = None
        elif isinstance(value, Load | IndexValue):
            indices[value.index] = None
    for index in indices:
        for part in index.atoms(FloorDiv, Mod):
            whole, divisor = part.args
            if axis.symbol not in whole.free_symbols or not divisor.is_Integer:
                continue
            bounds = _bounds(whole, ranges)
            if bounds is None:
                continue
            low, high = (b // int(divisor) for b in bounds)
            if high - low <= MAX_CUTS:
                for step in range(low + 1, high + 1):
                    yield whole, step * divisor


def asked_about(values: Iterable[Value]) -> Iterator[Expr]:
    """Differences of indices that are compared."""
    for value in values:
        if isinstance(value, Op) and value.name in _LEVELS:
            gap = difference(value)
            if gap is not None:
                yield gap


def difference(question: Op) -> Expr | None:
    """The difference of what a comparison compares, if both are indices."""
    left, right = (_as_index(a) for a in question.args)
    if left is None or right is None:
        return None
    return sympy.expand(left - right)


def _as_index(value: Value) -> Expr | None:
    """An integer as an index expression, if it is one."""
    if isinstance(value, IndexValue) and not value.dtype.is_floating_point:
        return value.index
    if isinstance(value, Const) and isinstance(value.value, int):
        return sympy.Integer(value.value)
    if not isinstance(value, Op) or value.dtype is not torch.int64:
        return None
    if len(value.args) != 2:
        return None
    left, right = (_as_index(a) for a in value.args)
    if left is None or right is None:
        return None
    match value.name:
        case "add":
            return left + right
        case "sub":
            return left - right
        case "mul" if left.is_Integer or right.is_Integer:
            return left * right
        case "mod" if right.is_Integer and right > 0 and lower_bound_is_zero(left):
            return Mod(left, right)
    return None


def _crossing(expr: Expr, level: Expr, axis: Axis, ranges: Ranges) -> tuple[Expr, ...]:
    """The first points of an axis at which `expr` may be at `level` and at which it must."""
    step = sympy.expand(expr).coeff(axis.symbol, 1)
    rest = sympy.expand(expr - step * axis.symbol)
    if not step.is_Integer or step == 0 or axis.symbol in rest.free_symbols:
        return ()
    bounds = _bounds(rest, ranges)
    if bounds is not None and level.is_Integer:
        gaps = [int(level) - b for b in bounds]
        if step > 0:
            return tuple(sympy.Integer(-(-g // int(step))) for g in reversed(gaps))
        return tuple(sympy.Integer(g // int(step) + 1) for g in gaps)
    if rest.free_symbols & ranges.keys() or abs(step) != 1:
        return ()
    return (level - rest,) if step == 1 else (rest - level + 1,)


def _bounds(expr: Expr, ranges: Ranges) -> tuple[int, int] | None:
    """The least and the largest value that an expression can have, if they are numbers."""
    low = high = 0
    for term in sympy.Add.make_args(expr):
        coefficient, rest = term.as_coeff_Mul()
        top = upper_bound(rest, ranges)
        if top is None or not top.is_Integer or not coefficient.is_Integer:
            return None
        if not _non_negative(rest):
            return None
        extent = int(coefficient) * int(top)
        if rest == 1:
            low, high = low + extent, high + extent
        elif extent > 0:
            high += extent
        else:
            low += extent
    return low, high


# ── what stands in a piece ────────────────────────────────────────────────────────────────


def rewritten(
    stores: Sequence[Store],
    table: Mapping[sympy.Symbol, Expr],
    within: Ranges,
    back: Mapping[sympy.Symbol, Expr] = MappingProxyType({}),
) -> tuple[tuple[Store, ...], dict[Value, Value]]:
    """Writes other axes into statements.

    Args:
        stores: The statements.
        table: What stands for the old axes, in terms of the new ones.
        within: The ranges of the new axes.
        back: What stands for the new axes in the result.

    Returns:
        The statements, without the conditions that are certain, and what became of each value.
    """

    def change(index: Expr) -> Expr:
        if not index.free_symbols & table.keys():
            return index
        moved = simplify(sympy.expand(index.xreplace(table)), within)
        return sympy.expand(moved.xreplace(back)) if back else moved

    same: dict[Value, Value] = {}
    for value in walk(s.value for s in stores):
        operands = tuple(same[o] for o in value.operands)
        answer = _answer(value, table, within) if isinstance(value, Op) else None
        same[value] = answer or _moved(value, operands, change)
    moved = tuple(
        replace(s, index=change(sympy.sympify(s.index)), value=same[s.value])
        for s in stores
    )
    return moved, same


def _moved(
    value: Value, operands: tuple[Value, ...], change: Callable[[Expr], Expr]
) -> Value:
    """The value over other operands, its index changed, without what constants decide."""
    match value:
        case IndexValue():
            return IndexValue(change(value.index), value.dtype)
        case Load():
            load = Load(value.buffer, change(value.index), value.mask, value.indirect)
            if value.mask is not None and isinstance(operands[0], Const):
                if not operands[0].value:
                    return Const(0, value.dtype)
                load = Load(load.buffer, load.index, None, load.indirect)
                operands = operands[1:]
            return rebuild(load, operands)
        case Op():
            return _folded(Op(value.name, operands, value.dtype))
    return value


def _folded(value: Op) -> Value:
    """A choice or a connective of conditions of which one is known."""
    known = value.args[0]
    if value.name == "where" and isinstance(known, Const):
        return value.args[1] if known.value else value.args[2]
    if value.dtype is not torch.bool:
        return value
    if value.name == "bitwise_not" and isinstance(known, Const):
        return Const(not known.value, torch.bool)
    if value.name in ("bitwise_and", "bitwise_or"):
        for one, other in (value.args, value.args[::-1]):
            if isinstance(one, Const) and one.dtype is torch.bool:
                decides = one.value == (value.name == "bitwise_or")
                return one if decides else other
    return value


def _answer(
    question: Op, table: Mapping[sympy.Symbol, Expr], within: Ranges
) -> Const | None:
    """The answer to a comparison of indices, if it is certain."""
    gap = difference(question) if question.name in _LEVELS else None
    if gap is None:
        return None
    gap = simplify(sympy.expand(gap.xreplace(table)), within)
    reached = [_reaches(gap, level, within) for level in _LEVELS[question.name]]
    if question.name in ("eq", "ne"):
        if reached == [True, False]:
            return Const(question.name == "eq", torch.bool)
        if reached[0] is False or reached[1] is True:
            return Const(question.name == "ne", torch.bool)
        return None
    if reached[0] is None:
        return None
    return Const(reached[0] == (question.name in ("ge", "gt")), torch.bool)


def _reaches(gap: Expr, level: int, ranges: Ranges) -> bool | None:
    """Whether `gap >= level` at all points; None if it is neither everywhere nor nowhere."""
    if _least(gap - level, ranges).is_nonnegative:
        return True
    return False if _least(level - 1 - gap, ranges).is_nonnegative else None


def _least(expr: Expr, ranges: Ranges) -> Expr:
    """A lower bound in terms of sizes; not a number if none is found."""
    total: Expr = ZERO
    for term in sympy.Add.make_args(sympy.expand(expr)):
        if not term.free_symbols & ranges.keys():
            total = total + term
            continue
        coefficient, rest = term.as_coeff_Mul()
        if coefficient.is_negative:
            top = upper_bound(rest, ranges)
            total = sympy.nan if top is None else total + coefficient * top
        if not _non_negative(rest):
            return sympy.nan
    return sympy.expand(total)


def _non_negative(expr: Expr) -> bool:
    """False for a quotient of what may be negative, as it is under a mask."""
    return all(
        lower_bound_is_zero(sympy.expand(part.args[0])) for part in expr.atoms(FloorDiv)
    )
