"""Results of a GPU kernel that lie side by side and come from two places, computed in pairs.

Before (`stack([a, b], -1)`, or half of what `pixel_shuffle` does):

    y[i] = x[i // 2 + 64 * (i % 2)]                                 i < 128

After:

    y[2*i] = x[i]                                                   i < 64
    y[2*i + 1] = x[i + 64]

A thread then loads 16 bytes of each place at once, where it loaded each element by itself, and
the text of a kernel puts the pairs together again (`tl.interleave`) before they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import sympy
from torch.utils._sympy.functions import Mod

from .loops import Axis, Expr, Kernel, Load, Store, walk
from .pieces import MAX_VALUES, asked_about
from .unrolled import apart

LEAST = 64
"""Pairs of a row: whole vectors for some threads."""


def interleaved(kernel: Kernel) -> Kernel:
    """Returns an equal kernel that computes pairs of results, or the kernel itself."""
    stores = [s for s in kernel.body if isinstance(s, Store)]
    if kernel.inner or not kernel.outer or len(stores) < len(kernel.body):
        return kernel
    axis = kernel.outer[-1]
    parts = _parts(kernel.outer, axis, stores)
    if not parts or 2 * len(kernel.values) > MAX_VALUES:
        return kernel
    made = apart(kernel, axis, parts)
    first, second = made.body[: len(stores)], made.body[len(stores) :]
    pairs = [s for pair in zip(first, second, strict=True) for s in pair]
    made = replace(made, body=tuple(pairs))
    return made if _reads_rows(made) else kernel


def is_pair(first: Store, second: Store) -> bool:
    """Whether the second store writes beside each element of the first."""
    gap = sympy.expand(sympy.sympify(second.index) - sympy.sympify(first.index))
    return (
        first.buffer == second.buffer
        and not first.adds
        and not second.adds
        and first.value.dtype is second.value.dtype
        and gap == 1
    )


def _parts(outer: Sequence[Axis], axis: Axis, stores: Sequence[Store]) -> list[Expr]:
    """What stands for the axis in the first and the second result of a pair."""
    i, read = (
        axis.symbol,
        {v.buffer for v in walk(s.value for s in stores) if isinstance(v, Load)},
    )
    rest = [sympy.sympify(s.index) - i for s in stores]
    if any(s.adds or s.buffer in read for s in stores):
        return []
    if any(i in sympy.expand(index).free_symbols for index in rest):
        return []  # what follows one another does not lie side by side
    if axis.size == 2:
        before = outer[-2] if len(outer) > 1 else None
        beside = before is not None and all(
            sympy.expand(index).coeff(before.symbol, 1) == 2 for index in rest
        )
        if beside and before is not None and _is_long(before.size):
            return [sympy.Integer(0), sympy.Integer(1)] if _asks(stores, i) else []
        return []
    if _is_long(axis.size / 2) and any(_remainders(stores, i)):
        return [2 * i, 2 * i + 1]
    return []


def _reads_rows(kernel: Kernel) -> bool:
    """Whether all that is read along the last axis lies side by side."""
    column = kernel.outer[-1].symbol
    for value in kernel.values:
        if isinstance(value, Load):
            if value.indirect or value.mask is not None:
                return False
            index = sympy.expand(value.index)
            step = index.coeff(column, 1)
            if step not in (0, 1) or column in (index - step * column).free_symbols:
                return False
    return True


def _is_long(pairs: Expr) -> bool:
    return bool(pairs.is_Integer) and int(pairs) >= LEAST


def _asks(stores: Sequence[Store], symbol: sympy.Symbol) -> bool:
    """Whether a condition or a place to read from depends on an axis."""
    values = list(walk(s.value for s in stores))
    places = [v.index for v in values if isinstance(v, Load)]
    return any(
        symbol in sympy.sympify(e).free_symbols for e in (*asked_about(values), *places)
    )


def _remainders(stores: Sequence[Store], symbol: sympy.Symbol) -> Iterator[bool]:
    """Whether conditions and places to read from ask if the axis is odd."""
    values = list(walk(s.value for s in stores))
    places = [sympy.sympify(v.index) for v in values if isinstance(v, Load)]
    for expression in (*asked_about(values), *places):
        for part in expression.atoms(Mod):
            whole, divisor = part.args
            yield divisor == 2 and whole.coeff(symbol, 1) == 1
