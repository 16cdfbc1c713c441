"""What a call costs beyond the work: `pytest bench/test_dispatch.py`.

Groups put eager, `torch.compile` and srcjit side by side; the answer is checked before it is
timed. The last group times guards alone, against the goals of a microsecond for one tensor and
tens of microseconds for a module with 300 parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import srcjit
from srcjit.guards import emit_guard
from srcjit.passes.program import Guard, GuardSet, TensorGuard

CANDIDATES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f,
    "torch.compile": torch.compile,
    "srcjit": srcjit.jit,
}


def three_operations(x: torch.Tensor) -> torch.Tensor:
    return (torch.sin(x) * 2 + 1).relu()


def scaled(x: torch.Tensor, n: int = 2, *, bias: float = 0.5) -> torch.Tensor:
    return x * n + bias


class Deep(nn.Module):
    """150 layers, so 300 parameters, of almost no work."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(150))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer.bias
        return x


@pytest.mark.parametrize("by", CANDIDATES)
@pytest.mark.benchmark(group="three operations on 16 elements")
def test_three_operations(benchmark: Any, by: str) -> None:
    torch.compiler.reset()
    x = torch.randn(16)
    function = CANDIDATES[by](three_operations)
    with torch.no_grad():
        assert torch.allclose(function(x), three_operations(x))
        function(x)
        benchmark(function, x)


@pytest.mark.parametrize("by", CANDIDATES)
@pytest.mark.benchmark(group="defaults and keywords")
def test_defaults_and_keywords(benchmark: Any, by: str) -> None:
    torch.compiler.reset()
    x = torch.randn(16)
    function = CANDIDATES[by](scaled)
    with torch.no_grad():
        assert torch.allclose(function(x, bias=1.5), scaled(x, bias=1.5))
        function(x, bias=1.5)
        benchmark(function, x, bias=1.5)


@pytest.mark.parametrize("by", CANDIDATES)
@pytest.mark.benchmark(group="a module with 300 parameters")
def test_deep_module(benchmark: Any, by: str) -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    module = Deep()
    x = torch.randn(1)
    function = CANDIDATES[by](module)
    with torch.no_grad():
        assert torch.allclose(function(x), module(x))
        function(x)
        benchmark(function, x)


def _guard(guards: GuardSet, parameters: list[str]) -> Callable[..., bool]:
    text = emit_guard(guards, parameters)
    scope: dict[str, Any] = {}
    exec("\n".join(text.imports) + "\n" + text.text, scope)
    made: Callable[..., bool] = scope["guard"]
    return made


def _facts(text: str, tensor: torch.Tensor) -> TensorGuard:
    return TensorGuard(
        text,
        type(tensor),
        tensor.dtype,
        tensor.device,
        tuple(tensor.shape),
        tuple(tensor.stride()),
        tensor.requires_grad,
    )


@pytest.mark.benchmark(group="guards alone")
def test_guard_of_one_tensor(benchmark: Any) -> None:
    x = torch.randn(16)
    guard = _guard(GuardSet((_facts("x", x),)), ["x"])
    assert guard(x) and not guard(x.double())
    benchmark(guard, x)


@pytest.mark.benchmark(group="guards alone")
def test_guard_of_300_parameters(benchmark: Any) -> None:
    module = Deep()
    guards: list[Guard | TensorGuard] = []
    for index, layer in enumerate(module.layers):
        path = f"self._modules['layers']._modules['{index}']"
        guards.append(Guard(f"{path}.training is True"))
        for name, parameter in layer.named_parameters():
            guards.append(_facts(f"{path}._parameters['{name}']", parameter))
    guard = _guard(GuardSet(tuple(guards)), ["self"])
    assert guard(module)
    benchmark(guard, module)
