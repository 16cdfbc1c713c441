"""Values of definitions at the point at hand of a group's iteration space.

In a group over `(i | k)` that holds `total[i] = sum(x[i, k])` and `y[i, k] = x[i, k] / total[i]`,
the value of `y` at the point at hand is `div(x[1024*i + k], total)`: what is memory is loaded,
what is a member is the member's own value, what is inlined is computed. A member that needs a
member's value at another point (`total[i + 1]`) does not fit: it raises `NotHere`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from torch.utils._sympy.functions import FloorDiv, Mod

from .deep import Deep
from .definitions import REDUCTION, VIEW, Definition
from .indexing import Index, simplify
from .indirect import places
from .loops import Buffer, Const, Expr, Load, Op, Ref, Value, walk
from .spaces import Frame, Space

if TYPE_CHECKING:
    from .placement import Places

IDENTITY = {"sum": 0, "prod": 1, "any": False, "all": True}
"""What the reduction of nothing gives; the other kinds have no such value."""


DIVISION = 4
"""Primitives that a division in an index counts as: neighbours are then loaded one by one."""


class NotHere(Exception):
    """A definition cannot be computed in this group: it needs a value of another point."""


class Trial:
    """Computes values of a group's members at the point at hand.

    Where `most` is given, a member does not fit if more values than that are computed again:
    values of members for other points than the one at hand. What is in `places` is loaded from
    there.
    """

    def __init__(
        self,
        frame: Frame,
        members: dict[Definition, str],
        inlined: set[Definition] | frozenset[Definition],
        most: int | None = None,
        places: Places | None = None,
    ) -> None:
        self.members = members
        self.lie = places or {}
        self.most = most
        self._counted: set[Value] = set()
        self._again = 0
        self.inlined = inlined
        self.space = Space(frame, self._shapes())
        self._value = Deep(self._compute)

    def _shapes(self) -> Iterator[tuple[Expr, ...]]:
        """Shapes of the members and of what is inlined into them, members first."""
        seen: set[Definition] = set()
        queue: list[Definition] = list(self.members)
        for d in queue:
            yield d.folding.full if d.folding else d.size
            if d.folding:
                yield d.size
        while queue:
            d = queue.pop(0)
            for operand in d.operands:
                if operand in seen or operand in self.members:
                    continue
                seen.add(operand)
                yield operand.size
                if operand.kind == VIEW or operand in self.inlined:
                    queue.append(operand)

    @cached_property
    def places(self) -> dict[Definition, Index]:
        """Where each member stands at the point at hand."""
        return {d: self.space.index(d.size, level) for d, level in self.members.items()}

    @property
    def done(self) -> dict[tuple[Definition, Index | None], Value]:
        """What has been computed: definition and index (None: the point at hand) -> value."""
        return self._value.done

    def compute(self, d: Definition) -> Value:
        """The value of a member at the point at hand (for a reduction: what it folds)."""
        return self._value((d, None))

    def read(self, d: Definition, index: Index) -> Value:
        """The value of an operand at an index."""
        if d.kind != VIEW:
            index = tuple(simplify(i, self.space.ranges) for i in index)
        return self._value((d, index))

    def _compute(self, key: tuple[Definition, Index | None]) -> Value:
        d, index = key
        if index is not None:
            return self._read(d, index)
        if d.addition and d.addition.start in self.members:
            raise NotHere(f"{d.name} is added to what is not there yet")
        if d.folding:
            index = self.space.index(d.folding.full, "inner")
            return d.folding.value(self.read, index)
        assert d.at is not None
        value = d.at(self.read, self.places[d])
        if self.most is not None:
            self._counted.update(walk([value], self._counted))
        return value

    def _read(self, d: Definition, index: Index) -> Value:
        if d.kind == VIEW:
            assert d.at is not None
            return d.at(self.read, index)
        if d.known is not None:
            return Const(d.known, d.dtype)
        if d.constant and d not in self.members:
            assert d.at is not None
            return d.at(self.read, index)
        if d in self.members:
            if index == self.places[d]:
                return self.member(d)
            if d.kind == REDUCTION or d.dear:
                raise NotHere(f"{d.name} at {index}")
            assert d.at is not None
            value = d.at(self.read, index)
            self._count(value)
            return value
        if d in self.inlined:
            assert d.at is not None
            return d.at(self.read, index)
        return self.load(d, index)

    def _count(self, value: Value) -> None:
        """Counts what is computed for a point that is not the one at hand."""
        if self.most is None:
            return
        new = list(walk([value], self._counted))
        self._counted.update(new)
        self._again += sum(_price(v) for v in new)
        if self._again > self.most:
            raise NotHere(f"{self._again} values again")

    def member(self, d: Definition) -> Value:
        """The value that a member has at the point at hand."""
        if d.folding:
            if self.space.frame.full == 0:
                # A maximum of nothing raises on fakes, so there is no place for one here.
                return Const(IDENTITY.get(d.folding.kind, 0), d.dtype)
            return Ref(d.name, d.dtype)
        return self.compute(d)

    def load(self, d: Definition, index: Index) -> Value:
        """The value of something that is memory."""
        place = self.lie.get(d)
        buffer = memory(place.memory if place else d)
        stride = place.stride if place else buffer.stride
        offset = sum(
            (i * s for i, s in zip(index, stride, strict=True)),
            start=place.offset if place else 0 * d.numel,
        )
        offset = simplify(offset, self.space.ranges)
        return Load(buffer, offset, None, places(offset))


def _price(value: Value) -> int:
    """Primitives that a value costs, its operands left out."""
    if isinstance(value, Load):
        return 1 + DIVISION * len(value.index.atoms(FloorDiv, Mod))
    return isinstance(value, Op) and value.name != "cast"


def memory(d: Definition) -> Buffer:
    """The buffer of a definition that is in memory."""
    return Buffer(d.name, d.dtype, d.device, d.size, d.stride)
