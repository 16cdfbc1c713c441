"""A mode that a segment changes is as it was after an operation between raises."""

from __future__ import annotations

import pytest
import torch

import srcjit


def grad(x, i):
    with torch.no_grad():
        y = x[i] * 2
    return y + x.sum()


def autocast(x, i):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x[i] @ x
    return y


@pytest.mark.parametrize("stage", ["specialize", "emit"])
@pytest.mark.parametrize("function", [grad, autocast])
def test_mode_is_restored(function, stage: str) -> None:
    jitted = srcjit.jit(function, options={"stage": stage})
    x = torch.randn(4, 4)
    with pytest.raises(IndexError):
        jitted(x, torch.tensor([9]))
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")
    index = torch.tensor([1])
    torch.testing.assert_close(jitted(x, index), function(x, index))
