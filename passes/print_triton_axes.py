"""Axes of a kernel as a GPU walks through them: merged, ordered, and their strides.

Before:

    kernel add over i < 64, j < 1024:
        y[1024*i + j] = x[1024*i + j]

After:

    kernel add over j < 65536:
        y[j] = x[j]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod

from .indexing import Ranges, simplify, substitute, upper_bound
from .loops import (
    Axis,
    Expr,
    IndexValue,
    Kernel,
    Label,
    Load,
    Reduce,
    Store,
    Value,
    rebuild,
    symbols_of,
    walk,
)


def static(expr: Expr) -> int | None:
    """The value of a static size, or None."""
    expr = sympy.sympify(expr)
    return int(expr) if expr.is_Integer else None


def indices(kernel: Kernel) -> list[Expr]:
    """Every distinct index expression of loads, stores and index values."""
    found = [v.index for v in kernel.values if isinstance(v, Load | IndexValue)]
    found += [sympy.sympify(s.index) for s in kernel.body if isinstance(s, Store)]
    return list(dict.fromkeys(found))


def accesses(kernel: Kernel) -> list[tuple[Expr, int]]:
    """Index and element size of each distinct access of memory."""
    found = {
        (v.buffer, v.index): v.dtype.itemsize
        for v in kernel.values
        if isinstance(v, Load)
    }
    for s in kernel.body:
        if isinstance(s, Store):
            found[(s.buffer, sympy.sympify(s.index))] = s.buffer.dtype.itemsize
    return [(index, width) for (_, index), width in found.items()]


def map_indices(kernel: Kernel, table: Mapping[Expr, Expr]) -> Kernel:
    """Replaces whole index expressions, in values, stores and labels."""
    made: dict[Value, Value] = {}

    def visit(root: Value) -> Value:
        for value in walk([root]):
            if value in made:
                continue
            new = rebuild(value, tuple(made[o] for o in value.operands))
            if isinstance(new, Load):
                new = Load(new.buffer, table[new.index], new.mask, new.indirect)
            elif isinstance(new, IndexValue):
                new = IndexValue(table[new.index], new.dtype)
            made[value] = new
        return made[root]

    body = tuple(
        replace(s, value=visit(s.value))
        if isinstance(s, Reduce)
        else replace(s, value=visit(s.value), index=table[sympy.sympify(s.index)])
        for s in kernel.body
    )
    labels: dict[Value, Label] = {}
    for value, label in kernel.labels.items():
        labels[made.get(value, value)] = label
    return replace(kernel, body=body, labels=labels)


def merge_axes(kernel: Kernel) -> Kernel:
    """Drops axes of size 1, orders the rest, merges neighbours that are walked through as one."""
    ones = {a.symbol: sympy.Integer(0) for a in _axes(kernel) if a.size == 1}
    if ones:
        kernel = map_indices(kernel, {e: substitute(e, ones) for e in indices(kernel)})
    kernel = order_axes(
        replace(
            kernel,
            outer=tuple(a for a in kernel.outer if a.size != 1),
            inner=tuple(a for a in kernel.inner if a.size != 1) or kernel.inner[:1],
        )
    )
    for which in ("outer", "inner"):
        position = 0
        while position + 1 < len(axes := getattr(kernel, which)):
            merged = _merge_pair(kernel, axes[position], axes[position + 1])
            if merged is None:
                position += 1
                continue
            kernel, axis = merged
            new = (*axes[:position], axis, *axes[position + 2 :])
            kernel = (
                replace(kernel, outer=new)
                if which == "outer"
                else replace(kernel, inner=new)
            )
    return kernel


def order_axes(kernel: Kernel) -> Kernel:
    """Sorts axes so that the largest access walks through memory in order.

    The order of outer axes is free, and so is that of inner axes unless a position among
    them is asked for (argmax).
    """
    accesses = [(v.buffer, v.index) for v in kernel.values if isinstance(v, Load)]
    stores = [
        (s.buffer, sympy.sympify(s.index)) for s in kernel.body if isinstance(s, Store)
    ]
    # Pointwise kernels are arranged for what they write, reductions for what they read.
    accesses = accesses + stores if kernel.inner else stores + accesses

    def covered(access: tuple[Any, Expr]) -> float:
        index = access[1]
        used = [a for a in _axes(kernel) if stride(index, a) != 0]
        return math.prod(_guess(a.size) for a in used)

    accesses.sort(key=covered, reverse=True)
    keys = {
        axis.symbol: tuple(-_guess(stride(index, axis)) for _, index in accesses)
        for axis in _axes(kernel)
    }
    free = not any(
        isinstance(s, Reduce) and s.kind.startswith("arg") for s in kernel.body
    )
    return replace(
        kernel,
        outer=tuple(sorted(kernel.outer, key=lambda a: keys[a.symbol])),
        inner=tuple(sorted(kernel.inner, key=lambda a: keys[a.symbol]))
        if free
        else kernel.inner,
    )


def _guess(expr: Expr) -> float:
    """A number to compare sizes and strides by: symbols count as a thousand."""
    value = sympy.sympify(expr).xreplace(
        {s: sympy.Integer(1024) for s in expr.free_symbols}
    )
    return float(value) if value.is_number else 1.0


def _axes(kernel: Kernel) -> tuple[Axis, ...]:
    return (*kernel.outer, *kernel.inner)


def ranges_of(kernel: Kernel) -> dict[sympy.Symbol, Expr]:
    """Symbol of each axis -> its size."""
    return {a.symbol: a.size for a in _axes(kernel)}


def _merge_pair(kernel: Kernel, high: Axis, low: Axis) -> tuple[Kernel, Axis] | None:
    """Rewrites two axes as one if no index gets a division by that."""
    flat = Axis(low.symbol, sympy.expand(sympy.Mul(high.size, low.size)))
    marker = sympy.Dummy("flat", integer=True, nonnegative=True)
    ranges = {**ranges_of(kernel), marker: flat.size}
    apart = {high.symbol: FloorDiv(marker, low.size), low.symbol: Mod(marker, low.size)}
    table: dict[Expr, Expr] = {}
    for index in indices(kernel):
        new = simplify(index.xreplace(apart), ranges)
        if len(new.atoms(FloorDiv, Mod)) > len(index.atoms(FloorDiv, Mod)):
            return None
        table[index] = new.xreplace({marker: flat.symbol})
    return map_indices(kernel, table), flat


def stride(index: Expr, axis: Axis) -> Expr:
    """How far one step along the axis moves the index, at its beginning."""
    zero = dict.fromkeys(index.free_symbols - {axis.symbol}, sympy.Integer(0))
    for divided in index.atoms(FloorDiv, Mod):
        # Divisors are sizes, which are not 0.
        zero.update(dict.fromkeys(divided.args[1].free_symbols, sympy.Integer(1024)))
    along = substitute(index, zero)
    return sympy.expand(
        substitute(along, {axis.symbol: sympy.Integer(1)})
        - substitute(along, {axis.symbol: sympy.Integer(0)})
    )


def choosing(kernel: Kernel) -> dict[Expr, frozenset[sympy.Symbol]]:
    """Index of each access that depends on data -> the axes of what chooses it."""
    return {
        v.index: frozenset[sympy.Symbol]().union(
            *(symbols_of(place.value) for place in v.indirect)
        )
        for v in kernel.values
        if isinstance(v, Load) and v.indirect
    }


def share(
    index: Expr, axes: Sequence[Axis], chosen: Set[sympy.Symbol] = frozenset()
) -> float:
    """The share of all points at which an access has an element of its own.

    What a vector is read for, once a row, must not make the matrix be walked across; `chosen`
    are axes of what else chooses the element.
    """
    repeated = 1
    for axis in axes:
        if axis.symbol not in index.free_symbols | chosen:
            repeated *= static(axis.size) or 1024
    return 1 / max(repeated, 1)


def offset_bound(expr: Expr, ranges: Ranges) -> int | None:
    """An upper bound of an index whose sizes are all static, else None."""
    bound = upper_bound(sympy.expand(expr), ranges)
    return static(bound) if bound is not None else None
