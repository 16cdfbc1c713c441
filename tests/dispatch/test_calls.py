"""Calls of jitted modules, with and without the extension that needs no Python for them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import srcjit
from srcjit import module as jitted_modules
from srcjit.runtime import cpp_build, reader


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def forward(
        self, x: Tensor, *more: Tensor, scale: float = 1.0, **others: float
    ) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return sum(more, x) * scale + sum(others.values())


@pytest.fixture(params=["extension", "python", "late"], autouse=True)
def how(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """What a class of jitted modules has as `__call__`; late: Python's at first."""
    if not cpp_build.compiler_available() or reader.loaded(wait=True) is None:
        pytest.skip("there is no C++ compiler")
    if not hasattr(reader.loaded(), "module_call"):
        pytest.skip("dictionaries have no versions in this Python")
    monkeypatch.setattr(
        jitted_modules, "_subclasses", type(jitted_modules._subclasses)()
    )
    if request.param == "python":
        monkeypatch.setattr(
            jitted_modules, "_call_without_python", lambda: jitted_modules._call
        )
    if request.param == "late":
        monkeypatch.setattr(reader, "is_loaded", lambda: False)
    with torch.no_grad():
        yield request.param


def called(jitted: Any, module: Sum, *more: Any, **others: Any) -> None:
    x = torch.randn(2, 3)
    torch.testing.assert_close(jitted(x, *more, **others), module(x, *more, **others))


def ready(how: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Sum]:
    module = Sum()
    jitted = srcjit.jit(module)
    assert type(jitted).__dict__["__call__"] is not None
    for turn in range(4):
        called(jitted, module)
        if turn == 1:
            monkeypatch.setattr(reader, "is_loaded", lambda: True)
            jitted.marked = True  # what was learned is learned anew
    plain = type(jitted).__dict__["__call__"] is jitted_modules._call
    assert plain == (how == "python")
    return jitted, module


def test_arguments_of_every_kind(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jitted, module = ready(how, monkeypatch)
    for count in (0, 1, 5, 6, 7, 12):
        more = [torch.full((3,), float(n)) for n in range(count)]
        for _ in range(2):
            called(jitted, module, *more)
            called(jitted, module, *more, scale=2.0)
            called(jitted, module, *more, scale=2.0, a=1.0, b=2.0, c=3.0)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        jitted()
    with pytest.raises(RuntimeError, match="shapes"):
        jitted(torch.ones(2, 4))
    assert list(inspect.signature(jitted).parameters) == ["args", "kwargs"]


def test_hooks_come_and_go(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jitted, module = ready(how, monkeypatch)
    for owner in (jitted, module, module.layers[1]):
        handle = owner.register_forward_hook(lambda m, args, made: made + 1)
        called(jitted, module)
        handle.remove()
        called(jitted, module)
    handle = nn.modules.module.register_module_forward_hook(
        lambda m, args, made: made * 2
    )
    called(jitted, module)
    handle.remove()
    called(jitted, module)


def test_what_else_is_called(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jitted, module = ready(how, monkeypatch)
    for other in (copy.copy(jitted), copy.deepcopy(jitted)):
        called(other, module)
    replica = jitted.__new__(type(jitted))
    replica.__dict__ = module.__dict__.copy()
    called(replica, module)
    traced = torch.jit.trace(jitted, torch.ones(2, 3))
    called(traced, module)
    with monkeypatch.context() as patch:
        patch.setattr(Sum, "forward", lambda self, x: x + 1)
        called(jitted, module)
    module.__dict__["forward"] = lambda x: x - 1
    called(jitted, module)
    del module.__dict__["forward"]
    called(jitted, module)
