"""Axes of two to four points that conditions ask about, unrolled: what `stack` puts side by side.

Before (`stack([a + b, a - b], -1)`):

    y[2*i + m] = where(m < 1, add(a[i], b[i]), sub(a[i], b[i]))     i < 512, m < 2

After:

    y[2*i] = add(a[i], b[i])                                        i < 512
    y[2*i + 1] = sub(a[i], b[i])

So all is known about each statement, memory is read once for all of them, and a vector
of results is shuffled rather than chosen from. Halves of an axis that read the same memory
(`cat([a + b, a - b])`) are such an axis, and so is the remainder that conditions ask about
(`stack(…).flatten()`, where `m` is `i % 2`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import sympy
from torch.utils._sympy.functions import Mod

from .indexing import product
from .loops import Axis, Expr, Kernel, Label, Load, Op, Reduce, Store, Value, walk
from .pieces import MAX_VALUES, asked_about, pieces, rewritten

MOST = 4
"""Points of an axis that are statements of their own."""

LONG = 16
"""Points that are left at least: a vector."""


def unrolled(kernel: Kernel) -> Kernel:
    """Returns an equal kernel without axes of a few points that conditions ask about."""
    changed = True
    while changed:
        changed = False
        for axis in kernel.outer:
            parts = _parts(kernel, axis)
            if parts and len(parts) * len(kernel.values) <= MAX_VALUES:
                kernel, changed = apart(kernel, axis, parts), True
                break
    return kernel


def _parts(kernel: Kernel, axis: Axis) -> list[Expr]:
    """What stands for the axis in each statement that becomes of one; empty: leave it."""
    stores = [s for s in kernel.body if isinstance(s, Store)]
    points = product([a.size for a in kernel.outer])
    if kernel.inner or not axis.size.is_Integer or len(stores) < len(kernel.body):
        return []
    size, i = int(axis.size), axis.symbol
    ranges = {a.symbol: a.size for a in kernel.outer}

    def long_enough(count: int) -> bool:
        left = points / count
        return 1 < count <= MOST and not (left.is_Integer and left < LONG)

    if long_enough(size) and len(pieces(stores, axis, ranges)) > 1:
        return [sympy.Integer(n) for n in range(size)]
    for divisor in _remainders(stores, axis):
        if size % divisor == 0 and long_enough(divisor):
            return [divisor * i + n for n in range(divisor)]
    found = pieces(stores, axis, ranges)
    extent = size // len(found)
    equal = all(p.first == n * extent for n, p in enumerate(found))
    if equal and size == extent * len(found) and long_enough(len(found)):
        parts = [i + n * extent for n in range(len(found))]
        if _shared(stores, axis, parts, extent, ranges):
            return parts
    return []


def _remainders(stores: Sequence[Store], axis: Axis) -> Iterator[int]:
    """Divisors of which conditions ask for the remainder of the axis."""
    for gap in asked_about(walk(s.value for s in stores)):
        for part in gap.atoms(Mod):
            whole, divisor = part.args
            if divisor.is_Integer and whole.coeff(axis.symbol, 1) == 1:
                yield int(divisor)


def _shared(
    stores: Sequence[Store],
    axis: Axis,
    parts: Sequence[Expr],
    extent: int,
    ranges: dict[sympy.Symbol, Expr],
) -> bool:
    """True if the statements have work or memory in common."""
    within = {**ranges, axis.symbol: sympy.Integer(extent)}
    seen: set[Value] = set()
    for part in parts:
        moved, _ = rewritten(stores, {axis.symbol: part}, within)
        own = {v for v in walk(s.value for s in moved) if _works(v)}
        if own & seen:
            return True
        seen |= own
    return False


def _works(value: Value) -> bool:
    """False for numbers, indices, and conversions."""
    return isinstance(value, Load) or (isinstance(value, Op) and value.name != "cast")


def apart(kernel: Kernel, axis: Axis, parts: Sequence[Expr]) -> Kernel:
    """Returns the kernel with a copy of each statement for each of the parts of an axis."""
    stores = [s for s in kernel.body if isinstance(s, Store)]
    left = axis.size / len(parts)
    outer = tuple(
        a if a is not axis else replace(a, size=left)
        for a in kernel.outer
        if a is not axis or left != 1
    )
    within = {a.symbol: a.size for a in outer}
    body: list[Store | Reduce] = []
    labels: dict[Value, Label] = dict(kernel.labels)
    for part in parts:
        moved, same = rewritten(stores, {axis.symbol: part}, within)
        body.extend(moved)
        for whole, value in same.items():
            if whole in kernel.labels and isinstance(value, Load | Op):
                labels.setdefault(value, kernel.labels[whole])
    return replace(kernel, outer=outer, body=tuple(body), labels=labels)
