"""Numbers that a dtype does not hold: eager refuses some, and nothing of the program runs twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import srcjit

HALF = torch.half
BYTE = torch.int8

CASES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda x, m: torch.add(x, x, alpha=1e9),
    "arange": lambda x, m: torch.arange(0, 1e5, 1e4, dtype=HALF),
    "clamp": lambda x, m: x.clamp(max=1e9),
    "fill": lambda x, m: x.clone().fill_(1e9),
    "fill_one": lambda x, m: x[:1].clone().fill_(1e9),
    "fill_diagonal": lambda x, m: x.repeat(2, 1).fill_diagonal_(1e9),
    "full": lambda x, m: torch.full((2,), 1e9, dtype=HALF),
    "full_bytes": lambda x, m: torch.full((2,), 300, dtype=BYTE),
    "full_float8": lambda x, m: torch.full((2,), 1e3, dtype=torch.float8_e4m3fn),
    "full_like": lambda x, m: torch.full_like(x, 1e9),
    "hardtanh": lambda x, m: torch.nn.functional.hardtanh(x, -1e9, 1e9),
    "huge": lambda x, m: x * 10**400,
    "large": lambda x, m: x * 10**30,
    "linspace": lambda x, m: torch.linspace(0, 1e9, 3, dtype=HALF),
    "masked_fill": lambda x, m: x.masked_fill(m, -1e9),
    "masked_infinity": lambda x, m: x.masked_fill(m, float("-inf")),
    "new_full": lambda x, m: x.new_full((2,), 1e9),
    "pad": lambda x, m: torch.nn.functional.pad(x, (1, 1), value=1e9),
    "power": lambda x, m: x**1e9,
    "product": lambda x, m: x * 1e9,
    "sizes": lambda x, m: torch.zeros(1 << 17, dtype=HALF),
    "where": lambda x, m: torch.where(m, x, 1e9),
}


def outcome(function, *args):
    try:
        made = function(*args)
    except (RuntimeError, OverflowError) as error:
        return type(error), str(error)
    return made.dtype, made.float().tolist()


@pytest.mark.parametrize("name", CASES)
def test_eager_decides(name: str) -> None:
    function, x, mask = CASES[name], torch.ones(2).half(), torch.tensor([True, False])
    assert outcome(srcjit.jit(function), x, mask) == outcome(function, x, mask)


RUNS: list[int] = []


@torch.library.custom_op("srcjit_tests::counted", mutates_args=())
def counted(x: torch.Tensor, scale: float) -> torch.Tensor:
    assert x.numel() == 2
    RUNS.append(x.numel())
    return x * 2


@counted.register_fake
def _(x, scale):
    return torch.empty_like(x)


def calls_an_operator(x):
    return counted(x, 1e9)


def test_an_operator_of_the_program_runs_once() -> None:
    jitted = srcjit.jit(calls_an_operator)
    for turn in range(1, 3):
        assert jitted(torch.ones(2).half()).tolist() == [2, 2]
        assert len(RUNS) == turn


def draws(generator):
    return torch.empty(2, dtype=HALF).normal_(0.0, 1e6, generator=generator)


def test_a_generator_of_the_program_is_not_advanced() -> None:
    after = []
    for function in (draws, srcjit.jit(draws)):
        generator = torch.Generator().manual_seed(3)
        function(generator)
        after.append(torch.rand(2, generator=generator).tolist())
    assert after[0] == after[1]
