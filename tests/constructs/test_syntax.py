"""Syntax that is newer than Python 3.10: each program is a text, run where Python has it."""

from __future__ import annotations

import libcst
import pytest
import torch

from tests.constructs.support import Cases, written

cases = Cases()


def x():
    return torch.linspace(-2, 2, 12).reshape(3, 4)


TEXTS = {
    "syntax-star-in-index-and-annotation": """
        def program(x):
            def first(*items: *tuple[int, ...]):
                return items[0]

            index = (0, 1)
            return x[*index] * first(2, 3)
    """,
    "syntax-type-parameters": """
        def program(x):
            def twice[T](y: T) -> T:
                return y * 2

            return twice(x).sin()
    """,
    "syntax-type-parameters-of-the-function": """
        def program[T](x: T) -> T:
            return x.sin() * 2
    """,
    "syntax-type-statement": """
        def program(x):
            y = x.sin()
            type Pair = tuple[int, int]
            return y * 2, Pair.__name__
    """,
    "syntax-class-with-type-parameters": """
        def program(x):
            y = x.sin()

            class Box[T]:
                scale = 2

            return y * Box.scale
    """,
    "syntax-nested-quotes-in-f-string": """
        def program(x):
            d = {"a": 1}
            return x * 2, f"{d["a"]} {f"{"b" + f"{1}"}"} {"\\n".join("ab")}"
    """,
    "syntax-template-string": """
        def program(x):
            n = 3
            y = x.sin()
            return y * 2, t"{n}".values
    """,
    "syntax-except-without-parentheses": """
        def program(x, table):
            try:
                n = table["k"]
            except KeyError, IndexError:
                n = 2
            return x.sin() * n
    """,
}
SINCE = {
    "syntax-star-in-index-and-annotation": (3, 11),
    "syntax-template-string": (3, 14),
    "syntax-except-without-parentheses": (3, 14),
}


def _add(name: str) -> None:
    @cases.add(name, since=SINCE.get(name, (3, 12)))
    def _():
        args = [x(), {"k": 1}] if "except" in name else [x()]
        return written(TEXTS[name]), tuple(args)


for _name in TEXTS:
    _add(_name)


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)


@pytest.mark.parametrize("name", TEXTS)
def test_libcst_parses(name):
    """What libcst does not parse would be left native as a whole (SJ001)."""
    import textwrap

    libcst.parse_module(textwrap.dedent(TEXTS[name]))
