"""A fixed set of random programs; `python -m tests.fuzz` runs as many as there is time for."""

from __future__ import annotations

from pathlib import Path

import pytest

from .generate import Generator
from .running import failure, source_of
from .tree import smaller


@pytest.mark.parametrize("start", range(20000, 20032, 4))
def test_random_programs(start: int, tmp_path: Path) -> None:
    for seed in range(start, start + 4):
        stage = "emit" if seed % 16 == 0 else "specialize"
        body = Generator(seed, size=8).program()
        path = tmp_path / "tests" / "programs" / f"fuzz_{seed}.py"
        wrong = failure(path, body, seed, stage)
        assert not wrong, f"seed {seed}: {wrong}\n{source_of(body)}"


def test_one_seed_gives_one_program() -> None:
    assert source_of(Generator(7).program()) == source_of(Generator(7).program())


def test_every_program_is_valid_python() -> None:
    for seed in range(100):
        compile(source_of(Generator(seed).program()), f"seed {seed}", "exec")


def test_smaller_programs_get_smaller() -> None:
    body = Generator(3).program()
    size = len(source_of(body))
    assert all(len(source_of(less)) <= size + 40 for less in smaller(body))
