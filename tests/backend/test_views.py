"""The index map of a view, against PyTorch's own views."""

from __future__ import annotations

import itertools
import random

import pytest
import sympy
import torch

import srcjit
from srcjit.passes.indexing import (
    FloorDiv,
    Mod,
    expanded,
    lower_bound_is_zero,
    simplify,
    substitute,
    symbol,
)
from srcjit.passes.lowerings.views import reshape_index

SHAPES = [
    ((8, 16, 6, 5), (128, 6, 5)),
    ((128, 6, 5), (8, 16, 6, 5)),
    ((2, 3, 4), (3, 2, 4)),
    ((2, 3, 4), (24,)),
    ((24,), (2, 3, 4)),
    ((1, 6, 1), (2, 1, 3)),
    ((4, 6), (2, 12)),
    ((4, 3, 2, 5), (6, 2, 10)),
    ((1,), ()),
    ((), (1, 1)),
    ((2, 0, 3), (0,)),
    ((3, 1, 2), (3, 2)),
]


def splits(count: int, seed: int) -> tuple[int, ...]:
    """A random shape of `count` elements."""
    draw = random.Random(seed)
    found = []
    while count > 1:
        part = draw.choice([d for d in range(2, count + 1) if count % d == 0])
        found.append(part)
        count //= part
    return tuple(found) + (1,) * draw.randint(0, 1)


RANDOM = [(splits(72, n), splits(72, n + 1000)) for n in range(20)]


@pytest.mark.parametrize(("source", "target"), SHAPES + RANDOM)
def test_elements(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    x = torch.arange(torch.Size(source).numel()).view(source)
    view = x.view(target)
    index = reshape_index(*(tuple(map(sympy.Integer, s)) for s in (source, target)))
    for place in itertools.product(*map(range, target)):
        found = index(tuple(map(sympy.Integer, place)))
        assert x[tuple(map(int, found))] == view[place]


def test_shared_dimensions_keep_their_index() -> None:
    z, i, d, n = map(symbol, ("z", "i", "d", "n"))
    sixteen, width = sympy.Integer(16), sympy.Integer(64)
    index = reshape_index(
        (sympy.Integer(8), sixteen, n, width), (sixteen * 8, n, width)
    )
    assert index((z, i, d)) == (FloorDiv(z, 16), Mod(z, 16), i, d)


def test_runs_with_symbols() -> None:
    n, a, b = map(symbol, ("n", "a", "b"))
    four, eight = sympy.Integer(4), sympy.Integer(8)
    index = reshape_index((n, four, eight), (4 * n, eight))
    assert index((a, b)) == (FloorDiv(a, 4), Mod(a, 4), b)
    back = reshape_index((4 * n, eight), (n, four, eight))
    assert back((n, a, b)) == (4 * n + a, b)


@pytest.mark.parametrize("seed", range(40))
def test_multiplied_out(seed: int) -> None:
    draw = random.Random(seed)
    leaves = [*map(symbol, "ijn"), *map(sympy.Integer, (-3, -1, 0, 1, 2, 64))]

    def made(depth: int) -> sympy.Expr:
        if depth == 0:
            return draw.choice(leaves)
        first, second = made(depth - 1), made(draw.randrange(depth))
        divisor = draw.choice([sympy.Integer(4), symbol("s")])
        return draw.choice(
            [
                first + second,
                first * second,
                first - second,
                first * (second + symbol("n")),
                2 * (first + second),
                FloorDiv(first, divisor),
                symbol("i") ** 2 + first,
                (first + 1) ** 2,
            ]
        )

    for _ in range(20):
        expr = made(draw.randint(0, 3))
        assert expanded(expr) == sympy.expand(expr)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_divided_is_not_below_zero(seed: int) -> None:
    """Kernels divide toward zero; under the mask of a `cat` an index has parts below it."""
    draw = random.Random(seed)
    i, j = symbol("i"), symbol("j")
    ranges = {i: sympy.Integer(7), j: sympy.Integer(9)}
    for _ in range(6):
        sign = draw.choice([1, -1])
        flat = sign * (9 * i + j) + draw.randint(-70, 70)
        by, digits = draw.choice([2, 3, 9, 63]), draw.choice([2, 5, 7])
        whole = Mod(FloorDiv(flat, by), digits) + 100 * Mod(flat, by)
        made = simplify(whole, ranges)
        for part in made.atoms(FloorDiv, Mod):
            assert lower_bound_is_zero(expanded(part.args[0])), (whole, made)
        for place in itertools.product(range(7), range(9)):
            at = dict(zip((i, j), map(sympy.Integer, place), strict=True))
            number = int(substitute(flat, at))
            expected = number // by % digits + 100 * (number % by)
            assert substitute(made, at) == expected, (whole, made, place)


def test_a_symbol_that_is_subtracted() -> None:
    i, j, n, s = map(symbol, ("i", "j", "n", "s"))
    ranges = {i: n, j: s}
    flat = n * s - 1 - s * i - j
    assert simplify(FloorDiv(expanded(flat), s), ranges) == n - 1 - i
    assert simplify(Mod(expanded(flat), s), ranges) == s - 1 - j


def test_turned_and_reversed() -> None:
    """All elements in a row, whose halves are exchanged or whose order is the other one."""

    def turned(x: torch.Tensor) -> list[torch.Tensor]:
        flat, row = x.reshape(-1), x.reshape(1, -1)
        back = flat.flip(0)
        return [
            torch.cat([flat[4:], flat[:4]]),
            torch.cat([row[:, 1:], row[:, :1]], -1),
            torch.cat([back[9:], back[:9]]),
            torch.slice_scatter(row, row.flip(-1)[:, 1::2], -1, 1, None, 2),
            torch.nn.functional.pad(back, [4, 5]).reshape(-1, 9).t().contiguous(),
        ]

    x = torch.randn(5, 7, 9, 2)[..., 0]
    made = srcjit.jit(turned)(x)
    for found, wanted in zip(made, turned(x), strict=True):
        assert torch.equal(found, wanted)


def test_rolled_by_a_number_that_changes() -> None:
    def rolled(x: torch.Tensor, by: int) -> torch.Tensor:
        return x.roll(by) + x.roll((by, -by), (0, 1))

    made, x = srcjit.jit(rolled), torch.randn(6, 7)
    for by in (2, 4, -5):
        assert torch.equal(made(x, by), rolled(x, by))
