"""Indices that are computed at run time: symbols that stand for values.

Before (what `torch.gather(x, 1, where)` reads, in a kernel over `i`, `k`):

    x at (i, the value of where[4*i + k], which must be below 50257)

After:

    x[50257*i + ⟨where[4*i + k]⟩]       with  ⟨where[4*i + k]⟩ = where[4*i + k] < 50257

A symbol can go through every index map that lies between the reader and memory (views, `cat`,
an inlined softmax). Where it ends up in a `Load`, `places` finds what it stands for; where it
ends up in a number (the mask of a `cat`), `arithmetic` computes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod

from .loops import Expr, IndexValue, Place, Value, cast, op, text_of

CHECKED = {"cuda"}
"""Kinds of devices that check indices when they run, in eager mode, too."""


class RunTimeIndex(sympy.Symbol):  # type: ignore[misc]
    """A symbol that stands for an int64 value in `0 .. size - 1`; equal if both are."""

    __slots__ = ("size", "value")
    value: Value
    size: Expr

    def __new__(cls, value: Value, size: Expr) -> RunTimeIndex:
        """Makes the symbol; its name is the value's text."""
        made: RunTimeIndex = sympy.Symbol.__xnew__(
            cls, f"<{text_of(value)}>", integer=True, nonnegative=True
        )
        made.value, made.size = value, size
        return made

    def _hashable_content(self) -> tuple[Any, ...]:
        return (*super()._hashable_content(), self.value, self.size)

    def __getnewargs_ex__(self) -> Any:
        raise TypeError("a value of a kernel cannot be pickled")


def places(index: Expr) -> tuple[Place, ...]:
    """What the symbols of an index stand for, in a fixed order."""
    found = [s for s in index.free_symbols if isinstance(s, RunTimeIndex)]
    return tuple(Place(s, s.value, s.size) for s in sorted(found, key=str))


def arithmetic(value: IndexValue) -> Value:
    """An index as a number: unchanged, unless parts of it are computed at run time."""
    found = places(value.index)
    if not found:
        return value
    table = {place.symbol: place.value for place in found}
    made = _computed(value.index, table)
    return cast(made, value.dtype)


def _computed(expr: Expr, table: Mapping[sympy.Symbol, Value]) -> Value:
    if expr in table:
        return table[expr]
    if not expr.free_symbols & set(table):
        return IndexValue(expr)
    parts = [_computed(part, table) for part in expr.args]
    if isinstance(expr, sympy.Add):
        return reduce(lambda a, b: op("add", a, b), parts)
    if isinstance(expr, sympy.Mul):
        return reduce(lambda a, b: op("mul", a, b), parts)
    if isinstance(expr, FloorDiv):
        return op("floordiv", *parts)
    if isinstance(expr, Mod):
        return op("mod", *parts)
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and expr.exp > 0:
        return reduce(lambda a, b: op("mul", a, b), [parts[0]] * int(expr.exp))
    raise TypeError(f"{expr} as a number")
