"""What a guard learns of tuples and classes, and what it does not learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import srcjit
from srcjit.control import dispatcher_of
from srcjit.unchanged import KEPT, Unchanged, may_be_learned
from tests.dispatch.test_unchanged import Node, needs_versions, ready


def level() -> nn.Module:
    """A module of new classes, which the test changes."""

    class Base(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.ones(3))

        def step(self, x: Tensor) -> Tensor:
            return x + self.shift

    class Derived(Base):
        def forward(self, x: Tensor) -> Tensor:
            return self.step(x)

    return Derived()


class Sized(nn.Module):
    """What its tuples and its list hold decides."""

    def __init__(self) -> None:
        super().__init__()
        self.scales: Any = (2, (3.0, "add"))
        self.shifts = [1.0, 2.0]
        self.convolution = nn.Conv1d(1, 1, 2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        first, (second, how) = self.scales
        x = x * first + second if how == "add" else x * first * second
        return self.convolution(x) + self.shifts[0]


SIZES: dict[str, Callable[[Sized], Any]] = {
    "a number": lambda m: setattr(m, "scales", (4, (3.0, "add"))),
    "a number of another class": lambda m: setattr(m, "scales", (2.0, (3.0, "add"))),
    "deeper": lambda m: setattr(m, "scales", (2, (3.0, "times"))),
    "a list": lambda m: setattr(m, "scales", [2, (4.0, "add")]),
    "a list inside": lambda m: setattr(m, "scales", (2, [3.0, "times"])),
    "in a list": lambda m: m.shifts.__setitem__(0, 5.0),
    "of a part": lambda m: setattr(m.convolution, "stride", (2,)),
}


@needs_versions
@pytest.mark.parametrize("name", SIZES)
def test_each_change_of_a_tuple_is_seen(name: str) -> None:
    ready()
    module = Sized()
    compiled = srcjit.jit(module)
    x = torch.arange(4.0).reshape(1, 4)
    with torch.no_grad():
        for _ in range(2):
            for _ in range(4):
                torch.testing.assert_close(compiled(x), module(x))
            SIZES[name](module)


@needs_versions
def test_what_tuples_hold_is_learned() -> None:
    ready()
    module = nn.Sequential(nn.Conv1d(1, 1, 2), nn.LayerNorm((3,)))
    compiled = srcjit.jit(module)
    x = torch.arange(4.0).reshape(1, 4)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(compiled(x), module(x))
    dispatcher = dispatcher_of(compiled.forward.__func__)
    assert dispatcher is not None
    (made,) = dispatcher.specializations
    asked = made.text.partition("        else:\n")[2].partition("return True")[0]
    assert "stride" not in asked and "normalized_shape" not in asked
    assert made.guard.__globals__["unchanged"].now(module) is not None


def raised(self: Any, name: str) -> Any:
    return nn.Module.__getattr__(self, name) + 1


CLASS_CHANGES: dict[str, Callable[[type, type], Any]] = {
    "attribute that hides": lambda base, derived: setattr(
        derived, "shift", property(lambda self: 5)
    ),
    "attribute of a base": lambda base, derived: setattr(
        base, "shift", property(lambda self: 6)
    ),
    "method": lambda base, derived: setattr(derived, "step", lambda self, x: x - 1),
    "method of a base": lambda base, derived: setattr(
        base, "step", lambda self, x: x * 3
    ),
    "how attributes are read": lambda base, derived: setattr(
        base, "__getattr__", raised
    ),
}


@needs_versions
@pytest.mark.parametrize("name", CLASS_CHANGES)
def test_each_change_of_a_class_is_seen(name: str) -> None:
    ready()

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(level() for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for part in self.parts:
                x = part(x)
            return x

    whole = Holder()
    compiled = srcjit.jit(whole)
    x = torch.arange(3.0)
    with torch.no_grad():
        for _ in range(4):
            assert compiled(x).equal(whole(x))
        part = type(whole.parts[1])
        CLASS_CHANGES[name](part.__bases__[0], part)
        for _ in range(4):
            assert compiled(x).equal(whole(x))


class Computed:
    @property
    def n(self) -> int:
        return 3


class Asked:
    def __getattr__(self, name: str) -> int:
        return 3


class OfClass:
    n: Any = 3


class Overridden(Node):
    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Table(dict[str, int]):
    pass


@needs_versions
@pytest.mark.parametrize(
    ("value", "condition"),
    [
        (Computed(), "root.n == 3"),
        (Asked(), "root.n == 3"),
        (Overridden(n=3), "root.n == 3"),
        (Node(n=[3]), "len(root.n) == 1"),
        (Node(n=Node()), "root.n"),
        (Node(n=Table(a=1)), "root.n['a'] == 1"),
        (Node(n=(3, [])), "root.n == (3, 4)"),
        (Node(n=int), "root.n.real"),
    ],
    ids=lambda part: part if isinstance(part, str) else type(part).__name__,
)
def test_what_versions_do_not_decide_is_not_learned(value: Any, condition: str) -> None:
    ready()
    unchanged = Unchanged("root", (condition,))
    try:
        unchanged.learn(value)
    except AttributeError:
        pytest.fail("every path exists")
    assert unchanged.now(value) is None


@needs_versions
def test_the_length_of_a_tuple_is_learned() -> None:
    ready()
    root = Node(n=(3,))
    unchanged = Unchanged("root", ("len(root.n) == 1",))
    unchanged.learn(root)
    assert unchanged.now(root) == ()
    setattr(root, "n", (3, 4))
    assert unchanged.now(root) is None


@needs_versions
def test_an_attribute_of_the_class_is_learned_with_its_version() -> None:
    ready()
    root = OfClass()
    root.__dict__["other"] = 1
    unchanged = Unchanged("root", ("root.n == 3",))
    unchanged.learn(root)
    assert unchanged.now(root) == ()
    OfClass.n = 4
    assert unchanged.now(root) is None


@needs_versions
def test_a_few_arguments_are_remembered() -> None:
    ready()
    roots = [Node(n=3) for _ in range(KEPT)]
    unchanged = Unchanged("root", ("root.n == 3",))
    for root in roots:
        unchanged._wait = 1
        unchanged.learn(root)
    assert all(unchanged.now(root) == () for root in roots)


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("type(self.a) is Net", True),
        ("type(self.a) is Other", False),
        ("not (self._forward_hooks or self._forward_pre_hooks)", True),
        ("self.__dict__.keys().isdisjoint(('forward',))", True),
        ("self.a['b'].c == 1e-05", True),
        ("self.a is None", True),
        ("self.a[0] == 1", False),
        ("self.a() == 1", False),
        ("self.a == self.b", False),
        ("user_globals['a'] == 1", False),
        ("n == 3", False),
    ],
)
def test_which_conditions(text: str, may: bool) -> None:
    assert may_be_learned(text, ["self", "n"], ["Net"]) is may
