"""Looking at the program's objects runs none of the program's code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import srcjit

SEEN: list[tuple[str, str]] = []
"""Look-ups that the classes below were asked for."""


class Watched:
    """Notes each attribute that it is asked for."""

    def __init__(self) -> None:
        self.value = 3

    def __getattribute__(self, name: str) -> Any:
        SEEN.append(("__getattribute__", name))
        return object.__getattribute__(self, name)

    def method(self, x: Any) -> Any:
        return x + self.value

    def __call__(self, x: Any) -> Any:
        return x

    def __add__(self, other: Any) -> int:
        return 5

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter((1, 2))

    def __index__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return 1


class Disguised(Watched):
    """Says that it is a number."""

    @property
    def __class__(self) -> Any:
        SEEN.append(("property", "__class__"))
        return int

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


def attributes(x: Any, o: Any) -> Any:
    return x + o.value, o.method(x), getattr(o, "value", 1), hasattr(o, "none")


def stores(x: Any, o: Any) -> Any:
    o.value = 5
    return x + o.value


def operators(x: Any, o: Any) -> Any:
    return x, o + 1, o == 1, o != 2, o is None, o in [1, o], not o, o or 1, o and 2


def loops(x: Any, o: Any) -> Any:
    first, second = o
    return x, first, second, list(o), [each for each in o], sum(o)


def kinds(x: Any, o: Any) -> Any:
    return x, isinstance(o, int), isinstance(o, Watched), isinstance(o, (str, list))


def places(x: Any, o: Any) -> Any:
    made = {o: 1}
    print(end="")
    return o(x), made[o], [1, 2, 3][o], {"o": o}, (o,), callable(o)


@pytest.mark.parametrize("made", [Watched, Disguised])
@pytest.mark.parametrize(
    "function", [attributes, stores, operators, loops, kinds, places]
)
def test_look_ups_are_those_of_eager(
    function: Callable[..., Any], made: Callable[[], Any]
) -> None:
    jitted = srcjit.jit(function, options={"stage": "specialize"})
    seen = []
    for call in (function, jitted, jitted):
        argument = made()
        SEEN.clear()
        call(torch.ones(3), argument)
        seen.append(list(SEEN))
    assert seen[1:] == seen[:1] * 2
