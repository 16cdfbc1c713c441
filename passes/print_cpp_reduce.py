"""Reductions in C++: accumulators, how they are updated, and what is made of them.

Sums and products of floats are accumulated in double, which costs nothing in a loop that
waits for memory, and makes the result the correctly rounded one in nearly every case. Where
all results are rounded to half precision and a row is short, float has digits enough. The
order of additions is fixed by the text and the vector width, never by the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .loops import Reduce
from .print_cpp_values import VARIABLES


@dataclass(frozen=True)
class Accumulator:
    """One variable that a loop updates.

    Attributes:
        name: Its name.
        c_type: Its type.
        identity: Text of the first value.
        clause: Operator of OpenMP's `reduction(<clause> : name)`.
        update: Statement with `{acc}` (this variable) and `{v}` (the value).
        merge: Statement with `{acc}` and `{v}` (an accumulator of another part).
    """

    name: str
    c_type: str
    identity: str
    clause: str
    update: str
    merge: str


@dataclass(frozen=True)
class Plan:
    """How one reduction is computed: accumulators, and the result's text in terms of them."""

    accumulators: tuple[Accumulator, ...]
    result: str


def plan(reduce: Reduce, kind: str, name: str, *, wide: bool = True) -> Plan:
    """Chooses accumulators for `reduce`; `kind` is its kind, or `max` for an `argmax`.

    `name` is the variable that will hold the result; a result that is the accumulator itself
    has that name. `wide`: sums of floats are accumulated in double.
    """
    dtype = reduce.value.dtype
    c_type = VARIABLES[dtype]
    if kind in ("sum", "prod"):
        sign, identity = ("+", "0") if kind == "sum" else ("*", "1")
        update = f"{{acc}} {sign}= {{v}};"
        if dtype is torch.float32 and wide:
            acc = Accumulator(
                f"{name}_acc", "double", identity + ".0", sign, update, update
            )
            return Plan((acc,), "(float){0}")
        if dtype.is_floating_point:
            identity += ".0" if dtype is torch.float64 else ".0f"
        return Plan((Accumulator(name, c_type, identity, sign, update, update),), "{0}")
    if kind in ("any", "all") or dtype is torch.bool:
        some = kind in ("any", "max")
        sign, identity = ("|", "0") if some else ("&", "1")
        update = f"{{acc}} {sign}= {{v}};"
        acc = Accumulator(f"{name}_acc", "int", identity, sign, update, update)
        return Plan((acc,), "{0} != 0")
    sign = ">" if kind == "max" else "<"
    update = f"{{acc}} = {{v}} {sign} {{acc}} ? {{v}} : {{acc}};"
    extreme = Accumulator(name, c_type, _lowest(dtype, kind), kind, update, update)
    if not dtype.is_floating_point:
        return Plan((extreme,), "{0}")
    nan = Accumulator(
        f"{name}_nan", "int", "0", "|", "{acc} |= {v} != {v};", "{acc} |= {v};"
    )
    text = "NAN_F" if dtype is torch.float32 else '__builtin_nan("")'
    return Plan((extreme, nan), f"{{1}} ? {text} : {{0}}")


def _lowest(dtype: torch.dtype, kind: str) -> str:
    if dtype.is_floating_point:
        text = "INFINITY_F" if dtype is torch.float32 else "__builtin_inf()"
        return "-" + text if kind == "max" else text
    info = torch.iinfo(dtype)
    value = info.min if kind == "max" else info.max
    return "(-9223372036854775807 - 1)" if value == -(2**63) else str(value)
