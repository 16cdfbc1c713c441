"""Names that the compiler makes are none of those in the text that it puts them into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.evaluate import elsewhere
from tests.evaluate.support import Programs, name_of

programs = Programs()
X = torch.ones(2)


def opaque(x: Any) -> Any:
    return eval("x", {"x": x})


def intermediate(x, n):
    opaque_n = 5
    n_1 = 7
    y = x[opaque(n)] + opaque(opaque(n) * opaque_n)
    z = n_1 + n
    return y, opaque_n, z


@programs([1, 2, 3], 1, whole=False)
def an_intermediate_value_in_a_callee(x, n):
    n_2 = n + 1
    return intermediate(x, n), n_2, n


def closing_over(
    i3: list[int], body_1: int, value: int, how: int
) -> Callable[..., Any]:
    def inner(x, n):
        try:
            x = x + 1
            r = n = i3
            if opaque(value) > 100:
                return None
        except ValueError as error:
            print(error)
        return n, r, i3, value, how, body_1

    return inner


closure = closing_over([3], 1, 2, 3)


@programs(X, 2, whole=False)
def an_intermediate_value_and_a_cell(x, n):
    return closure(x, n)


def loops(x, n):
    remaining, item, turn, condition, result = 1, 2, 3, 4, 5
    for i in range(3):
        x = x + i
        if bool(x.sum() > 3):
            break
        print(i)
    while opaque(n) > 2:
        n -= 1
        if opaque(n) == 1:
            return opaque(n)
    return x, remaining, item, turn, condition, result


@programs(X, 4, whole=False)
def the_rest_of_a_loop(x, n):
    return loops(x, n), n


@programs(X, 3, whole=False)
def a_parameter_of_a_lambda(x, k):
    y = x
    x = x + 1
    f = opaque((lambda x_1: x_1 * x, y))
    return f[0](k), f[1]


def nested_scopes(x, k):
    x = x + 1

    class Nested:
        x_1 = 3
        x_2 = x

    def f(q, x_1=x):
        return [x_1 * x, q]

    g = opaque((lambda x_1: x_1 * x, [x_1 * x for x_1 in [2, 3]], Nested, f))
    return g[0](k), g[1], g[2].x_1, g[2].x_2, g[3](k)


@programs(X, 5, whole=False)
def names_of_nested_scopes(x, k):
    return nested_scopes(x * 2, k), nested_scopes(x, k), x


class Box:
    def __init__(self, content):
        self.content = content


UNBOUND = 7


@programs(X, 3, whole=False)
def names_of_the_compilers_objects(x, n):
    once = opaque(5)
    for i in range(2):
        for j in range(2):
            try:
                y = opaque(once)
                if opaque(j):
                    continue
                box = Box(opaque(i))
            except ValueError:
                break
            print(i, j, once, UNBOUND)
    for i in opaque([1, 2]):
        if i == 2:
            break
        z = x + i
    return once, y, z, type(box).__module__, box.content, UNBOUND


@programs(X, 3, whole=False)
def names_of_the_compilers_objects_elsewhere(x, n):
    return elsewhere.boxed(x + 1, n), n


@pytest.mark.parametrize("program", programs, ids=name_of)
def test_made_names(program):
    program.check()
