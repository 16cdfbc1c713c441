"""Every case through Triton's interpreter, against eager PyTorch on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

from tests.triton.cases import CASES
from tests.triton.reports import reports_of


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    """What one interpreter process says of all cases."""
    return reports_of("tests.triton.worker")


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, reports: dict[str, Any]) -> None:
    report = reports[name]
    assert not report["problems"], "\n".join([*report["problems"], report["text"]])
