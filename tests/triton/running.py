"""Prints a kernel as Triton, loads the text and runs it on tensors."""

from __future__ import annotations

import linecache
from typing import Any

import torch

from srcjit.passes.loops import Kernel
from srcjit.passes.print_triton import TritonText, print_kernel
from srcjit.runtime.triton import load_text


def module_text(printed: TritonText, kernel: Kernel, device: str = "cpu") -> str:
    """A whole module: imports, kernels and a host function `run`."""
    names = [getattr(p, "name", str(p)) for p in kernel.parameters]
    body = "\n".join(f"    {line}" for line in printed.host_lines())
    body = body.replace("device='cpu'", f"device={device!r}")
    return "\n".join(
        [
            "import torch",
            *printed.imports,
            "",
            "",
            printed.text,
            "",
            "",
            f"def run({', '.join(names)}):",
            body,
            "",
        ]
    )


_count = 0


def run(kernel: Kernel, arguments: list[Any], printed: TritonText | None = None) -> str:
    """Runs the printed kernel on `arguments` (in the order of its parameters)."""
    global _count
    _count += 1
    text = module_text(printed or print_kernel(kernel), kernel)
    name = f"<kernel {_count}>"
    module = load_text(text, name)
    module.run(*arguments)
    linecache.cache.pop(name, None)
    return text


def difference(got: torch.Tensor, expected: torch.Tensor, tolerance: float) -> str:
    """Says how two tensors differ, or nothing: NaN equals NaN, signs of zero count."""
    if got.dtype is not expected.dtype or got.shape != expected.shape:
        return f"{got.dtype}{tuple(got.shape)} is not {expected.dtype}{tuple(expected.shape)}"
    try:
        torch.testing.assert_close(
            got, expected, rtol=tolerance, atol=tolerance, equal_nan=True
        )
    except AssertionError as error:
        return str(error)
    if got.is_floating_point():
        zeros = (got == 0) & (expected == 0)
        if not torch.equal(got.signbit() & zeros, expected.signbit() & zeros):
            return "the sign of a zero differs"
    return ""
