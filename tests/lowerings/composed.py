"""Rows of operators that are taken apart into others: normalizations, losses, gradients.

`tests.lowerings.test_table` fails for a decomposition without a row here or in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tests.lowerings.table import Call, Operands, aten

NONE, MEAN, SUM = 0, 1, 2
"""Numbers of `reduction=` in ATen."""


def channels(t: Operands, a: torch.Tensor) -> torch.Tensor:
    """One value for each of the second dimension's."""
    return a.reshape(-1)[: t.x.size(1)]


def positive(t: Operands) -> torch.Tensor:
    """A variance for each channel."""
    return channels(t, t.z).abs() + 1


def classes(t: Operands) -> torch.Tensor:
    """A class for each row, some of them the ignored class."""
    return t.places.select(-1, 0)


def losses(name: str, *rest: Any) -> list[Call]:
    """Rows of a loss of two tensors, by reduction."""
    function = getattr(aten, name)
    return [lambda t, r=r: function(t.x, t.y, r, *rest) for r in (NONE, MEAN, SUM)]


def loss_gradients(name: str, *rest: Any) -> list[Call]:
    """Rows of the gradient of a loss."""
    function = getattr(aten, name)
    return [lambda t, r=r: function(t.z, t.x, t.y, r, *rest) for r in (NONE, MEAN, SUM)]


def _layer_norm_backward(t: Operands, scaled: bool) -> Any:
    shape = [t.x.size(-1)]
    weight = t.z.select(0, 1).contiguous() if scaled else None
    _, mean, rstd = aten.native_layer_norm(t.x, shape, weight, weight, 1e-5)
    mask = [True, scaled, scaled]
    made = aten.native_layer_norm_backward(
        t.y, t.x, shape, mean, rstd, weight, weight, mask
    )
    return [m for m in made if m is not None]


def _group_norm_backward(t: Operands) -> Any:
    n, c = t.x.size(0), t.x.size(1)
    space = t.x.numel() // max(n * c, 1)
    _, mean, rstd = aten.native_group_norm(t.x, None, None, n, c, space, 1, 1e-5)
    mask = [True, False, False]
    return aten.native_group_norm_backward(
        t.y, t.x, mean, rstd, None, n, c, space, 1, mask
    )[0]


def _rms_norm_backward(t: Operands) -> Any:
    shape, weight = [t.x.size(-1)], t.z.select(0, 1).contiguous()
    _, rstd = aten._fused_rms_norm(t.x, shape, weight, 1e-5)
    return aten._fused_rms_norm_backward(t.y, t.x, shape, rstd, weight, [True, True])


def _batch_norm_backward(name: str) -> Call:
    def row(t: Operands) -> Any:
        weight = channels(t, t.z)
        mean, variance = channels(t, t.y), positive(t)
        saved = (channels(t, t.y).float(), positive(t).float())
        out = []
        for training in (False, True):
            given: list[Any] = [t.y, t.x, weight, mean, variance, *saved]
            mask = [True, True, True]
            if name == "batch_norm_backward":
                reserve = torch.empty(0, dtype=torch.uint8)
                out += aten.batch_norm_backward(*given, training, 1e-5, mask, reserve)
            else:
                out += aten.native_batch_norm_backward(*given, training, 1e-5, mask)
        return out

    return row


def _batch_norm(name: str, training: bool) -> Call:
    def row(t: Operands) -> Any:
        weight, bias = channels(t, t.y), channels(t, t.z)
        mean, variance = channels(t, t.y).clone(), positive(t)
        match name:
            case "_native_batch_norm_legit.no_stats":
                return aten._native_batch_norm_legit.no_stats(
                    t.x, weight, bias, training, 0.1, 1e-5
                )
            case "_batch_norm_with_update_functional":
                made = aten._batch_norm_with_update_functional(
                    t.x, weight, bias, mean, variance, 0.1, 1e-5
                )
                return made[0]  # PyTorch's fakes have other types for statistics
            case "_batch_norm_no_update":
                return aten._batch_norm_no_update(
                    t.x, weight, bias, mean, variance, 0.1, 1e-5
                )[0]
        function = getattr(aten, name)
        made = function(t.x, weight, bias, mean, variance, training, 0.1, 1e-5)
        return [*made, mean, variance][: 3 if training else 1]

    return row


def _nll(t: Operands, reduction: int, weighted: bool) -> Any:
    weight = t.z.select(0, 0).abs() if weighted else None
    return aten.nll_loss_forward(t.x, classes(t), weight, reduction, 1)


def _nll_backward(t: Operands, reduction: int) -> Any:
    grad = t.y.select(-1, 0) if reduction == NONE else t.y.select(-1, 0).select(0, 0)
    total = torch.full((), 7.0, dtype=t.x.dtype)
    return aten.nll_loss_backward(grad, t.x, classes(t), None, reduction, 1, total)


def _images(t: Operands) -> torch.Tensor:
    return t.x.expand(2, *t.x.shape[-2:]).unsqueeze(-1).expand(2, -1, -1, 3)


def _nll2d(t: Operands, backward: bool) -> Any:
    images = _images(t).transpose(1, 2)
    target = t.places.expand(2, *t.places.shape[-2:])[:, : images.size(2)]
    target = target.select(-1, 0).unsqueeze(-1).expand(2, images.size(2), 3)
    forward = aten.nll_loss2d_forward(images, target, None, MEAN, 1)
    if not backward:
        return forward
    return aten.nll_loss2d_backward(
        forward[0], images, target, None, MEAN, 1, forward[1]
    )


def _unit(a: torch.Tensor) -> torch.Tensor:
    """Probabilities, NaN among them."""
    return torch.where(a.abs() <= 1, a.abs(), torch.where(a.isnan(), a, 0.5))


def _cross_entropy(t: Operands, reduction: int, backward: bool) -> Any:
    x, y, weight = _unit(t.x), _unit(t.y), t.z
    if backward:
        return aten.binary_cross_entropy_backward(t.z, x, y, None, reduction)
    return [aten.binary_cross_entropy(x, y, w, reduction) for w in (None, weight)]


NORMALIZED: dict[str, list[Call]] = {
    "aten._safe_softmax": [
        lambda t: aten._safe_softmax(t.x, -1),
        lambda t: aten._safe_softmax(t.x, 0),
    ],
    "aten.native_layer_norm_backward": [
        lambda t: _layer_norm_backward(t, True),
        lambda t: _layer_norm_backward(t, False),
    ],
    "aten.native_group_norm_backward": [_group_norm_backward],
    "aten._fused_rms_norm": [
        lambda t: aten._fused_rms_norm(t.x, [t.columns], None, 1e-5),
        lambda t: aten._fused_rms_norm(t.x, [t.columns], t.y.select(0, 1), None),
    ],
    "aten._fused_rms_norm_backward": [_rms_norm_backward],
    **{
        f"aten.{name}": [_batch_norm(name, training) for training in (True, False)]
        for name in (
            "native_batch_norm",
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_functional",
        )
    },
    "aten._native_batch_norm_legit.no_stats": [
        _batch_norm("_native_batch_norm_legit.no_stats", True)
    ],
    "aten._batch_norm_with_update_functional": [
        _batch_norm("_batch_norm_with_update_functional", True)
    ],
    "aten._batch_norm_no_update": [_batch_norm("_batch_norm_no_update", False)],
    "aten.native_batch_norm_backward": [_batch_norm_backward("native")],
    "aten.batch_norm_backward": [_batch_norm_backward("batch_norm_backward")],
    "aten._weight_norm_interface": [
        # Eager's kernel takes its operands for contiguous ones.
        lambda t: aten._weight_norm_interface(
            t.x.flatten(1).contiguous(), t.y.flatten(1)[:, :1].contiguous(), 0
        )
    ],
    "aten.logsumexp": [
        lambda t: aten.logsumexp(t.x, [-1]),
        lambda t: aten.logsumexp(t.x, [0], True),
        lambda t: aten.logsumexp(t.x, list(range(t.rank))),
    ],
    "aten.std_mean.correction": [
        lambda t: aten.std_mean.correction(t.x, [-1], correction=0),
        lambda t: aten.std_mean.correction(t.x, None, correction=1, keepdim=True),
    ],
    "aten.aminmax": [
        lambda t: aten.aminmax(t.x),
        lambda t: aten.aminmax(t.x, dim=0, keepdim=True),
    ],
    "aten.count_nonzero": [
        lambda t: aten.count_nonzero(t.x),
        lambda t: aten.count_nonzero(t.x, -1),
    ],
}
"""Operators that fold dimensions and are made of others."""

LOST: dict[str, list[Call]] = {
    "aten.nll_loss_forward": [
        lambda t, r=r, w=w: _nll(t, r, w)
        for r in (NONE, MEAN, SUM)
        for w in (False, True)
    ],
    "aten.nll_loss_backward": [
        lambda t, r=r: _nll_backward(t, r) for r in (NONE, MEAN, SUM)
    ],
    "aten.nll_loss2d_forward": [lambda t: _nll2d(t, False)],
    "aten.nll_loss2d_backward": [lambda t: _nll2d(t, True)],
    "aten.mse_loss": losses("mse_loss"),
    "aten.mse_loss_backward": loss_gradients("mse_loss_backward"),
    "aten.smooth_l1_loss": losses("smooth_l1_loss", 0.7),
    "aten.smooth_l1_loss_backward": loss_gradients("smooth_l1_loss_backward", 0.7),
    "aten.huber_loss": losses("huber_loss", 0.7),
    "aten.huber_loss_backward": loss_gradients("huber_loss_backward", 0.7),
    "aten.soft_margin_loss": losses("soft_margin_loss"),
    "aten.soft_margin_loss_backward": loss_gradients("soft_margin_loss_backward"),
    "aten.binary_cross_entropy": [
        lambda t, r=r: _cross_entropy(t, r, False) for r in (NONE, MEAN, SUM)
    ],
    "aten.binary_cross_entropy_backward": [
        lambda t, r=r: _cross_entropy(t, r, True) for r in (NONE, MEAN, SUM)
    ],
    "aten.binary_cross_entropy_with_logits": [
        lambda t, r=r, w=w: aten.binary_cross_entropy_with_logits(
            t.x, _unit(t.y), None, t.z.abs() if w else None, r
        )
        for r in (NONE, MEAN, SUM)
        for w in (False, True)
    ],
}
"""Losses and their gradients."""


def _halves(t: Operands) -> torch.Tensor:
    return torch.cat([t.x, t.y], -1)


ELEMENTS: dict[str, list[Call]] = {
    "aten.mish_backward": [lambda t: aten.mish_backward(t.x, t.y)],
    "aten.log_sigmoid_forward": [lambda t: aten.log_sigmoid_forward(t.x)[0]],
    "aten.log_sigmoid_backward": [
        lambda t: aten.log_sigmoid_backward(t.x, t.y, aten.log_sigmoid_forward(t.y)[1])
    ],
    "aten.glu": [lambda t: aten.glu(_halves(t), -1)],
    "aten.glu_backward": [lambda t: aten.glu_backward(t.z, _halves(t), -1)],
    "aten._prelu_kernel_backward": [
        lambda t: aten._prelu_kernel_backward(t.x, t.y, t.z)
    ],
    "aten.rrelu_with_noise_backward": [
        lambda t, training=training: aten.rrelu_with_noise_backward(
            t.x, t.y, t.z, 0.1, 0.3, training, False
        )
        for training in (False, True)
    ],
    "aten.logit_backward": [
        lambda t: aten.logit_backward(t.x, t.y + 0.0),
        # Eager's loops differ in what they make of NaN.
        lambda t: aten.logit_backward(t.x, aten.nan_to_num(t.y), 1e-3),
    ],
    "aten.native_dropout_backward": [
        lambda t: aten.native_dropout_backward(t.x, t.flag, 1.25)
    ],
    "aten.nan_to_num": [
        lambda t: aten.nan_to_num(t.x),
        lambda t: aten.nan_to_num(t.x, 1.5, 2.5, -3.5),
    ],
    "aten.xlogy.Tensor": [lambda t: aten.xlogy.Tensor(t.x, t.y)],
    "aten.xlogy.Scalar_Self": [
        lambda t, n=n: aten.xlogy.Scalar_Self(n, t.x) for n in (0, 2.5, math.nan)
    ],
    "aten.xlogy.Scalar_Other": [
        lambda t, n=n: aten.xlogy.Scalar_Other(t.x, n) for n in (0, 2.5, math.nan)
    ],
    "aten.sinc": [lambda t: aten.sinc(t.x)],
    "aten.logaddexp": [lambda t: aten.logaddexp(t.x, t.y)],
    "aten.logaddexp2": [lambda t: aten.logaddexp2(t.x, t.y)],
    "aten.zero": [lambda t: aten.zero(t.x)],
}
"""Operators that compute each element from those at its place, and are made of others."""

MOVED: dict[str, list[Call]] = {
    "aten.select_backward": [
        lambda t: aten.select_backward(t.x.select(0, 0), list(t.x.shape), 0, -1)
    ],
    "aten.slice_backward": [
        lambda t: aten.slice_backward(
            t.x.narrow(0, 0, (t.x.size(0) - 1) // 2), list(t.x.shape), 0, 1,
            t.x.size(0) - (t.x.size(0) - 1) % 2, 2,
        )
    ],
    "aten.diagonal_backward": [
        lambda t: aten.diagonal_backward(
            t.x.diagonal(1), list(t.x.shape), 1, 0, 1
        )
    ],
    "aten.unfold_backward": [
        lambda t: aten.unfold_backward(
            t.x.unfold(-1, 3, 2), list(t.x.shape), t.rank - 1, 3, 2
        )
    ],
    "aten.stack": [
        lambda t: aten.stack([t.x, t.y]),
        lambda t: aten.stack([t.x, t.y, t.z], -1),
    ],
}  # fmt: skip
"""Operators that move elements and are made of others."""

ONLY_ON_GPUS = frozenset(
    {
        "aten.cudnn_batch_norm",
        "aten.cudnn_batch_norm_backward",
        "aten._fused_rms_norm_backward",
    }
)
"""Decompositions of operators that the CPU does not have."""

COMPOSED_ROWS: dict[str, list[Call]] = {**ELEMENTS, **MOVED, **NORMALIZED, **LOST}
"""All of them."""

Rows = dict[str, list[Callable[[Operands], Any]]]
