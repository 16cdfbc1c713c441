"""Random programs through `compile_segment`, at every stage, against eager."""

from __future__ import annotations

import types

import pytest

from srcjit.options import Options
from srcjit.passes.program import Segment, SegmentCode
from srcjit.passes.segment import compile_segment

from .executor import compare, segment_of
from .programs import random_program, variables

STAGES = ["lower", "fuse", "emit"]


def load(code: SegmentCode):
    """Runs the module text of one segment."""
    text = "\n".join([*code.imports, "", code.definitions, code.function])
    module = types.ModuleType("segment_module")
    module.__dict__.update(code.bindings)
    exec(compile(text, f"<{code.name}>", "exec"), module.__dict__)
    return getattr(module, code.name)


def compiled(segment: Segment, stage: str):
    return load(compile_segment(segment, Options(stage=stage)))


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("writes", [False, True], ids=["pure", "writes"])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed, stage, writes, grad):
    program = random_program(1000 + seed, 40, grad=grad, writes=writes)
    segment = segment_of(program, program.inputs, grad, variables(program))
    compare(program, compiled(segment, stage), program.inputs, grad=grad, views=False)
