"""Sums of one number, and constants that become numbers of 16 bits, are eager's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import srcjit
from srcjit.passes.loops import Const, cast
from srcjit.passes.rounding import Casts

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def sums_of_one(x: Tensor, row: Tensor) -> list[Tensor]:
    return [x.sum(), x.sum(0), row.sum(0), row.mean(0, keepdim=True), row.sum(1), -row]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_sum_of_one_zero_is_positive(dtype: torch.dtype) -> None:
    given = (
        torch.tensor(-0.0, dtype=dtype),
        torch.tensor([[-0.0, 0.0, 1.0]], dtype=dtype),
    )
    for have, want in zip(srcjit.jit(sums_of_one)(*given), sums_of_one(*given)):
        assert torch.equal(have, want)
        assert torch.equal(have.signbit(), want.signbit())


def test_no_bool_is_left_to_be_rounded() -> None:
    # Triton's interpreter makes a number of 16 bits of a bool's bits.
    value = Casts(keep_fp32=False).simplify(
        cast(Const(True, torch.bool), torch.bfloat16)
    )
    assert value == cast(Const(1.0, torch.float32), torch.bfloat16)
