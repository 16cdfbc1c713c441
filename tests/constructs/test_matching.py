"""`match`: every kind of pattern."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tests.constructs.support import Cases

cases = Cases()


@dataclasses.dataclass
class Point:
    x: int
    y: int


def x() -> torch.Tensor:
    return torch.linspace(-2, 2, 12).reshape(3, 4)


@cases.add("match-class-pattern")
def match_class_pattern():
    def program(x, point):
        match point:
            case Point(0, y=0):
                return x
            case Point(a, y=b):
                return x * a + b

    return program, (x(), Point(2, 3))


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)
