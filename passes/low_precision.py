"""Decompositions of kernels that compute in bfloat16 or float16 itself.

Most of PyTorch's kernels widen a half to float32 and round once; PyTorch's decompositions do
so throughout. The kernels here round after every operation, on the devices and for the
dtypes that each rule names (`mse_loss` with bfloat16 inputs):

Before:                                        After:

    loss = aten.mse_loss.default(x, y, 0)          d = aten.sub.Tensor(x, y)
                                                   loss = aten.mul.Tensor(d, d)

The calls of a rule are recorded one by one on tensors of the element type, and each of them
rounds. What a square that overflows float16 gives is `inf` then, as in eager. Which kernel
does which was measured against CPU and CUDA kernels, element by element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

aten = torch.ops.aten

Rule = Callable[..., Any]

LOW_PRECISION = (torch.bfloat16, torch.float16)

NONE, MEAN = 0, 1
"""Numbers of `reduction=` in ATen."""


def low_precision_rules(table: Mapping[Any, Rule]) -> dict[Any, Rule]:
    """Returns rules for the ops of this module, given those for what computes in float32.

    Args:
        table: Decompositions that widen; used where eager's kernel widens, too.
    """
    return {
        op: functools.partial(_choose, rule, where, table[op])
        for op, (rule, where) in _RULES.items()
        if op in table
    }


def _choose(
    rule: Rule,
    where: Callable[[str, torch.dtype], bool],
    widening: Rule,
    *args: Any,
    **kwargs: Any,
) -> Any:
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if rule is _xlogy and len(tensors) == 2:
        common = torch.result_type(*tensors)
        if not common.is_floating_point:
            # A number's integers may be wider than those of the tensor beside it.
            return widening(*args, **kwargs)
        args = tensors = [t.to(common) for t in tensors]  # type: ignore[assignment]
    dtypes = {t.dtype for t in tensors}
    dtype = dtypes.pop()
    # With several dtypes the kernel's follows from rules of promotion.
    narrow = not dtypes and dtype in LOW_PRECISION
    if narrow and where(tensors[0].device.type, dtype):
        return rule(*args, **kwargs)
    return widening(*args, **kwargs)


def _mse_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = MEAN) -> Any:
    difference = x - target
    return reduced(difference * difference, reduction)


def _mse_loss_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int
) -> Any:
    factor = 2.0 / x.numel() if reduction == MEAN else 2.0
    return (x - target) * _rounded(factor, x) * grad


def _smooth_l1_loss(
    x: torch.Tensor, target: torch.Tensor, reduction: int = MEAN, beta: float = 1.0
) -> Any:
    z, width = (x - target).abs(), _rounded(beta, x)
    near, far = z * 0.5 * z / width, z - width * 0.5
    return reduced(torch.where(z < width, near, far), reduction)


def _huber_loss(
    x: torch.Tensor, target: torch.Tensor, reduction: int = MEAN, delta: float = 1.0
) -> Any:
    z, width = (x - target).abs(), _rounded(delta, x)
    near, far = z * 0.5 * z, width * (z - width * 0.5)
    return reduced(torch.where(z <= width, near, far), reduction)


def _smooth_l1_loss_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    reduction: int,
    beta: float,
) -> Any:
    factor, width = _factor(reduction, x), _rounded(beta, x)
    difference = x - target
    inside = factor * difference * grad / width
    outside = torch.where(difference <= -width, -factor * grad, factor * grad)
    return torch.where(difference.abs() >= width, outside, inside)


def _huber_loss_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    reduction: int,
    delta: float,
) -> Any:
    factor, width = _factor(reduction, x), _rounded(delta, x)
    difference = x - target
    low, high = -factor * grad * width, factor * grad * width
    inside = factor * difference * grad
    outside = torch.where(difference <= -width, low, high)
    return torch.where(difference.abs() >= width, outside, inside)


def _xlogy(x: Any, y: Any) -> Any:
    like = x if isinstance(x, torch.Tensor) else y
    x, y = (v if isinstance(v, torch.Tensor) else _rounded(v, like) for v in (x, y))
    product = torch.where(x == 0, _rounded(0.0, like), x * torch.log(y))
    return torch.where(y.isnan(), _rounded(float("nan"), like), product)


def _logit_backward(
    grad: torch.Tensor, x: torch.Tensor, eps: float | None = None
) -> Any:
    low, outside = (0.0, float("nan")) if eps is None else (eps, 0.0)
    one = _rounded(1.0, x)
    first, last = _rounded(low, x), _rounded(1.0 - low, x)
    inside = (x >= first) & (x <= last)
    return torch.where(inside, grad / (x * (one - x)), _rounded(outside, x))


def _factor(reduction: int, x: torch.Tensor) -> torch.Tensor:
    return _rounded(1.0 / x.numel() if reduction == MEAN else 1.0, x)


def _rounded(number: float, like: torch.Tensor) -> torch.Tensor:
    """A number as the kernel keeps it: in the element type."""
    made: torch.Tensor = aten.full.default(
        [], number, dtype=like.dtype, device=like.device
    )
    return made


def reduced(loss: torch.Tensor, reduction: int) -> torch.Tensor:
    """The loss of all elements as ATen's `reduction=` asks for it."""
    if reduction == NONE:
        return loss
    return loss.mean() if reduction == MEAN else loss.sum()


def _everywhere(device: str, dtype: torch.dtype) -> bool:
    return True


def _cpu(device: str, dtype: torch.dtype) -> bool:
    return device == "cpu"


def _gpu(device: str, dtype: torch.dtype) -> bool:
    return device != "cpu"


def _gpu_or_float16(device: str, dtype: torch.dtype) -> bool:
    return device != "cpu" or dtype is torch.float16


def _gpu_or_bfloat16(device: str, dtype: torch.dtype) -> bool:
    return device != "cpu" or dtype is torch.bfloat16


_RULES: dict[Any, tuple[Rule, Callable[[str, torch.dtype], bool]]] = {
    aten.mse_loss.default: (_mse_loss, _everywhere),
    aten.mse_loss_backward.default: (_mse_loss_backward, _everywhere),
    aten.smooth_l1_loss.default: (_smooth_l1_loss, _gpu_or_float16),
    aten.smooth_l1_loss_backward.default: (_smooth_l1_loss_backward, _gpu),
    aten.huber_loss.default: (_huber_loss, _gpu_or_bfloat16),
    aten.huber_loss_backward.default: (_huber_loss_backward, _everywhere),
    aten.xlogy.Tensor: (_xlogy, _cpu),
    aten.xlogy.Scalar_Self: (_xlogy, _cpu),
    aten.xlogy.Scalar_Other: (_xlogy, _cpu),
    aten.logit_backward.default: (_logit_backward, _cpu),
}
