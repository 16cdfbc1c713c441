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

from .loops import Axis, Store
from .print_cpp_body import Body
from .print_cpp_parallel import condition, parallel_for
from .print_cpp_schedule import Schedule, hint

_TILE_ROWS, _TILE_COLUMNS = 16, 64


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
        body.pragma("simd" if when is None else f"parallel for simd{when}")
        _print_body(body, vector, stores)


def _print_body(body: Body, vector: Axis, stores: list[Store], *limits: str) -> None:
    with body.block(body.loop_head(vector, *limits)):
        body.define([s.value for s in stores])
        for statement in stores:
            body.store(statement)


def _print_tiles(body: Body, plan: Schedule, stores: list[Store]) -> None:
    """Tiles of the last two axes: what is read along the one and written along the other."""
    *loops, tile, vector = plan.outer
    values = [s.value for s in stores]
    low, right = (body.fresh(f"{body.symbols[a.symbol]}_tile") for a in (tile, vector))
    with contextlib.ExitStack() as stack:
        when = condition(body, plan.work)
        if when is not None:
            body.pragma(f"parallel for collapse({len(loops) + 2}){when}")
        for axis in loops:
            stack.enter_context(body.block(body.loop_head(axis)))
        limits = []
        for axis, name, step in (
            (tile, low, _TILE_ROWS),
            (vector, right, _TILE_COLUMNS),
        ):
            size = body.size(axis.size)
            head = f"for (long {name} = 0; {name} < {size}; {name} += {step})"
            stack.enter_context(body.block(head))
            limits.append((name, f"smaller({name} + {step}, {size})"))
        bound = frozenset(a.symbol for a in (*loops, tile))
        ends = []
        for (first, last), axis in zip(limits, (tile, vector), strict=True):
            end = body.fresh(f"{body.symbols[axis.symbol]}_end")
            body.emit(f"const long {end} = {last};")
            ends.append((first, end))
        with body.block(body.loop_head(tile, *ends[0])):
            body.define((), body.hoist(values, bound))
            body.pragma("simd")
            _print_body(body, vector, stores, *ends[1])
