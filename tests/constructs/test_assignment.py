"""Assignment to names, attributes, items and slices; `del`; `global` and `nonlocal`."""

from __future__ import annotations

import pytest
import torch

from tests.constructs.support import Cases

cases = Cases()

TOTAL = 0
FRESH = [0]


class Box:
    def __init__(self, **values):
        self.__dict__.update(values)


def x():
    return torch.linspace(-2, 2, 12).reshape(3, 4)


@cases.add("assign-chained-and-swapped")
def _():
    def program(x):
        a = b = x + 1
        a, b = b * 2, a
        return a, b, a is b

    return program, (x(),)


@cases.add("assign-nested-targets")
def _():
    def program(x, pairs):
        (a, [b, c]), *rest = pairs
        return x * a + b - c, rest

    return program, (x(), ((1, [2, 3]), 4, 5))


@cases.add("assign-starred")
def _():
    def program(x):
        first, *middle, last = x.unbind(1)
        return first + last, middle

    return program, (x(),)


@cases.add("assign-unpacked-string-and-dict")
def _():
    def program(x, d):
        a, b = "ab"
        k, v = d.items()
        return x, a, b, k, v

    return program, (x(), {"p": 1, "q": 2})


@cases.add("assign-wrong-length")
def _():
    def program(x):
        y = x * 2
        a, b = [1, 2, 3]
        return y, a, b

    return program, (x(),)


@cases.add("assign-to-items-and-attributes")
def _():
    def program(x, items, box):
        items[0], box.value = x + 1, x.sin()
        items[1:2] = [1, 2, 3]
        return items[-1], box.value * 2

    return program, (x(), [0, 1, 2], Box(value=None))


@cases.add("assign-evaluation-order")
def _():
    def program(x):
        trace = []

        def at(i):
            trace.append(i)
            return i

        items = [0, 0, 0]
        items[at(1)] = items[at(2)] = at(0)
        items[at(0)] += at(5)
        return x * 2, trace, items

    return program, (x(),)


@cases.add("annotated-assignment")
def _():
    def program(x):
        y: torch.Tensor = x * 2
        z: undefined_name  # noqa: F821, F842
        return y * 3

    return program, (x(),)


@cases.add("annotated-in-parentheses")
def _():
    def program(x):
        (w): int = 3
        return x * w

    return program, (x(),)


@cases.add("augmented-name")
def _():
    def program(x):
        y = x.clone()
        z = y
        y += 1
        n = 3
        n **= 2
        n //= 2
        n <<= 1
        items = [1]
        other = items
        items += (2,)
        return y, z is y, n, other

    return program, (x(),)


@cases.add("augmented-attribute")
def _():
    def program(x, box):
        box.value += x
        box.count -= 1
        box.items *= 2
        return box.value * 2

    box = Box(value=torch.ones(4), count=3, items=[1])
    return program, (x()[0], box)


@cases.add("augmented-item")
def _():
    def program(x, d):
        d["a"] += x[0]
        d["b"][0] += 1
        x[0] *= 2
        x[:, 1] -= 1
        return d["a"] * 2

    return program, (x(), {"a": torch.ones(4), "b": [1]})


@cases.add("augmented-matrix-product")
def _():
    def program(x):
        x @= torch.eye(4)
        return x + 1

    def run(x):
        return program(x.clone())

    return run, (x(),)


@cases.add("delete-names-items-attributes")
def _():
    def program(x, d, box):
        y = x + 1
        del y, d["a"]
        del box.value
        items = [1, 2, 3, 4]
        del items[1:3], items[0]
        return x * 2, items, "a" in d

    def run(x):
        return program(x, {"a": 1, "b": 2}, Box(value=1))

    return run, (x(),)


@cases.add("delete-then-read")
def _():
    def program(x):
        y = x + 1
        del y
        return x * 2, y  # noqa: F821

    return program, (x(),)


@cases.add("walrus")
def _():
    def program(x, n):
        if (m := n * 2) > 3 and (y := x * m) is not None:
            z = y + m
        return z, [w := i for i in range(3)], w, (w := 7)

    return program, (x(), 2)


@cases.add("walrus-on-data")
def _():
    def program(x):
        if (s := x.sum().item()) > 1:
            return x * s
        return x - s

    return program, (x(),)


@cases.add("star-expressions-in-displays")
def _():
    def program(x, items, d):
        a = [*items, *range(2), x.sin()]
        b = (*a, *{"k": 1})
        c = {**d, "z": 1, **{"a": 9}}
        s = {*items, 7}
        return a, b, c, sorted(s)

    return program, (x(), [3, 4], {"a": 1})


@cases.add("star-expressions-in-calls")
def _():
    def callee(*args, k=0, **rest):
        return sum(args) * k, sorted(rest)

    def program(x, items, d):
        return callee(x, *items, *(1,), k=2, **d, **{"q": 1})

    return program, (x(), [3, 4], {"a": 1})


@cases.add("star-expressions-in-subscript-and-return")
def _():
    def program(x, index):
        return *index, x[(*index,)]

    return program, (x(), (1, 2))


@cases.add("slices")
def _():
    def program(x, items):
        s = slice(None, None, 2)
        return x[1:, ::2], x[..., None, -1], x[s], items[::-1], items[s], "abc"[-2:]

    return program, (x(), [1, 2, 3])


@cases.add("slices-of-symbolic-sizes")
def _():
    def program(x):
        n = x.shape[0]
        return x[: n // 2], x[-(n - 1) :], list(range(4))[: min(n, 2)]

    def run(state):
        state.append(0)
        return program(torch.ones(len(state) + 4, 2))

    return run, ([],)


@cases.add("chained-comparison")
def _():
    def program(x, a, b):
        ok = 0 < a <= b < x.shape[1] != 9
        return x * 2 if ok and a is not b in (3,) else x

    return program, (x(), 2, 3)


@cases.add("chained-comparison-of-tensors")
def _():
    def program(x):
        return x if (0 < x.sum() < 5) else x * 2

    return program, (x(),)


@cases.add("conditional-expression-and-boolean-operators")
def _():
    def program(x, a, b):
        y = x if a else x * 2
        return y, a and b, a or b, not a, (a and b) or 3

    return program, (x(), 0, [1])


@cases.add("truth-of-user-objects")
def _():
    calls = []

    class Loud:
        def __init__(self, value):
            self.value = value

        def __bool__(self):
            calls.append(self.value)
            return bool(self.value)

    def program(x, a, b):
        if ((a and a) and b) or not a:
            x = x + 1
        y = (a and a) and a
        return x * 2, y is a, calls

    return program, (x(), Loud(0), Loud(1))


@cases.add("global-statement")
def _():
    global TOTAL
    TOTAL = 0

    def program(x):
        global TOTAL
        TOTAL += 1
        y = x * TOTAL
        TOTAL = TOTAL * 2
        return y

    return program, (x(),)


@cases.add("global-across-a-break")
def _():
    global TOTAL
    TOTAL = 0

    def program(x):
        global TOTAL
        TOTAL += 1
        y = x * TOTAL
        print(TOTAL)
        TOTAL = 5
        return y.sin()

    return program, (x(),)


@cases.add("global-deleted")
def _():
    def program(x):
        global TEMPORARY
        TEMPORARY = x * 2
        y = TEMPORARY + 1
        del TEMPORARY
        return y

    return program, (x(),)


@cases.add("nonlocal-statement")
def _():
    def program(x):
        n = 0

        def more():
            nonlocal n
            n += 1
            return n

        y = x * more()
        return y + more(), n

    return program, (x(),)


@cases.add("nonlocal-of-the-caller")
def _():
    n = 0

    def program(x):
        nonlocal n
        n += 1
        return x * n

    return program, (x(),)


@cases.add("nonlocal-across-a-break")
def _():
    def program(x):
        n = 0

        def more():
            nonlocal n
            n += 1
            print("more", n)
            n += 1
            return n

        y = x * more()
        return y.sin() + n

    return program, (x(),)


@cases.add("closure-rebound-after-a-break")
def _():
    def program(x, calls):
        n = 2

        def scaled(y):
            return y * n

        calls.append(scaled)
        x = x + 1
        print("handed out")
        n = 3
        return calls[-1](x), scaled(x).sin()

    return program, (x(), [])


@cases.add("nonlocal-across-a-split")
def _():
    @torch.compiler.disable
    def unknown(k):
        return torch.ones(4) * k

    def program(x):
        n = 1

        def more(k):
            nonlocal n
            n += k
            y = unknown(n)
            n *= 2
            return y.sin() * n

        return more(2) + x + more(3), n

    return program, (x(),)


@cases.add("closure-two-levels-up-rebound")
def _():
    @torch.compiler.disable
    def call(f, y):
        return f(y)

    def program(x):
        n = 2

        def outer():
            def inner(y):
                return y * n

            return inner

        f = outer()
        x = call(f, x).sin()
        n = 5
        return call(f, x).cos() + n

    return program, (x(),)


@cases.add("closure-over-a-rebound-parameter")
def _():
    @torch.compiler.disable
    def call(f, y):
        return f(y)

    def program(x, n):
        f = lambda y: y * n  # noqa: E731
        a = call(f, x).sin()
        for n in range(3):
            a = a + call(f, x).sin()
        return a, f"{n=}"

    return program, (x(), 7)


@cases.add("closure-over-a-walrus")
def _():
    @torch.compiler.disable
    def call(f, y):
        return f(y)

    def program(x):
        n = 1
        f = lambda y: y * n  # noqa: E731
        a = call(f, x).sin()
        if (n := n + 1) > 1:
            a = a + call(f, x)
        return a

    return program, (x(),)


@cases.add("closure-that-binds-for-python")
def _():
    @torch.compiler.disable
    def times(f, k):
        for _ in range(k):
            f()

    def program(x):
        total = x.sin()
        count = 0

        def step():
            nonlocal total, count
            total = total + 1
            count += 1

        times(step, 3)
        return total.cos() * count, count

    return program, (x(),)


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)
