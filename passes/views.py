"""View expressions: how to make an output again from the tensor whose memory it shows.

Before (torch-level graph; the output shares memory with the input `x`):

    t = x.transpose(0, 1)
    v = t.view(4, 2, 8)
    return v[0]

After (text for outside of the compiled graph):

    "{base}.transpose(0, 1).view(4, 2, 8)[0]"

Where the path through the graph is not a plain chain of view calls, the text is
`torch.as_strided` of the facts, which is the same memory and the same gradient.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

VIEW_NAMES = frozenset(
    """
    view view_as reshape transpose t permute swapaxes swapdims movedim moveaxis flatten
    unflatten squeeze unsqueeze expand expand_as narrow select diagonal unfold adjoint
    detach alias chunk split split_with_sizes tensor_split unbind as_strided contiguous to
    float double half bfloat16 real imag T mT H mH data view_as_real view_as_complex
    broadcast_to atleast_1d atleast_2d atleast_3d hsplit vsplit dsplit conj resolve_conj
    """.split()
)
"""Tensor methods and attributes that can give a view, called the same way from `torch`.

Some give a copy for other inputs (`reshape`); the caller has seen that this one did not.
"""

MOST_STEPS = 50
"""Calls in a chain."""

_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})


def chain(output: fx.Node, is_base: Callable[[fx.Node], bool]) -> str | None:
    """Returns the text that leads from a base to `output`.

    Args:
        output: A node of a torch-level graph.
        is_base: Whether a node is the tensor to start from.

    Returns:
        None if some step has no text: it is no view, or takes values of the graph. None
        as well for a chain so long that Python could not compile the expression.
    """
    steps: list[str] = []
    node = output
    while not is_base(node):
        step = _step(node)
        if step is None:
            return None
        text, node = step
        if len(steps) == MOST_STEPS:
            return None
        steps.append(text)
    return "{base}" + "".join(reversed(steps))


def detaching(output: fx.Node, is_base: Callable[[fx.Node], bool]) -> str:
    """Returns what cuts `output` off from a base: `".data"`, or else `".detach()"`.

    Writes to the former have a count of their own.
    """
    node: Any = output
    while isinstance(node, fx.Node) and not is_base(node):
        if node.target is getattr and node.args[1] == "data":
            return ".data"
        node = node.args[0] if node.args else None
    return ".detach()"


def _step(node: fx.Node) -> tuple[str, fx.Node] | None:
    if not node.args or not isinstance(node.args[0], fx.Node):
        return None
    base, rest = node.args[0], node.args[1:]
    if node.op == "call_function" and node.target is operator.getitem:
        index = _index(rest[0])
        return None if index is None else (f"[{index}]", base)
    if node.op == "call_function" and node.target is getattr:
        return (f".{rest[0]}", base) if rest[0] in _ATTRIBUTES else None
    name = node.target if node.op == "call_method" else _torch_name(node.target)
    if name not in VIEW_NAMES or name in _ATTRIBUTES - {"real", "imag"}:
        return None
    if name in ("real", "imag"):
        return f".{name}", base
    arguments = [_literal(a) for a in rest]
    arguments += [
        None if (text := _literal(v)) is None else f"{k}={text}"
        for k, v in node.kwargs.items()
    ]
    if any(a is None for a in arguments):
        return None
    return f".{name}({', '.join(a for a in arguments if a is not None)})", base


def _torch_name(target: Any) -> str:
    name = getattr(target, "__name__", "")
    return name if hasattr(torch.Tensor, name) else ""


def _literal(value: Any) -> str | None:
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, torch.memory_format):
        return str(value)
    if isinstance(value, (tuple, list)):
        parts = [_literal(v) for v in value]
        if any(p is None for p in parts):
            return None
        return "(" + "".join(f"{p}, " for p in parts) + ")"
    return None


def _index(value: Any) -> str | None:
    """Text of a basic index: integers, slices, None and Ellipsis."""
    if value is Ellipsis:
        return "..."
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return repr(value)
    if isinstance(value, slice):
        parts = [
            "" if part is None else _index(part)
            for part in (value.start, value.stop, value.step)
        ]
        if any(p is None for p in parts):
            return None
        start, stop, step = parts
        return f"{start}:{stop}" + (f":{step}" if step else "")
    if isinstance(value, tuple) and value:
        items = [_index(v) for v in value]
        if any(i is None for i in items):
            return None
        return ", ".join(str(i) for i in items) + ("," if len(items) == 1 else "")
    return None


def size_key(size: Any) -> Any:
    """Returns what two equal sizes have in common, without a guard: int or expression."""
    return size if isinstance(size, int) else size.node.expr


def strided_facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Returns dtype, size, strides, offset: what makes one view of a storage (hashable)."""
    return (
        tensor.dtype,
        tuple(map(size_key, tensor.size())),
        tuple(map(size_key, tensor.stride())),
        size_key(tensor.storage_offset()),
        tensor.is_conj(),
        tensor.is_neg(),
    )


def evaluate(expression: str, base: torch.Tensor) -> torch.Tensor:
    """Runs a view expression on a (fake) base."""
    names: Mapping[str, Any] = {"base": base, "torch": torch}
    made = eval(expression.replace("{base}", "base"), dict(names))
    assert isinstance(made, torch.Tensor)
    return made
