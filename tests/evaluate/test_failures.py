"""Operations that raise when they run: the exception, its line, and what came before it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

import srcjit
from srcjit.passes.evaluate import raising
from tests import harness
from tests.programs import failing
from tests.programs.failing import FAILING, INDICES, made


@pytest.mark.parametrize("stage", ["specialize", "lower", "emit"])
@pytest.mark.parametrize("function", FAILING, ids=lambda f: f.__name__)
def test_failing(function: Callable[..., Any], stage: str) -> None:
    jitted = srcjit.jit(function, options={"stage": stage})
    for indices in INDICES:
        outcomes = []
        for call in (function, jitted):
            harness.seed()
            arguments = made(function, indices)
            with harness.no_faults():
                outcomes.append(harness.run(call, arguments))
        harness.compare(*outcomes, stage, INDICES.index(indices))


def frames(call: Callable[..., Any], *args: Any) -> list[tuple[str, str, int | None]]:
    """The user's frames in the traceback of what a call raises."""
    with pytest.raises(IndexError) as raised:
        call(*args)
    found = traceback.extract_tb(raised.value.__traceback__)
    return [
        (frame.name, frame.line or "", frame.lineno)
        for frame in found
        if "/tests/programs/" in frame.filename
    ]


def test_traceback_shows_inlined_functions() -> None:
    for function in (failing.inlined, failing.inlined_from_another_file):
        arguments = torch.ones(3), torch.tensor([7]), []
        expected = frames(function, *arguments)
        assert len(expected) > 1
        assert frames(srcjit.jit(function), *arguments) == expected


def test_first_failure_is_no_context() -> None:
    arguments = torch.arange(5.0), torch.tensor([4, 3]), []
    with pytest.raises(IndexError) as raised:
        srcjit.jit(failing.effects_between)(*arguments)
    assert raised.value.__context__ is None
    assert raised.value.__cause__ is None


LINEAR = torch.nn.Linear(4, 4)


def through_helpers(x: torch.Tensor) -> torch.Tensor:
    def inner(y: torch.Tensor) -> torch.Tensor:
        z = y + 1
        return LINEAR(z)

    w = x * 2
    return inner(w)


def test_line_of_what_a_library_raises() -> None:
    def make() -> Any:
        return through_helpers, (torch.ones(3, 3),), {}

    harness.check(make, stage="specialize", calls=2)


def test_trying_an_operator_out_draws_no_random_numbers() -> None:
    aten = torch.ops.aten
    state = torch.get_rng_state()
    for operator in (aten.randn_like.default, aten.rand_like.default):
        given = torch.ones(3, dtype=torch.int64)
        assert raising.operator_may_raise(operator, (given,), {"dtype": torch.float32})
    assert torch.equal(torch.get_rng_state(), state)
