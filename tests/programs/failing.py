"""Programs whose operations raise when they run: nothing in the types says that they will.

Each is called with indices that are in range and with some that are not, so that the same
specialization succeeds and fails, at one operation or another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from tests.programs import Made, failing_callees

NOISE: list[Any] = []


@torch.library.custom_op("srcjit_tests::noisy", mutates_args=())
def noisy(x: torch.Tensor, k: int) -> torch.Tensor:
    print("noisy", k)
    NOISE.append(k)
    if k > 5:
        raise ValueError(f"{k} is too much")
    return x + k


@noisy.register_fake
def _noisy(x, k):
    return torch.empty_like(x)


@torch.library.custom_op("srcjit_tests::drawing", mutates_args=())
def drawing(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(1)


@drawing.register_fake
def _drawing(x):
    return torch.empty_like(x)


@torch.library.custom_op("srcjit_tests::sevens", mutates_args=("x",))
def sevens(x: torch.Tensor) -> None:
    x.fill_(7)


def effects_between(x, i, log):
    a = torch.sin(x)
    log.append(a)
    b = a * 2
    y = b[i]
    log.append(y)
    z = y[i] + 1
    log.append("end")
    return z


def line_of_a_long_statement(x, i, log):
    y = torch.sin(x.cos() + x.exp()).gather(
        0,
        i,
    )
    return y + x.index_select(0, y.long())


def callee(x, i, log):
    log.append("in")
    y = (x * 2)[i]
    log.append("out")
    return y


def inlined(x, i, log):
    log.append("a")
    y = callee(x, i, log)
    log.append("b")
    return y


def inlined_from_another_file(x, i, log):
    y = failing_callees.outer(x, i, log)
    return y + 1


def names_in_a_handler(x, i, log):
    y = x * 1
    try:
        y = x * 2
        log.append(1)
        z = y[i]
        log.append(2)
        y = z
        y = y[i]
    except IndexError as error:
        log.append(str(error))
        return y, "caught", error.__context__
    finally:
        log.append("end")
    return y


class Suppressing:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(("exit", kind))
        return kind is IndexError


def manager_of_the_user(x, i, log):
    with Suppressing(log):
        y = x[i]
        log.append("no failure")
        return y
    return "suppressed"


@contextlib.contextmanager
def generator(log: list[Any]) -> Iterator[int]:
    log.append("enter")
    try:
        yield 1
    except IndexError:
        log.append("failure")
        raise
    finally:
        log.append("exit")


def manager_that_is_a_generator(x, i, log):
    with generator(log) as k:
        y = x[i] * k
    return y


@contextlib.contextmanager
def plain_generator(log: list[Any]) -> Iterator[int]:
    log.append("enter")
    yield 1
    log.append("exit")


def manager_without_a_handler(x, i, log):
    with plain_generator(log) as k:
        y = x[i] * k
    return y


def inverse(x, i, log):
    a = x[:4].reshape(2, 2) * i[0]
    log.append(a)
    b = torch.linalg.inv(a)
    log.append(b)
    return b


def without_grad(x, i, log):
    with torch.no_grad():
        y = x * 2
        log.append(y)
        z = y[i]
        log.append(z)
        w = z[i]
    return w + x[:2]


def under_autocast(x, i, log):
    with torch.autocast("cpu", torch.bfloat16):
        y = torch.outer(x, x) @ torch.outer(x, x)
        log.append(y)
        z = y[i]
        log.append(z)
        w = z[i] @ y
    return w


def new_list(x, i, log):
    items = []
    log.append(items)
    items.append(x * 2)
    y = x[i]
    items.append(y)
    z = y[i]
    items.append(z)
    return items


def new_dict(x, i, log):
    table = {}
    log.append(table)
    table["a"] = x + 1
    table["b"] = table["a"][i]
    table["c"] = table["b"][i]
    return table


def new_object(x, i, log):
    made = Suppressing(log)
    log.append(made)
    made.a = x + 1
    made.b = made.a[i]
    made.c = made.b[i]
    return made.c


def written_before(x, i, log):
    x[0] = 9
    x[i] = 1.0
    x.mul_(2)
    x[i + 3] += 1
    return x


def drawn_before(x, i, log):
    x.add_(1)
    y = F.dropout(x)
    h = y[i]
    log.append(h)
    return h[i] * torch.rand(2)


def first_of_two(x, i, log):
    y = x[i + 10]
    z = torch.linalg.inv(x[:4].reshape(2, 2) * 0)
    return y, z


def loss(x, i, log):
    w = F.dropout(x.reshape(1, -1).repeat(2, 1))
    log.append(w)
    return F.cross_entropy(w, i)


def division(x, i, log):
    log.append(1)
    j = i // (i - i)
    log.append(2)
    return j


def unused_index(x, i, log):
    x[i]
    return x.sin()


def unused_inverse(x, i, log):
    torch.linalg.inv(x[:4].reshape(2, 2) * i[0])
    return x.sin()


def unused_decomposition(x, i, log):
    torch.linalg.eigh(x[:4].reshape(2, 2) / i[0])
    return x.sin()


def unused_division(x, i, log):
    i // i
    return x.sin()


def unused_random_numbers(x, i, log):
    torch.rand(3)
    F.dropout(x)
    torch.bernoulli(x / 10)
    F.gumbel_softmax(x)
    return x.sin()


def custom_operators(x, i, log):
    y = noisy(x, 1)
    y = noisy(x, 1)
    noisy(y, 2)
    drawing(x)
    z = drawing(x)
    sevens(y)
    return y + z, x + torch.rand(1)


def custom_operator_raises(x, i, log):
    x.add_(1)
    y = noisy(x, 1)
    log.append("noisy")
    z = noisy(y, int(i[0]) + 4)
    log.append("noisy")
    return z


def custom_operators_around(x, i, log):
    y = noisy(x + 1, 1)
    q = y[i]
    y = noisy(q, 2)
    with torch.no_grad():
        x.add_(1)
        y = y[i]
    return y


def failing_in_training(x, i, log):
    w = torch.nn.Parameter(x.clone())
    y = (w * 2).sin()
    log.append(y)
    z = y[i]
    return z.sum()


def classes_out_of_range(x, i, log):
    x.mul_(2)
    y = F.one_hot(i, 5) * x
    log.append(1)
    w = torch.nn.Parameter(y.clone())
    z = (w * F.one_hot(2 - i, 3).float().mean()).sum()
    z.backward()
    return w.grad, z.detach()


def chained(x, i, log):
    try:
        try:
            x[i + 10]
        except IndexError as error:
            raise ValueError("outer") from error
    except ValueError as error:
        log.append((str(error), str(error.__cause__)))
        try:
            x[i + 20]
        except IndexError as second:
            log.append(str(second.__context__))
            raise


FAILING = [
    value
    for value in list(globals().values())
    if callable(value)
    and getattr(value, "__code__", None) is not None
    and value.__code__.co_varnames[:3] == ("x", "i", "log")
    and value is not callee
]

INDICES = ([0, 1], [1, 7], [4, 3], [2, 2])
"""In range, and out of it at one place or another."""


def made(function: Callable[..., Any], indices: list[int]) -> Made:
    """Builds the arguments of a program anew."""
    NOISE.clear()
    return function, (torch.arange(5.0), torch.tensor(indices), []), {}
