"""What hides a name after the first call is noticed: in objects, classes and their bases."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import srcjit
from tests.harness import no_faults, run

Made = tuple[Callable[..., Any], list[Callable[[], Any]]]
CASES: dict[str, Callable[[], Made]] = {}


def case(make: Callable[[], Made]) -> None:
    CASES[make.__name__] = make


def put(holder: Any, name: str, value: Any) -> Callable[[], Any]:
    return lambda: setattr(holder, name, value)


def drop(holder: Any, name: str) -> Callable[[], Any]:
    return lambda: delattr(holder, name)


def shadow(holder: Any, name: str, value: Any) -> Callable[[], Any]:
    return lambda: holder.__dict__.__setitem__(name, value)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.register_buffer("b", torch.ones(3))
        self.act = nn.Tanh()
        self.k = 2
        self.p = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.act(self.lin(x)) + self.b * self.k * self.p


class Descriptor:
    def __init__(self, value):
        self.value = value

    def __get__(self, obj, owner=None):
        return self.value

    def __set__(self, obj, value):
        self.value = 40


@case
def dict_of_a_module():
    net = Net()

    def f(x):
        return net(x)

    return f, [
        shadow(net, "b", torch.zeros(3)),
        lambda: net.__dict__.pop("b"),
        shadow(net, "act", lambda t: t * 100),
        lambda: net.__dict__.pop("act"),
        shadow(net, "p", 5),
        shadow(net.lin, "weight", torch.eye(3)),
        shadow(net, "forward", lambda t: t),
    ]


@case
def class_of_a_module():
    class Derived(Net):
        pass

    net = Derived()

    def f(x):
        return net(x)

    return f, [
        put(Derived, "b", torch.zeros(3)),
        drop(Derived, "b"),
        put(Derived, "act", staticmethod(lambda t: t * 100)),
        drop(Derived, "act"),
        put(Derived, "k", property(lambda self: 50)),
        drop(Derived, "k"),
        put(Derived, "__call__", lambda self, t: t * 5),
    ]


@case
def class_of_a_module_later_looks_up_itself():
    class Derived(Net):
        pass

    net = Derived()

    def look_up(self, name):
        return 9 if name == "k" else object.__getattribute__(self, name)

    def f(x):
        return net(x)

    return f, [put(Derived, "__getattribute__", look_up)]


@case
def class_replaced():
    class First:
        def g(self, x):
            return x + 1

    class Second:
        def g(self, x):
            return x - 1

    holder = First()

    def f(x):
        return holder.g(x)

    return f, [put(holder, "__class__", Second), put(holder, "__class__", First)]


@case
def descriptors_of_what_is_stored():
    class Plain:
        pass

    plain = Plain()

    def f(x):
        plain.k = 5
        return x + plain.k

    return f, [put(Plain, "k", Descriptor(3)), drop(Plain, "k")]


@case
def descriptors_of_what_is_made():
    class Plain:
        def __init__(self):
            self.k = 1

    def f(x):
        return x + Plain().k

    return f, [put(Plain, "k", Descriptor(3)), drop(Plain, "k")]


@case
def descriptor_hidden_and_changed():
    class Plain:
        k = Descriptor(3)

    class Derived(Plain):
        pass

    derived = Derived()

    def f(x):
        return x * derived.k

    return f, [
        put(Plain.__dict__["k"], "value", 5),
        put(Derived, "k", 7),
        drop(Derived, "k"),
        put(Descriptor, "__get__", lambda self, obj, owner=None: 8),
    ]


@case
def fields_of_a_named_tuple():
    Pair = collections.namedtuple("Pair", "a b")
    pair = Pair(1, 2)

    def f(x):
        return x * pair.a + Pair(3, 4).a, len(pair)

    return f, [
        put(Pair, "a", property(lambda self: 70)),
        put(Pair, "__len__", lambda self: 9),
        put(Pair, "__new__", lambda cls, a, b: tuple.__new__(cls, (b, a))),
    ]


@case
def methods_of_a_dataclass():
    @dataclasses.dataclass
    class Point:
        a: int = 1
        b: int = 2

    point = Point()

    def f(x):
        made = Point(5)
        return x * point.a, made.b, point == Point(), made == Point(5), made.a

    defaults = Point.__init__.__defaults__
    return f, [
        put(Point.__init__, "__defaults__", (50, 60)),
        put(Point.__init__, "__defaults__", defaults),
        put(Point, "__eq__", lambda self, other: "equal"),
        put(Point, "__post_init__", lambda self: None),
        put(Point, "__init__", lambda self, a=0: self.__dict__.update(a=9, b=9)),
    ]


@case
def factory_of_a_default_dict():
    table = collections.defaultdict(list)

    def f(x):
        table["k"]
        return x, len(table), type(table.pop("k")).__name__

    return f, [put(table, "default_factory", dict), put(table, "default_factory", None)]


@pytest.mark.parametrize("name", CASES)
def test_noticed(name: str) -> None:
    get = Descriptor.__get__
    jitted = None
    outcomes: list[list[Any]] = []
    try:
        for jit in (False, True):
            torch.manual_seed(0)
            f, steps = CASES[name]()
            call = f
            if jit:
                jitted = call = srcjit.jit(f, options={"stage": "specialize"})
            outcomes.append([])
            with no_faults():
                for step in [lambda: None, *steps]:
                    step()
                    x = torch.arange(6.0).reshape(2, 3)
                    outcomes[-1].append(run(call, (f, (x,), {})))
            Descriptor.__get__ = get  # type: ignore[method-assign]
    finally:
        Descriptor.__get__ = get  # type: ignore[method-assign]
    assert jitted is not None and jitted.__srcjit__.specializations
    for expected, actual in zip(*outcomes, strict=True):
        assert actual.failure == expected.failure
        assert actual.structure == expected.structure
        for got, wanted in zip(actual.tensors, expected.tensors, strict=True):
            assert torch.equal(got, wanted)
