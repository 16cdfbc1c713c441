"""Kernels that are equal but for names are emitted once; those that are not are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import srcjit
from srcjit import control
from srcjit.ptx_info import ptx_info
from srcjit.runtime import measure
from tests.backend.equal_programs import PROGRAMS, problems
from tests.triton.reports import reports_of


@pytest.mark.parametrize("name", PROGRAMS)
def test_cpp(name: str) -> None:
    found, text = problems(PROGRAMS[name], "cpp")
    assert not found, "\n".join([*found, text])


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    """What one interpreter process says of all programs."""
    pytest.importorskip("triton")
    return reports_of("tests.backend.equal_programs")


@pytest.mark.parametrize("name", PROGRAMS)
def test_triton(name: str, interpreted: dict[str, Any]) -> None:
    report = interpreted[name]
    assert not report["problems"], "\n".join([*report["problems"], report["text"]])


def layers(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    x = torch.relu(x @ w)
    return torch.relu(x @ v)


def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    first, second = x[0, 0].item(), x[1, 1].item()
    a = (x @ w) * first
    return (a @ w) * second


def column_means(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    for weight in (w, v, w):
        x = (x @ weight).mean(0).expand(64, 64)
    return x


def parts(x: torch.Tensor) -> torch.Tensor:
    total_parts = x.cumsum(0)
    total = (x * 2).sum()
    return total_parts * total.cumsum(0)


def text_of(function: Any) -> str:
    dispatcher = control.dispatcher_of(function)
    assert dispatcher is not None
    return "\n".join(s.text for s in dispatcher.specializations)


def test_launches_say_their_lines() -> None:
    arguments = [torch.randn(8, 8) for _ in range(3)]
    jitted = srcjit.jit(layers)
    torch.testing.assert_close(jitted(*arguments), layers(*arguments))
    first = layers.__code__.co_firstlineno + 1
    text = text_of(jitted)
    assert text.count("void relu_kernel") == 1
    for line in (first, first + 1):
        assert f"  # line {line} · reads 256 B, writes 256 B" in text
    kernel = text[text.index("void ") : text.index('"""', text.index("void "))]
    assert "//" not in kernel


def test_numbers_are_passed_to_each() -> None:
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    jitted = srcjit.jit(scaled)
    for _ in range(2):
        torch.testing.assert_close(jitted(x, w), scaled(x, w))
        x = torch.randn(8, 8)
    assert text_of(jitted).count("void ") == 1


def test_memory_between_kernels_hides_no_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("srcjit.runtime.launch", lambda *_, **__: None)
    jitted = srcjit.jit(parts, options={"target": "triton"})
    jitted(torch.randn(100000))
    text = text_of(jitted)
    assert "    total_parts_1 = torch.empty(" in text
    assert "    total_parts = torch.cumsum(" in text


def test_schedules_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def second(trial: measure.Trial) -> int:
        asked.append(trial)
        return 1

    monkeypatch.setattr(measure, "fastest", second)
    arguments = [torch.randn(64, 64) for _ in range(3)]
    jitted = srcjit.jit(column_means, mode="max-autotune")
    found = jitted(*arguments)
    torch.testing.assert_close(found, column_means(*arguments), rtol=1e-4, atol=1e-4)
    text = text_of(jitted)
    assert text.count(", fastest of ") == 3 and text.count("void ") == 1
    assert len(asked) == 1


def test_registers_are_listed_once() -> None:
    pytest.importorskip("triton")
    _, text = problems(PROGRAMS["layers"], "triton", run=False)
    (line,) = ptx_info(text)
    assert "relu_kernel:" in line
