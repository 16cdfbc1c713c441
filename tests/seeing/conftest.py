"""Fixtures of tests that watch when objects die."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.seeing.lifetimes import FOUND


@pytest.fixture(scope="module")
def frozen() -> Iterator[None]:
    """What other tests have made need not be walked over in front of each of these."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Nothing is collected: what is dropped late because it refers to itself is seen."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    FOUND.clear()
