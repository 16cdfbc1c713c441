"""Prints a kernel of the loop form as a C++ function.

Before:

    kernel scale over i < 8:
        y[i] = mul(x[i], 2.0)

After:

    >>> import sympy, torch
    >>> from srcjit.passes.loops import (
    ...     Axis,
    ...     Buffer,
    ...     Const,
    ...     Kernel,
    ...     Load,
    ...     Store,
    ...     op,
    ...     symbol,
    ... )
    >>> i, n = symbol("i"), sympy.Integer(8)
    >>> x, y = (Buffer(b, torch.float32, torch.device("cpu"), (n,), (n,)) for b in "xy")
    >>> doubled = op("mul", Load(x, i), Const(2.0, torch.float32))
    >>> print(
    ...     print_kernel(
    ...         Kernel("scale", (Axis(i, n),), (), (Store(y, i, doubled),)), "scale"
    ...     )
    ... )
    void scale(const float* x, float* y) {
        #pragma omp simd
        for (long i = 0; i < 8; ++i) {
            y[i] = x[i] * 2.0f;
        }
    }

`srcjit.runtime.cpp_kernels` compiles the text; `srcjit/runtime/kernel.h` has its functions.
"""

from __future__ import annotations

from collections.abc import Callable

from .loops import Kernel
from .print_cpp_body import Body
from .print_cpp_columns import print_columns
from .print_cpp_points import print_points
from .print_cpp_rows import print_rows
from .print_cpp_schedule import Schedule, Shape, schedule


def print_kernel(
    kernel: Kernel, name: str, *, choose: Callable[[Kernel], Schedule] = schedule
) -> str:
    """Returns the text of `void name(...)`, parameters as `kernel.parameters`."""
    body = Body(kernel, name)
    plan = choose(kernel)
    if plan.shape is Shape.POINTS:
        print_points(body, plan)
    elif plan.shape is Shape.COLUMNS:
        print_columns(body, plan)
    else:
        print_rows(body, plan)
    head = f"void {name}({body.parameters}) {{"
    return "\n".join([head, *body.lines, "}"]) + "\n"
