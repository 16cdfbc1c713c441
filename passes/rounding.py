"""Casts that change nothing, or that the user gave away, are dropped from values.

Before:

    mul(float32(bfloat16(float32(x[i]))), float32(2))

After, for `bfloat16` data `x` (and with `keep_fp32` for anything in float32):

    mul(float32(x[i]), 2.0)
"""

from __future__ import annotations

import torch

from .indirect import arithmetic
from .loops import FLOAT8, Const, IndexValue, Op, Value, cast, rebuild, walk

LOW_PRECISION = (torch.bfloat16, torch.float16)


class Casts:
    """Simplifies the casts of values, each value once.

    Under `keep_fp32` values are not rounded on their way through a kernel.
    """

    def __init__(self, keep_fp32: bool) -> None:
        self.keep_fp32 = keep_fp32
        self.done: dict[Value, Value] = {}

    def simplify(self, value: Value) -> Value:
        """Returns an equal value with fewer casts."""
        for v in walk([value], self.done):
            new = rebuild(v, tuple(self.done[o] for o in v.operands))
            if isinstance(new, IndexValue):
                new = arithmetic(new)
            self.done[v] = self._cast(new)
        return self.done[value]

    def _cast(self, v: Value) -> Value:
        if not (isinstance(v, Op) and v.name == "cast"):
            return v
        (inner,) = v.args
        small = v.dtype in (*LOW_PRECISION, *FLOAT8)
        if isinstance(inner, Const) and inner.dtype is torch.bool and small:
            return cast(Const(float(inner.value), torch.float32), v.dtype)
        if isinstance(inner, Const) and not small:
            if v.dtype.is_floating_point or not inner.dtype.is_floating_point:
                return Const(_rounded(inner.value, v.dtype), v.dtype)
            return v
        if isinstance(inner, Op) and inner.name == "cast":
            source = inner.args[0]
            low = inner.dtype in LOW_PRECISION
            if low and self.keep_fp32 and source.dtype is torch.float32:
                return cast(source, v.dtype)
            if source.dtype is v.dtype and _holds(inner.dtype, source.dtype):
                return source
        return v


def _rounded(value: float, dtype: torch.dtype) -> float | int | bool:
    return torch.tensor(value).to(dtype).item() if dtype is not torch.float64 else value


def _holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """True if every value of `narrow` survives a trip through `wide`."""
    if narrow in LOW_PRECISION:
        return wide in (torch.float32, torch.float64)
    return narrow is torch.float32 and wide is torch.float64
