"""Dead temporaries give their memory to values that are as large."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

import srcjit
from tests.backend.support import check_stages


def layers(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    for _ in range(6):
        x = torch.sin(torch.addmm(b, x, w))
    return x


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(16, 16)


def test_layers_take_turns_in_two_pieces_of_memory(x: Tensor) -> None:
    text = check_stages(layers, x, x / 4, x[0].clone())["emit"]
    # Two for the turns, and the result.
    assert len(re.findall(r"= torch.addmm\(", text)) == 3
    assert len(re.findall(r"torch.addmm\(.*, out=\w+\)", text)) == 3
    assert "empty" not in text


def test_kernels_take_memory_too(x: Tensor) -> None:
    def scans(x: Tensor) -> Tensor:
        a = torch.sin(x)
        b = torch.cos(a.t() + a)
        c = torch.cos(b.t() + b)
        d = torch.cos(c.t() + c)
        return torch.cos(d.t() + d).sum(0)

    text = check_stages(scans, x)["emit"]
    assert text.count("empty_cpu((16, 16)") <= 2


def test_what_is_returned_was_not_written_before(x: Tensor) -> None:
    run = srcjit.jit(layers)
    results = run(x, x / 4, x[0].clone()), run(x, x / 4, x[0].clone())
    assert [r._version for r in results] == [0, 0]
    assert results[0].data_ptr() != results[1].data_ptr()
    torch.testing.assert_close(results[0], layers(x, x / 4, x[0]))


def test_every_layer_is_returned(x: Tensor) -> None:
    def kept(x: Tensor, w: Tensor) -> list[Tensor]:
        found = []
        for _ in range(4):
            x = torch.sin(x @ w)
            found.append(x)
        return found

    text = check_stages(kept, x, x / 4)["emit"]
    assert "out=" not in text


def test_a_view_keeps_its_memory(x: Tensor) -> None:
    def shown(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        first = x @ w
        rows = first[1:3]
        second = first.t() @ w
        third = second @ w
        return rows, third @ w

    check_stages(shown, x, x / 4)


def test_another_allocation_frees_what_is_dead(x: Tensor) -> None:
    """Holding the first product while the sort allocates would raise the peak."""

    def sorts(x: Tensor, w: Tensor) -> Tensor:
        first = torch.sin(x @ w)
        large = torch.cat([first, first + x, x]).sort(0).values
        return (x * large[0]) @ w @ w

    text = check_stages(sorts, x, x / 4)["emit"]
    freed = re.search(r"del .*\bmatmul\b", text)
    assert freed and freed.end() < text.index("aten.sort")


@pytest.mark.parametrize("shape", [(16, 16), (4, 4, 16)])
def test_batches_and_training(x: Tensor, shape: tuple[int, ...]) -> None:
    def step(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.tanh(x @ w)
        return x.sum()

    given = torch.randn(shape)
    wanted = w = (x / 4).requires_grad_()
    (wanted,) = torch.autograd.grad(step(given, w), w)
    (found,) = torch.autograd.grad(srcjit.jit(step)(given, w), w)
    torch.testing.assert_close(found, wanted)


def test_symbolic_sizes(x: Tensor) -> None:
    run = srcjit.jit(layers, dynamic=True)
    for n in (3, 5, 16):
        given = torch.randn(n, 16)
        torch.testing.assert_close(
            run(given, x / 4, x[0].clone()), layers(given, x / 4, x[0])
        )
