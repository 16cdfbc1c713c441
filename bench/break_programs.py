"""Twenty programs whose graph breaks stand in awkward places.

Each entry of `PROGRAMS` makes a program anew: the function or module and a list of calls, each a
tuple of arguments. Nothing here knows a compiler.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Made = tuple[Callable[..., Any], list[tuple[Any, ...]]]

PROGRAMS: dict[str, Callable[[], Made]] = {}


def program(make: Callable[[], Made]) -> Callable[[], Made]:
    """Adds a program to `PROGRAMS`, under its name and with its docstring as description."""
    PROGRAMS[make.__name__] = make
    return make


def grid() -> torch.Tensor:
    """A small input with both signs in it."""
    return torch.linspace(-1.0, 2.0, 12).reshape(3, 4)


@program
def print_in_a_loop() -> Made:
    """A `print` in a loop that is unrolled."""

    def run(x):
        for step in range(4):
            x = (x.sin() + step).cos()
            print("step", step)
            x = x * 1.5 - 0.5
        return x.tanh()

    return run, [(grid(),)]


@program
def item_in_a_loop() -> Made:
    """`.item()` in a loop whose body goes on with the number."""

    def run(x, log):
        for _ in range(4):
            x = (x.sin() * 2).cos()
            log.append(x.sum().item())
            x = x + log[-1] / 10
        return x.tanh()

    return run, [(grid(), [])]


@program
def continue_and_break_on_data() -> Made:
    """`continue` and `break` that hang on tensor data."""

    def run(x):
        total = torch.zeros_like(x)
        for step in range(6):
            x = x * 0.9 + 0.1
            if x.sum() < -100:
                continue
            total = total + x.sin() * step
            if total.sum() > 6:
                break
        else:
            total = total - 1
        return total.cos()

    return run, [(grid(),)]


@program
def while_on_data() -> Made:
    """`while` on tensor data."""

    def run(x):
        steps = 0
        while x.abs().max() > 0.25:
            x = (x / 2).sin()
            steps += 1
        return x.cos() * steps

    return run, [(grid(),)]


@program
def break_in_try() -> Made:
    """A call in a `try` whose exception is handled, tensor work around it."""

    def run(x, table, key):
        x = x.sin()
        try:
            y = x.cos() * 2
            y = y * float(open_scale(table, key))
            y = y.exp()
        except KeyError:
            y = (x - 1).tanh()
        return y.sum(0) * 3

    return run, [(grid(), {"a": "2"}, "a"), (grid(), {"a": "2"}, "b")]


@program
def break_in_finally() -> Made:
    """A `finally` that prints."""

    def run(x):
        x = x.sin()
        try:
            y = x.cos() * 2
            y = y + x.abs()
        finally:
            print("done")
            x = x.exp() + 1
        return (y * x).tanh()

    return run, [(grid(),)]


@program
def break_in_except() -> Made:
    """A handler that prints and goes on with tensors."""

    def run(x, kind):
        h = x.sin() * 2
        try:
            if kind == "bad":
                raise ValueError(kind)
            h = h.cos()
        except ValueError as error:
            print("handled", error)
            h = h.tanh() - 1
        return h.exp().sum(1)

    return run, [(grid(), "bad")]


@program
def break_in_with() -> Made:
    """A lock around tensor work, with a break inside."""
    lock = threading.Lock()

    def run(x):
        x = x.sin()
        with lock:
            y = x.cos() * 2
            print("locked")
            y = y + x.abs()
        return y.tanh() * x

    return run, [(grid(),)]


@program
def suppressed_exception() -> Made:
    """`contextlib.suppress` around a call that raises."""

    def run(x, table):
        y = x.sin()
        with contextlib.suppress(KeyError):
            y = y * 2
            y = y * float(open_scale(table, "missing"))
        return y.cos() + x.exp()

    return run, [(grid(), {})]


@program
def break_under_no_grad() -> Made:
    """A break below `torch.no_grad()`."""

    def run(x):
        y = x.sin()
        with torch.no_grad():
            m = (y * 2).mean(0)
            print("mean")
            m = m.abs() + 1
        return y / m

    return run, [(grid().requires_grad_(),)]


@program
def break_in_comprehension() -> Made:
    """`.item()` in a list comprehension."""

    def run(x):
        scales = [(row.sin() * 2).sum().item() for row in x.unbind(0)]
        rows = [
            row.cos() * scale for row, scale in zip(x.unbind(0), scales, strict=True)
        ]
        return torch.stack(rows).tanh()

    return run, [(grid(),)]


@program
def break_in_a_nested_callee() -> Made:
    """A break three calls deep."""

    def inner(x):
        y = x.sin() * 2
        print("inner")
        return y.cos()

    def middle(x):
        return inner(x.exp()) + inner(x.tanh())

    def run(x):
        y = middle(x * 0.5)
        return y.abs().sum(0)

    return run, [(grid(),)]


@program
def break_in_a_method() -> Made:
    """A module whose layer reads a value, in a stack of modules."""

    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.seen: list[float] = []

        def forward(self, x):
            h = self.linear(x).relu()
            self.seen.append(float(h.max()))
            return h * 2 + x

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.gates = nn.ModuleList(Gate() for _ in range(3))

        def forward(self, x):
            for gate in self.gates:
                x = gate(x).tanh()
            return x.sum()

    return Stack(), [(grid(),)]


@program
def break_in_a_closure() -> Made:
    """A nested function that logs, used twice."""

    def run(x, log):
        scale = x.abs().mean()

        def note(v):
            w = v * scale
            log.append(float(w.sum()))
            return w + 1

        return note(x.sin()).cos() + note(x.exp()).tanh()

    return run, [(grid(), [])]


@program
def break_in_a_generator() -> Made:
    """A generator that prints between its values."""

    def rows(x):
        for row in x.unbind(0):
            row = row.sin() * 2
            print("row")
            yield row.cos()

    def run(x):
        total = x.sum(0)
        for row in rows(x):
            total = total + row.exp()
        return total.tanh()

    return run, [(grid(),)]


@program
def generator_expression_with_item() -> Made:
    """`sum` over a generator expression that reads data."""

    def run(x):
        y = x.sin()
        total = sum((row * 2).max().item() for row in y.unbind(0))
        return (y * total).cos().sum(1)

    return run, [(grid(),)]


@program
def branches_on_data() -> Made:
    """Two branches on tensor data, one in the other's arm."""

    def run(x):
        y = x.sin() + 1
        if y.sum() > 0:
            y = y * 2
            if y.max() > 3:
                print("large")
                y = y / y.max()
            else:
                y = y + 1
        else:
            y = -y
        return y.cos().sum(0)

    return run, [(grid(),), (-grid() * 9 - 9,)]


@program
def break_in_loop_else() -> Made:
    """A break in the `else` of a loop."""

    def run(x, names):
        for name in names:
            x = x.sin() + len(name)
            if name == "stop":
                break
        else:
            x = x.exp()
            print("no stop")
            x = x.abs() + 1
        return x.log().cos()

    return run, [(grid(), ["a", "bb"]), (grid(), ["stop", "bb"])]


@program
def break_in_an_expression() -> Made:
    """A call that breaks in the middle of one long expression."""

    def run(x):
        return ((x.sin() * 2).cos() * float(x.exp().sum()) + x.tanh()).abs().sum(1) - 1

    return run, [(grid(),)]


@program
def long_loop_with_a_break() -> Made:
    """Two hundred iterations with `.item()` in each."""

    def run(x, log):
        for _ in range(200):
            x = (x * 0.99).sin() + 0.01
            log.append(x.sum().item())
        return x.cos()

    return run, [(grid(), [])]


def open_scale(table: dict[str, str], key: str) -> str:
    """Reads a setting and says so."""
    print("reading", key)
    return table[key]
