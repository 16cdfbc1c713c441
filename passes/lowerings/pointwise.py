"""Element-wise arithmetic, comparisons, logic and conversions.

Low-precision operands are widened to float32, computed on, and rounded once at the end of
each ATen call, as ATen's own kernels do; so a chain of calls rounds where eager rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..definitions import Definition, Read
from ..indexing import Index
from ..loops import Const, Value, cast, op
from .builder import (
    LOW_PRECISION,
    Builder,
    NoLoopForm,
    compute_dtype,
    element,
    known_number,
    number,
)

Scalar = Callable[..., Value]
"""Computes a value from values of one dtype."""


def apply(
    b: Builder,
    function: Scalar,
    *arguments: Any,
    dtype: torch.dtype | None = None,
    rounded: bool = False,
) -> Definition:
    """Maps `function` over broadcast arguments converted to `dtype`.

    Args:
        b: The node.
        function: From values to the value of the result.
        arguments: Tensors and numbers.
        dtype: By default the one in which eager computes for the node's output.
        rounded: Eager rounds numbers and scalar tensors to the low precision of the output
            before it computes; without, they take part in float32.
    """
    work = dtype or compute_dtype(b.fake.dtype)
    common = b.fake.dtype if dtype is None else dtype
    # The CPU's kernels take one element, or a number, in float32 only as the second of two.
    narrow = b.fake.device.type == "cpu"
    given = [
        (a, rounded or (narrow and (n == 0 or (tensor and len(arguments) != 2))))
        for n, a in enumerate(arguments)
        for tensor in [isinstance(a, Definition)]
    ]

    def at(read: Read, index: Index) -> Value:
        values = [_operand(a, read, index, work, common, r) for a, r in given]
        return cast(function(*values), b.fake.dtype)

    return b.map(at)


def _operand(
    argument: Any,
    read: Read,
    index: Index,
    work: torch.dtype,
    common: torch.dtype,
    rounded: bool,
) -> Value:
    low = common in LOW_PRECISION
    if not isinstance(argument, Definition):
        return (
            rounded_number(argument, common)
            if low and rounded
            else number(argument, work)
        )
    if low and argument.dtype is not common and (argument.size or rounded):
        return cast(element(argument, read, index, common), work)
    return element(argument, read, index, work)


def rounded_number(argument: Any, dtype: torch.dtype) -> Value:
    """A number as eager stores it in a tensor of `dtype` before it compares."""
    if dtype in LOW_PRECISION and isinstance(argument, int | float):
        argument = torch.tensor(argument, dtype=dtype).item()
    return number(argument, compute_dtype(dtype))


def unary(name: str) -> Callable[..., Definition]:
    """A primitive of one operand, computed in the dtype of the output."""

    def lowering(b: Builder, x: Definition) -> Definition:
        return apply(b, lambda v: op(name, v), x)

    return lowering


def float_unary(function: Scalar) -> Callable[..., Definition]:
    def lowering(b: Builder, x: Definition) -> Definition:
        return apply(b, function, x)

    return lowering


def binary(name: str) -> Callable[..., Definition]:
    """A primitive of two operands that have been promoted to the output's dtype."""

    def lowering(b: Builder, x: Any, y: Any) -> Definition:
        return apply(b, lambda u, v: op(name, u, v), x, y, rounded=True)

    return lowering


def each_rounded(b: Builder) -> Scalar:
    """What a kernel that computes in the element type does after each operation."""
    dtype = b.fake.dtype
    if dtype not in LOW_PRECISION:
        return lambda v: v
    return lambda v: cast(cast(v, dtype), v.dtype)


def like(value: Value, n: float) -> Const:
    """A constant of the dtype of `value`."""
    return Const(n, value.dtype)


# ── arithmetic ────────────────────────────────────────────────────────────────────────────


def add(b: Builder, x: Any, y: Any, alpha: Any = 1) -> Definition:
    return _add(b, x, y, alpha, "add")


def sub(b: Builder, x: Any, y: Any, alpha: Any = 1) -> Definition:
    return _add(b, x, y, alpha, "sub")


def _add(b: Builder, x: Any, y: Any, alpha: Any, name: str) -> Definition:
    if b.fake.dtype is torch.bool:
        if name == "sub":
            raise NoLoopForm("eager refuses to subtract bools")
        if not known_number(alpha):
            return apply(b, lambda u, v: u, x, y)
        return apply(b, lambda u, v: op("bitwise_or", u, v), x, y)
    # The CPU kernel takes numbers in the tensor's dtype, the CUDA kernel in float32.
    rounded = b.fake.device.type == "cpu"
    if isinstance(alpha, int | float) and alpha == 1:
        return apply(b, lambda u, v: op(name, u, v), x, y, rounded=rounded)

    # Eager adds the negated number: -0 is 0 where it is an integer, and -0.0 where not.
    negated = name == "sub" and isinstance(alpha, int | float)
    signed = -alpha if negated else alpha

    def scaled(u: Value, v: Value) -> Value:
        factor = (
            rounded_number(signed, b.fake.dtype) if rounded else number(signed, v.dtype)
        )
        if not v.dtype.is_floating_point:
            combined = "add" if negated else name
            return op(combined, u, op("mul", v, factor))
        # One rounding, as in eager's kernels.
        if name == "sub" and not negated:
            factor = op("neg", factor)
        return op("fma", v, factor, u)

    return apply(b, scaled, x, y, rounded=rounded)


def mul(b: Builder, x: Any, y: Any) -> Definition:
    name = "bitwise_and" if b.fake.dtype is torch.bool else "mul"
    return apply(b, lambda u, v: op(name, u, v), x, y)


def power(b: Builder, x: Any, y: Any) -> Definition:
    """`x ** y`; eager has exact forms for a few constant exponents (PowKernel.cpp)."""
    # The CPU kernel for float16 has one form for all of them.
    plain = b.fake.device.type == "cpu" and b.fake.dtype is torch.float16
    if isinstance(y, int | float) and not isinstance(y, bool) and not plain:
        form = _fixed_power(y, b.fake.dtype)
        if form is not None:
            return apply(b, form, x)
    if not b.fake.dtype.is_floating_point:
        raise NoLoopForm("integer power")
    return apply(b, lambda u, v: op("pow", u, v), x, y, rounded=True)


def _fixed_power(exponent: float, dtype: torch.dtype) -> Scalar | None:
    def square(v: Value) -> Value:
        return op("mul", v, v)

    def rounded_square(v: Value) -> Value:
        # PowKernel multiplies in the element type: a half is rounded after each product.
        return cast(cast(square(v), dtype), v.dtype)

    match exponent:
        case 0:
            return lambda v: like(v, 1)
        case 1:
            return lambda v: v
        case 2:
            return square
        case 3:
            return lambda v: op("mul", rounded_square(v), v)
    if not dtype.is_floating_point:
        return None
    match exponent:
        case 0.5:
            return lambda v: op("sqrt", v)
        case -0.5:
            return lambda v: op("div", like(v, 1.0), op("sqrt", v))
        case -1:
            return lambda v: op("div", like(v, 1.0), v)
        case -2:
            return lambda v: op("div", like(v, 1.0), rounded_square(v))
    return None


def neg(b: Builder, x: Definition) -> Definition:
    if b.fake.dtype is torch.bool:
        raise NoLoopForm("eager refuses to negate bools")
    return apply(b, lambda v: op("neg", v), x)


def absolute(b: Builder, x: Definition) -> Definition:
    if b.fake.dtype is torch.bool:
        return apply(b, lambda v: v, x)
    return apply(b, lambda v: op("abs", v), x)


def sign(b: Builder, x: Definition) -> Definition:
    """-1, 0 or 1; NaN gives 0, as eager's difference of two comparisons does."""
    if b.fake.dtype is torch.bool:
        return apply(b, lambda v: v, x)

    def difference(v: Value) -> Value:
        zero = like(v, 0)
        return op(
            "sub", cast(op("lt", zero, v), v.dtype), cast(op("lt", v, zero), v.dtype)
        )

    return apply(b, difference, x)


def square(b: Builder, x: Definition) -> Definition:
    return mul(b, x, x)


def rounding(name: str) -> Callable[..., Definition]:
    """floor, ceil, trunc and round are the identity on integers."""

    def lowering(b: Builder, x: Definition) -> Definition:
        if not b.fake.dtype.is_floating_point:
            return apply(b, lambda v: v, x)
        return apply(b, lambda v: op(name, v), x)

    return lowering


def round_decimals(b: Builder, x: Definition, *, decimals: int = 0) -> Definition:
    if decimals == 0:
        return rounding("round")(b, x)
    raise NoLoopForm("round to decimals")


def reciprocal(b: Builder, x: Definition) -> Definition:
    return apply(b, lambda v: op("div", like(v, 1.0), v), x)


def rsqrt(b: Builder, x: Definition) -> Definition:
    return apply(b, lambda v: op("rsqrt", v), x)


def extreme(number_name: str, bool_name: str) -> Callable[..., Definition]:
    """maximum and minimum; on bools they are `or` and `and`."""

    def lowering(b: Builder, x: Any, y: Any) -> Definition:
        name = bool_name if b.fake.dtype is torch.bool else number_name
        return apply(b, lambda u, v: op(name, u, v), x, y)

    return lowering


def float_extreme(name: str, integer: str, boolean: str) -> Callable[..., Definition]:
    def lowering(b: Builder, x: Any, y: Any) -> Definition:
        dtype = b.fake.dtype
        chosen = name if dtype.is_floating_point else integer
        chosen = boolean if dtype is torch.bool else chosen
        return apply(b, lambda u, v: op(chosen, u, v), x, y)

    return lowering


def clamp(b: Builder, x: Definition, low: Any = None, high: Any = None) -> Definition:
    """`min(max(x, low), high)`; NaN stays."""
    if b.fake.dtype is torch.bool:
        raise NoLoopForm("clamp of bools")
    bounds = [("maximum", low), ("minimum", high)]
    chosen = [(name, bound) for name, bound in bounds if bound is not None]
    # A NaN bound makes every element NaN only in `maximum`'s rule, which eager follows too.
    # Of equal operands the second is the result. So on the CPU -0.0 is within a bound of 0.0
    # that is a number, and replaced by one that is a tensor (by eager's vectorized loop; the
    # elements left over keep theirs).

    def limited(v: Value, *limits: Value) -> Value:
        for (name, bound), limit in zip(chosen, limits, strict=True):
            order = (v, limit) if isinstance(bound, Definition) else (limit, v)
            v = op(name, *order)
        return v

    return apply(b, limited, x, *(bound for _, bound in chosen))


def clamp_min(b: Builder, x: Definition, low: Any) -> Definition:
    return clamp(b, x, low, None)


def clamp_max(b: Builder, x: Definition, high: Any) -> Definition:
    return clamp(b, x, None, high)


def lerp(b: Builder, start: Any, end: Any, weight: Any) -> Definition:
    """Interpolates from the nearer end (ATen/native/Lerp.h), with fused products."""

    def form(s: Value, e: Value, w: Value) -> Value:
        one, difference = like(s, 1.0), op("sub", e, s)
        from_start = op("fma", w, difference, s)
        from_end = op("fma", op("neg", difference), op("sub", one, w), e)
        if isinstance(w, Const):
            near = abs(torch.tensor(w.value, dtype=w.dtype).item()) < 0.5
            return from_start if near else from_end
        return op("where", op("lt", op("abs", w), like(s, 0.5)), from_start, from_end)

    return apply(b, form, start, end, weight, rounded=isinstance(weight, Definition))


def addcmul(b: Builder, x: Any, y: Any, z: Any, *, value: Any = 1) -> Definition:
    def form(u: Value, v: Value, w: Value) -> Value:
        scaled = v if value == 1 else op("mul", number(value, v.dtype), v)
        if not v.dtype.is_floating_point:
            return op("add", u, op("mul", scaled, w))
        return op("fma", scaled, w, u)

    return apply(b, form, x, y, z)


def addcdiv(b: Builder, x: Any, y: Any, z: Any, *, value: Any = 1) -> Definition:
    if not b.fake.dtype.is_floating_point:
        raise NoLoopForm("integer addcdiv")

    def form(u: Value, v: Value, w: Value) -> Value:
        if value == 1:
            return op("add", u, op("div", v, w))
        factor = number(value, v.dtype)
        if b.fake.device.type == "cuda":
            return op("fma", factor, op("div", v, w), u)
        return op("add", u, op("div", op("mul", factor, v), w))

    return apply(b, form, x, y, z)


def logit(b: Builder, x: Definition, eps: Any = None) -> Definition:
    """`log(x / (1 - x))`; the CPU kernel rounds halves after each operation."""
    low = None if eps is None else known_number(eps)
    each = each_rounded(b) if b.fake.device.type == "cpu" else lambda v: v

    def form(v: Value) -> Value:
        one = like(v, 1.0)
        if low is not None:
            first, last = each(like(v, low)), each(like(v, 1.0 - low))
            v = op("minimum", last, op("maximum", first, v))
        return op("log", each(op("div", v, each(op("sub", one, v)))))

    return apply(b, form, x)


def nextafter(b: Builder, x: Any, y: Any) -> Definition:
    if b.fake.dtype in LOW_PRECISION:
        raise NoLoopForm("the neighbour of a half is no operation on float32")
    return binary("nextafter")(b, x, y)


def _degrees(v: Value) -> Value:
    return op("mul", v, like(v, 180.0 / math.pi))


def _radians(v: Value) -> Value:
    return op("mul", v, like(v, math.pi / 180.0))


TABLE: dict[str, Callable[..., Any]] = {
    "aten.add": add,
    "aten.sub": sub,
    "aten.mul": mul,
    "aten.pow": power,
    "aten.neg": neg,
    "aten.abs": absolute,
    "aten.sign": sign,
    "aten.floor": rounding("floor"),
    "aten.ceil": rounding("ceil"),
    "aten.trunc": rounding("trunc"),
    "aten.round": round_decimals,
    "aten.reciprocal": reciprocal,
    "aten.rsqrt": rsqrt,
    "aten.maximum": extreme("maximum", "bitwise_or"),
    "aten.minimum": extreme("minimum", "bitwise_and"),
    "aten.fmax": float_extreme("fmax", "maximum", "bitwise_or"),
    "aten.fmin": float_extreme("fmin", "minimum", "bitwise_and"),
    "aten.clamp": clamp,
    "aten.clamp_min": clamp_min,
    "aten.clamp_max": clamp_max,
    "aten.lerp": lerp,
    "aten.addcmul": addcmul,
    "aten.addcdiv": addcdiv,
    "aten.atan2": binary("atan2"),
    "aten.hypot": binary("hypot"),
    "aten.copysign": binary("copysign"),
    "aten.nextafter": nextafter,
    "aten.logit": logit,
    "aten.rad2deg": float_unary(_degrees),
    "aten.deg2rad": float_unary(_radians),
    **{
        f"aten.{name}": unary(name)
        for name in (
            "sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
            "asinh acosh atanh erf erfc erfinv lgamma sigmoid"
        ).split()
    },
}
