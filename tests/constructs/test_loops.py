"""Loops, their `else`, `break` and `continue`, and comprehensions."""

from __future__ import annotations

import pytest
import torch

import srcjit
from tests.constructs.support import Cases

cases = Cases()
mixed = Cases()


def x():
    return torch.linspace(-2, 2, 12).reshape(3, 4)


@cases.add("for-else")
def _():
    def program(x, n):
        for i in range(n):
            if i == 2:
                continue
            if i == 9:
                break
            x = x + i
        else:
            x = x * 2
        return x, i

    return program, (x(), 4)


@cases.add("for-target-is-item-or-attribute")
def _():
    def program(x, d):
        for d["k"], (a, *b) in [(1, (2, 3)), (4, (5,))]:
            x = x * d["k"] + a
        return x, b

    return program, (x(), {})


@cases.add("for-over-empty")
def _():
    def program(x):
        for i in ():
            x = x + i
        else:
            x = x * 2
        return x, i

    return program, (x(),)


@cases.add("for-mutating-its-list")
def _():
    def program(x, items):
        for item in items:
            x = x + item
            if item < 4:
                items.append(item + 2)
        return x

    return program, (x(), [1, 2])


@cases.add("for-over-tensor")
def _():
    def program(x):
        total = 0
        for row in x:
            total = total + row * 2
        return total

    return program, (x(),)


@cases.add("for-with-break-inside")
def _():
    def program(x):
        for i in range(4):
            x = x * 2
            if i == 1:
                print("one")
            x = x + i
        else:
            x = x.sin()
        return x

    return program, (x(),)


@cases.add("for-left-by-data")
def _():
    def program(x):
        for i in range(5):
            x = x * 2
            if x.sum() > 3:
                break
        else:
            x = x.sin()
        return x, i

    return program, (x() + 0.1,)


@cases.add("for-over-unknown")
def _():
    def program(x, path):
        with open(path) as lines:
            for line in lines:
                if line.startswith("class"):
                    continue
                x = x.sin() + len(line)
                if len(line) > 20:
                    break
            else:
                x = x * 2
        return x.cos()

    return program, (x(), __file__)


@cases.add("for-of-300-iterations")
def _():
    def program(x):
        for i in range(300):
            if i % 50 == 0:
                x = x + i
        return x

    return program, (x(),)


@cases.add("for-of-2000-known-steps")
def _():
    def program(x, table):
        total = 0
        for i in range(2000):
            total += i
            table.append(total)
        return x * total

    return program, (x(), [])


@cases.add("while-known")
def _():
    def program(x, n):
        while n := n - 1:
            x = x + n
            if n == 7:
                break
        else:
            x = x * 2
        return x

    return program, (x(), 4)


@cases.add("while-true")
def _():
    def program(x, n):
        while True:
            n -= 1
            if n < 0:
                return x * 2
            if n % 2:
                continue
            x = x + n

    return program, (x(), 5)


@cases.add("while-on-data")
def _():
    def program(x):
        steps = 0
        while x.abs().sum() > 1:
            x = x / 2
            steps += 1
        else:
            x = x.sin()
        return x, steps

    return program, (x(),)


@cases.add("comprehension-scopes")
def _():
    def program(x):
        i = 10
        a = [x * i for i in range(3) if i]
        b = {i: j for i in range(2) for j in "ab"}
        c = {i % 2 for i in range(4)}
        return a, b, sorted(c), i

    return program, (x(),)


@cases.add("comprehension-of-closures")
def _():
    def program(x):
        fs = [lambda y: y * i for i in range(3)]
        gs = [lambda y, i=i: y * i for i in range(3)]
        return [f(x) for f in fs], [g(x) for g in gs]

    return program, (x(),)


@cases.add("comprehension-nested")
def _():
    def program(x):
        return [[y + i for y in x.unbind(0)] for i in range(2)]

    return program, (x(),)


@cases.add("comprehension-with-break-inside")
def _():
    def program(x):
        ys = [print(i) or x * i for i in range(3) if i]
        return ys[-1].sin()

    return program, (x(),)


@cases.add("comprehension-over-unknown")
def _():
    def program(x, path):
        with open(path) as lines:
            ys = [x * len(line) for line in lines if len(line) > 40]
        return torch.stack(ys).sum()

    return program, (x(), __file__)


@cases.add("dict-and-set-comprehension-with-break")
def _():
    def program(x):
        d = {k: print(k) or x * k for k in range(2)}
        return d[1].sin()

    return program, (x(),)


@cases.add("while-true-until-data-says-so")
def _():
    def program(x, limit):
        n = 0
        while True:
            new = 0.5 * (x + 2 / x)
            n += 1
            if (new - x).abs().max() < 1e-6:
                break
            x = new
            if n >= limit:
                return x, n
        return new, -n

    return program, (x().abs() + 1, 50)


@mixed.add("while-with-else-whose-iterations-break")
def _():
    def program(x, n):
        while n > 0:
            n -= 1
            if x.sum() < 0:
                x = x + 1
                continue
            if x.sum() > 1000:
                break
            x = x * 2
        else:
            x = x.sin()
        return x, n

    return program, (x() + 0.1, 9)


@mixed.add("nested-while-in-a-function-that-is-called")
def _():
    def halve(x):
        while True:
            if x.abs().max() < 1:
                return x
            x = x / 2

    def program(x):
        total, k = x * 0, 0
        while k < 3:
            j = 0
            while j < 3:
                j += 1
                if x.sum() * j > k:
                    x = x + j
            k += 1
            total = total + halve(x * k)
        return total

    return program, (x(),)


@mixed.add("branch-before-a-while-that-is-unrolled")
def _():
    def program(x):
        n = 0
        if x.sum() > 1:
            x = x + 1
        while n < 3:
            x = x.sin() * n
            n += 1
        return x

    return program, (x(),)


def test_while_that_breaks_compiles_its_body_for_all_iterations():
    @srcjit.jit
    def program(x):
        n = 0
        while True:
            x = x * 0.9
            n += 1
            if x.sum() < 1e-3:
                break
        return x, n

    found = srcjit.explain(program)(torch.ones(8))
    assert found.graph_count <= 4
    got, expected = program(torch.ones(8)), program.__wrapped__(torch.ones(8))
    assert got[1] == expected[1] > 50
    torch.testing.assert_close(got[0], expected[0])


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)


@pytest.mark.parametrize("name", mixed)
def test_mixed(name):
    mixed.check_like_eager(name)
