"""Attributes, descriptors, classes, operators and protocols of objects."""

from __future__ import annotations

import abc
import functools
import types
import weakref

import pytest
import torch

from tests.constructs.support import Cases

cases = Cases()


def x():
    return torch.arange(6.0).reshape(2, 3)


class Celsius:
    """A data descriptor that stores under another name."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, 7)

    def __set__(self, obj, value):
        setattr(obj, self.name, value + 1)


class Fixed:
    """A descriptor without `__set__`."""

    def __init__(self, value):
        self.value = value

    def __get__(self, obj, owner=None):
        return self.value, owner.__name__


class Room:
    warmth = Celsius()
    kind = Fixed(3)

    def __init__(self):
        self.calls = 0

    @property
    def number(self):
        self.calls += 1
        return self.calls

    @number.setter
    def number(self, value):
        self.calls = value

    @functools.cached_property
    def area(self):
        self.calls += 10
        return self.calls


@cases.add("descriptor-data")
def _():
    room = Room()

    def program(x, other):
        inner = Room()
        room.warmth = 5
        inner.warmth = other.warmth
        return x * room.warmth + inner.warmth, room, inner

    return program, (x(), Room())


@cases.add("descriptor-non-data")
def _():
    room = Room()
    hidden = Room()
    hidden.__dict__["kind"] = (9, "own")

    def program(x):
        return x * room.kind[0], room.kind, hidden.kind, Room().kind

    return program, (x(),)


@cases.add("descriptor-read-from-the-class")
def _():
    def program(x):
        return x, Room.kind, Room.number.fget.__name__

    return program, (x(),)


@cases.add("property-get-and-set")
def _():
    def program(x, room):
        y = x * room.number
        room.number = 5
        return y + room.number, room

    return program, (x(), Room())


@cases.add("cached-property")
def _():
    def program(x, room):
        inner = Room()
        return x * room.area + room.area, inner.area, inner.area, inner, room

    return program, (x(), Room())


@cases.add("getattr-hook")
def _():
    class Lookup:
        def __init__(self):
            self.table = {"w": 2}

        def __getattr__(self, name):
            if name in self.table:
                return self.table[name]
            raise AttributeError(name)

    lookup = Lookup()

    def program(x):
        return x * lookup.w, Lookup().w

    return program, (x(),)


@cases.add("getattribute-hook")
def _():
    class Counting:
        def __getattribute__(self, name):
            if name == "double":
                return 2
            return object.__getattribute__(self, name)

    counting = Counting()

    def program(x):
        return x * counting.double

    return program, (x(),)


@cases.add("setattr-hook")
def _():
    class Doubling:
        def __setattr__(self, name, value):
            object.__setattr__(self, name, value * 2)

    def program(x):
        doubling = Doubling()
        doubling.k = 2
        return x * doubling.k, doubling

    return program, (x(),)


@cases.add("attribute-deleted")
def _():
    def program(x, room):
        del room.calls
        return x, hasattr(room, "calls")

    return program, (x(), Room())


@cases.add("class-attribute-store")
def _():
    class Counter:
        made = 0

        def __init__(self):
            Counter.made += 1

    def program(x):
        Counter()
        return x * Counter.made

    return program, (x(),)


@cases.add("slots")
def _():
    class Slotted:
        __slots__ = ("a", "b")

    slotted = Slotted()
    slotted.a = 1

    def program(x):
        inner = Slotted()
        inner.b = slotted.a
        slotted.a = slotted.a + 1
        return x * inner.b, hasattr(inner, "a"), hasattr(slotted, "b")

    return program, (x(),)


@cases.add("slots-unknown-name")
def _():
    class Slotted:
        __slots__ = ("a",)

    slotted = Slotted()

    def program(x):
        try:
            slotted.c = 4
        except AttributeError as error:
            return x, str(error)

    return program, (x(),)


@cases.add("call-protocol")
def _():
    class Scale:
        def __init__(self, k):
            self.k = k

        def __call__(self, t, *rest, bias=0):
            return t * self.k + bias + len(rest)

    scale = Scale(3)
    scale.__call__ = None

    def program(x):
        return scale(x, 1, bias=2), Scale(2)(x), callable(scale)

    return program, (x(),)


@cases.add("metaclass")
def _():
    class Meta(type):
        def __call__(cls, *args):
            made = super().__call__(*args)
            made.extra = 1
            return made

        def __instancecheck__(cls, obj):
            print("asked")
            return obj == 3

        @property
        def title(cls):
            return cls.__name__

    class Made(metaclass=Meta):
        def __init__(self, value):
            self.value = value

    def program(x):
        made = Made(4)
        return x * made.value + made.extra, Made.title, isinstance(3, Made)

    return program, (x(),)


@cases.add("new-and-singleton")
def _():
    class Single:
        only = None

        def __new__(cls):
            if cls.only is None:
                cls.only = object.__new__(cls)
            return cls.only

    def program(x):
        return x, Single() is Single()

    return program, (x(),)


@cases.add("init-subclass")
def _():
    registry = []

    class Base:
        def __init_subclass__(cls, /, tag=0, **kwargs):
            super().__init_subclass__(**kwargs)
            registry.append(tag)

    def program(x):
        class Derived(Base, tag=3):
            pass

        return x, list(registry), Derived.__name__

    return program, (x(),)


@cases.add("abstract-base-class")
def _():
    class Shape(abc.ABC):
        @abc.abstractmethod
        def sides(self): ...

        def double(self):
            return self.sides() * 2

    class Square(Shape):
        def sides(self):
            return 4

    def program(x):
        return x * Square().double(), isinstance(Square(), Shape)

    return program, (x(),)


class Money:
    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return Money(self.value + getattr(other, "value", other))

    def __radd__(self, other):
        return Money(other - self.value)

    def __iadd__(self, other):
        self.value += 100
        return self

    def __rmul__(self, other):
        return "rmul", other

    def __neg__(self):
        return Money(-self.value)

    def __eq__(self, other):
        return isinstance(other, Money) and self.value == other.value

    def __lt__(self, other):
        return self.value < other.value

    def __hash__(self):
        return hash(self.value)

    def __len__(self):
        return 2

    def __contains__(self, item):
        return "yes" if item == self.value else ""

    def __getitem__(self, key):
        return key

    def __iter__(self):
        return iter([self.value, 0])

    def __reversed__(self):
        return iter(["backwards"])


@cases.add("operators-of-a-class")
def _():
    def program(x, money):
        made = money + 1
        left = 5 + made
        same = money
        same += 3
        return x + left.value, same is money, 3 * made, (-made).value, made.value

    return program, (x(), Money(2))


@cases.add("comparisons-of-a-class")
def _():
    class Bank(Money):
        def __gt__(self, other):
            return "derived class first"

    def program(x, money):
        bank = Bank(3)
        return (
            x,
            money == Money(2),
            money != bank,
            money < bank,
            bank > money,
            money == 3,
        )

    return program, (x(), Money(2))


@cases.add("container-protocols-of-a-class")
def _():
    def program(x, money):
        a, b = money
        items = len(money), 2 in money, 7 in money, money[1], list(reversed(money))
        return x + a + b, items, [v for v in money]  # noqa: C416

    return program, (x(), Money(2))


@cases.add("equality-that-is-no-bool")
def _():
    class Odd:
        def __eq__(self, other):
            return [1] if other == 1 else []

        __hash__ = object.__hash__

    odd = Odd()

    def program(x):
        y = x + 1 if odd == 1 else x
        return y, odd == 1, odd == 2, 1 in [odd], [odd] == [1], (odd,) != (2,)

    return program, (x(),)


@cases.add("truth-protocols")
def _():
    class Flag:
        def __init__(self, on):
            self.on = on

        def __bool__(self):
            return self.on

    class Sized:
        def __len__(self):
            return 0

    def program(x, flag):
        y = x + 1 if flag else x
        return y if Sized() else y * 2, not flag, bool(flag), all([flag])

    return program, (x(), Flag(True))


@cases.add("truth-of-a-wrong-type")
def _():
    class Negative:
        def __len__(self):
            return -1

    def program(x):
        try:
            return x if Negative() else x + 1
        except ValueError as error:
            return x, str(error)

    return program, (x(),)


@cases.add("hash-of-a-class")
def _():
    table = {Money(1): 10}

    def program(x):
        return x * table[Money(1)], len({Money(2), Money(2)})

    return program, (x(),)


@cases.add("class-facts")
def _():
    def program(x, money):
        kind = type(money)
        return x, kind is Money, money.__class__.__name__, kind.__mro__[0] is Money

    return program, (x(), Money(1))


@cases.add("weak-reference")
def _():
    money = Money(3)
    reference = weakref.ref(money)

    def program(x):
        return x * reference().value, reference() is money

    return program, (x(),)


@cases.add("simple-namespace")
def _():
    space = types.SimpleNamespace(a=1)

    def program(x):
        return x * space.a, types.SimpleNamespace(b=2).b

    return program, (x(),)


@pytest.mark.parametrize("name", cases)
def test_construct(name: str) -> None:
    cases.check(name)
