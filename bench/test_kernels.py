"""CPU kernels under pytest-benchmark: `pytest bench/test_kernels.py`.

One group for each program, with eager, `torch.compile` and srcjit side by side. The answer is
compared with eager's before it is timed.
"""

from __future__ import annotations

from typing import Any

import pytest

from bench.kernels import CANDIDATES, PROGRAMS, prepare


@pytest.mark.parametrize("candidate", CANDIDATES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernel(name: str, candidate: str, benchmark: Any) -> None:
    benchmark.group = name
    benchmark.pedantic(prepare(PROGRAMS[name], candidate), rounds=15, warmup_rounds=2)
