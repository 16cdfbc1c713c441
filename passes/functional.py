"""Functionalization: a torch-level segment becomes a functional ATen graph and a plan.

Before (the torch-level graph of a segment):

    def segment_0(x, y):
        x.add_(1)
        z = torch.sin(x * y)
        return z, z.t(), x

After (`Functional`): a graph without side effects, and what has to happen around it:

    def forward(x, y):                      # Functional.forward, all ATen
        x1 = aten.add.Tensor(x, 1)
        z = aten.sin.default(aten.mul.Tensor(x1, y))
        return z, x1

    mutations  (Mutation(input=0, output=1),)                     # x.copy_(x1)
    outputs    (Value(0), ViewOfOutput(0, "{base}.t()"), SameAsInput(0))

When the input requires grad there is a backward graph beside it (see `passes.autograd`).
A segment that cannot be taken apart in this way is left at torch level, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import fx

from .absent import emit_partial
from .decompositions import decompositions
from .evaluate.raising import OWN_NAMESPACES, operator_may_raise
from .exposed import (
    checked,
    checked_leaves,
    copy_for_backward,
    copy_narrow,
    exposed,
    leaves_of,
    without_unsaved,
)
from .forwarding import PARTS, forward_parts
from .graph_modules import graph_module
from .partition import base_of, descendants, find_cut, is_random, is_view
from .plans import (
    ATenGraph,
    Backward,
    Constant,
    Functional,
    Mutation,
    OutputPlan,
    SameAsInput,
    SameAsOutput,
    SavedInput,
    SavedOutput,
    Value,
    View,
    ViewOfInput,
    ViewOfOutput,
    ViewOfShown,
)
from .program import Segment
from .record import CannotRecord, Recorder
from .tracing import Traced, trace
from .views import strided_facts

__all__ = [
    "ATenGraph",
    "Backward",
    "Constant",
    "Functional",
    "Mutation",
    "OutputPlan",
    "SameAsInput",
    "SameAsOutput",
    "SavedInput",
    "SavedOutput",
    "Value",
    "View",
    "ViewOfInput",
    "ViewOfOutput",
    "ViewOfShown",
    "functionalize",
]

aten = torch.ops.aten


def functionalize(
    segment: Segment, table: Mapping[Any, Callable[..., Any]] | None = None
) -> Functional:
    """Takes a segment apart into functional ATen graphs and what surrounds them.

    Args:
        segment: The torch-level graph with its fake inputs.
        table: Decompositions; those of `passes.decompositions` by default.

    Returns:
        The graphs and plans; or, where that is not possible without changing what the
        program does, a `Functional` with `torch_level` set and the reason.
    """
    try:
        traced = trace(segment, decompositions() if table is None else table)
        return _assemble(traced, leaves_of(segment.inputs))
    except CannotRecord as why:
        return Functional(None, torch_level=True, reason=str(why))


def functionalizes(segment: Segment) -> bool:
    """Whether a segment has a functional form."""
    return not functionalize(segment).torch_level


_READS_GRAD_MODE = frozenset({"aten::mkldnn_rnn_layer"})
"""Operators that keep what their backward needs only where the grad mode is on; the forward
graph of a training segment runs with it off."""


def _assemble(traced: Traced, leaves: set[int]) -> Functional:
    graph = traced.recorder.graph
    if traced.tangents:
        for node in graph.nodes:
            name = getattr(getattr(node.target, "_schema", None), "name", "")
            if name in _READS_GRAD_MODE:
                raise CannotRecord(f"`{name}` looks at the grad mode")
    if not traced.tangents:
        # Else what is saved has to be what eager saves.
        kept = {r for r in traced.results if isinstance(r, fx.Node)}
        forward_parts(graph, kept)
    replaced = _merge_equal(graph)

    def final(node: Any) -> Any:
        while node in replaced:
            node = replaced[node]
        return node

    traced.results = [final(n) for n in traced.results]
    traced.gradients = [final(n) for n in traced.gradients]
    _own_memory(traced)
    if not traced.tangents:
        forward = _extract(
            traced.recorder, traced.placeholders, traced.results, set(graph.nodes)
        )
        _mark_owning(forward, traced.owning)
        return Functional(
            forward,
            tuple(traced.outputs),
            tuple(traced.mutations),
            tuple(traced.versions),
            autocast=traced.autocast,
            no_grad=traced.no_grad,
        )
    return _with_backward(traced, leaves)


def _with_backward(traced: Traced, leaves: set[int]) -> Functional:
    graph = traced.recorder.graph
    gradients = [g for g in traced.gradients if isinstance(g, fx.Node)]
    results = [r for r in traced.results if isinstance(r, fx.Node)]
    fixed, asked = exposed(traced)
    copy_narrow(graph, fixed)
    copies = copy_for_backward(graph, fixed, set(traced.tangents.values()))
    tangent_nodes = list(traced.tangents.values())
    cut = find_cut(graph, tangent_nodes, gradients, results, fixed, asked)
    cut = without_unsaved(cut, copies)
    kept = [*cut.saved, *checked_leaves(traced, leaves, cut)]
    late = set(cut.backward)
    if any(is_random(n) for n in late):
        raise CannotRecord("its gradient draws random numbers")
    places = {n: i for i, n in enumerate(traced.placeholders)}
    all_results = list(traced.results)
    saved: list[SavedInput | SavedOutput] = []
    for node in kept:
        if node in places:
            saved.append(SavedInput(places[node]))
        elif node in all_results:
            saved.append(SavedOutput(all_results.index(node)))
        else:
            saved.append(SavedOutput(len(all_results)))
            all_results.append(node)
    tangents = tuple(sorted(traced.tangents))
    forward = _extract(
        traced.recorder, traced.placeholders, all_results, set(graph.nodes)
    )
    _mark_owning(forward, traced.owning)
    inputs = [*kept, *(traced.tangents[t] for t in tangents)]
    order: dict[fx.Node, int] = {}
    for gradient in gradients:
        order.setdefault(gradient, len(order))
    own = {n for n in late if n.meta.get("segment_node") is None}
    backward = _extract(traced.recorder, inputs, list(order), own)
    _compute_late(backward, len(kept))
    for node, source in zip(backward.placeholders, saved, strict=False):
        alone = isinstance(source, SavedOutput) and source.index >= len(traced.results)
        node.meta["saved"] = "alone" if alone else "shared"
    if len(tangents) > 1:
        _can_lack_tangents(backward, [n.name for n in inputs[len(kept) :]])
    plain = range(len(traced.results))
    return Functional(
        forward,
        tuple(traced.outputs),
        tuple(traced.mutations),
        tuple(traced.versions),
        Backward(
            graph=backward,
            saved=tuple(saved),
            tangents=tangents,
            checked=checked(traced),
            gradients=tuple(
                order[g] if isinstance(g, fx.Node) else None for g in traced.gradients
            ),
            depends=_dependence(backward, len(kept)),
            outputs=len(traced.results),
            not_differentiable=tuple(
                i
                for i in plain
                if i not in traced.tangents and isinstance(traced.results[i], fx.Node)
            ),
        ),
        autocast=traced.autocast,
    )


def _mark_owning(forward: ATenGraph, owning: list[bool]) -> None:
    """Notes at the results which of them are no views in eager, for whoever prints them."""
    for node, owns in zip(forward.results, owning, strict=False):
        if owns and isinstance(node, fx.Node):
            node.meta["owning"] = True


def _can_lack_tangents(backward: ATenGraph, tangents: list[str]) -> None:
    """Raises CannotRecord if no text can be made for tangents that are absent."""
    try:
        emit_partial(backward, "backward", tangents)
    except TypeError as error:
        raise CannotRecord(f"its gradient has {error}") from error


def _dependence(graph: ATenGraph, saved: int) -> tuple[tuple[int, ...], ...]:
    """For each result, the positions of the tangents that it is computed from."""
    tangents = {n: {i} for i, n in enumerate(graph.placeholders[saved:])}
    known: dict[fx.Node, set[int]] = {}
    for node in graph.graph_module.graph.nodes:
        known[node] = set(tangents.get(node, ())).union(
            *(known[i] for i in node.all_input_nodes)
        )
    return tuple(tuple(sorted(known[r])) for r in graph.results)


def _compute_late(graph: ATenGraph, saved: int) -> None:
    """Moves what is computed again from saved values to where it is first read.

    What is computed from tangents stays in its order. Passes that compare the memory that a
    graph holds take the order of its nodes to be eager's.
    """
    late = descendants(graph.graph_module.graph, set(graph.placeholders[saved:]))
    nodes = [n for n in graph.graph_module.graph.nodes if n.op != "placeholder"]
    place = {n: i for i, n in enumerate(nodes)}
    moved: set[fx.Node] = set()
    last = nodes[-1]
    for node in nodes:
        if node not in late and node is not last:
            continue
        early: set[fx.Node] = set()
        waiting = [node]
        while waiting:
            for operand in waiting.pop().all_input_nodes:
                if (
                    operand in place
                    and operand not in late
                    and (operand not in moved and operand not in early)
                ):
                    early.add(operand)
                    waiting.append(operand)
        for n in sorted(early, key=place.__getitem__):
            last.prepend(n)
        moved |= early
        if node is not last:
            last.prepend(node)


def _merge_equal(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Merges nodes of equal value; returns what replaced what.

    Calls are equal that are the same and pure; views are equal that show the same elements
    of the same node in the same way (functionalization makes `x.view(-1).view(4, 4)` often).
    """
    first: dict[Any, fx.Node] = {}
    shown: dict[Any, fx.Node] = {}
    replaced: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or is_random(node) or _makes_memory(node):
            continue
        same, key = _scattered(node), _key((node.target, node.args, node.kwargs))
        if same is None:
            same = first.setdefault(key, node)
        if (
            same is node
            and is_view(node)
            and isinstance(node.meta["val"], torch.Tensor)
        ):
            base = base_of(node)
            if base.op == "call_function" or base.op == "placeholder":
                shown.setdefault((base, strided_facts(base.meta["val"])), base)
                same = shown.setdefault((base, strided_facts(node.meta["val"])), node)
        if same is not node:
            first[key] = same
            node.replace_all_uses_with(same)
            replaced[node] = same
            graph.erase_node(node)
    return replaced


def _scattered(node: fx.Node) -> fx.Node | None:
    """Returns `v` for a node that reads back what `slice_scatter(x, v, …)` wrote."""
    scatter = PARTS.get(node.target)
    if scatter is None or not node.args or not isinstance(node.args[0], fx.Node):
        return None
    written = node.args[0]
    if written.target is not scatter or written.args[2:] != node.args[1:]:
        return None
    value = written.args[1]
    if not isinstance(value, fx.Node) or written.kwargs or node.kwargs:
        return None
    wanted, have = node.meta["val"], value.meta["val"]
    alike = (
        have.dtype is wanted.dtype
        and have.shape == wanted.shape
        and have.stride() == wanted.stride()
    )
    return value if alike else None


def _key(value: Any) -> Any:
    """A hashable form in which 1, 1.0 and True differ."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_key, value))
    if isinstance(value, dict):
        return tuple((k, _key(v)) for k, v in value.items())
    if isinstance(value, (bool, int, float)):
        return type(value), repr(value)
    return value


def _makes_memory(node: fx.Node) -> bool:
    """True for calls whose result is not determined by their arguments."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return False
    foreign = schema.name.partition("::")[0] not in OWN_NAMESPACES
    return foreign or not schema.returns or "empty" in schema.name


def _own_memory(traced: Traced) -> None:
    """Copies a result that would otherwise be an input, or another result, in disguise.

    Functional graphs drop copies (`x.clone()` stays, but a decomposition may answer with its
    argument, and equal results are merged); as outputs they have to be tensors of their own.
    """
    graph = traced.recorder.graph
    targets = {m.output for m in traced.mutations}
    owners: set[fx.Node] = set()
    for position, node in enumerate(traced.results):
        if not isinstance(node, fx.Node) or not isinstance(
            node.meta.get("val"), torch.Tensor
        ):
            continue
        base = base_of(node)
        if position in targets:
            borrowed = base in traced.mutated
        else:
            borrowed = base.op in ("placeholder", "get_attr") or base in owners
        if borrowed:
            copy = traced.results[position] = _copied(graph, node)
            base = base_of(copy)
        owners.add(base)


def _copied(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Adds a copy of the memory behind `node` and the same view of it."""
    if is_view(node) and base_of(node).op == "call_function":
        parent = node.args[0]
        assert isinstance(parent, fx.Node)
        args = (_copied(graph, parent), *node.args[1:])
        copy = graph.create_node("call_function", node.target, args, node.kwargs)
    else:
        copy = graph.call_function(aten.clone.default, (node,))
    copy.meta.update(node.meta)
    return copy


def _extract(
    recorder: Recorder,
    placeholders: Iterable[fx.Node],
    results: Iterable[Any],
    region: set[fx.Node],
) -> ATenGraph:
    """Copies what `results` need, and random calls of the region, into a graph of its own."""
    given = list(placeholders)
    wanted = _needed(recorder.graph, given, results, region)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in given:
        copy = graph.placeholder(node.name)
        copy.meta = dict(node.meta)
        copies[node] = copy
    constants: dict[str, torch.Tensor] = {}
    for node in recorder.graph.nodes:
        if node not in wanted or node in copies:
            continue
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op == "get_attr":
            constants[str(node.target)] = recorder.constants[str(node.target)]
    graph.output(
        tuple(copies.get(r, r) if isinstance(r, fx.Node) else r for r in results)
    )
    root = torch.nn.Module()
    for name, value in constants.items():
        root.register_buffer(name, value)
    module = graph_module(graph, root=root)
    return ATenGraph(module, tuple(n.meta["val"] for n in given), constants)


def _needed(
    graph: fx.Graph, given: list[fx.Node], results: Iterable[Any], region: set[fx.Node]
) -> set[fx.Node]:
    found: set[fx.Node] = set(given)
    open_ = [r for r in results if isinstance(r, fx.Node)]
    open_ += [n for n in graph.nodes if n in region and _has_effect(n)]
    while open_:
        node = open_.pop()
        if node not in found:
            found.add(node)
            open_.extend(node.all_input_nodes)
    return found


def _has_effect(node: fx.Node) -> bool:
    """True for a call that must happen although nothing reads what it gives."""
    schema = getattr(node.target, "_schema", None)
    if is_random(node) or (schema is not None and not schema.returns):
        return True
    # What the backward half computes has no operation of the segment that it belongs to.
    return node.meta.get("segment_node") is not None and _may_raise(node)


def _may_raise(node: fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    args, kwargs = fx.node.map_arg(
        (node.args, node.kwargs), lambda operand: operand.meta.get("val")
    )
    return operator_may_raise(node.target, args, kwargs)
