"""What is known of a score function, so that its text may be lighter.

Scores behind a soft cap are bounded, so that no weight is a denormal number, unless it is 0:

    >>> from srcjit.passes.loops import ScalarArg, cast, op
    >>> product = ScalarArg("product", torch.float32)
    >>> capped = op("mul", op("tanh", product), Const(30.0, torch.float32))
    >>> magnitude(capped), magnitude(product)
    (30.0, None)
    >>> may_hide(capped)
    False

Values that are rounded to bfloat16 and only used as float32 again stay float32 in the text, two
rounded by one instruction:

    >>> narrow = cast(product, torch.bfloat16)
    >>> score = op("abs", cast(narrow, torch.float32))
    >>> round_trips(tuple(walk([score])), product) == {narrow}
    True

What is rounded twice, before and behind a product with a number that a bfloat16 holds, is one
product of bfloat16 numbers:

    >>> score = op("mul", cast(narrow, torch.float32), Const(30.0, torch.float32))
    >>> rounded = cast(score, torch.bfloat16)
    >>> products = products_of_pairs(
    ...     {narrow, rounded}, tuple(walk([cast(rounded, torch.float32)]))
    ... )
    >>> products == {rounded: (narrow, 30.0)}
    True
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .loops import Const, Op, Value, walk

LARGEST = 43.0
"""exp(-2 * LARGEST) is no denormal float32."""

_WITHIN_ONE = ("tanh", "sigmoid", "sin", "cos", "erf")
_LARGER_OF = ("maximum", "minimum")
_SAME = ("neg", "abs")


def magnitude(value: Value) -> float | None:
    """What the value is at most in magnitude where it is finite, or None."""
    bounds: dict[Value, float | None] = {}
    for v in walk([value]):
        bounds[v] = _bound(v, bounds)
    return bounds[value]


def _bound(v: Value, bounds: dict[Value, float | None]) -> float | None:
    if isinstance(v, Const):
        number = abs(float(v.value))
        return number if math.isfinite(number) else 0.0
    if not isinstance(v, Op) or not v.dtype.is_floating_point:
        return None
    if v.name in _WITHIN_ONE:
        return 1.0
    found = [bounds[a] for a in (v.args[1:] if v.name == "where" else v.args)]
    known = [f for f in found if f is not None]
    if len(known) < len(found):
        return None
    match v.name:
        case "mul":
            return math.prod(known)
        case "add" | "sub":
            return sum(known)
        case "cast" if v.args[0].dtype.is_floating_point:
            # Rounded up, at most.
            return known[0] * (1 + 2.0**-7) if v.dtype.itemsize < 4 else known[0]
        case "where":
            return max(known)
        case name if name in _SAME or name in _LARGER_OF:
            return max(known)
    return None


def may_hide(score: Value) -> bool:
    """Whether a bounded score may be -inf, as where a mask hides a position."""
    return any(
        isinstance(v, Const) and not math.isfinite(float(v.value))
        for v in walk([score])
    )


def round_trips(values: Sequence[Value], product: Value) -> set[Value]:
    """Conversions of float32 to bfloat16 that only conversions back use.

    Args:
        values: All of a score function, operands before their users.
        product: What scores are computed from; what does not depend on it is left alone.
    """
    depends, users = {product}, _users(values)
    for v in values:
        if not depends.isdisjoint(v.operands):
            depends.add(v)
    return {
        v
        for v in values
        if v in depends
        and _is_cast(v, torch.float32, torch.bfloat16)
        and users.get(v)
        and all(_is_cast(u, torch.bfloat16, torch.float32) for u in users[v])
    }


def products_of_pairs(
    rounded: set[Value], values: Sequence[Value]
) -> dict[Value, tuple[Value, float]]:
    """Of round trips, products of another with a number, and that other, which only they use.

    Args:
        rounded: What `round_trips` found.
        values: All of the score function.
    """
    users = _users(values)
    found: dict[Value, tuple[Value, float]] = {}
    for v in values:
        product = v.operands[0] if v in rounded else None
        if not (isinstance(product, Op) and product.name == "mul"):
            continue
        wide, factor = product.args
        if isinstance(wide, Const):
            wide, factor = factor, wide
        if not (
            _is_cast(wide, torch.bfloat16, torch.float32) and isinstance(factor, Const)
        ):
            continue
        (narrow,), number = wide.operands, float(factor.value)
        # A kernel's literal of -0.0 is 0.0.
        exact = number and torch.tensor(number, dtype=torch.bfloat16).item() == number
        alone = [users[x] for x in (narrow, wide, product)] == [[wide], [product], [v]]
        if exact and alone and narrow in rounded and narrow not in found:
            found[v] = narrow, number
    return found


def _users(values: Sequence[Value]) -> dict[Value, list[Value]]:
    users: dict[Value, list[Value]] = {}
    for v in values:
        for operand in v.operands:
            users.setdefault(operand, []).append(v)
    return users


def rounds_pairs(device: torch.device) -> bool:
    """Whether a GPU rounds two numbers at once; true of one that is not there."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return True
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (
        8,
        0,
    )


def _is_cast(v: Value, source: torch.dtype, target: torch.dtype) -> bool:
    casts = isinstance(v, Op) and v.name == "cast" and v.dtype is target
    return casts and v.operands[0].dtype is source
