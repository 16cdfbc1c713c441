"""A-normal form: texts, and random programs that must do the same in the same order."""

from __future__ import annotations

import doctest
import random

import libcst as cst
import pytest
from generate import EXAMPLES, NAMES, Generator
from hypothesis import given, settings
from hypothesis import strategies as st
from tracing import outcome

from srcjit.origin import Origins
from srcjit.passes import hints, namer
from srcjit.passes import normalize as module
from srcjit.passes.namer import Namer
from srcjit.passes.normalize import normalize
from srcjit.passes.scopes import local_names, reads


@pytest.mark.parametrize("tested", [hints, namer, module])
def test_docstrings(tested):
    assert doctest.testmod(tested).failed == 0


def normalize_block(statements, taken, origins, **how):
    """Normalizes every statement of a block and of the blocks in it."""
    made = []
    for statement in statements:
        for out in normalize(statement, taken, origins, **how):
            made.append(out.visit(_Blocks(taken, origins, how)))
    return made


class _Blocks(cst.CSTTransformer):
    def __init__(self, taken, origins, how):
        self.how = (taken, origins, how)

    def visit_FunctionDef(self, node):
        return False

    def visit_IndentedBlock(self, node):
        return False

    def leave_IndentedBlock(self, original, updated):
        taken, origins, how = self.how
        return updated.with_changes(
            body=normalize_block(updated.body, taken, origins, **how)
        )


def normalized(text: str, **how) -> str:
    tree = cst.parse_module(text)
    (function,) = tree.body
    taken = Namer(reads(function.body) | local_names(function))
    body = normalize_block(function.body.body, taken, Origins(), **how)
    return tree.with_changes(
        body=[function.with_changes(body=function.body.with_changes(body=body))]
    ).code


def unstable_names(text: str) -> set[str]:
    (function,) = cst.parse_module(text).body
    return local_names(function) | set(NAMES)


def check(text: str, seed: int) -> None:
    try:
        compile(text, "f", "exec")
    except SyntaxError:
        return
    new = normalized(text, unstable=unstable_names(text))
    expected, got = outcome(text, seed), outcome(new, seed)
    assert got == expected, f"seed {seed}\n{text}\n{new}"
    again = normalized(new, unstable=unstable_names(text))
    assert again == new, "not stable"


def test_a_chained_comparison_reads_its_operands_in_order():
    for chain in ("b < d <= a", "b < a <= d", "d < b <= a", "a < d <= (d := b)"):
        check(f"def f(a, b, c):\n    del b\n    {chain}\n    return (a, c)\n", 0)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 50))
def test_random_programs(chance, seed):
    check(Generator(chance, closures=True).function(), seed)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 50))
def test_random_expressions(chance, seed):
    check(Generator(chance, expressions=3, depth=0).function(3), seed)


if __name__ == "__main__":
    import sys

    start, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(start, start + count):
        chance = random.Random(number)
        check(
            Generator(
                chance, chance.choice([1, 2, 3]), chance.choice([0, 1, 2]), True
            ).function(),
            number,
        )
