"""What stays of programs, and other tests' objects, need not be walked over behind each."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """Garbage is collected behind each program, among what the module's tests make."""
    gc.freeze()
    yield
    gc.unfreeze()
