"""Comparisons, logic, choices, conversions and copies, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..definitions import Definition, Read
from ..indexing import Index
from ..loops import Const, Value, cast, op
from .builder import Builder, NoLoopForm, compute_dtype, element
from .float8 import stored
from .pointwise import Scalar, apply, like, rounded_number

# ── comparisons and logic ─────────────────────────────────────────────────────────────────


def _promoted(*arguments: Any) -> torch.dtype:
    """The common dtype of arguments, by eager's rules for tensors and numbers."""
    fakes = [a.node.meta["val"] if isinstance(a, Definition) else a for a in arguments]
    facts: list[Any] = []
    for argument, fake in zip(arguments, fakes, strict=True):
        if isinstance(argument, Definition):
            facts.append(
                torch.empty(
                    (1,) * len(argument.size), dtype=argument.dtype, device="meta"
                )
            )
        elif isinstance(fake, bool | int | float):
            facts.append(fake)
        else:
            raise NoLoopForm("comparison with a number that is only known at run time")
    promoted: torch.dtype = torch.result_type(facts[0], facts[-1])
    return promoted


def comparison(name: str) -> Callable[..., Definition]:
    """Compares in the common dtype, to which numbers are rounded first."""

    def lowering(b: Builder, x: Any, y: Any) -> Definition:
        common = _promoted(x, y)
        work = compute_dtype(common)

        def at(read: Read, index: Index) -> Value:
            values = [
                rounded_number(a, common)
                if not isinstance(a, Definition)
                else cast(element(a, read, index, common), work)
                for a in (x, y)
            ]
            return op(name, *values)

        return b.map(at)

    return lowering


def logical(name: str) -> Callable[..., Definition]:
    """Of truth in the common dtype: a float64 that is 0 as a float32 is false beside one."""

    def lowering(b: Builder, *arguments: Any) -> Definition:
        common = _promoted(*arguments)

        def at(read: Read, index: Index) -> Value:
            values = (element(a, read, index, common) for a in arguments)
            return op(name, *(cast(v, torch.bool) for v in values))

        return b.map(at)

    return lowering


def bits(name: str) -> Callable[..., Definition]:
    def lowering(b: Builder, *arguments: Any) -> Definition:
        return apply(b, lambda *v: op(name, *v), *arguments)

    return lowering


def isnan(b: Builder, x: Definition) -> Definition:
    return _float_test(b, x, lambda v: op("isnan", v))


def isinf(b: Builder, x: Definition) -> Definition:
    return _float_test(b, x, lambda v: op("isinf", v))


def _float_test(b: Builder, x: Definition, form: Scalar) -> Definition:
    if not x.dtype.is_floating_point:
        return b.map(lambda read, index: Const(False, torch.bool))
    return apply(b, form, x, dtype=compute_dtype(x.dtype))


def signed_inf(negative: bool) -> Callable[..., Definition]:
    """isposinf and isneginf."""

    def lowering(b: Builder, x: Definition) -> Definition:
        def test(v: Value) -> Value:
            return op("eq", v, like(v, -math.inf if negative else math.inf))

        return _float_test(b, x, test)

    return lowering


def signbit(b: Builder, x: Definition) -> Definition:
    if x.dtype.is_floating_point:
        return apply(b, lambda v: op("signbit", v), x, dtype=compute_dtype(x.dtype))
    if x.dtype is torch.bool:
        return b.map(lambda read, index: Const(False, torch.bool))
    return apply(b, lambda v: op("lt", v, like(v, 0)), x, dtype=x.dtype)


def where(b: Builder, condition: Definition, x: Any, y: Any) -> Definition:
    dtype = b.fake.dtype

    def at(read: Read, index: Index) -> Value:
        test = element(condition, read, index, torch.bool)
        return op("where", test, *(_stored(a, read, index, dtype) for a in (x, y)))

    return b.map(at)


def _stored(argument: Any, read: Read, index: Index, dtype: torch.dtype) -> Value:
    """An argument in its storage dtype, which a mere choice does not leave."""
    if isinstance(argument, Definition):
        return element(argument, read, index, dtype)
    return stored(argument, dtype)


# ── conversion and copies ─────────────────────────────────────────────────────────────────


def copy_of(b: Builder, x: Definition, **_: Any) -> Definition:
    """`clone`, `_to_copy`: the same elements, perhaps in another dtype."""
    if x.device != b.fake.device and not x.placeless:
        raise NoLoopForm("copy between devices")
    return b.map(lambda read, index: cast(read(x, index), b.fake.dtype))


TABLE: dict[str, Callable[..., Any]] = {
    "aten.isnan": isnan,
    "aten.isinf": isinf,
    "aten.isposinf": signed_inf(False),
    "aten.isneginf": signed_inf(True),
    "aten.signbit": signbit,
    "aten.where": where,
    "aten.clone": copy_of,
    "aten._to_copy": copy_of,
    "aten.logical_not": logical("bitwise_not"),
    "aten.logical_and": logical("bitwise_and"),
    "aten.logical_or": logical("bitwise_or"),
    "aten.logical_xor": logical("bitwise_xor"),
    "aten.bitwise_not": bits("bitwise_not"),
    "aten.bitwise_and": bits("bitwise_and"),
    "aten.bitwise_or": bits("bitwise_or"),
    "aten.bitwise_xor": bits("bitwise_xor"),
    "aten.bitwise_left_shift": bits("shl"),
    "aten.bitwise_right_shift": bits("shr"),
    "aten.__lshift__": bits("shl"),
    "aten.__rshift__": bits("shr"),
    **{
        f"aten.{name}": comparison(name)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    },
}
