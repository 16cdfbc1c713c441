"""Schedules that are worth measuring beside the one that the rules choose.

A reduction over rows of 8,192 elements that a program holds whole,

    Schedule(groups=(Group(axes=(i,), block=1), Group(axes=(k,), block=8192)),
             looped=False, num_warps=8, lanes=0, stages=0, streams=False)

may also be held by 4 or by 16 warps, or be walked over in blocks. All candidates compute the
same values; only the order of a sum differs, as it does between any two schedules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import sympy

from . import print_cpp_schedule as cpp
from .attention_form import Attention
from .loops import Kernel
from .print_triton_axes import static
from .print_triton_columns import rows_are_columns
from .print_triton_schedule import (
    PERSISTENT_LIMIT,
    Group,
    Schedule,
    power_of_two,
    schedule,
    walking_forms,
)
from .print_triton_tiles import Blocks, choose, padded

MOST_ELEMENTS = 64
"""Of one thread; more do not fit in its registers."""

LARGEST_BLOCK = 16384
"""Elements that a program which walks over its row takes at a time."""

FEW_ROWS = 64
"""Rows that may be too few to share among the cores of a CPU."""


def triton_schedules(kernel: Kernel) -> tuple[Schedule, ...]:
    """How a kernel whose axes are merged may run on a GPU, the usual way first."""
    plan = schedule(kernel)
    if not kernel.inner:
        found = _scaled(plan, plan.groups)
    elif plan.looped or rows_are_columns(kernel):
        # What is held is held whole.
        cut = plan.groups if plan.looped else plan.groups[:-1]
        found = (*_scaled(plan, cut), *_held(kernel, plan))
    else:
        found = (*_warped(plan), *_walked(kernel, plan))
    made = (replace(p, lanes=_lanes(kernel, p)) for p in found)
    return tuple(dict.fromkeys((plan, *(p for p in made if _is_sensible(p)))))


def _scaled(plan: Schedule, cut: tuple[Group, ...]) -> tuple[Schedule, ...]:
    """Other blocks of the groups `cut`, and other numbers of warps."""
    made = []
    for resized in (plan, *_resized(plan, cut)):
        made += [resized, *_warped(resized)]
    return tuple(made)


def _resized(plan: Schedule, cut: tuple[Group, ...]) -> Iterator[Schedule]:
    """Half and twice the block of each group that is cut into blocks."""
    for number, group in enumerate(cut):
        last = number == len(plan.groups) - 1
        if group.block == 1 and not last:
            continue
        size = static(group.size)
        most = power_of_two(size) if size is not None else LARGEST_BLOCK
        for block in (group.block // 2, group.block * 2):
            if 1 <= block <= most and (block < most or not (plan.looped and last)):
                groups = list(plan.groups)
                groups[number] = replace(group, block=block)
                yield replace(plan, groups=tuple(groups))


def _warped(plan: Schedule) -> Iterator[Schedule]:
    for warps in (plan.num_warps // 2, plan.num_warps * 2):
        if 1 <= warps <= 32:
            yield replace(plan, num_warps=warps)


def _walked(kernel: Kernel, plan: Schedule) -> Iterator[Schedule]:
    """A row that is held whole, walked over instead."""
    *outer, inner = plan.groups
    length = static(inner.size)
    if length is None or length < 2048 or any(g.block > 1 for g in outer):
        return
    for share in (2, 4):
        block = power_of_two(length) // share
        for warps in (8, 16):
            groups = (*outer, replace(inner, block=block))
            yield replace(plan, groups=groups, looped=True, num_warps=warps)


def _held(kernel: Kernel, plan: Schedule) -> Iterator[Schedule]:
    """A row that is walked over, held whole instead."""
    *outer, inner = plan.groups
    length = static(inner.size)
    if length is None or power_of_two(length) > PERSISTENT_LIMIT:
        return
    if any(g.block > 1 for g in outer) or not plan.looped:
        return
    groups = (*outer, replace(inner, block=power_of_two(length)))
    for warps in (8, 16, 32):
        yield replace(plan, groups=groups, looped=False, num_warps=warps)


def _lanes(kernel: Kernel, plan: Schedule) -> int:
    """As many running maxima as the usual schedule would keep with these warps."""
    if not plan.lanes and not (plan.looped and kernel.inner and walking_forms(kernel)):
        return 0
    if not plan.looped or rows_are_columns(kernel):
        return 0
    return min(plan.groups[-1].block, 32 * plan.num_warps)


def _is_sensible(plan: Schedule) -> bool:
    elements = 1
    for group in plan.groups:
        elements *= group.block
    threads = 32 * plan.num_warps
    return threads <= max(elements, 32) and elements <= MOST_ELEMENTS * threads


def attention_blocks(attention: Attention) -> tuple[Blocks, ...]:
    """Blocks of a streaming attention, the usual ones first."""
    usual = choose(attention)
    found = [usual]
    head = max(padded(attention.depth), padded(attention.width))
    rows, columns = static(attention.rows.size), static(attention.columns.size)
    for block, across in ((64, 64), (64, 32), (128, 64), (128, 32), (128, 128)):
        if (rows is not None and block > max(16, power_of_two(rows))) or (
            columns is not None and across > max(16, power_of_two(columns))
        ):
            continue
        for stages in (2, 3, 4):
            warps = 8 if block == 128 or head > 128 else 4
            found.append(Blocks(block, across, warps, stages))
    return tuple(dict.fromkeys(found))


def cpp_schedules(kernel: Kernel) -> tuple[cpp.Schedule, ...]:
    """How a kernel may run on a CPU, the usual way first."""
    plan = cpp.schedule(kernel)
    found = [plan]
    work, rows = cpp.hint(plan.work), 1
    for axis in plan.outer:
        rows *= cpp.hint(axis.size)
    if cpp.PARALLEL_WORK // 16 <= work < cpp.PARALLEL_WORK * 64:
        # On one core instead of all, or the other way round.
        other = cpp.PARALLEL_WORK if work < cpp.PARALLEL_WORK else 0
        found.append(replace(plan, work=sympy.Integer(other)))
    if plan.shape is cpp.Shape.COLUMNS and not plan.parts:
        found += [
            replace(plan, lanes=lanes)
            for lanes in (plan.lanes // 2, plan.lanes * 2)
            if 16 <= lanes <= 512
        ]
    elif plan.shape is cpp.Shape.SPLIT:
        found.append(replace(plan, shape=cpp.Shape.ROWS))
    elif plan.shape is cpp.Shape.ROWS and rows < FEW_ROWS:
        found.append(replace(plan, shape=cpp.Shape.SPLIT))
    elif plan.tile is not None:
        found.append(replace(plan, tile=None))
    return tuple(dict.fromkeys(found))
