"""Compiles calls of the table, many in one segment, and compares them with eager."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from srcjit.options import Options
from srcjit.passes import lower as lower_pass
from srcjit.passes import segment as segment_pass
from srcjit.passes.loops import FLOAT8
from srcjit.passes.lowerings import gathers, interpolation
from srcjit.ptx_info import ptx_info
from tests.backend.support import load, segment_of
from tests.lowerings.table import ACCURATE, Call, Operands

OF_FAKES = ("pow number", "lshift number", "rshift number")
"""Rows of which PyTorch's fakes refuse some calls of bools that eager takes."""

INTEGER_OF = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@contextmanager
def recorded() -> Iterator[set[str]]:
    """The names of lowerings that gave a loop form."""
    used: set[str] = set()

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            used.add(name)
            return made

        return run

    table, checked = lower_pass.TABLE, gathers.CHECKED
    gathered = interpolation.GATHERED
    noted = {name: noting(name, function) for name, function in table.items()}
    lower_pass.TABLE, gathers.CHECKED = noted, {"cpu", "cuda"}
    interpolation.GATHERED = {"cpu", "cuda"}
    try:
        yield used
    finally:
        lower_pass.TABLE, gathers.CHECKED = table, checked
        interpolation.GATHERED = gathered


def accepted(
    rows: Mapping[str, list[Call]], operands: Operands
) -> list[tuple[str, Any]]:
    """The calls of these rows that eager does not refuse."""
    found = []
    floats = operands.x.is_floating_point()
    mode = FakeTensorMode()
    fakes = Operands(*map(mode.from_tensor, operands.tensors))
    for name, calls in rows.items():
        if "_norm" in name and not operands.x.numel():
            continue  # eager leaves the statistics of nothing as they were in memory
        if "softmax" in name and not floats:
            continue  # eager takes other dtypes only where there is nothing to compute
        if not floats and ("_loss" in name or "dropout" in name):
            continue  # eager's process dies of some, and integers have no gradient
        for number, call in enumerate(calls):
            try:
                result = call(operands)
                if "backward" in name or "batch_norm" in name:
                    with mode:  # PyTorch's fakes divide by a number of elements of 0
                        call(fakes)
                if operands.x.dtype is torch.bool and name in OF_FAKES:
                    with mode:  # left to Python where these raise or say another dtype
                        if call(fakes).dtype is not result.dtype:
                            continue
            except (RuntimeError, IndexError, ZeroDivisionError, TypeError, ValueError):
                continue
            parts = result if isinstance(result, tuple | list) else (result,)
            if not any(p.is_complex() for p in parts):
                found.append((f"{name} {number}", call))
    return found


def parts_of(result: Any) -> tuple[torch.Tensor, ...]:
    """The tensors of one result or of several, copied: a mere view would need no kernel."""
    parts = result if isinstance(result, tuple | list) else (result,)
    return tuple(torch.ops.aten.clone(p) for p in parts)


def problems(
    rows: Mapping[str, list[Call]],
    operands: Operands,
    language: str,
    *,
    symbolic: bool = False,
) -> list[str]:
    """What differs from eager, one line a call; all calls are in one segment.

    With `symbolic`, sizes of tensors are known when it runs.
    """
    calls = accepted(rows, operands)
    if not calls:
        return []
    counts = [len(parts_of(call(operands))) for _, call in calls]

    def run(x: Any, y: Any, z: Any, flag: Any, places: Any) -> tuple[Any, ...]:
        given = Operands(x, y, z, flag, places)
        return tuple(p for _, call in calls for p in parts_of(call(given)))

    segment = segment_of(run, *operands.tensors, dynamic=symbolic)
    functional = segment_pass.functionalize(segment)
    assert not functional.torch_level, functional.reason
    target = "cpp" if language == "cpp" else "triton"
    code = segment_pass.compile_segment(segment, Options(target=target))
    if language == "sm_90":
        return uncompiled("\n".join([*code.imports, code.definitions, code.function]))
    got = load(code)(*operands.tensors)
    found, start = [], 0
    # Eager has several loops for one operator; which runs depends on the layout.
    scattered = Operands(*map(one_by_one, operands.tensors))
    dense = Operands(*(a.contiguous() for a in operands.tensors))
    for (name, call), count in zip(calls, counts, strict=True):
        mine = got[start : start + count]
        start += count
        others = [parts_of(call(operands))]
        for given in (scattered, dense):
            with contextlib.suppress(RuntimeError):
                others.append(parts_of(call(given)))
        if "norm_backward" in name and operands.x.dtype.itemsize == 2:
            # Eager rounds sums over rows on their way.
            exact = parts_of(call(Operands(*map(in_double, operands.tensors))))
            others.append(tuple(p.to(o.dtype) for p, o in zip(exact, others[0])))
        if "_reshape_alias" in name:  # it means other elements in another layout
            del others[1:]
        sums = magnitudes(name, call, operands)
        for place, g in enumerate(mine):
            expected = [o[place] for o in others]
            problem = difference(name, g, expected, operands, sums)
            if problem:
                found.append(f"{name}: {problem}")
    return found


def uncompiled(text: str) -> list[str]:
    """Why the kernels of a text cannot be compiled for an H100; no GPU is needed."""
    try:
        lines = ptx_info(text, "sm_90")
    except Exception as reason:
        return [repr(reason)[:500]]
    return [] if lines or "@triton.jit" not in text else ["no kernels"]


def magnitudes(name: str, call: Call, operands: Operands) -> torch.Tensor | None:
    """What a sum or product of integers would be if all of them were positive.

    The error of their sum in floats is relative to that, and whether the product overflows
    before it meets a 0 depends on the order.
    """
    first, x = name.split()[0], operands.x.double().abs()
    if operands.x.is_floating_point():
        return None
    if first == "prod":
        x = x.clamp(min=1)
    elif first not in ("sum", "mean", "nansum", "nanmean"):
        return None
    result = call(replace(operands, x=x))
    return result if isinstance(result, torch.Tensor) else None


def in_double(a: torch.Tensor) -> torch.Tensor:
    """The same values as float64, where they are floating-point numbers."""
    return a.double() if a.is_floating_point() else a


def one_by_one(a: torch.Tensor) -> torch.Tensor:
    """The same values so laid out that eager does not vectorize its loop."""
    if not a.dim() or a.dtype.itemsize == 1:
        return a
    wide = torch.stack([a, a], -1)
    return wide[..., 0]


def difference(
    name: str,
    got: torch.Tensor,
    expected: list[torch.Tensor],
    operands: Operands,
    sums: torch.Tensor | None = None,
) -> str:
    """Says how a result differs from all of eager's, or nothing."""
    first = expected[0]
    if got.dtype is not first.dtype or got.shape != first.shape:
        return f"{got.dtype}{tuple(got.shape)}, not {first.dtype}{tuple(first.shape)}"
    wrong = torch.ones(got.shape, dtype=torch.bool)
    if operands.x.dtype in FLOAT8 and first.dtype in INTEGER_OF.values():
        # What integer NaN becomes C++ leaves open, and eager's compiler has chosen.
        if operands.x.shape == got.shape:
            wrong = ~operands.x.float().isnan()
    for e in expected:
        far = differs(name, got, e)
        if sums is not None and got.dtype.is_floating_point:
            # Halves are sums of float32, rounded.
            unit = torch.finfo(torch.promote_types(got.dtype, torch.float32)).eps
            error = (got.double() - e.double()).abs()
            far &= ~(error <= 8 * unit * sums.double()) & ~sums.isinf()
        wrong &= far
    if not wrong.any():
        return ""
    at = wrong.nonzero()[0].tolist()
    where = tuple(at)
    inputs = ""
    if operands.x.shape == got.shape:
        values = [t.expand(got.shape)[where].item() for t in operands.tensors[:3]]
        inputs = f" of {values}"
    wants = " or ".join(dict.fromkeys(repr(e[where].item()) for e in expected))
    return (
        f"{int(wrong.sum())} elements; {got.dtype} at {where}{inputs}: "
        f"{got[where].item()!r}, not {wants}"
    )


def ordered(a: torch.Tensor) -> torch.Tensor:
    """Floats as int64 in the same order, neighbours one apart; both zeros are 0."""
    bits = a.contiguous().view(INTEGER_OF[a.dtype.itemsize]).to(torch.int64)
    if a.dtype.itemsize == 1:
        bits = torch.where(bits >= 128, 128 - bits, bits)
        return bits
    low = -(2 ** (8 * a.dtype.itemsize - 1))
    return torch.where(bits < 0, low - bits, bits)


SUMS = "sum mean prod var std softmax norm logsumexp".split()


def tolerance(name: str, dtype: torch.dtype) -> tuple[int, float]:
    """Units in the last place, and an absolute error, that a result may be off."""
    plain = name.split()[0].removeprefix("aten.").removeprefix("linalg.")
    plain = plain.split(".")[0].rstrip("_")
    low = dtype.itemsize <= 2
    reduced = plain.endswith("_loss") and not name.endswith(" 0")
    if reduced or any(part in plain for part in SUMS):
        return (2 if low else 64), torch.finfo(dtype).eps * 64
    if plain in ACCURATE or plain in ("pow", "float_power", "atan2", "hypot"):
        return (1 if low else 4), 0.0
    if plain == "upsample_bilinear2d":  # of neighbours up to 30, whose sum cancels
        return (1 if low else 8), torch.finfo(dtype).eps * (1 if low else 256)
    if plain == "sqrt":  # eager's of integers is off by one unit
        return 1, 0.0
    if plain in COMPOSED:
        return (1 if low else 8), torch.finfo(dtype).eps * (1 if low else 32)
    return 0, 0.0


MIXED_EXTREMES = (
    "max",
    "min",
    "clamp",
    "fmax",
    "fmin",
    "amax after",
    "amin of all",
    "several",
    "centre",
)
"""Beginnings of rows, other than those of ATen's operators, that take the larger or smaller."""

COMPOSED = (
    "arange logit gelu gelu_backward silu mish softplus elu celu silu_backward softplus_backward "
    "elu_backward mish_backward logaddexp logaddexp2 log_sigmoid_forward log_sigmoid_backward "
    "glu glu_backward sinc xlogy logit_backward soft_margin_loss soft_margin_loss_backward "
    "huber_loss_backward binary_cross_entropy_with_logits"
).split()
"""Operators made of functions and sums, which lose digits where these cancel."""


def differs(name: str, got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Which elements are not eager's."""
    if not got.dtype.is_floating_point:
        return got != expected
    nan = expected.float().isnan() if got.dtype.itemsize == 1 else expected.isnan()
    other = got.float().isnan() if got.dtype.itemsize == 1 else got.isnan()
    ulps, absolute = tolerance(name, got.dtype)
    g, e = ordered(got), ordered(expected)
    wide = got.double() - expected.double()
    far = ((g - e).abs() > ulps) & ~(wide.abs() <= absolute)
    far &= ~((e == 0) & (wide.abs() <= 4 * torch.finfo(got.dtype).tiny) & (ulps > 0))
    sign = got.float().signbit() != expected.float().signbit()
    plain = name.removeprefix("aten.")
    if absolute or ulps or plain.startswith(("fm", "logit_backward")):
        sign = sign & False
    if plain.startswith(MIXED_EXTREMES) and not name.startswith("aten."):
        # Which of two zeros is the largest depends on which of eager's loops runs.
        sign = sign & False
    if plain.startswith(("fmod", "remainder", "mod number")) and not name.startswith(
        "aten."
    ):
        # Of some quotients eager's vectorized loop makes NaN, its other one the rest.
        far &= ~nan
        sign &= ~nan
        nan = nan & other
    if any(
        part in name for part in ("var_mean", "std_mean", "layer_norm", "group_norm")
    ):
        # Eager's running mean makes a NaN of an infinity, unless that is the last element.
        nan = nan & ~got.isinf()
        far &= ~expected.isnan()
    return torch.where(nan | other, nan != other, far | sign)
