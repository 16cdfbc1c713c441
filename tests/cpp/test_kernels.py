"""Kernels printed as C++ against eager and against the interpreter of the loop form."""

from __future__ import annotations

import re

import pytest
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from srcjit.passes.loops import (
    IndexValue,
    Kernel,
    Load,
    Place,
    Store,
    cast,
    op,
    symbol,
)
from srcjit.passes.print_cpp import print_kernel
from srcjit.passes.print_cpp_schedule import schedule
from srcjit.runtime import cpp_kernels
from tests.backend.examples import CASES, axis, buffer, f32
from tests.cpp.running import compare, compile_kernel, pointwise

TURNED = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int16,
    torch.uint8,
    torch.bool,
    torch.float8_e4m3fn,
)


@pytest.mark.parametrize("name", CASES)
def test_examples(name: str) -> None:
    torch.manual_seed(0)
    case = CASES[name]()
    compile_kernel(case.kernel)(*case.arguments())
    for output, expected in case.expected.items():
        torch.testing.assert_close(case.outputs[output], expected, equal_nan=True)


def test_in_place_points_read_before_they_write() -> None:
    x, y = torch.randn(33), torch.empty(33)
    i = axis("i", 33)
    loaded = Load(buffer("x", x), i.symbol)
    stores = (
        Store(buffer("x", x), i.symbol, op("exp", loaded)),
        Store(buffer("y", y), i.symbol, op("add", loaded, f32(1.0))),
    )
    expected = x.exp(), x + 1
    compile_kernel(Kernel("both", (i,), (), stores))(x, y)
    torch.testing.assert_close((x, y), expected)


@pytest.mark.parametrize("size", [(0,), (1,), (17,), (70_000,)])
def test_symbolic_sizes(size: tuple[int]) -> None:
    s0 = symbol("s0")
    x = torch.randn(size)
    i = axis("i", s0)
    value = op("mul", Load(buffer("x", x), i.symbol), f32(2.0))
    y = torch.full_like(x, 9.0)
    kernel = Kernel("twice", (i,), (), (Store(buffer("y", y), i.symbol, value),))
    assert kernel.parameters[-1] == s0
    compile_kernel(kernel)(x, y, x.numel())
    assert torch.equal(y, x * 2)


def test_division_and_remainder_in_indices() -> None:
    """The view of a (6, 35) tensor as (210,), rolled by 5: index arithmetic in the vector axis."""
    x, y = torch.randn(6, 35), torch.empty(210)
    i = axis("i", 210)
    rolled = Mod(i.symbol + 5, 210)
    row, column = FloorDiv(rolled, 35), Mod(rolled, 35)
    value = op(
        "add",
        Load(buffer("x", x), 35 * row + column),
        cast(IndexValue(FloorDiv(i.symbol, 7)), torch.float32),
    )
    compare(pointwise("rolled", value, y, i), [x, y])


def test_indirect_loads() -> None:
    """An embedding: rows chosen by an integer tensor."""
    table, rows = torch.randn(50, 24), torch.randint(0, 50, (13,))
    y = torch.empty(13, 24)
    i, j, row = axis("i", 13), axis("j", 24), symbol("row")
    chosen = Load(buffer("rows", rows), i.symbol)
    value = Load(
        buffer("table", table), 24 * row + j.symbol, None, (Place(row, chosen),)
    )
    kernel = pointwise("embedding", value, y, i, j)
    compile_kernel(kernel)(rows, table, y) if kernel.parameters[0].name == "rows" else (
        compile_kernel(kernel)(table, rows, y)
    )
    assert torch.equal(y, table[rows])


def test_names_that_mean_something_in_cpp() -> None:
    """Buffers called `double`, `exp` and `i` do not disturb the text."""
    x, w, y = torch.randn(20), torch.randn(20), torch.empty(20)
    i = axis("i", 20)
    value = op(
        "add",
        op("exp", Load(buffer("double", x), i.symbol)),
        Load(buffer("exp", w), i.symbol),
    )
    kernel = Kernel("tanh", (i,), (), (Store(buffer("i", y), i.symbol, value),))
    compile_kernel(kernel)(x, w, y)
    torch.testing.assert_close(y, x.exp() + w)


@pytest.mark.parametrize("rows, columns", [(130, 51), (65, 8)])
def test_transposed_tiles(rows: int, columns: int) -> None:
    """Numbers of every size, with ragged edges, from three matrices at once and from one."""
    i, j = axis("i", columns), axis("j", rows)
    texts, calls = [], []
    for dtype in TURNED:
        for count in (1, 3):
            inputs = [(torch.randn(rows, columns) * 9).to(dtype) for _ in range(count)]
            outputs = [torch.empty(columns, rows, dtype=dtype) for _ in inputs]
            stores = tuple(
                Store(
                    buffer(f"y{n}", y),
                    rows * i.symbol + j.symbol,
                    Load(buffer(f"x{n}", x), columns * j.symbol + i.symbol),
                )
                for n, (x, y) in enumerate(zip(inputs, outputs, strict=True))
            )
            kernel = Kernel(f"turned_{len(texts)}", (i, j), (), stores)
            assert schedule(kernel).tile is not None
            texts.append(print_kernel(kernel, kernel.name))
            calls.append((kernel.name, inputs, outputs))
    kernels = cpp_kernels("".join(texts))
    for name, inputs, outputs in calls:
        getattr(kernels, name)(*inputs, *outputs)
        for x, y in zip(inputs, outputs, strict=True):
            assert torch.equal(
                y.view(torch.uint8), x.t().contiguous().view(torch.uint8)
            )


def test_a_tile_whose_lines_lie_at_no_equal_distances() -> None:
    x, y = torch.randn(3, 130, 51), torch.empty(51, 390)
    i, j = axis("i", 51), axis("j", 390)
    row = 51 * Mod(j.symbol, 130) + 6630 * FloorDiv(j.symbol, 130)
    kernel = pointwise(
        "turned", op("exp", Load(buffer("x", x), row + i.symbol)), y, i, j
    )
    assert schedule(kernel).tile is not None
    compare(kernel, [x, y])


@pytest.mark.parametrize("shape", [(2, 1300), (2600,), (3, 511), (70, 513)], ids=str)
def test_many_functions_are_computed_in_stages(shape: tuple[int, ...]) -> None:
    """In place too: every stage of a block reads before the last one writes."""
    x = torch.randn(shape)
    axes = [axis(n, s) for n, s in zip("ij", shape, strict=False)]
    at = sum(
        (a.symbol * t for a, t in zip(axes, x.stride(), strict=True)), 0 * symbol("i")
    )
    loaded = Load(buffer("x", x), at)
    value = op("tanh", op("sin", loaded))
    value = op("sigmoid", op("exp", op("mul", value, loaded)))
    kernel = Kernel("chain", tuple(axes), (), (Store(buffer("x", x), at, value),))
    staged = "_block" in print_kernel(kernel, "chain")
    assert staged == (shape[-1] >= 512)
    expected = torch.sigmoid(torch.exp(torch.tanh(torch.sin(x)) * x))
    compile_kernel(kernel)(x)
    torch.testing.assert_close(x, expected)


def test_large_work_is_shared() -> None:
    def text(rows: int) -> str:
        x = torch.empty(rows, 4096)
        i, j = axis("i", rows), axis("j", 4096)
        value = op("exp", Load(buffer("x", x), 4096 * i.symbol + j.symbol))
        return print_kernel(pointwise("k", value, torch.empty(rows, 4096), i, j), "k")

    assert "parallel for" not in text(1)
    assert re.search(r"#pragma omp parallel for\n\s+for \(long i", text(2048))


def test_text_is_the_same_every_time() -> None:
    torch.manual_seed(0)
    first = print_kernel(CASES["layer_norm"]().kernel, "k")
    assert first == print_kernel(CASES["layer_norm"]().kernel, "k")


def test_functions_of_few_columns() -> None:
    """Vectors lie along the longer axis."""
    x, w, y = torch.randn(301), torch.randn(6), torch.empty(301, 6)
    i, j = axis("i", 301), axis("j", 6)
    product = op("mul", Load(buffer("x", x), i.symbol), Load(buffer("w", w), j.symbol))
    kernel = pointwise("encoded", op("sin", product), y, i, j)
    assert schedule(kernel).outer[-1] is i
    compare(kernel, [x, w, y])
