"""First calls under pytest-benchmark: `pytest bench/test_compile_time.py`.

One group for each program, cold and warm; each round is a new process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.compile_time import CANDIDATES, PROGRAMS, first_call


@pytest.mark.parametrize("candidate", CANDIDATES)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("name", ["wave", "gate", "block"])
def test_first_call(
    name: str, warm: bool, candidate: str, benchmark: Any, tmp_path: Path
) -> None:
    assert name in PROGRAMS
    benchmark.group = f"{name}, {'warm' if warm else 'cold'}"
    if warm:
        first_call(name, candidate, "cpu", str(tmp_path))
    benchmark.pedantic(first_call, (name, candidate, "cpu", str(tmp_path)), rounds=1)
