"""Floats of 8 bits: every conversion bit for bit, and eager's errors where eager refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import srcjit
from srcjit.passes import print_cpp_values, print_triton_values
from tests.backend.support import segment_of
from tests.lowerings.float8 import BYTES, compiled, numbers, problems

ROOT = Path(__file__).parents[2]


def test_conversions_in_cpp() -> None:
    assert not problems("cpp")


def test_conversions_in_triton() -> None:
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.lowerings.float8", "triton"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not json.loads(done.stdout)


def _refused(name: str) -> Any:
    return {
        "add": lambda x: x + x,
        "amax": lambda x: x.amax(-1),
        "clamp": lambda x: x.clamp(-1, 1),
        "flip": lambda x: x.flip(-1),
        "gather": lambda x: x.gather(1, torch.zeros(4, 1, dtype=torch.int64)),
        "masked_fill": lambda x: x.masked_fill(torch.ones(4, 4, dtype=torch.bool), 1),
        "softmax": lambda x: x.softmax(-1),
        "tril": lambda x: x.tril(),
    }[name]


@pytest.mark.parametrize(
    "name", "add amax clamp flip gather masked_fill softmax tril".split()
)
def test_refused_as_eager_does(name: str) -> None:
    function, x = _refused(name), BYTES[:16].view(4, 4).view(torch.float8_e4m3fn)
    with pytest.raises(NotImplementedError) as expected:
        function(x)
    with pytest.raises(NotImplementedError) as got:
        srcjit.jit(function)(x)
    assert str(got.value) == str(expected.value)


def test_sizes_may_be_symbolic() -> None:
    @srcjit.jit
    def quantized(x: Any) -> Any:
        scale = x.abs().amax(-1, keepdim=True) / 448.0
        return (x / scale).to(torch.float8_e4m3fn), scale

    for rows, columns in ((3, 17), (5, 64), (8, 129), (2, 300)):
        x = torch.randn(rows, columns)
        scale = x.abs().amax(-1, keepdim=True) / 448.0
        expected = (x / scale).to(torch.float8_e4m3fn).view(torch.uint8)
        assert torch.equal(quantized(x)[0].view(torch.uint8), expected)
    assert len(quantized.__srcjit__.specializations) <= 2


def test_pytorch_before_2_12_overflows_to_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(print_cpp_values, "saturates", lambda device: False)
    x = numbers()
    (got,) = compiled(lambda x: (x.to(torch.float8_e4m3fn),), x, language="cpp")
    saturated = x.to(torch.float8_e4m3fn).view(torch.uint8)
    nan = (saturated & 0x80) | 0x7F
    expected = torch.where(x.abs() <= 464.0, saturated, nan)
    assert torch.equal(got.view(torch.uint8), expected)


def test_text_of_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    from srcjit.options import Options
    from srcjit.passes.segment import compile_segment

    def narrow(x: Any) -> Any:
        return (x.to(torch.float8_e4m3fn), x.to(torch.float8_e5m2))

    def text() -> str:
        segment = segment_of(narrow, torch.ones(8))
        return compile_segment(segment, Options(target="triton")).definitions

    assert "to_e4m3fn(x)" in text() and "to_e5m2(x)" in text()
    monkeypatch.setattr(print_triton_values, "saturates", lambda device: False)
    monkeypatch.setattr(print_triton_values, "converts", lambda device: False)
    assert "to_e4m3fn(x, saturates=False, converts=False)" in text()
    assert "to_e5m2(x, converts=False)" in text()
