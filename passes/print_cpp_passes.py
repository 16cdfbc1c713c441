"""Distributes the statements of a reduction kernel over passes over its inner axes.

    layer norm:   pass 0: total       pass 1: squares (uses total)      pass 2: store y

An `argmax` takes two passes: the extreme value, then the first position that has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sympy

from .loops import Axis, Expr, IndexValue, Load, Op, Reduce, Ref, Store, Value, walk
from .print_cpp_body import Body
from .print_cpp_reduce import Accumulator, Plan, plan
from .print_cpp_schedule import hint
from .print_cpp_values import EXPENSIVE
from .rounding import LOW_PRECISION


@dataclass
class Update:
    """One reduction in one pass: its accumulators take `value` at each point."""

    reduce: Reduce
    value: Value
    plan: Plan
    name: str
    ref: Ref | None
    """The value that the result stands for; None for the extreme value of an argmax."""


@dataclass
class Pass:
    """What one loop over the inner axes does."""

    reduces: list[Reduce] = field(default_factory=list)
    positions: list[Reduce] = field(default_factory=list)
    """argmax and argmin whose extreme value is known: their second halves."""
    stores: list[Store] = field(default_factory=list)

    @property
    def roots(self) -> list[Value]:
        """Values that the loop computes."""
        reduces = [*self.reduces, *self.positions]
        return [s.value for s in reduces] + [s.value for s in self.stores]


def passes_of(body: Body) -> list[Pass]:
    """Distributes reductions and inner stores over as few passes as their results allow."""
    ready: dict[object, int] = {}
    passes: list[Pass] = []

    def at(index: int) -> Pass:
        while len(passes) <= index:
            passes.append(Pass())
        return passes[index]

    last_load: dict[str, int] = {}
    stores: list[tuple[int, Store]] = []
    for statement in body.kernel.body:
        if isinstance(statement, Store) and statement.level == "outer":
            continue
        index = max((ready.get(n, 0) for n in body.needs(statement.value)), default=0)
        if isinstance(statement, Reduce):
            at(index).reduces.append(statement)
            last = index
            if statement.kind.startswith("arg"):
                at(index + 1).positions.append(statement)
                last = index + 1
            ready[statement.name] = last + 1
            _note_loads(body, statement.value, last, last_load)
        else:
            stores.append((index, statement))
            _note_loads(body, statement.value, index, last_load)
    for index, statement in stores:
        # What later passes still read must not be overwritten before.
        at(max(index, last_load.get(statement.buffer.name, 0))).stores.append(statement)
    return passes


def _note_loads(body: Body, value: Value, index: int, last: dict[str, int]) -> None:
    for v in walk([value]):
        if isinstance(v, Load):
            last[v.buffer.name] = max(last.get(v.buffer.name, 0), index)


def updates_of(
    body: Body, step: Pass, extremes: dict[str, str], lane: str = ""
) -> list[Update]:
    """The accumulators of one pass.

    `extremes` remembers the variables of extreme values for the pass that looks for their
    positions; `lane` is what stands behind every accumulator (`[lane]`), or nothing.
    """
    updates = []
    wide = bool(lane) or not _half_precision(body)
    for reduce in step.reduces:
        is_arg = reduce.kind.startswith("arg")
        kind = reduce.kind.removeprefix("arg")
        name = body.fresh(f"{reduce.name}_value" if is_arg else reduce.name)
        ref = None if is_arg else reduce.ref
        updates.append(
            Update(reduce, reduce.value, plan(reduce, kind, name, wide=wide), name, ref)
        )
        if is_arg:
            extremes[reduce.name] = name + lane
    for reduce in step.positions:
        name = body.fresh(reduce.name)
        position = body.index(position_in_row(body)).text
        extreme = extremes[reduce.name]
        same = f"{{v}} == {extreme}"
        if reduce.value.dtype.is_floating_point:
            same = f"({same} || ({{v}} != {{v}} && {extreme} != {extreme}))"
        update = f"{{acc}} = {same} && {position} < {{acc}} ? {position} : {{acc}};"
        merge = "{acc} = smaller({acc}, {v});"
        acc = Accumulator(name, "long", "9223372036854775807", "min", update, merge)
        updates.append(
            Update(reduce, reduce.value, Plan((acc,), "{0}"), name, reduce.ref)
        )
    return updates


_SHORT_ROW = 65536
"""Elements of a row whose sum in float, a vector lane each, is good to 16 bits and more."""


def _half_precision(body: Body) -> bool:
    """Whether rows are short and every result is rounded to half precision."""
    points = math.prod(hint(a.size, _SHORT_ROW + 1) for a in body.kernel.inner)
    outputs = body.kernel.outputs
    return points <= _SHORT_ROW and all(b.dtype in LOW_PRECISION for b in outputs)


def position_in_row(body: Body, axes: Sequence[Axis] | None = None) -> Expr:
    """Row-major position over the kernel's inner axes, or over some of them."""
    position: Expr = sympy.Integer(0)
    for axis in body.kernel.inner if axes is None else axes:
        position = position * axis.size + axis.symbol
    return sympy.expand(position)


_ROW_LIMIT = 16384
"""Elements of a row that may be kept on the stack (64 kB of floats)."""


def kept_values(body: Body, passes: list[Pass]) -> dict[Value, int]:
    """Dear values that several passes need at each point, and the first pass that does.

    They are kept in an array as long as the row: a softmax computes each `exp` once.
    """
    inner = {a.symbol for a in body.kernel.inner}
    points = math.prod(hint(a.size, _ROW_LIMIT + 1) for a in body.kernel.inner)
    if points > _ROW_LIMIT:
        return {}
    seen: dict[Value, list[int]] = {}
    for index, step in enumerate(passes):
        for value in walk(step.roots):
            if isinstance(value, Op) and body.needs(value) & inner:
                seen.setdefault(value, []).append(index)
    kept: dict[Value, int] = {}
    covered: dict[Value, int] = {}
    for value in reversed(list(walk(v for p in passes for v in p.roots))):
        if not isinstance(value, Op) or value.name not in EXPENSIVE:
            continue
        # What lies below a kept value is wanted up to the pass that computes that.
        until = covered.get(value, len(passes))
        if len([index for index in seen.get(value, ()) if index <= until]) > 1:
            kept[value] = seen[value][0]
            for v in walk([value]):
                covered[v] = min(covered.get(v, len(passes)), kept[value])
    return dict(reversed(kept.items()))


def print_updates(
    body: Body,
    step: Pass,
    updates: list[Update],
    lane: str = "",
    kept: Mapping[Value, str] | None = None,
) -> None:
    """Emits what one pass does at one point; `kept` values go to those elements."""
    # An update that names its value more than once wants a variable.
    keep = [
        u.value
        for u in updates
        if sum(a.update.count("{v}") for a in u.plan.accumulators) > 1
        and not isinstance(u.value, IndexValue)
    ]
    keep += list(kept or ())
    body.define(step.roots, [v for v in keep if body.known(v) is None])
    for value, element in (kept or {}).items():
        body.emit(f"{element} = {body.printer.of(value).text};")
    for update in updates:
        text = body.printer.of(update.value)
        for acc in update.plan.accumulators:
            body.emit(acc.update.format(acc=acc.name + lane, v=text.within(3)))
    for statement in step.stores:
        body.store(statement)
