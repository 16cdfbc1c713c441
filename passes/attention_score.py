"""What is known of a score function, so that its text may be lighter.

Scores behind a soft cap are bounded, so that no weight is a denormal number, unless it is 0:

    >>> from srcjit.passes.loops import ScalarArg, cast, op
    >>> product = ScalarArg("product", torch.float32)
    >>> capped = op("mul", op("tanh", product), Const(30.0, torch.float32))
    >>> magnitude(capped), magnitude(product)
    (30.0, None)

Values that are rounded to bfloat16 and only used as float32 again stay float32 in the text, two
rounded by one instruction:

    >>> narrow = cast(product, torch.bfloat16)
    >>> score = op("abs", cast(narrow, torch.float32))
    >>> round_trips(tuple(walk([score])), product) == {narrow}
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


def round_trips(values: Sequence[Value], product: Value) -> set[Value]:
    """Conversions of float32 to bfloat16 that only conversions back use.

    Args:
        values: All of a score function, operands before their users.
        product: What scores are computed from; what does not depend on it is left alone.
    """
    depends, users = {product}, dict[Value, list[Value]]()
    for v in values:
        if not depends.isdisjoint(v.operands):
            depends.add(v)
        for operand in v.operands:
            users.setdefault(operand, []).append(v)
    return {
        v
        for v in values
        if v in depends
        and _is_cast(v, torch.float32, torch.bfloat16)
        and users.get(v)
        and all(_is_cast(u, torch.bfloat16, torch.float32) for u in users[v])
    }


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
