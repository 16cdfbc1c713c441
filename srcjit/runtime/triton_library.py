"""What emitted Triton kernels call beside `triton.language`: eager's exact corner cases.

`tl.max` drops NaN, `tl.argmax` on NaN depends on the order of the reduction, `//` truncates,
and the functions of `tl.math` are approximations. Here are reductions and integer divisions
that behave as PyTorch's, and `libdevice`, CUDA's accurate functions, which PyTorch's own
kernels use. In Triton's interpreter (`TRITON_INTERPRET=1`, no GPU) each has an equal made of
PyTorch's CPU functions, because the interpreter runs neither libdevice nor, at a bearable
speed, a reduction with a combine function of its own.

Only emitted modules import this: it imports Triton.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,no-redef"

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
import torch
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

    def _reduction(reduce: Any) -> Any:
        def run(x: Any, axis: Any, keep_dims: Any = False) -> Any:
            array = torch.from_numpy(x.handle.data)
            return _tensor(reduce(array, _number(axis), _number(keep_dims)), x.dtype)

        return run

    def _arg_reduction(extreme: Any) -> Any:
        def run(x: Any, index: Any, axis: Any, keep_dims: Any = False) -> Any:
            array, axis = torch.from_numpy(x.handle.data), _number(axis)
            positions = torch.from_numpy(index.handle.data).expand(array.shape)
            best = extreme(array, axis, True)
            ties = (array == best) | ((array != array) & (best != best))
            last = torch.iinfo(positions.dtype).max
            found = torch.where(ties, positions, last).amin(axis, _number(keep_dims))
            return _tensor(found, index.dtype)

        return run

    def _cast_as_hardware(self: Any, source: Any, target: Any) -> Any:
        """The interpreter's conversion, which truncates to bfloat16; a GPU rounds to nearest."""
        from triton.runtime.interpreter import TensorHandle

        kinds = (source.dtype.scalar, target.scalar)
        if kinds == (tl.float32, tl.bfloat16):
            rounded = torch.from_numpy(source.data.copy()).to(torch.bfloat16)
            return TensorHandle(rounded.view(torch.uint16).numpy(), target.scalar)
        if kinds == (tl.bfloat16, tl.float32):
            bits = torch.from_numpy(source.data.copy()).view(torch.bfloat16)
            return TensorHandle(bits.to(torch.float32).numpy(), target.scalar)
        return _interpreter_cast(self, source, target)

    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpreterBuilder

    _interpreter_cast = InterpreterBuilder.cast_impl
    InterpreterBuilder.cast_impl = _cast_as_hardware

    def _dot_as_hardware(
        self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any
    ) -> Any:
        """The interpreter's product, which takes the bits of bfloat16 for integers."""
        wide = [
            _cast_as_hardware(self, x, tl.float32)
            if x.dtype.scalar == tl.bfloat16
            else x
            for x in (a, b)
        ]
        return _interpreter_dot(self, *wide, d, precision, imprecise)

    _interpreter_dot = InterpreterBuilder.create_dot
    InterpreterBuilder.create_dot = _dot_as_hardware

    def _spread_as_typed(self: Any, block: Any, x: Any) -> Any:
        """The interpreter's splat, which makes floats of what a comparison of floats gives."""
        from triton.runtime.interpreter import TensorHandle

        if x.data.dtype == numpy.bool_:
            x = TensorHandle(x.data, tl.int1)
        return _interpreter_splat(self, block, x)

    _interpreter_splat = InterpreterBuilder.create_splat
    InterpreterBuilder.create_splat = _spread_as_typed

    def _patch_tensor(tensor: Any, *scope: Any) -> None:
        """The interpreter's methods of tensors, with an int for a loop's bounds.

        Triton 3.6 asks NumPy to make one of an array that has a dimension, which it refuses.
        """
        _interpreter_patch(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    _interpreter_patch = interpreter._patch_lang_tensor
    interpreter._patch_lang_tensor = _patch_tensor

    def _fma_as_hardware(self: Any, x: Any, y: Any, z: Any) -> Any:
        """The interpreter's a * b + c, which rounds twice."""
        factors = [torch.from_numpy(numpy.array(h.data)) for h in (z, x, y)]
        fused = torch.addcmul(*(f.contiguous() for f in factors))
        return type(x)(fused.numpy(), z.dtype.scalar)

    InterpreterBuilder.create_fma = _fma_as_hardware

    def _exact_fmod(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """The C library's fmod; PyTorch's vectorized one is NaN for huge quotients."""
        with numpy.errstate(all="ignore"):
            rest = numpy.asarray(numpy.fmod(a.numpy(), b.numpy()))
        return torch.from_numpy(rest)

    def _number(x: Any) -> Any:
        return x.value if isinstance(x, tl.constexpr) else x

    def _tensor(result: torch.Tensor, dtype: Any) -> Any:
        from triton.runtime.interpreter import TensorHandle

        block = tl.block_type(dtype, list(result.shape)) if result.dim() else dtype
        array = result.numpy() if result.dim() else result.reshape(1).numpy()
        return tl.core.tensor(TensorHandle(array, dtype.scalar), block)

    def _elementwise(function: Any) -> Any:
        def run(*args: Any) -> Any:
            first = next(a for a in args if isinstance(a, tl.core.tensor))
            arrays = [
                torch.from_numpy(a.handle.data)
                if isinstance(a, tl.core.tensor)
                else torch.tensor(_number(a))
                for a in args
            ]
            like = arrays[args.index(first)].dtype
            result = function(*torch.broadcast_tensors(*(a.to(like) for a in arrays)))
            shape = first.type if first.type.is_block() is False else None
            if shape is not None and result.numel() == 1:
                result = result.reshape(())
            return _tensor(result, first.dtype)

        return run

    _SAME = (
        "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
        "asinh acosh atanh erf erfc erfinv lgamma trunc rsqrt pow atan2 hypot "
        "copysign nextafter"
    ).split()
    libdevice = SimpleNamespace(
        **{name: _elementwise(getattr(torch, name)) for name in _SAME},
        fmod=_elementwise(_exact_fmod),
        rint=_elementwise(torch.round),
    )
    exp_f32, exp2_f32, rsqrt_f32 = libdevice.exp, libdevice.exp2, libdevice.rsqrt
    log_f32 = libdevice.log
    tanh_to_bf16, exp_of_term = libdevice.tanh, libdevice.exp
    round_bf16 = _elementwise(lambda x: x.to(torch.bfloat16).to(x.dtype))
    fmax = _elementwise(torch.fmax)
    fmin = _elementwise(torch.fmin)
    reduce_max = _reduction(torch.amax)
    reduce_min = _reduction(torch.amin)
    reduce_prod = _reduction(
        lambda x, axis, keep: torch.prod(x, axis, keep, dtype=x.dtype)
    )
    reduce_any = _reduction(torch.any)
    reduce_all = _reduction(torch.all)
    reduce_argmax = _arg_reduction(torch.amax)
    reduce_argmin = _arg_reduction(torch.amin)

else:
    from triton.language.extra import libdevice

    # NOTE: one function of libdevice in a kernel makes Triton read and link all of it, a
    # quarter of the time that it takes for a small kernel. Those that are in most kernels
    # (norms, softmax, SiLU, attention, losses) are a few instructions: here they are, the same
    # bits.

    @triton.jit
    def exp_f32(x):
        """libdevice's exp of a float32: 2^n * 2^r, where n + r = x / ln 2 and n is whole.

        1 / ln 2 has two parts, so that r is exact enough; n stands in the last bits of a sum
        with 1.5 * 2^23 and comes from x / (252 ln 2) + 0.5 within [0, 1], which makes 0 of
        the least results and inf of the largest; those bits, shifted, are 2^n.
        """
        return tl.inline_asm_elementwise(
            """
            {
            .reg .f32 n, r, scale;
            .reg .b32 bits;
            fma.rn.f32 n, $1, 0f3BBB989D, 0f3F000000;
            cvt.sat.f32.f32 n, n;
            fma.rm.f32 n, n, 0f437C0000, 0f4B400001;
            mov.b32 bits, n;
            shl.b32 bits, bits, 23;
            mov.b32 scale, bits;
            add.rn.f32 n, n, 0fCB40007F;
            neg.f32 n, n;
            fma.rn.f32 r, $1, 0f3FB8AA3B, n;
            fma.rn.f32 r, $1, 0f32A57060, r;
            ex2.approx.ftz.f32 r, r;
            mul.rn.f32 $0, r, scale;
            }
            """,
            "=f,f",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )

    @triton.jit
    def log_f32(x):
        """libdevice's log of a float32: ln(1 + f) + n * ln 2, where x = (1 + f) * 2^n.

        1 + f is between 2/3 and 4/3, found by taking 2/3 from the bits of x and keeping the
        exponent; a polynomial stands for ln(1 + f). What is denormal is raised by 2^23 first;
        inf, NaN and negative numbers make inf or NaN of x * inf + inf.
        """
        return tl.inline_asm_elementwise(
            """
            {
            .reg .pred small, odd, none;
            .reg .f32 a, n, f, p;
            .reg .b32 bits, power;
            setp.lt.f32 small, $1, 0f00800000;
            mul.rn.f32 a, $1, 0f4B000000;
            selp.f32 a, a, $1, small;
            selp.f32 n, 0fC1B80000, 0f00000000, small;
            mov.b32 bits, a;
            add.s32 power, bits, -1059760811;
            and.b32 power, power, -8388608;
            sub.s32 bits, bits, power;
            mov.b32 f, bits;
            cvt.rn.f32.s32 p, power;
            fma.rn.f32 n, p, 0f34000000, n;
            add.rn.f32 f, f, 0fBF800000;
            fma.rn.f32 p, f, 0fBE055027, 0f3E1039F6;
            fma.rn.f32 p, p, f, 0fBDF8CDCC;
            fma.rn.f32 p, p, f, 0f3E0F2955;
            fma.rn.f32 p, p, f, 0fBE2AD8B9;
            fma.rn.f32 p, p, f, 0f3E4CED0B;
            fma.rn.f32 p, p, f, 0fBE7FFF22;
            fma.rn.f32 p, p, f, 0f3EAAAA78;
            fma.rn.f32 p, p, f, 0fBF000000;
            mul.rn.f32 p, f, p;
            fma.rn.f32 p, p, f, f;
            fma.rn.f32 p, n, 0f3F317218, p;
            mov.b32 bits, a;
            setp.ge.u32 odd, bits, 2139095040;
            mov.f32 n, 0f7F800000;
            @odd fma.rn.f32 p, a, n, n;
            setp.eq.f32 none, a, 0f00000000;
            selp.f32 $0, 0fFF800000, p, none;
            }
            """,
            "=f,f",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )

    @triton.jit
    def _instruction(x, text: tl.constexpr):
        return tl.inline_asm_elementwise(
            text, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )

    @triton.jit
    def exp2_f32(x):
        """libdevice's exp2 of a float32, an instruction of the hardware."""
        return _instruction(x, "ex2.approx.f32 $0, $1;")

    @triton.jit
    def rsqrt_f32(x):
        """libdevice's rsqrt of a float32, an instruction of the hardware."""
        return _instruction(x, "rsqrt.approx.f32 $0, $1;")

    @triton.jit
    def tanh_to_bf16(x):
        """tanh by the hardware's instruction (relative error 2^-11), to be rounded to bfloat16."""
        return _instruction(x, "tanh.approx.f32 $0, $1;")

    @triton.jit
    def round_bf16(x):
        """A float32 rounded to what a bfloat16 can hold, two by one instruction.

        One by one, as Triton converts, takes a unit that is as slow as that of exp and tanh.
        """
        return tl.inline_asm_elementwise(
            """
            {
            .reg .b32 both, low, high;
            cvt.rn.bf16x2.f32 both, $3, $2;
            shl.b32 low, both, 16;
            and.b32 high, both, 0xFFFF0000;
            mov.b32 $0, low;
            mov.b32 $1, high;
            }
            """,
            "=f,=f,f,f",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=2,
        )

    @triton.jit
    def exp_of_term(x):
        """exp of a number that is not above 0, for a sum of such that has a term of 1.

        The instruction of the hardware: off by |x| units in the last place of what is exp(x) of
        the sum, and 0 where the result would be denormal.
        """
        return _instruction(x * 1.4426950408889634, "ex2.approx.ftz.f32 $0, $1;")

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
