"""Floats that become integers on the way to floats: 0.0 and the least integer are eager's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import srcjit

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def there_and_back(x: Tensor) -> list[Tensor]:
    through = [x.to(dtype).to(x.dtype) for dtype in INTEGERS]
    other = x.float() if x.dtype is torch.float64 else x.double()
    across = [other.to(dtype).to(x.dtype) for dtype in INTEGERS]
    wide = x.long()
    return [*through, *across, 1 / wide, wide.float() + x, x.int().double()]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_as_in_eager(dtype: torch.dtype) -> None:
    specials = [-0.5, -0.0, 0.7, 3e9, -3e9, 70000.5, -1.7, 1e30, -1e30]
    x = torch.tensor([*specials, float("inf"), float("nan")] * 5).to(dtype)
    wanted, found = there_and_back(x), srcjit.jit(there_and_back)(x)
    for want, have in zip(wanted, found, strict=True):
        torch.testing.assert_close(have, want, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(have.signbit(), want.signbit())
