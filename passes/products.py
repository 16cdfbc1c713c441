"""Sums that ride on matrix products: `x + a @ b` as one library call.

Before:

    mm = aten.mm.default(a, b)
    down = aten.view.default(mm, [4, 64, 256])
    y = aten.add.Tensor(x, down)

After:

    x_rows = aten.view.default(x, [256, 256])
    addmm = aten.addmm.default(x_rows, a, b)
    y = aten.view.default(addmm, [4, 64, 256])

The product then adds into a copy of `x`, which saves a pass over memory. Eager rounds the
product before it adds; in float32 and float64 that is a unit in the last place of the sum, as
is any other order of the product's own sum. In bfloat16 and float16 it is visible, so there it
is only done when the user gave rounding away (`keep_fp32`).
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from .partition import is_random
from .plans import ATenGraph

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten._unsafe_view.default)


def ride_sums(graph: ATenGraph, *, keep_fp32: bool = False) -> int:
    """Rewrites the graph in place; returns how many sums were moved."""
    moved = 0
    for node in list(graph.graph_module.graph.nodes):
        if node.op == "call_function" and node.target is aten.add.Tensor:
            moved += _ride(node, keep_fp32)
    if moved:
        graph.graph_module.graph.eliminate_dead_code(_is_impure)
    return moved


def _is_impure(node: fx.Node) -> bool:
    """Random calls stay, used or not: the stream has to be eager's."""
    if node.op in ("placeholder", "output"):
        return True
    schema = getattr(node.target, "_schema", None)
    return is_random(node) or (schema is not None and not schema.returns)


def _ride(add: fx.Node, keep_fp32: bool) -> bool:
    if add.kwargs.get("alpha", 1) != 1 or len(add.args) != 2:
        return False
    for summand, product in (add.args, add.args[::-1]):
        if not (isinstance(summand, fx.Node) and isinstance(product, fx.Node)):
            return False
        mm = _product_below(product)
        if mm is not None and _allowed(add, summand, mm, keep_fp32):
            _rewrite(add, summand, mm)
            return True
    return False


def _product_below(node: fx.Node) -> fx.Node | None:
    """The `mm` of which `node` is nothing but a reshape, if nobody else reads it."""
    while len(node.users) == 1 and node.target in _VIEWS:
        below = node.args[0]
        assert isinstance(below, fx.Node)
        node = below
    return node if len(node.users) == 1 and node.target is aten.mm.default else None


def _allowed(add: fx.Node, summand: fx.Node, mm: fx.Node, keep_fp32: bool) -> bool:
    total, x, product = (n.meta["val"] for n in (add, summand, mm))
    low = (torch.bfloat16, torch.float16)
    exact = (torch.float32, torch.float64)
    if product.dtype not in (exact + low if keep_fp32 else exact):
        return False
    if not (x.dtype is product.dtype is total.dtype) or x.device != product.device:
        return False
    # No broadcasting, and memory that can be seen as the product's rows.
    if x.size() != total.size() or not (x.is_contiguous() and total.is_contiguous()):
        return False
    if product.size() != total.size() and None in map(_spelled, (product, total)):
        return False
    return _in_memory(summand)


def _spelled(tensor: torch.Tensor) -> list[int] | None:
    """A size as a view takes it, without symbols; None if it has two of them."""
    size = [n if isinstance(n, int) else -1 for n in tensor.size()]
    return size if -1 not in size or (size.count(-1) == 1 and 0 not in size) else None


def _in_memory(node: fx.Node) -> bool:
    """True if the value exists in memory anyway, so that nothing is stored for this sum."""
    while node.target in _VIEWS:
        below = node.args[0]
        assert isinstance(below, fx.Node)
        node = below
    if node.op in ("placeholder", "get_attr"):
        return True
    is_product = node.target in (aten.mm.default, aten.addmm.default, aten.bmm.default)
    return is_product or (len(node.users) > 1 and node.target is not operator.getitem)


def _rewrite(add: fx.Node, summand: fx.Node, mm: fx.Node) -> None:
    graph = add.graph
    size = mm.meta["val"].size()

    def call(target: Any, args: tuple[Any, ...]) -> fx.Node:
        made = graph.call_function(target, args)
        values = fx.node.map_arg(args, lambda n: n.meta["val"])
        made.meta.update(add.meta)
        made.meta["val"] = target(*values)
        return made

    view, total = aten.view.default, add.meta["val"].size()
    with graph.inserting_before(add), mm.meta["val"].fake_mode:
        rows = summand
        if summand.meta["val"].size() != size:
            rows = call(view, (summand, _spelled(mm.meta["val"])))
        # The node itself becomes the last of the new calls, so that it keeps its name.
        if total == size:
            add.target, add.args = aten.addmm.default, (rows, *mm.args)
        else:
            add.target = view
            product = call(aten.addmm.default, (rows, *mm.args))
            add.args = (product, _spelled(add.meta["val"]))
    add.kwargs = {}
