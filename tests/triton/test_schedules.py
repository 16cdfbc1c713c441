"""Which way a kernel goes over memory, and what is cut into parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("triton")

import torch
from torch import Tensor
from torch.nn import functional as F

import srcjit
from bench.gpu_breadth import BREADTH
from srcjit.options import Options
from srcjit.passes import layouts
from srcjit.passes.lowerings import gathers, interpolation
from srcjit.passes.segment import compile_segment
from srcjit.ptx_info import ptx_info
from tests.backend.support import segment_of


def text_of(function: Callable[..., Any], *args: Tensor) -> str:
    """The emitted text for tensors that nobody touches."""
    given = [torch.empty_strided(a.size(), a.stride(), dtype=a.dtype) for a in args]
    with torch.no_grad():
        segment = segment_of(function, *given)
        code = compile_segment(segment, Options(target="triton"))
    return "\n".join([*code.imports, code.definitions, code.function])


def meta(*size: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(*size, dtype=dtype, device="meta")


def test_vectors_do_not_turn_a_matrix() -> None:
    def scaled(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return (x * a[:, None, None] + b[:, None, None]) / c[:, None, None]

    vectors = [meta(256, dtype=torch.float32) for _ in range(3)]
    text = text_of(scaled, meta(64, 256, 56, 56), *vectors)
    assert "x_ptr + 3136 * point + " in text


def test_vectors_do_not_turn_a_reduction() -> None:
    def weighted(x: Tensor, w: Tensor) -> Tensor:
        return (x * w[:, None]).sum(0, dtype=torch.float32)

    text = text_of(weighted, meta(4096, 512), meta(4096, dtype=torch.float32))
    assert "'ROWS': 64, 'COLUMNS'" in text


def test_a_reduction_is_cut_where_it_writes_in_place() -> None:
    def normalized(p: Tensor, g: Tensor) -> None:
        p.sub_(g / g.square().mean().sqrt())

    text = text_of(
        normalized, *(meta(4096, 4096, dtype=torch.float32) for _ in range(2))
    )
    assert "total_parts" in text
    assert "p.copy_" not in text


def test_resizing_is_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x / 255, size=(112, 112), mode="bilinear") - 0.5

    monkeypatch.setattr(interpolation, "GATHERED", {"cpu", "cuda"})
    text = text_of(resized, meta(8, 3, 224, 224, dtype=torch.float32))
    assert "upsample" not in text
    assert text.count("@triton.jit") == 1


@pytest.mark.parametrize(
    "name",
    "group_norm_silu channel_stats_last focal_loss huber nt_xent cosine_rows "
    "residual_norm_fp8 quantize_int8 dequantize_int4 embed message_means geglu adafactor "
    "resize_normalize shuffle_pixels window_partition".split(),
)
def test_nothing_is_spilled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathers, "CHECKED", {"cpu", "cuda"})
    monkeypatch.setattr(interpolation, "GATHERED", {"cpu", "cuda"})
    workload = BREADTH[name]
    text = text_of(workload.function, *workload.make(1, "meta"))
    lines = ptx_info(text)
    assert lines
    assert all(" 0 bytes spilled" in line for line in lines), lines


def test_a_depthwise_convolution_is_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def block(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.gelu(F.conv2d(x, w, b, padding=1, groups=64))

    monkeypatch.setattr(layouts, "DEVICES", {"cpu", "cuda"})
    args = (meta(2, 64, 16, 16), meta(64, 1, 3, 3), meta(64))
    text = text_of(block, *args)
    assert "None, [1, 1], [1, 1]" in text
    assert "gelu = empty_cpu((2, 64, 16, 16), (16384, 256, 16, 1)" in text
    x, w, b = (torch.randn(a.size(), dtype=torch.bfloat16) for a in args)
    with torch.no_grad():
        given = srcjit.jit(block)(x, w, b)
        wanted = block(x, w, b)
    assert given.stride() == wanted.stride()
    torch.testing.assert_close(given, wanted, rtol=2e-2, atol=2e-2)
