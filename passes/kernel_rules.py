"""Decompositions in the order in which PyTorch's kernels compute.

PyTorch's table has another form of these operators: equal in real numbers, but not where it
rounds, for NaN, or at the ends of a range.

Before:                                            After:

    g = aten.soft_margin_loss_backward(t, x, y, 0)     z = aten.exp(aten.mul(aten.neg(y), x))
                                                       g = y * z * -1.0 / (z + 1) * t

Each rule names the kernel it follows (ATen/native).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from .low_precision import LOW_PRECISION, MEAN, Rule, reduced

aten = torch.ops.aten

_LEAST_DENOMINATOR = torch.tensor(1e-12, dtype=torch.float32).item()
"""EPSILON of Loss.cpp is a float, also where the tensors are of doubles."""


def _wide(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Halves as float32."""
    return [t.float() if t.dtype in LOW_PRECISION else t for t in tensors]


def _factor(x: torch.Tensor, reduction: int) -> Any:
    """What a gradient of a mean is divided by; of no elements nothing is."""
    if reduction != MEAN or guard_or_false(x.numel() == 0):
        return 1.0
    return 1.0 / x.numel()


def _smooth_l1_loss_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    reduction: int,
    beta: float,
) -> Any:
    """cpu/BinaryOpsKernel.cpp, cuda/BinaryMiscBackwardOpsKernels.cu: NaN is within `beta`."""
    factor = _factor(x, reduction)
    wide_grad, wide_x, wide_target = _wide(grad, x, target)
    difference = wide_x - wide_target
    outside = difference.abs() >= beta
    if x.device.type == "cpu":
        step = torch.where(difference > 0, 1.0, -1.0).to(difference.dtype)
        step = torch.where(outside, step, difference / beta)
        return (factor * step * wide_grad).to(x.dtype)
    step = factor * wide_grad
    far = torch.where(difference <= -beta, -step, step)
    near = factor * difference * wide_grad / beta
    return torch.where(outside, far, near).to(x.dtype)


def _soft_margin_loss(
    x: torch.Tensor, target: torch.Tensor, reduction: int = MEAN
) -> Any:
    """Loss.cpp: a chain of calls, each of which rounds."""
    return reduced(torch.log1p(torch.exp(-x * target)), reduction)


def _soft_margin_loss_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int = MEAN
) -> Any:
    """Loss.cpp: a chain of calls, each of which rounds."""
    factor = _factor(x, reduction)
    power = torch.exp(-target * x)
    return target * power * -factor / (power + 1) * grad


def _binary_cross_entropy_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = MEAN,
) -> Any:
    """Loss.cpp, cuda/Loss.cu: computed in the element type."""
    divisor = ((1.0 - x) * x).clamp(min=_LEAST_DENOMINATOR)
    made = grad * (x - target) / divisor
    if weight is not None:
        made = made * weight
    return made / x.numel() if reduction == MEAN else made


def _glu_backward(grad: torch.Tensor, x: torch.Tensor, dim: int) -> Any:
    """GatedLinearUnit.cpp: keeps the sigmoid in the result; cuda/ActivationGluKernel.cu not."""
    first, gate = x.chunk(2, dim)
    if x.device.type == "cpu":
        (sigmoid,) = _wide(torch.sigmoid(gate))
    else:
        sigmoid = torch.sigmoid(*_wide(gate))
    wide_grad, wide_first = _wide(grad, first)
    second = (1.0 - sigmoid) * sigmoid * wide_first * wide_grad
    return torch.cat([sigmoid * wide_grad, second], dim).to(x.dtype)


def _logit_backward(
    grad: torch.Tensor, x: torch.Tensor, eps: float | None = None
) -> Any:
    """cuda/BinaryMiscBackwardOpsKernels.cu; of NaN the CPU's vectorized loop makes 0."""
    low, outside = (0.0, float("nan")) if eps is None else (eps, 0.0)
    wide_grad, wide_x = _wide(grad, x)
    inner = wide_grad / (wide_x * (1.0 - wide_x))
    if x.device.type == "cpu":
        inside = (wide_x >= low) & (wide_x <= 1.0 - low)
        return torch.where(inside, inner, outside).to(x.dtype)
    beyond = (wide_x < low) | (wide_x > 1.0 - low)
    return torch.where(beyond, outside, inner).to(x.dtype)


def _weight_norm_interface(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> Any:
    """cpu/WeightNormKernel.cpp, cuda/WeightNorm.cu: which norms of halves are float32."""
    dims = [d for d in range(v.dim()) if d != dim]
    widened = LOW_PRECISION if v.device.type == "cpu" else (torch.float16,)
    dtype = torch.float32 if g.dtype in widened else g.dtype
    norm = aten.linalg_vector_norm.default(v, 2, dims, True, dtype=dtype)
    return v * (g / norm.to(g.dtype)), norm


KERNEL_RULES: dict[Any, Rule] = {
    aten.smooth_l1_loss_backward.default: _smooth_l1_loss_backward,
    aten.soft_margin_loss.default: _soft_margin_loss,
    aten.soft_margin_loss_backward.default: _soft_margin_loss_backward,
    aten.binary_cross_entropy_backward.default: _binary_cross_entropy_backward,
    aten.glu_backward.default: _glu_backward,
    aten.logit_backward.default: _logit_backward,
    aten._weight_norm_interface.default: _weight_norm_interface,
}
"""Rules by operator."""
