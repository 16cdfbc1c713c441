"""What a kernel computes for an input is written into its memory, wherever that is right."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import srcjit
from bench.gpu_workloads import WORKLOADS
from srcjit.options import Options
from srcjit.passes.in_place import safe
from srcjit.passes.loops import Axis, Kernel, Load, Store, op, symbol
from srcjit.passes.segment import compile_segment
from tests.backend.examples import buffer, f32
from tests.backend.support import segment_of

I = symbol("i")


def kernel(*stores: tuple[str, Load]) -> Kernel:
    x = torch.empty(64)
    body = tuple(Store(buffer(n, x), I, op("add", v, f32(1))) for n, v in stores)
    return Kernel("k", (Axis(I, 64),), (), body)


def load(name: str, offset: int = 0) -> Load:
    return Load(buffer(name, torch.empty(64)), I + offset)


def test_what_is_read_first_after_it_was_written_is_not_safe() -> None:
    swapped = kernel(("a", load("b")), ("b", load("a")))
    assert not safe(swapped, "a") and safe(swapped, "b")


def test_what_was_read_before_may_be_used_later() -> None:
    both = kernel(("a", load("a")), ("b", load("a")))
    assert safe(both, "a") and safe(both, "b")


def test_another_element_is_not_safe() -> None:
    assert not safe(kernel(("a", load("a", 1))), "a")


@pytest.mark.parametrize("target", ["cpp", "triton"])
def test_an_optimizer_step_copies_nothing(target: str) -> None:
    workload = WORKLOADS["adamw"]
    given = workload.make(1024, "cpu")
    code = compile_segment(
        segment_of(workload.function, *given), Options(target=target)
    )
    assert "empty" not in code.function and "copy_" not in code.function


def test_halves_that_need_each_other() -> None:
    def turn(x: Tensor, cos: Tensor, sin: Tensor) -> None:
        left, right = x.chunk(2, -1)
        first, second = left * cos - right * sin, right * cos + left * sin
        left.copy_(first)
        right.copy_(second)

    own, cos, sin = torch.randn(50, 64), torch.rand(32), torch.rand(32)
    other = own.clone()
    srcjit.jit(turn)(own, cos, sin)
    turn(other, cos, sin)
    torch.testing.assert_close(own, other)
