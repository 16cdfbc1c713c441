"""Operators that are not tried out before they are compiled: eager has the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from srcjit.passes.evaluate import raising

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
NAMES = sorted(raising._QUIET_POINTWISE | raising._QUIET_OF_WHOLE)


def overloads(name: str) -> Iterator[Any]:
    """Yields the overloads of a name that are looked at here."""
    packet = getattr(torch.ops.aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        operator = getattr(packet, overload)
        known = torch.Tag.pointwise in operator.tags or name in raising._QUIET_OF_WHOLE
        if known and not overload.endswith("out"):
            yield operator


def arguments(operator: Any, dtype: torch.dtype, device: str) -> dict[str, Any] | None:
    """Operands of one element; None where the operator asks for something else."""
    made: dict[str, Any] = {}
    for argument in operator._schema.arguments:
        if argument.has_default_value() and argument.name != "min":
            break
        if str(argument.type) in ("Tensor", "Optional[Tensor]"):
            mask = argument.name in ("mask", "condition")
            made[argument.name] = torch.ones(
                1, dtype=torch.bool if mask else dtype, device=device
            )
        elif str(argument.type) == "List[Tensor]":
            made[argument.name] = [torch.ones(1, dtype=dtype, device=device)]
        elif str(argument.type) == "List[int]":
            made[argument.name] = [0]
        elif str(argument.type) in ("number", "float", "int", "Optional[number]"):
            made[argument.name] = 0 if argument.name == "dim" else 1
        else:
            return None
    return made


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
)
def test_eager_has_the_kernels(device: str) -> None:
    tried = 0
    for name in NAMES:
        types = FLOATS + tuple(raising._WHOLE) * (name in raising._QUIET_OF_WHOLE)
        for operator in overloads(name):
            for dtype in types:
                given = arguments(operator, dtype, device)
                operands = [] if given is None else [*given.values()]
                if operands and raising._is_known_to_have_kernels(name, operands):
                    operator(**given)
                    tried += 1
    assert tried > 500


def test_what_is_not_known_is_tried_out() -> None:
    aten, whole = torch.ops.aten, torch.ones(1, dtype=torch.uint32)
    known = raising._is_known_to_have_kernels
    assert known("eq", (torch.ones(1, dtype=torch.int64), 1))
    assert not known("eq", (whole, 1))
    assert not known("div", (torch.ones(1), 2.0, "floor"))
    assert not known("masked_fill", (torch.ones(1), whole, 1.0))
    mask = torch.ones(1, dtype=torch.bool)
    assert raising.operator_may_raise(aten.sub.Tensor, (mask, mask), {})
