"""Convolutions of each channel by itself, in the layout for which there is a fast kernel.

Before (`x` is contiguous; PyTorch's own kernel takes five times as long as cuDNN's):

    y = aten.convolution.default(x, w, b, [1, 1], [1, 1], [1, 1], False, [0, 0], 256)
    z = aten.gelu.default(y)

After:

    x_last = aten.clone.default(x, memory_format=torch.channels_last)
    w_last = aten.clone.default(w, memory_format=torch.channels_last)
    y = aten.convolution.default(x_last, w_last, None, …)
    z = aten.gelu.default(aten.add.Tensor(y, aten.view.default(b, [256, 1, 1])))

The copies are kernels, which may share work with what comes before; `z` is as contiguous as
it was, and its kernel reads `y` across. PyTorch adds the bias behind cuDNN's kernel in one of
its own, so here it is added with what follows. Only where nobody else sees how `y` lies.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from .lowerings import TABLE
from .plans import ATenGraph

aten = torch.ops.aten

DEVICES = {"cuda"}
"""Kinds of devices that have such a kernel."""

HALVES = (torch.bfloat16, torch.float16)


def lay_out(graph: ATenGraph) -> None:
    """Rewrites the convolutions that it pays for."""
    for node in list(graph.graph_module.graph.nodes):
        if node.target is aten.convolution.default and _pays(node):
            _rewrite(node)


def _pays(node: fx.Node) -> bool:
    x, weight = (_value(a) for a in node.args[:2])
    groups, transposed = node.args[8], node.args[6]
    return (
        isinstance(x, torch.Tensor)
        and isinstance(weight, torch.Tensor)
        and x.device.type in DEVICES
        and x.dtype in HALVES
        and weight.dtype is x.dtype
        and x.dim() == 4
        and not transposed
        and isinstance(groups, int)
        and groups > 1
        and _is(x.shape[1], groups)
        and _is(weight.shape[0], groups)
        and x.is_contiguous()
        and not x.is_contiguous(memory_format=torch.channels_last)
        and bool(node.users)
        and all(_is_loop(user) for user in node.users)
    )


def _rewrite(node: fx.Node) -> None:
    graph, last = node.graph, torch.channels_last
    given = []
    with graph.inserting_before(node):
        for operand in node.args[:2]:
            assert isinstance(operand, fx.Node)
            copy = graph.call_function(
                aten.clone.default, (operand,), {"memory_format": last}
            )
            value = _value(operand)
            copy.meta = {
                **node.meta,
                "val": torch.empty_like(value, memory_format=last),
            }
            given.append(copy)
    node.args = (*given, *node.args[2:])
    value = node.meta["val"]
    node.meta["val"] = torch.empty_like(value, memory_format=last)
    bias = node.args[2]
    if isinstance(bias, fx.Node):
        _add_behind(node, bias)


def _add_behind(node: fx.Node, bias: fx.Node) -> None:
    """Takes the bias out of a convolution."""
    graph, size = node.graph, [bias.meta["val"].shape[0], 1, 1]
    with graph.inserting_after(node):
        column = graph.call_function(aten.view.default, (bias, size))
    with graph.inserting_after(column):
        added = graph.call_function(aten.add.Tensor, (node, column))
    column.meta = {**node.meta, "val": bias.meta["val"].view(size)}
    added.meta = {**node.meta, "val": torch.empty_like(node.meta["val"])}
    node.replace_all_uses_with(added, delete_user_cb=lambda user: user is not added)
    node.args = (*node.args[:2], None, *node.args[3:])


def _value(argument: Any) -> Any:
    return argument.meta.get("val") if isinstance(argument, fx.Node) else None


def _is(size: Any, number: int) -> bool:
    return isinstance(size, int) and size == number


def _is_loop(node: fx.Node) -> bool:
    """Whether a kernel computes it, which reads whatever strides there are."""
    name = str(node.target)
    known = name in TABLE or name.rpartition(".")[0] in TABLE
    return known and torch.Tag.pointwise in getattr(node.target, "tags", ())
