"""Sizes and indices as Python, C++ and Triton text mean what the expressions mean."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv, Mod

from srcjit.passes import print_cpp_values, print_triton_values
from srcjit.passes.evaluate.size_text import spelled
from srcjit.passes.loops import Expr
from srcjit.passes.spelling import spell_expr

N, M = (sympy.Symbol(name, integer=True, positive=True) for name in "nm")
NAMES = {N: "n", M: "m"}
TRITON = SimpleNamespace(maximum=max, minimum=min)


def expression(pick: random.Random, depth: int, bounds: bool) -> Expr:
    """A random non-negative expression, as sizes and indices are."""
    if depth == 0:
        return pick.choice([N, M, sympy.Integer(pick.randint(1, 9))])
    one, two = (expression(pick, depth - 1, bounds) for _ in range(2))
    match pick.randrange(7 if bounds else 6):
        case 0:
            return one + two
        case 1:
            return one * two
        case 2:
            return FloorDiv(one, pick.choice([N, sympy.Integer(2), two + 1]))
        case 3:
            return Mod(one, pick.choice([M + 1, sympy.Integer(3)]))
        case 4:
            return one + 100 * two * N - FloorDiv(one, 2) - pick.randint(0, 9)
        case 5:
            return one**2
        case _:
            return sympy.Max(one, two) + sympy.Min(one, 2 * two)


@pytest.mark.parametrize("language", ["host", "guard", "cpp", "triton"])
def test_text_means_the_expression(language: str) -> None:
    pick = random.Random(0)
    for _ in range(200):
        wanted = expression(pick, pick.randint(1, 3), language != "cpp")
        match language:
            case "host":
                text = spell_expr(wanted, NAMES)
            case "guard":
                text = spelled(wanted, NAMES)
            case "cpp":
                text = print_cpp_values.index_text(wanted, NAMES).text
                text = text.replace("/", "//")
            case _:
                text = print_triton_values.index_text(wanted, NAMES)[0]
        for n, m in (1, 1), (5, 2), (6, 7), (13, 4):
            value = int(wanted.subs({N: n, M: m}))
            names = {"n": n, "m": m, "tl": TRITON}
            assert eval(text, names) == value, (wanted, text, n, m)


def test_a_quotient_in_a_product_stands_in_brackets() -> None:
    half = FloorDiv(N + 1, 2)
    assert spell_expr(2 * half, NAMES) == "2*((n + 1) // 2)"
    assert spell_expr(half - FloorDiv(N, 2), NAMES) == "(n + 1) // 2 - n // 2"
