"""Random programs: functionalized segments against eager."""

from __future__ import annotations

import pytest

from srcjit.passes.functional import functionalize

from .executor import compare, executable, segment_of
from .programs import random_program, variables

LEFT: dict[str, str] = {}


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("writes", [False, True], ids=["pure", "writes"])
@pytest.mark.parametrize("seed", range(40))
def test_functional_graph(seed, writes, grad):
    program = random_program(seed, grad=grad, writes=writes)
    segment = segment_of(program, program.inputs, grad, variables(program))
    made = functionalize(segment)
    if made.torch_level:
        LEFT[f"{seed} {writes} {grad}"] = made.reason
        return
    compare(program, executable(made), program.inputs, grad=grad, views=False)


def test_most_programs_are_functional():
    assert len(LEFT) < 60, LEFT
