"""f-strings, `print`, and functions that look at frames or run text."""

from __future__ import annotations

import inspect
import io
import sys

import pytest
import torch

from tests.constructs.support import Cases

cases = Cases()


def x():
    return torch.linspace(-2, 2, 12).reshape(3, 4)


@cases.add("f-string")
def _():
    def program(x, n):
        s = "ab"
        return x * 2, f"{n=} {s!r:>6} {n:0{n}d} {{}}" f" {x.shape[0]:>4}" rf"\{s}"

    return program, (x(), 3)


@cases.add("f-string-of-symbolic-sizes")
def _():
    def program(x):
        n = x.shape[0]
        return x * 2, f"{n} {n=} {n:>5d} {n / 2:.2f} {x.shape} {n!r:>4} {n * 2:{n}}"

    def run(state):
        state.append(0)
        return program(torch.ones(len(state) + 4, 2))

    return run, ([],)


@cases.add("f-string-of-a-run-time-number")
def _():
    def program(x):
        s = x.sum().item()
        n = int(x.argmax())
        text = f"{s:.3f} {n:>4} {n=}"
        return x * 2, text

    return program, (x(),)


@cases.add("f-string-of-a-tensor")
def _():
    def program(x):
        y = x * 2
        text = f"{y.sum():.2f} {y.shape}"
        return y.sin(), text

    return program, (x(),)


@cases.add("print")
def _():
    def program(x):
        y = x * 2
        print("n", x.shape[0], sep="=", end=";\n")
        return y.sin()

    return program, (x(),)


@cases.add("print-to-a-file")
def _():
    def program(x, file):
        y = x * 2
        print("size", tuple(y.shape), file=file)
        print("more", file=sys.stdout, flush=True)
        return y.sin(), file.getvalue()

    return program, (x(), io.StringIO())


@cases.add("locals")
def _():
    def program(x):
        y = x * 2
        return sorted(locals()), y

    return program, (x(),)


@cases.add("globals")
def _():
    def program(x):
        y = x * 2
        globals()["added_here"] = 3
        return y * added_here  # noqa: F821

    return program, (x(),)


@cases.add("eval-and-exec")
def _():
    def program(x):
        y = x * 2  # noqa: F841
        exec("z = 3")
        return eval("y + 1")

    return program, (x(),)


@cases.add("inspect-of-a-frame")
def _():
    def program(x):
        y = x * 2
        return y, inspect.currentframe().f_code.co_name, sys._getframe().f_lineno > 0

    return program, (x(),)


@cases.add("inspect-in-a-callee")
def _():
    def callee(x):
        caller = sys._getframe(1)
        return x + len(caller.f_locals), caller.f_code.co_name

    def program(x):
        y = x * 2
        z = callee(y)
        return z

    return program, (x(),)


@cases.add("vars-and-dir-without-arguments")
def _():
    def program(x):
        y = x * 2
        return sorted(vars()), dir(), y

    return program, (x(),)


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)
