"""What a call costs beyond the work: `pytest bench/test_dispatch.py`.

Groups put eager, `torch.compile` and srcjit side by side on the programs of `bench.dispatch`;
the answer is checked before it is timed. The last group times guards alone, against the goals of a microsecond for one tensor and
tens of microseconds for a module with 300 parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from bench.dispatch import CANDIDATES, PROGRAMS, Deep, prepare, silence
from srcjit.guards import emit_guard
from srcjit.passes.program import Guard, GuardSet, TensorGuard


@pytest.mark.parametrize("candidate", CANDIDATES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_call(name: str, candidate: str, benchmark: Any) -> None:
    torch.compiler.reset()
    benchmark.group = name
    call = prepare(PROGRAMS[name], candidate)
    with torch.no_grad(), silence():
        benchmark(call)


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
