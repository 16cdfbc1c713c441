"""Random programs; `python -m tests.fuzz` runs as many as there is time for."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, note, settings

from .inject import INJECTIONS, injected
from .judging import case_for, judge, replay, saved_text, shrink
from .running import Case, failure, program_text, source_of
from .strategy import cases
from .tree import Line, size_of, smaller
from .unknown import MODES

CI = settings.get_profile("ci")


def _place(folder: Path, name: str = "fuzz_case") -> Path:
    return folder / "tests" / "programs" / f"{name}.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@given(case=cases("tensors"))
@settings(CI)
def test_programs_on_tensors(case: Case, folder: Path) -> None:
    note(program_text(case))
    assert not failure(case, _place(folder))


@given(case=cases("plain"))
@settings(CI)
def test_plain_programs(case: Case, folder: Path) -> None:
    note(program_text(case))
    assert not failure(case, _place(folder))


@pytest.mark.parametrize("start", range(30000, 30048, 8))
def test_seeded_programs(start: int, folder: Path) -> None:
    for seed in range(start, start + 8):
        case = case_for(seed, size=8, emit=0)
        wrong = failure(case, _place(folder, f"fuzz_{seed}"))
        assert not wrong, f"seed {seed}: {wrong}\n{program_text(case)}"


def test_kernels_of_seeded_programs(folder: Path) -> None:
    for seed in range(30100, 30104):
        case = replace(case_for(seed, plain=0, size=6), stage="emit", numbers="known")
        wrong = failure(case, _place(folder, f"fuzz_{seed}"))
        assert not wrong, f"seed {seed}: {wrong}\n{program_text(case)}"


def test_one_seed_gives_one_program() -> None:
    assert source_of(case_for(7)) == source_of(case_for(7))


def test_every_program_is_valid_python() -> None:
    for seed in range(200):
        compile(source_of(case_for(seed)), f"seed {seed}", "exec")


def test_smaller_programs_get_smaller() -> None:
    body = case_for(3).body
    assert all(size_of(less) < size_of(body) for less in smaller(body))


# ── what the fuzzer sees ────────────────────────────────────────────────────────────

FOUND_BY = {
    "drop-guard": ("if n > 2:", "    st.count += 5"),
    "swap-resume": ("keep(nums)", "nums.append(1)", "nums.append(2)", "return nums"),
    "skip-finally": ("try:", "    st.count += 1", "finally:", "    st.rate = 4.0"),
}


@pytest.mark.parametrize("name", INJECTIONS)
def test_an_injected_miscompile_is_seen(name: str, folder: Path) -> None:
    case = Case(tuple(map(Line, FOUND_BY[name])), number=5, flavour="plain")
    path = _place(folder)
    assert not judge(case, path)
    with injected(name):
        assert judge(case, path)


@pytest.mark.parametrize("numbers", MODES)
def test_unknown_numbers_change_nothing(numbers: str, folder: Path) -> None:
    lines = ("for i in range(n):", "    st.count += i if i < m else n", "return n * m")
    case = Case(tuple(map(Line, lines)), 1, "plain", numbers=numbers)
    assert not failure(case, _place(folder))


def test_a_failure_is_made_small_and_runs_again(folder: Path) -> None:
    lines = tuple(Line(f"st.count += {number}") for number in range(4))
    tried = Line("for i in (1,): st.rate = 2.0")
    case = Case(
        (*lines, *map(Line, ("if n > 2: st.note(1)", "return n")), tried), 5, "plain"
    )
    with injected("drop-guard"):
        small = shrink(case, _place(folder), seconds=20)
        wrong = judge(small, _place(folder))
    assert wrong and size_of(small.body) < 3
    file = folder / "saved.py"
    file.write_text(saved_text(small, wrong))
    assert replay(file) == 0
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, env=here
    )
    assert (ran.returncode, ran.stdout) == (0, "no difference\n"), ran.stderr
