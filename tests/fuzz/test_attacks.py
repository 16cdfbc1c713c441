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

ON_KERNELS = [
    "numbers_that_a_dtype_does_not_hold",
    "versions_of_what_is_made_in_steps",
    "writes_to_what_is_detached",
]
"""Those that only what is emitted could do wrong."""


@pytest.mark.parametrize(("name", "number"), NAMED)
def test_attack(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRCJIT_RAISE", "1")
    stage = "emit" if name in ON_KERNELS else "specialize"
    check(functools.partial(made, name, number), stage=stage)
