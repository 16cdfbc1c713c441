"""Compiles kernels of the loop form as C++ and runs them beside the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from srcjit.passes.loops import Axis, Buffer, Kernel, Store, Value, check, symbol
from srcjit.passes.print_cpp import print_kernel
from srcjit.runtime import cpp_kernels
from tests.backend.examples import axis, buffer
from tests.backend.interpret import Interpreter


def compile_kernel(kernel: Kernel) -> Any:
    """The compiled kernel as a callable."""
    return getattr(cpp_kernels(print_kernel(kernel, kernel.name)), kernel.name)


def compare(kernel: Kernel, arguments: Sequence[Any], **tolerance: float) -> None:
    """Runs a kernel compiled and interpreted on copies of `arguments`; compares all of them."""
    ours = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    wanted = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    Interpreter(check(kernel), wanted).run()
    compile_kernel(kernel)(*ours)
    for got, want in zip(ours, wanted, strict=True):
        if isinstance(got, torch.Tensor):
            torch.testing.assert_close(got, want, equal_nan=True, **tolerance)


def pointwise(name: str, value: Value, out: torch.Tensor, *axes: Axis) -> Kernel:
    """A kernel that stores `value` to the contiguous tensor `out`."""
    index = sum(
        (a.symbol * t for a, t in zip(axes, out.stride(), strict=True)),
        start=0 * symbol("i"),
    )
    return Kernel(name, axes, (), (Store(buffer("out", out), index, value),))


__all__ = ["Buffer", "axis", "buffer", "compare", "compile_kernel", "pointwise"]
