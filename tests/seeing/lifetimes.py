"""What programs of lifetimes are made of, and what is seen of them.

Eager is the oracle: when `__del__` and finalizers run, and weak references die, between the
things that the program does.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import srcjit

FOUND: list[Any] = []

_without_source: dict[str, Any] = {"FOUND": FOUND}
exec(
    "def note(*what):\n    FOUND.append(what)\n    return len(FOUND)\n"
    "def opaque(x):\n    return x\n",
    _without_source,
)
note, opaque = _without_source["note"], _without_source["opaque"]


class Noted:
    """Notes when it is dropped."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        FOUND.append(f"drops {self.name}")


class Manager:
    def __enter__(self) -> Manager:
        note("enter")
        return self

    def __exit__(self, *exception: object) -> None:
        note("exit")


def observed(function: Callable[[Tensor], Any]) -> tuple[str, list[Any]]:
    """What a call returns or raises, and what was seen to happen, in order."""
    FOUND.clear()
    try:
        result = str(function(torch.ones(3)))
    except Exception as problem:
        result = repr(problem)
        del problem
    FOUND.append("over")
    found = [what for what in FOUND if not isinstance(what, weakref.ref)]
    FOUND.clear()
    return result, found


def check_lifetimes(function: Callable[[Tensor], Any]) -> None:
    """Compares what is seen of two calls with what is seen in eager."""
    expected = observed(function)
    jitted = srcjit.jit(function, backend="eager")
    for _ in range(2):
        assert observed(jitted) == expected
