"""What is compiled once for several functions, and what is freed."""

from __future__ import annotations

import gc
import weakref

import torch

import srcjit
from srcjit.passes.program import Guard

from .front_end import FrontEnd


def test_a_jitted_function_can_be_collected(front_end: FrontEnd):
    def make():
        def add(x):
            return x + 1

        return srcjit.jit(add)

    jitted = make()
    jitted(1)
    gone = weakref.ref(jitted.__srcjit__)
    del jitted
    gc.collect()
    assert gone() is None


def test_closures_over_one_code_share_what_was_compiled(front_end: FrontEnd):
    front_end.extra = (Guard("type(cells['k'].cell_contents) is int"),)

    def make(k):
        @srcjit.jit
        def add(x):
            return x + k

        return add

    results = [make(k)(10) for k in range(20)]
    assert results == [10 + k for k in range(20)]
    assert len(front_end.compiled) == 1
    front_end.extra = (Guard("type(cells['k'].cell_contents) is float"),)
    assert make(0.5)(10) == 10.5
    assert len(front_end.compiled) == 2
    assert (make(1)(10), make(1.0)(10)) == (11, 11.0)
    assert len(front_end.compiled) == 2
    srcjit.reset()
    assert make(1.0)(10) == 11
    assert len(front_end.compiled) == 3


def test_sharing_keeps_no_closure_alive(front_end: FrontEnd):
    class Big:
        pass

    def make(big):
        return srcjit.jit(lambda x: (big, x)[1])

    big = Big()
    jitted = make(big)
    assert jitted(1) == 1
    gone = weakref.ref(big)
    del big, jitted
    gc.collect()
    assert gone() is None


def test_instances_of_a_module_share_what_was_compiled(front_end: FrontEnd):
    class Scale(torch.nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor

    x = torch.ones(3)
    for factor in range(20):
        assert torch.equal(srcjit.jit(Scale(factor))(x), x * factor)
    assert front_end.compiled == [
        "test_instances_of_a_module_share_what_was_compiled.<locals>.Scale.forward"
    ]


def test_options_and_globals_are_part_of_what_is_shared(front_end: FrontEnd):
    def add(x):
        return x + 1

    srcjit.jit(add)(1)
    srcjit.jit(add)(1)
    assert len(front_end.compiled) == 1
    srcjit.jit(add, options={"stage": "lower"})(1)
    assert len(front_end.compiled) == 2
