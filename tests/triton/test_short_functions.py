"""`exp_f32` and its like are libdevice's functions, instruction by instruction."""

from __future__ import annotations

import collections
import re
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("triton")

import triton

from srcjit.runtime.triton_compile import EAGER_ROUNDING, cross_compile

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"

KERNEL = """
import triton
import triton.language as tl
from srcjit.runtime.triton_library import (
    exp2_f32, exp_f32, libdevice, log_f32, rsqrt_f32
)

@triton.jit
def kernel(x_ptr, y_ptr):
    i = tl.arange(0, 128)
    tl.store(y_ptr + i, {name}(tl.load(x_ptr + i)))
"""


def instructions(function: str, folder: Path) -> collections.Counter[str]:
    """The machine's arithmetic, with its constants, of a kernel that calls a function."""
    made = cross_compile(
        KERNEL.format(name=function), "*fp32:16, *fp32:16", EAGER_ROUNDING
    )
    file = folder / "kernel.cubin"
    file.write_bytes(made.cubin)
    listing = subprocess.run(
        [TOOLS / "cuobjdump", "-sass", file], capture_output=True, text=True, check=True
    ).stdout
    lines = re.findall(r"/\*[0-9a-f]{4,5}\*/ +(.*?);", listing)
    # Which registers there are is not compared, nor how addresses come about.
    lines = [re.sub(r"\bU?(R|P)\d+(\.reuse)?", r"\1", line).strip() for line in lines]
    kept = (
        line for line in lines if re.match(r"(@!?P )?(F|MUFU|I2F|LOP|SHF|SHL)", line)
    )
    return collections.Counter(kept)


@pytest.mark.skipif(not (TOOLS / "cuobjdump").exists(), reason="no disassembler")
@pytest.mark.parametrize("name", ["exp", "exp2", "log", "rsqrt"])
def test_the_same_instructions(name: str, tmp_path: Path) -> None:
    ours = instructions(f"{name}_f32", tmp_path)
    assert ours == instructions(f"libdevice.{name}", tmp_path)
    assert sum(ours.values()) >= 5
