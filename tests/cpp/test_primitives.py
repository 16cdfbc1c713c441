"""Primitives, casts, constants and masks in C++, for every dtype, against eager."""

from __future__ import annotations

import pytest
import torch

from srcjit.passes.loops import (
    Const,
    IndexValue,
    Kernel,
    Load,
    Op,
    Store,
    Value,
    cast,
    op,
)
from srcjit.passes.primitives import PRIMITIVES
from srcjit.passes.print_cpp import print_kernel
from srcjit.runtime import cpp_kernels
from tests.backend.examples import axis, buffer
from tests.backend.interpret import BINARY, UNARY
from tests.cpp.running import compile_kernel, pointwise

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
