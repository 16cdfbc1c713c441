"""Each lowering against eager: values with NaN, inf and -0.0, dtypes, shapes, strides.

The schedule runs in the interpreter, so nothing here depends on a printer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import srcjit
from srcjit.passes.functional import functionalize
from srcjit.passes.fuse import fuse
from srcjit.passes.lower import lower
from srcjit.passes.schedule import Call, Summed
from tests.backend.interpret import run_schedule
from tests.backend.support import assert_same, clones, segment_of

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-3, 30.0, -30.0]
EXTREME = [math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-40]
FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 1e-12}


def run(
    function: Callable[..., Any], *args: Any, loops: bool = True, **tolerance: Any
) -> Any:
    """Compares a function with eager; with `loops`, nothing of it may be an extern call."""
    with torch.no_grad():
        expected = function(*clones(args))
        segment = segment_of(function, *args)
        functional = functionalize(segment)
        assert functional.forward is not None, functional.reason
        lowered = lower(functional.forward)
        schedule = fuse(lowered)
        steps = (s for s in schedule.steps if not isinstance(s, Summed))
        calls = [s.node for s in steps if isinstance(s, Call)]
        if loops:
            assert not calls, (calls, lowered.notes)
        given = dict(zip(functional.forward.placeholders, clones(args), strict=True))
        results = run_schedule(schedule, given)
    from srcjit.passes.autograd import after_the_call

    names = [f"r{n}" for n in range(len(results))]
    inputs = [n.name for n in functional.forward.placeholders]
    lines = after_the_call(functional, inputs, names)
    body = "\n".join("    " + line for line in lines)
    scope: dict[str, Any] = {"torch": torch}
    exec(f"def end({', '.join([*inputs, *names])}):\n{body}", scope)
    got = scope["end"](*given.values(), *results)
    assert_same(got, expected, **tolerance)
    return schedule


def floats(dtype: torch.dtype, extreme: bool = True) -> torch.Tensor:
    values = SPECIAL + (EXTREME if extreme else [])
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn(48 - len(values), generator=generator) * 3
    return torch.cat([torch.tensor(values), drawn]).to(dtype).reshape(6, 8)


def integers(dtype: torch.dtype) -> torch.Tensor:
    info = torch.iinfo(dtype)
    values = [0, 1, 2, 3, 7, info.max, info.min, info.max - 1]
    values += [-1, -2, -7] if info.min < 0 else [200, 128, 127]
    generator = torch.Generator().manual_seed(2)
    drawn = torch.randint(
        max(info.min, -50), min(info.max, 50), (24 - len(values),), generator=generator
    )
    return torch.cat([torch.tensor(values), drawn]).to(dtype).reshape(4, 6)


def close(dtype: torch.dtype) -> dict[str, float]:
    tolerance = TOLERANCE.get(dtype, 3e-6)
    return {"rtol": tolerance, "atol": tolerance}


UNARY = {
    f.__name__: f
    for f in (
        torch.abs, torch.neg, torch.exp, torch.exp2, torch.expm1, torch.log, torch.log2,
        torch.log10, torch.log1p, torch.sin, torch.cos, torch.tan, torch.asin, torch.acos,
        torch.atan, torch.sinh, torch.cosh, torch.tanh, torch.asinh, torch.acosh, torch.atanh,
        torch.erf, torch.erfc, torch.erfinv, torch.sqrt, torch.rsqrt, torch.reciprocal,
        torch.sigmoid, torch.sign, torch.floor, torch.ceil, torch.trunc, torch.round, torch.frac,
        torch.square, torch.isnan, torch.isinf, torch.isfinite, torch.signbit, torch.relu,
        torch.logical_not, torch.lgamma, torch.deg2rad, torch.rad2deg, torch.nan_to_num,
        F.silu, F.gelu, F.softplus, F.leaky_relu, F.elu, F.hardswish, F.hardsigmoid, F.hardtanh,
        F.mish, F.relu6, F.selu, F.celu, F.logsigmoid, F.softsign, F.tanhshrink,
    )
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: torch.dtype) -> None:
    if name in ("lgamma", "erfinv") and dtype in (torch.bfloat16, torch.float16):
        pytest.skip("eager rounds differently inside")
    # Eager's vectorized gelu of an infinity is NaN, its scalar one is not.
    wide = name not in ("sinh", "cosh", "tan", "lgamma", "gelu")
    run(UNARY[name], floats(dtype, wide), **close(dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.int8, torch.bool])
@pytest.mark.parametrize(
    "name",
    "abs neg exp sqrt sigmoid sign floor isnan isinf isfinite logical_not signbit square".split(),
)
def test_unary_of_integers(name: str, dtype: torch.dtype) -> None:
    if dtype is torch.bool:
        if name in ("neg", "floor", "abs", "square"):
            pytest.skip("eager refuses")
        run(UNARY[name], floats(torch.float32) > 0, **close(torch.float32))
    else:
        run(UNARY[name], integers(dtype), **close(torch.float32))


def test_gelu_tanh() -> None:
    for dtype in FLOATS:
        run(
            lambda x: F.gelu(x, approximate="tanh"),
            floats(dtype, False),
            **close(dtype),
        )


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "pow": lambda a, b: torch.pow(a.abs(), b),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "copysign": torch.copysign,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "alpha": lambda a, b: torch.add(a, b, alpha=2),
    "where": lambda a, b: torch.where(a > b, a, b),
    "logical_and": torch.logical_and,
    "logical_xor": torch.logical_xor,
    "rsub": lambda a, b: torch.rsub(a, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "clamp": lambda a, b: torch.clamp(a, max=b),
    "xlogy": torch.xlogy,
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtype: torch.dtype) -> None:
    a = floats(dtype)
    if name in ("floordiv", "remainder", "fmod"):
        # Eager's vectorized fmod gives NaN for denormal divisors and huge quotients, its
        # scalar one does not.
        a = torch.where((a.abs() < 1e-30) | (a.abs() == 3e38), a * 0, a)
    b = a.flatten().flip(0).roll(5).reshape(6, 8).contiguous()
    if name == "hypot" and dtype in (torch.bfloat16, torch.float16):
        pytest.skip("eager rounds differently inside")
    run(BINARY[name], a, b, **close(dtype))


@pytest.mark.parametrize("name", BINARY)
def test_binary_broadcast_and_mixed(name: str) -> None:
    if name in ("lerp", "clamp"):
        pytest.skip("one dtype only")
    a, b = floats(torch.bfloat16), floats(torch.float32)[:, :1]
    run(BINARY[name], a, b, **close(torch.float32))
    run(BINARY[name], b, a[2], **close(torch.float32))
    run(BINARY[name], a, torch.tensor(1.7), **close(torch.bfloat16))
    run(
        BINARY[name], a, torch.tensor(1.7, dtype=torch.float64), **close(torch.bfloat16)
    )


INT_BINARY = [
    n
    for n in BINARY
    if n not in "hypot lerp pow floordiv truncdiv remainder fmod".split()
]


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("name", INT_BINARY)
def test_binary_of_integers(name: str, dtype: torch.dtype) -> None:
    a = integers(dtype)
    run(
        BINARY[name],
        a,
        a.flatten().roll(3).reshape(4, 6).contiguous(),
        **close(torch.float32),
    )


@pytest.mark.parametrize("divisor", [3, -3, 7, 1])
@pytest.mark.parametrize("name", ["floordiv", "truncdiv", "remainder", "fmod"])
def test_integer_division_by_number(name: str, divisor: int) -> None:
    for dtype in INTS:
        if divisor > 0 or dtype is not torch.uint8:
            run(lambda a: BINARY[name](a, divisor), integers(dtype))


def test_integer_division_by_tensor_is_eagers() -> None:
    a = integers(torch.int64)
    run(lambda a, b: a // b, a, torch.full_like(a, 3), loops=False)


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "x + 1": lambda x: x + 1,
    "x + 0.1": lambda x: x + 0.1,
    "0.1 - x": lambda x: 0.1 - x,
    "x * 2.5": lambda x: x * 2.5,
    "x / 3": lambda x: x / 3,
    "3 / x": lambda x: 3 / x,
    "x > 0.1": lambda x: x > 0.1,
    "x == 2.5": lambda x: x == 2.5,
    "x ** 2": lambda x: x**2,
    "x ** 3": lambda x: x**3,
    "x ** 0.5": lambda x: x.abs() ** 0.5,
    "x ** -1": lambda x: x.float() ** -1,
    "x ** 2.5": lambda x: x.float().abs() ** 2.5,
    "2 ** x": lambda x: 2.0**x,
    "clamp": lambda x: x.clamp(-1, 2),
    "clamp_min": lambda x: x.clamp(min=0.25),
    "masked_fill": lambda x: x.masked_fill(x > 1, 0),
    "where": lambda x: torch.where(x > 1, x, 0.5),
    "true": lambda x: x + True,
    "addcmul": lambda x: torch.addcmul(x, x, x, value=2),
    "float": lambda x: x.float(),
    "half": lambda x: x.half(),
    "bool": lambda x: x.bool(),
    "int": lambda x: x.float().clamp(-100, 100).nan_to_num().int(),
    "double": lambda x: x.double() * x,
}


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int8]
)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str, dtype: torch.dtype) -> None:
    x = floats(dtype) if dtype.is_floating_point else integers(dtype)
    run(NUMBERS[name], x, **close(dtype if dtype.is_floating_point else torch.float32))


def test_bitwise() -> None:
    for dtype in [*INTS, torch.bool]:
        a = integers(torch.int64).to(dtype)
        b = a.flatten().roll(7).reshape(4, 6).contiguous()
        run(lambda a, b: (a & b, a | b, a ^ b, ~a), a, b)
    a = integers(torch.int32)
    run(lambda a: (a << 3, a >> 2, a << 40, a >> 40), a)


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "sum 0": lambda x: x.sum(0),
    "sum -1 keep": lambda x: x.sum(-1, keepdim=True),
    "sum 0,2": lambda x: x.sum((0, 2)),
    "sum 1": lambda x: x.sum(1),
    "mean": lambda x: x.float().mean(),
    "mean 1": lambda x: x.float().mean(1, keepdim=True),
    "prod": lambda x: x.prod(1),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin((0, 1)),
    "max": lambda x: x.max(),
    "max dim": lambda x: x.max(1),
    "min dim": lambda x: x.min(-1, keepdim=True),
    "argmax": lambda x: x.argmax(),
    "argmax dim": lambda x: x.argmax(1),
    "argmin dim": lambda x: x.argmin(-1, keepdim=True),
    "any": lambda x: x.any(),
    "any dim": lambda x: (x > 1).any(1),
    "all dim": lambda x: (x > -1).all(0, keepdim=True),
    "count_nonzero": lambda x: torch.count_nonzero(x),
}
FLOAT_REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "var": lambda x: x.var(-1),
    "var biased": lambda x: x.var(1, correction=0, keepdim=True),
    "std": lambda x: x.std(),
    "std 0": lambda x: x.std(0),
    "var_mean": lambda x: torch.var_mean(x, (0, 2)),
    "norm": lambda x: x.norm(dim=-1),
    "norm 1": lambda x: x.norm(p=1, dim=1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=2),
    "norm 3": lambda x: torch.linalg.vector_norm(x, 3.0),
    "softmax": lambda x: x.softmax(-1),
    "softmax 1": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(1),
    "softmax float": lambda x: F.softmax(x, -1, dtype=torch.float32),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "layer_norm 2": lambda x: F.layer_norm(x, x.shape[1:]),
    "rms_norm": lambda x: F.rms_norm(x, (x.shape[-1],)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "mse": lambda x: F.mse_loss(x, x * 0.5),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x * 0.5),
}


def cube(dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    if dtype is torch.bool:
        return torch.randn(3, 4, 5, generator=generator) > 0
    return (torch.randn(3, 4, 5, generator=generator) * 3).to(dtype)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2).contiguous().transpose(0, 2),
    "sliced": lambda x: torch.cat([x, x], -1)[..., ::2],
    "padded": lambda x: F.pad(x, (0, 3))[..., :-3],
}


def in_layout(x: torch.Tensor, layout: str) -> torch.Tensor:
    return LAYOUTS[layout](x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name: str, dtype: torch.dtype, layout: str) -> None:
    if dtype is torch.bool and name in ("any dim", "all dim", "amin"):
        pytest.skip("other functions")
    if layout == "padded" or (dtype is torch.bool and name == "prod"):
        pytest.skip("covered by pointwise")
    if dtype is torch.bool and ("arg" in name or "dim" in name):
        pytest.skip("eager has no argmax of bool")
    run(REDUCTIONS[name], in_layout(cube(dtype), layout), **close(torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", FLOAT_REDUCTIONS)
def test_float_reduction(name: str, dtype: torch.dtype) -> None:
    x = cube(dtype)
    if name == "group_norm":
        x = x.reshape(3, 4, 5)
    tolerance = close(torch.float32 if name == "softmax float" else dtype)
    run(FLOAT_REDUCTIONS[name], x, **tolerance)
    run(FLOAT_REDUCTIONS[name], in_layout(x, "transposed"), **tolerance)


def test_reductions_with_nan() -> None:
    x = floats(torch.float32)
    run(lambda x: (x.amax(-1), x.amin(0), x.max(1)[1], x.argmin(0), x.sum(1)), x)


def test_reductions_of_nothing() -> None:
    x = torch.zeros(3, 0, 2)
    run(
        lambda x: (x.sum(1), x.prod(1), x.any(1), x.all(1), x.mean(1), x + 1, x.sum(0)),
        x,
    )
    run(lambda x: (x.sum(), x.mean(), x.softmax(0)), torch.zeros(0))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: (x + 1).reshape(4, 15) * 2,
    "view 2": lambda x: (x + 1).reshape(5, 12).sum(-1),
    "reshape": lambda x: x.transpose(0, 1).reshape(12, 5) + 1,
    "flatten": lambda x: x.flatten(1) * torch.arange(20, dtype=x.dtype),
    "permute": lambda x: x.permute(2, 0, 1) * 2,
    "expand": lambda x: x[:, :1].expand(3, 4, 5) + x,
    "slice": lambda x: x[1:, ::2, -2:] * 3,
    "select": lambda x: x[1] + x[-1],
    "unsqueeze": lambda x: x[:, None] - x[:, :, None],
    "squeeze": lambda x: x[:1].squeeze() + 1,
    "split": lambda x: torch.split(x, [1, 3], 1)[1] * 2,
    "chunk": lambda x: sum(torch.chunk(x, 2, 1)),
    "unbind": lambda x: sum(x.unbind(1)),
    "flip": lambda x: x.flip(0, 2) * 2,
    "diagonal": lambda x: torch.diagonal(x, 1, 1, 2) * 2,
    "movedim": lambda x: x.movedim(0, -1) + 1,
    "unfold": lambda x: x.unfold(2, 3, 1).sum(-1),
    "cat": lambda x: torch.cat([x, x * 2, x[:, :1]], 1) + 1,
    "stack": lambda x: torch.stack([x, -x], 1) * 2,
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=3.0) * 2,
    "pad cut": lambda x: F.pad(x, (-1, 2)) + 1,
    "roll": lambda x: x.roll(2, 1) + x,
    "repeat": lambda x: x.repeat(2, 1, 2) * 2,
    "tril": lambda x: x.tril() + x.triu(1),
    "rope": lambda x: torch.cat([-x[..., 2:], x[..., :2]], -1) * x,
    "index put": lambda x: _set(x),
    "setitem strided": lambda x: _set_strided(x),
    "contiguous": lambda x: x.transpose(0, 1).contiguous(),
    "clone": lambda x: x.clone(),
    "softmax transposed": lambda x: x.softmax(-1).transpose(0, 1) * 2,
    "softmax reshaped": lambda x: x.softmax(-1).view(12, 5) @ x.view(12, 5).t(),
    "heads": lambda x: x.view(3, 2, 2, 5).transpose(1, 2).reshape(3, 4, 5) * 2,
    "squeezed sum": lambda x: (x.sum(-1, keepdim=True) * x).sum(1),
    "pixel": lambda x: F.pixel_shuffle(x.view(3, 4, 5, 1), 2),
    "arange": lambda x: x + torch.arange(5) + torch.arange(0, 2, 0.4),
    "ones": lambda x: (
        x + torch.ones(4, 1) - torch.zeros_like(x) + torch.full((5,), 2.0)
    ),
    "eye": lambda x: x + torch.eye(4, 5),
    "linspace": lambda x: x + torch.linspace(0, 1, 5),
    "mask": lambda x: x.masked_fill(
        torch.arange(5)[None] > torch.arange(4)[:, None], -1e9
    ),
}


def _set(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1] = 7
    y[:, 2:, 1:3] = x[:, :2, :2]
    return y


def _set_strided(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1::2] = -1
    return y


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str, layout: str) -> None:
    x = in_layout(cube(torch.float32), layout)
    if layout != "contiguous" and name in ("softmax reshaped", "heads", "pixel"):
        pytest.skip("eager cannot view it")
    externs = ("softmax reshaped", "linspace", "unfold")
    run(VIEWS[name], x, loops=name not in externs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_feed_forward(dtype: torch.dtype) -> None:
    def block(x, w, b, w1, b1, w2, b2):
        h = F.layer_norm(x, (8,), w, b)
        h = F.gelu(F.linear(h, w1, b1))
        return x + F.linear(h, w2, b2)

    torch.manual_seed(0)
    shapes = [(2, 6, 8), (8,), (8,), (16, 8), (16,), (8, 16), (8,)]
    args = [torch.randn(s).to(dtype) for s in shapes]
    schedule = run(block, *args, loops=False, rtol=2e-2, atol=2e-2)
    assert len(schedule.kernels) <= 3


def test_random_calls_keep_their_order() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = F.dropout(x, 0.5)
        b = torch.rand_like(x) * a
        return b, torch.randn(3)

    torch.manual_seed(5)
    x = torch.ones(4, 4)
    with torch.no_grad():
        torch.manual_seed(7)
        expected = function(x)
        functional = functionalize(segment_of(function, x))
        assert functional.forward is not None
        schedule = fuse(lower(functional.forward))
        torch.manual_seed(7)
        got = run_schedule(
            schedule, dict(zip(functional.forward.placeholders, [x], strict=True))
        )
    assert_same(tuple(got), expected)


@pytest.mark.parametrize("target", [77, -7])
def test_losses_check_their_targets_on_the_cpu(target):
    def loss(x, t):
        return F.cross_entropy(x, t)

    x, t = torch.randn(3, 4), torch.tensor([0, 1, target])
    with pytest.raises(IndexError, match=f"Target {target} is out of bounds"):
        srcjit.jit(loss)(x, t)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        srcjit.jit(lambda p: F.binary_cross_entropy(p * 2, p))(torch.ones(3))


def test_bools_times_alpha() -> None:
    x = torch.tensor([True, False, True])
    for alpha in (0, 1, 2, True, False):
        run(lambda a, b, n=alpha: torch.add(a, b, alpha=n), x, ~x)


def test_powers_and_shifts_of_bools() -> None:
    """PyTorch's fakes refuse some or say another dtype; Python computes these."""

    def mixed(a: torch.Tensor) -> list[torch.Tensor]:
        return [(a**True) + a * 2, (a << 1) + 1, a**2, a.clone().pow_(True)]

    x = torch.tensor([True, False, True])
    for found, wanted in zip(srcjit.jit(mixed)(x), mixed(x), strict=True):
        assert found.dtype is wanted.dtype
        assert torch.equal(found, wanted)
