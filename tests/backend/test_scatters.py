"""Sums at chosen places: as loops against eager, and what stays a call."""

from __future__ import annotations

import pytest
import torch

from srcjit.passes.functional import functionalize
from srcjit.passes.fuse import fuse
from srcjit.passes.lower import lower
from srcjit.passes.lowerings import gathers, scatters
from srcjit.passes.schedule import Call, Summed
from tests.backend.interpret import run_schedule
from tests.backend.scatter_programs import EAGER, PROGRAMS, S, T, X
from tests.backend.support import check_stages, compiled, segment_of
from tests.backend.test_lowerings import run


@pytest.fixture
def atomic(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA: kernels check indices themselves, and eager adds in no fixed order."""
    monkeypatch.setattr(gathers, "CHECKED", {"cpu", "cuda"})
    monkeypatch.setattr(scatters, "ATOMIC", {"cpu", "cuda"})


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str, atomic: None) -> None:
    function, arguments = PROGRAMS[name]
    run(function, *arguments, loops="product" not in name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_stages(name: str, atomic: None) -> None:
    function, arguments = PROGRAMS[name]
    check_stages(function, *arguments, stages=("lower", "fuse"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_the_cpu_it_is_a_call(name: str) -> None:
    function, arguments = PROGRAMS[name]
    check_stages(function, *arguments, stages=("emit",))


@pytest.mark.parametrize("place", (6, -1))
def test_place_where_there_is_nothing(place: int, atomic: None) -> None:
    def add(x, t):
        return x.index_add(0, t, (x[:1] * 2).expand(40, 20))

    functional = functionalize(segment_of(add, X, T))
    assert functional.forward is not None
    values = dict(
        zip(functional.forward.placeholders, (X, T.new_full((40,), place)), strict=True)
    )
    with pytest.raises(IndexError):
        run_schedule(fuse(lower(functional.forward)), values)


def calls_of(function, *arguments) -> list[str]:
    functional = functionalize(segment_of(function, *arguments))
    assert functional.forward is not None
    steps = fuse(lower(functional.forward)).steps
    found = [s for s in steps if isinstance(s, Call) and not isinstance(s, Summed)]
    return [str(s.node.target) for s in found]


@pytest.mark.parametrize("name", EAGER)
def test_stays_a_call(name: str, atomic: None) -> None:
    function, arguments = EAGER[name]
    assert calls_of(function, *arguments)


def test_where_deterministic_algorithms_are_asked_for(atomic: None) -> None:
    def add(x, s, t):
        return torch.zeros_like(x).index_add_(0, t, x[s])

    torch.use_deterministic_algorithms(True)
    try:
        assert calls_of(add, X, S, T) == ["aten.index_add.default"]
        assert not calls_of(add, X.long(), S, T)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not calls_of(add, X, S, T)


def text_of(name: str) -> str:
    pytest.importorskip("triton")
    function, arguments = PROGRAMS[name]
    return compiled(function, *arguments, target="triton").text


def test_what_is_added_is_no_memory(atomic: None) -> None:
    text = text_of("means")
    assert text.count("= empty_cpu(") == 2
    assert text.count("tl.atomic_add(") == 2
    assert "index_add_(" not in text


def test_a_loop_that_stores_adds_too(atomic: None) -> None:
    text = text_of("source shared")
    body = next(part for part in text.split("@triton.jit") if "tl.atomic_add(" in part)
    assert body.count("tl.atomic_add(") == 2
    assert body.count("tl.store(") == 1


@pytest.mark.parametrize(
    "name", ["input added to", "input written over", "in the memory of a product"]
)
def test_old_values_are_not_copied(name: str, atomic: None) -> None:
    text = text_of(name)
    assert "start = empty_cpu(" not in text
    assert ".copy_(" not in text
