"""Values of attention's score function and softmax, rewritten where that changes nothing.

Before (a causal mask on scores that were scaled):

    where(bitwise_not(bitwise_and(le(j - i, 0), True)), -inf,
          float32(bfloat16(div(float32(bfloat16(product)), 8.0))))

After:

    where(int32(j) <= int32(i), mul(float32(bfloat16(product)), 0.125), -inf)
"""

from __future__ import annotations

import math

import sympy
import torch

from .attention_form import compared_index
from .indexing import upper_bound
from .loops import Const, Expr, IndexValue, Op, Value, cast, op
from .rounding import LOW_PRECISION


def widened(value: Value) -> Value:
    """A low-precision value in float32."""
    return cast(value, torch.float32) if value.dtype in LOW_PRECISION else value


def unrounded(value: Value) -> Value:
    """A value of the softmax without the roundings on its way."""
    while True:
        inner = value
        while isinstance(inner, Op) and inner.name == "cast":
            if inner.dtype not in (*LOW_PRECISION, torch.float32):
                return value
            inner = inner.args[0]
        if inner is value or inner.dtype is not torch.float32:
            return value
        value = inner


def cheaper(value: Value, ranges: dict[sympy.Symbol, Expr], levels: int = 8) -> Value:
    """An equal value of a score function that costs less at each point.

    Args:
        value: The value.
        ranges: Of the symbols in it.
        levels: How deep choices of choices are looked into.
    """
    if not isinstance(value, Op):
        return value
    match value:
        case Op(name="bitwise_and", args=(kept, Const(value=True))):
            return kept
        case Op(name="where", args=(Op(name="bitwise_not", args=(c,)), a, b)):
            return op("where", c, b, a)
        case Op(name="cast", args=(Op(name="where", args=(c, a, b)) as chosen,)):
            wide = chosen.dtype in LOW_PRECISION and value.dtype is torch.float32
            if wide and levels:
                # What is chosen may then not have to be rounded.
                casts = (cast(x, value.dtype) for x in (a, b))
                return op("where", c, *(cheaper(x, ranges, levels - 1) for x in casts))
        case Op(name="cast", args=(Op(name="cast", args=(scaled,)) as rounded,)):
            if _scales_exactly(scaled) and rounded.dtype is torch.bfloat16:
                return _as_product(scaled) if value.dtype is scaled.dtype else value
    compared = compared_index(value)
    if compared is None:
        return value
    name, left, right = compared
    bounds = [upper_bound(e, ranges) for e in (left, right)]
    if not all(b is not None and b.is_Integer and b < 2**30 for b in bounds):
        return value
    return op(name, IndexValue(left, torch.int32), IndexValue(right, torch.int32))


def _scales_exactly(value: Value) -> bool:
    """True for a bfloat16 number times a power of two.

    Rounding it is exact but for denormal results, of which the exponential is 1 either way.
    """
    if not (isinstance(value, Op) and value.name in ("mul", "div")):
        return False
    number, factor = value.args
    narrow = isinstance(number, Op) and number.name == "cast"
    return (
        value.dtype is torch.float32
        and narrow
        and number.operands[0].dtype is torch.bfloat16
        and isinstance(factor, Const)
        and _is_power_of_two(float(factor.value))
    )


def _as_product(scaled: Value) -> Value:
    assert isinstance(scaled, Op)
    number, factor = scaled.args
    if scaled.name == "mul":
        return scaled
    assert isinstance(factor, Const)
    return op("mul", number, Const(1.0 / factor.value, torch.float32))


def _is_power_of_two(number: float) -> bool:
    return 2.0**-64 <= abs(number) <= 2.0**64 and abs(math.frexp(number)[0]) == 0.5
