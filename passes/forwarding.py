"""Forwarding: what reads a part of a tensor that was written reads what was written there.

Before (`y[:, :200].sin_(); y[:, :200].cos_(); y[:, 200:].exp_()`):

    slice_scatter = aten.slice_scatter.default(y, sin, 1, 0, 200)
    cos = aten.cos.default(aten.slice.Tensor(slice_scatter, 1, 0, 200))
    slice_scatter_1 = aten.slice_scatter.default(slice_scatter, cos, 1, 0, 200)
    exp = aten.exp.default(aten.slice.Tensor(slice_scatter_1, 1, 200, 256))

After:

    cos = aten.cos.default(sin)
    slice_scatter_1 = aten.slice_scatter.default(y, cos, 1, 0, 200)
    exp = aten.exp.default(aten.slice.Tensor(y, 1, 200, 256))

What has other strides than the part only goes where strides do not matter.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten

PARTS: dict[Any, Any] = {
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.select.int: aten.select_scatter.default,
}
"""What shows a part -> what writes it."""


def forward_parts(graph: fx.Graph, kept: Container[fx.Node]) -> None:
    """Rewrites the operands of nodes of a functional graph.

    Args:
        graph: The graph.
        kept: Nodes that are wanted for themselves.
    """
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target in PARTS:
            _pass_by(node)
        elif node.target in PARTS.values():
            _write_once(node, kept)
        if _takes_any_strides(node):
            for operand in node.all_input_nodes:
                written = _written(operand)
                if written is not None:
                    node.replace_input_with(operand, written)
                    if not operand.users and operand not in kept:
                        graph.erase_node(operand)


def _pass_by(node: fx.Node) -> None:
    """Lets a node that shows a part read what other parts were written to.

    If it meets more than its part on the way, it reads what is there in the end: that exists.
    """
    base = node.args[0]
    while isinstance(base, fx.Node) and base.target in PARTS.values():
        before = base.args[0]
        passes = apart(node, base, base)
        if not passes or not isinstance(before, fx.Node) or not _alike(before, base):
            same = base.target is PARTS[node.target] and base.args[2:] == node.args[1:]
            if not same:
                return
            break
        base = before
    node.args = (base, *node.args[1:])


def _write_once(node: fx.Node, kept: Container[fx.Node]) -> None:
    """Leaves out what was written before to the part that a node writes."""
    above: fx.Node = node
    while True:
        below = above.args[0]
        if not isinstance(below, fx.Node) or below.target not in PARTS.values():
            return
        if list(below.users) != [above] or below in kept:
            return
        before = below.args[0]
        same = below.target is node.target and below.args[2:] == node.args[2:]
        plain = not below.kwargs and not node.kwargs
        if same and plain and isinstance(before, fx.Node) and _alike(before, below):
            above.args = (before, *above.args[1:])
        else:
            above = below


def _written(node: fx.Node) -> fx.Node | None:
    """What was written to the part that a node shows, if it is exactly that part."""
    base = node.args[0] if node.target in PARTS and node.args else None
    if not isinstance(base, fx.Node) or base.target is not PARTS[node.target]:
        return None
    value = base.args[1]
    if base.args[2:] != node.args[1:] or base.kwargs or node.kwargs:
        return None
    if not isinstance(value, fx.Node):
        return None
    shown, given = node.meta["val"], value.meta["val"]
    same = given.dtype is shown.dtype and given.shape == shown.shape
    return value if same and not given.dtype.is_complex else None


def _takes_any_strides(node: fx.Node) -> bool:
    """True for an operator whose result is the same whatever its operands' strides are."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    value = node.meta.get("val")
    plain = isinstance(value, torch.Tensor) and not value.dtype.is_complex
    tags = {torch.Tag.pointwise, torch.Tag.reduction}
    return plain and bool(tags & {*target.tags}) and not target.is_view


def _alike(one: fx.Node, other: fx.Node) -> bool:
    first, second = one.meta["val"], other.meta["val"]
    facts = (first.dtype, first.shape, first.stride())
    return facts == (second.dtype, second.shape, second.stride())


def apart(shows: fx.Node, writes: fx.Node, whole: fx.Node) -> bool:
    """Whether one node shows a part of a tensor that another, which writes to it, leaves alone."""
    one, other = _indices(shows, 1, whole), _indices(writes, 2, whole)
    return bool(one and other and one[0] == other[0] and not _meet(one[1], other[1]))


def _indices(node: fx.Node, first: int, base: Any) -> tuple[int, range] | None:
    """The dimension and the indices that a part has of it, if they are numbers.

    Args:
        node: What shows or writes the part.
        first: Which of its arguments is the dimension.
        base: What it is a part of.
    """
    size = base.meta["val"].size()
    # NOTE: `Any`, since mypy does not end with `slice` of fx's recursive argument type.
    numbers: list[Any] = [*node.args[first:], None, None, None]
    if node.kwargs or not all(n is None or type(n) is int for n in numbers):
        return None
    dim, start, end, step = (numbers[0] or 0) % len(size), *numbers[1:4]
    if type(size[dim]) is not int:
        return None
    whole = range(size[dim])
    if node.target in (aten.select.int, aten.select_scatter.default):
        return dim, range(whole[start], whole[start] + 1)
    return dim, whole[slice(start, end, step)]


def _meet(one: range, other: range) -> bool:
    """False if two ranges are sure to have no index in common."""
    if not one or not other or one[-1] < other[0] or other[-1] < one[0]:
        return False
    return one.step != other.step or (one.start - other.start) % one.step == 0
