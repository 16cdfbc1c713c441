"""Prints pointwise kernels: a loop nest whose last loop is the vector loop.

#pragma omp parallel for
for (long i = 0; i < 37; ++i) {
    const float b_i = b[2 * i];
    #pragma omp simd
    for (long j = 0; j < 65; ++j) {
        y[65 * i + j] = x[65 * i + j] * w[j] + b_i;
    }
}
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace

import sympy

from .loops import Axis, Expr, Load, Op, Store, Value, walk
from .pieces import SHORT, Piece, pieces
from .print_cpp_body import Body
from .print_cpp_parallel import condition, parallel_for
from .print_cpp_schedule import Schedule, hint, stride_of
from .print_cpp_values import ARRAYS, BUFFERS, EXPENSIVE, index_text, stored

_SHARED = 4096
"""Points of a piece that are worth sharing among cores."""

_BLOCK = 512
"""Points of a block that is computed in stages: its arrays stay in the first-level cache."""


def print_points(body: Body, plan: Schedule) -> None:
    """Emits the loops of a kernel without reductions."""
    stores = [s for s in body.kernel.body if isinstance(s, Store)]
    if not plan.outer:
        body.define([s.value for s in stores])
        for statement in stores:
            body.store(statement)
    elif plan.tile is not None:
        _print_tiles(body, plan, stores)
    else:
        _Points(body, plan).print(stores)


class _Where:
    """The pieces of outer axes that loops are in.

    Attributes:
        origins: The first point of each.
        extents: How many points each has.
    """

    def __init__(
        self, origins: dict[sympy.Symbol, Expr], extents: dict[sympy.Symbol, Expr]
    ) -> None:
        self.origins, self.extents = origins, extents

    def within(self, axis: Axis, piece: Piece) -> _Where:
        i = axis.symbol
        return _Where(
            {**self.origins, i: piece.first},
            {**self.extents, i: sympy.expand(piece.last - piece.first)},
        )


class _Points:
    """Prints loops whose last one is the vector loop, in pieces if conditions ask for it."""

    def __init__(self, body: Body, plan: Schedule) -> None:
        self.body, self.plan = body, plan
        *self.loops, self.vector = plan.outer
        rows = math.prod(hint(a.size) for a in self.loops)
        self.share_vector = rows < 16 and hint(self.vector.size) >= 16384
        self.ranges = {a.symbol: a.size for a in plan.outer}

    def print(self, stores: Sequence[Store]) -> None:
        """Opens the outer loops that cores share, then what is below them."""
        body, together = self.body, 0
        with contextlib.ExitStack() as stack:
            if self.loops:
                body.define((), body.hoist([s.value for s in stores], frozenset()))
                if not self.share_vector:
                    together = parallel_for(body, tuple(self.loops), self.plan.work)
            for axis in self.loops[:together]:
                stack.enter_context(body.block(body.loop_head(axis)))
            self._cut(together, self.loops[:together], stores, _Where({}, {}))

    def _cut(
        self,
        position: int,
        axes: Sequence[Axis],
        stores: Sequence[Store],
        where: _Where,
    ) -> None:
        """Asks in which pieces of open loops the point is; goes on at a loop's position."""
        if not axes:
            self._loops(position, stores, where)
            return
        found = self._pieces(axes[0], stores, where)
        if len(found) == 1:
            self._cut(position, axes[1:], stores, where)
            return
        body = self.body
        for number, piece in enumerate(found):
            head = f"if ({body.symbols[axes[0].symbol]} < {body.size(piece.last)})"
            if number:
                head = "else " + (head if piece is not found[-1] else "").strip()
            with body.block(head.strip()):
                self.body.inherit_labels(piece.same)
                self._cut(
                    position, axes[1:], piece.stores, where.within(axes[0], piece)
                )

    def _pieces(
        self, axis: Axis, stores: Sequence[Store], where: _Where, shortest: int = 1
    ) -> Sequence[Piece]:
        ranges = {**self.ranges, **where.extents}
        found = pieces(stores, axis, ranges, shortest, where.origins)
        if len(found) == 1:
            return found
        return [
            replace(p, stores=tuple(s for s in p.stores if not _is_there(s)))
            for p in found
        ]

    def _loops(self, position: int, stores: Sequence[Store], where: _Where) -> None:
        if not stores:
            return
        body = self.body
        bound = frozenset(a.symbol for a in self.loops[:position])
        body.define((), body.hoist([s.value for s in stores], bound))
        if position == len(self.loops):
            self._vector(stores, where)
            return
        axis = self.loops[position]
        with body.block(body.loop_head(axis)):
            self._cut(position + 1, [axis], stores, where)

    def _vector(self, stores: Sequence[Store], where: _Where) -> None:
        body, vector = self.body, self.vector
        found = self._pieces(vector, stores, where, SHORT)
        for piece in found:
            if not piece.stores:
                continue
            self.body.inherit_labels(piece.same)
            limits: tuple[str, ...] = ()
            if len(found) > 1:
                limits = (body.size(piece.first), body.size(piece.last))
            when = None
            if (self.share_vector or not self.loops) and not _is_short(piece):
                when = condition(body, self.plan.work)
            stages = _stages(body, vector, [s.value for s in piece.stores])
            if stages:
                if when is not None:
                    body.pragma(f"parallel for{when}")
                _print_stages(body, vector, stages, piece.stores, *limits)
            else:
                body.pragma("simd" if when is None else f"parallel for simd{when}")
                _print_body(body, vector, piece.stores, *limits)


def _is_there(store: Store) -> bool:
    """True for a store of what lies there already."""
    value = store.value
    if not isinstance(value, Load) or value.indirect or value.mask is not None:
        return False
    same = value.buffer.name == store.buffer.name
    return same and sympy.expand(value.index - store.index) == 0


def _is_short(piece: Piece) -> bool:
    extent = piece.last - piece.first
    return bool(extent.is_Integer) and int(extent) < _SHARED


def _stages(body: Body, vector: Axis, values: list[Value]) -> list[Op]:
    """Functions that get a loop of their own, in order; the last one shares that of the stores.

    A loop with several of them is one long chain of dependent instructions, too long for a
    core to overlap many turns of it: split, the loops were measured to take half the time.
    """
    dear = [
        v
        for v in walk(values)
        if isinstance(v, Op)
        and v.name in EXPENSIVE
        and v.dtype.is_floating_point
        and vector.symbol in body.needs(v)
    ]
    return dear[:-1] if hint(vector.size) >= _BLOCK else []


def _print_stages(
    body: Body,
    vector: Axis,
    stages: list[Op],
    stores: Sequence[Store],
    first: str = "0",
    last: str | None = None,
) -> None:
    """The vector loop in blocks that stay in the cache, with one loop for each stage."""
    i, size = body.symbols[vector.symbol], last or body.size(vector.size)
    block, end = body.fresh(f"{i}_block"), body.fresh(f"{i}_end")
    head = f"for (long {block} = {first}; {block} < {size}; {block} += {_BLOCK})"
    with body.block(head):
        body.emit(f"const long {end} = smaller({block} + {_BLOCK}, {size});")
        for stage in stages:
            name = body.fresh(body.label(stage).name or f"{stage.name}_block")
            body.emit(f"{ARRAYS[stage.dtype]} {name}[{_BLOCK}];")
            body.pragma("simd")
            with body.block(body.loop_head(vector, block, end)):
                body.define([stage])
                text = body.printer.of(stage).text
                body.emit(f"{name}[{i} - {block}] = {text};", body.label(stage).comment)
            body.set(stage, f"{name}[{i} - {block}]")
        body.pragma("simd")
        _print_body(body, vector, stores, block, end)


def _print_body(
    body: Body, vector: Axis, stores: Sequence[Store], *limits: str
) -> None:
    with body.block(body.loop_head(vector, *limits)):
        body.define([s.value for s in stores])
        for statement in stores:
            body.store(statement)


def _print_tiles(body: Body, plan: Schedule, stores: list[Store]) -> None:
    """Tiles of the last two axes: what is read along the one and written along the other.

    A tile that is read across is first copied into an array, line by line: with a power of
    two as the stride, all its lines would compete for one set of the cache. Where lines lie at
    equal distances, it is transposed on the way (`tiles.h`).
    """
    *loops, tile, vector = plan.outer
    values = [s.value for s in stores]
    across = [
        v
        for v in walk(values)
        if isinstance(v, Load)
        and v.mask is None
        and not v.indirect
        and stride_of(v.index, tile.symbol) == 1
        and stride_of(v.index, vector.symbol) not in (0, 1)
    ]
    side = 64 if len(across) < 3 else 32
    when = condition(body, plan.work)
    with contextlib.ExitStack() as stack:
        if when is not None:
            body.pragma(f"parallel for collapse({len(loops) + 2}){when}")
        for axis in loops:
            stack.enter_context(body.block(body.loop_head(axis)))
        firsts = [body.fresh(f"{body.symbols[a.symbol]}_tile") for a in (tile, vector)]
        for axis, first in zip((tile, vector), firsts, strict=True):
            head = f"for (long {first} = 0; {first} < {body.size(axis.size)}; {first} += {side})"
            stack.enter_context(body.block(head))
        limits = []
        for axis, first in zip((tile, vector), firsts, strict=True):
            last = body.fresh(f"{body.symbols[axis.symbol]}_end")
            size = body.size(axis.size)
            body.emit(f"const long {last} = smaller({first} + {side}, {size});")
            limits.append((first, last))
        row = f"[{body.symbols[vector.symbol]} - {firsts[1]}]"
        column = f"[{body.symbols[tile.symbol]} - {firsts[0]}]"
        extents = ", ".join(f"{last} - {first}" for first, last in reversed(limits))
        copied = {}
        for load in across:
            name = body.fresh(f"{load.buffer.name}_tile")
            distance = stride_of(load.index, vector.symbol)
            if distance is None:
                body.emit(f"{ARRAYS[load.dtype]} {name}[{side}][{side}];")
                copied[load] = f"{name}{row}{column}"
                continue
            body.emit(f"{BUFFERS[load.dtype]} {name}[{side}][{side}];")
            starts = dict(zip((tile.symbol, vector.symbol), firsts, strict=True))
            first = index_text(load.index, body.symbols | starts).text
            step = index_text(distance, body.symbols).text
            source = f"&{body.buffers[load.buffer.name]}[{first}]"
            body.emit(f"load_transposed({name}, {source}, {step}, {extents});")
            body.set(load, stored(f"{name}{column}{row}", load.dtype))
        if copied:
            with body.block(body.loop_head(vector, *limits[1])):
                body.pragma("simd")
                with body.block(body.loop_head(tile, *limits[0])):
                    for load, element in copied.items():
                        body.emit(f"{element} = {body.printer.text(load)};")
        for load, element in copied.items():
            body.set(load, element)
        with body.block(body.loop_head(tile, *limits[0])):
            bound = frozenset(a.symbol for a in (*loops, tile))
            body.define((), body.hoist(values, bound))
            body.pragma("simd")
            _print_body(body, vector, stores, *limits[1])
