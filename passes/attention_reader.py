"""Values of definitions at an index, with everything inlined down to what is in memory.

Before (definitions):

    k_t[i, j]   = k[j, i]                     view
    copy[i, j]  = k_t[i, j]                   map
    s[i, j]     = mul(copy[i, j], 2.0)        map

After, for `s` at (i, j), where `k` is contiguous with rows of 64:

    mul(k[64*j + i], 2.0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy

from .deep import Deep
from .definitions import MAP, VIEW, Definition
from .indexing import Index, expanded, simplify
from .indirect import places
from .loops import Const, Expr, Load, Value
from .points import memory


class Illegal(Exception):
    """Attention that may not, or should not, be streamed; the message says why."""


class SymbolicHead(Illegal):
    """Attention that could be streamed if the size of its heads were a plain number.

    Attributes:
        sizes: Those that are not, as PyTorch's symbolic ints.
    """

    def __init__(self, sizes: Sequence[Any]) -> None:
        super().__init__("the size of its heads is only known at run time")
        self.sizes = sizes


class DependsOnData(Illegal):
    """Memory would be read at a place that depends on data."""


class Reader:
    """Values at an index with everything inlined, down to what is in memory.

    Attributes:
        inline: Which computed definitions are inlined.
        needed: Which of them must be.
        sources: Load -> the definition that it reads and the index there.
        makers: Value -> the definition whose value it is.
    """

    def __init__(
        self,
        ranges: dict[sympy.Symbol, Expr],
        inline: Callable[[Definition], bool],
        needed: Callable[[Definition], bool] = lambda _: False,
    ) -> None:
        self.ranges, self.inline, self.needed = ranges, inline, needed
        self.sources: dict[Value, tuple[Definition, Index]] = {}
        self.makers: dict[Value, Definition] = {}
        self._value = Deep(self._read)

    def read(self, d: Definition, index: Index) -> Value:
        """The value of `d` at an index."""
        if d.kind != VIEW:
            index = tuple(simplify(i, self.ranges) for i in index)
        return self._value((d, index))

    def _read(self, key: tuple[Definition, Index]) -> Value:
        d, index = key
        if d.kind == VIEW:
            assert d.at is not None
            return d.at(self.read, index)
        if d.known is not None:
            return Const(d.known, d.dtype)
        if d.kind == MAP and (d.constant or self.inline(d)):
            assert d.at is not None
            try:
                value = d.at(self.read, index)
            except DependsOnData:
                # A gather is not done for each score, but once, into memory.
                if self.needed(d):
                    raise
            else:
                self.makers.setdefault(value, d)
                return value
        if len(d.stride) != len(d.size):
            raise Illegal(f"{d.name} is not strided")
        offset = sum(
            (i * s for i, s in zip(index, d.stride, strict=True)), start=0 * d.numel
        )
        if places(sympy.sympify(offset)):
            raise DependsOnData(f"{d.name} is read at a place that depends on data")
        load = Load(memory(d), simplify(sympy.sympify(offset), self.ranges))
        self.sources[load] = (d, index)
        return load


def evenly_spaced(value: Value, two: Index, axes: set[sympy.Symbol]) -> bool:
    """True for a load that is linear in two axes."""
    if not isinstance(value, Load) or value.mask is not None or value.indirect:
        return False
    rest = expanded(value.index)
    for axis in two:
        step = rest.coeff(axis, 1)
        rest = expanded(rest - step * axis)
        if rest.has(axis) or step.free_symbols & axes:
            return False
    return True
