"""Exposed tensors: inputs and results, to which the program may write before the backward pass.

Before (eager's gradient of `layer_norm` reads `x`; the decomposed one reads the result):

    def joint(x, grad_y):
        mean, rstd = moments(x)
        y = mul(sub(x, mean), rstd)
        return (y,), (mul(rstd, sub(grad_y, mul(y, means_of(mul(grad_y, y))))),)

After (`y` must not be saved, since eager lets the program write to it; a copy of it may be):

    def joint(x, grad_y):
        mean, rstd = moments(x)
        y = mul(sub(x, mean), rstd)
        copy = clone(y)
        return (y,), (mul(rstd, sub(grad_y, mul(copy, means_of(mul(grad_y, copy))))),)

What is saved and what is computed again is then for the cut to say; a copy that it does not save
is taken out again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from .partition import Cut, base_of, descendants, is_view
from .plans import Checked, SavedInput, SavedOutput
from .tracing import Traced

_HALVES = (torch.bfloat16, torch.float16)


def exposed(traced: Traced) -> tuple[set[fx.Node], dict[fx.Node, frozenset[int]]]:
    """Inputs and results that may be written to before the backward half runs.

    Eager lets the caller write to a tensor that autograd did not save. It may then not be
    saved here; and a write to one that is saved raises, as in eager.

    Returns:
        Those that must not be saved; for the others, the positions of the tangents with
        which eager looks whether they were written to.
    """
    fixed, asked = set(traced.mutated), dict[fx.Node, frozenset[int]]()
    for node, tangents in (
        *zip(traced.placeholders, traced.asked_inputs, strict=True),
        *zip(traced.results, traced.asked_results, strict=True),
    ):
        if not isinstance(node, fx.Node):
            continue
        owner = base_of(node)
        if not isinstance(owner.meta.get("val"), torch.Tensor):
            continue
        if tangents:
            asked[owner] = tangents | asked.get(owner, frozenset())
        else:
            fixed.add(owner)
    for node in traced.recorder.graph.nodes:
        if is_view(node) and node.args[0] in fixed:
            fixed.add(node)
    return fixed, {n: tangents for n, tangents in asked.items() if n not in fixed}


def checked(traced: Traced) -> tuple[Checked, ...]:
    """What eager asks for when it was saved: inputs and results, with their tangents."""
    later = {m.input: m.versions for m in traced.mutations}
    into_inputs = {m.output for m in traced.mutations}
    return (
        *(
            Checked(SavedInput(i), tuple(sorted(tangents)), later.get(i))
            for i, tangents in enumerate(traced.asked_inputs)
            if tangents
        ),
        *(
            Checked(SavedOutput(i), tuple(sorted(tangents)))
            for i, tangents in enumerate(traced.asked_results)
            if tangents and i not in into_inputs
        ),
    )


def leaves_of(inputs: Iterable[Any]) -> set[int]:
    """Positions of inputs such as parameters, which live longer than a backward pass."""
    return {
        i
        for i, value in enumerate(inputs)
        if isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf
    }


def checked_leaves(traced: Traced, leaves: set[int], cut: Cut) -> list[fx.Node]:
    """Leaves that eager has saved and that the cut does not save: that costs no memory."""
    return [
        node
        for i, node in enumerate(traced.placeholders)
        if i in leaves and traced.asked_inputs[i] and node not in cut.saved
    ]


def copy_narrow(graph: fx.Graph, fixed: Iterable[fx.Node]) -> None:
    """Lets a copy of 16 bits be saved where eager saves what it was widened to.

    `x.float()` of an input that may be written to later cannot be computed again from `x`,
    but from a copy of it, which has half the bytes. Where nothing is saved, there is none.
    """
    for node in sorted(fixed):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dtype not in _HALVES:
            continue
        widened = [
            user
            for user in node.users
            if user.target is torch.ops.aten._to_copy.default
            and user.meta["val"].dtype in (torch.float32, torch.float64)
        ]
        if not widened:
            continue
        with graph.inserting_before(min(widened)):
            copy = graph.call_function(torch.ops.aten.clone.default, (node,))
        copy.meta = {**widened[0].meta, "val": torch.empty_like(value)}
        for user in widened:
            user.replace_input_with(node, copy)


def copy_for_backward(
    graph: fx.Graph, fixed: Iterable[fx.Node], tangents: set[fx.Node]
) -> list[fx.Node]:
    """Lets a copy be saved of what the backward half reads and must not save itself.

    Eager's gradient of `y = layer_norm(x)` reads `x`; its decomposition, where there is no
    weight, reads `y`, to which the program may write before the backward pass.
    """
    late = descendants(graph, tangents)
    copies = []
    for node in sorted(fixed):
        readers = [user for user in node.users if user in late]
        if not readers or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        with graph.inserting_before(min(readers)):
            copy = graph.call_function(torch.ops.aten.clone.default, (node,))
        copy.meta = {**node.meta, "val": torch.clone(node.meta["val"])}
        for user in readers:
            user.replace_input_with(node, copy)
        copies.append(copy)
    return copies


def without_unsaved(cut: Cut, copies: list[fx.Node]) -> Cut:
    """Takes those copies out of the graph that are not saved."""
    unsaved = {copy for copy in copies if copy not in cut.saved}
    for copy in unsaved:
        (node,) = copy.all_input_nodes
        copy.replace_all_uses_with(node)
        copy.graph.erase_node(copy)
    return replace(cut, backward=tuple(n for n in cut.backward if n not in unsaved))
