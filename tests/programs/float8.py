"""Quantization to floats of 8 bits, and products of what was quantized."""

from __future__ import annotations

import torch

from tests.programs import case

E4M3 = torch.float8_e4m3fn


def quantize_rows(x):
    scale = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / 448.0
    return (x.float() / scale).clamp(-448.0, 448.0).to(E4M3), scale


def rows_times_columns(x, w):
    left, scale = quantize_rows(x)
    right, other = quantize_rows(w)
    product = torch._scaled_mm(
        left, right.t(), scale, other.t(), out_dtype=torch.bfloat16
    )
    return product.float() + 1.0, left


def quantize_blocks(x, size=128):
    """A scale for each row and block of columns, as DeepSeek-V3 quantizes."""
    rows, columns = x.shape
    blocks = x.float().view(rows, columns // size, size)
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448.0
    return (blocks / scale).to(E4M3).view(rows, columns), scale.squeeze(-1)


def through_blocks(x, w):
    q, scale = quantize_blocks(x)
    rows, columns = q.shape
    wide = q.view(rows, -1, 128).to(torch.float32) * scale.unsqueeze(-1)
    one = torch.ones((), dtype=torch.float32)
    product = torch._scaled_mm(q, w.t(), one, one, out_dtype=torch.float32)
    return q, wide.view(rows, columns).to(x.dtype), product


def whole(x):
    """One scale for all elements, and gradients of 5 bits of exponent."""
    scale = 448.0 / x.abs().amax().float().clamp(min=1e-12)
    forward = (x * scale).clamp(-448.0, 448.0).to(E4M3)
    return forward, (x * 2).to(torch.float8_e5m2), forward.to(x.dtype) / scale


def moved(x, y, rows, flag):
    joined = torch.cat([x, y]).t().contiguous()
    chosen = torch.where(flag, x, y)
    return joined, chosen.index_select(0, rows), x[:, ::2].clone(), (x * y).float()


def refused(x, y):
    """Eager has no kernel for the last operation: the line of that is in the traceback."""
    joined = torch.cat([x, y]).t().contiguous()
    wide = joined.float() + 1
    return joined, wide, torch.relu(x).float()


def _bytes(rows: int, columns: int) -> torch.Tensor:
    return torch.arange(rows * columns).to(torch.uint8).reshape(rows, columns)


@case
def float8_rows():
    return rows_times_columns, (torch.randn(16, 32), torch.randn(48, 32).bfloat16())


@case
def float8_blocks():
    return through_blocks, (
        torch.randn(16, 256).bfloat16(),
        torch.randn(32, 256).to(E4M3),
    )


@case
def float8_whole():
    return whole, (torch.randn(9, 17) * 1000,)


@case
def float8_moved():
    x, y = _bytes(16, 16).view(E4M3), _bytes(16, 16).flip(0).view(E4M3)
    flag = _bytes(16, 16) % 3 == 0
    return moved, (x, y, torch.tensor([3, 0, 15]), flag)


@case
def float8_refused():
    x = _bytes(16, 16).view(E4M3)
    return refused, (x, x.flip(0))
