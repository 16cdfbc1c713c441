"""`out=` forms of ATen operators: used only where they write what the operator returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from srcjit.passes.spelling import out_form
from tests.harness import check
from tests.lowerings.out_forms import differences

F = torch.nn.functional

LOSSES: dict[str, Callable[..., Any]] = {
    "binary_cross_entropy": F.binary_cross_entropy,
    "mse_loss": F.mse_loss,
    "huber_loss": F.huber_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "soft_margin_loss": F.soft_margin_loss,
    "multilabel": F.multilabel_soft_margin_loss,
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_is_copied(name: str, reduction: str) -> None:
    loss = LOSSES[name]

    def copied(x: Tensor, y: Tensor) -> Tensor:
        return loss(x, y, reduction=reduction).clone()

    check(lambda: (copied, (torch.rand(5, 5), torch.rand(5, 5)), {}))


@pytest.mark.parametrize("name", ["mse_loss", "huber_loss", "binary_cross_entropy"])
def test_losses_have_no_out_form(name: str) -> None:
    assert out_form(getattr(torch.ops.aten, name).default) is None


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("mm.default", (torch.rand(3, 4), torch.rand(4, 5))),
        ("cumsum.default", (torch.rand(3, 4), 1)),
        ("sort.default", (torch.rand(3, 4),)),
        ("index_select.default", (torch.rand(3, 4), 0, torch.tensor([2, 0]))),
    ],
)
def test_an_out_form_writes_where_it_is_told(name: str, args: tuple[Any, ...]) -> None:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload)
    made = operator(*args)
    results = [made] if isinstance(made, Tensor) else list(made)
    assert out_form(operator) is not None
    assert not differences(operator, args, {}, results)
