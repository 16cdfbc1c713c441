"""Functions and classes made in inlined functions are called as eager calls them."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import pickle
from typing import Any

import pytest
import torch

from tests.evaluate.support import Programs, name_of

programs = Programs()
X = torch.ones(2)


def opaque(x: Any) -> Any:
    return eval("x", {"x": x})


def show(*objects: Any) -> None:
    for one in objects:
        text = repr(one).split(" at 0x")[0]
        print(text, one.__qualname__, one.__name__, getattr(one, "__module__", None))


def decorated(function: Any) -> Any:
    show(function)
    return function


def try_to(call: Any, *args: Any) -> None:
    try:
        call(*args)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        print(error)


class Base:
    def __init_subclass__(cls) -> None:
        show(cls)


def making(x, n):
    class Made(Base):
        def method(self):
            return n

        static = staticmethod(lambda: 3)

        class Inner:
            pass

    @decorated
    def nested():
        return x

    made = opaque(lambda: n)
    items = opaque(i for i in [1, 2])
    several = opaque([lambda: i for i in [1]])
    show(Made, Made.method, Made.static, Made.Inner, nested, made, items, *several)
    for one in (Made(), nested, made):
        try_to(pickle.dumps, one)
    try_to(Made, 1, 2)
    try_to(nested, 4)
    try_to(opaque(nested), 4)
    try_to(Made().method, 4)
    return Made, nested, made


@programs(X, 3, whole=False)
def in_a_callee(x, n):
    print(n)
    making(x, n)
    return x + 1


def in_blocks(x, n):
    made = []
    for i in opaque([1, 2]):

        def nested(a, /, b, i=i):
            return i

        class Made:
            def method(self):
                pass

        made.append(nested)
        show(nested, Made, Made.method)
        try_to(nested, 1, 2, 3)
        with opaque(contextlib.nullcontext()):

            def inside():
                return n

            show(inside)
    return made


@programs(X, 3, whole=False)
def in_the_blocks_of_a_callee(x, n):
    for function in in_blocks(x, n):
        show(function)
    return x + 1


class Maker:
    def method(self, x):
        class Made:
            pass

        def items():
            yield 1

        show(opaque(lambda: self), opaque(Made), opaque(items), opaque(items()))
        return x

    @classmethod
    def class_method(cls, x):
        def nested():
            return cls

        show(opaque(nested))
        return x

    @property
    def made(self):
        show(opaque(lambda: self))
        return 1


@programs(X, whole=False)
def in_methods(x):
    maker = Maker()
    return maker.method(x) + Maker.class_method(x) + maker.made


def closing():
    def inner(x):
        show(opaque(lambda: x), opaque(z for z in [1]))
        print(2)

        def nested():
            return x

        class Made:
            pass

        show(opaque(nested), opaque(Made), opaque(lambda: x))
        return x

    return inner


closure = closing()


@programs(X, whole=False)
def in_a_closure_and_a_nested_function(x):
    def local(y):
        class Made:
            pass

        show(opaque(Made), opaque(lambda: y), opaque(z for z in [1]))
        return y

    return local(closure(x))


@programs(X, whole=False)
def in_comprehensions(x):
    made = [lambda: i for i in range(2)]
    table = {k: lambda: [lambda: k] for k in [1]}
    lazy = list((lambda: [lambda: i]) for i in range(2))
    single = {lambda: i for i in range(1)}
    show(*made, *table.values(), *table[1](), *lazy, *lazy[0](), *single)
    show(*opaque([*made, *table.values(), *table[1](), *lazy, *lazy[0](), *single]))
    show(*[opaque(lambda: i) for i in range(2)])
    return x


def with_libraries(x):
    @functools.lru_cache
    def cached(k):
        return k

    @functools.wraps(with_libraries)
    def wrapped(k):
        return k

    @dataclasses.dataclass
    class Data:
        a: int = 1

    Pair = collections.namedtuple("Pair", "a b")
    show(cached, wrapped, functools.partial(cached, 1).func, Data, Pair)
    print(Data(2), Pair(1, 2))
    try_to(pickle.dumps, Data(2))
    try_to(pickle.dumps, Pair(1, 2))
    return x


@programs(X, whole=False)
def with_library_decorators(x):
    return with_libraries(with_libraries(x) + 1)


def code_names(*functions: Any) -> None:
    for one in functions:
        print(one.__code__.co_name, one.__code__.co_qualname)


@programs(X, 3, whole=False)
def in_code(x, n):
    def renamed():
        return lambda: n

    first, renamed.__qualname__ = renamed, "another"

    def renamed():
        return lambda: x

    renamed.__name__ = "third"
    made = opaque([first, renamed, lambda: x, [lambda: i for i in range(2)][1]])
    code_names(*made, made[0](), made[1]())
    show(*made, made[0](), made[1]())
    return x + 1


def decorator(function):
    @functools.wraps(function)
    def wrapper(x):
        local = opaque(lambda: x)
        code_names(local, opaque(wrapper))
        show(local, wrapper)
        return function(x) + opaque(1)

    return wrapper


@programs(X, whole=False)
@decorator
def wrapped(x):
    show(opaque(lambda: x))
    return x + 1


@pytest.mark.parametrize("program", programs, ids=name_of)
def test_names(program):
    program.check()
