"""`mode="max-autotune"` on a GPU: schedules are measured there, kept, and as right as others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

pytest.importorskip("triton")

import srcjit
from srcjit import cache, control
from srcjit.runtime import measure

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))


def column_sums(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sum(0)


def row_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.float(), -1).to(x.dtype)


def turned(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous() + 1


def everything(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (x * x).sum(), x.amax()


def scores(x: torch.Tensor) -> torch.Tensor:
    q = x[:64, :512].reshape(1, 4, 128, 64)
    weights = torch.softmax(30 * torch.tanh(q @ q.mT / 30), -1)
    return weights @ q


def close(found: Any, wanted: Any) -> None:
    """Small errors against the largest value: sums cancel."""
    for one, other in zip(tree_leaves(found), tree_leaves(wanted), strict=True):
        assert (one.double() - other).norm() <= 1e-2 * other.norm()


PROGRAMS = (column_sums, row_softmax, turned, everything, scores)


def text_of(function: object) -> str:
    dispatcher = control.dispatcher_of(function)
    assert dispatcher is not None
    return "\n".join(s.text for s in dispatcher.specializations)


@pytest.mark.parametrize(
    ("dtype", "dynamic"),
    ((torch.float32, False), (torch.bfloat16, False), (torch.float32, True)),
)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_answers_are_those_of_the_default(
    program: Callable[..., object], dtype: torch.dtype, dynamic: bool
) -> None:
    tuned = srcjit.jit(program, mode="max-autotune", dynamic=dynamic)
    for rows, columns in ((300, 2000), (1111, 777)):
        x = torch.randn(rows, columns, device="cuda", dtype=dtype)
        kept = x.clone()
        close(tuned(x), program(x.double()))
        assert torch.equal(x, kept), "measured on the memory of the program"


def test_what_was_measured_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1024, 4096, device="cuda")
    first = srcjit.jit(column_sums, mode="max-autotune")
    first(x)
    assert "fastest of" in text_of(first)
    assert list(cache.directory("autotune").iterdir())
    chosen = text_of(first)
    control.reset()

    def asked(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(measure, "_measure", asked)
    again = srcjit.jit(column_sums, mode="max-autotune")
    again(x)
    assert text_of(again) == chosen
