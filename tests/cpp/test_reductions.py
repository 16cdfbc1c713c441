"""Reductions in C++: rows, columns, long rows in parts, and what is stored behind them."""

from __future__ import annotations

import pytest
import torch

from srcjit.passes.loops import (
    Kernel,
    Load,
    Reduce,
    Store,
    Value,
    cast,
    op,
)
from srcjit.passes.print_cpp import print_kernel
from srcjit.passes.print_cpp_schedule import Shape, schedule
from srcjit.runtime import cpp_kernels
from tests.backend.examples import axis, buffer, f32
from tests.cpp.running import compare, compile_kernel

KINDS = ("sum", "prod", "max", "min", "argmax", "argmin")


def _reduction(
    kind: str, x: torch.Tensor, over_rows: bool
) -> tuple[Kernel, list[torch.Tensor]]:
    rows, columns = x.shape
    i, k = (
        (axis("i", columns), axis("k", rows))
        if over_rows
        else (
            axis("i", rows),
            axis("k", columns),
        )
    )
    at = columns * (k if over_rows else i).symbol + (i if over_rows else k).symbol
    value: Value = Load(buffer("x", x), at)
    if kind in ("sum", "prod") and not x.dtype.is_floating_point:
        value = cast(value, torch.int64)
    dtype = torch.int64 if kind.startswith("arg") else value.dtype
    reduce = Reduce("best", kind, value, dtype)
    out = torch.empty(int(i.size), dtype=dtype)
    store = Store(buffer("out", out), i.symbol, reduce.ref, "outer")
    return Kernel("reduced", (i,), (k,), (reduce, store)), [x, out]


@pytest.mark.parametrize("over_rows", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.int32, torch.bool], ids=str
)
def test_reductions(dtype: torch.dtype, over_rows: bool) -> None:
    torch.manual_seed(3)
    kinds = ("any", "all", "max", "argmax") if dtype is torch.bool else KINDS
    texts, checks = [], []
    for kind in kinds:
        for size in ((37, 53), (1, 1), (64, 16), (5, 300)):
            x = (torch.randn(size) * 2).to(dtype)
            if dtype.is_floating_point and not kind.startswith(("sum", "prod")):
                x[size[0] // 2, size[1] // 3] = float("nan")
                x[-1, -1] = float("inf")
                x[0, -1] = -float("inf")
            kernel, arguments = _reduction(kind, x, over_rows)
            texts.append(print_kernel(kernel, f"k{len(checks)}"))
            axes = 0 if over_rows else 1
            if kind in ("max", "min"):
                expected = getattr(torch, f"a{kind}")(x, axes)
            elif dtype is torch.bool and kind == "argmax":
                expected = x.to(torch.uint8).argmax(axes)
            else:
                expected = getattr(torch, kind)(x, axes)
            checks.append((arguments, expected, kind, size))
    kernels = cpp_kernels("\n".join(texts))
    for number, (arguments, expected, kind, size) in enumerate(checks):
        getattr(kernels, f"k{number}")(*arguments)
        torch.testing.assert_close(
            arguments[-1],
            expected.to(arguments[-1].dtype),
            equal_nan=True,
            msg=lambda m, k=kind, s=size: f"{k} {s}: {m}",
        )


def test_sums_are_at_least_as_accurate_as_eager() -> None:
    torch.manual_seed(4)
    x = torch.rand(3, 1_000_001) * 1000 - 499
    kernel, arguments = _reduction("sum", x, over_rows=False)
    assert schedule(kernel).shape is Shape.SPLIT
    compile_kernel(kernel)(*arguments)
    exact = x.double().sum(1)
    ours, eager = (
        (arguments[-1].double() - exact).abs(),
        (x.sum(1).double() - exact).abs(),
    )
    assert (ours <= eager + exact.abs() * 2**-24).all()


def test_sums_do_not_depend_on_the_number_of_threads() -> None:
    x = torch.randn(1, 300_007)
    kernel, (x, out) = _reduction("sum", x, over_rows=False)
    run = compile_kernel(kernel)
    before = torch.get_num_threads()
    results = set()
    try:
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            run(x, out)
            results.add(out.item())
    finally:
        torch.set_num_threads(before)
    assert len(results) == 1


def test_split_row_with_an_epilogue() -> None:
    """x / sum(x) over one long row: the second pass is split too."""
    x = torch.rand(70_001) + 0.5
    y = torch.empty_like(x)
    k = axis("k", 70_001)
    loaded = Load(buffer("x", x), k.symbol)
    total = Reduce("total", "sum", loaded, torch.float32)
    store = Store(buffer("y", y), k.symbol, op("div", loaded, total.ref))
    compare(Kernel("normalize", (), (k,), (total, store)), [x, y])


def test_in_place_rows_keep_what_later_passes_read() -> None:
    """x -= max(x); the store must wait until nothing reads the old row."""
    x = torch.randn(9, 40)
    i, k = axis("i", 9), axis("k", 40)
    at = 40 * i.symbol + k.symbol
    loaded = Load(buffer("x", x), at)
    doubled = Store(buffer("x", x), at, op("mul", loaded, f32(2.0)))
    peak = Reduce("peak", "max", loaded, torch.float32)
    below = op("sub", loaded, peak.ref)
    total = Reduce("total", "sum", below, torch.float32)
    y = torch.empty(9)
    last = Store(buffer("y", y), i.symbol, total.ref, "outer")
    kernel = Kernel("in_place", (i,), (k,), (peak, total, doubled, last))
    expected = x * 2, (x - x.amax(1, True)).sum(1)
    compile_kernel(kernel)(x, y)
    torch.testing.assert_close((x, y), expected)


def test_empty_reduction_gives_the_identity() -> None:
    x = torch.empty(4, 0)
    for kind, identity in (("sum", 0.0), ("prod", 1.0)):
        kernel, arguments = _reduction(kind, x, over_rows=False)
        compile_kernel(kernel)(*arguments)
        assert arguments[-1].tolist() == [identity] * 4


@pytest.mark.parametrize("columns", [16, 40, 64, 257])
def test_norm_over_columns(columns: int) -> None:
    """Softmax over the first dimension: several passes over a block of columns."""
    x, y = torch.randn(50, columns), torch.empty(50, columns)
    j, k = axis("j", columns), axis("k", 50)
    at = columns * k.symbol + j.symbol
    loaded = Load(buffer("x", x), at)
    peak = Reduce("peak", "max", loaded, torch.float32)
    raised = op("exp", op("sub", loaded, peak.ref))
    total = Reduce("total", "sum", raised, torch.float32)
    scale = op("div", f32(1.0), total.ref)
    store = Store(buffer("y", y), at, op("mul", raised, scale))
    kernel = Kernel("softmax0", (j,), (k,), (peak, total, store))
    assert schedule(kernel).shape is Shape.COLUMNS
    compare(kernel, [x, y])


def test_many_rows_of_few_columns() -> None:
    """Mean and squares of 20 columns: rows in parts, two passes, a store per column."""
    x, y = torch.randn(5003, 20) + 3, torch.empty(20)
    j, k = axis("j", 20), axis("k", 5003)
    loaded = Load(buffer("x", x), 20 * k.symbol + j.symbol)
    total = Reduce("total", "sum", loaded, torch.float32)
    mean = op("div", total.ref, f32(5003.0))
    centred = op("sub", loaded, mean)
    squares = Reduce("squares", "sum", op("mul", centred, centred), torch.float32)
    value = op("div", squares.ref, f32(5003.0))
    store = Store(buffer("y", y), j.symbol, value, "outer")
    kernel = Kernel("variance", (j,), (k,), (total, squares, store))
    assert schedule(kernel).parts
    compile_kernel(kernel)(x, y)
    torch.testing.assert_close(y, x.var(0, correction=0))


def test_rows_of_every_other_element() -> None:
    """What jumps far from row to row is reduced row by row, though it jumps within one."""
    x, y = torch.randn(40, 600), torch.empty(40)
    i, k = axis("i", 40), axis("k", 300)
    loaded = Load(buffer("x", x), 600 * i.symbol + 2 * k.symbol)
    total = Reduce("total", "sum", loaded, torch.float32)
    store = Store(buffer("y", y), i.symbol, total.ref, "outer")
    kernel = Kernel("every_other", (i,), (k,), (total, store))
    assert schedule(kernel).shape is Shape.ROWS
    compile_kernel(kernel)(x, y)
    torch.testing.assert_close(y, x[:, ::2].sum(1))
