"""Every kind of text compiles for sm_90 on a machine without a GPU, without spills."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from srcjit.passes.print_triton import print_kernel
from srcjit.runtime.triton_compile import CrossCompiled, cross_compile
from tests.triton.cases import CASES
from tests.triton.running import module_text

LIKE_ANOTHER = (
    "integers torch.int16",
    "integers torch.int64",
    "casts torch.uint8",
    "primitives torch.float64",  # forty functions of libdevice: slow; `double` has the rest
)
NAMES = [
    name
    for name in CASES
    if name not in LIKE_ANOTHER
    # One shape of each reduction is enough here; the interpreter runs them all.
    and not (
        " 300x16" in name or " 5x900" in name or " 70x100" in name or "full sum" in name
    )
]


def compile_case(kernel: object) -> list[CrossCompiled]:
    printed = print_kernel(kernel)  # type: ignore[arg-type]
    text = module_text(printed, kernel)  # type: ignore[arg-type]
    return [
        cross_compile(text, c.signature, c.constants, name=c.kernel)
        for c in printed.launches
    ]


@pytest.mark.parametrize("name", NAMES)
def test_compiles(name: str) -> None:
    torch.manual_seed(0)
    for made in compile_case(CASES[name]().kernel):
        assert made.ptx and made.cubin
        assert made.spills <= 16 or name.startswith("primitives"), (name, made.spills)
