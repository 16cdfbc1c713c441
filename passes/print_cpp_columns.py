"""Prints reductions over an axis that jumps through memory: a block of columns at once.

#pragma omp parallel for
for (long j_block = 0; j_block < 71; j_block += 16) {
    const long width = smaller(16, 71 - j_block);
    double total_acc[16];
    for (long lane = 0; lane < width; ++lane) total_acc[lane] = 0.0;
    for (long k = 0; k < 133; ++k) {
        #pragma omp simd
        for (long lane = 0; lane < width; ++lane) {
            const long j = j_block + lane;
            total_acc[lane] += x[71 * k + j];
        }
    }
    …
}
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .loops import Op, Reduce, Store, Value
from .print_cpp_body import Body
from .print_cpp_parallel import condition
from .print_cpp_passes import Pass, Update, passes_of, print_updates, updates_of
from .print_cpp_reduce import Accumulator
from .print_cpp_schedule import PARTS, Schedule, is_multiple
from .print_cpp_values import ARRAYS, VARIABLES


def print_columns(body: Body, schedule: Schedule) -> None:
    """Emits a kernel of shape `COLUMNS`."""
    *loops, column = schedule.outer
    lanes, j = schedule.lanes, body.symbols[column.symbol]
    block = body.fresh(f"{j}_block")
    size = body.size(column.size)
    with contextlib.ExitStack() as stack:
        when = condition(body, schedule.work)
        if when is not None and not schedule.parts:
            collapse = f" collapse({len(loops) + 1})" if loops else ""
            body.pragma(f"parallel for{collapse}{when}")
        for axis in loops:
            stack.enter_context(body.block(body.loop_head(axis)))
        head = f"for (long {block} = 0; {block} < {size}; {block} += {lanes})"
        stack.enter_context(body.block(head))
        width = str(lanes)
        if not is_multiple(column.size, lanes):
            width = body.fresh("width")
            body.emit(f"const long {width} = smaller({lanes}, {size} - {block});")
        bound = frozenset(a.symbol for a in loops)
        body.define((), body.hoist([s.value for s in body.kernel.body], bound))
        _Columns(body, schedule, block, width).print()


class _Columns:
    """Prints what happens to one block of columns."""

    def __init__(self, body: Body, schedule: Schedule, block: str, width: str) -> None:
        self.body = body
        self.schedule = schedule
        self.lanes, self.width, self.block = schedule.lanes, width, block
        self.column = body.symbols[schedule.outer[-1].symbol]
        self.lane = body.fresh("lane")
        self.bound: frozenset[object] = frozenset(a.symbol for a in schedule.outer)
        self.extremes: dict[str, str] = {}

    @contextlib.contextmanager
    def _each_lane(self) -> Iterator[None]:
        body, lane = self.body, self.lane
        body.pragma("simd")
        with body.block(self._lane_head()):
            body.emit(f"const long {self.column} = {self.block} + {lane};")
            yield

    def print(self) -> None:
        """Emits the passes, and the outer stores behind them."""
        body = self.body
        outer = [
            s for s in body.kernel.body if isinstance(s, Store) and s.level == "outer"
        ]
        passes = passes_of(body)
        for index, step in enumerate(passes):
            later = [v for p in passes[index:] for v in p.roots]
            early = [s.value for s in outer if body.needs(s.value) <= self.bound]
            self._keep([*early, *body.hoist(later, self.bound)])
            self._pass(step)
        if outer:
            with self._each_lane():
                body.define([s.value for s in outer])
                for statement in outer:
                    body.store(statement)

    def _keep(self, values: list[Value]) -> None:
        """Arrays of what depends on the column alone, so that no row computes it again."""
        body = self.body
        values = [v for v in dict.fromkeys(values) if isinstance(v, Op)]
        values = [v for v in values if not body.is_trivial(v) and body.known(v) is None]
        if not values:
            return
        names = [body.fresh(body.hint(v)) for v in values]
        for value, name in zip(values, names, strict=True):
            body.emit(f"{ARRAYS[value.dtype]} {name}[{self.lanes}];")
        with self._each_lane():
            body.define(values)
            for value, name in zip(values, names, strict=True):
                text = body.printer.of(value).text
                body.emit(f"{name}[{self.lane}] = {text};", body.label(value).comment)
        for value, name in zip(values, names, strict=True):
            body.set(value, f"{name}[{self.lane}]")

    def _pass(self, step: Pass) -> None:
        body, lane = self.body, f"[{self.lane}]"
        updates = updates_of(body, step, self.extremes, lane)
        accumulators = [a for u in updates for a in u.plan.accumulators]
        if self.schedule.parts:
            self._split_pass(step, updates, accumulators)
        else:
            self._start(accumulators)
            self._loops(step, updates, ())
        self._finish(updates)

    def _start(self, accumulators: list[Accumulator]) -> None:
        """Declares an array for each accumulator and fills it with the identity."""
        body = self.body
        for acc in accumulators:
            body.emit(f"{acc.c_type} {acc.name}[{self.lanes}];")
        if accumulators:
            with body.block(self._lane_head()):
                for acc in accumulators:
                    body.emit(f"{acc.name}[{self.lane}] = {acc.identity};")

    def _loops(
        self, step: Pass, updates: list[Update], limits: tuple[str, ...]
    ) -> None:
        """The loops over rows; `limits` are those of the first one."""
        body, bound = self.body, self.bound
        with contextlib.ExitStack() as stack:
            for axis in self.schedule.inner:
                own = limits if axis is self.schedule.inner[0] else ()
                stack.enter_context(body.block(body.loop_head(axis, *own)))
                bound |= {axis.symbol}
            rows = frozenset(bound) - {self.schedule.outer[-1].symbol}
            rows -= {s.name for s in body.kernel.body if isinstance(s, Reduce)}
            body.define((), body.hoist(step.roots, rows))
            with self._each_lane():
                print_updates(body, step, updates, f"[{self.lane}]")

    def _split_pass(
        self, step: Pass, updates: list[Update], accumulators: list[Accumulator]
    ) -> None:
        """A pass over many rows of few columns, in parts that are merged in order."""
        body, lane = self.body, f"[{self.lane}]"
        size = body.index(self.schedule.inner[0].size).within(10)
        part, first, last = (body.fresh(n) for n in ("part", "first", "last"))
        each_part = f"for (long {part} = 0; {part} < {PARTS}; ++{part})"
        held = {a.name: body.fresh(f"{a.name}_of") for a in accumulators}
        for acc in accumulators:
            body.emit(f"{acc.c_type} {held[acc.name]}[{PARTS}][{self.lanes}];")
        when = condition(body, self.schedule.work)
        if when is not None:
            body.pragma(f"parallel for{when}")
        with body.block(each_part):
            body.emit(f"const long {first} = {size} * {part} / {PARTS};")
            body.emit(f"const long {last} = {size} * ({part} + 1) / {PARTS};")
            self._start(accumulators)
            self._loops(step, updates, (first, last))
            if accumulators:
                with body.block(self._lane_head()):
                    for acc in accumulators:
                        target = f"{held[acc.name]}[{part}]{lane}"
                        body.emit(f"{target} = {acc.name}{lane};")
        self._start(accumulators)
        if accumulators:
            with body.block(each_part), body.block(self._lane_head()):
                for acc in accumulators:
                    other = f"{held[acc.name]}[{part}]{lane}"
                    body.emit(acc.merge.format(acc=acc.name + lane, v=other))

    def _lane_head(self) -> str:
        lane = self.lane
        return f"for (long {lane} = 0; {lane} < {self.width}; ++{lane})"

    def _finish(self, updates: list[Update]) -> None:
        """Makes the results from the accumulators."""
        body, lane = self.body, f"[{self.lane}]"
        wanted = []
        for update in updates:
            names = [a.name + lane for a in update.plan.accumulators]
            text = update.plan.result.format(*names)
            if text != update.name + lane:
                wanted.append((update, text))
            if update.ref is not None:
                self.bound |= {update.reduce.name}
                body.set(update.ref, update.name + lane)
        for update, _ in wanted:
            if update.name not in [a.name for a in update.plan.accumulators]:
                dtype = VARIABLES[update.reduce.value.dtype]
                body.emit(f"{dtype} {update.name}[{self.lanes}];")
        if wanted:
            head = (
                f"for (long {self.lane} = 0; {self.lane} < {self.width}; ++{self.lane})"
            )
            with body.block(head):
                for update, text in wanted:
                    comment = body.label(update.reduce.ref).comment
                    body.emit(f"{update.name}{lane} = {text};", comment)
