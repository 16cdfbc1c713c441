"""One object reached by several paths: a store by one is seen by the others."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

import srcjit
from tests.harness import no_faults

COUNT = 0
HERE = types.ModuleType("tests.evaluate.elsewhere")
exec(
    "count = 0\ndef bump():\n    global count\n    count = count + 1\n    return count\n",
    HERE.__dict__,
)


class Box:
    def __init__(self) -> None:
        self.n = 1
        self.items = [1]


def _same_object(t, a, b):
    before = b.n
    a.n = before + 1
    a.items.append(a.n)
    return t * b.n, before, len(b.items), b.items[-1]


def _attribute_of_two(t, a, b):
    a.items = b.items
    a.items.append(7)
    first = b.items[-1]
    b.items = [0]
    return t * first, len(a.items), b.items


def _shared_cell():
    k = 1

    def bump():
        nonlocal k
        k += 1
        return k

    def program(t, a, b):
        before = k
        bump()
        return t * k, before, bump(), k

    return program


def _module_variable(t, a, b):
    HERE.count = 5
    return t * HERE.count


CASES: dict[str, Any] = {
    "same_object": lambda: _same_object,
    "attribute_of_two": lambda: _attribute_of_two,
    "shared_cell": _shared_cell,
    "module_variable": lambda: _module_variable,
}


@pytest.mark.parametrize("name", CASES)
def test_paths(name: str) -> None:
    plain, other = CASES[name](), CASES[name]()
    jitted = srcjit.jit(other, options={"stage": "specialize"})
    t = torch.ones(2)
    pairs = []
    for _ in range(2):
        one, two = Box(), Box()
        pairs.append(([one, one], [one, two], [two, one]))
    with no_faults():
        for left, right in zip(*pairs):
            expected = plain(t, *left)
            actual = jitted(t, *right)
            assert torch.equal(
                actual[0] if isinstance(actual, tuple) else actual,
                expected[0] if isinstance(expected, tuple) else expected,
            )
            if isinstance(expected, tuple):
                assert actual[1:] == expected[1:]
            assert [vars(b) for b in left] == [vars(b) for b in right]


def test_guards_survive_a_rollback() -> None:
    def program(t, d):
        n = len(d)
        both = [d["w"].shape[0], print("", end="")]
        return d["w"] * d["w"].shape[0] + both[0] + n

    jitted = srcjit.jit(program, options={"stage": "specialize"})
    for size in (2, 3):
        d = {"w": torch.ones(size)}
        assert torch.equal(jitted(torch.ones(2), d), program(torch.ones(2), d))
