"""Where a kernel takes the hardware's approximation of `exp`: what is rounded hides it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("triton")

import torch
from torch import Tensor
from torch.nn import functional as F

from srcjit.options import Options
from srcjit.passes.segment import compile_segment
from tests.backend.support import segment_of


def text_of(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> str:
    segment = segment_of(function, torch.ones(4096, dtype=dtype))
    return compile_segment(segment, Options(target="triton")).definitions


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_silu_of_16_bits(dtype: torch.dtype) -> None:
    assert "1.0 + tl.exp(" in text_of(F.silu, dtype)


def test_silu_of_32_bits() -> None:
    assert "tl.exp(" not in text_of(F.silu, torch.float32)


def test_what_is_seen_by_itself() -> None:
    def weighted(x: Tensor) -> Tensor:
        return x.exp() * 3  # may be denormal

    def shown(x: Tensor) -> tuple[Tensor, Tensor]:
        raised = x.float().exp()
        return (x / (1 + raised)).to(x.dtype), raised

    def distance(x: Tensor) -> Tensor:
        return (x.float().exp() - 1).to(x.dtype)

    for function in (weighted, shown, distance):
        assert "tl.exp(" not in text_of(function, torch.bfloat16)
