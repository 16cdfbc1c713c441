"""Generator functions and expressions, `yield from`, `async`."""

from __future__ import annotations

import asyncio

import pytest
import torch

from tests.constructs.support import Cases

cases = Cases()


def x():
    return torch.linspace(-2, 2, 12).reshape(3, 4)


def powers(x, n):
    y = x
    for i in range(n):
        yield i, y
        y = y * x


@cases.add("generator-function")
def _():
    def program(x):
        return sum(y * i for i, y in powers(x, 3))

    return program, (x(),)


@cases.add("generator-expression")
def _():
    def program(x):
        squares = (y * y for y in x.unbind(0) if y.dim())
        return sum(squares), list(squares)

    return program, (x(),)


@cases.add("generator-next-and-default")
def _():
    def program(x):
        g = powers(x, 2)
        i, y = next(g)
        next(g)
        return y * 2 + i, next(g, None)

    return program, (x(),)


@cases.add("generator-exhausted")
def _():
    def program(x):
        y = x * 2
        g = powers(x, 1)
        next(g)
        next(g)
        return y

    return program, (x(),)


@cases.add("yield-from")
def _():
    def chained(x):
        yield from powers(x, 2)
        yield from [(5, x)]

    def program(x):
        return sum(y * i for i, y in chained(x))

    return program, (x(),)


@cases.add("yield-from-result")
def _():
    def inner(x):
        yield x
        return 3

    def outer(x):
        n = yield from inner(x)
        yield x * n

    def program(x):
        return list(outer(x))

    return program, (x(),)


@cases.add("yield-expression-and-send")
def _():
    def accumulate(x):
        total = x
        while True:
            n = yield total
            if n is None:
                return
            total = total + n

    def program(x):
        g = accumulate(x)
        next(g)
        a = g.send(2)
        b = g.send(3)
        g.close()
        return a + b

    return program, (x(),)


@cases.add("yield-inside-with-and-try")
def _():
    def guarded(x, log):
        try:
            for i in range(2):
                with torch.no_grad():
                    yield x * i
        finally:
            log.append("done")

    def program(x, log):
        return sum(guarded(x, log)).sin()

    return program, (x(), [])


@cases.add("generator-across-a-break")
def _():
    def program(x):
        total = 0
        for i, y in powers(x.sin(), 3):
            total = total + y * i
            print(i)
            total = total * 2
        return total.cos()

    return program, (x(),)


@cases.add("generator-started-across-a-break")
def _():
    def program(x):
        g = powers(x, 3)
        first = next(g)[1]
        print("first")
        x.add_(1)
        return first + sum(y for _, y in g)

    return program, (x(),)


@cases.add("generator-expression-across-a-break")
def _():
    def program(x):
        g = (y * 2 for y in x.unbind(0))
        first = next(g)
        print("first")
        x.add_(1)
        return first + sum(g)

    return program, (x(),)


@cases.add("generator-with-a-break-inside")
def _():
    def talking(x):
        for i in range(2):
            y = x * i
            print(i)
            yield y.sin()

    def program(x):
        return sum(talking(x)).cos()

    return program, (x(),)


@cases.add("generator-handed-out")
def _():
    @torch.compiler.disable
    def consume(*generators):
        return [list(generator) for generator in generators]

    def program(x):
        y = x.sin() * 2
        a, b = (y + i for i in range(2)), powers(y, 2)
        return consume(a, b)

    return program, (x(),)


@cases.add("generator-expression-handed-out-and-rebound")
def _():
    @torch.compiler.disable
    def consume(generator):
        return list(generator)

    def program(x):
        y = x.sin() * 2
        a = (y + i for i in range(2))
        y = y * 2
        return consume(a), y

    return program, (x(),)


@cases.add("generator-jitted")
def _():
    def program(x):
        yield x * 2
        yield x.sin()

    return program, (x(),)


@cases.add("async-function")
def _():
    async def double(x):
        await asyncio.sleep(0)
        return x * 2

    async def main(x):
        return [await double(x) for _ in range(2)]

    def program(x):
        y = x.sin() + 1
        z = asyncio.run(main(y))
        return z[0].cos() + z[1]

    return program, (x(),)


@cases.add("async-comprehension-for-and-with")
def _():
    class Manager:
        async def __aenter__(self):
            return 2

        async def __aexit__(self, *details):
            return False

    async def numbers(n):
        for i in range(n):
            yield i

    async def main(x):
        async with Manager() as k:
            total = x * k
        async for i in numbers(2):
            total = total + i
        return total, [i async for i in numbers(3) if i]

    def program(x):
        y = x.sin() + 1
        total, items = asyncio.run(main(y))
        return total.cos(), items

    return program, (x(),)


@cases.add("async-nested")
def _():
    def program(x):
        y = x.sin()

        async def scaled():
            return y * 2

        return asyncio.run(scaled()).cos()

    return program, (x(),)


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)
