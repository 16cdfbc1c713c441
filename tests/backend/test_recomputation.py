"""What is read at several points of another loop is not computed again without end.

Each program repeats statements that read the value before at two points or more, so that a
kernel that computes everything from the inputs grows with a power of the number of turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional

from srcjit.passes import inlining
from srcjit.passes.functional import functionalize
from srcjit.passes.fuse import fuse
from srcjit.passes.loops import Load, Op
from srcjit.passes.lower import lower
from srcjit.passes.schedule import Schedule
from tests.backend.support import assert_same, compiled, segment_of

FOUR = "roll(x, 1, 0) + roll(x, -1, 0) + roll(x, 1, 1) + roll(x, -1, 1)"
NEIGHBOURS = " + ".join(
    f"roll(x, ({a}, {b}), (0, 1))"
    for a in (-1, 0, 1)
    for b in (-1, 0, 1)
    if (a, b) != (0, 0)
)

TURNS: dict[str, Sequence[str]] = {
    "cat": ["x = torch.cat([x[:, 1:], x[:, :1]], 1)", "x = x * 0.5"],
    "cat of a costly value": [
        "x = torch.cat([x[:, 1:], x[:, :1]], 1)",
        "x = torch.sin(x)",
    ],
    "roll": ["x = roll(x, 1, 1) + x"],
    "flip": ["x = x.flip(1) * 0.5 + x"],
    "stencil": ["x = x[:, 1:] + x[:, :-1]"],
    "padded stencil": ["p = F.pad(x, (1, 1))", "x = p[:, 2:] + p[:, :-2]"],
    "transpose": ["x = x + x.t()", "x = x * 0.25"],
    "where": ["x = torch.where(x > 0, roll(x, 1, 0), roll(x, 1, 1)) * 0.5"],
    "heat": [f"x = x + 0.1 * ({FOUR} - 4 * x)"],
    "life": [f"n = {NEIGHBOURS}", "x = ((n == 3) | ((n == 2) & (x == 1))).float()"],
    "prefix sums": ["x = x + F.pad(x, (3, 0))[:, :-3]"],
    "butterflies": ["a, b = x[:, :32], x[:, 32:]", "x = torch.cat([a + b, a - b], 1)"],
    "written in part": ["y = x.clone()", "y[:, 1:] += x[:, :-1]", "x = y * 0.5"],
    "rows": ["x = x - x.mean(1, keepdim=True)", "x = roll(x, 1, 1) + x"],
}


def written(name: str, turns: int) -> Callable[[Any], Any]:
    """The function that makes some turns of a program."""
    body = "".join(f"    {s}\n" for _ in range(turns) for s in TURNS[name])
    scope: dict[str, Any] = {"torch": torch, "F": functional, "roll": torch.roll}
    exec(f"def repeated(x):\n{body}    return x\n", scope)
    made: Callable[[Any], Any] = scope["repeated"]
    return made


def argument(name: str) -> torch.Tensor:
    """What the programs take."""
    torch.manual_seed(0)
    x = torch.randn(64, 64)
    return (x > 0).float() if name == "life" else x


def fused(name: str, turns: int) -> Schedule:
    """The kernels of some turns."""
    graph = functionalize(segment_of(written(name, turns), argument(name)))
    assert graph.forward is not None
    return fuse(lower(graph.forward))


def nodes(schedule: Schedule) -> int:
    """How many operations and loads the kernels have."""
    return sum(
        isinstance(v, Op | Load) for kernel in schedule.kernels for v in kernel.values
    )


@pytest.mark.parametrize("again", [1, 4])
@pytest.mark.parametrize("name", TURNS)
def test_kernels_grow_with_the_turns(
    name: str, again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inlining, "AGAIN", {"cpu": again})
    one, few, many = (nodes(fused(name, turns)) for turns in (1, 4, 12))
    assert few <= one * 4 * (2 + 2 * again)
    assert many <= few * 4


@pytest.mark.parametrize("name", TURNS)
def test_turns_are_computed_as_eager_does(name: str) -> None:
    function, x = written(name, 5), argument(name)
    assert_same(compiled(function, x)(x), function(x), rtol=1e-5, atol=1e-5)


def test_what_is_cheap_to_compute_again_is_not_memory() -> None:
    assert len(fused("stencil", 3).kernels) == 1
    assert len(fused("cat", 1).kernels) == 1
