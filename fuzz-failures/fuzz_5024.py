# seed 5024, stage specialize
# AssertionError: call 3 at stage 'specialize': failure is
# Failure(type=<class 'srcjit.passes.evaluate.sizes.CannotSpell'>, message='torch.sym_float(n) == 3.0000000000000000', file='', line=0)
# instead of
# None
import contextlib
import math

import numpy as np
import torch

GLOBAL = []
COUNT = 0


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


class State:
    shared = 1

    def __init__(self):
        self.count = 0
        self.rate = 0.5
        self.last = None
        self.log = []
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


def twice(k):
    return 2 * k % 9


def pair(x, y):
    return y, x


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


def opaque(x):
    return eval("x * 2", {"x": x})


def keep(value):
    GLOBAL.append(eval("value"))


def append_to(value, bag=[]):
    bag.append(value)
    GLOBAL.append(len(bag))


def program(a, b, c, n, r, flag, mode, nums, parts, table, st, net):
    parts.append(((c + c) if flag else (a * 1.5)))
    table['k'] = (parts[-1] if parts else c)
    b = b
    if torch.sin(torch.tensor(0.5)) > n:
        if net.training:
            r += 1.5
            def fn1(p2, k=1):
                keep(nums)
                v3 = torch.where(blend(torch.tensor(0.5), scale=k) > 0, torch.where(torch.tensor(0.5) > 0, torch.tensor(0.5), r), 2)
                return (3 - (p2 + b))
    elif ('k' in table or n > n):
        match mode:
            case 'x':
                v4 = a.sum(0).mean()
                view5 = b[0]
            case 'y' | 'yz':
                def fn6(p7, k=n):
                    if len(nums) > 2:
                        return p7
                    return ((p7 + b) * r)
            case _:
                r += math.sin(r)
    parts.append(early(torch.where(torch.tensor(0.5) > 0, torch.tensor(0.5), r), n))
    return (a, b, n, r, mode, nums, parts, None,)

