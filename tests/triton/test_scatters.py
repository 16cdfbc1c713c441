"""Sums at chosen places as Triton: in its interpreter, and compiled for an H100."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

import torch

import srcjit
from srcjit.passes.lowerings import gathers, scatters
from srcjit.ptx_info import ptx_info
from tests.backend.scatter_programs import EAGER, PROGRAMS
from tests.triton.reports import reports_of
from tests.triton.scatters import FORMS, emitted

ROOT = Path(__file__).parents[2]
COMPILED = ("means", "float64", "integers", "narrow integers", "rows to one place")


@pytest.fixture(scope="module")
def problems() -> dict[str, str]:
    """What one interpreter process says of all programs."""
    found = reports_of("tests.triton.scatters")
    return {name: report["problem"] for name, report in found.items()}


@pytest.mark.parametrize("name", [f"{n}, {form}" for n in PROGRAMS for form in FORMS])
def test_program(name: str, problems: dict[str, str]) -> None:
    assert not problems[name], problems[name]


@pytest.mark.parametrize("name", COMPILED)
def test_for_an_h100(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathers, "CHECKED", {"cpu", "cuda"})
    monkeypatch.setattr(scatters, "ATOMIC", {"cpu", "cuda"})
    text = emitted(PROGRAMS[name])
    assert "tl.atomic_add(" in text
    assert ptx_info(text)


@pytest.mark.cuda
@pytest.mark.parametrize("name", [*PROGRAMS, *EAGER])
def test_on_the_gpu(name: str) -> None:
    function, arguments = (PROGRAMS | EAGER)[name]
    own, theirs = ([a.cuda() for a in arguments] for _ in range(2))
    with torch.device("cuda"):
        torch.testing.assert_close(srcjit.jit(function)(*own), function(*theirs))
    torch.testing.assert_close(own, theirs)


@pytest.mark.cuda
@pytest.mark.parametrize("place", (6, -1))
def test_a_place_out_of_range_is_reported_as_by_eager(place: int) -> None:
    program = (
        "import torch, srcjit\n"
        "x = torch.randn(6, 5, device='cuda')\n"
        f"t = torch.full((9,), {place}, device='cuda')\n"
        "f = srcjit.jit(lambda x, t: x.index_add(0, t, x.sin()[:1].expand(9, 5)))\n"
        "f(x, t)\n"
        "torch.cuda.synchronize()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0
    assert "device-side assert" in done.stderr
