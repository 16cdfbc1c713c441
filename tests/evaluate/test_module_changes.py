"""Modules, parameters, hooks and modes that change after the first call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.evaluate.changes import Cases, check_changes, x

case = Cases()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("shift", torch.ones(3))
        self.drop = nn.Dropout(0.5)
        self.flag = True
        self.layers = nn.ModuleList([nn.Tanh(), nn.Linear(3, 3)])

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        t = self.first(t) + self.shift
        for layer in self.layers:
            t = layer(t)
        return t * 2 if self.flag else t


def _net_case(*changes: Callable[[Net], Any]) -> Any:
    torch.manual_seed(0)
    net = Net()

    def f(t):
        return net(t)

    return f, lambda: (x(),), [functools.partial(change, net) for change in changes]


@case
def submodule_replaced():
    return _net_case(
        lambda n: setattr(n, "first", nn.Linear(3, 3, bias=False)),
        lambda n: setattr(n, "first", nn.Identity()),
        lambda n: n.layers.append(nn.ReLU()),
        lambda n: n.layers.__setitem__(0, nn.Sigmoid()),
        lambda n: n.layers.pop(1),
    )


@case
def parameter_replaced():
    return _net_case(
        lambda n: setattr(n.first, "weight", nn.Parameter(torch.ones(3, 3))),
        lambda n: setattr(n.first, "bias", None),
        lambda n: n.first.weight.requires_grad_(False),
        lambda n: n.double() and n.float(),
        lambda n: n.first.weight.data.zero_(),
        lambda n: setattr(n.first.weight, "data", torch.ones(3, 3)),
    )


@case
def buffer_and_flag():
    return _net_case(
        lambda n: setattr(n, "shift", torch.zeros(3)),
        lambda n: setattr(n, "shift", torch.zeros(2, 3)),
        lambda n: setattr(n, "flag", False),
        lambda n: setattr(n, "flag", 1),
        lambda n: n.eval(),
        lambda n: setattr(n, "forward", lambda t: t + 100),
        lambda n: delattr(n, "forward"),
    )


@case
def hooks_come_and_go():
    handles: list[Any] = []

    def add(net: Net) -> None:
        handles.append(net.first.register_forward_hook(lambda m, a, o: o * 2))

    def add_before(net: Net) -> None:
        handles.append(net.first.register_forward_pre_hook(lambda m, a: (a[0] + 1,)))

    def add_global(net: Net) -> None:
        handles.append(
            nn.modules.module.register_module_forward_hook(lambda m, a, o: o + 1)
        )

    def remove(net: Net) -> None:
        handles.pop().remove()

    return _net_case(add, add_before, remove, add, remove, remove, add_global, remove)


@case
def training_mode():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

    def f(t):
        return net(t), net[1].num_batches_tracked

    def check_eval() -> None:
        net.eval()

    # BatchNorm changes its own buffers, so both calls see different ones: compare in eval.
    net.eval()
    return (
        f,
        lambda: (x(),),
        [lambda: net[0].train(), check_eval, lambda: net[1].reset_parameters()],
    )


@case
def grad_mode_and_default_dtype():
    weight = nn.Parameter(torch.ones(3))

    def f(t):
        return t * weight, torch.ones(2), torch.is_grad_enabled()

    return (
        f,
        lambda: (x(),),
        [
            lambda: torch.set_grad_enabled(False),
            lambda: torch.set_grad_enabled(True),
            lambda: torch.set_default_dtype(torch.float64),
            lambda: torch.set_default_dtype(torch.float32),
        ],
    )


@case
def shared_parameter():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))

    def f(t):
        return (
            net(t),
            len(list(net.parameters())),
            [n for n, _ in net.named_parameters()],
        )

    return (
        f,
        lambda: (x(),),
        [
            lambda: setattr(net[1], "weight", net[0].weight),
            lambda: net[0].register_parameter("extra", nn.Parameter(torch.ones(1))),
            lambda: net.append(nn.Tanh()),
        ],
    )


@pytest.mark.parametrize("name", case)
def test_change_is_noticed(name: str) -> None:
    check_changes(case[name])
