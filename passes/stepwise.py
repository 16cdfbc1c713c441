"""The operations of a segment as steps: before each that may raise, and at each effect.

    a = torch.sin(x)          step 0: sin; behind it, log.append(a)
    log.append(a)
    y = a[i] * 2              step 1: getitem, which may raise, and mul; then log.append(y)
    log.append(y)

A compiled segment changes nothing before all of it is computed, so that what it was to do
can be done again as Python does it: up to the operation that raises, on the user's line,
with what the program does in between. `passes.closing` writes the lines that do so. Where a
segment cannot promise that, the steps themselves are the program.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from srcjit.origin import Origin

from .evaluate.raising import Facts
from .evaluate.values import TensorValue, Value
from .graph_modules import graph_module
from .program import Segment

if TYPE_CHECKING:
    from .evaluate.builder import SegmentBuilder
    from .evaluate.evaluator import Effect

_SET_GRAD = torch._C._set_grad_enabled
_ENTER = torch.amp.autocast_mode._enter_autocast
_EXIT = torch.amp.autocast_mode._exit_autocast


@dataclass(eq=False)
class Step:
    """Operations without an effect of the program between them.

    Attributes:
        nodes: The operations; only the first may raise.
        effects: What the program does behind them.
        modes: The grad mode and the autocast regions that they begin in.
    """

    nodes: list[fx.Node] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    modes: tuple[bool | None, tuple[fx.Node, ...]] = (None, ())

    @property
    def risky(self) -> bool:
        """Whether one of its operations may raise."""
        return any(is_risky(node) for node in self.nodes)


def operations(builder: SegmentBuilder) -> list[fx.Node]:
    """The operations of the open segment, in order."""
    return [n for n in builder.graph.nodes if n.op not in ("placeholder", "output")]


def facts(node: fx.Node) -> Facts:
    """What an operation may do besides computing its result."""
    return node.meta.get("facts") or _NOTHING


_NOTHING = Facts()


def is_risky(node: fx.Node) -> bool:
    """Whether the operation may raise when it runs."""
    return facts(node).risky


def is_mode(node: fx.Node) -> bool:
    """Whether the operation only sets a mode for those behind it."""
    return node.target in (_SET_GRAD, _ENTER, _EXIT)


def must_run(node: fx.Node) -> bool:
    """Whether the operation does more than to compute a value that nobody may want."""
    found = facts(node)
    return found.risky or found.draws or found.writes or bool(node.meta.get("writes"))


def is_observable(node: fx.Node) -> bool:
    """Whether an operation writes to memory."""
    return facts(node).writes or bool(node.meta.get("writes"))


def merged(parts: Sequence[Step], writes: bool = False) -> list[Step]:
    """Joins steps as far as it cannot be told in which order their parts happen.

    Args:
        parts: The steps.
        writes: Whether a step's writes are to have happened when the next one raises.
    """
    found: list[Step] = []
    for part in parts:
        last = found[-1] if found else None
        apart = last is None or (
            part.risky
            and (
                bool(last.effects)
                or last.risky
                or (writes and any(must_run(node) for node in last.nodes))
            )
        )
        if last is None or apart:
            found.append(Step([*part.nodes], [*part.effects], part.modes))
        else:
            if not last.nodes:
                last.modes = part.modes
            last.nodes += part.nodes
            last.effects += part.effects
    return found


def steps(nodes: Sequence[fx.Node], effects: Iterable[Effect]) -> list[Step]:
    """Cuts operations before each one that may raise and at each effect between them."""
    inside = set(nodes)
    behind: dict[fx.Node, list[Effect]] = {}
    found = [Step()]
    for effect in effects:
        if effect.after in inside:
            behind.setdefault(effect.after, []).append(effect)
        else:  # scheduled before the segment began
            found[0].effects.append(effect)
    grad: bool | None = None
    regions: list[fx.Node] = []
    for node in nodes:
        last = found[-1]
        if is_risky(node) or last.effects:
            if last.nodes or last.effects:
                last = Step(modes=(grad, tuple(regions)))
                found.append(last)
        last.nodes.append(node)
        last.effects += behind.get(node, [])
        if node.target is _SET_GRAD:
            grad = bool(node.args[0])
        elif node.target is _ENTER:
            regions.append(node)
        elif node.target is _EXIT:
            regions.remove(node.args[0])  # type: ignore[arg-type]
    return [step for step in found if step.nodes or step.effects]


def segment_of(
    name: str,
    step: Step,
    wanted: set[fx.Node],
    value_of: Callable[[fx.Node], Value],
    fake_of: Callable[[Value], Any],
    sizes: Callable[[list[Any]], list[Any]],
    grad: bool,
) -> tuple[Segment, list[Value], list[TensorValue]]:
    """Makes a segment of a step; returns it with the values of its inputs and outputs.

    Args:
        name: Its name.
        step: The operations.
        wanted: Nodes that are read behind the step.
        value_of: The value of a node.
        fake_of: What a value is in fake execution.
        sizes: The numbers that inputs with symbolic sizes need besides.
        grad: The grad mode in which it is called.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs: dict[fx.Node, None] = {}
    inside = set(step.nodes)
    for node in step.nodes:
        inputs.update(dict.fromkeys(n for n in node.all_input_nodes if n not in inside))
    mode, regions = step.modes
    reentered = set(regions)
    given = [node for node in inputs if node not in reentered]
    for node in given:
        copies[node] = graph.placeholder(node.name)
    values = [value_of(node) for node in given]
    for scalar in sizes([fake_of(value) for value in values]):
        graph.placeholder(scalar.name or "size")
        values.append(scalar)
    if mode is not None and mode is not grad:
        graph.call_function(_SET_GRAD, (mode,))
    for node in regions:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    origins = {}
    open_ = list(regions)
    for node in step.nodes:
        copy = copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.target is _SET_GRAD:
            mode = bool(node.args[0])
        elif node.target is _ENTER:
            open_.append(node)
        elif node.target is _EXIT:
            open_.remove(node.args[0])  # type: ignore[arg-type]
        if "origin" in node.meta:
            origins[copy.name] = node.meta["origin"]
    for node in reversed(open_):
        graph.call_function(_EXIT, (copies[node],))
    if mode is not None and mode is not grad:
        graph.call_function(_SET_GRAD, (grad,))
    outputs = [n for n in step.nodes if n in wanted and "value" in n.meta]
    graph.output(tuple(copies[n] for n in outputs))
    graph.lint()
    made = Segment(
        name=name,
        graph_module=graph_module(graph, name),
        inputs=tuple(fake_of(value) for value in values),
        outputs=tuple(n.meta["value"].fake for n in outputs),
        grad_enabled=grad,
        origins=origins,
    )
    return made, values, [n.meta["value"] for n in outputs]


def read_behind(parts: Sequence[Step], position: int) -> set[fx.Node]:
    """Nodes of the steps up to `position` that later steps read."""
    found: set[fx.Node] = set()
    for step in parts[position + 1 :]:
        for node in step.nodes:
            found.update(node.all_input_nodes)
    return found


Place = tuple[Origin | None, tuple[Origin, ...]]
"""A line of the program, and the lines of the functions that were inlined there."""


def place_of(step: Step) -> Place:
    """The line of the operation that may raise."""
    node = next((n for n in step.nodes if is_risky(n)), None)
    if node is not None and node.meta["stack"]:
        first, *inside = node.meta["stack"]
        return first, tuple(inside)
    origins = (n.meta["origin"] for n in step.nodes if "origin" in n.meta)
    return next(origins, None), ()


def called_from(places: Sequence[Origin]) -> Callable[..., Any]:
    """Returns a function that calls its first argument with the others, from these lines.

    Args:
        places: Lines of functions that call one another, the outermost first.
    """
    made: Callable[..., Any] | None = None
    for place in reversed(places):
        tree = ast.parse("def place(call, *args): return call(*args)")
        nodes: list[Any] = [n for n in ast.walk(tree) if hasattr(n, "lineno")]
        for node in nodes:
            node.lineno = node.end_lineno = place.line
            node.col_offset = node.end_col_offset = -1
        (code,) = (
            c
            for c in compile(tree, place.file, "exec").co_consts
            if isinstance(c, CodeType)
        )
        code = code.replace(co_name=place.function.rpartition(".")[2])
        function = FunctionType(code, {})
        made = function if made is None else functools.partial(function, made)
    assert made is not None
    return made


def random_state() -> list[torch.Tensor]:
    """The state of the random number generators of all devices in use."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states += torch.cuda.get_rng_state_all()
    return states


def rewind(states: list[torch.Tensor]) -> None:
    """Sets the random number generators back to what `random_state` has returned."""
    torch.set_rng_state(states[0])
    for device, state in enumerate(states[1:]):
        torch.cuda.set_rng_state(state, device)
