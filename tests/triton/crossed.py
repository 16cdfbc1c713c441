"""Crossed passes in Triton's interpreter: `python -m tests.triton.crossed` prints JSON lines.

Each case is a function of plain PyTorch whose result, gradients and changed arguments must be
eager's; for most of them a kernel of rows and one of columns must have become one pass.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

import torch
import torch.nn.functional as F

import srcjit
from srcjit import control
from srcjit.passes import print_triton_crossed

Arguments = tuple[torch.Tensor, ...]
ROWS = 37


def layer_norm(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def rms_norm(x, weight):
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    return normed.to(x.dtype) * weight


def residual_norm(x, residual, weight, bias):
    return layer_norm(x + residual, weight, bias)


def stack(x, *weights):
    for n in range(0, len(weights), 2):
        x = x + torch.tanh(layer_norm(x, *weights[n : n + 2]))
    return x


def gated(x, weight):
    return F.silu(x) * weight


def biased(x, bias):
    return F.gelu(x + bias, approximate="tanh")


def sum_of_result(x, y):
    made = torch.softmax(x * y, -1)
    return made, made.sum(0)


def sum_of_rounded(x, y):
    made = (x * y).sin()
    return made, made.sum(0), made.float().square().sum(0)


def sum_before(x, y):
    total = x.sum(0)
    return total, torch.softmax(x, -1) * y


def kinds(x, y):
    low = torch.softmax(x, -1)
    return (
        low,
        x.amax(0),
        x.amin(0),
        (x > 0).any(0),
        (x > 0).sum(0),
        (x.sigmoid()).prod(0),
    )


def places(x, y):
    return x.argmax(-1), x.max(-1).values, x.mean(0)


def integers(x, y):
    return x.sum(-1), x.sum(0), (x & 7).amax(0)


def sums_both_ways(x, y):
    """What sums along rows could be one of columns too, of the transposed."""
    return (x * y).sum(0), (x * y).sum(-1), x.amax(0), (x & y).any(-1), x.bool().all(0)


def of_rows(x, y):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * y, (x * mean).sum(0), mean


def without_columns(x, y):
    """What is summed does not depend on the column."""
    row = x.amax(-1, keepdim=True)
    return x - row, (row.expand_as(x) + 0 * x).sum(0)


def with_number(x, y):
    scale = y[0]
    return torch.softmax(x * scale, -1), (x * scale).sum(0)


def gathered(x, y):
    wide = x[(y[: x.shape[0]].abs() * 3).long()]
    return torch.softmax(wide, -1), (wide * 2).sum(0)


def parts(x, y):
    inner = x[:, :-1]
    return torch.softmax(inner, -1), inner.square().sum((0, 1))


def temporary(x, y):
    made = x @ x.t() @ x
    return torch.softmax(made, -1), (made * y).sum(0)


def moved_averages(x, rows, columns):
    square = x.square() + 1e-30
    rows.lerp_(square.mean(-1), 0.1)
    columns.lerp_(square.mean(0), 0.1)


def then_in_place(x, y):
    total = (x * y).sum(0)
    x.copy_(torch.softmax(x, -1))
    return total


def in_place_then(x, y):
    x.mul_(2)
    return (x * y).sum(0), x.sum(-1)


def rows_need_columns(x, y):
    return (x / x.sum(0)).square().sum(-1)


def distances(x, y):
    return torch.softmax(x, -1), x.var(0)


def across(x, y):
    return (x + y.t()).sum(-1), (x + y.t()).square().sum(0)


def same(*sizes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Any:
    def make() -> Arguments:
        if not dtype.is_floating_point:
            return tuple(torch.randint(-50, 50, s, dtype=dtype) for s in sizes)
        return tuple(torch.randn(s).to(dtype) for s in sizes)

    return make


def strided() -> Arguments:
    x = torch.randn(5, 9, 80)[:, ::2, 8:]
    return x, torch.randn(72), torch.randn(72)


def with_nan() -> Arguments:
    x, weight, bias = same((ROWS, 40), (40,), (40,))()
    x[3, 5], x[8, 1] = float("nan"), float("inf")
    return x, weight, bias


BF16 = torch.bfloat16
WIDE = same((ROWS, 48), (48,))

GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[[], Arguments]]] = {
    "layer norm": (layer_norm, same((ROWS, 64), (64,), (64,))),
    "layer norm bf16": (layer_norm, same((ROWS, 64), (64,), (64,), dtype=BF16)),
    "layer norm, odd": (layer_norm, same((3, 13, 33), (33,), (33,), dtype=BF16)),
    "layer norm, NaN": (layer_norm, with_nan),
    "layer norm, strided": (layer_norm, strided),
    "rms norm": (rms_norm, same((ROWS, 50), (50,))),
    "rms norm bf16": (rms_norm, same((4, 9, 48), (48,), dtype=BF16)),
    "residual": (residual_norm, same((ROWS, 40), (ROWS, 40), (40,), (40,))),
    "stack": (stack, same((ROWS, 48), *[(48,)] * 8)),
    "gated": (gated, WIDE),
    "biased": (biased, same((ROWS, 48), (48,), dtype=BF16)),
}
"""Of which the gradients of all arguments are asked for."""

CROSSED: dict[str, tuple[Callable[..., Any], Callable[[], Arguments]]] = {
    "sum of result": (sum_of_result, WIDE),
    "sum of rounded": (sum_of_rounded, same((ROWS, 48), (48,), dtype=BF16)),
    "sum before": (sum_before, WIDE),
    "kinds": (kinds, WIDE),
    "places": (places, WIDE),
    "integers": (integers, same((ROWS, 48), (1,), dtype=torch.int32)),
    "sums both ways": (
        sums_both_ways,
        same((ROWS, 32), (32,), dtype=torch.int64),
    ),
    "of rows": (of_rows, WIDE),
    "without columns": (without_columns, WIDE),
    "with number": (with_number, same((ROWS, 48), (1,))),
    "gathered": (gathered, same((ROWS, 48), (48,))),
    "parts": (parts, same((5, 9, 48), (1,))),
    "temporary": (temporary, WIDE),
    "in place then": (in_place_then, WIDE),
    "moved averages": (moved_averages, same((ROWS, 64), (ROWS,), (64,))),
}

APART: dict[str, tuple[Callable[..., Any], Callable[[], Arguments]]] = {
    "then in place": (then_in_place, WIDE),
    "rows need columns": (rows_need_columns, WIDE),
    "distances": (distances, WIDE),
    "across": (across, same((48, 48), (48, 48))),
}
"""Which have to stay two kernels."""

CASES = (*GRADIENTS, *CROSSED, *APART, "sizes vary", "tiles")


def stepped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the gradients of all arguments."""

    def step(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaves = [a.detach().requires_grad_() for a in args]
        result = function(*leaves)
        torch.manual_seed(1)
        grad = torch.randn(result.shape).to(result.dtype)
        return (result.detach(), *torch.autograd.grad(result, leaves, grad))

    return step


def problems_of(got: Any, wanted: Any, exact: Any) -> list[str]:
    """How results differ from eager's, given those in float64."""
    found = []
    for n, (a, b, c) in enumerate(zip(got, wanted, exact, strict=True)):
        if a.dtype is not b.dtype or a.size() != b.size() or a.stride() != b.stride():
            found.append(f"{n}: {a.dtype} {a.size()} is not {b.dtype} {b.size()}")
            continue
        if not a.dtype.is_floating_point:
            if not torch.equal(a, b):
                found.append(f"{n}: {a} is not {b}")
            continue
        if not torch.equal(a.isfinite(), b.isfinite()):
            found.append(f"{n}: {(~a.isfinite()).sum()} of {(~b.isfinite()).sum()} inf")
            continue
        sound = b.isfinite()
        a, b, c = (t.double()[sound] for t in (a, b, c))
        if not (a - c).norm() <= 2 * (b - c).norm() + 1e-6 * c.norm():
            found.append(f"{n}: {(a - c).norm()} off, eager {(b - c).norm()}")
    return found


def outcome(function: Callable[..., Any], args: Arguments) -> tuple[torch.Tensor, ...]:
    """The results, and the arguments as they are then."""
    result = function(*args)
    listed = result if isinstance(result, tuple) else (result,)
    return (*(r for r in listed if r is not None), *args)


def compare(function: Callable[..., Any], jitted: Any, args: Arguments) -> list[str]:
    """Problems of one call."""
    copies = [tuple(a.clone() for a in args) for _ in range(2)]
    wide = tuple(a.double() if a.is_floating_point() else a.clone() for a in args)
    wanted, exact = outcome(function, copies[0]), outcome(function, wide)
    return problems_of(outcome(jitted, copies[1]), wanted, exact)


def walks(jitted: Any) -> int:
    """How many kernels walk over rows and add up columns."""
    dispatcher = control.dispatcher_of(jitted)
    assert dispatcher is not None
    texts = (s.text for s in dispatcher.specializations)
    return sum(t.count("in tl.range(part") for t in texts)


def run_case(name: str) -> list[str]:
    """Problems of a case of a table."""
    torch.manual_seed(0)
    function, make = (GRADIENTS | CROSSED | APART)[name]
    jitted = srcjit.jit(function, options={"target": "triton"}, fullgraph=True)
    if name in GRADIENTS:
        found = compare(stepped(function), stepped(jitted), make())
    else:
        found = compare(function, jitted, make())
    if walks(jitted) != (name not in APART):
        found.append(f"{walks(jitted)} crossed passes")
    return found


def run_varying() -> list[str]:
    """Problems where the number of rows changes, down to none."""
    torch.manual_seed(0)
    jitted = srcjit.jit(rms_norm, options={"target": "triton"}, fullgraph=True)
    found = []
    for rows in (ROWS, 50, 3, 1, 0):
        args = same((rows, 48), (48,))()
        found += compare(stepped(rms_norm), stepped(jitted), args)
    return found if walks(jitted) >= 2 else [*found, "not crossed"]


def run_tiles() -> list[str]:
    """Problems of other tiles."""
    usual = print_triton_crossed.crossed_tile
    found = []

    def forced(number: int) -> Any:
        def tile(crossed: Any) -> Any:
            if usual(crossed) is None:
                return None
            print_triton_crossed.crossed_tile = usual
            tiles = print_triton_crossed.crossed_tiles(crossed)
            print_triton_crossed.crossed_tile = tile
            counts.append(len(tiles))
            return tiles[min(number, len(tiles) - 1)]

        return tile

    counts = [1]
    try:
        for number in range(20):
            if number >= counts[-1]:
                break
            print_triton_crossed.crossed_tile = forced(number)
            srcjit.reset()
            jitted = srcjit.jit(rms_norm, options={"target": "triton"})
            found += compare(stepped(rms_norm), stepped(jitted), WIDE())
    finally:
        print_triton_crossed.crossed_tile = usual
    return found if counts[-1] > 3 else [*found, f"{counts} tiles"]


def main(names: list[str]) -> None:
    """Runs the named cases, or all."""
    torch.set_num_threads(1)
    print_triton_crossed.MULTIPROCESSORS = 1
    print_triton_crossed.SHORTEST = 16
    for name in names or CASES:
        try:
            if name == "sizes vary":
                found = run_varying()
            else:
                found = run_tiles() if name == "tiles" else run_case(name)
        except Exception:
            found = [traceback.format_exc()]
        print(json.dumps({"name": name, "problems": found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
