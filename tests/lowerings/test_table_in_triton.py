"""Every lowering as Triton, in its interpreter, against eager PyTorch (`test_table.py`: as C++)."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

from tests.lowerings.run import QUICK, SAMPLES, name_of
from tests.triton.reports import reports_of


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    """What one interpreter process says of all pieces."""
    return reports_of("tests.lowerings", "triton", "--quick", statuses=(0, 1))


PIECES = [
    *(f"{part} {name}" for part, name, _ in SAMPLES),
    *(name_of(*what) for what in QUICK),
]


@pytest.mark.parametrize("name", PIECES)
def test_piece(name: str, reports: dict[str, Any]) -> None:
    assert not reports[name]["problems"], "\n".join(reports[name]["problems"])
