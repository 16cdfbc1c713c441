"""Every program behaves under `srcjit.jit`, at every stage, as it does without it."""

from __future__ import annotations

import pytest

from srcjit.options import STAGES
from tests.harness import check
from tests.programs import CASES
from tests.programs.training import TRAINING


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", CASES)
def test_program(name: str, stage: str) -> None:
    check(CASES[name], stage=stage)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", TRAINING)
def test_training(name: str, stage: str) -> None:
    check(TRAINING[name], stage=stage, backward=True)
