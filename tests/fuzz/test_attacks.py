"""Programs written by hand to break the compiler."""

from __future__ import annotations

import functools

import pytest

from tests.harness import check
from tests.programs.attacks import ATTACKS, made

NAMED = [
    (function.__name__, number)
    for function, makers in ATTACKS.items()
    for number in range(len(makers))
]


@pytest.mark.parametrize(("name", "number"), NAMED)
def test_attack(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRCJIT_RAISE", "1")
    check(functools.partial(made, name, number), stage="specialize")
