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

import torch
from torch import fx

from .partition import Cut, base_of, descendants, is_view
from .tracing import Traced

_HALVES = (torch.bfloat16, torch.float16)


def must_stay(traced: Traced) -> tuple[set[fx.Node], set[fx.Node]]:
    """Inputs and results that may be written to before the backward half runs.

    Eager lets the caller write to a tensor that autograd did not save. It may then not be
    saved here; and a write to one that is saved raises, as in eager. Those that are saved
    are the second of the sets.
    """
    kept = {base_of(n) for n in traced.saved_by_eager}
    reached = [
        *traced.placeholders,
        *(base_of(r) for r in traced.results if isinstance(r, fx.Node)),
    ]
    exposed = [n for n in reached if isinstance(n.meta.get("val"), torch.Tensor)]
    fixed = {n for n in exposed if n not in kept} | traced.mutated
    for node in traced.recorder.graph.nodes:
        if is_view(node) and node.args[0] in fixed:
            fixed.add(node)
    return fixed, {n for n in exposed if n not in fixed}


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
