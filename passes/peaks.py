"""How much memory a plan holds at once, beside what its graph would hold run one node at a time.

Before, in a graph whose products each take one multiple of `x`, two kernels that read `x` share
a loop, and one multiple waits while the product with the other is computed:

    group 0 over n      two, three
    group 1             aten.mm.default(two, w)
    group 2             aten.mm.default(three, w)

After, if that is more at once than eager holds (`passes.grouping.plan` plans again):

    group 0 over n      two
    group 1             aten.mm.default(two, w)
    group 3 over n      three
    group 2             aten.mm.default(three, w)

What inputs and constants take is not counted: it is the same either way. What a backward graph
is given that nobody else holds is: it goes when it was last read. Eager is given everything that
the graph computes from such values alone and then reads with tangents, too. Symbolic sizes are
taken to be one large number each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from .definitions import EXTERN, MAP, SOURCE, VIEW, Definition, Lowered
from .loops import Expr

if TYPE_CHECKING:
    from .groups import Plan

Step = tuple[Sequence[Definition], Iterable[Definition]]
"""What one step puts into memory, and what it reads."""


def amount(size: Expr) -> float:
    """A number to compare sizes by; a symbol counts as large."""
    if size.is_Integer:
        return float(size)
    return float(size.xreplace(dict.fromkeys(size.free_symbols, 4096)))


def planned_peak(
    plan: Plan, places: Mapping[Definition, Definition] | None = None
) -> float:
    """The most bytes that the groups of a plan hold, run in order.

    Args:
        plan: The plan.
        places: What lies in the memory of another, from the first of them on.
    """
    made: dict[int, list[Definition]] = {}
    for d in plan.lowered.definitions:
        group = plan.home.get(d)
        if group is not None and (d.kind == EXTERN or d in plan.stored):
            made.setdefault(group.number, []).append(d)
    steps = [(made.get(g.number, ()), g.reads) for g in plan.groups]
    given = {d for d in plan.lowered.definitions if _saved(d) == "alone"}
    return _peak(plan.lowered, steps, places or {}, given)


def eager_peak(
    lowered: Lowered, read: Callable[[Definition], Iterable[Definition]]
) -> float:
    """The most bytes that a graph holds if each node writes its result to memory.

    Args:
        lowered: The graph's definitions.
        read: What the computation of a definition reads.
    """
    made = [d for d in lowered.definitions if d.computed or d.kind == EXTERN]
    given = {d for d in lowered.definitions if _saved(d) is not None}
    if not given:
        return _peak(lowered, [((d,), tuple(read(d))) for d in made], {})
    early = set(given)
    steps: list[Step] = []
    for d in lowered.definitions:
        operands = tuple(read(d)) if d.kind != SOURCE else ()
        if operands and all(_base(o) in early for o in operands):
            early.add(d)
        elif d.computed or d.kind == EXTERN:
            steps.append(((d,), operands))
    wanted = {_base(o) for _, operands in steps for o in operands} & early
    held = {d for d in wanted if _saved(d) != "shared"}
    return _peak(lowered, steps, {}, held)


def running_totals(lowered: Lowered) -> set[Definition]:
    """What is computed between calls from two or more results of calls that die there.

    In `y = a @ b + c @ d + e @ f`, the first sum: kept in memory it takes the place of two
    products that would wait for the third one.
    """
    readers: dict[Definition, list[Definition]] = {}
    calls: list[int] = []
    waiting: set[Definition] = set()
    for d in lowered.definitions:
        for operand in d.operands:
            readers.setdefault(operand, []).append(d)
        if d.kind == EXTERN:
            calls.append(d.position)
            for node in d.node.all_input_nodes:
                value = lowered.values[node]
                if isinstance(value, Definition):
                    readers.setdefault(value, []).append(d)
    last = {d: max(r.position for r in found) for d, found in readers.items()}
    found: set[Definition] = set()
    for d in lowered.definitions:
        large = [
            o for o in d.operands if o in waiting and amount(o.numel) >= amount(d.numel)
        ]
        if d.kind == EXTERN or (d.computed and large):
            waiting.add(d)
        if d.kind != MAP or d not in last:
            continue
        dying = [o for o in large if last[o] == d.position]
        between = bisect_right(calls, d.position) < bisect_left(calls, last[d])
        if len(dying) > 1 and between:
            found.add(d)
    return found


def _saved(d: Definition) -> str | None:
    """Whether a backward graph is given it, "alone" or "shared" with others that hold it."""
    found: str | None = d.node.meta.get("saved") if d.kind == SOURCE else None
    return found


def _peak(
    lowered: Lowered,
    steps: Sequence[Step],
    places: Mapping[Definition, Definition],
    given: Iterable[Definition] = (),
) -> float:
    def memory(d: Definition) -> Definition:
        return places.get(_base(d), _base(d))

    last: dict[Definition, int] = {}
    for number, (made, read) in enumerate(steps):
        for d in (*made, *read):
            last[memory(d)] = number
    for result in lowered.results:
        if isinstance(result, Definition):
            last[memory(result)] = len(steps)
    freed: dict[int, list[Definition]] = {}
    for d, number in last.items():
        freed.setdefault(number, []).append(d)
    held = set(given)
    now = peak = sum(map(_bytes, held))
    inputs = {d for d in last if d.kind == SOURCE} - held
    for number, (made, _) in enumerate(steps):
        new = {memory(d) for d in made} - held - inputs
        held.update(new)
        now += sum(map(_bytes, new))
        peak = max(peak, now)
        now -= sum(_bytes(d) for d in freed.get(number, ()) if d in held)
    return peak


def _bytes(d: Definition) -> float:
    """What it takes in memory of its own."""
    return 0.0 if d.addition else amount(d.bytes)


def _base(definition: Definition) -> Definition:
    while definition.kind == VIEW or definition.added:
        if definition.summed:
            definition = definition.summed.start
        else:
            definition = definition.accesses[0].operand
    return definition
