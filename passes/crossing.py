"""Crossing: a kernel of rows and one of columns over the same rows become one pass.

Before (the gradients of a norm; both read `grad` and `x`):

    Launch(kernel norm over i < 16384, inner k < 4096: y[4096*i + k] = …)
    Launch(kernel sum over k < 4096, inner i < 16384: z[k] = sum(…))

After:

    Launch(Crossed(norm, sum))

Grouping keeps them apart, because a loop nest folds either its rows or its columns. A GPU's
program that walks over rows can do both: what it adds up over its rows stays in registers, and
only one row of partial sums a program goes through memory (`print_triton_crossed`). What the
rows' kernel stores, the columns' need not load: the sum of a gradient that has just been made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from .attention_form import Attention
from .crossed_form import Crossed, is_stream
from .definitions import Definition
from .groups import base_of, extern_operands
from .in_place import safe
from .indexing import simplify
from .kernel_names import traffic
from .loops import (
    Axis,
    Expr,
    Kernel,
    Load,
    Reduce,
    Ref,
    Store,
    Value,
    rebuild,
    symbol,
    walk,
)
from .print_triton_axes import indices, map_indices, merge_axes, stride
from .print_triton_columns import rows_are_columns
from .print_triton_crossed import crossed_tile
from .reuse import may_alias, names_made
from .schedule import Call, Launch, Schedule
from .spaces import same

Step = Launch | Call

SUMS = ("sum", "prod", "max", "min", "any", "all")
"""Reductions of which parts can be reduced again."""


def cross(schedule: Schedule, runs_there: Callable[[torch.device], bool]) -> Schedule:
    """Returns the schedule with kernels crossed whose rows are then read once.

    Args:
        schedule: The steps.
        runs_there: Whether kernels of a device are printed for a GPU.
    """
    steps: list[Step] = list(schedule.steps)
    columns = [
        s
        for s in steps
        if _kernel(s) is not None and _is_columns(_kernel(s), runs_there)
    ]
    for step in columns:
        # What sums along rows may have become the rows of another's pass.
        if any(s is step for s in steps):
            _cross_one(step, steps, schedule)
    if len(steps) == len(schedule.steps):
        return schedule
    for number, step in enumerate(steps):
        if isinstance(step, Launch) and isinstance(step.kernel, Crossed):
            read = {n for s in steps if s is not step for n in _reads(s, schedule)}
            crossed = _without_unread(step.kernel, read, schedule)
            crossed = replace(crossed, comment=traffic(crossed))
            steps[number] = replace(step, kernel=crossed)
    return replace(schedule, steps=tuple(steps))


def _cross_one(step: Step, steps: list[Step], schedule: Schedule) -> None:
    """Crosses one kernel of columns with the first kernel of rows that suits it."""
    at, columns = steps.index(step), _kernel(step)
    assert columns is not None
    read = {b.name for b in columns.inputs}
    for number, other in enumerate(steps):
        if not isinstance(other, Launch) or isinstance(other.kernel, Attention):
            continue
        rows = other.kernel
        if other is step or not read & {b.name for b in (*rows.inputs, *rows.outputs)}:
            continue
        if not _may_move(steps, at, number, schedule):
            continue
        crossed = crossed_of(rows, columns)
        if crossed is None or crossed_tile(crossed) is None:
            continue
        assert isinstance(step, Launch)
        nodes = tuple(dict.fromkeys((*other.nodes, *step.nodes)))
        steps[number] = Launch(crossed, nodes)
        steps.remove(step)
        return


def _without_unread(crossed: Crossed, read: set[str], schedule: Schedule) -> Crossed:
    """A pass that does not store what only its own columns were read from."""
    lowered = schedule.lowered
    kept = {base_of(r).name for r in lowered.results if isinstance(r, Definition)}
    kept |= read | {b.name for b in crossed.inputs}
    kept |= {d.name for d in lowered.definitions if not d.computed}
    body = [
        s for s in crossed.rows.body if isinstance(s, Reduce) or s.buffer.name in kept
    ]
    while True:
        values = walk(s.value for s in (*body, *crossed.reduces))
        used = {v.name for v in values if isinstance(v, Ref)}
        alive = [s for s in body if isinstance(s, Store) or s.name in used]
        if len(alive) == len(body):
            return replace(crossed, rows=replace(crossed.rows, body=tuple(body)))
        body = alive


def _kernel(step: Step) -> Kernel | None:
    if isinstance(step, Launch) and isinstance(step.kernel, Kernel):
        return step.kernel
    return None


def _is_columns(
    kernel: Kernel | None, runs_there: Callable[[torch.device], bool]
) -> bool:
    """Whether a kernel is nothing but reductions over columns, and stores of them."""
    if kernel is None or not kernel.inner or not kernel.outer:
        return False
    if not all(runs_there(b.device) for b in kernel.outputs):
        return False
    for statement in kernel.body:
        if isinstance(statement, Store):
            if statement.level != "outer":
                return False
        elif statement.kind not in SUMS or any(
            isinstance(v, Ref) for v in walk([statement.value])
        ):
            return False
    return any(isinstance(s, Reduce) for s in kernel.body)


# ── order ─────────────────────────────────────────────────────────────────────────────────


def _may_move(steps: list[Step], start: int, end: int, schedule: Schedule) -> bool:
    """Whether a kernel may run with another one instead of at its own place.

    What that one writes it may read, if it ran behind it before (`crossed_of`).
    """
    moved, target = steps[start], steps[end]
    reads, writes = _reads(moved, schedule), _writes(moved, schedule)
    inputs = {d.name for d in schedule.in_place.values()}
    # What may be the memory of an input under another name.
    calls = (s for s in steps if isinstance(s, Call) and may_alias(s.node))
    views = {name for s in calls for name in names_made(s, schedule)}
    low, high = sorted((start, end))
    for step in steps[low : high + 1]:
        if step is moved:
            continue
        written = _writes(step, schedule)
        if writes & (_reads(step, schedule) | written):
            return False
        if reads & written and (step is not target or start < end):
            return False
        if written & inputs and reads & (written | views):
            return False
    return True


def _reads(step: Step, schedule: Schedule) -> set[str]:
    if isinstance(step, Launch):
        return {b.name for b in step.kernel.inputs}
    return {base_of(d).name for d in extern_operands(step.node, schedule.lowered)}


def _writes(step: Step, schedule: Schedule) -> set[str]:
    """The memory that a step writes; if in place, that of the input."""
    written = {*names_made(step, schedule)}
    made = [d for d in schedule.in_place if d.name in written]
    return written | {schedule.in_place[d].name for d in made}


# ── one pass ──────────────────────────────────────────────────────────────────────────────


def crossed_of(rows: Kernel | Crossed, columns: Kernel) -> Crossed | None:
    """Two kernels as one pass over rows, if their axes are the same the other way round."""
    before = rows if isinstance(rows, Crossed) else None
    rows = before.rows if before else rows
    assert isinstance(rows, Kernel)
    rows, columns = merge_axes(rows), merge_axes(columns)
    if len(columns.outer) != 1 or not rows_are_columns(columns):
        return None
    if not rows.inner:
        found = _as_rows(rows, columns.outer[0].size)
        if found is None:
            return None
        rows = found
    elif rows_are_columns(rows):
        return None
    pairs = [*zip(columns.inner, rows.outer), (columns.outer[0], *rows.inner)]
    if len(columns.inner) != len(rows.outer) or len(rows.inner) != 1:
        return None
    if not all(same(a.size, b.size) for a, b in pairs):
        return None
    table = {a.symbol: b.symbol for a, b in pairs}
    columns = map_indices(
        columns, {e: sympy.expand(e.xreplace(table)) for e in indices(columns)}
    )
    rows = map_indices(rows, {e: sympy.expand(e) for e in indices(rows)})
    columns = replace(columns, outer=rows.inner, inner=rows.outer)
    given = _forwarded(rows, columns)
    if given is None:
        return None
    columns, forwarded = given
    crossed = Crossed(rows.name, rows, columns)
    shared = {v for v in walk(r.value for r in crossed.reduces) if v in rows.values}
    read = (v for v in crossed.streams if v in shared)
    saved = sum(v.dtype.itemsize for v in (*read, *forwarded))
    if not saved:
        return None
    if before is not None:
        made = {b.name for b in before.columns.outputs}
        if made.intersection(b.name for b in columns.inputs):
            return None
        body = (*before.columns.body, *columns.body)
        labels = {**columns.labels, **before.columns.labels}
        columns = replace(columns, body=body, labels=labels)
        saved += before.saved
    crossed = Crossed(rows.name, rows, columns, saved)
    outputs = [b.name for b in crossed.outputs]
    both = [b.name for b in crossed.inputs if b.name in outputs]
    if len({*outputs}) < len(outputs) or not all(safe(crossed, n) for n in both):
        return None
    stored = [s.index for s in rows.body if isinstance(s, Store)]
    places = (*(v.index for v in crossed.streams), *stored)
    return crossed if all(_lies_along(place, rows) for place in places) else None


def _as_rows(kernel: Kernel, width: Expr) -> Kernel | None:
    """A pointwise kernel as work on rows of a width."""
    if len(kernel.outer) > 1:
        return replace(kernel, outer=kernel.outer[:-1], inner=kernel.outer[-1:])
    if not kernel.outer:
        return None
    (flat,) = kernel.outer
    count = sympy.cancel(flat.size / width)
    if count.as_numer_denom()[1] != 1:
        return None
    row, column = Axis(symbol("i"), count), Axis(symbol("k"), width)
    ranges = {a.symbol: a.size for a in (row, column)}
    whole = {flat.symbol: width * row.symbol + column.symbol}
    table = {e: simplify(e.xreplace(whole), ranges) for e in indices(kernel)}
    if any(e.atoms(FloorDiv, Mod) for e in table.values()):
        return None
    return replace(map_indices(kernel, table), outer=(row,), inner=(column,))


def _forwarded(rows: Kernel, columns: Kernel) -> tuple[Kernel, list[Load]] | None:
    """The columns' kernel without loads of what the rows' kernel stores, and those loads."""
    stored = {
        (s.buffer, sympy.sympify(s.index)): s.value
        for s in rows.body
        if isinstance(s, Store)
    }
    made: dict[Value, Value] = {}
    found: list[Load] = []
    body = []
    for statement in columns.body:
        if isinstance(statement, Reduce):
            for v in walk([statement.value]):
                if v in made:
                    continue
                made[v] = rebuild(v, tuple(made[o] for o in v.operands))
                if not isinstance(v, Load) or v.buffer not in rows.outputs:
                    continue
                if v.mask is not None or (v.buffer, v.index) not in stored:
                    return None
                made[v] = stored[v.buffer, v.index]
                if is_stream(v, rows):
                    found.append(v)
            statement = replace(statement, value=made[statement.value])
        body.append(statement)
    labels = {made.get(v, v): label for v, label in columns.labels.items()}
    return replace(columns, body=tuple(body), labels=labels), found


def _lies_along(index: Expr, rows: Kernel) -> bool:
    """Whether an access walks through memory as a row does, if it does at all."""
    index = sympy.sympify(index)
    (column,) = rows.inner
    return column.symbol not in index.free_symbols or stride(index, column) == 1
