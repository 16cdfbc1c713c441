"""A dataclass whose description has changed since `dataclass` wrote its methods.

`__init__` keeps what it was written with: factories, fields, whether there is a
`__post_init__`. What the class says by now is for `dataclasses.fields` alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import srcjit


def _replaced_factory(cls: Any) -> None:
    cls.__dataclass_fields__["a"].default_factory = lambda: [1, 2, 3]


def _replaced_cell(cls: Any) -> None:
    index = next(i for i, n in enumerate(cls.__init__.__code__.co_freevars) if "a" in n)
    cls.__init__.__closure__[index].cell_contents = lambda: [1, 2, 3, 4]


def _removed(cls: Any) -> None:
    del cls.__dataclass_fields__["a"]


def _no_argument(cls: Any) -> None:
    cls.__dataclass_fields__["b"].init = False


def _post_init(cls: Any) -> None:
    cls.__post_init__ = lambda self: self.a.append(7)


def _other_defaults(cls: Any) -> None:
    cls.__init__.__defaults__ = (*cls.__init__.__defaults__[:-1], 9)


CHANGES = [
    _replaced_factory,
    _replaced_cell,
    _removed,
    _no_argument,
    _post_init,
    _other_defaults,
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("before", [True, False])
def test_change(change, before):
    @dataclass
    class C:
        a: list = field(default_factory=lambda: [1])
        b: int = 2

    def f(x):
        c = C()
        return x * len(c.a) + c.b

    x = torch.ones(3)
    jitted = srcjit.jit(f)
    if before:
        assert jitted(x).equal(f(x))
    change(C)
    assert jitted(x).equal(f(x))


def test_a_class_that_inherits_init():
    @dataclass
    class B:
        a: int = 1

    @dataclass(init=False)
    class C(B):
        c: int = 2

    def f(x):
        made = C(3)
        return x + made.a, sorted(vars(made))

    x = torch.ones(3)
    value, names = srcjit.jit(f)(x)
    expected, wanted = f(x)
    assert value.equal(expected) and names == wanted


def test_slots_with_a_default():
    @dataclasses.dataclass(slots=True)
    class C:
        a: int = 1
        b: int = field(init=False, default=5)

    def f(x):
        made = C()
        return x + made.a + made.b

    x = torch.ones(3)
    assert srcjit.jit(f)(x).equal(f(x))
