"""Loops are cut and unrolled where conditions on indices change their answer.

Each program is compared with eager, and on the CPU no loop over more than a vector asks at
each point which piece it is in, or divides to find its place.
"""

from __future__ import annotations

import linecache
import operator
import re
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch.nn import functional
from torch.utils._sympy.functions import FloorDiv, Mod

import srcjit
from srcjit.passes.indexing import simplify, symbol
from srcjit.passes.loops import Axis, Const, IndexValue, Load, Store, op
from srcjit.passes.pieces import pieces
from tests.backend.examples import buffer
from tests.backend.support import compiled

PROGRAMS: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "roll of a matrix as one row": ("torch.roll(x, 1) + x", ((48, 40),)),
    "roll of it by rows and a half": ("torch.roll(x, 1020) * 2 + x", ((48, 40),)),
    "the same beside a row": ("torch.roll(x, 63) + y", ((48, 40), (40,))),
    "and beside a column": ("torch.roll(x, 63) + y", ((48, 40), (48, 1))),
    "roll back": ("torch.roll(x, -3) + x", ((48, 40),)),
    "roll by more than there is": ("torch.roll(x, 5000) + x", ((48, 40),)),
    "roll of nothing": ("torch.roll(x, 1) + x", ((0, 4),)),
    "roll of one": ("torch.roll(x, 1) + x", ((1,),)),
    "roll along rows": ("torch.roll(x, 3, 1) + x", ((48, 40),)),
    "roll along columns": ("torch.roll(x, -7, 0) + x", ((48, 40),)),
    "roll along both": ("torch.roll(x, (5, -2), (0, 1)) + x", ((48, 40),)),
    "sums of a roll": ("(torch.roll(x, 3, 1) * x).sum(1)", ((48, 40),)),
    "sum of a roll": (
        "(torch.roll(x, -1, 1) * y).mean()",
        ((300, 200),) * 2,
    ),
    "softmax of a roll": ("torch.softmax(torch.roll(x, 2, 1) + x, 1)", ((48, 40),)),
    "argmax of a roll": ("(torch.roll(x, 1, 1) - x).argmax(1)", ((48, 40),)),
    "roll of a roll": ("torch.roll(torch.roll(x, 1), 2, 1) + x", ((48, 40),)),
    "roll of a transpose": ("torch.roll(x.t(), 1) + y", ((48, 40), (40, 48))),
    "cat": ("torch.cat([x + 1, y * 2], 1)", ((48, 40), (48, 24))),
    "cat of rows": ("torch.cat([x + 1, y * 2])", ((48, 40), (24, 40))),
    "cat of four": ("torch.cat([x + 1, y, x * 2, y.exp()], 1)", ((48, 40), (48, 3))),
    "halves": ("torch.cat([x + y, x - y], 1)", ((48, 40), (48, 40))),
    "halves of rows": ("torch.cat([x + y, x - y])", ((48, 40), (48, 40))),
    "rotary": ("torch.cat([-x[:, 20:], x[:, :20]], 1) * y + x", ((48, 40), (40,))),
    "stack": ("torch.stack([x + y, x - y], -1)", ((48, 40), (48, 40))),
    "stack of three": ("torch.stack([x + y, x - y, x], -1)", ((48, 40), (48, 40))),
    "stack of rows": ("torch.stack([x + y, x - y])", ((48, 40), (48, 40))),
    "stack between": ("torch.stack([x + y, x - y], 1)", ((48, 40), (48, 40))),
    "stacked flat": (
        "torch.stack([x, y], -1).flatten(1) * z",
        ((48, 40), (48, 40), (48, 80)),
    ),
    "a first row of three": (
        "torch.cat([x[:1] + 1, x[1:] + y[0]])",
        ((3, 40), (3, 40)),
    ),
    "five columns": ("torch.cat([x[:, :2], x[:, 2:] + y], 1)", ((40, 5), (40, 1))),
    "small stack": ("torch.stack([x + y, x - y], -1)", ((3,), (3,))),
    "pad": ("functional.pad(x, (2, 3)) * 2", ((48, 40),)),
    "pad with more": ("functional.pad(x, (1, 20, 3, 1), value=4.0) * 2", ((48, 40),)),
    "cropped": ("functional.pad(x, (-2, 3)) * 2", ((48, 40),)),
    "padded stencil": (
        "functional.pad(x, (1, 1))[:, 2:] + functional.pad(x, (1, 1))[:, :-2]",
        ((48, 40),),
    ),
    "sine of a cat": ("torch.cat([x.sin(), y], 1).cos()", ((8, 1500), (8, 700))),
    "sum of a cat": ("torch.cat([x, y], 1).sum(1)", ((48, 40), (48, 24))),
    "ints and bools": ("torch.cat([(x > 0).long(), y.long()], 1)", ((8, 40), (8, 24))),
    "arange below": ("torch.where(torch.arange(40) < 17, x, y)", ((48, 40), (48, 40))),
    "arange from": ("torch.where(torch.arange(40) >= 17, x, -x)", ((48, 40),)),
    "arange at": ("torch.where(torch.arange(40) == 17, x, -x)", ((48, 40),)),
    "arange but for": ("x * (torch.arange(40) != 3)", ((48, 40),)),
    "every other": ("torch.where(torch.arange(40) % 2 == 1, x, -x)", ((48, 40),)),
    "triangle": ("torch.tril(x) + torch.triu(x, 2)", ((48, 40),)),
    "reversed arange": ("torch.where(39 - torch.arange(40) > 9, x, -x)", ((48, 40),)),
}


def written(text: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {"torch": torch, "functional": functional}
    source = f"def program(x, y=None, z=None):\n    return {text}\n"
    name = f"<pieces {len(linecache.cache)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    exec(compile(source, name, "exec"), scope)
    made: Callable[..., Any] = scope["program"]
    return made


def tensors(shapes: tuple[tuple[int, ...], ...]) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(*s) for s in shapes]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_eager_gives(name: str) -> None:
    text, shapes = PROGRAMS[name]
    function, arguments = written(text), tensors(shapes)
    jitted = srcjit.jit(function)
    for _ in range(2):
        torch.testing.assert_close(
            jitted(*arguments), function(*arguments), rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("name", ["cat", "halves", "stack", "pad", "arange below"])
def test_sizes_may_be_symbols(name: str) -> None:
    text, shapes = PROGRAMS[name]
    function = written(text.replace("torch.arange(40)", "torch.arange(x.shape[1])"))
    jitted = srcjit.jit(function, dynamic=True)
    for rows in (48, 5, 17):
        arguments = [torch.randn(rows, *s[1:]) for s in shapes]
        torch.testing.assert_close(jitted(*arguments), function(*arguments))


def text_of(name: str) -> str:
    """The C++ text of a program's kernels."""
    text, shapes = PROGRAMS[name]
    return str(compiled(written(text), *tensors(shapes)).text)


def long_loops(text: str) -> list[str]:
    """Bodies of the innermost loops over more points than a vector has."""
    loop = r"for \(long \w+ = (\d+); \w+ < (\d+); \+\+\w+\) \{\n([^{}]*)\}"
    found = re.findall(loop, text)
    return [body for first, last, body in found if int(last) - int(first) >= 16]


UNCUT = {
    "roll of nothing",
    "five columns",
    "roll of a roll",  # where it wraps shows only behind the first cut
    "roll of one",
    "softmax of a roll",  # the larger of two is chosen
    "argmax of a roll",
    "triangle",  # its answers change elsewhere in each row
    "roll of a transpose",  # it is computed in tiles
    "small stack",
    "sine of a cat",  # blocks, whose limits are no numbers
}


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in UNCUT])
def test_long_loops_ask_and_divide_nothing(name: str) -> None:
    text = text_of(name)
    assert long_loops(text)
    for body in long_loops(text):
        code = re.sub("//.*", "", body)
        assert not re.search(r"[?%/]", code), code


@pytest.mark.parametrize("name", ["halves", "halves of rows", "stack", "stack between"])
def test_what_pieces_share_is_computed_once(name: str) -> None:
    text = text_of(name)
    (body,) = long_loops(text)
    for name in ("x", "y"):
        assert len(re.findall(rf"\b{name}\[", body)) == 1, body


def test_memory_is_written_in_place_by_unrolled_statements() -> None:
    def turn(x: torch.Tensor) -> torch.Tensor:
        x.copy_(torch.stack([x[:, 0] + 1, x[:, 1] * 2], 1))
        return x * 2

    def swap(x: torch.Tensor) -> None:
        x.copy_(torch.stack([x[:, 1] + 1, x[:, 0] * 2], 1))

    def shift(x: torch.Tensor) -> None:
        x.copy_(torch.roll(x, 1))

    for function in (turn, swap, shift):
        jitted = srcjit.jit(function)
        first = torch.randn(100, 2)
        second = first.clone()
        for _ in range(2):
            torch.testing.assert_close(jitted(first), function(second))
            torch.testing.assert_close(first, second)


# ── a kernel's pieces ─────────────────────────────────────────────────────────────────────

I, J = symbol("i"), symbol("j")


def points(*sizes: int) -> torch.Tensor:
    return torch.empty(*sizes)


def store(value: Any, index: Any) -> Store:
    return Store(buffer("y", points(64)), index, value)


def test_the_conditions_of_cat_are_answered() -> None:
    a, b = (Load(buffer(n, points(64)), I - k) for n, k in (("a", 0), ("b", 5)))
    below = op("lt", IndexValue(I), IndexValue(sympy.Integer(5)))
    value = op("where", below, a, b)
    size = sympy.Integer(9)
    found = pieces([store(value, I)], Axis(I, size), {I: size})
    assert [(p.first, p.last) for p in found] == [(0, 5), (5, 9)]
    assert [p.stores[0].value for p in found] == [a, b]


def test_an_index_that_wraps_around_is_two_sums() -> None:
    size = sympy.Integer(9)
    value = Load(buffer("x", points(9)), Mod(I + 8, 9))
    first, rest = pieces([store(value, I)], Axis(I, size), {I: size})
    assert first.stores[0].value.index == I + 8
    assert rest.stores[0].value.index == I - 1


def test_short_neighbours_stay_together() -> None:
    size = sympy.Integer(90)
    tests = [op("lt", IndexValue(I), Const(n, torch.int64)) for n in (1, 2, 3)]
    both = op("bitwise_and", op("bitwise_and", tests[0], tests[1]), tests[2])
    value = op("where", both, Const(1.0, torch.float32), Const(2.0, torch.float32))
    found = pieces([store(value, I)], Axis(I, size), {I: size}, 16)
    assert [(p.first, p.last) for p in found] == [(0, 3), (3, 90)]
    assert found[0].stores[0].value is not value.args[1]
    assert found[1].stores[0].value is value.args[2]


def test_what_is_asked_about_two_axes_is_cut_where_it_is_certain() -> None:
    ranges = {I: sympy.Integer(10), J: sympy.Integer(9)}
    value = Load(buffer("x", points(90)), Mod(9 * I + J + 70, 90))
    found = pieces([store(value, 9 * I + J)], Axis(I, sympy.Integer(10)), ranges)
    assert [(p.first, p.last) for p in found] == [(0, 2), (2, 3), (3, 10)]
    assert found[0].stores[0].value.index == 9 * I + J + 70
    assert found[1].stores[0].value.index.has(Mod)
    assert found[2].stores[0].value.index == 9 * I + J - 20


def test_symbols_are_cut_where_their_order_is_certain() -> None:
    s, t = symbol("s0"), symbol("s1")
    below = op("lt", IndexValue(I), IndexValue(s))
    one, two = (Const(n, torch.float32) for n in (1.0, 2.0))
    stores = [store(op("where", below, one, two), I)]
    found = pieces(stores, Axis(I, s + t), {I: s + t})
    assert [(p.first, p.last) for p in found] == [(0, s), (s, s + t)]
    assert [p.stores[0].value for p in found] == [one, two]
    assert len(pieces(stores, Axis(I, t), {I: t})) == 1


# ── indices ───────────────────────────────────────────────────────────────────────────────


def test_remainders_of_remainders_are_one() -> None:
    ranges = {I: sympy.Integer(512), J: sympy.Integer(512)}
    inner = Mod(I + 511, 512)
    assert simplify(Mod(inner + 511, 512), ranges) == Mod(I + 510, 512)
    whole = Mod(512 * I + J + 262143, 262144)
    both = 512 * FloorDiv(whole, 512) + Mod(J + 511, 512)
    assert simplify(both, ranges) == whole
    assert simplify(Mod(Mod(I, 6) + J, 4), ranges) == Mod(Mod(I, 6) + J, 4)


def test_random_indices_keep_their_value() -> None:
    generator = torch.Generator().manual_seed(3)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    for _ in range(100):
        ranges = {I: sympy.Integer(6), J: sympy.Integer(8)}
        expr = number(0, 9) * I + number(0, 9) * J + number(0, 50)
        for _ in range(number(1, 4)):
            kind = (Mod, FloorDiv)[number(0, 2)]
            expr = number(1, 9) * kind(expr, number(2, 25)) + number(0, 30)
            expr = expr + number(0, 5) * (I, J)[number(0, 2)]
        texts = [f"lambda i, j: {e}" for e in (expr, simplify(expr, ranges))]
        both = [eval(text, {"Mod": operator.mod}) for text in texts]
        for i in range(6):
            for j in range(8):
                assert both[0](i, j) == both[1](i, j), (expr, i, j)
