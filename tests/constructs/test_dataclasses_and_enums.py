"""Classes that are made from their fields or members: dataclasses, named tuples, enums."""

from __future__ import annotations

import dataclasses
import enum
from collections import namedtuple
from typing import NamedTuple

import pytest
import torch

from tests.constructs.support import Cases

cases = Cases()


def x():
    return torch.arange(6.0).reshape(2, 3)


@dataclasses.dataclass
class Point:
    a: int
    items: list = dataclasses.field(default_factory=list)
    scale: float = 1.5
    made: int = dataclasses.field(init=False, default=9)


@dataclasses.dataclass(frozen=True, order=True)
class Version:
    major: int
    minor: int = 0


@cases.add("dataclass")
def _():
    def program(x, point):
        made = Point(1, scale=2.0)
        made.items.append(3)
        return (
            x * made.a,
            made,
            made == Point(1, [3], 2.0),
            point == Point(5),
            made.made,
        )

    return program, (x(), Point(5))


@cases.add("dataclass-init-only-field")
def _():
    @dataclasses.dataclass
    class Area:
        width: int
        height: dataclasses.InitVar[int]

        def __post_init__(self, height):
            self.size = self.width * height

    def program(x):
        return x * Area(2, 3).size, Area(height=1, width=4)

    return program, (x(),)


@cases.add("dataclass-frozen-and-ordered")
def _():
    def program(x):
        a, b = Version(1), Version(1, 2)
        return x, a < b, max(a, b), sorted([b, a]), {a: 1}[Version(1)]

    return program, (x(),)


@cases.add("dataclass-frozen-store")
def _():
    def program(x):
        try:
            Version(1).major = 2
        except dataclasses.FrozenInstanceError as error:
            return x, str(error)

    return program, (x(),)


@cases.add("dataclass-replace-asdict")
def _():
    def program(x, point):
        return x, dataclasses.replace(point, a=7), dataclasses.asdict(point)

    return program, (x(), Point(5))


class Pair(NamedTuple):
    a: int
    b: object = 2

    def total(self):
        return self.a + self.b

    @property
    def double(self):
        return self.a * 2


Plain = namedtuple("Plain", "u v", defaults=[5])


@cases.add("named-tuple")
def _():
    def program(x, pair):
        made = Pair(1)
        a, b = made._replace(b=x)
        return (
            made,
            made.total() * b,
            made[1],
            a,
            Plain(x).v,
            pair == (4, 2),
            made < (1, 3),
        )

    return program, (x(), Pair(4))


@cases.add("named-tuple-methods")
def _():
    def program(x, pair):
        return x * pair.total(), pair.double, pair._fields, pair._asdict(), len(pair)

    return program, (x(), Pair(4))


class Color(enum.Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1

    def label(self):
        return self.name.lower()


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@cases.add("enum")
def _():
    def program(x, color):
        y = x * color.value if color is Color.RED else x
        names = [member.name for member in Color]
        return y, Color(2), Color["GREEN"], names, color.label(), color in Color

    return program, (x(), Color.RED)


@cases.add("enum-of-integers")
def _():
    def program(x):
        return x * 2, Number.ONE + 1, Number.TWO == 2, [4, 5, 6][Number.ONE]

    return program, (x(),)


@cases.add("enum-flags")
def _():
    def program(x):
        both = Access.READ | Access.WRITE
        return x, both, Access.READ in both, both & Access.READ

    return program, (x(),)


@pytest.mark.parametrize("name", cases)
def test_construct(name: str) -> None:
    cases.check(name)
