"""Slices of an input that are written where they are, not into a copy of the whole.

Before (`keys[:, :, 7:8] = k`; the plan says `keys.copy_(slice_scatter)` behind the graph):

    slice_scatter = aten.slice_scatter.default(keys, k, 2, 7, 8)
    bmm = aten.bmm.default(q, slice_scatter)

After:

    slice_scatter = aten.as_strided_scatter.default(keys, k, (4, 8, 1, 64), (…), 448)
    bmm = aten.bmm.default(q, slice_scatter)

That has no loop form, so the host calls it, and `passes.in_place` lets it write into `keys`.
The place is counted from where `keys` begins, which `node.meta["part_of_input"]` says.
A cache of keys and values then costs a decoder the bytes of one token, as it does in eager
mode. Small inputs stay as they are: a kernel that copies them all is as fast as a call. But
what moves within an input (`rows[:1] = rows[-1:]`) is written like that in small ones, too: a
kernel of all of it would read where it writes, and need a copy of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from .forwarding import PARTS, apart
from .indexing import as_expr, contiguous_strides, product
from .partition import base_of, is_view
from .peaks import amount
from .plans import ATenGraph, Mutation

aten = torch.ops.aten

SMALLEST = 1 << 18
"""Bytes of an input below which all of it is copied in a kernel."""

VIEW_OF: dict[Any, Any] = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
}
"""What writes a part -> the view that shows that part."""


def write_parts(graph: ATenGraph, mutations: Iterable[Mutation]) -> None:
    """Rewrites the nodes that write a part of an input which is only to be changed."""
    order = {node: n for n, node in enumerate(graph.graph_module.graph.nodes)}
    for mutation in mutations:
        result = graph.results[mutation.output]
        source = graph.placeholders[mutation.input]
        if isinstance(result, fx.Node) and result.target in VIEW_OF:
            _read_behind(result, source, order)
            _rewrite(result, source, order)


def _read_behind(node: fx.Node, source: fx.Node, order: dict[fx.Node, int]) -> None:
    """Lets what stands behind a write read other parts of the input than it writes from it.

    `passes.forwarding` has them read the input, whose memory could then not be written. That
    is what eager does.
    """
    writes = [node]
    while isinstance(before := writes[-1].args[0], fx.Node) and before is not source:
        if before.target not in VIEW_OF:
            return
        writes.append(before)
    if before is not source:
        return
    for shown in list(source.users):
        if shown.target in PARTS and all(apart(shown, w, source) for w in writes):
            _show(shown, node, node, order)


def _show(
    shown: fx.Node, base: fx.Node, limit: fx.Node, order: dict[fx.Node, int]
) -> None:
    """Lets those readers of a view which stand behind a node read a view of `base`."""
    if order[shown] > order[limit]:
        shown.args = (base, *shown.args[1:])
        return
    late = [u for u in shown.users if order.get(u, len(order)) > order[limit]]
    early = [u for u in shown.users if u not in late and is_view(u)]
    if not late and not early:
        return
    with shown.graph.inserting_after(base):
        copy = shown.graph.call_function(shown.target, (base, *shown.args[1:]))  # type: ignore[arg-type]
    copy.meta = dict(shown.meta)
    order[copy] = order[limit]
    for user in late:
        if user.op != "output":
            user.replace_input_with(shown, copy)
    for user in early:
        _show(user, copy, limit, order)
    if not copy.users:
        shown.graph.erase_node(copy)


def write_views(graph: ATenGraph, mutations: Iterable[Mutation]) -> None:
    """Copies views that only go into inputs, so that a kernel can write them there.

    `torch.exp(x, out=y.t())` is `y.copy_(exp.t())`: a kernel that computes `exp.t()` as a
    tensor of its own writes `y`, and what it is a view of need not be in memory.
    """
    for mutation in mutations:
        result = graph.results[mutation.output]
        if not isinstance(result, fx.Node) or not is_view(result):
            continue
        base, shown = base_of(result), result.meta["val"]
        made = base.meta.get("val")
        if base.op != "call_function" or not isinstance(made, torch.Tensor):
            continue
        node = result
        while len(node.users) == 1 and node is not base:
            # The first: symbolic sizes are operands as well.
            node = node.all_input_nodes[0]
        same = product(tuple(map(as_expr, made.size()))) == product(
            tuple(map(as_expr, shown.size()))
        )
        if node is not base or len(base.users) > 1 or not same:
            continue
        if graph.results.count(result) == 1:
            with graph.graph_module.graph.inserting_after(result):
                copied = graph.graph_module.graph.call_function(
                    aten.clone.default,
                    (result,),
                    {"memory_format": torch.contiguous_format},
                )
            copied.meta = dict(result.meta)
            with shown.fake_mode:
                copied.meta["val"] = shown.clone(memory_format=torch.contiguous_format)
            result.replace_all_uses_with(copied, lambda user: user.op == "output")


def _rewrite(node: fx.Node, source: fx.Node, order: dict[fx.Node, int]) -> None:
    whole = source.meta["val"]
    size = tuple(map(as_expr, whole.size()))
    dense = tuple(map(as_expr, whole.stride())) == contiguous_strides(size)
    large = amount(product(size)) * whole.element_size() >= SMALLEST
    moved = isinstance(node.args[1], fx.Node) and base_of(node.args[1]) is source
    if not dense or not (large or moved) or _is_read_later(source, order[node], order):
        return
    part, written = whole, node
    shown: Any = source
    while True:
        if not _shows(shown, written.args[0]):
            return
        view = VIEW_OF[written.target]
        part = view(part, *map(_value, written.args[2:]))
        value = written.args[1]
        shown = (view, written.args[0], tuple(written.args[2:]))
        if (
            not isinstance(value, fx.Node)
            or value.target not in VIEW_OF
            or len(value.users) > 1
        ):
            break
        written = value
    if not isinstance(value, fx.Node):
        return
    given = value.meta.get("val")
    if not isinstance(given, torch.Tensor) or given.dtype is not whole.dtype:
        return
    if tuple(map(as_expr, given.size())) != tuple(map(as_expr, part.size())):
        return
    if 2 * amount(product(tuple(map(as_expr, part.size())))) > amount(product(size)):
        return
    if _is_changed_there(value, source, shown):
        return
    read = _copy_of(value, node) if base_of(value) is source else value
    offset = part.storage_offset() - whole.storage_offset()
    node.target = aten.as_strided_scatter.default
    inner = node.args[1]
    node.args = (source, read, tuple(part.size()), tuple(part.stride()), offset)
    node.kwargs = {}
    node.meta["part_of_input"] = True
    while isinstance(inner, fx.Node) and inner is not value:
        gone, inner = inner, inner.args[1]
        gone.graph.erase_node(gone)


def _copy_of(value: fx.Node, reader: fx.Node) -> fx.Node:
    """Adds a copy of what a node that writes a part reads elsewhere in the same input."""
    with value.graph.inserting_before(reader):
        copy = value.graph.call_function(aten.clone.default, (value,))
    copy.meta = dict(value.meta)
    with value.meta["val"].fake_mode:
        copy.meta["val"] = value.meta["val"].clone()
    return copy


def _is_changed_there(value: fx.Node, source: fx.Node, shown: Any) -> bool:
    """Whether a part is computed from what was there, element by element.

    A kernel does that where it is (`passes.placement`), and needs no memory for the part.
    """
    there, open_, seen = False, [value], set[fx.Node]()
    while open_:
        node = open_.pop()
        if node is source:
            return False
        if node in seen:
            continue
        seen.add(node)
        if _shows(shown, node):
            there = True
        elif torch.Tag.pointwise in getattr(node.target, "tags", ()):
            open_.extend(node.all_input_nodes)
        elif base_of(node) is source:
            return False
    return there


def _shows(shown: Any, node: Any) -> bool:
    """Whether a node is the input, or the view that the part around it is written through."""
    if isinstance(shown, fx.Node):
        return shown is node
    view, base, rest = shown
    return (
        isinstance(node, fx.Node)
        and node.target is view
        and node.args[0] is base
        and tuple(node.args[1:]) == rest
    )


def _value(argument: Any) -> Any:
    return argument.meta["val"] if isinstance(argument, fx.Node) else argument


def _is_read_later(node: fx.Node, limit: int, order: dict[fx.Node, int]) -> bool:
    """Whether the memory of a node is read behind a place, through whatever views."""
    for user in node.users:
        if order.get(user, limit + 1) > limit:
            return True
        if is_view(user) and _is_read_later(user, limit, order):
            return True
    return False
