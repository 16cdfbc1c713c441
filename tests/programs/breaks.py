"""Programs in which Python must run something between tensor operations."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch

from tests.programs import case


def greet(x):
    x = x.sin()
    print("hello")
    x = x.cos()
    return x


def gate(x):
    y = torch.sin(x) * 2
    if y.sum().item() > 0:
        y = y + 1
    return torch.cos(y)


def gate_traced(x):
    y = torch.sin(x) * 2
    return torch.cos(torch.where(y.sum() > 0, y + 1, y))


def sandwich(x, log):
    def note(v):
        w = v * 2
        log.append(float(w.sum()))
        return w + 1

    return note(x.sin()).cos()


def unrolled_break(x, n):
    for i in range(n):
        x = x.sin() + i
        print("step", i)
    return x.cos()


def newton(x, tol):
    steps = 0
    while (x * x - 2).abs().max() > tol:
        x = x - (x * x - 2) / (2 * x)
        steps += 1
    return x, steps


def halve(x, limit):
    """As many iterations as the caller likes: `newton` itself converges in a few."""
    steps = 0
    while x.sum() < limit:
        x = x + 1
        steps += 1
    return x, steps


def guarded_open(x, path):
    y = x.exp()
    try:
        with open(path) as f:
            k = float(f.read())
        y = y * k
    except FileNotFoundError:
        y = -y
    finally:
        y = y + 1
    return y.log1p() if bool((y > 0).all()) else y


def text_file(text):
    """A file of the same name and content each time, so that both runs see the same path."""
    path = Path(tempfile.gettempdir()) / f"srcjit-test-{os.getpid()}-{text}.txt"
    path.write_text(text)
    return str(path)


def log_every(x, every):
    """Prints in some iterations only."""
    for step in range(6):
        x = x * 1.5 - 0.25
        if step % every == 0:
            print(f"step {step}: {x.shape}")
    return x


def early_exit(x, threshold):
    """A data-dependent return in the middle, with a loop around it."""
    for i in range(4):
        x = x * 2
        if x.abs().max() > threshold:
            return x - i
    return x + 100


def nested_gates(x):
    if x.mean() > 0:
        y = x + 1
        y = torch.log(y) if y.min() > 0 else -y
    else:
        y = x.abs()
    return y * 2


def bad_shapes(x, w):
    """The user's own bug: the product's shapes do not fit."""
    h = x.sin()
    h = h + 1
    return h @ w


def raises_after(x, flag):
    y = x * 2
    if flag:
        raise ValueError(f"flag is {flag!r}")
    return y


def mutates_then_raises(x, log):
    x.add_(1)
    log.append("before")
    y = x / 2
    raise RuntimeError("after the mutation")
    return y


def handled(x, table):
    """The user handles an exception that the body raises."""
    y = x.sin()
    try:
        scale = table["scale"]
    except KeyError as error:
        print("missing", error)
        scale = 2.0
    return y * scale


def finally_runs(x, log):
    try:
        y = x.exp()
        log.append(y.max().item())
        return y - 1
    finally:
        log.append("done")


class Meter:
    def __init__(self):
        self.total = 0.0
        self.events = []

    def __enter__(self):
        self.events.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.events.append(kind.__name__ if kind else "exit")
        return kind is KeyError


def metered(x, meter):
    y = x.cos()
    with meter as m:
        m.total += y.sum().item()
        y = y * 2
    return y + 1


def swallowed(x, meter, table):
    y = x.cos()
    with meter:
        y = y * table["absent"]
    return y + 1


def del_and_unbound(x, flag):
    y = x + 1
    print("deleting")
    if flag:
        del y
    return y * 2


def shared_log(x, log):
    """Effects on an object that existed before the call, in order with what is printed."""
    log.append(1)
    y = x.sin()
    print(log)
    log.append(2)
    y = y.cos()
    print(log)
    return y, log


def ones():
    return torch.ones(7)


@case
def greet_():
    return greet, (torch.linspace(-1, 1, 9),)


@case
def gate_positive():
    return gate, (torch.linspace(0, 1, 1000),)


@case
def gate_negative():
    return gate, (torch.linspace(-1, 0, 1000),)


@case
def gate_traced_():
    return gate_traced, (torch.linspace(-1, 0, 1000),)


@case
def sandwich_():
    return sandwich, (torch.linspace(-1, 2, 12), [])


@case
def unrolled_break_():
    return unrolled_break, (torch.linspace(-1, 2, 12), 3)


@case
def newton_():
    return newton, (torch.linspace(1, 2, 5, dtype=torch.float64), 1e-9)


@case
def newton_done():
    return newton, (torch.full((3,), 2**0.5), 1e-3)


@case
def guarded_open_file():
    return guarded_open, (torch.linspace(-1, 1, 6), text_file("2.5"))


@case
def guarded_open_negative():
    return guarded_open, (torch.linspace(-1, 1, 6), text_file("-7.5"))


@case
def guarded_open_missing():
    return guarded_open, (torch.linspace(-1, 1, 6), "/nowhere/at/all.txt")


@case
def guarded_open_bad_text():
    return guarded_open, (torch.linspace(-1, 1, 6), text_file("abc"))


@case
def log_every_():
    return log_every, (ones(), 2)


@case
def early_exit_taken():
    return early_exit, (ones(), 5.0)


@case
def early_exit_not_taken():
    return early_exit, (ones(), 500.0)


@case
def nested_gates_():
    return nested_gates, (torch.linspace(0.1, 2, 5),)


@case
def nested_gates_negative():
    return nested_gates, (torch.linspace(-2, 0, 5),)


@case
def bad_shapes_():
    return bad_shapes, (torch.ones(3, 4), torch.ones(3, 4))


@case
def raises_after_():
    return raises_after, (ones(), "yes")


@case
def raises_after_not():
    return raises_after, (ones(), "")


@case
def mutates_then_raises_():
    return mutates_then_raises, (ones(), [])


@case
def handled_():
    return handled, (ones(), {})


@case
def handled_present():
    return handled, (ones(), {"scale": 3.0})


@case
def finally_runs_():
    return finally_runs, (ones(), [])


@case
def metered_():
    return metered, (ones(), Meter())


@case
def swallowed_():
    return swallowed, (ones(), Meter(), {})


@case
def del_and_unbound_():
    return del_and_unbound, (ones(), True)


@case
def del_and_bound():
    return del_and_unbound, (ones(), False)


@case
def shared_log_():
    return shared_log, (ones(), [])


@case
def generator_expression_that_breaks():
    def run(x):
        y = x.sin()
        total = sum((row * 2).max().item() for row in y.unbind(0) if row.numel())
        names = ", ".join(str(float(v) > 0) for v in (y * total).sum(1).unbind(0))
        return (y * total).cos().sum(1), names

    return run, (torch.linspace(-1, 1, 6).reshape(2, 3),)
