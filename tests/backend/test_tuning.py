"""`mode="max-autotune"`: schedules are measured, and nothing else changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import srcjit
from srcjit import cache, control
from srcjit.runtime import measure
from srcjit.runtime.measure import Candidate, Memory, Trial, fastest, measured_by

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))


class Clock:
    """Says that one candidate is fast; remembers what it was asked."""

    def __init__(self, fast: str = "never") -> None:
        self.fast, self.asked = fast, []

    def __call__(self, label: str, call: Any) -> float:
        self.asked.append(label)
        call()
        return 1.0 if self.fast in label else 2.0


def trial(*bodies: str) -> Trial:
    texts = [f"def run(x):\n    {body}\n" for body in bodies]
    found = (
        Candidate(f"{n} {body}", text)
        for n, (body, text) in enumerate(zip(bodies, texts))
    )
    return Trial(tuple(found), (Memory((4, 5), (5, 1), torch.float32),), CPU)


def column_sums(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sum(0)


def update(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    p.mul_(0.5).add_(q)
    return p.sum()


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Sums may be added up in another order."""
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-2)


def text_of(function: Any) -> str:
    dispatcher = control.dispatcher_of(function)
    assert dispatcher is not None
    return "\n".join(s.text for s in dispatcher.specializations)


def test_the_fastest_is_chosen_and_kept() -> None:
    clock = Clock(fast="add_(1)")
    asked = trial("x.mul_(2)", "x.add_(1)", "x.sub_(1)")
    with measured_by(clock):
        assert fastest(asked) == 1
        assert {n.split()[0] for n in clock.asked} == {"0", "1", "2"}
        clock.asked.clear()
        assert fastest(asked) == 1
    assert not clock.asked, "the answer was not kept"


def test_comments_are_no_part_of_the_key() -> None:
    one = Trial((Candidate("a", "f(x)  # 3: y = x\n"),), (), CPU)
    other = Trial((Candidate("a", "f(x)  # 9: y = x\n"),), (), CPU)
    third = Trial((Candidate("a", "g(x)  # 9: y = x\n"),), (), CPU)
    assert one.key == other.key != third.key


def test_noise_keeps_the_default() -> None:
    def clock(label: str, call: Any) -> float:
        return 1.0 if label.startswith("0") else 0.995

    with measured_by(clock):
        assert fastest(trial("x.mul_(2)", "x.add_(1)")) == 0


def test_luck_at_first_is_not_enough() -> None:
    turns: dict[str, int] = {}

    def clock(label: str, call: Any) -> float:
        turns[label] = turns.get(label, 0) + 1
        lucky = label.startswith("1") and turns[label] <= measure.ROUNDS
        return 0.9 if lucky else 1.0

    with measured_by(clock):
        assert fastest(trial("x.mul_(2)", "x.add_(1)", "x.sub_(1)")) == 0


def test_far_candidates_take_three_turns_and_time_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(fast="add_(1)")
    with measured_by(clock):
        fastest(trial("x.mul_(2)", "x.add_(1)"))
    slow = [n for n in clock.asked if n.startswith("0")]
    assert len(slow) == 3 and len(clock.asked) == 3 + measure.ROUNDS
    monkeypatch.setattr(measure, "SECONDS", 0.0)
    clock = Clock(fast="sub_(1)")
    with measured_by(clock):
        assert fastest(trial("x.mul_(3)", "x.sub_(1)")) == 0
    assert clock.asked == ["0 x.mul_(3)"]


def test_damaged_answers_are_measured_again(tmp_path: Path) -> None:
    asked = trial("x.mul_(2)", "x.add_(1)")
    file = cache.directory("autotune") / f"{asked.key}.json"
    for damage in ("{", '{"0 of another": 1.0}', "[1]"):
        cache.write(file, damage)
        with measured_by(Clock(fast="add_(1)")):
            assert fastest(asked) == 1
        assert set(json.loads(file.read_text())) == {c.label for c in asked.candidates}


def test_memory_of_its_own_and_no_random_numbers_of_the_program() -> None:
    x = torch.randn(300, 2000)
    p, q = torch.randn(300000), torch.randn(300000)
    kept = p.clone()
    torch.manual_seed(3)
    wanted = torch.rand(3)
    torch.manual_seed(3)
    sums = srcjit.jit(column_sums, mode="max-autotune")
    close(sums(x), column_sums(x))
    step = srcjit.jit(update, mode="max-autotune")
    total = step(p, q)
    torch.testing.assert_close(p, kept * 0.5 + q)
    close(total, p.sum())
    assert torch.equal(torch.rand(3), wanted)


def test_emitted_text_shows_the_choice() -> None:
    x = torch.randn(300, 2000)
    plain = srcjit.jit(column_sums)
    plain(x)
    tuned = srcjit.jit(column_sums, mode="max-autotune")
    with measured_by(Clock(fast="lanes=32")):
        close(tuned(x), column_sums(x))
    assert "fastest of" in text_of(tuned)
    assert "fastest of" not in text_of(plain)
    assert text_of(tuned).split("segment 0")[1] != text_of(plain).split("segment 0")[1]


def test_symbolic_sizes_are_measured_at_what_they_were() -> None:
    tuned = srcjit.jit(column_sums, mode="max-autotune", dynamic=True)
    clock = Clock()
    with measured_by(clock):
        for rows, columns in ((300, 2000), (17, 90), (5, 3)):
            x = torch.randn(rows, columns)
            close(tuned(x), column_sums(x))
    assert clock.asked


def test_without_the_device_the_default_stays() -> None:
    asked = Trial((Candidate("a", "!"), Candidate("b", "!")), (), torch.device("cuda"))
    if not torch.cuda.is_available():
        assert fastest(asked) == 0


def test_all_cpu_candidates_are_right() -> None:
    from srcjit.passes.candidates import cpp_schedules
    from srcjit.passes.print_cpp import print_kernel
    from srcjit.runtime import cpp_kernels
    from tests.backend.examples import CASES
    from tests.triton.running import difference

    several = 0
    for name, make in CASES.items():
        kernel = make().kernel
        for number, plan in enumerate(cpp_schedules(kernel)):
            if number == 0:
                continue
            case = make()
            text = print_kernel(kernel, "k", choose=lambda _, plan=plan: plan)
            cpp_kernels(text).k(*case.arguments())
            for output, wanted in case.expected.items():
                assert not difference(case.outputs[output], wanted, 1e-4), (name, plan)
            several += 1
    assert several


SHARE = (
    "normalize 9x5000",
    "full variance 20000",
    "full argmax 20000",
    "sum torch.float32 4x70000",
    "sum torch.float32 5x900 transposed",
)
"""Cases that are cut in every way; `python -m tests.triton.worker --candidates` runs all."""


def test_triton_candidates_are_right() -> None:
    pytest.importorskip("triton")
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.triton.worker",
            "--candidates",
            *SHARE,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reports = list(map(json.loads, done.stdout.splitlines()))
    assert {report["name"] for report in reports} == set(SHARE)
    for report in reports:
        assert not report["problems"], "\n".join([*report["problems"], report["text"]])
