"""Triton's interpreter, taught to compute as a GPU does (`TRITON_INTERPRET=1`).

It truncates to bfloat16, multiplies such as integers and rounds a fused a * b + c twice: here
are its operations as the hardware has them. And it runs neither libdevice nor, at a bearable
speed, a reduction with a combine function of its own: what `triton_library` has of these is
here made of PyTorch's CPU functions.

Only `triton_library` imports this, where there is no GPU: it changes the interpreter.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

# ── operations as the hardware has them ─────────────────────────────────────────────────


def _cast_as_hardware(self: Any, source: Any, target: Any) -> Any:
    """The interpreter's conversion, which truncates to bfloat16; a GPU rounds to nearest."""
    kinds = (source.dtype.scalar, target.scalar)
    if kinds == (tl.float32, tl.bfloat16):
        rounded = torch.from_numpy(source.data.copy()).to(torch.bfloat16)
        return TensorHandle(rounded.view(torch.uint16).numpy(), target.scalar)
    if kinds == (tl.bfloat16, tl.float32):
        bits = torch.from_numpy(source.data.copy()).view(torch.bfloat16)
        return TensorHandle(bits.to(torch.float32).numpy(), target.scalar)
    return _interpreter_cast(self, source, target)


_interpreter_cast = InterpreterBuilder.cast_impl
InterpreterBuilder.cast_impl = _cast_as_hardware


def _dot_as_hardware(
    self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any
) -> Any:
    """The interpreter's product, which takes the bits of bfloat16 for integers."""
    wide = [
        _cast_as_hardware(self, x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x
        for x in (a, b)
    ]
    return _interpreter_dot(self, *wide, d, precision, imprecise)


_interpreter_dot = InterpreterBuilder.create_dot
InterpreterBuilder.create_dot = _dot_as_hardware


def float_argument(value: float, annotation: Any) -> Any:
    """A number as the scalar that a kernel gets; the interpreter leaves it a Python float."""
    wide = str(annotation).endswith("64")  # `tl.float64`, or that as text
    data = numpy.array([value], dtype=numpy.float64 if wide else numpy.float32)
    kind = tl.float64 if wide else tl.float32
    return tl.tensor(TensorHandle(data, kind), kind)


def _spread_as_typed(self: Any, block: Any, x: Any) -> Any:
    """The interpreter's splat, which makes floats of what a comparison of floats gives."""
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

# ── equals of what it cannot run ────────────────────────────────────────────────────────


def _exact_fmod(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The C library's fmod; PyTorch's vectorized one is NaN for huge quotients."""
    with numpy.errstate(all="ignore"):
        rest = numpy.asarray(numpy.fmod(a.numpy(), b.numpy()))
    return torch.from_numpy(rest)


def _number(x: Any) -> Any:
    return x.value if isinstance(x, tl.constexpr) else x


def _tensor(result: torch.Tensor, dtype: Any) -> Any:
    block = tl.block_type(dtype, list(result.shape)) if result.dim() else dtype
    array = result.numpy() if result.dim() else result.reshape(1).numpy()
    return tl.core.tensor(TensorHandle(array, dtype.scalar), block)


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
exp_minus = _elementwise(lambda x, largest: torch.exp(x - largest))
round_bf16 = _elementwise(lambda x: x.to(torch.bfloat16).to(x.dtype))
round_times_bf16 = _elementwise(
    lambda x, factor: (x.to(torch.bfloat16) * factor.to(torch.bfloat16)).to(x.dtype)
)
fmax = _elementwise(torch.fmax)
fmin = _elementwise(torch.fmin)
reduce_max = _reduction(torch.amax)
reduce_min = _reduction(torch.amin)
reduce_prod = _reduction(lambda x, axis, keep: torch.prod(x, axis, keep, dtype=x.dtype))
reduce_any = _reduction(torch.any)
reduce_all = _reduction(torch.all)
reduce_argmax = _arg_reduction(torch.amax)
reduce_argmin = _arg_reduction(torch.amin)
