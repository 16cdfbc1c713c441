"""All Triton that srcjit emits compiles for an H100 (sm_90) on a machine without a GPU.

    pytest tests/triton/test_emitted_sm90.py -rP      prints registers and spills

Programs are compiled as `srcjit emit --backend triton --ptx-info` does it. The kernels of the
benchmarks spill nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

import torch

from bench.gpu_workloads import WORKLOADS
from srcjit.options import Options
from srcjit.passes import print_triton_values
from srcjit.passes.loops import FLOAT8
from srcjit.passes.segment import compile_segment
from srcjit.ptx_info import ptx_info
from tests.backend.support import segment_of
from tests.programs.float8 import quantize_rows

ROOT = Path(__file__).parents[2]
EXAMPLES = ("ffn_block", "pointwise", "training")


def spilled(line: str) -> int:
    """Bytes that a line of `ptx_info` says are spilled."""
    return int(line.partition(" bytes spilled")[0].rpartition(" ")[2])


def never_touched(like: torch.Tensor) -> torch.Tensor:
    """A tensor of full size that takes no memory, because nobody writes to it."""
    return torch.empty_strided(like.size(), like.stride(), dtype=like.dtype)


@pytest.mark.parametrize("name", WORKLOADS)
def test_benchmark(name: str) -> None:
    workload = WORKLOADS[name]
    arguments = [never_touched(a) for a in workload.make(1, "meta")]
    segment = segment_of(workload.function, *arguments)
    code = compile_segment(segment, Options(target="triton"))
    text = "\n".join([*code.imports, code.definitions, code.function])
    lines = ptx_info(text)
    print("\n".join(lines))
    assert lines
    assert not any(map(spilled, lines)), lines


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-m", "srcjit", "emit", "--backend"),
            *("triton", "--ptx-info", f"examples/{name}.py"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [x for x in done.stdout.splitlines() if " bytes spilled" in x]
    assert lines, done.stdout


def quantized(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Conversions to floats of 8 bits with an instruction and without, and back."""
    rows = quantize_rows(x)
    wide = rows[0].float() * rows[1]
    return *rows, wide, *(x.to(d) for d in FLOAT8)


@pytest.mark.parametrize("has_instruction", [True, False])
def test_float8(has_instruction: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(print_triton_values, "converts", lambda device: has_instruction)
    segment = segment_of(quantized, torch.ones(64, 512, dtype=torch.bfloat16))
    code = compile_segment(segment, Options(target="triton"))
    text = "\n".join([*code.imports, code.definitions, code.function])
    lines = ptx_info(text, "sm_90" if has_instruction else "sm_80")
    assert lines and not any(map(spilled, lines)), lines
