"""Elements chosen by integer tensors, as loops: against eager, in range and out of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import srcjit
from srcjit.options import Options
from srcjit.passes.functional import functionalize
from srcjit.passes.fuse import fuse
from srcjit.passes.indexing import as_expr
from srcjit.passes.lower import lower
from srcjit.passes.lowerings import gathers
from srcjit.passes.segment import compile_segment
from tests.backend.interpret import run_schedule
from tests.backend.support import load, segment_of
from tests.backend.test_lowerings import run


@pytest.fixture(autouse=True)
def checked_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA: kernels check indices themselves."""
    monkeypatch.setattr(gathers, "CHECKED", {"cpu", "cuda"})


def integers(*size: int, below: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(0, below, size, dtype=dtype)


X = torch.randn(6, 5, 4)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gather": (lambda x, i: x.gather(1, i), (X, integers(6, 3, 4, below=5))),
    "gather of a part": (lambda x, i: x.gather(0, i), (X, integers(2, 5, 1, below=6))),
    "index_select": (lambda x, i: x.index_select(-1, i), (X, integers(9, below=4))),
    "one index": (lambda x, i: x[:, i], (X, integers(3, 2, below=5))),
    "narrow index": (
        lambda x, i: x[i] * 2,
        (X, integers(7, below=6, dtype=torch.int32)),
    ),
    "negative index": (lambda x, i: x[i - 6], (X, integers(7, below=6))),
    "two indices": (
        lambda x, i, j: x[i, j],
        (X, integers(3, 1, below=6), integers(2, below=5)),
    ),
    "a slice between": (
        lambda x, i, j: x[i, :, j],
        (X, integers(3, below=6), integers(3, below=4)),
    ),
    "embedding": (
        lambda w, i: F.embedding(i, w) + 1,
        (torch.randn(11, 8), integers(4, 3, below=11)),
    ),
    "of a sum, transposed": (
        lambda x, y, i: (x + y.t()).t().gather(0, i),
        (torch.randn(5, 7), torch.randn(7, 5), integers(3, 5, below=7)),
    ),
    "of pieces": (
        lambda x, y, i: torch.cat([x, y], 1).gather(1, i),
        (torch.randn(5, 3), torch.randn(5, 2), integers(5, 4, below=5)),
    ),
    "of a softmax": (
        lambda x, i: torch.softmax(x, 1).gather(1, i),
        (torch.randn(5, 9), integers(5, 2, below=9)),
    ),
    "of a logarithm of a softmax": (
        lambda x, t: -torch.log_softmax(x, 1).gather(1, t[:, None]).squeeze(1).mean(),
        (torch.randn(8, 9), integers(8, below=9)),
    ),
    "some ignored": (
        lambda x, t: torch.where(
            t < 0,
            0.0,
            torch.log_softmax(x, 1).gather(1, t.clamp(min=0)[:, None]).squeeze(1),
        ).sum(),
        (torch.randn(8, 9), torch.tensor([3, -100, 8, 0, -100, 1, 2, 2])),
    ),
    "chosen twice": (
        lambda x, i, j: x[i][j],
        (X, integers(7, below=6), integers(3, below=7)),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str) -> None:
    function, arguments = PROGRAMS[name]
    run(function, *arguments)


LOSSES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cross entropy": (F.cross_entropy, (torch.randn(8, 9), integers(8, below=9))),
    "cross entropy, some ignored": (
        F.cross_entropy,
        (torch.randn(8, 9), torch.tensor([3, -100, 8, 0, -100, 1, 2, 2])),
    ),
    "cross entropy by class": (
        lambda x, t, w: F.cross_entropy(x, t, weight=w),
        (torch.randn(8, 9), integers(8, below=9), torch.rand(9)),
    ),
}


@pytest.mark.cuda
@pytest.mark.parametrize("name", [*PROGRAMS, *LOSSES])
def test_on_the_gpu(name: str) -> None:
    function, arguments = (PROGRAMS | LOSSES)[name]
    moved = [a.cuda() for a in arguments]
    torch.testing.assert_close(srcjit.jit(function)(*moved), function(*moved))


@pytest.mark.cuda
def test_out_of_range_is_reported_as_by_eager() -> None:
    program = (
        "import torch, srcjit\n"
        "x = torch.randn(6, 5, device='cuda')\n"
        "i = torch.full((2, 5), 6, device='cuda')\n"
        "srcjit.jit(lambda x, i: x.gather(0, i) + 1)(x, i)\n"
        "torch.cuda.synchronize()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert "device-side assert triggered" in done.stderr


@pytest.mark.parametrize("wrong", [6, -1, -7])
def test_out_of_range_is_noticed(wrong: int) -> None:
    index = torch.zeros(1, 5, 4, dtype=torch.int64)
    good = index.clone()
    index[0, 2, 1] = wrong

    def program(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.gather(0, i) + 1

    run(program, X, good)
    functional = functionalize(segment_of(program, X, index))
    assert functional.forward is not None
    schedule = fuse(lower(functional.forward))
    given = dict(zip(functional.forward.placeholders, (X, index), strict=True))
    with pytest.raises(IndexError):
        run_schedule(schedule, given)


def test_a_size_that_only_a_check_needs_is_passed() -> None:
    def program(w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return F.embedding(i, w) + 1

    arguments = torch.randn(11, 8), integers(4, 3, below=11)
    functional = functionalize(segment_of(program, *arguments, dynamic=True))
    assert functional.forward is not None
    schedule = fuse(lower(functional.forward))
    rows = as_expr(functional.forward.inputs[0].size(0))
    assert [rows in kernel.sizes for kernel in schedule.kernels] == [True]


def test_eager_raises_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathers, "CHECKED", {"cuda"})
    function, arguments = PROGRAMS["gather"]
    run(function, *arguments, loops=False)


def test_positions_that_are_conditions() -> None:
    """gcc's vectors hold a condition as -1, and gather with that."""
    x, other = torch.arange(400.0).view(8, 50), torch.arange(50.0) % 3

    def chosen(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x[(y > 1).long(), 0],
            x[:, 0].index_select(0, (y > 1).long()),
            x[torch.where(y > 1, 3, 0), 1],
            x.gather(0, (x > 60).long()),
            x.t().gather(0, (x.t() > 60).long() % 5),
        )

    code = compile_segment(segment_of(chosen, x, other), Options(target="cpp"))
    assert "torch.ops" not in code.function
    for found, wanted in zip(load(code)(x, other), chosen(x, other), strict=True):
        assert torch.equal(found, wanted)
