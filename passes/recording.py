"""Which segments `mode="reduce-overhead"` may record as a CUDA graph.

    y = torch.relu(x @ w)          recorded: it reads tensors of one GPU and makes new ones
    x.add_(1)                      launched: it writes to its input
    torch.dropout(x, 0.5, True)    launched: it moves the random number generator
    x[x > 0]                       launched: the host waits for a number

A replay does what the kernels did and nothing that the host did, so only what is surely done
by kernels alone is recorded, for sizes that are known.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from .partition import is_random, is_view
from .plans import ATenGraph, Functional

_KERNELS_ALONE = frozenset(
    "mm addmm _addmm_activation bmm baddbmm mv addmv dot vdot addr convolution "
    "embedding gather index_select take index cat stack clone copy _to_copy "
    "constant_pad_nd cumsum cumprod cummax cummin logcumsumexp topk sort "
    "native_layer_norm native_group_norm _native_batch_norm_legit_no_training "
    "cudnn_batch_norm max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d "
    "upsample_nearest2d upsample_bilinear2d _softmax _log_softmax "
    "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention scatter triu tril "
    "sum mean amax amin max min argmax argmin any all prod var var_mean std std_mean "
    "full full_like zeros zeros_like ones ones_like arange iota scalar_tensor empty "
    "empty_like empty_strided new_full new_zeros new_empty convert_element_type "
    "clamp where fill lift_fresh_copy".split()
)
"""Operators, ours or a library's to compute, that only launch kernels; so do all pointwise ones.

NOTE: a capture that fails leaves PyTorch's random numbers and memory in disorder, so none is
tried with an operator that may wait for the device.
"""


_PRODUCTS = frozenset(
    "mm addmm _addmm_activation bmm baddbmm mv addmv dot vdot addr convolution "
    "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention".split()
)
"""Operators whose library asks how exact it must be, and is not asked again by a replay."""


def rounds(graph: ATenGraph) -> bool:
    """Whether a recording of a graph depends on what libraries may round."""
    return any(
        node.op == "call_function"
        and getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        in _PRODUCTS
        for node in graph.graph_module.graph.nodes
    )


def why_not(functional: Functional, devices: Collection[torch.device]) -> str:
    """Says why a segment is not recorded, or nothing if it may be.

    Args:
        functional: The segment's graphs and plans.
        devices: The devices of all tensors in it.
    """
    graph = functional.forward
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        return "it is not all on one GPU"
    if functional.backward is not None or functional.no_grad:
        return "autograd takes part in it"
    if functional.mutations:
        return "it writes to its inputs"
    assert graph is not None
    return _why_not_calls(graph)


def _why_not_calls(graph: ATenGraph) -> str:
    if not all(isinstance(value, torch.Tensor) for value in graph.inputs):
        return "it takes numbers"
    if not graph.results:
        return "it has no results"
    for result in graph.results:
        if not isinstance(getattr(result, "meta", {}).get("val"), torch.Tensor):
            return "a result is no tensor"
    for node in graph.graph_module.graph.nodes:
        if not all(map(_is_fixed, _tensors(node.meta.get("val")))):
            return "its sizes change"
        if node.op != "call_function":
            continue
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            continue
        if not _launches_alone(node):
            return f"`{schema.name}` may do more than launch kernels"
    return ""


def _launches_alone(node: fx.Node) -> bool:
    """Whether the call is surely kernels alone."""
    operator: Any = node.target
    space, _, name = operator._schema.name.partition("::")
    if space not in ("aten", "prims"):
        return False
    if name.startswith("_scaled_dot"):
        names = [argument.name for argument in operator._schema.arguments]
        given = dict(zip(names, node.args, strict=False)) | node.kwargs
        return name in _KERNELS_ALONE and given.get("dropout_p", 0.0) == 0.0
    if is_random(node):
        return False
    known = name in _KERNELS_ALONE or is_view(node)
    return known or torch.Tag.pointwise in operator.tags


def _tensors(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _is_fixed(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return all(type(n) is int for n in (*value.size(), *value.stride()))
    return not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)
