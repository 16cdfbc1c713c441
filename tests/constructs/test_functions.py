"""Nested functions and classes, closures, decorators, `lambda`, `super` and `__class__`."""

from __future__ import annotations

import functools

import pytest
import torch

from tests.constructs.support import Cases

cases = Cases()


def x():
    return torch.linspace(-2, 2, 12).reshape(3, 4)


@cases.add("nested-function")
def _():
    def program(x, n):
        def scaled(y, k=n + 1, *, bias=x.sum()):
            return y * k + bias

        return scaled(x), scaled(x, 2, bias=0)

    return program, (x(), 2)


@cases.add("nested-function-recursive")
def _():
    def program(x, n):
        def power(k):
            return x if k == 0 else power(k - 1) * x

        return power(n)

    return program, (x(), 3)


@cases.add("nested-function-returned")
def _():
    def program(x):
        y = x * 2

        def add(z):
            return y + z

        return add

    def run(x):
        add = program(x)
        return add(1), add.__name__, add.__closure__[0].cell_contents

    return run, (x(),)


@cases.add("nested-function-attributes")
def _():
    def program(x):
        def f(y: int = 3) -> int:
            "doc"
            return y

        f.tag = "t"
        return x * f(), f.__doc__, f.tag, f.__name__

    return program, (x(),)


@cases.add("closure-over-a-loop-variable")
def _():
    def program(x):
        fs = []
        for i in range(3):

            def f(y):
                return y * i

            fs.append(f)
        return [f(x) for f in fs]

    return program, (x(),)


@cases.add("closure-over-a-loop-variable-and-a-break")
def _():
    def program(x):
        fs = []
        for i in range(3):
            fs.append(lambda y: y * i)
            print(i)
        return sum(f(x) for f in fs).sin()

    return program, (x(),)


@cases.add("closures-of-one-code-and-a-break")
def _():
    def scaled_by(k):
        def scaled(y):
            print(k)
            return y.sin() * k

        return scaled

    def program(x, made):
        return made.pop()(x).cos()

    return program, (x(), [scaled_by(2), scaled_by(3), scaled_by(4)])


@cases.add("decorators")
def _():
    def times(n):
        def wrap(f):
            @functools.wraps(f)
            def wrapped(*args, **kwargs):
                return f(*args, **kwargs) * n

            return wrapped

        return wrap

    def program(x):
        @times(2)
        @times(3)
        def f(y):
            return y + 1

        return f(x), f.__name__

    return program, (x(),)


@cases.add("decorated-callee")
def _():
    def twice(f):
        @functools.wraps(f)
        def wrapped(*args):
            return f(*args) + f(*args)

        return wrapped

    @twice
    def callee(x):
        return x.sin()

    def program(x):
        return callee(x) * 2

    return program, (x(),)


@cases.add("lambda")
def _():
    def program(x):
        f = lambda y, *a, k=2, **kw: y * k + sum(a)  # noqa: E731
        return f(x), f(x, 1, 2, k=3), (lambda: x)() is x

    return program, (x(),)


@cases.add("parameters-of-all-kinds")
def _():
    def callee(a, /, b, *rest, c, d=4, **others):
        return a * b + c - d, rest, others

    def program(x):
        return callee(x, 2, 3, c=1, a=7)

    return program, (x(),)


@cases.add("wrong-arguments")
def _():
    def callee(a, b):
        return a

    def program(x):
        y = x * 2
        return callee(y)

    return program, (x(),)


@cases.add("mutable-default-argument")
def _():
    def callee(x, seen=[]):
        seen.append(len(seen))
        return x * len(seen)

    def program(x):
        return callee(x) + callee(x), callee.__defaults__

    return program, (x(),)


@cases.add("nested-class")
def _():
    def program(x):
        class Scale:
            factor = 3

            def __init__(self, bias):
                self.bias = bias

            def __call__(self, y):
                return y * self.factor + self.bias

        return Scale(1)(x)

    return program, (x(),)


@cases.add("super-without-arguments")
def _():
    class Base:
        def f(self, x):
            return x + 1

    class Derived(Base):
        def f(self, x):
            return super().f(x) * 2

    def program(x, d):
        return d.f(x).sin()

    return program, (x(), Derived())


@cases.add("super-with-arguments")
def _():
    class Base:
        scale = 3

        def f(self, x):
            return x + 1

        @classmethod
        def make(cls):
            return cls()

    class Middle(Base):
        def f(self, x):
            return super().f(x) * 2

        @classmethod
        def make(cls):
            return super().make()

    class Derived(Middle):
        def f(self, x):
            base = super(Middle, self)
            return base.f(x) * base.scale

    def program(x, d):
        return d.f(x).sin() + Middle.make().f(x)

    return program, (x(), Derived())


@cases.add("super-across-a-break")
def _():
    class Base:
        def f(self, x):
            print("base")
            return x + 1

    class Derived(Base):
        def f(self, x):
            x = x.sin()
            y = super().f(x) * 2
            print("derived")
            return super().f(y).cos()

    def program(x, d):
        return d.f(x).sin()

    return program, (x(), Derived())


@cases.add("class-cell")
def _():
    class A:
        scale = 2

        def f(self, x):
            return x * __class__.scale, __class__.__name__

    def program(x, a):
        return a.f(x)

    return program, (x(), A())


@cases.add("name-mangling")
def _():
    class A:
        def __init__(self):
            self.__scale = 2

        def __hidden(self, x):
            return x * self.__scale

        def f(self, x):
            return self.__hidden(x)

    def program(x, a):
        return a.f(x)

    return program, (x(), A())


@cases.add("methods-static-and-class")
def _():
    class A:
        scale = 2

        @staticmethod
        def s(x):
            return x + 1

        @classmethod
        def c(cls, x):
            return x * cls.scale

    def program(x, a):
        return a.s(x), A.c(x), a.c(x)

    return program, (x(), A())


@cases.add("conditional-import")
def _():
    def program(x):
        import math
        from math import pi as p

        return x * math.e + p

    return program, (x(),)


@cases.add("unbound-local")
def _():
    def program(x, flag):
        if flag:
            y = x
        x = x * 2
        return y

    return program, (x(), False)


@cases.add("unbound-local-across-a-break")
def _():
    def program(x, flag):
        if flag:
            y = x
        x = x * 2
        print("break")
        return x, y

    return program, (x(), False)


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)
