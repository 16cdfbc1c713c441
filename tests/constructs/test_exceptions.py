"""`try`, `raise`, `assert` and `with`.

PYTEST_DONT_REWRITE: what is tested is Python's own `assert`.
"""

from __future__ import annotations

import contextlib
import sys

import pytest
import torch

from tests.constructs.support import Cases, written

cases = Cases()


def x():
    return torch.linspace(-2, 2, 12).reshape(3, 4)


class Swallow:
    def __init__(self, log, name, swallow=True):
        self.log, self.name, self.swallow = log, name, swallow

    def __enter__(self):
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(f"exit {self.name} {kind and kind.__name__}")
        return self.swallow


@cases.add("try-around-tensor-operations")
def _():
    def program(x):
        try:
            y = x.sin() * 2
            y = y + 1
        except RuntimeError:
            y = x
        return y.cos()

    return program, (x(),)


@cases.add("try-around-operations-that-may-raise")
def _():
    def program(x, index):
        y = x * 2
        try:
            y = y.sin() + 1
            y = y[:, index]
            y = y * 3
        except IndexError as error:
            y = x * 5
            message = str(error)
        else:
            message = ""
        return y.cos(), message

    return program, (x(), torch.tensor([0, 9]))


@cases.add("try-handler-taken-by-known-error")
def _():
    def program(x, table):
        try:
            scale = table["missing"]
        except KeyError:
            scale = 2
        try:
            scale += int("zz")
        except (TypeError, ValueError) as error:
            scale += len(str(error))
        return x * scale

    return program, (x(), {"a": 1})


@cases.add("try-finally")
def _():
    def program(x, log):
        try:
            y = x * 2
        finally:
            log.append("finally")
        return y.sin()

    return program, (x(), [])


@cases.add("try-finally-return")
def _():
    def program(x, log):
        try:
            return x * 2
        finally:
            log.append("finally")

    return program, (x(), [])


@cases.add("try-finally-overrides")
def _():
    def program(x):
        for i in range(3):
            try:
                return x * i
            finally:
                if i < 2:
                    continue
                break
        return x.sin()

    return program, (x(),)


@cases.add("try-else")
def _():
    def program(x, log):
        try:
            n = len(log)
        except TypeError:
            return x
        else:
            x = x * (n + 2)
        finally:
            log.append(1)
        return x.sin()

    return program, (x(), [])


@cases.add("try-with-a-break-inside")
def _():
    def program(x):
        try:
            y = x.sin() * 2
            print("inside")
            y = y.cos() + 1
        except ValueError:
            y = x
        return y.exp()

    return program, (x(),)


@cases.add("try-nested")
def _():
    def program(x, log):
        try:
            try:
                x = x * 2
                log[5]
            except KeyError:
                log.append("wrong")
            finally:
                log.append("inner")
        except IndexError as error:
            log.append(str(error))
            x = x.sin()
        return x + 1

    return program, (x(), [])


@cases.add("try-star", since=(3, 11))
def _():
    program = written("""
        def program(x, log):
            try:
                y = x * 2
                raise ExceptionGroup("both", [ValueError("a"), TypeError("b")])
            except* ValueError as group:
                log.append(len(group.exceptions))
                y = y.sin()
            except* TypeError:
                y = y + 1
            return y.cos()
    """)
    return program, (x(), [])


@cases.add("except-name-is-unbound-behind")
def _():
    def program(x):
        error = 1
        try:
            {}["k"]
        except KeyError:
            x = x * 2
        return x, error

    return program, (x(),)


@cases.add("try-around-an-unbound-local")
def _():
    def program(x):
        y = x.sin()
        try:
            z = y + w  # noqa: F821
        finally:
            y = y * 2
        w = z
        return w

    return program, (x(),)


@cases.add("raise-again")
def _():
    def program(x, log):
        try:
            y = x * 2
            log["k"]
        except KeyError:
            y = y.sin()
            log["seen"] = y
            raise
        return y

    return program, (x(), {})


@cases.add("raise-from")
def _():
    def program(x, log):
        try:
            try:
                x = x * 2
                {}["k"]
            except KeyError as error:
                raise ValueError("chained") from error
        except ValueError as error:
            log.append(repr(error.__cause__))
            log.append(repr(error.__context__))
            log.append(error.__suppress_context__)
        try:
            raise TypeError("a") from None
        except TypeError as error:
            log.append(repr(error.__cause__))
        return x.sin()

    return program, (x(), [])


@cases.add("raise-in-a-handler-keeps-the-context")
def _():
    def program(x, log):
        try:
            try:
                log[9]
            except IndexError:
                log.append(repr(sys.exc_info()[1]))
                x = x.sin()
                raise ValueError("second")
        except ValueError as error:
            log.append(repr(error.__context__))
        return x * 2

    return program, (x(), [])


@cases.add("raise-out-of-the-function")
def _():
    def program(x, log):
        log.append(x * 2)
        if x.shape[0] == 3:
            raise ValueError(f"bad {x.shape[0]}")
        return x

    return program, (x(), [])


@cases.add("raise-on-data")
def _():
    def program(x):
        if x.sum() > 100:
            raise ValueError("too large")
        return x.sin()

    return program, (x(),)


@cases.add("assert-known")
def _():
    def program(x):
        assert x.dim() == 2, "two dimensions"
        return x * 2

    return program, (x(),)


@cases.add("assert-on-data")
def _():
    def program(x):
        y = x * 2
        assert y.sum() < 100, f"sum is {y.sum()}"
        return y.sin()

    return program, (x(),)


@cases.add("assert-fails")
def _():
    def program(x):
        y = x * 2
        assert x.dim() == 3, f"{x.dim()} dimensions"
        return y

    return program, (x(),)


@cases.add("with-user-class")
def _():
    def program(x, log):
        with Swallow(log, "a") as a:
            x = x * 2
            log.append(a.name)
        return x.sin()

    return program, (x(), [])


@cases.add("with-several-items")
def _():
    def program(x, log):
        with Swallow(log, "a") as a, Swallow(log, a.name + "b"):
            x = x * 2
        with Swallow(log, "c"), Swallow(log, "d") as d:
            x = x + len(d.name)
        return x.sin()

    return program, (x(), [])


@cases.add("with-body-that-may-raise")
def _():
    def program(x, index, log):
        with Swallow(log, "a"):
            y = x[:, index]
            x = x * 3 + y.sum()
        return x.sin()

    return program, (x(), torch.tensor([0, 9]), [])


@cases.add("with-suppressing-an-exception")
def _():
    def program(x, log):
        with Swallow(log, "a"), Swallow(log, "b", swallow=False):
            x = x * 2
            log[99]
            x = x * 3
        return x.sin()

    return program, (x(), [])


@cases.add("with-contextlib-suppress")
def _():
    def program(x, d):
        with contextlib.suppress(KeyError):
            x = x * 2
            d["missing"]
            x = x * 3
        return x.sin()

    return program, (x(), {})


@cases.add("with-return-and-break")
def _():
    def program(x, log):
        for i in range(3):
            with Swallow(log, str(i)):
                x = x + i
                if i == 1:
                    break
        with Swallow(log, "r"):
            return x.sin()

    return program, (x(), [])


@cases.add("with-unknown-manager")
def _():
    def program(x, path):
        with open(path) as file:
            y = x.sin() * 2
            n = len(file.readline())
            y = y * n + 1
        return y.cos()

    return program, (x(), __file__)


@cases.add("with-a-break-inside")
def _():
    def program(x, log):
        with Swallow(log, "a"):
            x = x.sin() * 2
            print("inside")
            x = x.cos() + 1
        return x.exp()

    return program, (x(), [])


@cases.add("with-contextmanager-function")
def _():
    @contextlib.contextmanager
    def logged(log, name):
        log.append(f"enter {name}")
        yield name
        log.append(f"exit {name}")

    def program(x, log):
        with logged(log, "a") as name:
            x = x.sin() * len(name)
        return x.exp()

    return program, (x(), [])


@cases.add("with-contextmanager-function-with-finally")
def _():
    @contextlib.contextmanager
    def logged(log, name):
        log.append(f"enter {name}")
        try:
            yield name
        finally:
            log.append(f"exit {name}")

    def program(x, log):
        with logged(log, "a") as name:
            x = x.sin() * len(name)
        return x.exp()

    return program, (x(), [])


@cases.add("with-contextmanager-function-and-a-body-that-raises")
def _():
    @contextlib.contextmanager
    def logged(log):
        log.append("enter")
        try:
            yield
        finally:
            log.append("exit")

    def program(x, index, log):
        with logged(log):
            y = x.sin()[:, index]
        return y.exp()

    return program, (x(), torch.tensor([0, 9]), [])


@cases.add("with-contextmanager-function-around-a-mode")
def _():
    @contextlib.contextmanager
    def without_grad(log):
        with torch.no_grad():
            try:
                yield torch.is_grad_enabled()
            finally:
                log.append(torch.is_grad_enabled())

    def program(x, log):
        w = x * 2
        with without_grad(log) as mode:
            y = w.sin()
        return y.exp() + w, mode, torch.is_grad_enabled()

    return program, (x().requires_grad_(), [])


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)
