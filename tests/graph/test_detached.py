"""What `detach()` and `.data` give: the same memory, but no base, and a base of their own views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import srcjit
from srcjit.observe import layout


def of_a_view(b: Any, c: Any) -> Any:
    v = b.expand_as(c)
    return (v.detach(),)


def beside_its_view(b: Any, c: Any) -> Any:
    v = b.expand_as(c)
    return b, v, v.detach()


def its_own_view(b: Any, c: Any) -> Any:
    d = b.detach()
    return d.view(-1), d


def and_data(b: Any, c: Any) -> Any:
    v = b.expand_as(c)
    d = v.detach()
    e = d.view_as(d)
    g = v.data
    h = g.t()
    return h, e, g, d, v, e, h


def of_a_result(b: Any, c: Any) -> Any:
    y = b + 1
    d = y.detach()
    e = d.view_as(d)
    v = y.view(1, -1)
    return e, v, d


def of_a_result_shown(b: Any, c: Any) -> Any:
    y = b + 1
    d = y.detach()
    e = d.expand_as(c)
    v = y.expand_as(c)
    return e, v, d, y


def of_a_result_in_turn(b: Any, c: Any) -> Any:
    y = b + 1
    return y.t(), y.detach(), y.data, y.detach().view(-1)


def of_a_view_of_a_result(b: Any, c: Any) -> Any:
    y = b + 1
    v = y.expand_as(c)
    return v.detach(), v.data, v


def under_no_grad(b: Any, c: Any) -> Any:
    with torch.no_grad():
        v = b.expand_as(c)
        w = v.detach()
        u = w[0]
    return u, w, v, w[1:]


def of_a_result_under_no_grad(b: Any, c: Any) -> Any:
    y = (b * 2).expand_as(c)
    with torch.no_grad():
        u = y[0]
    return u, y, y.detach()[0]


def twice(b: Any, c: Any) -> Any:
    d = b.detach()
    d2 = d.detach()
    return d2.view(-1), d.view(-1), d2, d


def written_to(b: Any, c: Any) -> Any:
    d = b.detach()
    d.mul_(2)
    return d, d.view(-1), b


def result_written_to(b: Any, c: Any) -> Any:
    y = b * 1
    d = y.detach()
    e = d.view(-1)
    e.add_(1)
    return d, e, y, b.data


def transposed(b: Any, c: Any) -> Any:
    x = b.expand_as(c).detach()
    return x.t(), x.t()[0], x.t().detach()[0]


PROGRAMS = (
    of_a_view,
    beside_its_view,
    its_own_view,
    and_data,
    of_a_result,
    of_a_result_shown,
    of_a_result_in_turn,
    of_a_view_of_a_result,
    under_no_grad,
    of_a_result_under_no_grad,
    twice,
    written_to,
    result_written_to,
    transposed,
)


def observed(function: Callable[..., Any], kind: str, recording: bool) -> list[Any]:
    """What can be seen of the outputs, and of what writing to them changes."""
    torch.manual_seed(0)
    b, c = torch.randn(4, requires_grad=kind != "plain"), torch.randn(3, 4)
    b = b.clone() if kind == "result" else b
    with torch.set_grad_enabled(recording):
        outputs = function(b, c)
        facts: list[Any] = [layout([b, c, *outputs])]
        for output in outputs if kind == "plain" else ():
            try:
                output.mul_(2)
            except RuntimeError as error:  # an expanded one
                facts.append(str(error))
    return [*facts, *(t.tolist() for t in outputs)]


@pytest.mark.parametrize("recording", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("kind", ["plain", "leaf", "result"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_what_is_detached_has_no_base(
    program: Callable[..., Any], kind: str, recording: bool
) -> None:
    jitted = srcjit.jit(program, fullgraph=program is not result_written_to)
    assert observed(jitted, kind, recording) == observed(program, kind, recording)
