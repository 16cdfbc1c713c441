"""What compiling has looked at is let go of, without a collection of garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import srcjit


class Holder:
    """Something of the program's that is to die when the program drops it."""

    def __init__(self, scale: float) -> None:
        self.scale = scale


def nested_function(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    def scaled(y: torch.Tensor, times: int = 1) -> torch.Tensor:
        return y * holder.scale if times == 0 else scaled(y, times - 1)

    return scaled(x)


def scales(holder: Holder) -> Iterator[float]:
    for factor in (1, 2, 3):
        yield holder.scale * factor


def suspended_generator(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    given = scales(holder)
    return x * next(given)


def broken(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    while x.sum() > 4:
        x = x - holder.scale
    return x


def sizes(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    return x.view(x.size(0) * 2, -1) * holder.scale / x.size(0)


@pytest.mark.parametrize(
    "function", [nested_function, suspended_generator, broken, sizes]
)
def test_objects_are_let_go(function: Callable[..., Any]) -> None:
    jitted = srcjit.jit(function, options={"stage": "specialize"})
    jitted(torch.ones(2, 2), Holder(0.5))  # the first call may import something
    srcjit.reset()
    gc.collect()
    gc.disable()
    try:
        for rows in (4, 6, 8):
            x, holder = torch.ones(rows, 2), Holder(0.5)
            alive = weakref.ref(x), weakref.ref(holder)
            jitted(x, holder)
            del x, holder
            assert [a() for a in alive] == [None, None]
    finally:
        gc.enable()
