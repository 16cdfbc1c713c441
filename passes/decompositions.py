"""Decompositions: ATen ops that are traced as what they are made of.

Before:

    aten._softmax.default(x, 1, False)

After:

    m = aten.amax.default(x, [1], True)
    e = aten.exp.default(aten.sub.Tensor(x, m))
    aten.div.Tensor(e, aten.sum.dim_IntList(e, [1], True))

The rules are PyTorch's own (`torch._decomp`); this module chooses among them. An op is left
alone when

- it has a loop form of its own (arithmetic, activations, plain reductions, views);
- it runs as one library call (matrix products, convolutions, attention, sorts, pooling);
- it draws random numbers: the stream has to be eager's;
- its decomposition rounds in other places than eager's kernel does. The chosen ones cast
  bf16 and f16 to f32 first and round once, as most kernels do; `passes.low_precision` has
  rules for those that round after each operation.

    >>> table = decompositions()
    >>> torch.ops.aten._softmax.default in table
    True
    >>> torch.ops.aten.native_dropout.default in table
    False
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from srcjit.runtime.checks import CHECKED, CHECKED_CLASSES

from .kernel_rules import KERNEL_RULES
from .low_precision import LOW_PRECISION, MEAN, NONE, low_precision_rules
from .primitives import FLOAT8

aten = torch.ops.aten

Decomposition: TypeAlias = Callable[..., Any]

NORMALIZATIONS = """
_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data _safe_softmax
native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward
_fused_rms_norm _fused_rms_norm_backward
native_batch_norm native_batch_norm_backward _native_batch_norm_legit
_native_batch_norm_legit.no_stats
_native_batch_norm_legit_functional _native_batch_norm_legit_no_training
_batch_norm_with_update_functional _batch_norm_no_update batch_norm_backward
cudnn_batch_norm cudnn_batch_norm_backward
""".split()

LOSSES = """
nll_loss_forward nll_loss2d_forward
mse_loss mse_loss_backward smooth_l1_loss huber_loss huber_loss_backward
binary_cross_entropy binary_cross_entropy_with_logits
""".split()

ACTIVATION_GRADIENTS = """
threshold_backward gelu_backward silu_backward tanh_backward elu_backward
hardswish_backward hardtanh_backward leaky_relu_backward mish_backward
softplus_backward log_sigmoid_forward log_sigmoid_backward glu _prelu_kernel
_prelu_kernel_backward rrelu_with_noise_backward native_dropout_backward
""".split()

VIEW_GRADIENTS = """
select_backward slice_backward diagonal_backward unfold_backward
""".split()

ARITHMETIC = """
rsub.Scalar rsub.Tensor logsumexp linalg_vector_norm
stack tril triu unbind.int split.Tensor
nan_to_num count_nonzero xlogy.Tensor xlogy.Scalar_Self xlogy.Scalar_Other
std.correction std_mean.correction frac sinc aminmax _unsafe_index.Tensor repeat
logaddexp logaddexp2 _reshape_alias lift_fresh detach _unsafe_view
zeros_like zeros ones ones_like new_zeros new_ones new_full zero fill.Scalar fill.Tensor
""".split()

CHECKS_DATA = "nll_loss_forward nll_loss2d_forward binary_cross_entropy".split()
"""Losses whose kernels for the CPU raise where a target or an input is out of range."""

CHOSEN = NORMALIZATIONS + LOSSES + ACTIVATION_GRADIENTS + VIEW_GRADIENTS + ARITHMETIC
"""Names of the ops that PyTorch's table decomposes here (`.default` where none is given)."""

OWN: dict[Any, Decomposition] = {}
"""Rules written here, for what PyTorch's table does in another way or not at all."""


def _rule(op: Any) -> Callable[[Decomposition], Decomposition]:
    """Registers a decomposition for `op`."""

    def register(function: Decomposition) -> Decomposition:
        OWN[op] = function
        return function

    return register


@_rule(aten.split_with_sizes.default)
def _split_with_sizes(x: torch.Tensor, sizes: list[int], dim: int = 0) -> list[Any]:
    """Slices, which have a simple index map (PyTorch's rule gives `as_strided`)."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(aten.slice.Tensor(x, dim, start, start + size))
        start = start + size
    return pieces


@_rule(aten.detach.default)
def _detach(x: torch.Tensor) -> Any:
    return aten.alias.default(x)


@_rule(aten.copy.default)
def _copy(
    target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False
) -> Any:
    """The value that `target.copy_(source)` leaves in `target`."""
    if source.dtype is not target.dtype or source.device != target.device:
        source = aten._to_copy.default(
            source, dtype=target.dtype, device=target.device, non_blocking=non_blocking
        )
    if source.shape != target.shape:
        source = aten.expand.default(source, target.shape)
    return source


@_rule(aten.nll_loss2d_backward.default)
@_rule(aten.nll_loss_backward.default)
def _nll_loss_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> Any:
    """Compares each class with the target, which fuses (PyTorch's rule scatters)."""
    dim = 0 if x.dim() == 1 else 1
    along = [-1 if d == dim else 1 for d in range(x.dim())]
    classes = aten.arange.default(x.shape[dim], dtype=target.dtype, device=x.device)
    wanted = target.unsqueeze(dim)
    hit = (classes.view(along) == wanted) & (wanted != ignore_index)
    if reduction == MEAN:
        grad = grad / total_weight
    elif reduction == NONE:
        grad = grad.unsqueeze(dim)
    if weight is not None:
        grad = grad * weight.view(along)
    zero = aten.full.default([], 0, dtype=x.dtype, device=x.device)
    return aten.where.self(hit, -grad, zero)


@_rule(aten.masked_fill.Scalar)
def _masked_fill(x: torch.Tensor, mask: torch.Tensor, value: Any) -> Any:
    filling = aten.full.default([], value, dtype=x.dtype, device=x.device)
    return aten.where.self(mask, filling, x)


@_rule(aten.masked_fill.Tensor)
def _masked_fill_by(x: torch.Tensor, mask: torch.Tensor, value: torch.Tensor) -> Any:
    return aten.where.self(mask, aten._to_copy.default(value, dtype=x.dtype), x)


@_rule(aten.elu_backward.default)
def _elu_backward(
    grad: torch.Tensor,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    self_or_result: torch.Tensor,
) -> Any:
    """D elu: `scale` where positive, else `input_scale * (result + scale * alpha)`."""
    work, low = _opmath(grad.dtype), grad.dtype
    grad, y = grad.to(work), self_or_result.to(work)
    if is_result:
        negative = grad * input_scale * (y + alpha * scale)
    else:
        negative = grad * (input_scale * alpha * scale) * torch.exp(y * input_scale)
    return torch.where(y <= 0, negative, grad * scale).to(low)


@_rule(aten.mean.default)
def _mean_all(x: torch.Tensor, *, dtype: torch.dtype | None = None) -> Any:
    return _mean(x, [], False, dtype=dtype)


@_rule(aten.mean.dim)
def _mean(
    x: torch.Tensor,
    dim: list[int] | None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """Sum over count; only the quotient is rounded to a bfloat16 or float16."""
    result = dtype or x.dtype
    if result.is_complex:
        return NotImplemented
    dims = list(range(x.dim())) if not dim else [d % max(x.dim(), 1) for d in dim]
    count: Any = 1
    for d in dims if x.dim() else ():
        count = count * x.shape[d]
    wide = _opmath(result)
    mean = aten.sum.dim_IntList(x, dims, keepdim, dtype=wide) / count
    return mean if wide is result else mean.to(result)


@_rule(aten.var.correction)
def _var(
    x: torch.Tensor,
    dim: list[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Any:
    return aten.var_mean.correction(x, dim, correction=correction, keepdim=keepdim)[0]


def _nll_loss_on_cpu(elsewhere: Decomposition) -> Decomposition:
    """As the rule for other devices, behind a check of the targets that raises as eager."""

    def nll_loss(
        x: torch.Tensor,
        target: torch.Tensor,
        weight: torch.Tensor | None,
        reduction: int,
        ignored: int,
    ) -> Any:
        if x.device.type != "cpu":
            return elsewhere(x, target, weight, reduction, ignored)
        dim = x.dim() - 1
        plain = weight is None and target.dtype is torch.int64 and dim in (0, 1)
        if not plain or not guard_or_false(x.numel() > 0):
            return NotImplemented
        safe = CHECKED(target, x.shape[dim], ignored)
        picked = aten.gather.default(x, dim, safe.unsqueeze(dim)).squeeze(dim)
        loss = torch.where(target != ignored, -picked, 0)
        if reduction == NONE and dim == 1:
            return loss, x.new_full((), 0.0)
        count = (target != ignored).sum().to(x.dtype)
        if reduction != NONE:
            loss = loss.sum()
        return (loss / count if reduction == MEAN else loss), count

    return nll_loss


def _one_hot(input: torch.Tensor, num_classes: int) -> torch.Tensor:
    """As eager's, which looks at the classes of tensors on the CPU."""
    if input.device.type == "cpu":
        input = CHECKED_CLASSES(input, num_classes)
    numbers = torch.arange(num_classes, device=input.device)
    return (input.unsqueeze(-1) == numbers).to(torch.int64)


class LooksAtData(NamedTuple):
    """A composite function whose kernel in C++ asks a tensor for its values.

    Attributes:
        form: What computes the same without asking.
        versions: Of its results in eager, which writes to them as it makes them.
    """

    form: Decomposition
    versions: tuple[int, ...]


LOOK_AT_DATA: dict[Any, LooksAtData] = {
    # Zeros are filled in, then ones.
    torch.nn.functional.one_hot: LooksAtData(_one_hot, (2,)),
}


def _unless_on_cpu(rule: Decomposition) -> Decomposition:
    """The rule for tensors on other devices, where eager raises nothing."""

    @functools.wraps(rule)
    def elsewhere(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.device.type == "cpu":
            return NotImplemented
        return rule(x, *args, **kwargs)

    return elsewhere


def _opmath(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which PyTorch's kernels compute on tensors of `dtype`."""
    return torch.float32 if dtype in LOW_PRECISION else dtype


_MOVING = frozenset(
    """select_backward slice_backward diagonal_backward stack unbind split split_with_sizes repeat
    detach copy _reshape_alias lift_fresh _unsafe_view zeros_like zeros ones ones_like new_zeros
    new_ones new_full zero fill _unsafe_index""".split()
)
"""Operators that only move elements, or make them from numbers."""


def _unless_float8(rule: Decomposition) -> Decomposition:
    """The rule for tensors that eager computes on; floats of 8 bits it mostly refuses."""

    @functools.wraps(rule)
    def wide(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(a, torch.Tensor) and a.dtype in FLOAT8 for a in args):
            return NotImplemented
        return rule(*args, **kwargs)

    return wide


def _unless_too_large(rule: Decomposition) -> Decomposition:
    """The rule of an operator on a tensor and a number, if the tensor's type has the number."""

    @functools.wraps(rule)
    def within(x: Any, y: Any) -> Any:
        tensor, number = (x, y) if isinstance(x, torch.Tensor) else (y, x)
        dtype = tensor.dtype if tensor.is_floating_point() else torch.float32
        finite = isinstance(number, int | float) and math.isfinite(number)
        if finite and abs(number) > torch.finfo(dtype).max:
            return NotImplemented
        return rule(x, y)

    return within


@functools.cache
def decompositions() -> dict[Any, Decomposition]:
    """Returns the table: op overload -> function that computes it with simpler ops.

    A function may return NotImplemented: then the op stays.
    """
    import torch._decomp as pytorch

    table: dict[Any, Decomposition] = {}
    for name in CHOSEN:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(aten, packet, None), overload or "default", None)
        if op is not None and op in pytorch.decomposition_table:
            table[op] = pytorch.decomposition_table[op]
            if name in CHECKS_DATA:
                table[op] = _unless_on_cpu(table[op])
            if name.startswith("xlogy.Scalar"):
                table[op] = _unless_too_large(table[op])
            if name == "nll_loss_forward":
                table[op] = _nll_loss_on_cpu(pytorch.decomposition_table[op])
    table |= KERNEL_RULES
    table.update(OWN)
    table |= low_precision_rules(table)
    return {
        op: rule if op.overloadpacket.__name__ in _MOVING else _unless_float8(rule)
        for op, rule in table.items()
    }
