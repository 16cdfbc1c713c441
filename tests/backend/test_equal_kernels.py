"""Kernels that are equal but for names are emitted once; those that are not are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.backend.equal_programs import PROGRAMS, problems

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PROGRAMS)
def test_cpp(name: str) -> None:
    found, text = problems(PROGRAMS[name], "cpp")
    assert not found, "\n".join([*found, text])


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    """What one interpreter process says of all programs."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.backend.equal_programs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", PROGRAMS)
def test_triton(name: str, interpreted: dict[str, Any]) -> None:
    report = interpreted[name]
    assert not report["problems"], "\n".join([*report["problems"], report["text"]])
