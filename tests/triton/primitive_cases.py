"""Kernels of every primitive, for each dtype."""

from __future__ import annotations

import math

import torch

from srcjit.passes.loops import (
    Const,
    Kernel,
    Load,
    Store,
    Value,
    cast,
    check,
    op,
    symbol,
)
from tests.backend.examples import Case, axis, buffer

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    3.5,
    math.nan,
    math.inf,
    -math.inf,
    1e-40,
    88.0,
    -104.0,
]


def floats(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers of many sizes, and the special ones, in random order."""
    wide = torch.randn(count) * 10 ** torch.empty(count).uniform_(-3, 1)
    wide[: len(SPECIAL)] = torch.tensor(SPECIAL)
    return wide[torch.randperm(count)].to(dtype)


def pointwise(
    name: str,
    inputs: dict[str, torch.Tensor],
    results: dict[str, tuple[Value, torch.Tensor]],
) -> Case:
    """One contiguous axis; each result is stored at the same place."""
    (size,) = {t.numel() for t in inputs.values()}
    i = axis("i", size)
    body = tuple(
        Store(buffer(n, expected), i.symbol, value)
        for n, (value, expected) in results.items()
    )
    kernel = Kernel(name, (i,), (), body)
    return Case(check(kernel), dict(inputs), {n: e for n, (_, e) in results.items()})


def at(name: str, tensor: torch.Tensor) -> Load:
    """The element of a contiguous tensor at `i`."""
    return Load(buffer(name, tensor), symbol("i"))


# --- primitives -----------------------------------------------------------------------------

UNARY = {
    "neg": torch.neg, "abs": torch.abs, "isnan": torch.isnan, "isinf": torch.isinf,
    "signbit": torch.signbit, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc,
    "round": torch.round, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "exp": torch.exp,
    "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2,
    "log10": torch.log10, "log1p": torch.log1p, "sin": torch.sin, "cos": torch.cos,
    "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan,
    "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "asinh": torch.asinh,
    "acosh": torch.acosh, "atanh": torch.atanh, "erf": torch.erf, "erfc": torch.erfc,
    "erfinv": torch.erfinv, "lgamma": torch.lgamma, "sigmoid": torch.sigmoid,
}  # fmt: skip

BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "maximum": torch.maximum, "minimum": torch.minimum, "fmax": torch.fmax, "fmin": torch.fmin,
    "fmod": torch.fmod, "pow": torch.pow, "atan2": torch.atan2, "hypot": torch.hypot,
    "copysign": torch.copysign, "nextafter": torch.nextafter,
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
}  # fmt: skip


def float_primitives(dtype: torch.dtype) -> Case:
    """Every primitive of floats."""
    x, z = floats(777, dtype), floats(777, dtype)
    a, b = at("x", x), at("z", z)
    results = {f"{n}_out": (op(n, a), f(x)) for n, f in UNARY.items()}
    results |= {f"{n}_out": (op(n, a, b), f(x, z)) for n, f in BINARY.items()}
    results["fma_out"] = (
        op("fma", a, b, a),
        (x.double() * z.double() + x.double()).to(dtype),
    )
    if dtype is torch.float64:
        results["fma_out"] = (op("fma", a, Const(1.0, dtype), b), x + z)
    third = Const(1 / 3, dtype)
    results["constants"] = (
        op("div", op("add", op("mul", a, third), Const(0.1, dtype)), Const(0.7, dtype)),
        (x * torch.tensor(1 / 3, dtype=dtype) + torch.tensor(0.1, dtype=dtype))
        / torch.tensor(0.7, dtype=dtype),
    )
    results["where_constants"] = (
        op("where", op("gt", a, b), third, Const(-0.0, dtype)),
        torch.where(
            x > z, torch.tensor(1 / 3, dtype=dtype), torch.tensor(-0.0, dtype=dtype)
        ),
    )
    results["largest_constant"] = (
        op("maximum", a, Const(1e-40 if dtype is torch.float32 else 1e-310, dtype)),
        torch.maximum(
            x, torch.tensor(1e-40 if dtype is torch.float32 else 1e-310, dtype=dtype)
        ),
    )
    case = pointwise("primitives", {"x": x, "z": z}, results)
    case.tolerance = 2e-6
    return case


def double() -> Case:
    """What is printed in another way for float64 than for float32."""
    x, z = floats(99, torch.float64), floats(99, torch.float64)
    a, b = at("x", x), at("z", z)
    names = ("div", "maximum", "minimum", "fmax", "fmin", "copysign")
    results = {f"{n}_out": (op(n, a, b), BINARY[n](x, z)) for n in names}
    for n in ("sqrt", "sigmoid", "signbit", "round", "exp", "neg"):
        results[f"{n}_out"] = (op(n, a), UNARY[n](x))
    return pointwise("double", {"x": x, "z": z}, results)


def integer_primitives(dtype: torch.dtype) -> Case:
    """Every primitive of integers, at the ends of the range too."""
    info = torch.iinfo(dtype)
    x = torch.randint(info.min, info.max, (500,), dtype=dtype)
    x[:4] = torch.tensor([info.min, info.max, 0, 1], dtype=dtype)
    z = torch.randint(max(info.min, -9), 9, (500,), dtype=dtype)
    z[z == 0] = 3
    small = x.clone()
    small[0] = 1  # the smallest integer by -1 is undefined
    a, b, s = at("x", x), at("z", z), at("small", small)
    bits = info.bits
    count = z
    inside = (count >= 0) & (count < bits)
    shifted = torch.where(inside, count, torch.tensor(bits - 1, dtype=dtype))
    right = x >> shifted
    if dtype is torch.uint8:
        right = torch.where(inside, right, torch.tensor(0, dtype=dtype))
    results = {
        "add_out": (op("add", a, b), x + z),
        "sub_out": (op("sub", a, b), x - z),
        "mul_out": (op("mul", a, b), x * z),
        "max_out": (op("maximum", a, b), torch.maximum(x, z)),
        "min_out": (op("minimum", a, b), torch.minimum(x, z)),
        "neg_out": (op("neg", a), -x),
        "abs_out": (op("abs", a), x.abs()),
        "truncdiv_out": (
            op("truncdiv", s, b),
            torch.div(small, z, rounding_mode="trunc"),
        ),
        "floordiv_out": (
            op("floordiv", s, b),
            torch.div(small, z, rounding_mode="floor"),
        ),
        "rem_out": (op("rem", s, b), torch.fmod(small, z)),
        "mod_out": (op("mod", s, b), torch.remainder(small, z)),
        "and_out": (op("bitwise_and", a, b), x & z),
        "or_out": (op("bitwise_or", a, b), x | z),
        "xor_out": (op("bitwise_xor", a, b), x ^ z),
        "not_out": (op("bitwise_not", a), ~x),
        "shl_out": (
            op("shl", a, b),
            torch.where(inside, x << shifted, torch.zeros_like(x)),
        ),
        "shr_out": (op("shr", a, b), right),
        "lt_out": (op("lt", a, b), x < z),
        "eq_out": (op("eq", a, Const(1, dtype)), x == 1),
        "where_out": (
            op("where", op("ge", a, b), Const(7, dtype), b),
            torch.where(x >= z, 7, z).to(dtype),
        ),
    }
    return pointwise("integers", {"x": x, "z": z, "small": small}, results)


def bool_primitives() -> Case:
    """Logic."""
    x, z = torch.rand(99) > 0.5, torch.rand(99) > 0.5
    a, b = at("x", x), at("z", z)
    results = {
        "and_out": (op("bitwise_and", a, op("bitwise_not", b)), x & ~z),
        "or_out": (op("bitwise_or", a, b), x | z),
        "xor_out": (op("bitwise_xor", a, b), x ^ z),
        "eq_out": (op("eq", a, b), x == z),
        "lt_out": (op("lt", a, b), x < z),
        "where_out": (
            op("where", a, b, Const(True, torch.bool)),
            torch.where(x, z, True),
        ),
    }
    return pointwise("logic", {"x": x, "z": z}, results)


STORAGE = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
)  # fmt: skip


def casts(source: torch.dtype) -> Case:
    """From one dtype to every other."""
    if source.is_floating_point:
        x = (torch.randn(301) * 50).to(source)
        x[:5] = torch.tensor([0.0, -0.0, -1.0, 3.99, 65504.0], dtype=source)
    elif source is torch.bool:
        x = torch.rand(301) > 0.5
    else:
        info = torch.iinfo(source)
        x = torch.randint(info.min, info.max, (301,), dtype=source)
    results = {}
    for target in STORAGE:
        if target is source:
            continue
        if source.is_floating_point and target in (torch.int8, torch.int16):
            continue  # out-of-range conversions are undefined in eager, too
        name = str(target).removeprefix("torch.")
        results[f"as_{name}"] = (cast(at("x", x), target), x.to(target))
    return pointwise("casts", {"x": x}, results)


# --- reductions -----------------------------------------------------------------------------
