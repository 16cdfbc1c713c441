"""What `mode="reduce-overhead"` may record, and the text of a segment that is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from srcjit.options import Options
from srcjit.passes.functional import functionalize
from srcjit.passes.program import Segment
from srcjit.passes.recording import why_not
from srcjit.passes.segment import compile_segment, devices_of


def segment_of(function: Callable[..., Any]) -> Segment:
    """The segment of a function of two fake CUDA tensors."""
    module = torch.fx.symbolic_trace(function)
    with FakeTensorMode():
        x, y = (torch.empty(8, 8, device="cuda:0") for _ in "xy")
        outputs = module(x, y)

    return Segment("segment_0", module, (x, y), outputs, False)


def reason(segment: Segment) -> str:
    functional = functionalize(segment)
    return why_not(functional, devices_of(functional))


def test_pure_work_is_recorded() -> None:
    with torch.no_grad():
        assert reason(segment_of(lambda x, y: (torch.sin(x @ y),))) == ""


def draws(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (torch.dropout(x, 0.5, True) + y,)


def writes(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (x.add_(y),)


def inverts(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (torch.linalg.inv(x) @ y,)


def elsewhere(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (x.cpu() + 1,)


def attends(x: torch.Tensor, y: torch.Tensor) -> Any:
    scores = torch.softmax(x @ y.t() / 3 + y, -1)
    return (torch.nn.functional.layer_norm(scores @ y, (8,)).amax(1), scores.argmin(0))


def looks_up(x: torch.Tensor, y: torch.Tensor) -> Any:
    found = torch.index_select(x, 0, y.argmax(1)).cumsum(0)
    return (torch.cat([found, y]).to(torch.bfloat16), torch.zeros_like(y))


@pytest.mark.parametrize("function", [attends, looks_up])
def test_common_work_is_recorded(function: Callable[..., Any]) -> None:
    with torch.no_grad():
        assert reason(segment_of(function)) == ""


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (draws, "may do more than launch kernels"),
        (inverts, "may do more than launch kernels"),
        (writes, "writes to its inputs"),
        (elsewhere, "not all on one GPU"),
    ],
)
def test_work_of_the_host_is_not_recorded(
    function: Callable[..., Any], why: str
) -> None:
    with torch.no_grad():
        assert why in reason(segment_of(function))


def test_training_is_not_recorded() -> None:
    with torch.no_grad():
        segment = segment_of(lambda x, y: (torch.sin(x) * y,))
        functional = replace(functionalize(segment), no_grad=True)
    assert "autograd" in why_not(functional, devices_of(functional))


def test_text_of_a_recorded_segment() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        h = torch.relu(torch.mm(x, y)) + 1
        return h, torch.mm(h, y)

    options = Options(mode="reduce-overhead", target="triton")
    with torch.no_grad():
        code = compile_segment(segment_of(function), options)
    assert "from srcjit.runtime.graphs import Graphs" in code.imports
    assert "def segment_0_launches(x, y, add=None):\n" in code.definitions
    assert "    if add is None:\n        add = empty_cuda(" in code.definitions
    assert (
        "segment_0_graphs = Graphs(segment_0_launches, ('add', None), device=0)"
        in code.definitions
    )
    assert code.function == "segment_0 = segment_0_graphs.segment\n"


def test_the_cpu_is_as_ever() -> None:
    module = torch.fx.symbolic_trace(lambda x, y: (torch.sin(x) + y,))
    with FakeTensorMode(), torch.no_grad():
        x, y = torch.empty(8), torch.empty(8)
        segment = Segment("segment_0", module, (x, y), module(x, y), False)
    plain = compile_segment(segment, Options())
    assert compile_segment(segment, Options(mode="reduce-overhead")) == plain
