"""Functions and classes that close over variables which loops, `with` and the like bind.

All that were made in a loop share its variable, whatever became of the loop's body.
"""

from __future__ import annotations

import itertools
import linecache
import textwrap
from typing import Any

import pytest
import torch

from tests.harness import check

BINDERS = {
    "for": "for v in opaque([1, 2, 3]):",
    "generator": "for v in counting(3):",
    "zip": "for u, (v, *w) in zip(range(2), [(1, 2), (3, 4)]):",
    "inner": "for u in counting(3):\n    for v in counting(u):",
    "outer": "for v in counting(3):\n    for u in range(2):",
    "while": "v = 0\nwhile (v := v + 1) < opaque(3):",
    "with": "for u in range(2):\n    with manager(u) as v:",
    "except": """
for u in range(2):
    try:
        raise ValueError(opaque(u))
    except ValueError as v:""",
    "match": """
for u in [[1, 2], [3], 4]:
    match opaque(u):
        case [v, *w] | (v as w):""",
}
MAKERS = {
    "def": """
def f(k=1):
    try:
        a + 1
        r = s = v
    except Exception as e:
        print(type(e).__name__, e)
        return None
    return str(v), k""",
    "lambda": "f = lambda k=2: (lambda: (opaque(str(v)), k))()",
    "comprehension": "f = lambda k=3: [str(v) + str(j) for j in range(2)]",
    "generator": """
def f(k=3):
    def each():
        yield str(v)
        yield opaque(k)
    return list(each())""",
    "class": """
class C:
    size = str(v)
    def area(self, p):
        try:
            a + 1
            p = w9 = v
        except Exception as e:
            print(type(e).__name__, e)
        return str(p), self.size, str(v)
f = lambda k=3: C().area(k)""",
}
BETWEEN = {
    "nothing": "",
    "data": "if bool(torch.tensor(0.5) > 0):\n    print('data')",
    "escape": "opaque(made.append)(f)",
    "continue": "if opaque(0):\n    continue",
    "bound again": "print(f())\nv = 'again'",
    "deleted": "print(f())\ndel v",
    "try": """
try:
    raise KeyError(opaque(1))
except KeyError as e:
    print(e)
finally:
    print(f(8))""",
}
ENDS = {
    "next": "",
    "continue": "if bool(torch.tensor(0.5) > 0):\n    continue",
    "break": "if bool(torch.tensor(0.5) > 0):\n    break",
    "return": "if opaque(n) == 3:\n    return made[0](), made[-1]()",
}
HELPERS = """
import contextlib

import torch


def opaque(x):
    return eval("x", {"x": x})


def counting(k):
    for i in range(k):
        yield i * i


@contextlib.contextmanager
def manager(u):
    print("enter", u)
    yield u + 10
    print("exit", u)


def program(a, n):
    made = []
"""
INLINED = """

def outer(a, n):
    x = a * 2
    return program(x, n), x
"""


def _indented(text: str, depth: int) -> str:
    return textwrap.indent(text.strip("\n"), "    " * depth)


def _text(binder: str, maker: str, between: str, end: str) -> str:
    head = BINDERS[binder].strip("\n")
    last = head.split("\n")[-1]
    inside = (len(last) - len(last.lstrip())) // 4 + 2
    body = [
        MAKERS[maker],
        "made.append(f)",
        BETWEEN[between],
        "try:\n    print(f())\nexcept NameError as e:\n    print(e)",
        ENDS[end],
    ]
    after = """
try:
    print(f(9))
    print([g() for g in made])
except NameError as e:
    print(e)
return a + n"""
    parts = [_indented(head, 1), *(_indented(part, inside) for part in body)]
    return HELPERS + "\n".join([*parts, _indented(after, 1)]) + "\n" + INLINED


def _cases() -> list[tuple[str, str, str, str]]:
    """Each binder with each maker, and between them and behind them what comes next."""
    between, ends = itertools.cycle(BETWEEN), itertools.cycle(ENDS)
    pairs = itertools.product(BINDERS, MAKERS)
    return [(*pair, next(between), next(ends)) for pair in pairs]


@pytest.mark.parametrize("case", _cases(), ids=lambda case: "-".join(case))
def test_closures(case: tuple[str, str, str, str]) -> None:
    text = _text(*case)
    file = f"/tests/programs/loop_closures_{'_'.join(case)}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names: dict[str, Any] = {"__name__": "loop_closures"}
    exec(compile(text, file, "exec"), names)
    # The odd ones are inlined.
    function = names["outer" if _cases().index(case) % 2 else "program"]
    check(lambda: (function, (torch.ones(2), 3), {}), stage="specialize", calls=2)
