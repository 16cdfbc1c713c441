"""Work on rows and reductions over their columns in one pass, where that is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu_breadth import BREADTH
from srcjit.options import Options
from srcjit.passes.segment import compile_segment
from srcjit.ptx_info import ptx_info
from tests.backend.support import segment_of
from tests.triton.crossed import CASES, layer_norm
from tests.triton.reports import reports_of


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    """What one interpreter process says of all cases."""
    return reports_of("tests.triton.crossed")


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, reports: dict[str, Any]) -> None:
    assert not reports[name]["problems"], "\n".join(reports[name]["problems"])


def emitted(function: Any, *sizes: tuple[int, ...], dtype: torch.dtype) -> str:
    """The text for arguments that nobody touches, gradients included."""
    arguments = [torch.empty(s, dtype=dtype).requires_grad_() for s in sizes]
    code = compile_segment(segment_of(function, *arguments), Options(target="triton"))
    return "\n".join([*code.imports, code.definitions, code.function])


@pytest.mark.parametrize("width", [600, 4096, 8192])
def test_gradients_of_a_norm_read_its_rows_once(width: int) -> None:
    sizes = (8192, width), (width,), (width,)
    text = emitted(layer_norm, *sizes, dtype=torch.bfloat16)
    backward = text[text.index("def segment_0_forward") :]
    assert backward.count("tl.load(x_ptr") == 1 and "num_stages" in backward
    lines = ptx_info(text)
    assert not any(" 0 bytes spilled" not in line for line in lines), lines


@pytest.mark.parametrize("rows, width", [(64, 4096), (8192, 100), (8192, 16384)])
def test_what_would_cost_more_is_left_apart(rows: int, width: int) -> None:
    """Few rows, whose partial sums are as long; rows that do not suit a program."""
    text = emitted(layer_norm, (rows, width), (width,), (width,), dtype=torch.float32)
    assert "in tl.range(part" not in text


def test_programs_fill_the_device() -> None:
    """As many as hold their rows in registers; each asks for rows ahead of its work."""
    workload = BREADTH["layer_norm_step"]
    *arguments, _ = workload.make(1, "meta")
    text = emitted(
        workload.function, *(a.shape for a in arguments), dtype=torch.bfloat16
    )
    assert "tl.range(part, 16384, 264, num_stages=3)" in text
