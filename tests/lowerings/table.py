"""The table of lowerings: for every operator with a loop form, calls that use it.

A row is a list of functions of an `Operands`, whose tensors have one dtype and one layout:

    "aten.add": [lambda t: aten.add.Tensor(t.x, t.y), ...]

Eager says what a call gives, or that it refuses the dtype; then the call is left out. Nothing
else is left out by hand: `tests.lowerings.test_table` fails for a lowering without a row.
Rows of operators that are taken apart before compare their decompositions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from srcjit.passes.loops import FLOAT8

aten = torch.ops.aten

Call: TypeAlias = Callable[["Operands"], Any]


@dataclass(frozen=True)
class Operands:
    """Tensors of one dtype.

    Attributes:
        x: Adversarial values.
        y: Others against them; broadcast in the same shape.
        z: A third operand.
        flag: A condition of that shape.
        places: int64 positions along the last dimension, all within it.
    """

    x: torch.Tensor
    y: torch.Tensor
    z: torch.Tensor
    flag: torch.Tensor
    places: torch.Tensor

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All of them, in order."""
        return self.x, self.y, self.z, self.flag, self.places

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.x.dim()

    @property
    def columns(self) -> int:
        """Elements of the last dimension."""
        return self.x.size(-1) if self.rank else 1


def float_or_none(dtype: torch.dtype) -> torch.dtype | None:
    """The dtype if it is one of floats: eager makes integers of such a range by truncation."""
    return dtype if dtype.is_floating_point else None


def unary(*names: str) -> dict[str, list[Call]]:
    """Rows of operators of one operand."""
    return {f"aten.{n}": [lambda t, f=getattr(aten, n): f(t.x)] for n in names}


def binary(*names: str) -> dict[str, list[Call]]:
    """Rows of operators of two operands."""
    return {f"aten.{n}": [lambda t, f=getattr(aten, n): f(t.x, t.y)] for n in names}


def images(t: Operands) -> torch.Tensor:
    """The elements as one image of two channels."""
    return t.x.reshape(-1, *t.x.shape[-2:])[:1].expand(2, -1, -1).unsqueeze(0)


ACCURATE = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh "
    "acosh atanh erf erfc erfinv lgamma sigmoid rsqrt"
).split()
"""Functions that are accurate to a few units in the last place, in eager too."""

POINTWISE: dict[str, list[Call]] = {
    **unary(*ACCURATE),
    **unary(*"neg abs sign square floor ceil trunc round frac reciprocal sqrt".split()),
    **unary(*"rad2deg deg2rad isnan isinf isfinite isposinf isneginf signbit".split()),
    **unary(*"relu silu hardswish hardsigmoid mish clone lift_fresh_copy".split()),
    **unary(*"logical_not bitwise_not zeros_like ones_like".split()),
    **binary(*"mul maximum minimum fmax fmin atan2 hypot copysign nextafter".split()),
    **binary(*"fmod remainder logical_and logical_or logical_xor".split()),
    **binary(*"bitwise_and bitwise_or bitwise_xor __lshift__ __rshift__".split()),
    **binary("bitwise_left_shift", "bitwise_right_shift"),
    **{
        f"aten.{n}": [
            lambda t, f=getattr(aten, n): f(t.x, t.y),
            lambda t, f=getattr(aten, n): f(t.x, 1),
        ]
        for n in ("eq", "ne", "lt", "le", "gt", "ge")
    },
    **{
        f"aten.{n}": [
            lambda t, f=getattr(aten, n): f(t.x, t.y),
            lambda t, f=getattr(aten, n): f(t.x, t.y, alpha=2),
            lambda t, f=getattr(aten, n): f(t.x, 3),
        ]
        for n in ("add", "sub", "rsub")
    },
    "aten.pow": [
        lambda t: aten.pow(t.x, t.y),
        *(
            lambda t, e=e: aten.pow(t.x, e)
            for e in (0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.5, math.inf, math.nan)
        ),
    ],
    "aten.div": [
        lambda t: aten.div(t.x, t.y),
        lambda t: aten.div(t.x, 3),
        lambda t: aten.div(t.x, 0),
        *(
            lambda t, m=m: aten.div(t.x, t.y, rounding_mode=m)
            for m in ("floor", "trunc")
        ),
        *(
            lambda t, m=m, n=n: aten.div(t.x, n, rounding_mode=m)
            for m in ("floor", "trunc")
            for n in (3, -7)
        ),
    ],
    "aten.true_divide": [lambda t: aten.true_divide(t.x, t.y)],
    "aten.floor_divide": [
        lambda t: aten.floor_divide(t.x, t.y),
        lambda t: aten.floor_divide(t.x, -7),
    ],
    "aten.fmod": [
        lambda t: aten.fmod(t.x, t.y),
        lambda t: aten.fmod(t.x, 3),
        lambda t: aten.fmod(t.x, -7),
    ],
    "aten.remainder": [
        lambda t: aten.remainder(t.x, t.y),
        lambda t: aten.remainder(t.x, 3),
        lambda t: aten.remainder(t.x, -7),
    ],
    "aten.clamp": [
        lambda t: aten.clamp(t.x, -1, 2),
        lambda t: aten.clamp(t.x, t.y, t.z),
    ],
    "aten.clamp_min": [lambda t: aten.clamp_min(t.x, 0)],
    "aten.clamp_max": [lambda t: aten.clamp_max(t.x, 1)],
    "aten.lerp": [
        lambda t: aten.lerp(t.x, t.y, 0.3),
        lambda t: aten.lerp(t.x, t.y, t.z),
    ],
    "aten.addcmul": [
        lambda t: aten.addcmul(t.x, t.y, t.z),
        lambda t: aten.addcmul(t.x, t.y, t.z, value=2),
    ],
    "aten.addcdiv": [
        lambda t: aten.addcdiv(t.x, t.y, t.z),
        lambda t: aten.addcdiv(t.x, t.y, t.z, value=2),
    ],
    "aten.logit": [lambda t: aten.logit(t.x), lambda t: aten.logit(t.x, 1e-3)],
    "aten.where": [
        lambda t: aten.where(t.flag, t.x, t.y),
        lambda t: aten.where(t.x > t.y, t.x, t.z),
    ],
    "aten.masked_fill": [lambda t: aten.masked_fill(t.x, t.flag, 1)],
    "aten.contiguous": [lambda t: aten.contiguous(t.x)],
    "aten._to_copy": [
        lambda t, d=d: aten._to_copy(t.x, dtype=d)
        for d in (
            torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
            torch.float16, torch.bfloat16, torch.float32, torch.float64,
            *FLOAT8,
        )
    ],
    "aten.copy": [lambda t: aten.copy(t.x, t.y)],
    "aten.view.dtype": [lambda t: aten.view(t.x, torch.uint8)],
    "aten.fill": [lambda t: aten.fill(t.x, 1)],
    "aten.threshold": [lambda t: aten.threshold(t.x, 1, 3)],
    "aten.threshold_backward": [lambda t: aten.threshold_backward(t.x, t.y, 1)],
    "aten.gelu": [
        lambda t: aten.gelu(t.x),
        lambda t: aten.gelu(t.x, approximate="tanh"),
    ],
    "aten.gelu_backward": [
        lambda t: aten.gelu_backward(t.x, t.y),
        lambda t: aten.gelu_backward(t.x, t.y, approximate="tanh"),
    ],
    **binary(
        "silu_backward", "sigmoid_backward", "tanh_backward", "hardswish_backward",
        "hardsigmoid_backward",
    ),
    "aten.softplus": [lambda t: aten.softplus(t.x), lambda t: aten.softplus(t.x, 2, 5)],
    "aten.softplus_backward": [lambda t: aten.softplus_backward(t.x, t.y, 2, 20)],
    "aten.leaky_relu": [lambda t: aten.leaky_relu(t.x, 0.1)],
    "aten.leaky_relu_backward": [
        lambda t: aten.leaky_relu_backward(t.x, t.y, 0.1, False)
    ],
    "aten._prelu_kernel": [lambda t: aten._prelu_kernel(t.x, t.y)],
    "aten.elu": [lambda t: aten.elu(t.x), lambda t: aten.elu(t.x, 1.5, 2, 0.5)],
    "aten.celu": [lambda t: aten.celu(t.x, 1.5)],
    "aten.elu_backward": [
        lambda t, r=r: aten.elu_backward(t.x, 1.5, 2, 0.5, r, t.y) for r in (False, True)
    ],
    "aten.hardtanh": [lambda t: aten.hardtanh(t.x), lambda t: aten.hardtanh(t.x, -2, 3)],
    "aten.hardtanh_backward": [lambda t: aten.hardtanh_backward(t.x, t.y, -2, 3)],
    "aten.full_like": [lambda t: aten.full_like(t.x, 3)],
    "aten.new_full": [lambda t: aten.new_full(t.x, [5, 7], 3)],
    "aten.new_zeros": [lambda t: aten.new_zeros(t.x, [5, 7])],
    "aten.new_ones": [lambda t: aten.new_ones(t.x, [5, 7])],
}  # fmt: skip
"""Operators that compute each element from the elements at its place."""

SPACE = {
    "aten.view": [lambda t: aten.view(t.x, [-1])],
    "aten._unsafe_view": [lambda t: aten._unsafe_view(t.x, [-1])],
    "aten.reshape": [lambda t: aten.reshape(t.x, [-1])],
    "aten._reshape_alias": [
        lambda t: aten._reshape_alias(t.x, list(t.x.shape), list(t.x.stride()))
    ],
    "aten.permute": [lambda t: aten.permute(t.x, list(reversed(range(t.rank))))],
    "aten.transpose": [lambda t: aten.transpose(t.x, 0, -1)],
    "aten.t": [lambda t: aten.t(t.x if t.rank < 3 else aten.select(t.x, 0, 0))],
    "aten.expand": [lambda t: aten.expand(t.x, [3, *t.x.shape])],
    "aten.unsqueeze": [lambda t: aten.unsqueeze(t.x, -1)],
    "aten.squeeze": [lambda t: aten.squeeze(aten.unsqueeze(t.x, 0))],
    "aten.slice": [
        lambda t: aten.slice(t.x, -1, 1, None, 2),
        lambda t: aten.slice(t.x, 0, -2, 100),
        lambda t: aten.slice(t.x, 0, 1, 1),
    ],
    "aten.select": [lambda t: aten.select(t.x, -1, -1)],
    "aten.split": [lambda t: aten.split(t.x, 2, -1)],
    "aten.split_with_sizes": [
        lambda t: aten.split_with_sizes(t.x, [1, t.columns - 1], -1)
    ],
    "aten.chunk": [lambda t: aten.chunk(t.x, 3, -1)],
    "aten.unbind": [lambda t: aten.unbind(t.x, 0)],
    "aten.diagonal": [lambda t: aten.diagonal(t.x, 1), lambda t: aten.diagonal(t.x, -1)],
    "aten.unfold": [lambda t: aten.unfold(t.x, -1, 2, 1)],
    "aten.alias": [lambda t: aten.alias(t.x)],
    "aten.detach": [lambda t: aten.detach(t.x)],
    "aten.lift_fresh": [lambda t: aten.lift_fresh(t.x)],
    "aten.flip": [lambda t: aten.flip(t.x, [-1]), lambda t: aten.flip(t.x, [0])],
    "aten.pixel_shuffle": [
        lambda t: aten.pixel_shuffle(aten.expand(t.x, [4, *t.x.shape[-2:]]), 2)
    ],
    "aten.pixel_unshuffle": [
        lambda t: aten.pixel_unshuffle(aten.repeat(t.x, [2] * t.rank), 2)
    ],
    "aten.repeat": [lambda t: aten.repeat(t.x, [2, *([1] * (t.rank - 1)), 3])],
    "aten.full": [lambda t: aten.full([5, 7], 3, dtype=t.x.dtype)],
    "aten.zeros": [lambda t: aten.zeros([5, 7], dtype=t.x.dtype)],
    "aten.ones": [lambda t: aten.ones([5, 7], dtype=t.x.dtype)],
    "aten.scalar_tensor": [lambda t: aten.scalar_tensor(3, dtype=t.x.dtype)],
    "aten.arange.default": [lambda t: aten.arange.default(9, dtype=t.x.dtype)],
    "aten.arange": [
        lambda t: aten.arange(2, 40, 3, dtype=t.x.dtype),
        lambda t: aten.arange(0.5, 3.0, 0.1, dtype=float_or_none(t.x.dtype)),
    ],
    "prims.iota": [
        lambda t: torch.ops.prims.iota(
            9, start=2, step=3, dtype=torch.int64, device=torch.device("cpu"),
            requires_grad=False,
        )
    ],
    "aten.eye": [lambda t: aten.eye(5, 7, dtype=t.x.dtype)],
    "aten.triu": [lambda t: aten.triu(t.x), lambda t: aten.triu(t.x, 2)],
    "aten.tril": [lambda t: aten.tril(t.x, -1)],
    "aten.cat": [
        lambda t: aten.cat([t.x, t.y], -1),
        lambda t: aten.cat([t.x, t.y, t.z]),
    ],
    "aten.constant_pad_nd": [
        lambda t: aten.constant_pad_nd(t.x, [1, 2], 3),
        lambda t: aten.constant_pad_nd(t.x, [1, -1]),
    ],
    "aten.slice_scatter": [
        lambda t: aten.slice_scatter(t.x, aten.slice(t.y, 0, 1, None), 0, 1, None),
        lambda t: aten.slice_scatter(
            t.x, aten.slice(t.y, -1, 1, None, 2), -1, 1, None, 2
        ),
    ],
    "aten.select_scatter": [
        lambda t: aten.select_scatter(t.x, aten.select(t.y, 0, 0), 0, -1)
    ],
    "aten.roll": [lambda t: aten.roll(t.x, [2], [-1]), lambda t: aten.roll(t.x, [-3], [0])],
    "aten.gather": [lambda t: aten.gather(t.x, -1, t.places)],
    "aten.index_select": [
        lambda t: aten.index_select(t.x, -1, aten.select(t.places, 0, 0))
    ],
    "aten.embedding": [
        lambda t: aten.embedding(aten.transpose(t.x, 0, -1), t.places)
    ],
    "aten.index.Tensor": [lambda t: aten.index(t.x, [None] * (t.rank - 1) + [t.places])],
    "aten._unsafe_index.Tensor": [
        lambda t: aten._unsafe_index(t.x, [None] * (t.rank - 1) + [t.places])
    ],
    "aten.index_add": [
        lambda t: aten.index_add(t.x, -1, aten.select(t.places, 0, 0), t.y)
    ],
    "aten.scatter_add": [lambda t: aten.scatter_add(t.x, -1, t.places, t.y)],
    "aten.scatter_reduce.two": [
        lambda t: aten.scatter_reduce(t.x, -1, t.places, t.y, "sum")
    ],
    "aten.upsample_nearest2d.default": [
        lambda t, size=size: aten.upsample_nearest2d.default(images(t), size)
        for size in ([46, 46], [7, 31])
    ],
    "aten.upsample_bilinear2d.default": [
        lambda t, size=size, corners=corners: aten.upsample_bilinear2d.default(
            images(t), size, corners
        )
        for size in ([46, 46], [7, 31])
        for corners in (False, True)
    ],
}  # fmt: skip
"""Operators that move elements or make them from indices."""


def folding(*names: str, options: Any = None) -> dict[str, list[Call]]:
    """Rows of reductions over the last, the first and all dimensions."""
    return {
        f"aten.{n}": [
            lambda t, f=getattr(aten, n): f(t.x, [-1]),
            lambda t, f=getattr(aten, n): f(t.x, [0], True),
            lambda t, f=getattr(aten, n): f(t.x, list(range(t.rank))),
        ]
        for n in names
    }


FOLDED: dict[str, list[Call]] = {
    **folding("sum", "mean", "amax", "amin"),
    "aten.prod.default": [lambda t: aten.prod(t.x)],
    "aten.prod.dim_int": [lambda t: aten.prod(t.x, -1), lambda t: aten.prod(t.x, 0)],
    "aten.max.default": [lambda t: aten.max(t.x)],
    "aten.min.default": [lambda t: aten.min(t.x)],
    "aten.max.dim": [lambda t: aten.max(t.x, -1), lambda t: aten.max(t.x, 0)],
    "aten.min.dim": [lambda t: aten.min(t.x, -1), lambda t: aten.min(t.x, 0)],
    **{
        f"aten.{n}": [
            lambda t, f=getattr(aten, n): f(t.x),
            lambda t, f=getattr(aten, n): f(t.x, -1),
            lambda t, f=getattr(aten, n): f(t.x, 0, True),
        ]
        for n in ("argmax", "argmin", "any", "all")
    },
    **{
        f"aten.{n}.correction": [
            lambda t, f=getattr(aten, n): f(t.x, [-1]),
            lambda t, f=getattr(aten, n): f(t.x, [0], correction=0, keepdim=True),
            lambda t, f=getattr(aten, n): f(t.x, None, correction=3),
        ]
        for n in ("var", "std", "var_mean")
    },
    "aten.linalg_vector_norm": [
        lambda t, p=p: aten.linalg_vector_norm(t.x, p, [-1])
        for p in (0, 1, 2, 3, math.inf, -math.inf)
    ],
    "aten._softmax": [
        lambda t: aten._softmax(t.x, -1, False),
        lambda t: aten._softmax(t.x, 0, False),
    ],
    "aten._log_softmax": [lambda t: aten._log_softmax(t.x, -1, False)],
    "aten._softmax_backward_data": [
        lambda t: aten._softmax_backward_data(t.x, t.y, -1, t.x.dtype)
    ],
    "aten._log_softmax_backward_data": [
        lambda t: aten._log_softmax_backward_data(t.x, t.y, -1, t.x.dtype)
    ],
    "aten.native_layer_norm": [
        lambda t: aten.native_layer_norm(t.x, [t.columns], None, None, 1e-5),
        lambda t: aten.native_layer_norm(
            t.x, [t.columns], aten.select(t.y, 0, 1), aten.select(t.z, 0, 1), 1e-5
        ),
    ],
    "aten.native_group_norm": [
        lambda t: aten.native_group_norm(
            t.x, None, None, t.x.size(0), t.x.size(1), 1, 1, 1e-5
        )
    ],
    "aten._native_batch_norm_legit_no_training": [
        lambda t: aten._native_batch_norm_legit_no_training(
            t.x, None, None, aten.select(t.y, 0, 1), aten.select(t.z, 0, 1).abs(), 0.1,
            1e-5,
        )
    ],
}  # fmt: skip
"""Operators that fold dimensions."""

ROWS: dict[str, list[Call]] = {**POINTWISE, **SPACE, **FOLDED}
"""Calls by the name of the lowering that they use."""
