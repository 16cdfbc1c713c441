"""Resizing as loops against eager, on devices that have none of their own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import srcjit
from srcjit.passes.lowerings import interpolation

SIZES = [
    ((8, 8), (4, 4)),
    ((8, 8), (16, 16)),
    ((7, 9), (5, 13)),
    ((1, 4), (3, 9)),
    ((6, 5), (1, 1)),
]


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize(("size", "out"), SIZES, ids=str)
def test_bilinear(
    size: tuple[int, int],
    out: tuple[int, int],
    corners: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x * 2, out, mode="bilinear", align_corners=corners)

    monkeypatch.setattr(interpolation, "GATHERED", {"cpu", "cuda"})
    for dtype, tolerance in ((torch.float32, 4e-6), (torch.bfloat16, 4e-2)):
        x = torch.randn(2, 3, *size).to(dtype)
        jitted = srcjit.jit(resized, fullgraph=True)
        torch.testing.assert_close(jitted(x), resized(x), rtol=0, atol=tolerance)


@pytest.mark.parametrize("factor", [2, 4, 0.5])
def test_nearest(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x * 2, scale_factor=factor, mode="nearest")

    monkeypatch.setattr(interpolation, "GATHERED", {"cpu", "cuda"})
    x = torch.randn(2, 3, 8, 12)
    assert torch.equal(srcjit.jit(resized, fullgraph=True)(x), resized(x))
