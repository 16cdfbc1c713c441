"""Every program of the suite with its tensors on a GPU; skipped where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

pytest.importorskip("triton")

from tests.harness import Made, check
from tests.programs import CASES
from tests.programs.training import TRAINING

pytestmark = pytest.mark.cuda


def _moved(value: Any) -> Any:
    if isinstance(value, torch.nn.Module):
        return value.cuda()
    if isinstance(value, torch.Tensor):
        grad = value.requires_grad and value.is_leaf
        return value.detach().cuda().requires_grad_() if grad else value.cuda()
    return value


def on_gpu(make: Callable[[], Made]) -> Callable[[], Made]:
    """The same program with modules and tensor arguments on the GPU."""

    def moved() -> Made:
        function, args, kwargs = make()
        return _moved(function), tree_map(_moved, args), tree_map(_moved, kwargs)

    return moved


@pytest.mark.parametrize("name", CASES)
def test_program(name: str) -> None:
    check(on_gpu(CASES[name]))


@pytest.mark.parametrize("name", TRAINING)
def test_training(name: str) -> None:
    check(on_gpu(TRAINING[name]), backward=True)
