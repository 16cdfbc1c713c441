"""Reuse: what is computed from a temporary that nothing reads afterwards takes its memory.

Before, what the host of `y = x @ w; y.relu_(); y.cumsum_(0)` does:

    mm = torch.mm(x, w)
    relu_kernel(mm, relu)                               a second matrix
    cumsum = torch.cumsum(relu, 0)                      a third one

After:

    mm = torch.mm(x, w)
    relu_kernel(mm)                                     relu is mm
    torch.ops.aten.cumsum_.default(relu.data, 0)        cumsum is relu

So a segment holds no more than eager does where the program works in place, and less
where it does not. A kernel may write where it reads each element only at the point that
writes it; an extern call has to have a form that works in place. A temporary is memory
that the segment made and that no view, result or later step shows; so is an input whose new
values the segment computes, from the last step on that reads the old ones.

NOTE: `data` has a version of its own: eager has counted the writes that the program does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import _ops, fx

from .attention_form import Attention
from .crossed_form import Crossed
from .definitions import EXTERN, SOURCE, VIEW, Definition, Lowered
from .groups import base_of, start_of
from .in_place import Targets, is_wanted_apart, safe
from .loops import Kernel, Statement, Store
from .partition import is_random
from .placement import alike, without_moves
from .plans import ATenGraph
from .points import memory
from .schedule import Attend, Call, Launch, Schedule, Summed
from .spelling import FILLING, VIEWS_OF_PARTS, in_place_form, out_form

Step = Launch | Call
Nest = Kernel | Crossed
Found = dict[Definition, Definition]


def reuse(
    graph: ATenGraph,
    schedule: Schedule,
    *,
    results: bool = True,
    mutations: Targets | None = None,
) -> Schedule:
    """Returns the schedule with what may be written in place written in place.

    Args:
        graph: What the schedule computes.
        schedule: The steps.
        results: Whether results may lie in such memory; not where the caller gives it.
        mutations: Results that are to be copied into inputs and wanted nowhere else.
    """
    lowered = schedule.lowered
    wanted = {
        start_of(d): source
        for d, source in (mutations or {}).items()
        if results
        and source not in schedule.in_place.values()
        and not is_wanted_apart(d, lowered)
    }
    inputs = {d.name: d for d in wanted.values() if not _repeats(d)}
    last = last_uses(graph, schedule, frozenset(inputs))
    owned = {d.name: d for d in lowered.definitions if _owns(d, schedule)} | inputs
    nodes = [r for r in graph.results if isinstance(r, fx.Node) and not results]
    own = {name for node in nodes for name in memory_of(node, schedule)}
    shown = {
        name
        for r in graph.results
        if isinstance(r, fx.Node)
        for name in memory_of(r, schedule)
    }
    sums = [s for s in schedule.steps if isinstance(s, Summed)]
    for names in (own, shown):
        names.update(s.start.name for s in reversed(sums) if s.result.name in names)
    stored = {d.name: d for d in schedule.stored if d.name not in own}
    made: dict[str, int] = dict.fromkeys(inputs, -1)
    steps: list[Step] = []
    place: dict[str, str] = {}

    def is_idle(source: Definition, number: int) -> bool:
        """Whether what lies in an input's memory is not used at a step or behind it."""
        held = (n for n in place if _end(n, place) == source.name)
        return last.get(source.name, -1) < number and all(
            last.get(n, number) < number for n in held
        )

    def fits(d: Definition, source: Definition) -> bool:
        """Whether a value may lie where another does: no result in an input's memory."""
        home = inputs.get(_end(source.name, place))
        return home is None or d.name not in shown or wanted.get(d) is home

    for number, step in enumerate(schedule.steps):
        dying = [
            owned[n]
            for n, at in last.items()
            if at == number and made.get(n, number) < number and n in owned
        ]
        new = {n: d for n, d in stored.items() if n not in made}
        made.update(dict.fromkeys(names_made(step, schedule), number))
        if isinstance(step, Launch) and not isinstance(step.kernel, Attention):
            kernel, found = _within(step.kernel, dying, new, fits)
            idle = {d: s for d, s in wanted.items() if is_idle(s, number)}
            kernel, more = _into(kernel, idle, new)
            found |= more
            step = replace(step, kernel=kernel, reused=found)
            place.update({d.name: source.name for d, source in found.items()})
        elif isinstance(step, Summed):
            place[step.result.name] = step.start.name
        elif type(step) is not Call or step.place is not None:
            pass
        elif dying and _works_in_place(step.node, dying, schedule, fits):
            step = replace(step, in_place=True)
            (made_there,) = names_made(step, schedule)
            first = step.node.args[0]
            assert isinstance(first, fx.Node)
            place[made_there] = memory_of(first, schedule)[0]
        else:
            out = _out(step.node, wanted, lowered)
            out = out or _on_the_way(step.node, number, schedule, wanted, last)
            if out and all(is_idle(d, number) for d in out):
                step = replace(step, out=out)
                place.update(zip(names_made(step, schedule), (d.name for d in out)))
        steps.append(step)
    landed = {
        d: source for d, source in wanted.items() if _end(d.name, place) == source.name
    }
    return replace(schedule, steps=tuple(steps), landed=landed)


def _end(name: str, place: Mapping[str, str]) -> str:
    """The memory that a chain of values in each other's memory lies in."""
    while name in place:
        name = place[name]
    return name


def last_uses(
    graph: ATenGraph, schedule: Schedule, released: frozenset[str] = frozenset()
) -> dict[str, int]:
    """Temporary -> number of the last step that uses it, for those that can be freed.

    Args:
        graph: What the schedule computes.
        schedule: The steps.
        released: Inputs that nobody else may hold, so that they can be freed.
    """
    produced: dict[str, int] = dict.fromkeys(released, -1)
    last: dict[str, int] = {}
    shown: list[tuple[list[str], list[str]]] = []
    kept = {n.name for n in graph.placeholders} - released
    for result in graph.results:
        if isinstance(result, fx.Node):
            kept.update(memory_of(result, schedule))
    for number, step in enumerate(schedule.steps):
        made = names_made(step, schedule)
        if isinstance(step, Attend):
            used = [o.definition.name for o in step.library.operands]
        elif isinstance(step, Summed):
            used = [step.start.name]
        elif isinstance(step, Call):
            operands = step.node.all_input_nodes
            used = [n for a in operands for n in memory_of(a, schedule)]
            if may_alias(step.node):
                shown.append((made, used))
        else:
            used = [b.name for b in (*step.kernel.inputs, *step.kernel.outputs)]
            used += [source.name for source in step.reused.values()]
            made += [d.name for d in step.reused]
        for name in made:
            produced.setdefault(name, number)
        for name in (*used, *made):
            last[name] = number
    for made, used in reversed(shown):
        for name in used:
            last[name] = max(last[n] for n in (name, *made))
        if kept.intersection(made):
            kept.update(used)
    return {n: at for n, at in last.items() if n in produced and n not in kept}


def names_made(step: Step, schedule: Schedule) -> list[str]:
    """Names of the memory that a step writes."""
    if isinstance(step, Launch):
        return [b.name for b in step.kernel.outputs]
    if step.place is not None:
        return [step.place.memory.name]
    value = schedule.lowered.values[step.node]
    parts = value if isinstance(value, tuple) else (value,)
    return [d.name for d in parts if isinstance(d, Definition)]


def memory_of(node: fx.Node, schedule: Schedule) -> list[str]:
    """Names of the memory that a node's value lives in."""
    value = schedule.lowered.values[node]
    parts = value if isinstance(value, tuple | list) else (value,)
    bases = [base_of(d) for d in parts if isinstance(d, Definition)]
    places = schedule.places
    return [(places[d].memory if d in places else d).name for d in bases]


def may_alias(node: fx.Node) -> bool:
    """True if an extern call's result may share memory with its operands."""
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)


def _owns(d: Definition, schedule: Schedule) -> bool:
    """True for a temporary that is sure to have memory of its own, each element once."""
    if d.kind in (SOURCE, VIEW) or _repeats(d):
        return False
    if d.kind != EXTERN:
        return d in schedule.stored
    schema = getattr(d.node.target, "_schema", None)
    if schema is None or may_alias(d.node) or "unsafe" in schema.name:
        return False
    single = schedule.lowered.values.get(d.node) is d
    return single and schema.name.startswith("aten::")


def _repeats(d: Definition) -> bool:
    """True if elements share one place in memory."""
    return any(s == 0 and n != 1 for n, s in zip(d.size, d.stride, strict=True))


# ── kernels ───────────────────────────────────────────────────────────────────────────────


def _within(
    kernel: Nest,
    dying: Iterable[Definition],
    stored: Mapping[str, Definition],
    fits: Callable[[Definition, Definition], bool],
) -> tuple[Nest, Found]:
    """The kernel with results in the memory of what it reads for the last time."""
    found: Found = {}
    inputs = {b.name for b in kernel.inputs}
    outputs = {b.name for b in kernel.outputs}
    for source in dying:
        if source.name not in inputs or source.name in outputs:
            continue
        for buffer in kernel.outputs:
            d = stored.get(buffer.name)
            if (
                d is None
                or d.name in inputs  # it is added to what is there
                or d in found.values()
                or not alike(d, source)
                or not fits(d, source)
            ):
                continue
            moved = _renamed(kernel, d, source)
            if safe(moved, source.name):
                kernel, found[d] = _without_copy(moved, source), source
                break
    return kernel, found


def _without_copy(kernel: Nest, target: Definition) -> Nest:
    """The kernel without a copy of what lies there already; it may have no work left."""
    if isinstance(kernel, Crossed):
        return kernel
    kernel = without_moves(kernel, {target.name})
    return kernel if kernel.outputs else replace(kernel, body=())


def _into(
    kernel: Nest, idle: Targets, stored: Mapping[str, Definition]
) -> tuple[Nest, Found]:
    """The kernel with results in the inputs they are for, which nothing reads any more."""
    found: Found = {}
    for buffer in kernel.outputs:
        d = stored.get(buffer.name)
        if buffer in kernel.inputs:
            continue
        if d is not None and d in idle and alike(d, idle[d]):
            kernel, found[d] = _renamed(kernel, d, idle[d]), idle[d]
    return kernel, found


def _renamed(kernel: Nest, d: Definition, source: Definition) -> Nest:
    """The kernel that stores `d` into the memory of `source`, behind all other statements."""
    if isinstance(kernel, Crossed):
        rows = _with_late_stores(kernel.rows, d, source)
        columns = _with_late_stores(kernel.columns, d, source)
        return replace(kernel, rows=rows, columns=columns)
    return _with_late_stores(kernel, d, source)


def _with_late_stores(kernel: Kernel, d: Definition, source: Definition) -> Kernel:
    early: list[Statement] = []
    late: list[Statement] = []
    for statement in kernel.body:
        if isinstance(statement, Store) and statement.buffer.name == d.name:
            late.append(replace(statement, buffer=memory(source)))
        else:
            early.append(statement)
    return replace(kernel, body=(*early, *late))


# ── calls ─────────────────────────────────────────────────────────────────────────────────


def _works_in_place(
    node: fx.Node,
    dying: Iterable[Definition],
    schedule: Schedule,
    fits: Callable[[Definition, Definition], bool],
) -> bool:
    """True if a call may write its result over its first operand."""
    target: Any = node.target
    name = getattr(target, "_schema", target).name.partition("::")[2]
    lowered = schedule.lowered
    value = lowered.values[node]
    if (
        not isinstance(target, _ops.OpOverload)
        or target.namespace != "aten"
        or not isinstance(value, Definition)
        or not node.args
        or not isinstance(node.args[0], fx.Node)
        or (is_random(node) and name not in FILLING)
        or may_alias(node)
    ):
        return False
    source = lowered.values[node.args[0]]
    if not isinstance(source, Definition) or source not in dying:
        return False
    if not alike(value, source) or _given_again(node, source, schedule):
        return False
    if not fits(value, source):
        return False
    return name in VIEWS_OF_PARTS or in_place_form(target) is not None


def _out(node: fx.Node, wanted: Targets, lowered: Lowered) -> tuple[Definition, ...]:
    """The inputs that all results of a call are to go into, if it can write them there."""
    value = lowered.values[node]
    results = value if isinstance(value, tuple) else (value,)
    found = tuple(wanted[d] for d in results if d in wanted)
    fitting = all(alike(d, wanted[d]) for d in results if d in wanted)
    if not fitting or len({*found}) < len(results) or out_form(node.target) is None:
        return ()
    return () if is_random(node) or any(map(_repeats, found)) else found


def _on_the_way(
    node: fx.Node,
    number: int,
    schedule: Schedule,
    wanted: Targets,
    last: Mapping[str, int],
) -> tuple[Definition, ...]:
    """The input that the result of a call is on the way to, if it can write it there.

    That is one that a step computes which reads the result as the last.
    """
    d = schedule.lowered.values[node]
    if not isinstance(d, Definition) or out_form(node.target) is None:
        return ()
    following = last.get(d.name, number)
    if following == number or is_random(node) or not _owns(d, schedule):
        return ()
    made = names_made(schedule.steps[following], schedule)
    found = [s for r, s in wanted.items() if r.name in made and alike(d, s)]
    return () if len(found) != 1 or _repeats(found[0]) else (found[0],)


def _given_again(node: fx.Node, source: Definition, schedule: Schedule) -> bool:
    """True if the memory of the first operand is that of another one, too."""
    found: list[fx.Node] = []
    fx.node.map_arg((node.args[1:], node.kwargs), found.append)
    return any(source.name in memory_of(n, schedule) for n in found)
