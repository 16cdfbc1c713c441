"""Methods whose text names their own class, which the compiler wraps them in, and `super`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.evaluate.support import Programs, name_of

programs = Programs()
X = torch.ones(2)


def opaque(x: Any) -> Any:
    return eval("x", {"x": x})


class Base:
    def __init__(self, n):
        self.n = n

    def number(self):
        return self.n


class Own(Base):
    K = 3
    __hidden = 4

    def after_a_break(self, x):
        print("a break")
        n = opaque(1)
        return x + Own.K + n, Own.__hidden

    def in_a_statement(self, x):
        n = opaque(Own.K)
        return x + Own.K + n

    def in_a_comprehension(self, x, other):
        numbers = [opaque(super(Own, one).number) for one in (other, self)]
        return x + Own.K, [number() for number in numbers]

    def in_a_nested_function(self, x, other):
        def nested(one):
            return opaque(super().number), Own.__hidden

        number, hidden = nested(other)
        return x + number(), hidden, opaque(nested)(self)[0]()

    def in_a_loop(self, x):
        for _ in opaque([1, 2]):
            x = x + Own.K + super().number()
            print(Own.__name__)
        return x

    def without_an_argument(self, x):
        def nested():
            return super().number()

        try:
            return x, nested()
        except RuntimeError as error:
            return x, str(error)


def local_class():
    class Local(Base):
        K = 5

        def method(self, x):
            n = opaque(Local.K)
            print(n)
            return x + Local.K + super().number() + n

    return Local(2)


for name in ("after_a_break", "in_a_statement", "in_a_loop", "without_an_argument"):
    programs(X, whole=False)(getattr(Own(1), name))
programs(X, Own(2), whole=False)(Own(1).in_a_comprehension)
programs(X, Own(2), whole=False)(Own(1).in_a_nested_function)
programs(X, whole=False)(local_class().method)


@programs(X, whole=False)
def super_outside_a_class(x):
    opaque(1)
    return super().number() + x


@pytest.mark.parametrize("program", programs, ids=name_of)
def test_like_eager(program):
    program.check()
