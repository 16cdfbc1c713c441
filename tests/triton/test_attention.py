"""Streaming attention: in Triton's interpreter against eager, and compiled for sm_90."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from srcjit.options import Options
from srcjit.passes.segment import compile_segment
from srcjit.ptx_info import ptx_info
from srcjit.runtime.triton_compile import cross_compile
from tests.backend.support import compiled, segment_of
from tests.triton.attention import (
    CASES,
    MENDED,
    ROUNDED,
    SIZES_VARY,
    causal,
    chosen,
    plain,
    qkv,
    soft_cap,
    window,
)
from tests.triton.reports import reports_of


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    """What one interpreter process says of all cases."""
    return reports_of("tests.triton.attention")


@pytest.mark.parametrize("name", [*CASES, *SIZES_VARY, *MENDED, *ROUNDED])
def test_case(name: str, reports: dict[str, Any]) -> None:
    report = reports[name]
    assert not report["problems"], "\n".join([*report["problems"], report["text"]])


def test_no_farther_from_float64_than_eager(reports: dict[str, Any]) -> None:
    ratios = [
        log(ours / eager)
        for ours, eager in (r["errors"] for r in reports.values())
        if eager > 0
    ]
    assert sum(ratios) / len(ratios) <= 0.0


def test_hidden_blocks_are_left_out() -> None:
    text = compiled(causal, *qkv(300), target="triton").text
    assert "range(0, stop, COLUMNS)" in text
    text = compiled(window, *qkv(300), target="triton").text
    assert "range(first, stop, COLUMNS)" in text


@pytest.fixture
def tf32() -> Iterator[None]:
    """The user lets products round float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def written(*args: Any) -> tuple[str, bool]:
    """Kernels of an attention, and whether they depend on what may be rounded."""
    code = compile_segment(segment_of(soft_cap, *args), Options(target="triton"))
    return code.definitions, code.numerics


def test_float32_is_streamed_where_it_may_be_rounded(tf32: None) -> None:
    text, numerics = written(*qkv(128, d=64, dtype=torch.float32))
    assert text.count('input_precision="tf32"') == 2 and numerics
    text, numerics = written(*qkv(128, d=128, dtype=torch.float32))
    assert "tl.dot" not in text and not numerics
    text, numerics = written(*qkv(128, d=64))
    assert "tl.dot" in text and "input_precision" not in text and not numerics


def test_float32_is_not_streamed_where_it_may_not() -> None:
    text, numerics = written(*qkv(128, d=64, dtype=torch.float32))
    assert "tl.dot" not in text and not numerics


def test_float32_fits_on_chip(tf32: None) -> None:
    args = qkv(2048, d=64, dtype=torch.float32)
    code = compile_segment(segment_of(soft_cap, *args), Options(target="triton"))
    (line,) = ptx_info("\n".join([*code.imports, code.definitions, code.function]))
    shared = int(re.search(r"(\d+) bytes shared", line)[1])
    print(line)
    assert shared < 227 * 1024 and " 0 bytes spilled" in line


COMPILED = {
    "soft cap": (soft_cap, qkv(2048, d=64)),
    "causal, odd sizes": (causal, qkv(1037, d=40)),
    "choice": (chosen, [*qkv(512, d=64), torch.ones(2, 512, 512, dtype=torch.bool)]),
    "head 256": (soft_cap, qkv(512, d=256)),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiles_for_sm_90(name: str) -> None:
    function, args = COMPILED[name]
    text = compiled(function, *args, target="triton").text
    (line,) = re.findall(r"launch\((\w+), .*num_stages.*\)", text)
    constants = dict(
        re.findall(r"(\w+)=(\d+)", re.findall(r".*num_stages=.*", text)[-1])
    )
    types = re.search(rf"def {line}\(([^)]*)\)", text)
    assert types is not None
    count = types[1].count("_ptr")
    dtype = "fp16" if args[0].dtype is torch.float16 else "bf16"
    signature = [f"*{dtype}:16"] * count
    if "_flags_ptr" in types[1]:
        signature[-1] = "*i8:16"
    if name == "choice":
        signature[3] = "*i1:16"
    made = cross_compile(
        text, ", ".join(signature), {k: int(v) for k, v in constants.items()}, name=line
    )
    assert "wgmma" in made.ptx
    assert made.spills <= 64, made.spills


def test_a_library_call_where_it_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from srcjit.passes import attention_library

    monkeypatch.setattr(attention_library, "_hopper", lambda _: True)
    args = [torch.empty(4, 8, 2048, 64, dtype=torch.bfloat16) for _ in "qkv"]
    text = compiled(plain, *args, target="triton").text
    assert "attend_cuda(q, k, v, 0.125, (32, 2048, 64))" in text
    for other in (soft_cap, causal):
        assert "attend_cuda(" not in compiled(other, *args, target="triton").text


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_library_call_on_a_gpu(which: int, value: float, transposed: bool) -> None:
    from srcjit.runtime.triton_attention import attend_cuda

    torch.manual_seed(0)
    args = [t.cuda().abs() for t in qkv(200, d=64)]
    args[which][0, 1, 5] = args[which][0, 0, 7, 3] = value
    if transposed:
        args = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in args]
    got = attend_cuda(*args, 64**-0.5, (2, 200, 64)).view(1, 2, 200, 64)
    eager = plain(*args)
    assert torch.equal(got.isnan(), eager.isnan())
    assert torch.equal(got.isinf(), eager.isinf())
    torch.testing.assert_close(
        got, eager, rtol=0.05, atol=0.05, equal_nan=True, check_stride=False
    )


def test_the_first_call_waits_for_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a row may have to be mended."""
    from srcjit.runtime import triton_attention

    mended: list[int] = []

    def attend(query: torch.Tensor, *_: Any) -> torch.Tensor:
        made = torch.ones_like(query)
        made[0, 0, 1] = query[0, 0, 1]
        return made

    monkeypatch.setattr(triton_attention, "_attend", attend)
    monkeypatch.setattr(triton_attention, "_seen", set())
    monkeypatch.setattr(triton_attention, "prepare", lambda *a, **k: True)
    monkeypatch.setattr(
        triton_attention, "mend", lambda made, *_: mended.append(made.shape[2])
    )

    def call(length: int, first: float, capturing: bool = False) -> None:
        monkeypatch.setattr(
            torch.cuda, "is_current_stream_capturing", lambda: capturing
        )
        q = torch.full((1, 2, length, 16), first, dtype=torch.bfloat16)
        got = triton_attention.attend_cuda(q, q, q, 0.125, (2, length, 16))
        assert got.shape == (2, length, 16)

    call(4, 1.0)
    assert not mended
    call(4, 1.0)
    assert mended == [4]
    call(5, 0.0)
    assert mended == [4, 5]
    call(6, 1.0, capturing=True)
    assert mended == [4, 5, 6]


def test_parts_of_cudnn(tmp_path: Path) -> None:
    from srcjit.runtime.cudnn import parts

    for name in ("libcudnn", "libcudnn_graph", "libcudnn_heuristic", "libcudnn_ops"):
        (tmp_path / f"{name}.so.9").touch()
    maps = tmp_path / "maps"
    line = "7f0000 r-xp 00000000 00:01 1234    "
    maps.write_text(f"{line}/lib/libc.so.6\n{line}{tmp_path}/libcudnn.so.9\n")
    found = [file.name for file in parts(maps)]
    assert found == ["libcudnn_graph.so.9", "libcudnn_heuristic.so.9"]
    maps.write_text(f"{line}/lib/libc.so.6\n")
    assert parts(maps) == parts(tmp_path / "none") == []


def test_a_library_call_is_foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    from srcjit.passes import attention_library
    from srcjit.runtime import cudnn

    loads: list[bool] = []
    monkeypatch.setattr(attention_library, "_measured", lambda _: True)
    monkeypatch.setattr(cudnn, "load_ahead", lambda: loads.append(True))

    def foreseen(function: Any, dtype: torch.dtype = torch.bfloat16) -> bool:
        loads.clear()
        args = [t.to(dtype) for t in qkv(300)]
        attention_library.foresee(segment_of(function, *args))
        return bool(loads)

    assert foreseen(plain)
    assert not foreseen(plain, torch.float32)
    assert not foreseen(soft_cap) and not foreseen(causal)
    assert not foreseen(lambda q, k, v: q.softmax(-1) @ k.transpose(-2, -1) @ v)
