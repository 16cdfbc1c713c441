"""Programs with kernels that are equal but for names, and with some that nearly are.

    python -m tests.backend.equal_programs      a JSON line each, in Triton's interpreter

The interpreter must be chosen before Triton is imported, so that is a process of its own.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

import torch

from srcjit.options import Options
from srcjit.passes.segment import compile_segment
from tests.backend.support import assert_same, clones, load, segment_of


@dataclass(frozen=True)
class Program:
    """A function, what it is called with, and how many kernels are printed for it."""

    function: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    kernels: int
    launches: int
    dynamic: bool = False
    grad: bool = False


def randn(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(size, dtype=dtype)


def layers(x, w, v, u):
    x = torch.relu(x @ w)
    x = torch.relu(x @ v)
    return torch.relu(x @ u)


def swapped(x, w):
    a = torch.sub(x, w)
    b = a.cumsum(0)
    return torch.sub(b, x), a, b, torch.sub(w, b.cumsum(0))


def same_operand(x, w):
    a, b = x @ w, x.cumsum(0)
    c = (a * b + 1).cumsum(1)
    return c * c + 1


def constants(x, w):
    a = (x @ w) * 2 + 1
    b = (a @ w) * 3 + 1
    return (b @ w) * 2 + 1


def signs_of_zero(x, w):
    a = torch.where(x @ w > 0, x, 0.0)
    return torch.where(a @ w > 0, x, -0.0)


def strides(x, w):
    a = torch.sin(x @ w)
    b = torch.sin((a @ w).t())
    return a, b.contiguous()


def broadcasts(x, w, row, column):
    a = x @ w + row
    return a @ w + column


def dtypes(x, w, y, v):
    return torch.exp(x @ w), torch.exp(y @ v)


def sizes(x, w, v):
    return torch.exp(x @ w), torch.exp(x @ v)


def symbols(x, y):
    a = torch.exp(x.cumsum(0))
    b = torch.exp(y.cumsum(0))
    return a, b, torch.exp(a.cumsum(0))


def gathers(i, j, table, other):
    a = table[i] * 2
    return (other[j] * 2).cumsum(0) + a.cumsum(0)


def norms(x, w, v):
    for weight in (w, v):
        x = torch.nn.functional.layer_norm(x @ weight, (16,))
    return x


def norms_inside(x, w, v):
    """No norm is a result: a copy of one would be saved for the backward pass."""
    return norms(x, w, v) @ w


def sums(x, y):
    a = (x * 2).sum()
    b = (y * 2).sum(0).cumsum(0)
    return a.cumsum(0), b, (y * 2).sum()


def in_place(x, y, w):
    x.mul_(2).add_(1)
    z = y @ w
    y.mul_(2).add_(1)
    return z


def two_results(x, w):
    a = x @ w
    b, c = a + 1, a * 2
    d = torch.cumsum(b, 0) @ torch.cumsum(c, 0)
    e, f = d + 1, d * 2
    return torch.cumsum(e, 0), torch.cumsum(f, 0), b, c


def attention(q, k, v):
    for _ in range(2):
        q = torch.softmax(q @ k.transpose(1, 2) * 0.25, -1) @ v
    return q


def masked_attention(q, k, v, mask):
    for _ in range(2):
        scores = (q @ k.transpose(1, 2)).masked_fill(mask, float("-inf"))
        q = torch.softmax(scores, -1) @ v
    return q


def causal_attention(q, k, v):
    for _ in range(2):
        scores = q @ k.transpose(1, 2)
        hidden = torch.ones(160, 160, dtype=torch.bool, device=q.device).triu(1)
        q = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ v
    return q


def square(count: int) -> tuple[torch.Tensor, ...]:
    return tuple(randn(16, 16) for _ in range(count))


def heads(count: int, length: int = 32) -> tuple[torch.Tensor, ...]:
    return tuple(randn(2, length, 16, dtype=torch.float16) for _ in range(count))


PROGRAMS = {
    "layers": Program(layers, lambda: square(4), 1, 3),
    "swapped": Program(swapped, lambda: square(2), 2, 3),
    "same_operand": Program(same_operand, lambda: square(2), 2, 2),
    "constants": Program(constants, lambda: square(2), 2, 3),
    "signs_of_zero": Program(signs_of_zero, lambda: square(2), 2, 2),
    "strides": Program(strides, lambda: square(2), 2, 2),
    "broadcasts": Program(
        broadcasts, lambda: (*square(2), randn(16), randn(16, 1)), 2, 2
    ),
    "dtypes": Program(
        dtypes, lambda: (*square(2), *(s.double() for s in square(2))), 2, 2
    ),
    "sizes": Program(sizes, lambda: (*square(2), randn(16, 8)), 2, 2),
    "symbols": Program(symbols, lambda: (randn(6, 4), randn(5, 3)), 2, 3, True),
    "gathers": Program(
        gathers,
        lambda: (
            torch.tensor([2, 0, 1]),
            torch.tensor([0, 0, 2]),
            randn(3, 4),
            randn(3, 4),
        ),
        2,
        3,
    ),
    "norms": Program(norms, lambda: square(3), 1, 2),
    "norms, training": Program(norms_inside, lambda: square(3), 3, 6, grad=True),
    "sums": Program(sums, lambda: (randn(300, 301), randn(300, 301)), 2, 3),
    "in_place": Program(in_place, lambda: square(3), 1, 2),
    "two_results": Program(two_results, lambda: square(2), 1, 2),
    "attention": Program(attention, lambda: heads(3), 1, 2),
    "causal_attention": Program(causal_attention, lambda: heads(3, length=160), 1, 2),
    "masked_attention": Program(
        masked_attention,
        lambda: (*heads(3), torch.ones(32, 32, dtype=torch.bool).triu(1)),
        1,
        2,
    ),
}


def problems(
    program: Program, target: str, *, run: bool = True
) -> tuple[list[str], str]:
    """What is wrong with a program in a kernel language, and its text."""
    torch.manual_seed(0)
    arguments = program.arguments()
    if program.grad:
        for argument in arguments:
            argument.requires_grad_()
    with torch.set_grad_enabled(program.grad):
        segment = segment_of(program.function, *arguments, dynamic=program.dynamic)
        code = compile_segment(segment, Options(target=target))
        made = load(code)
        found = []
        if code.kernels != program.kernels:
            found.append(f"{code.kernels} kernels")
        count = len(re.findall(r"  # .*reads .* writes ", made.text))
        if count != program.launches:
            found.append(f"{count} launches")
        for _ in range(2 if run else 0):
            own, given = clones(arguments), clones(arguments)
            expected, got = program.function(*own), made(*given)
            half = arguments[0].dtype is torch.float16
            tolerance = 1e-2 if half else 1e-4
            try:
                assert_same(got, expected, rtol=tolerance, atol=tolerance)
                assert_same(given, own, rtol=tolerance, atol=tolerance)
                if program.grad:
                    gradients = [
                        torch.autograd.grad(r.square().sum(), list(a))
                        for r, a in ((expected, own), (got[0], given))
                    ]
                    assert_same(gradients[1], gradients[0], rtol=1e-3, atol=1e-3)
            except AssertionError as error:
                found.append(str(error))
    return found, made.text


def main() -> None:
    """Runs all programs in Triton's interpreter."""
    for name, program in PROGRAMS.items():
        text = ""
        try:
            found, text = problems(program, "triton")
        except Exception:
            found = [traceback.format_exc()]
        print(json.dumps({"name": name, "problems": found, "text": text}), flush=True)


if __name__ == "__main__":
    main()
