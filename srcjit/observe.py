"""What a caller can observe of a call, in a form that two runs can be compared by.

Used by `srcjit bisect` and by the differential tests: both ask whether a program compiled
by srcjit can be told apart from the same program under eager PyTorch.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from typing import Any

import numpy as np
import torch

TOLERANCE: dict[torch.dtype, float] = {
    torch.float64: 1e-9,
    torch.float32: 2e-5,
    torch.bfloat16: 2e-2,
    torch.float16: 2e-3,
    # Two neighbours.
    torch.float8_e4m3fn: 0.13,
    torch.float8_e4m3fnuz: 0.13,
    torch.float8_e5m2: 0.26,
    torch.float8_e5m2fnuz: 0.26,
    torch.complex128: 1e-9,
    torch.complex64: 2e-5,
}
"""Relative and absolute, for where a stage may do float operations in another order."""

_PLAIN = (int, complex, str, bytes, type(None), torch.dtype, torch.device, range, slice)
_OPAQUE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


class View:
    """Takes a value apart into a structure that compares with `==`, and its leaves.

    Tensors and floats are collected in order; an object met again is a reference, so that
    identity is part of the structure. What is inside functions, classes and objects
    written in C is not looked at.
    """

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.numbers: list[float] = []
        # Each object is kept alive, so that its id is not used again.
        self._seen: dict[int, tuple[int, Any]] = {}

    def of(self, value: Any) -> Any:
        """Returns the structure of `value`: strings, numbers, lists and tuples."""
        if isinstance(value, float):
            self.numbers.append(float(value))
            return "float"
        if isinstance(value, enum.Enum):
            return str(value)
        if isinstance(value, _PLAIN):
            return (type(value).__name__, repr(value))
        if type(value) is tuple and all(isinstance(v, _PLAIN) for v in value):
            # Python itself may make one object of equal constants.
            return ("tuple", [self.of(item) for item in value])
        if id(value) in self._seen:
            return ("again", self._seen[id(value)][0])
        self._seen[id(value)] = (len(self._seen), value)
        return (type(value).__name__, self._inside(value))

    def _inside(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            number = len(self.tensors) - 1
            return number, self.of(value.grad if value.is_leaf else None)
        if isinstance(value, np.ndarray):
            return str(value.dtype), list(value.shape), self.of(value.tolist())
        if isinstance(value, dict):
            return [(self.of(key), self.of(item)) for key, item in value.items()]
        if isinstance(value, (list, tuple)):
            return [self.of(item) for item in value]
        if isinstance(value, (set, frozenset)):
            return sorted(map(repr, value))
        if isinstance(value, torch.nn.Module):
            public = sorted(name for name in vars(value) if not name.startswith("_"))
            names = ("_parameters", "_buffers", "_modules", *public)
            return [(name, self.of(vars(value)[name])) for name in names]
        if isinstance(value, _OPAQUE):
            return None
        if dataclasses.is_dataclass(value) or hasattr(value, "__dict__"):
            return self.of(_attributes(value))
        return None


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, whether it has a `__dict__` or slots."""
    slotted = [c.__dict__.get("__slots__", ()) for c in type(value).__mro__]
    names = [n for s in slotted for n in ([s] if isinstance(s, str) else s)]
    slots = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return {**slots, **getattr(value, "__dict__", {})}


def layout(tensors: list[torch.Tensor]) -> list[tuple[Any, ...]]:
    """Returns for each tensor its layout, its version, and what it shares memory with."""
    first: dict[int, int] = {}
    places = {id(tensor): number for number, tensor in enumerate(tensors)}
    gradients = {id(tensor.grad) for tensor in tensors if tensor.is_leaf}
    facts = []
    for number, tensor in enumerate(tensors):
        strided = tensor.layout is torch.strided
        storage = tensor.untyped_storage().data_ptr() if strided else 0
        owner = first.setdefault(storage, number) if storage else number
        facts.append(
            (
                str(tensor.dtype),
                str(tensor.device),
                list(tensor.shape),
                list(tensor.stride()) if strided else str(tensor.layout),
                tensor.requires_grad,
                tensor.is_leaf,
                owner,
                tensor.storage_offset() if owner != number else None,
                places.get(id(tensor._base)),
                # How often autograd adds up into a gradient is its own affair.
                tensor._version
                if not tensor.is_inference() and id(tensor) not in gradients
                else None,
            )
        )
    return facts


def difference(actual: torch.Tensor, expected: torch.Tensor, factor: float) -> str:
    """Says how two tensors of one shape and dtype differ; empty if they agree.

    Args:
        actual: The tensor to judge.
        expected: The tensor to judge it by.
        factor: What the tolerance of the dtype is multiplied with; 0 for bit by bit, where
            any nan is as good as another.
    """
    tolerance = TOLERANCE.get(expected.dtype, 0.0) * factor
    if expected.is_meta:
        return ""
    if expected.is_quantized:
        actual, expected = actual.dequantize(), expected.dequantize()
    if expected.layout != torch.strided:
        actual, expected = actual.to_dense(), expected.to_dense()
    if expected.is_floating_point() and expected.dtype.itemsize == 1:
        actual, expected = actual.float(), expected.float()
    close = torch.isclose(
        actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True
    )
    if tolerance == 0.0 and expected.is_floating_point():
        # IEEE 754 leaves a nan's sign open: of two nans, which one an addition hands on is a
        # matter of the order in which an instruction gets its operands, so that CPython's
        # own `float + float` differs once its interpreter has specialized the bytecode.
        same_sign = torch.signbit(actual) == torch.signbit(expected)
        close &= same_sign | torch.isnan(expected)
    wrong = int((~close).sum())
    if not wrong:
        return ""
    where = tuple((~close).nonzero()[0].tolist())
    return (
        f"{wrong} of {close.numel()} elements differ, first at {list(where)}: "
        f"{actual[where].item()!r} instead of {expected[where].item()!r}"
    )
