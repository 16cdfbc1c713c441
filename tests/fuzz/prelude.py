"""What the random programs call: helpers, classes, a module, an object with state, breaks."""

from __future__ import annotations

PLAIN = """\
import collections
import contextlib
import dataclasses
import enum
import functools
import io
import itertools
import math
import random
import sys

GLOBAL = []
COUNT = 0


class State:
    shared = 1

    def __init__(self):
        self.count = 0
        self.rate = 0.5
        self.last = None
        self.log = []
        self.hook = None
        self.table = collections.defaultdict(list)
        self.out = Out()
        self.callback = opaque

    def apply(self, x):
        self.count += 1
        return x * self.shared + self.rate

    def note(self, value):
        self.log.append(value)

    @property
    def prop(self):
        self.log.append("read")
        return self.rate

    @prop.setter
    def prop(self, value):
        self.log.append("write")
        self.rate = value * 0.5


class Out:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text


@dataclasses.dataclass
class Point:
    x: int = 1
    y: int = 2

    def moved(self, by):
        return dataclasses.replace(self, x=self.x + by)

    def area(self, k=1):
        return self.x * self.y + k


class Pair(collections.namedtuple("Pair", "left right")):
    @property
    def total(self):
        return self.left + self.right


class Color(enum.Enum):
    RED = 1
    BLUE = 5


class Base:
    def __init__(self, size=1):
        self.size = size

    def area(self, k):
        return self.size + k

    def __getattr__(self, name):
        if name == "missing":
            return 7
        raise AttributeError(name)


class Derived(Base):
    def area(self, k):
        return super().area(k) * 2 + self.missing


class Counted:
    def __init__(self, size):
        self.size = size

    def __getitem__(self, index):
        return self.size + index

    def __len__(self):
        return 3


class Steps:
    def __init__(self, most):
        self.most = most
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        if self.at > self.most:
            raise StopIteration
        return self.at


class Manager:
    def __init__(self, name, st):
        self.name, self.st = name, st

    def __enter__(self):
        self.st.log.append("enter " + self.name)
        return 3

    def __exit__(self, kind, value, trace):
        self.st.log.append(("exit " + self.name, kind))


class Swallow:
    def __enter__(self):
        print("open")

    def __exit__(self, kind, value, trace):
        print("close", kind, value)
        return kind is ValueError


@contextlib.contextmanager
def manager(st):
    st.count += 1
    try:
        yield st
    finally:
        st.log.append("left")


def twice(k):
    return 2 * k % 9


def noisy(value):
    print("asked", value)
    return value


def counting(k):
    for i in range(k):
        yield i * i


def bump():
    global COUNT
    COUNT += 1
    GLOBAL.append(COUNT)


def relay(k):
    yield -1
    got = yield from counting(k)
    yield k


def echo(k):
    try:
        for i in range(k):
            yield i
    finally:
        # Not when it is dropped half-way: what still holds it, a traceback's frame for
        # one, is what the guide leaves open under "Finalizers".
        if sys.exc_info()[0] is not GeneratorExit:
            print("echo ends")


def affine(x, k=2):
    return x * k + 1


def variadic(first, *rest, k=0, **named):
    return first + len(rest) * k + len(named)


def identity(value):
    return value


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        GLOBAL.append(function.__name__)
        return function(*args, **kwargs)

    return wrapper


def repeated(times):
    def around(function):
        def wrapper(x, **kwargs):
            for _ in range(times):
                x = function(x, **kwargs)
            return x

        return wrapper

    return around


@functools.lru_cache(maxsize=None)
def memo(k):
    return k * k + 1


def opaque_number(x):
    return eval("x * 2", {"x": x})


def opaque(x):
    return eval("x * 2", {"x": x})


def keep(value):
    GLOBAL.append(eval("value"))


def append_to(value, bag=[]):
    bag.append(value)
    GLOBAL.append(len(bag))
"""

TENSORS = """\
import numpy as np
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("buffer", torch.zeros(4))
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        if self.training:
            self.buffer.mul_(0.5)
        return torch.tanh(self.linear(x.float())) + self.buffer


def helper(x, k):
    if k > 2:
        return x.cos() + k
    return x * k


def blend(x, *, scale=1.0):
    return x * scale + 1


def early(x, k):
    for i in range(k):
        x = x + i
        if i == 2:
            return x * 2
    return x


def pair(x, y):
    return y, x


def counted(x):
    global COUNT
    COUNT += 1
    return x + COUNT


def breaking(x):
    y = x.sin()
    print("between", y.dim())
    y = y + 1
    if y.sum().item() > 1:
        return y.cos()
    return y * 2


def doubling(module, args, output):
    return output * 2


def halving(module, args):
    return (args[0] * 0.5,)
"""

PRELUDES = {"plain": PLAIN, "tensors": PLAIN + "\n\n" + TENSORS}
