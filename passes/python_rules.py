"""PyTorch's rules in Python for symbolic sizes, without those that replace eager's kernels.

Kernels in C++ of some composite operators take symbolic sizes for numbers, so recording asks
for those in Python (`enable_python_dispatcher`). With them come decompositions of operators
that have a kernel: resizing, shrinking, margin losses. These round elsewhere, and make NaN of
infinities; whether sizes are known must not change what is computed. They are set aside.
Rules that draw other random numbers than eager's kernels have others in their place: that of
`dropout` draws for a probability of 1, and those of recurrent layers forget their dropout.

Before (what is recorded of `F.softshrink(x)`):    After:

    y = where(abs(x) > 0.5, x - sign(x) * 0.5,         y = aten.softshrink.default(x, 0.5)
              x * 0)
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher

from .record import NUMBER_TYPES

aten = torch.ops.aten

_KEYS = (
    torch._C.DispatchKey.Autograd,
    torch._C.DispatchKey.CompositeImplicitAutograd,
)

RESIZING = """
upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
_upsample_lanczos2d_aa
""".split()
"""Operators whose overload `vec` finds the size of the result and calls the other one."""

OTHERS = (
    "hardshrink softshrink multi_margin_loss multilabel_margin_loss_forward".split()
)
"""Further operators with a decomposition where autograd stands."""

RECURRENT = "rnn_tanh rnn_relu gru lstm".split()
"""Operators of several layers, between which values are dropped."""

_lock = threading.RLock()


def needs_python_rules(graph: fx.Graph, values: list[Any]) -> bool:
    """True if PyTorch's Python kernels of composite ops are needed.

    Those in C++ take symbolic sizes for numbers, and hide that batch norm writes to its
    running statistics. (They are faster, though.)
    """
    return any(
        isinstance(value, NUMBER_TYPES)
        or (
            isinstance(value, torch.Tensor)
            and any(
                isinstance(n, torch.SymInt) for n in (*value.size(), *value.stride())
            )
        )
        for value in values
    ) or any(
        "batch_norm" in name or "instance_norm" in name
        for name in (str(getattr(n.target, "__name__", n.target)) for n in graph.nodes)
    )


@contextmanager
def python_rules() -> Iterator[None]:
    """Uses PyTorch's rules in Python, but for operators of which eager has a kernel."""
    replaced = _replaced()
    with _lock, enable_python_dispatcher():
        kept = {op: dict(op.py_kernels) for op in replaced}
        try:
            for op, rule in replaced.items():
                for key in _KEYS:
                    op.py_kernels.pop(key, None)
                if rule is not None:
                    op.py_kernels[_KEYS[1]] = rule
                op._dispatch_cache.clear()
            yield
        finally:
            for op, kernels in kept.items():
                op.py_kernels.clear()
                op.py_kernels.update(kernels)
                op._dispatch_cache.clear()


@functools.cache
def _replaced() -> dict[Any, Any]:
    """Operators whose decompositions are set aside, and what stands there instead."""
    import torch._decomp  # noqa: F401 (registers them)

    found: dict[Any, Any] = {aten.dropout.default: _dropout}
    for name in RECURRENT:
        packet = getattr(aten, name)
        for op, before in ((packet.input, 1), (packet.data, 2)):
            rule = op.py_kernels[_KEYS[1]]
            found[op] = functools.partial(_layer_by_layer, rule, before)
    for name in (*RESIZING, *OTHERS):
        packet = getattr(aten, name, None)
        if packet is None:
            continue  # of another version of PyTorch
        found[packet.default] = None
        if name in RESIZING:
            found[packet.vec] = functools.partial(_resized, packet.default)
    return found


def _resized(op: Any, x: torch.Tensor, output_size: Any, *rest: Any) -> Any:
    """What the kernel of `vec` in C++ does, which needs to know sizes."""
    from torch._decomp import decompositions

    *corners, factors = rest
    size_of: Any = decompositions.upsample_compute_output_size
    size = size_of(x.size(), output_size, factors)
    return op(x, size, *corners, *(factors or [None] * (x.dim() - 2)))


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """What PyTorch's kernel in C++ does."""
    if p == 0 or not train:
        return x
    if p == 1:
        return x * x.new_zeros(())
    if x.device.type != "cpu":
        kept: torch.Tensor = aten.native_dropout(x, p, train)[0]
        return kept
    if not 0 < p < 1:
        raise RuntimeError(
            f"dropout probability has to be between 0 and 1, but got {p}"
        )
    return x * torch.empty_like(x).bernoulli_(1 - p).div_(1 - p)


def _layer_by_layer(rule: Any, before: int, *args: Any) -> tuple[torch.Tensor, ...]:
    """Runs a rule for each of the layers, with dropout between them.

    Args:
        rule: PyTorch's, which has no dropout between layers.
        before: Number of the arguments before the hidden states. The first of them is the
            input.
        args: The operator's.
    """
    given, (hidden, weights, biases, layers, p, train, *rest) = (
        args[:before],
        args[before:],
    )
    if layers == 1 or p == 0 or not train:
        results: tuple[torch.Tensor, ...] = rule(*args)
        return results
    states = [hidden] if isinstance(hidden, torch.Tensor) else list(hidden)
    x, sizes = given[0], given[1:]
    directions = 2 if rest[0] else 1
    parts: list[list[torch.Tensor]] = [[] for _ in states]
    for layer in range(layers):
        if layer:
            x = torch.dropout(x, p, True)
        first = [s.narrow(0, layer * directions, directions) for s in states]
        start = first[0] if isinstance(hidden, torch.Tensor) else first
        own = len(weights) // layers
        w = weights[layer * own : (layer + 1) * own]
        x, *last = rule(x, *sizes, start, w, biases, 1, 0.0, train, *rest)
        for part, state in zip(parts, last, strict=True):
            part.append(state)
    return (x, *(torch.cat(part) for part in parts))
