"""Kernels printed as C++ against eager and against the interpreter of the loop form."""

from __future__ import annotations

import re

import pytest
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from srcjit.passes.loops import (
    Const,
    IndexValue,
    Kernel,
    Load,
    Op,
    Place,
    Reduce,
    Store,
    Value,
    cast,
    op,
    symbol,
)
from srcjit.passes.primitives import PRIMITIVES
from srcjit.passes.print_cpp import print_kernel
from srcjit.passes.print_cpp_schedule import Shape, schedule
from srcjit.runtime import cpp_kernels
from tests.backend.examples import CASES, axis, buffer, f32
from tests.backend.interpret import BINARY, UNARY
from tests.cpp.running import compare, compile_kernel, pointwise

WILD = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.5,
    -2.5,
    3e38,
    -3e38,
    float("inf"),
    -float("inf"),
    float("nan"),
]
FLOATS = (torch.float32, torch.float64)
DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    *FLOATS,
)


def wild(dtype: torch.dtype, count: int = 221) -> torch.Tensor:
    """Values at the edges of a dtype and random ones, an odd number of them."""
    if dtype is torch.bool:
        return torch.rand(count) < 0.5
    if dtype.is_floating_point:
        values = torch.randn(count, dtype=torch.float64) * 3
        values[: len(WILD)] = torch.tensor(WILD, dtype=torch.float64)
        values[len(WILD) : len(WILD) + 3] = torch.tensor([6e-8, 65519.0, 1e-40])
        return values.to(dtype)
    info = torch.iinfo(dtype)
    values = torch.randint(info.min, info.max, (count,), dtype=dtype)
    values[:6] = torch.tensor([info.min, info.max, 0, 1, info.max - 1, 7], dtype=dtype)
    return values


@pytest.mark.parametrize("name", CASES)
def test_examples(name: str) -> None:
    torch.manual_seed(0)
    case = CASES[name]()
    compile_kernel(case.kernel)(*case.arguments())
    for output, expected in case.expected.items():
        torch.testing.assert_close(case.outputs[output], expected, equal_nan=True)


def _primitive_cases() -> list[tuple[str, torch.dtype]]:
    return [
        (name, dtype)
        for name, row in PRIMITIVES.items()
        if name in UNARY or name in BINARY
        for dtype in row.takes
    ]


def test_every_primitive_of_every_dtype() -> None:
    """One translation unit with them all; each against torch on wild values."""
    torch.manual_seed(1)
    i = axis("i", 221)
    texts, checks = [], []
    for name, dtype in _primitive_cases():
        x, y = wild(dtype), wild(dtype).flip(0).contiguous()
        if name in ("truncdiv", "floordiv", "rem", "mod"):
            y = torch.where((y == 0) | (y == -1), torch.ones_like(y), y)
        if name in ("shl", "shr"):
            y = (torch.arange(221) % 70 - 3).clamp(
                min=0 if dtype is torch.uint8 else -3
            )
            y = y.to(dtype)
        a = Load(buffer("x", x), i.symbol)
        b = Load(buffer("y", y), i.symbol)
        value = op(name, a) if name in UNARY else op(name, a, b)
        out = torch.empty(221, dtype=value.dtype)
        kernel = pointwise(f"{name}_{str(dtype).removeprefix('torch.')}", value, out, i)
        given = [x] if name in UNARY else [x, y]
        texts.append(print_kernel(kernel, kernel.name))
        checks.append((kernel.name, name, given, out))
    kernels = cpp_kernels("\n".join(texts))
    for kernel_name, name, given, out in checks:
        getattr(kernels, kernel_name)(*given, out)
        table = UNARY if name in UNARY else BINARY
        # Eager's own vector functions are off for some denormals: ask it in float64.
        wide = [
            g.double() if g.dtype is torch.float32 and name != "nextafter" else g
            for g in given
        ]
        expected = table[name](*wide).to(out.dtype)
        message = f"{kernel_name}: "
        if name == "lgamma":  # the C library is off by a few ulp near its zeros
            torch.testing.assert_close(
                out, expected, rtol=1e-5, atol=1e-5, equal_nan=True
            )
        elif name in (
            "nextafter",
            "copysign",
            "neg",
            "abs",
            "eq",
            "round",
            "sqrt",
            "div",
        ):
            torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
        else:
            torch.testing.assert_close(
                out, expected, equal_nan=True, msg=lambda m, at=message: at + m
            )


def test_every_cast() -> None:
    torch.manual_seed(2)
    i = axis("i", 221)
    texts, checks = [], []
    for source in DTYPES:
        for target in DTYPES:
            x = wild(source)
            if source.is_floating_point and not target.is_floating_point:
                # Out of range the result is undefined, in eager too.
                x = torch.nan_to_num(x.float(), 1.0, 7.0, 3.0).clamp(0, 100).to(source)
            value = cast(Load(buffer("x", x), i.symbol), target)
            out = torch.empty(221, dtype=target)
            name = f"cast_{len(checks)}"
            kernel = pointwise(name, value, out, i)
            texts.append(print_kernel(kernel, name))
            checks.append((name, x, out))
    kernels = cpp_kernels("\n".join(texts))
    for name, x, out in checks:
        getattr(kernels, name)(x, out)
        torch.testing.assert_close(
            out,
            x.to(out.dtype),
            rtol=0,
            atol=0,
            equal_nan=True,
            msg=lambda m: f"{x.dtype} {m}",
        )


def test_half_precision_conversions_are_exhaustive() -> None:
    bits = torch.arange(-(2**15), 2**15).to(torch.int16)
    i = axis("i", 2**16)
    dense = torch.arange(-(2**31), 2**31, 9973).to(torch.int32).view(torch.float32)
    n = axis("i", dense.numel())
    for dtype in (torch.float16, torch.bfloat16):
        x = bits.view(dtype)
        out = torch.empty(2**16)
        widened = cast(Load(buffer("x", x), i.symbol), torch.float32)
        compile_kernel(pointwise("widen", widened, out, i))(x, out)
        assert torch.equal(out.nan_to_num(0.5), x.float().nan_to_num(0.5))
        assert torch.equal(out.isnan(), x.isnan())
        narrow = cast(Load(buffer("x", dense), n.symbol), dtype)
        rounded = torch.empty(dense.numel(), dtype=dtype)
        compile_kernel(pointwise("narrow", narrow, rounded, n))(dense, rounded)
        expected = dense.to(dtype)
        assert torch.equal(rounded.isnan(), expected.isnan())
        finite = ~expected.isnan()
        assert torch.equal(
            rounded.view(torch.int16)[finite], expected.view(torch.int16)[finite]
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_choices_and_masked_loads_of_every_dtype(dtype: torch.dtype) -> None:
    """cat([x, y]) and a padded copy: what a mask rules out is not read."""
    x, y = wild(dtype, 40), wild(dtype, 41)
    out, padded = torch.empty(81, dtype=dtype), torch.empty(81, dtype=dtype)
    i = axis("i", 81)
    first = op("lt", IndexValue(i.symbol), Const(40, torch.int64))
    rest = op("bitwise_not", first)
    a = Load(buffer("x", x), i.symbol, first)
    b = Load(buffer("y", y), i.symbol - 40, rest)
    stores = (
        Store(buffer("out", out), i.symbol, op("where", first, a, b)),
        Store(buffer("padded", padded), i.symbol, a),
    )
    kernel = Kernel("joined", (i,), (), stores)
    compile_kernel(kernel)(x, y, out, padded)
    torch.testing.assert_close(out, torch.cat([x, y]), rtol=0, atol=0, equal_nan=True)
    zeros = torch.zeros(41, dtype=dtype)
    torch.testing.assert_close(
        padded, torch.cat([x, zeros]), rtol=0, atol=0, equal_nan=True
    )


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


def test_empty_reduction_gives_the_identity() -> None:
    x = torch.empty(4, 0)
    for kind, identity in (("sum", 0.0), ("prod", 1.0)):
        kernel, arguments = _reduction(kind, x, over_rows=False)
        compile_kernel(kernel)(*arguments)
        assert arguments[-1].tolist() == [identity] * 4


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


def test_constants_keep_their_bits() -> None:
    numbers = [
        0.1,
        -0.0,
        1e-45,
        3.4028235e38,
        1 / 3,
        float("inf"),
        -float("inf"),
        16777217.0,
    ]
    for dtype in FLOATS:
        out = torch.empty(len(numbers), dtype=dtype)
        i = axis("i", len(numbers))
        value: Value = Const(float("nan"), dtype)
        for position, number in enumerate(numbers):
            here = op("eq", IndexValue(i.symbol), Const(position, torch.int64))
            value = op("where", here, Const(number, dtype), value)
        assert isinstance(value, Op)
        compile_kernel(pointwise("constants", value, out, i))(out)
        expected = torch.tensor(numbers, dtype=dtype)
        assert torch.equal(out, expected) and torch.equal(
            out.signbit(), expected.signbit()
        )


def test_smallest_integer() -> None:
    out = torch.empty(1, dtype=torch.int64)
    kernel = pointwise("least", Const(-(2**63), torch.int64), out, axis("i", 1))
    compile_kernel(kernel)(out)
    assert out.item() == -(2**63)


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


def test_functions_of_few_columns() -> None:
    """Vectors lie along the longer axis."""
    x, w, y = torch.randn(301), torch.randn(6), torch.empty(301, 6)
    i, j = axis("i", 301), axis("j", 6)
    product = op("mul", Load(buffer("x", x), i.symbol), Load(buffer("w", w), j.symbol))
    kernel = pointwise("encoded", op("sin", product), y, i, j)
    assert schedule(kernel).outer[-1] is i
    compare(kernel, [x, w, y])
