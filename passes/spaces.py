"""Iteration spaces: what one loop nest runs over, and where its members stand in it.

A group that holds the row sums of a `[16, 512, 1024]` tensor runs over the *frame*
`[(8192, kept), (1024, folded)]`. A tensor of as many elements as the frame (`[8192, 1024]`,
`[16, 512, 1024]`, …) is computed at its inner level, one element a point; a tensor of as many
elements as the kept part (`[16, 512]`) at its outer level. `Space` splits the frame's axes
where its members' shapes ask for it, so that indices come out linear:

    >>> frame = Frame.of((n(16), n(512), n(1024)), (False, False, True))
    >>> frame
    Frame(dims=((8192, False), (1024, True)))
    >>> space = Space(frame, [(n(16), n(512), n(1024))])
    >>> [(str(a.symbol), int(a.size)) for a in space.axes]
    [('i0', 16), ('i1', 512), ('k0', 1024)]
    >>> space.index((n(8192), n(1024)), "inner")
    (512*i0 + i1, k0)
    >>> space.index((n(16), n(512)), "outer")
    (i0, i1)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import sympy

from .indexing import (
    ONE,
    ZERO,
    Index,
    contiguous_strides,
    expanded,
    flatten,
    product,
    simplify,
    unflatten,
)
from .loops import Axis, Expr, symbol

n = sympy.Integer


def same(first: Expr, second: Expr) -> bool:
    """True if two sizes are certainly equal."""
    return bool(first == second or expanded(first - second) == 0)


@dataclass(frozen=True)
class Frame:
    """Sizes of an iteration space with neighbours of one kind merged; (size, folded) pairs."""

    dims: tuple[tuple[Expr, bool], ...]

    @staticmethod
    def of(sizes: Sequence[Expr], folded: Sequence[bool]) -> Frame:
        """The frame of a reduction over a space of these sizes."""
        dims: list[tuple[Expr, bool]] = []
        for size, flag in zip(sizes, folded, strict=True):
            if size == ONE:
                continue
            if dims and dims[-1][1] == flag:
                dims[-1] = (expanded(dims[-1][0] * size), flag)
            else:
                dims.append((size, flag))
        if any(folded) and not any(f for _, f in dims):
            dims.append((ONE, True))
        return Frame(tuple(dims))

    @staticmethod
    def pointwise(numel: Expr) -> Frame:
        """The frame of element-wise work."""
        return Frame(((expanded(numel), False),))

    @cached_property
    def full(self) -> Expr:
        """Number of points."""
        return expanded(product([s for s, _ in self.dims]))

    @cached_property
    def kept(self) -> Expr:
        """Number of outer points."""
        return expanded(product([s for s, f in self.dims if not f]))

    @property
    def folds(self) -> bool:
        """True if some axis is folded."""
        return any(f for _, f in self.dims)

    @property
    def columns(self) -> bool:
        """True if it folds, but not along the last axis."""
        return self.folds and not self.dims[-1][1]

    def level(self, numel: Expr) -> str | None:
        """The level at which a tensor of `numel` elements is computed, or None."""
        if same(self.full, numel):
            return "inner"
        return "outer" if same(self.kept, numel) else None


class Space:
    """A frame with axes.

    Attributes:
        frame: The frame.
        axes: Axes in frame order.
        folded: For each axis, whether it is folded.
        ranges: Axis symbol -> size.
    """

    def __init__(self, frame: Frame, shapes: Iterable[Sequence[Expr]]) -> None:
        self.frame = frame
        shapes = list(shapes)
        full_cuts = self._cuts(shapes, frame.full)
        kept_cuts = self._cuts(shapes, frame.kept)
        strides = contiguous_strides([s for s, _ in frame.dims])
        kept_strides = iter(contiguous_strides([s for s, f in frame.dims if not f]))
        axes: list[Axis] = []
        self.folded: list[bool] = []
        for (size, folded), stride in zip(frame.dims, strides, strict=True):
            cuts = [_ratio(c, stride) for c in full_cuts]
            if not folded:
                kept_stride = next(kept_strides)
                cuts += [_ratio(c, kept_stride) for c in kept_cuts]
            for part in _split(size, [c for c in cuts if c is not None]):
                name = "k" if folded else "i"
                axes.append(Axis(symbol(f"{name}{self.folded.count(folded)}"), part))
                self.folded.append(folded)
        self.axes = tuple(axes)
        self.ranges = {a.symbol: a.size for a in axes}
        self._indices: dict[tuple[tuple[Expr, ...], str], Index] = {}

    @staticmethod
    def _cuts(shapes: list[Sequence[Expr]], numel: Expr) -> list[Expr]:
        cuts: dict[Expr, None] = {}
        for shape in shapes:
            if numel != 0 and same(product(shape), numel):
                for stride in contiguous_strides(shape):
                    cuts[expanded(stride)] = None
        return list(cuts)

    @property
    def outer(self) -> tuple[Axis, ...]:
        """Kept axes."""
        return tuple(a for a, f in zip(self.axes, self.folded, strict=True) if not f)

    @property
    def inner(self) -> tuple[Axis, ...]:
        """Folded axes."""
        return tuple(a for a, f in zip(self.axes, self.folded, strict=True) if f)

    @cached_property
    def positions(self) -> dict[str, Expr]:
        """The flat position of the point at hand, by level."""

        def flat(axes: tuple[Axis, ...]) -> Expr:
            return flatten(tuple(a.symbol for a in axes), tuple(a.size for a in axes))

        return {"inner": flat(self.axes), "outer": flat(self.outer)}

    def index(self, size: tuple[Expr, ...], level: str) -> Index:
        """Where a tensor of this size that is computed at `level` stands at the point at hand."""
        found = self._indices.get((size, level))
        if found is None:
            raw = unflatten(self.positions[level], size, self.ranges)
            found = tuple(simplify(sympy.sympify(i), self.ranges) for i in raw)
            self._indices[size, level] = found
        return found


def _ratio(cut: Expr, stride: Expr) -> Expr | None:
    """`cut / stride` if that is an integer above 1, else None."""
    if cut.is_Integer and stride.is_Integer:
        return cut // stride if cut % stride == 0 and cut != stride else None
    ratio = sympy.cancel(cut / stride)
    return ratio if ratio != ONE and ratio.as_numer_denom()[1] == ONE else None


def _split(size: Expr, cuts: list[Expr]) -> list[Expr]:
    """Splits an axis at the cuts that divide one another; the rest are left to `//` and `%`."""
    inside: list[Expr] = []
    for cut in cuts:
        if cut != size and _divides(cut, size) and cut not in inside:
            inside.append(cut)
    chain: list[Expr] = [ONE]
    # Small cuts first; a cut that does not fit the ones before it is dropped.
    for cut in sorted(
        inside, key=lambda c: (len(c.free_symbols), sympy.default_sort_key(c))
    ):
        if all(_divides(c, cut) or _divides(cut, c) for c in chain):
            chain.append(cut)
    chain.sort(key=lambda c: sum(_divides(d, c) for d in chain))
    chain.append(size)
    parts = [sympy.cancel(b / a) for a, b in pairwise(chain)]
    return list(reversed(parts)) if parts else [size]


def _divides(divisor: Expr, number: Expr) -> bool:
    if divisor.is_Integer and number.is_Integer:
        return bool(divisor != 0 and number % divisor == 0)
    return bool(sympy.cancel(number / divisor).as_numer_denom()[1] == ONE)


__all__ = ["ZERO", "Frame", "Space", "same"]
