"""Programs that `bench.gpu` times: plain PyTorch, as a user would write it.

Each is small text on large tensors. `Workload.make` draws fresh arguments from a seed;
`shrink` makes them small enough for Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Function = Callable[..., Any]
Arguments = tuple[Tensor, ...]

BF16, F32, MEGA = torch.bfloat16, torch.float32, 2**20
C = (2 / torch.pi) ** 0.5


@dataclass(frozen=True)
class Workload:
    """What is timed.

    Attributes:
        function: Plain PyTorch.
        make: Makes the arguments, given a factor by which to shrink sizes and the device.
        operations: Floating-point operations of matrix products, at full size. Where there
            are any, the floor is their time; else it is that of the bytes of the arguments and
            results, each moved once (twice where an argument is changed in place).
        tolerance: Largest relative error against float64, ||out - ref|| / ||ref||.
        mutates: Positions of arguments that are changed in place.
        rival: A library's function for the same, timed beside it.
        step: A step of training: forward, then backward for all floating-point arguments.
            The last argument is the gradient of the result.
        small: So small that what a call costs the host is timed.
    """

    function: Function
    make: Callable[[int, str], Arguments]
    operations: float = 0.0
    tolerance: float = 1e-2
    mutates: tuple[int, ...] = ()
    rival: Function | None = None
    step: bool = False
    small: bool = False


# --- norms and activations ------------------------------------------------------------------


def rms_norm(x: Tensor, scale: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * scale


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def rms_norm_wide(x: Tensor, scale: Tensor) -> Tensor:
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    return normed.to(x.dtype) * scale


def layer_norm_written(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    wide = x.float()
    distance = wide - wide.mean(-1, keepdim=True)
    spread = distance.pow(2).mean(-1, keepdim=True)
    return (distance * torch.rsqrt(spread + 1e-5)).to(x.dtype) * weight + bias


def gelu(h: Tensor) -> Tensor:
    return 0.5 * h * (1 + torch.tanh(C * (h + 0.044715 * h**3)))


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits, target)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + rotated * sin


def adamw(p: Tensor, grad: Tensor, m: Tensor, v: Tensor) -> None:
    p.mul_(1 - 1e-3 * 0.01)
    m.lerp_(grad, 1 - 0.9)
    v.mul_(0.999).addcmul_(grad, grad, value=1 - 0.999)
    denominator = (v.sqrt() / (1 - 0.999**10) ** 0.5).add_(1e-8)
    p.addcdiv_(m, denominator, value=-1e-3 / (1 - 0.9**10))


# --- reductions and layouts -----------------------------------------------------------------


def column_sum(x: Tensor) -> Tensor:
    return x.sum(0)


def sum_of_squares(x: Tensor) -> Tensor:
    return (x * x).sum()


def transpose_add(x: Tensor, bias: Tensor) -> Tensor:
    return (x.t() + bias).contiguous()


def whiten(x: Tensor) -> Tensor:
    return (x - x.mean()) / x.std()


def chain(x: Tensor, y: Tensor) -> Tensor:
    z = torch.sigmoid(x) * y + torch.relu(x - y)
    return torch.where(z > 0, z.exp().log1p(), z * 0.5) / (1 + y * y)


# --- matrix products ------------------------------------------------------------------------


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores, -1) @ v


def soft_capped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(30.0 * torch.tanh(scores / 30.0), -1) @ v


def feed_forward(x: Tensor, scale: Tensor, up: Tensor, down: Tensor) -> Tensor:
    h = F.linear(rms_norm(x, scale), up)
    return x + F.linear(gelu(h), down)


# --- arguments ------------------------------------------------------------------------------


def randn(*size: int, dtype: torch.dtype = F32, device: str) -> Tensor:
    return torch.randn(*size, dtype=F32, device=device).to(dtype)


def matrix(
    rows: int, columns: int, dtype: torch.dtype, vectors: int = 0
) -> Callable[[int, str], Arguments]:
    """A matrix and some row vectors."""

    def make(shrink: int, device: str) -> Arguments:
        width = columns // shrink
        vector = [randn(width, dtype=dtype, device=device) for _ in range(vectors)]
        return randn(rows // shrink, width, dtype=dtype, device=device), *vector

    return make


def several(count: int, dtype: torch.dtype, *size: int) -> Callable[[int, str], Any]:
    """Some tensors of one shape."""

    def make(shrink: int, device: str) -> Arguments:
        sizes = [max(1, s // shrink) if s > shrink else s for s in size]
        return tuple(randn(*sizes, dtype=dtype, device=device) for _ in range(count))

    return make


def _cross_entropy_arguments(shrink: int, device: str) -> Arguments:
    rows, classes = 8192 // shrink, 50257 // shrink
    target = torch.randint(0, classes, (rows,), device=device)
    return randn(rows, classes, dtype=BF16, device=device), target


def _rotary_arguments(shrink: int, device: str) -> Arguments:
    length, width = 4096 // shrink, 128
    x = randn(8, 32, length, width, dtype=BF16, device=device)
    angles = torch.rand(length, width // 2, device=device).repeat(1, 2)
    return x, angles.cos().to(BF16), angles.sin().to(BF16)


def _adamw_arguments(shrink: int, device: str) -> Arguments:
    p, grad, m, v = (randn(32 * MEGA // shrink, device=device) for _ in range(4))
    return p, grad, m, v.square()


def _transpose_arguments(shrink: int, device: str) -> Arguments:
    rows = 16384 // shrink
    return randn(rows, 8192 // shrink, device=device), randn(rows, device=device)


def _whiten_arguments(shrink: int, device: str) -> Arguments:
    return (randn(128 * MEGA // shrink, device=device) * 3 + 1,)


def _feed_forward_arguments(width: int) -> Callable[[int, str], Arguments]:
    def make(shrink: int, device: str) -> Arguments:
        small = width // shrink
        x = randn(16, 512 // shrink, small, dtype=BF16, device=device)
        up = randn(4 * small, small, dtype=BF16, device=device) / small**0.5
        down = randn(small, 4 * small, dtype=BF16, device=device) / (4 * small) ** 0.5
        return x, torch.ones(small, dtype=BF16, device=device), up, down

    return make


def _attention_arguments(shrink: int, device: str) -> Arguments:
    size = (8, 16, 2048 // shrink, 64)
    q, k, v = (randn(*size, dtype=BF16, device=device) for _ in range(3))
    return q, k, v


WORKLOADS: dict[str, Workload] = {
    "rms_norm": Workload(rms_norm, matrix(16384, 8192, BF16, 1)),
    "layer_norm": Workload(layer_norm, matrix(16384, 8192, BF16, 2)),
    "gelu": Workload(gelu, matrix(16384, 8192, F32), tolerance=1e-5),
    "softmax": Workload(softmax, matrix(16384, 8192, F32), tolerance=1e-5),
    "cross_entropy": Workload(cross_entropy, _cross_entropy_arguments),
    "swiglu": Workload(swiglu, several(2, BF16, 16384, 8192)),
    "rotary": Workload(rotary, _rotary_arguments),
    "adamw": Workload(adamw, _adamw_arguments, tolerance=1e-5, mutates=(0, 2, 3)),
    "column_sum": Workload(column_sum, matrix(16384, 8192, F32), tolerance=1e-4),
    "sum_of_squares": Workload(
        sum_of_squares, several(1, F32, 128 * MEGA), tolerance=1e-5
    ),
    "transpose_add": Workload(transpose_add, _transpose_arguments, tolerance=1e-6),
    "whiten": Workload(whiten, _whiten_arguments, tolerance=1e-5),
    "attention": Workload(
        attention,
        _attention_arguments,
        operations=4 * 8 * 16 * 2048 * 2048 * 64,
        rival=F.scaled_dot_product_attention,
    ),
    "soft_capped": Workload(
        soft_capped, _attention_arguments, operations=4 * 8 * 16 * 2048 * 2048 * 64
    ),
    "feed_forward_1024": Workload(
        feed_forward,
        _feed_forward_arguments(1024),
        operations=2 * 2 * 16 * 512 * 1024 * 4096,
    ),
    "feed_forward_4096": Workload(
        feed_forward,
        _feed_forward_arguments(4096),
        operations=2 * 2 * 16 * 512 * 4096 * 16384,
    ),
    "rms_norm_wide": Workload(rms_norm_wide, matrix(16384, 8192, BF16, 1)),
    "layer_norm_written": Workload(layer_norm_written, matrix(16384, 8192, BF16, 2)),
    "softmax_bf16": Workload(softmax, matrix(16384, 8192, BF16)),
    "softmax_long": Workload(softmax, matrix(2048, 131072, BF16)),
    "chain": Workload(chain, several(2, F32, 64 * MEGA), tolerance=1e-5),
}
"""Memory-bound programs first, then matrix products; the last five are extras."""
