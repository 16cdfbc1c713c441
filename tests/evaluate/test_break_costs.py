"""A graph break costs its statement: srcjit never traces fewer tensor operations than Dynamo."""

from __future__ import annotations

import logging

import pytest
import torch

from bench.break_programs import PROGRAMS
from bench.breaks import by_dynamo, by_srcjit
from tests.harness import no_faults


@pytest.fixture(autouse=True)
def quiet_dynamo():
    logger = logging.getLogger("torch._dynamo")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)
    torch._dynamo.reset()


@pytest.mark.filterwarnings(
    "ignore"
)  # what a program warns about is not the matter here
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_fewer_operations_than_dynamo(name: str) -> None:
    with no_faults():
        ours = by_srcjit(name)
    theirs = by_dynamo(name)
    assert ours.same, "results, text or arguments differ from eager's"
    assert ours.ran >= theirs.ran
    assert ours.ran, "nothing was traced"
