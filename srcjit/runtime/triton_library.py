"""What emitted Triton kernels call beside `triton.language`: eager's exact corner cases.

`tl.max` drops NaN, `tl.argmax` on NaN depends on the order of the reduction, `//` truncates,
and the functions of `tl.math` are approximations. Here are reductions and integer divisions
that behave as PyTorch's, and `libdevice`, CUDA's accurate functions, which PyTorch's own
kernels use; `triton_ptx` has those of it that are short, `triton_float8` floats of 8 bits. In
Triton's interpreter (`TRITON_INTERPRET=1`, no GPU) what it cannot run has an equal in
`triton_interpreted`.

Only emitted modules import this: it imports Triton.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,no-redef"

from __future__ import annotations

import triton
import triton.language as tl

from .triton_float8 import (
    from_e4m3fn,
    from_e4m3fnuz,
    from_e5m2,
    from_e5m2fnuz,
    from_e8m0fnu,
    to_e4m3fn,
    to_e4m3fnuz,
    to_e5m2,
    to_e5m2fnuz,
    to_e8m0fnu,
)

__all__ = [
    "exp2_f32",
    "exp_f32",
    "exp_minus",
    "exp_of_term",
    "floor_divide",
    "fmax",
    "fmin",
    "from_e4m3fn",
    "from_e4m3fnuz",
    "from_e5m2",
    "from_e5m2fnuz",
    "from_e8m0fnu",
    "libdevice",
    "log_f32",
    "max_with_index",
    "min_with_index",
    "reduce_all",
    "reduce_any",
    "reduce_argmax",
    "reduce_argmin",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "remainder",
    "round_bf16",
    "round_times_bf16",
    "rsqrt_f32",
    "tanh_to_bf16",
    "to_e4m3fn",
    "to_e4m3fnuz",
    "to_e5m2",
    "to_e5m2fnuz",
    "to_e8m0fnu",
    "to_tf32",
]


@triton.jit
def floor_divide(a, b):
    """a / b rounded down, for integers; `//` in a kernel rounds towards zero."""
    quotient = a // b
    rest = a - quotient * b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def remainder(a, b):
    """a - floor_divide(a, b) * b, with the sign of b; `%` in a kernel has that of a."""
    rest = a - a // b * b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def to_tf32(x):
    """A float32 with the 10 bits of fraction that tensor cores take, the nearest such.

    They drop the bits that are over, which is four times as far off as libraries are. Numbers
    that would overflow, inf and NaN are left to them.
    """
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return tl.where(tl.abs(x) < 3.4e38, bits.to(tl.float32, bitcast=True), x)


@triton.jit
def max_with_index(a, i, b, j):
    """The larger of a (at i) and b (at j) and where it is; NaN is largest, then the first."""
    a_wins = (a > b) | ((a != a) & (b == b))
    tie = (a == b) | ((a != a) & (b != b))
    take_a = a_wins | (tie & (i < j))
    return tl.where(take_a, a, b), tl.where(take_a, i, j)


@triton.jit
def min_with_index(a, i, b, j):
    """The smaller of a (at i) and b (at j) and where it is; NaN is smallest, then the first."""
    a_wins = (a < b) | ((a != a) & (b == b))
    tie = (a == b) | ((a != a) & (b != b))
    take_a = a_wins | (tie & (i < j))
    return tl.where(take_a, a, b), tl.where(take_a, i, j)


INFINITE = tl.constexpr(float("inf"))


if triton.knobs.runtime.interpret:
    from .triton_interpreted import (
        exp2_f32,
        exp_f32,
        exp_minus,
        exp_of_term,
        fmax,
        fmin,
        libdevice,
        log_f32,
        reduce_all,
        reduce_any,
        reduce_argmax,
        reduce_argmin,
        reduce_max,
        reduce_min,
        reduce_prod,
        round_bf16,
        round_times_bf16,
        rsqrt_f32,
        tanh_to_bf16,
    )
else:
    from triton.language.extra import libdevice

    from .triton_ptx import (
        exp2_f32,
        exp_f32,
        exp_minus,
        exp_of_term,
        log_f32,
        round_bf16,
        round_times_bf16,
        rsqrt_f32,
        tanh_to_bf16,
    )

    @triton.jit
    def fmax(a, b):
        """The larger; the other if one is NaN."""
        return tl.maximum(a, b)

    @triton.jit
    def fmin(a, b):
        """The smaller; the other if one is NaN."""
        return tl.minimum(a, b)

    @triton.jit
    def _larger(a, b):
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)

    @triton.jit
    def _smaller(a, b):
        return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)

    @triton.jit
    def _times(a, b):
        return a * b

    @triton.jit
    def _either(a, b):
        return a | b

    @triton.jit
    def _both(a, b):
        return a & b

    @triton.jit
    def reduce_max(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
        """Maximum along an axis; NaN if there is one."""
        return tl.reduce(x, axis, _larger, keep_dims=keep_dims)

    @triton.jit
    def reduce_min(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
        """Minimum along an axis; NaN if there is one."""
        return tl.reduce(x, axis, _smaller, keep_dims=keep_dims)

    @triton.jit
    def reduce_prod(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
        """Product along an axis."""
        return tl.reduce(x, axis, _times, keep_dims=keep_dims)

    @triton.jit
    def reduce_any(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
        """Whether any element along an axis is true."""
        return tl.reduce(x, axis, _either, keep_dims=keep_dims)

    @triton.jit
    def reduce_all(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
        """Whether all elements along an axis are true."""
        return tl.reduce(x, axis, _both, keep_dims=keep_dims)

    @triton.jit
    def reduce_argmax(x, index, axis: tl.constexpr, keep_dims: tl.constexpr = False):
        """The smallest `index` at which x is largest (or NaN)."""
        index = tl.broadcast_to(index, x.shape)
        return tl.reduce((x, index), axis, max_with_index, keep_dims=keep_dims)[1]

    @triton.jit
    def reduce_argmin(x, index, axis: tl.constexpr, keep_dims: tl.constexpr = False):
        """The smallest `index` at which x is smallest (or NaN)."""
        index = tl.broadcast_to(index, x.shape)
        return tl.reduce((x, index), axis, min_with_index, keep_dims=keep_dims)[1]


@triton.jit
def online_max(peak, x, together: tl.constexpr = 1):
    """The running maximum of each lane, after a block of as many rows as it takes.

    Element `n` of the block belongs to lane `n // together % lanes`; those of one lane are in
    one thread.
    """
    if len(x.shape) == 1:
        x = reduce_max(reduce_max(_by_lane(x, peak, together), 2), 0)
    return tl.maximum(peak, x, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _by_lane(x, peak, together: tl.constexpr):
    lanes: tl.constexpr = peak.shape[0]
    return tl.reshape(x, (x.shape[0] // (lanes * together), lanes, together))


@triton.jit
def online_scale(before, after):
    """What a sum relative to the maximum `before` is multiplied by for the one after."""
    shift = tl.where(tl.abs(after) == INFINITE, 0.0, after)
    return exp_of_term(before - shift)


@triton.jit
def online_sum(x, peak, together: tl.constexpr = 1):
    """The sum of exp(x - peak) in each lane."""
    shift = tl.where(tl.abs(peak) == INFINITE, 0.0, peak)
    if len(x.shape) == 1:
        terms = exp_of_term(_by_lane(x, peak, together) - shift[None, :, None])
        total = tl.sum(tl.sum(terms, 2), 0)
    else:
        total = exp_of_term(x - shift)
    return total


@triton.jit
def online_weighted_sum(x, peak, weight, together: tl.constexpr = 1):
    """The sum of exp(x - peak) * weight in each lane."""
    shift = tl.where(tl.abs(peak) == INFINITE, 0.0, peak)
    if len(x.shape) == 1:
        terms = exp_f32(_by_lane(x, peak, together) - shift[None, :, None])
        weights = _by_lane(weight, peak, together)
        total = tl.sum(tl.sum(terms * weights, 2), 0)
    else:
        total = exp_f32(x - shift) * weight
    return total
