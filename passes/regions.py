"""Regions: which part of a tensor a view or a scatter stands for.

`y[:, 10:40][:, ::2]` of `float32[256, 256]`:

    Region((Range(0, 1, 256), Range(10, 2, 15)), (0, 1))
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from .definitions import Definition
from .indexing import ONE, ZERO
from .loops import Expr


@dataclass(frozen=True)
class Range:
    """`size` indices of a dimension, from `first` on, `step` apart."""

    first: Expr
    step: Expr
    size: Expr

    def meets(self, other: Range) -> bool:
        """False if they are sure to have no index in common."""
        numbers = (
            self.first,
            self.step,
            self.size,
            other.first,
            other.step,
            other.size,
        )
        if not all(n.is_Integer for n in numbers):
            return True
        one, two = (
            range(int(r.first), int(r.first + r.step * r.size), int(r.step))
            for r in (self, other)
        )
        if not one or not two or one[-1] < two[0] or two[-1] < one[0]:
            return False
        return one.step != two.step or (one.start - two.start) % one.step == 0


@dataclass(frozen=True)
class Region:
    """A part of a tensor: a range for each dimension, and which of them the part has."""

    ranges: tuple[Range, ...]
    dims: tuple[int | None, ...]
    """For each dimension of the part, that of the whole; None for one of size 1 of its own."""

    @property
    def size(self) -> tuple[Expr, ...]:
        """Sizes of the part."""
        return tuple(ONE if d is None else self.ranges[d].size for d in self.dims)

    def stride(self, whole: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Strides of the part in a tensor with these strides."""
        steps = (r.step * s for r, s in zip(self.ranges, whole, strict=True))
        known = tuple(map(sympy.expand, steps))
        return tuple(ONE if d is None else known[d] for d in self.dims)

    def seen_through(self, view: Definition) -> Region | None:
        """Where the base of a view lies that lies here, if it shows the base's dimensions."""
        dims: list[int | None] = []
        index = view.accesses[0].index
        for i in index:
            if i.is_Symbol:
                dims.append(self.dims[int(i.name.removeprefix("d"))])
            elif i == ZERO:
                dims.append(None)
            else:
                return None
        if len({i for i in index if i.is_Symbol}) + index.count(ZERO) < len(index):
            return None
        return Region(self.ranges, tuple(dims))

    def meets(self, other: Region) -> bool:
        """False if they are sure to have no element in common."""
        pairs = zip(self.ranges, other.ranges, strict=True)
        return all(one.meets(two) for one, two in pairs)

    def narrowed(self, dim: int, inner: Range, *, gone: bool = False) -> Region:
        """The part of the part that has only some of the indices of a dimension of its."""
        whole = self.dims[dim]
        assert whole is not None
        outer = self.ranges[whole]
        first = sympy.expand(outer.first + outer.step * inner.first)
        step = sympy.expand(outer.step * inner.step)
        ranges, dims = list(self.ranges), list(self.dims)
        ranges[whole] = Range(first, step, inner.size)
        if gone:
            del dims[dim]
        return Region(tuple(ranges), tuple(dims))
