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

from .loops import Axis, Load, Op, Store, Value, walk
from .print_cpp_body import Body
from .print_cpp_parallel import condition, parallel_for
from .print_cpp_schedule import Schedule, hint, stride_of
from .print_cpp_values import EXPENSIVE, VARIABLES

_BLOCK = 512
"""Points of a block that is computed in stages: its arrays stay in the first-level cache."""


def print_points(body: Body, plan: Schedule) -> None:
    """Emits the loops of a kernel without reductions."""
    stores = [s for s in body.kernel.body if isinstance(s, Store)]
    values = [s.value for s in stores]
    if not plan.outer:
        body.define(values)
        for statement in stores:
            body.store(statement)
        return
    *loops, vector = plan.outer
    if plan.tile is not None:
        _print_tiles(body, plan, stores)
        return
    rows = math.prod(hint(a.size) for a in loops)
    share_vector = rows < 16 and hint(vector.size) >= 16384
    bound: frozenset[object] = frozenset()
    with contextlib.ExitStack() as stack:
        together = 0
        for position, axis in enumerate(loops):
            if position >= together:
                body.define((), body.hoist(values, bound))
            if position == 0 and not share_vector:
                together = parallel_for(body, tuple(loops), plan.work)
            stack.enter_context(body.block(body.loop_head(axis)))
            bound |= {axis.symbol}
        body.define((), body.hoist(values, bound))
        when = condition(body, plan.work) if share_vector or not loops else None
        stages = _stages(body, vector, values)
        if stages:
            if when is not None:
                body.pragma(f"parallel for{when}")
            _print_stages(body, vector, stages, stores)
            return
        body.pragma("simd" if when is None else f"parallel for simd{when}")
        _print_body(body, vector, stores)


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
    body: Body, vector: Axis, stages: list[Op], stores: list[Store]
) -> None:
    """The vector loop in blocks that stay in the cache, with one loop for each stage."""
    i, size = body.symbols[vector.symbol], body.size(vector.size)
    block, end = body.fresh(f"{i}_block"), body.fresh(f"{i}_end")
    with body.block(f"for (long {block} = 0; {block} < {size}; {block} += {_BLOCK})"):
        body.emit(f"const long {end} = smaller({block} + {_BLOCK}, {size});")
        for stage in stages:
            name = body.fresh(body.label(stage).name or f"{stage.name}_block")
            body.emit(f"{VARIABLES[stage.dtype]} {name}[{_BLOCK}];")
            body.pragma("simd")
            with body.block(body.loop_head(vector, block, end)):
                body.define([stage])
                text = body.printer.of(stage).text
                body.emit(f"{name}[{i} - {block}] = {text};", body.label(stage).comment)
            body.set(stage, f"{name}[{i} - {block}]")
        body.pragma("simd")
        _print_body(body, vector, stores, block, end)


def _print_body(body: Body, vector: Axis, stores: list[Store], *limits: str) -> None:
    with body.block(body.loop_head(vector, *limits)):
        body.define([s.value for s in stores])
        for statement in stores:
            body.store(statement)


def _print_tiles(body: Body, plan: Schedule, stores: list[Store]) -> None:
    """Tiles of the last two axes: what is read along the one and written along the other.

    A tile that is read across is first copied into an array, line by line: with a power of
    two as the stride, all its lines would compete for one set of the cache.
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
        elements = {}
        for load in across:
            name = body.fresh(f"{load.buffer.name}_tile")
            body.emit(f"{VARIABLES[load.dtype]} {name}[{side}][{side}];")
            elements[load] = f"{name}{row}{column}"
        if across:
            with body.block(body.loop_head(vector, *limits[1])):
                body.pragma("simd")
                with body.block(body.loop_head(tile, *limits[0])):
                    for load, element in elements.items():
                        body.emit(f"{element} = {body.printer.text(load)};")
        for load, element in elements.items():
            body.set(load, element)
        with body.block(body.loop_head(tile, *limits[0])):
            bound = frozenset(a.symbol for a in (*loops, tile))
            body.define((), body.hoist(values, bound))
            body.pragma("simd")
            _print_body(body, vector, stores, *limits[1])
