"""Results that lie side by side and come from two places: the loop form of them in pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import srcjit
from srcjit.options import Options
from srcjit.passes import group_kernels
from srcjit.passes.interleaved import interleaved
from srcjit.passes.segment import compile_segment
from tests.backend.support import segment_of

BF16 = torch.bfloat16


def shuffled(x: Tensor, b: Tensor) -> Tensor:
    return F.silu(F.pixel_shuffle(x, 2) + b[:, None, None])


def stacked(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a + b, a - b], -1)


def flattened(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a * b, a - b], -1).flatten(-2)


def unpacked(packed: Tensor, scale: Tensor) -> Tensor:
    low, high = (packed & 15).float() - 8, (packed >> 4).float() - 8
    return (torch.stack([low, high], -1).flatten(-2) * scale).bfloat16()


def repeated(a: Tensor) -> Tensor:
    return a.repeat_interleave(2, -1) * 2.0 + a.flatten()[0]


def both(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return torch.stack([a, b.exp()], -1), torch.stack([b, a], -1) * 2


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def swapped(x: Tensor) -> Tensor:
    return torch.stack([x[..., 1::2], x[..., ::2]], -1).flatten(-2).sin()


def written(x: Tensor, a: Tensor) -> Tensor:
    x.copy_(torch.stack([a, x[..., 0] + a], -1))
    return x + 1


def bf16(*size: int) -> Tensor:
    return torch.randn(*size).to(BF16)


PAIRED: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]] = {
    "shuffled": (shuffled, lambda: (bf16(2, 16, 64, 128), bf16(4))),
    "stacked": (stacked, lambda: (torch.randn(9, 128), torch.randn(9, 128))),
    "stacked, odd": (stacked, lambda: (torch.randn(7, 91), torch.randn(7, 91))),
    "stacked, expanded": (stacked, lambda: (torch.randn(7, 96), torch.randn(96))),
    "flattened": (flattened, lambda: (bf16(64, 128), bf16(64, 128))),
    "flattened, odd": (flattened, lambda: (bf16(5, 100), bf16(5, 100))),
    "unpacked": (
        unpacked,
        lambda: (
            torch.randint(255, (33, 128), dtype=torch.uint8),
            torch.rand(33, 1),
        ),
    ),
    "both": (both, lambda: (torch.randn(9, 128), torch.randn(9, 128))),
}

ALONE: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]] = {
    "short": (stacked, lambda: (torch.randn(3, 9), torch.randn(3, 9))),
    "rotated": (
        rotated,
        lambda: (torch.randn(4, 9, 128), torch.randn(9, 64), torch.randn(9, 64)),
    ),
    "swapped": (swapped, lambda: (torch.randn(9, 256),)),
    "written": (written, lambda: (torch.randn(9, 128, 2), torch.randn(9, 128))),
    "transposed": (
        lambda a, b: torch.stack([a, b], -1).transpose(0, 1).contiguous(),
        lambda: (torch.randn(96, 128), torch.randn(96, 128)),
    ),
    "repeated": (repeated, lambda: (torch.randn(7, 128),)),
}


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of the CPU's tensors are made as a GPU's are."""
    monkeypatch.setattr(group_kernels, "unrolled", interleaved)


@pytest.mark.parametrize("name", [*PAIRED, *ALONE])
def test_values(name: str) -> None:
    function, make = (PAIRED | ALONE)[name]
    torch.manual_seed(0)
    given = make()
    own, theirs = ([t.clone() for t in given] for _ in range(2))
    torch.testing.assert_close(srcjit.jit(function)(*own), function(*theirs))
    torch.testing.assert_close(own, theirs)


@pytest.mark.parametrize("name", [*PAIRED, *ALONE])
def test_text(name: str) -> None:
    function, make = (PAIRED | ALONE)[name]
    given = make()
    code = compile_segment(segment_of(function, *given), Options(target="triton"))
    assert ("tl.interleave(" in code.definitions) == (name in PAIRED)
