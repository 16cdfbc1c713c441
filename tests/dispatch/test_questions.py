"""What a guard asks at each call, asked by a shortcut without Python."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import srcjit
from srcjit.control import dispatcher_of
from srcjit.facts import GlobalState, TensorFacts
from srcjit.questions import questions
from srcjit.runtime import cpp_build, reader
from srcjit.unchanged import Unchanged
from tests.dispatch.test_shortcut import Recorder, compiled, is_short, same, settings

pytestmark = pytest.mark.skipif(
    not cpp_build.compiler_available(), reason="there is no C++ compiler"
)
__all__ = ["settings"]

shift = 1.0
"""A global that a program reads."""


class Plain(nn.Module):
    """Reads a global and a builtin; its guard asks whether they are what they were."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            x = torch.relu(layer(x)) + shift
        return x


class Scales(nn.Module):
    """Takes tensors of each dtype and shape."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x * layer.bias
        return x


class Two(nn.Module):
    """Of two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x)) * y
        return x


TEXT = """\
def other(x):
    return x


def guard(self, x):
    try:
        if not tensors.check(x):
            return False
        if (not state.check()
            or function_modes()
            or forward_ad._current_level >= 0):
            return False
        if unchanged.now(self) is None:
            if type(self) is not Net:
                return False
            unchanged.learn(self)
        else:
            if user_globals['nn'] is not nn_1:
                return False
            if not user_globals.keys().isdisjoint(('isinstance', 'len')):  # hidden
                return False
        return True
    except Exception:
        return False


after = 1
"""


def loaded(text: str) -> tuple[FunctionType, dict[str, Any]]:
    state = GlobalState()
    scope: dict[str, Any] = {
        "state": state,
        "tensors": TensorFacts(state),
        "function_modes": len,
        "forward_ad": forward_ad,
        "unchanged": Unchanged("self", ()),
        "user_globals": {"nn": nn},
        "nn_1": nn,
    }
    exec(text, scope)
    return scope["guard"], scope


def test_questions_of_a_guard() -> None:
    guard, scope = loaded(TEXT)
    assert questions(guard, TEXT) == (
        ("tensors", scope["tensors"], "check", True, (1,)),
        ("call", scope["state"], "check", True, ()),
        ("call", len, None, False, ()),
        ("below", forward_ad, "_current_level", 0),
        ("is", scope["user_globals"], "nn", nn, True),
        ("absent", scope["user_globals"], ("isinstance", "len")),
    )


@pytest.mark.parametrize(
    ("other", "fits"),
    [
        ("if x.n != 3:", True),
        ("if not state.check(x.n + 1) or x.n > 3:", False),
        ("if type(x.n) is not int or x.n != 3:", True),
        ("if user_globals['nn'].n is not nn_1:", False),
        ("if not (state.check() or function_modes()):", False),
        ("if user_globals['nn'] is nothing_of_ours:", False),
        ("if x.n > 5 and x.n < 7:", True),
    ],
)
def test_other_conditions_are_asked_at_once(other: str, fits: bool) -> None:
    text = TEXT.replace("if not tensors.check(x):", other)
    guard, scope = loaded(text)
    *known, (kind, function, name, wanted, values) = questions(guard, text)
    assert ("call", scope["state"], "check", True, ()) in known
    assert (kind, name, wanted, values) == ("call", None, True, (0, 1))
    try:
        found = function(None, SimpleNamespace(n=3))
    except (AttributeError, NameError, TypeError):
        found = False
    assert bool(found) is fits


def test_a_guard_with_other_statements_is_called_whole() -> None:
    text = TEXT.replace(
        "        if not tensors", "        n = x.n\n        if not tensors"
    )
    guard, _ = loaded(text)
    ((kind, whole, name, wanted, values),) = questions(guard, text)
    assert (kind, name, wanted, values) == ("call", None, True, (0, 1))
    assert whole.__code__ is guard.__code__
    assert whole.__globals__["unchanged"].now(3) == ()


class Functions(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "function mode": Functions,
    "dispatch mode": Dispatches,
    "inference": torch.inference_mode,
    "grad": torch.enable_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "forward mode": forward_ad.dual_level,
    "default device": lambda: torch.device("cpu"),
}


@pytest.mark.parametrize("name", STATES)
def test_each_state_is_asked(name: str) -> None:
    module = Plain()
    jitted = compiled(module)
    x = torch.randn(3, 4)
    for _ in range(6):
        same(jitted, module, x)
    assert is_short(jitted, x)
    with STATES[name]():
        assert not is_short(jitted, x)
        same(jitted, module, x)
    assert is_short(jitted, x)


def test_globals_and_what_hides_builtins_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = Plain()
    jitted = compiled(module)
    dispatcher = dispatcher_of(jitted.forward.__func__)
    assert dispatcher is not None
    assert "asked" not in dispatcher.stub_text
    kinds = {row[0] for row in asked_by(jitted)}
    assert {"tensors", "call", "below", "is", "absent"} <= kinds
    x = torch.randn(3, 4)
    for _ in range(6):
        same(jitted, module, x)
    here = globals()
    with monkeypatch.context() as patch:
        patch.setitem(here, "isinstance", lambda value, cls: True)
        assert not is_short(jitted, x)
        same(jitted, module, x)
    assert is_short(jitted, x)
    with monkeypatch.context() as patch:
        patch.setitem(here, "shift", 2.0)
        assert not is_short(jitted, x)
        same(jitted, module, x)
    with monkeypatch.context() as patch:
        patch.delitem(here, "nn")
        assert not is_short(jitted, x)
        with pytest.raises(NameError):
            jitted(x)
    assert is_short(jitted, x)
    assert builtins.isinstance is isinstance


def asked_by(jitted: Any) -> tuple[Any, ...]:
    dispatcher = dispatcher_of(jitted.forward.__func__)
    assert dispatcher is not None
    (made,) = dispatcher.specializations
    return questions(made.guard, made.text)


ARGUMENTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "dtype": lambda x: x.view(torch.int32),
    "shape": lambda x: x[:2],
    "strides": lambda x: x.as_strided((3, 4), (1, 3)),
    "negation": torch._neg_view,
    "class": lambda x: nn.Parameter(x, requires_grad=False),
    "a gradient": lambda x: x.detach().requires_grad_(),
}
"""Other tensors in the same memory."""


@pytest.mark.parametrize("name", ARGUMENTS)
def test_each_fact_of_an_argument_is_asked(name: str) -> None:
    module = Scales()
    jitted = compiled(module)
    x = torch.randn(3, 4)
    for _ in range(6):
        same(jitted, module, x)
    assert is_short(jitted, x)
    other = ARGUMENTS[name](x)
    assert other.data_ptr() == x.data_ptr()
    assert not is_short(jitted, other)
    for _ in range(3):
        same(jitted, module, other)
    assert is_short(jitted, x)


def test_an_argument_that_changes_in_place_is_seen() -> None:
    module = Scales()
    jitted = compiled(module)
    x = torch.randn(3, 4)
    for _ in range(6):
        same(jitted, module, x)
    assert is_short(jitted, x)
    x.t_()
    with pytest.raises(RuntimeError):
        jitted(x)
    x.t_()
    assert is_short(jitted, x)
    x.data = x.double()
    assert not is_short(jitted, x)
    same(jitted, module, x)


def test_one_tensor_twice_is_seen() -> None:
    module = Two()
    jitted = srcjit.jit(module, mode="reduce-overhead")
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(6):
        torch.testing.assert_close(jitted(x, y), module(x, y))
    before = Recorder.replayed
    torch.testing.assert_close(jitted(x, y), module(x, y))
    assert Recorder.replayed == before + 1
    torch.testing.assert_close(jitted(x, x), module(x, x))
    assert Recorder.replayed == before + 1


def test_a_transform_is_seen() -> None:
    module = Plain()
    jitted = compiled(module)
    x = torch.randn(3, 4)
    for _ in range(6):
        same(jitted, module, x)
    before = Recorder.replayed
    many = torch.stack([x, x + 1])
    torch.testing.assert_close(
        torch.func.vmap(jitted)(many), torch.func.vmap(module)(many)
    )
    assert torch.func.vmap(lambda n: n + jitted(x))(many).shape == many.shape
    assert Recorder.replayed == before
    assert is_short(jitted, x)


def test_what_is_no_question_is_refused() -> None:
    from srcjit.runtime import replays

    assert reader.loaded() is not None
    front = replays.entry(len, Recorder(0).questions, wait=True)
    for row in [
        3,
        (),
        ("call",),
        ("other", len, None, True, ()),
        ("call", len, None, True, (2,)),
        ("call", len, None, True, (-1,)),
        ("is", 3, "nn", nn, True),
        ("absent", {}, 3),
        ("below", len, 3, 3),
    ]:
        with pytest.raises((TypeError, ValueError)):
            replays.shortcut(
                front, Unchanged("self", ()), print, (row,), (2, (0,), 0, ()), None
            )
