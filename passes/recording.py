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

from .evaluate.raising import OWN_NAMESPACES
from .partition import is_random
from .plans import ATenGraph, Functional

_HOST = (
    torch.Tag.dynamic_output_shape,
    torch.Tag.data_dependent_output,
    torch.Tag.nondeterministic_seeded,
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
        if schema.name.partition("::")[0] not in OWN_NAMESPACES:
            return f"`{schema.name}` may do more than launch kernels"
        if is_random(node) or any(tag in node.target.tags for tag in _HOST):
            return f"`{schema.name}` needs the host"
    return ""


def _tensors(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _is_fixed(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return all(type(n) is int for n in (*value.size(), *value.stride()))
    return not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)
