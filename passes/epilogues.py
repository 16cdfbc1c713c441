"""Activations that ride on matrix products: `relu(linear(x, w, b))` as one library call.

Before:

    addmm = aten.addmm.default(b, x, w_t)
    view = aten.view.default(addmm, [4, 64, 256])
    relu = aten.relu.default(view)

After:

    addmm_activation = aten._addmm_activation.default(b, x, w_t)
    relu = aten.view.default(addmm_activation, [4, 64, 256])

On a GPU cuBLASLt applies the activation before it writes, which saves a pass over memory:
measured on an H200 in bfloat16, 8192×1024 times 1024×4096 and relu take 0.101 ms instead of
0.132. It rounds once, behind the activation. For relu that is what eager gives, bit for bit,
NaN included (but for the sign of a result that underflows); for the tanh form of gelu it is
closer to exact arithmetic than eager, and done only where the user gave rounding away
(`keep_fp32`). Where something else reads the activation, a kernel computes it on its way, which
costs nothing, and the product stays what it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from .plans import ATenGraph

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten._unsafe_view.default)
_PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default)
_FLOATS = (torch.bfloat16, torch.float16, torch.float32)


def ride_activations(graph: ATenGraph, *, keep_fp32: bool = False) -> int:
    """Rewrites the graph in place; returns how many activations were moved."""
    moved = 0
    for node in list(graph.graph_module.graph.nodes):
        if node.op != "call_function" or not _is_activation(node, keep_fp32):
            continue
        product = _product_below(node.args[0])
        if product is not None and _only_for_calls(node):
            _rewrite(node, product)
            moved += 1
    return moved


def _is_activation(node: fx.Node, keep_fp32: bool) -> bool:
    if node.target is aten.relu.default:
        return True
    gelu = node.target is aten.gelu.default and keep_fp32
    return gelu and node.kwargs.get("approximate") == "tanh"


def _product_below(node: Any) -> fx.Node | None:
    """The `addmm` of which `node` is nothing but a reshape, if nobody else reads it."""
    while isinstance(node, fx.Node) and len(node.users) == 1 and node.target in _VIEWS:
        node = node.args[0]
    if not isinstance(node, fx.Node) or node.target is not aten.addmm.default:
        return None
    if len(node.users) != 1 or node.kwargs:
        return None
    bias, value = node.args[0], node.meta["val"]
    assert isinstance(bias, fx.Node)
    line = bias.meta["val"]
    fits = line.dim() == 1 and line.size(0) == value.size(1) and line.is_contiguous()
    alike = value.dtype in _FLOATS and line.dtype is value.dtype
    return node if fits and alike and value.device.type == "cuda" else None


def _only_for_calls(node: fx.Node) -> bool:
    """True if the value has to be in memory, and nothing but products wants it."""
    users = list(node.users)
    while any(u.target in _VIEWS for u in users):
        users = [
            v for u in users for v in (u.users if u.target in _VIEWS else {u: None})
        ]
    return bool(users) and all(u.op == "output" or u.target in _PRODUCTS for u in users)


def _rewrite(activation: fx.Node, product: fx.Node) -> None:
    gelu = activation.target is aten.gelu.default
    kwargs: dict[str, Any] = {"use_gelu": True} if gelu else {}
    graph = activation.graph
    target = aten._addmm_activation.default
    with graph.inserting_before(product):
        made = graph.call_function(target, product.args, kwargs)
    made.meta.update(product.meta)
    below = activation.args[0]
    assert isinstance(below, fx.Node)
    product.replace_all_uses_with(made)
    graph.erase_node(product)
    # The value that the activation had is now that of its argument.
    kept = made if below is product else below
    kept.meta["segment_node"] = activation.meta.get("segment_node")
    activation.replace_all_uses_with(kept)
    graph.erase_node(activation)
