"""`match`: every kind of pattern."""

from __future__ import annotations

import dataclasses
import enum

import pytest
import torch

from tests.constructs.support import Cases

cases = Cases()

LIMIT = 3


class Kind(enum.Enum):
    ADD = 1
    MUL = 2


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Duck:
    __match_args__ = ("left",)

    def __init__(self, left, right):
        self.left = left
        self.right = right


def x():
    return torch.linspace(-2, 2, 12).reshape(3, 4)


@cases.add("match-literal-pattern")
def _():
    def program(x, mode):
        match mode:
            case 1 | -1:
                return x
            case "twice":
                return x * 2
            case None:
                return x - 1
        return x.cos()

    return program, (x(), "twice")


@cases.add("match-capture-and-wildcard")
def _():
    def program(x, mode):
        match mode:
            case [_, _]:
                y = x
            case other:
                y = x * other
        return y, other

    return program, (x(), 3)


@cases.add("match-value-pattern")
def _():
    def program(x, kind):
        match kind:
            case Kind.ADD:
                return x + 1
            case Kind.MUL:
                return x * 2

    return program, (x(), Kind.MUL)


@cases.add("match-sequence-pattern")
def _():
    def program(x, items):
        match items:
            case []:
                return x
            case [a, [b, *_], *rest]:
                return x * a + b, rest
            case (a,):
                return x + a

    return program, (x(), [2, (3, 4), 5, 6])


@cases.add("match-mapping-pattern")
def _():
    def program(x, config):
        match config:
            case {"scale": s, "bias": {"value": b}, **rest}:
                return x * s + b, rest
            case {}:
                return x

    return program, (x(), {"scale": 2, "bias": {"value": 1}, "more": 0})


@cases.add("match-class-pattern")
def _():
    def program(x, point):
        match point:
            case Point(0, y=0):
                return x
            case Point(a, y=b):
                return x * a + b

    return program, (x(), Point(2, 3))


@cases.add("match-class-of-builtin")
def _():
    def program(x, value):
        match value:
            case str(text):
                return x, text
            case int(n) | float(n):
                return x * n, n

    return program, (x(), 2.5)


@cases.add("match-args-of-a-class")
def _():
    def program(x, value):
        match value:
            case Duck(2, right=torch.Tensor() as t):
                return x * 2 + t

    return program, (x(), Duck(2, torch.ones(4)))


@cases.add("match-as-and-or-patterns")
def _():
    def program(x, value):
        match value:
            case (1 | 2 as n, [*_] as rest) | (n, rest):
                return x * n, rest

    return program, (x(), (2, [5]))


@cases.add("match-guard")
def _():
    def program(x, value):
        match value:
            case n if n > LIMIT:
                return x * n
            case n if x.shape[0] == n:
                return x - n
            case _:
                return x

    return program, (x(), 3)


@cases.add("match-guard-on-data")
def _():
    def program(x, value):
        match value:
            case n if x.sum() > n:
                y = x * n
            case n:
                y = x - n
        return y.sin()

    return program, (x(), 3)


@cases.add("match-on-tensor-metadata")
def _():
    def program(x):
        match x.shape, x.dtype:
            case (rows, 4), torch.float32:
                return x * rows
            case _:
                return x

    return program, (x(),)


@cases.add("match-no-case")
def _():
    def program(x, value):
        match value:
            case 1:
                x = x + 1
        return x.sin()

    return program, (x(), 2)


@cases.add("match-on-run-time-number")
def _():
    def program(x):
        match int(x.argmax()):
            case 11:
                y = x * 2
            case n:
                y = x * n
        return y.cos()

    return program, (x(),)


@cases.add("match-break-in-a-case")
def _():
    def program(x, value):
        match value:
            case [a, b]:
                x = x * a
                print(a)
                x = x * b
        return x.sin()

    return program, (x(), [1, 2])


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)
