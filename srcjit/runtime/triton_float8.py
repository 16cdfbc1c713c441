"""Floats of 8 bits in Triton kernels, which see them as uint8: made of float32, and widened.

Triton's own types saturate, lose the sign of NaN and do not exist on every GPU. What is here is
what PyTorch's kernels make: by the GPU's instruction, where there is one and it agrees, else
by integer arithmetic. `saturates` is `srcjit.runtime.float8.saturates`.

A denormal is made without a denormal float32: (1 + m) 2^e - 2^e.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,no-redef"

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "from_e4m3fn",
    "from_e4m3fnuz",
    "from_e5m2",
    "from_e5m2fnuz",
    "from_e8m0fnu",
    "to_e4m3fn",
    "to_e4m3fnuz",
    "to_e5m2",
    "to_e5m2fnuz",
    "to_e8m0fnu",
]


QUIET = tl.constexpr(0x7FC00000 if triton.knobs.runtime.interpret else 0x7FFFFFFF)
"""Bits that every NaN has which is made of another: a GPU makes all NaN alike."""


@triton.jit
def _number(x):
    return x.to(tl.float32, bitcast=True)


@triton.jit
def _bits(x):
    return x.to(tl.int32, bitcast=True)


@triton.jit
def _sign(x):
    """The sign bit of a float32 in its place in 8 bits."""
    return (_bits(x) >> 24) & 0x80


@triton.jit
def _widened(m, FRACTION: tl.constexpr, BIAS: tl.constexpr):
    """The float32 of a magnitude that is a number, as bits."""
    least: tl.constexpr = (128 - BIAS) << 23
    shifted = (m << (23 - FRACTION)) + least
    denormal = _bits(_number(shifted) - 2.0 ** (1 - BIAS))
    return tl.where(m < (1 << FRACTION), denormal, shifted - (1 << 23))


@triton.jit
def _narrowed(x, FRACTION: tl.constexpr, BIAS: tl.constexpr):
    """The magnitude of a float32, to nearest even; one above the largest if it is too large."""
    n = _bits(x) & 0x7FFFFFFF
    shift: tl.constexpr = 23 - FRACTION
    least: tl.constexpr = (128 - BIAS) << 23
    carrier: tl.constexpr = 151 - BIAS - FRACTION
    denormal = _bits(_number(n) + 2.0 ** (carrier - 127)) - (carrier << 23)
    odd = (n >> shift) & 1
    normal = (n - (least - (1 << 23)) + ((1 << (shift - 1)) - 1) + odd) >> shift
    return tl.where(n < least, denormal, normal)


@triton.jit
def from_e4m3fn(b):
    """To float32; NaN keeps its sign."""
    m = b.to(tl.int32) & 0x7F
    y = tl.where(m == 0x7F, 0x7FF00000, _widened(m, 3, 7))
    return _number(y | ((b.to(tl.int32) & 0x80) << 24))


@triton.jit
def from_e5m2(b):
    """To float32."""
    m = b.to(tl.int32) & 0x7F
    special = (m << 21) | tl.where(m > 0x7C, QUIET, 0x7F800000)
    y = tl.where(m >= 0x7C, special, _widened(m, 2, 15))
    return _number(y | ((b.to(tl.int32) & 0x80) << 24))


@triton.jit
def _from_fnuz(b, FRACTION: tl.constexpr, BIAS: tl.constexpr):
    n = b.to(tl.int32)
    y = _widened(n & 0x7F, FRACTION, BIAS) | ((n & 0x80) << 24)
    return _number(tl.where(n == 0x80, 0x7F800001, y))


@triton.jit
def from_e4m3fnuz(b):
    """To float32."""
    return _from_fnuz(b, 3, 8)


@triton.jit
def from_e5m2fnuz(b):
    """To float32."""
    return _from_fnuz(b, 2, 16)


@triton.jit
def from_e8m0fnu(b):
    """To float32: a power of two or NaN."""
    n = b.to(tl.int32)
    special = tl.where(n == 0, 0x400000, 0x7F800001)
    return _number(tl.where((n == 0) | (n == 0xFF), special, n << 23))


@triton.jit
def _e4m3fn_by_bits(x, saturates: tl.constexpr):
    n = _bits(x) & 0x7FFFFFFF
    largest: tl.constexpr = 0x7E if saturates else 0x7F
    y = tl.where(n > 0x7F800000, 0x7F, tl.minimum(_narrowed(x, 3, 7), largest))
    return (y | _sign(x)).to(tl.uint8)


@triton.jit
def _e5m2_by_bits(x):
    n = _bits(x) & 0x7FFFFFFF
    y = tl.where(n > 0x7F800000, 0x7F, tl.minimum(_narrowed(x, 2, 15), 0x7C))
    return (y | _sign(x)).to(tl.uint8)


@triton.jit
def _to_fnuz(x, FRACTION: tl.constexpr, BIAS: tl.constexpr):
    y = _narrowed(x, FRACTION, BIAS)
    return tl.where(y > 0x7F, 0x80, tl.where(y == 0, 0, y | _sign(x))).to(tl.uint8)


@triton.jit
def to_e4m3fnuz(x):
    """From float32."""
    return _to_fnuz(x, 3, 8)


@triton.jit
def to_e5m2fnuz(x):
    """From float32."""
    return _to_fnuz(x, 2, 16)


@triton.jit
def to_e8m0fnu(x):
    """From float32: its exponent, to nearest; no sign, no zero."""
    n = _bits(x) & 0x7FFFFFFF
    exponent = n >> 23
    up = ((n & 0x400000) != 0) & ((exponent > 0) | ((n & 0x3FFFFF) != 0))
    y = tl.where(exponent == 0xFF, 0xFF, exponent + up.to(tl.int32))
    return y.to(tl.uint8)


if triton.knobs.runtime.interpret:

    @triton.jit
    def to_e4m3fn(x, saturates: tl.constexpr = True, converts: tl.constexpr = True):
        """From float32."""
        return _e4m3fn_by_bits(x, saturates)

    @triton.jit
    def to_e5m2(x, converts: tl.constexpr = True):
        """From float32."""
        return _e5m2_by_bits(x)

else:

    @triton.jit
    def to_e4m3fn(x, saturates: tl.constexpr = True, converts: tl.constexpr = True):
        """From float32; `converts` where the GPU has an instruction for it.

        NOTE: where eager saturates, it uses that instruction itself, which makes every NaN
        positive.
        """
        if converts:
            y = x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
            if not saturates:
                large = (_bits(x) & 0x7FFFFFFF) > 0x43E80000  # 464.0
                y = tl.where(large, (_sign(x) | 0x7F).to(tl.uint8), y)
        else:
            y = _e4m3fn_by_bits(x, saturates)
        return y

    @triton.jit
    def to_e5m2(x, converts: tl.constexpr = True):
        """From float32; `converts` where the GPU has an instruction for it, which saturates."""
        if converts:
            n = _bits(x) & 0x7FFFFFFF
            special = tl.where(n > 0x7F800000, 0x7F, 0x7C) | _sign(x)
            y = x.to(tl.float8e5).to(tl.uint8, bitcast=True)
            y = tl.where(n >= 0x47700000, special.to(tl.uint8), y)  # 61440.0
        else:
            y = _e5m2_by_bits(x)
        return y
