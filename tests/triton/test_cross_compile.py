"""Every kind of text compiles for sm_90 on a machine without a GPU, without spills."""

from __future__ import annotations

from typing import Any

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


ASSERTING = """
import triton
import triton.language as tl
from srcjit.runtime.triton_library import libdevice

@triton.jit
def kernel(x_ptr, at_ptr, y_ptr):
    i = tl.arange(0, 128)
    at = tl.load(at_ptr + i)
    tl.device_assert((at >= 0) & (at < 128), "index out of range")
    tl.store(y_ptr + i, {function}(tl.load(x_ptr + at)))
"""


@pytest.mark.parametrize(
    ("function", "dtype", "linked"),
    [
        ("tl.abs", "fp32", False),
        ("libdevice.sin", "fp32", True),
        ("tl.floor", "fp32", True),
        ("tl.exp", "fp64", True),
    ],
)
def test_an_assertion_links_no_library(
    function: str, dtype: str, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import triton

    given: list[dict[str, Any]] = []
    compile_kernel = triton.compile

    def compile_and_note(*args: Any, options: dict[str, Any], **rest: Any) -> Any:
        given.append(options)
        return compile_kernel(*args, options=options, **rest)

    monkeypatch.setattr(triton, "compile", compile_and_note)
    text = ASSERTING.format(function=function)
    made = cross_compile(text, f"*{dtype}:16, *i64:16, *{dtype}:16", {"debug": True})
    assert "__assertfail" in made.ptx
    assert ("extern_libs" not in given[0]) == linked
