"""Division, its roundings and its remainders.

    div(x, y, rounding_mode="floor")[i] = floor(x[i] / y[i]), exactly as Python floors

The kernels differ in where they round halves and in how they divide by a number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from ..definitions import Definition
from ..loops import Value, op
from .builder import Builder, NoLoopForm, compute_dtype
from .pointwise import Scalar, apply, each_rounded, like


def _divisor(b: Builder, y: Any) -> None:
    """Integer division: eager raises for a zero divisor, so it must be known."""
    if not b.fake.dtype.is_floating_point and (not isinstance(y, int) or y == 0):
        raise NoLoopForm("an integer divisor that may be zero")


def div(b: Builder, x: Any, y: Any, rounding_mode: str | None = None) -> Definition:
    if rounding_mode is None:
        if b.fake.device.type == "cuda" and isinstance(y, int | float) and y != 0:
            # As in BinaryDivTrueKernel.cu: a number divides by its reciprocal.
            inverse = _inverse(y, b.fake.dtype)
            return apply(b, lambda u: op("mul", u, like(u, inverse)), x)
        return apply(b, lambda u, v: op("div", u, v), x, y)
    _divisor(b, y)
    if not b.fake.dtype.is_floating_point:
        name = "floordiv" if rounding_mode == "floor" else "truncdiv"
        return apply(b, lambda u, v: op(name, u, v), x, y)
    if rounding_mode == "trunc":
        return _truncated(b, x, y)
    return apply(b, functools.partial(float_floordiv, _between(b, y, "cpu")), x, y)


def _truncated(b: Builder, x: Any, y: Any) -> Definition:
    if b.fake.device.type == "cuda" and isinstance(y, int | float) and y != 0:
        inverse = _inverse(y, b.fake.dtype)
        return apply(b, lambda u: op("trunc", op("mul", u, like(u, inverse))), x)
    each = _between(b, y, "cpu", "cuda")
    return apply(b, lambda u, v: op("trunc", each(op("div", u, v))), x, y)


def _inverse(number: float, dtype: torch.dtype) -> float:
    """By what CUDA kernels multiply where they divide by a number, which is not 0."""
    held = torch.tensor(float(number), dtype=compute_dtype(dtype))
    # Of float32 the quotient of float64s rounds to the same; the first reciprocal that PyTorch
    # computes in a process takes 8 ms.
    inverse = 1.0 / held.item() if held.item() else math.copysign(math.inf, number)
    return torch.tensor(inverse, dtype=held.dtype).item()


def _between(b: Builder, divisor: Any, *devices: str) -> Scalar:
    """What is done to a quotient before it is rounded to an integer.

    Kernels on `devices` round it to the element type by then; the CPU's does not where the
    divisor is one element.
    """
    device = b.fake.device.type
    tensor = isinstance(divisor, Definition)
    alone = not tensor or (device == "cpu" and all(s == 1 for s in divisor.size))
    return (lambda v: v) if alone or device not in devices else each_rounded(b)


def floor_divide(b: Builder, x: Any, y: Any) -> Definition:
    return div(b, x, y, "floor")


def float_floordiv(each: Scalar, u: Value, v: Value) -> Value:
    """Python's floor division of floats (c10/util/generic_math.h, div_floor_floating).

    Args:
        each: Applied to the result of each operation that rounds.
        u: The dividend.
        v: The divisor.
    """
    zero, one, half = like(u, 0.0), like(u, 1.0), like(u, 0.5)
    rest = each(op("fmod", u, v))
    quotient = each(op("div", each(op("sub", u, rest)), v))
    other_sign = op(
        "bitwise_and",
        op("ne", rest, zero),
        op("ne", op("lt", v, zero), op("lt", rest, zero)),
    )
    quotient = op("where", other_sign, each(op("sub", quotient, one)), quotient)
    floor = op("floor", quotient)
    floor = op(
        "where",
        op("gt", each(op("sub", quotient, floor)), half),
        each(op("add", floor, one)),
        floor,
    )
    signed_zero = op("copysign", zero, op("div", u, v))
    rounded = op("where", op("ne", quotient, zero), floor, signed_zero)
    return op("where", op("eq", v, zero), op("div", u, v), rounded)


def fmod(b: Builder, x: Any, y: Any) -> Definition:
    _divisor(b, y)
    name = "fmod" if b.fake.dtype.is_floating_point else "rem"
    return apply(b, lambda u, v: op(name, u, v), x, y, rounded=True)


def remainder(b: Builder, x: Any, y: Any) -> Definition:
    _divisor(b, y)
    if not b.fake.dtype.is_floating_point:
        return apply(b, lambda u, v: op("mod", u, v), x, y)

    def python_mod(u: Value, v: Value) -> Value:
        zero, rest = like(u, 0.0), op("fmod", u, v)
        other_sign = op(
            "bitwise_and",
            op("ne", rest, zero),
            op("ne", op("lt", v, zero), op("lt", rest, zero)),
        )
        return op("where", other_sign, op("add", rest, v), rest)

    return apply(b, python_mod, x, y, rounded=True)


TABLE: dict[str, Callable[..., Any]] = {
    "aten.div": div,
    "aten.floor_divide": floor_divide,
    "aten.fmod": fmod,
    "aten.remainder": remainder,
}
