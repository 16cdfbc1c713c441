"""Prints kernels that reduce rows, and those whose few rows are split among the cores.

#pragma omp parallel for
for (long i = 0; i < 19; ++i) {
    double total_acc = 0.0;
    #pragma omp simd reduction(+ : total_acc)
    for (long k = 0; k < 133; ++k) {
        total_acc += x[133 * i + k];
    }
    const float total = (float)total_acc;
    y[i] = total;
}
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .indexing import ZERO
from .loops import Axis, Op, Store, Value
from .pieces import SHORT, Piece, pieces
from .print_cpp_body import Body
from .print_cpp_parallel import condition, parallel_for
from .print_cpp_passes import (
    Pass,
    Update,
    kept_values,
    passes_of,
    position_in_row,
    print_updates,
    updates_of,
)
from .print_cpp_reduce import Accumulator
from .print_cpp_schedule import PARTS, Schedule, Shape, hint
from .print_cpp_values import ARRAYS, VARIABLES


def print_rows(body: Body, schedule: Schedule) -> None:
    """Emits a kernel of shape `ROWS` or `SPLIT`."""
    split = schedule.shape is Shape.SPLIT
    roots = [s.value for s in body.kernel.body]
    bound: frozenset[object] = frozenset()
    with contextlib.ExitStack() as stack:
        together = 0
        for position, axis in enumerate(schedule.outer):
            if position >= together:
                body.define((), body.hoist(roots, bound))
            if position == 0 and not split:
                together = parallel_for(body, schedule.outer, schedule.work)
            stack.enter_context(body.block(body.loop_head(axis)))
            bound |= {axis.symbol}
        _Row(body, schedule, bound).print()


class _Row:
    """Prints what happens at one outer point."""

    def __init__(
        self, body: Body, schedule: Schedule, bound: frozenset[object]
    ) -> None:
        self.body = body
        self.schedule = schedule
        self.bound = bound
        self.extremes: dict[str, str] = {}
        self.kept: dict[Value, int] = {}
        self.split_axis: Axis | None = None
        self.inner = schedule.inner
        if schedule.shape is Shape.SPLIT:
            # Split the longest axis; the vector axis stays the last one.
            sizes = [hint(a.size, 10**6) for a in self.inner]
            longest = self.inner[sizes.index(max(sizes))]
            if len(self.inner) > 1 and longest is not self.inner[-1]:
                rest = tuple(a for a in self.inner if a is not longest)
                self.inner = (longest, *rest)
            elif len(self.inner) > 1 and sizes[0] >= PARTS:
                longest = self.inner[0]
            self.split_axis = longest

    def print(self) -> None:
        body = self.body
        outer = [
            s for s in body.kernel.body if isinstance(s, Store) and s.level == "outer"
        ]
        passes = passes_of(body)
        if self.split_axis is None:
            self.kept = kept_values(body, passes)
        for index, step in enumerate(passes):
            later = [v for p in passes[index:] for v in p.roots]
            extra = [s.value for s in outer if body.needs(s.value) <= self.bound]
            extra = [
                v for v in extra if not body.is_trivial(v) and body.known(v) is None
            ]
            body.define((), [*body.hoist(later, self.bound), *extra])
            self._pass(step, [v for v, first in self.kept.items() if first == index])
        body.define([s.value for s in outer])
        for statement in outer:
            body.store(statement)

    def _pass(self, step: Pass, kept: list[Value]) -> None:
        body = self.body
        elements = self._arrays(kept)
        updates = updates_of(body, step, self.extremes)
        accumulators = [a for u in updates for a in u.plan.accumulators]
        if self.split_axis is None:
            for acc in accumulators:
                body.emit(f"{acc.c_type} {acc.name} = {acc.identity};")
            self._loops(step, updates, None, elements)
        else:
            self._split_pass(step, updates, accumulators)
        for value, element in elements.items():
            body.set(value, element)
        for update in updates:
            self._finish(update)
            self.bound |= {update.reduce.name} if update.ref is not None else set()

    def _arrays(self, kept: list[Value]) -> dict[Value, str]:
        """Declares an array for each value along the row; returns their elements.

        What some of the inner axes repeat (`x.repeat_interleave(2)`) has an element for all.
        """
        body, elements = self.body, {}
        for value in kept:
            axes = [a for a in body.kernel.inner if a.symbol in body.needs(value)]
            points = math.prod(hint(a.size) for a in axes)
            label = body.label(value).name
            name = body.fresh(
                label or f"{value.name}_row" if isinstance(value, Op) else "row"
            )
            body.emit(f"{ARRAYS[value.dtype]} {name}[{points}];")
            elements[value] = f"{name}[{body.index(position_in_row(body, axes)).text}]"
        return elements

    def _finish(self, update: Update) -> None:
        """Makes the result from the accumulators and names it."""
        body = self.body
        names = [a.name for a in update.plan.accumulators]
        text = update.plan.result.format(*names)
        label = body.label(update.reduce.ref)
        if text == update.name:
            if update.ref is not None:
                body.set(update.ref, update.name)
            return
        if update.name in names:
            body.emit(f"{update.name} = {text};", label.comment)
        else:
            dtype = update.reduce.value.dtype
            body.emit(
                f"const {VARIABLES[dtype]} {update.name} = {text};", label.comment
            )
        if update.ref is not None:
            body.set(update.ref, update.name)

    def _loops(
        self,
        step: Pass,
        updates: list[Update],
        part: tuple[str, str] | None,
        kept: Mapping[Value, str] | None = None,
    ) -> None:
        """The loops over the inner axes; `part` limits the axis that is split."""
        body = self.body
        bound = self.bound
        with contextlib.ExitStack() as stack:
            for axis in self.inner[:-1]:
                limits = part if part is not None and axis is self.split_axis else ()
                stack.enter_context(body.block(body.loop_head(axis, *limits)))
                bound |= {axis.symbol}
                body.define((), body.hoist(step.roots, bound))
            vector = self.inner[-1]
            if part is not None and vector is self.split_axis:
                self._vector(step, updates, part, kept)
            elif kept or not (found := self._pieces(step, updates)):
                self._vector(step, updates, (), kept)
            else:
                negative = body.printer.negative
                for piece in found:
                    body.inherit_labels(piece.same)
                    body.printer.negative = negative | {
                        piece.same[v] for v in negative if v in piece.same
                    }
                    limits = (body.size(piece.first), body.size(piece.last))
                    within, moved = _rewritten(step, updates, piece)
                    self._vector(within, moved, limits, None)
                body.printer.negative = negative

    def _vector(
        self,
        step: Pass,
        updates: list[Update],
        limits: tuple[()] | tuple[str, str],
        kept: Mapping[Value, str] | None,
    ) -> None:
        body = self.body
        body.pragma("simd" + _clauses(updates))
        with body.block(body.loop_head(self.inner[-1], *limits)):
            print_updates(body, step, updates, kept=kept)

    def _pieces(self, step: Pass, updates: list[Update]) -> Sequence[Piece]:
        """Pieces of the vector loop on which what indices ask has one answer; empty if one."""
        outputs = self.body.kernel.outputs
        stores = [Store(outputs[0], ZERO, u.value) for u in updates]
        axes = (*self.body.kernel.outer, *self.body.kernel.inner)
        ranges = {a.symbol: a.size for a in axes}
        found = pieces([*stores, *step.stores], self.inner[-1], ranges, SHORT)
        return found if len(found) > 1 else ()

    def _split_pass(
        self, step: Pass, updates: list[Update], accumulators: list[Accumulator]
    ) -> None:
        """A pass in `PARTS` parts, whose accumulators are merged in order."""
        body = self.body
        assert self.split_axis is not None
        size = body.index(self.split_axis.size)
        part, first, last = (body.fresh(n) for n in ("part", "first", "last"))
        held = {a.name: body.fresh(f"{a.name}_of") for a in accumulators}
        for acc in accumulators:
            body.emit(f"{acc.c_type} {held[acc.name]}[{PARTS}];")
        when = condition(body, self.schedule.work)
        if when is not None:
            body.pragma(f"parallel for{when}")
        with body.block(f"for (long {part} = 0; {part} < {PARTS}; ++{part})"):
            total = size.within(10)
            body.emit(f"const long {first} = {total} * {part} / {PARTS};")
            body.emit(f"const long {last} = {total} * ({part} + 1) / {PARTS};")
            for acc in accumulators:
                body.emit(f"{acc.c_type} {acc.name} = {acc.identity};")
            self._loops(step, updates, (first, last))
            for acc in accumulators:
                body.emit(f"{held[acc.name]}[{part}] = {acc.name};")
        for acc in accumulators:
            body.emit(f"{acc.c_type} {acc.name} = {acc.identity};")
        if accumulators:
            with body.block(f"for (long {part} = 0; {part} < {PARTS}; ++{part})"):
                for acc in accumulators:
                    body.emit(
                        acc.merge.format(acc=acc.name, v=f"{held[acc.name]}[{part}]")
                    )


def _rewritten(
    step: Pass, updates: list[Update], piece: Piece
) -> tuple[Pass, list[Update]]:
    """The pass as it is in a piece of its vector loop."""
    count = len(updates)
    moved = [
        replace(u, value=s.value)
        for u, s in zip(updates, piece.stores[:count], strict=True)
    ]
    reduces = [replace(r, value=piece.same.get(r.value, r.value)) for r in step.reduces]
    positions = [
        replace(r, value=piece.same.get(r.value, r.value)) for r in step.positions
    ]
    return Pass(reduces, positions, list(piece.stores[count:])), moved


def _clauses(updates: list[Update]) -> str:
    groups: dict[str, list[str]] = {}
    for update in updates:
        for acc in update.plan.accumulators:
            groups.setdefault(acc.clause, []).append(acc.name)
    return "".join(f" reduction({sign} : {', '.join(n)})" for sign, n in groups.items())
