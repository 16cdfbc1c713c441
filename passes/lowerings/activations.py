"""Activation functions and their gradients, by ATen's formulas (ATen/native/cpu/Activation.cpp).

Each is one ATen call, so it is computed whole in float32 and rounded once in low precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..definitions import Definition
from ..loops import Value, op
from .builder import Builder, NoLoopForm, known_number, number
from .pointwise import apply, each_rounded, like

SQRT1_2 = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
TANH_CUBIC = 0.044715
SIXTH = torch.tensor(1 / 6, dtype=torch.float32).item()
"""What ATen multiplies doubles by, too."""


def _mul(u: Value, n: float) -> Value:
    return op("mul", u, like(u, n))


def _positive(v: Value) -> Value:
    return op("gt", v, like(v, 0.0))


def relu(b: Builder, x: Definition) -> Definition:
    if b.fake.dtype is torch.bool:
        raise NoLoopForm("relu of bools")
    # Of equal operands the second is the result: -0.0 stays on the CPU.
    return apply(b, lambda v: op("maximum", like(v, 0), v), x)


def threshold(b: Builder, x: Definition, limit: Any, value: Any) -> Definition:
    def form(v: Value) -> Value:
        return op(
            "where", op("le", v, number(limit, v.dtype)), number(value, v.dtype), v
        )

    return apply(b, form, x)


def gelu(b: Builder, x: Definition, approximate: str = "none") -> Definition:
    def exact(v: Value) -> Value:
        return op(
            "mul", _mul(v, 0.5), op("add", like(v, 1.0), op("erf", _mul(v, SQRT1_2)))
        )

    def tanh(v: Value) -> Value:
        cube = op("mul", op("mul", v, v), v)
        inner = _mul(op("add", v, _mul(cube, TANH_CUBIC)), SQRT_2_OVER_PI)
        return op("mul", _mul(v, 0.5), op("add", like(v, 1.0), op("tanh", inner)))

    return apply(b, tanh if approximate == "tanh" else exact, x)


def silu(b: Builder, x: Definition) -> Definition:
    def form(v: Value) -> Value:
        one = like(v, 1.0)
        return op("div", v, op("add", one, op("exp", op("neg", v))))

    return apply(b, form, x)


def sigmoid_backward(b: Builder, grad: Definition, y: Definition) -> Definition:
    """`grad * (1 - y) * y`; the CPU kernel rounds each step of a float16."""
    cpu_half = b.fake.device.type == "cpu" and b.fake.dtype is torch.float16
    each = each_rounded(b) if cpu_half else lambda v: v

    def form(g: Value, s: Value) -> Value:
        return op("mul", each(op("mul", g, each(op("sub", like(s, 1.0), s)))), s)

    return apply(b, form, grad, y)


def softplus(
    b: Builder, x: Definition, beta: Any = 1, threshold: Any = 20
) -> Definition:
    def form(v: Value) -> Value:
        scaled = op("mul", v, number(beta, v.dtype))
        smooth = op("div", op("log1p", op("exp", scaled)), number(beta, v.dtype))
        return op("where", op("gt", scaled, number(threshold, v.dtype)), v, smooth)

    return apply(b, form, x)


def leaky_relu(b: Builder, x: Definition, negative_slope: Any = 0.01) -> Definition:
    def form(v: Value) -> Value:
        return op(
            "where", _positive(v), v, op("mul", v, number(negative_slope, v.dtype))
        )

    return apply(b, form, x)


def elu(
    b: Builder,
    x: Definition,
    alpha: Any = 1.0,
    scale: Any = 1.0,
    input_scale: Any = 1.0,
) -> Definition:
    def form(v: Value) -> Value:
        negative = op("expm1", op("mul", v, number(input_scale, v.dtype)))
        factor = known_number(alpha) * known_number(scale)
        below = op("mul", negative, like(v, factor))
        return op(
            "where",
            op("le", v, like(v, 0.0)),
            below,
            op("mul", v, number(scale, v.dtype)),
        )

    return apply(b, form, x)


def celu(b: Builder, x: Definition, alpha: Any = 1.0) -> Definition:
    return elu(b, x, alpha, 1.0, 1.0 / known_number(alpha))


def _relu6(v: Value) -> Value:
    return op("minimum", like(v, 6.0), op("maximum", like(v, 0.0), v))


def hardswish(b: Builder, x: Definition) -> Definition:
    def form(v: Value) -> Value:
        return op("div", op("mul", v, _relu6(op("add", v, like(v, 3.0)))), like(v, 6.0))

    return apply(b, form, x)


def hardsigmoid(b: Builder, x: Definition) -> Definition:
    def form(v: Value) -> Value:
        return op("div", _relu6(op("add", v, like(v, 3.0))), like(v, 6.0))

    return apply(b, form, x)


def hardsigmoid_backward(b: Builder, grad: Definition, x: Definition) -> Definition:
    def form(g: Value, v: Value) -> Value:
        inside = op(
            "bitwise_and", op("gt", v, like(v, -3.0)), op("lt", v, like(v, 3.0))
        )
        return op("where", inside, _mul(g, SIXTH), like(g, 0.0))

    return apply(b, form, grad, x)


def hardtanh(b: Builder, x: Definition, low: Any = -1, high: Any = 1) -> Definition:
    def form(v: Value) -> Value:
        low_value, high_value = number(low, v.dtype), number(high, v.dtype)
        return op("minimum", high_value, op("maximum", low_value, v))

    return apply(b, form, x)


def mish(b: Builder, x: Definition) -> Definition:
    def form(v: Value) -> Value:
        return op("mul", v, op("tanh", op("log1p", op("exp", v))))

    return apply(b, form, x)


TABLE: dict[str, Callable[..., Any]] = {
    "aten.relu": relu,
    "aten.threshold": threshold,
    "aten.gelu": gelu,
    "aten.silu": silu,
    "aten.sigmoid_backward": sigmoid_backward,
    "aten.softplus": softplus,
    "aten.leaky_relu": leaky_relu,
    "aten.elu": elu,
    "aten.celu": celu,
    "aten.hardswish": hardswish,
    "aten.hardsigmoid": hardsigmoid,
    "aten.hardsigmoid_backward": hardsigmoid_backward,
    "aten.hardtanh": hardtanh,
    "aten.mish": mish,
}
