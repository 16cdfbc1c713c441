"""Every case through Triton's interpreter, against eager PyTorch on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

from tests.triton.cases import CASES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    """What one interpreter process says of all cases."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.triton.worker"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, reports: dict[str, Any]) -> None:
    report = reports[name]
    assert not report["problems"], "\n".join([*report["problems"], report["text"]])
