"""Outlining: texts, and random programs whose compound statements become functions."""

from __future__ import annotations

import doctest

import libcst as cst
import pytest
from generate import EXAMPLES, Generator
from hypothesis import given, settings
from hypothesis import strategies as st
from tracing import outcome

from srcjit.origin import Origins
from srcjit.passes import blocks, boxes, outline, outliner
from srcjit.passes.blocks import map_blocks, statements_of
from srcjit.passes.namer import Namer
from srcjit.passes.outline import UNBOUND, Box, CannotOutline
from srcjit.passes.scopes import (
    definitely_bound,
    live_in,
    local_names,
    parameter_names,
    reads,
    writes,
)

OUTLINERS = {
    cst.For: outline.outline_for,
    cst.While: outline.outline_while,
    cst.With: outline.outline_with,
    cst.Try: outline.outline_try,
}


@pytest.mark.parametrize("tested", [blocks, boxes, outline, outliner])
def test_docstrings(tested):
    assert doctest.testmod(tested).failed == 0


class Everything:
    """Outlines every compound statement of a function, and of the functions made."""

    def __init__(self, text: str, exact: bool) -> None:
        (self.tree,) = cst.parse_module(text).body
        self.exact = exact
        self.namer = Namer(reads(self.tree.body) | local_names(self.tree) | {"f"})
        self.done: list[cst.FunctionDef] = []

    def text(self) -> str:
        pending = [(self.tree, True)]
        while pending:
            function, bound = pending.pop()
            params = set(parameter_names(function.params))
            local = local_names(function)
            body = self.block(
                statements_of(function.body),
                params if bound else set(),
                local,
                set(),
                pending,
            )
            if function is self.tree:
                # Bindings that have moved away leave the name local all the same.
                body.append(cst.parse_statement(f"{' = '.join(sorted(local))} = None"))
            self.done.append(function.with_changes(body=cst.IndentedBlock(body)))
        return cst.Module(self.done).code

    def block(self, statements, bound, local, live_after, pending):
        made = []
        for number, statement in enumerate(statements):
            outliner_ = OUTLINERS.get(type(statement))
            known = definitely_bound(statements[:number], bound) & local
            after = live_in(statements[number + 1 :]) | live_after
            if isinstance(statement, cst.If):

                def arm(block, where, known=known, after=after):
                    return self.block(block, known, local, after, pending)

                made.append(map_blocks(statement, arm))
            elif outliner_ is None or _is_made(statement):
                made.append(statement)
            else:
                try:
                    out = outliner_(
                        statement,
                        bound=known,
                        live_after=after if self.exact else local,
                        origins=Origins(),
                        namer=self.namer,
                        maybe=local,
                        local=local,
                    )
                except CannotOutline:
                    made.append(statement)
                    continue
                made += out.statements
                # Parameters of bodies may arrive as UNBOUND, so they are not known to be bound.
                pending += [(function, False) for function in out.functions]
        return made


def _is_made(statement) -> bool:
    """The compiler's own `try`, or one that Python must see."""
    code = cst.Module([statement]).code
    return ("except NameError:" in code and "_given" in code) or "box_" in code


def check(text: str, seed: int, exact: bool = True) -> None:
    try:
        compile(text, "f", "exec")
    except SyntaxError:
        return
    new = Everything(text, exact).text()
    extra = {"UNBOUND": UNBOUND, "Box": Box}
    expected, got = outcome(text, seed), outcome(new, seed, extra=extra)
    assert got == expected, f"seed {seed}\n{text}\n{new}"


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 50), st.booleans())
def test_random_programs(chance, seed, exact):
    check(Generator(chance, expressions=1).function(), seed, exact)


def test_the_message_of_an_assertion_binds():
    text = (
        "def f(a, b, c):\n    try:\n        assert (not b), (c := 's')\n"
        "    except AssertionError as e:\n        g(c, e)\n    return c\n"
    )
    for seed in range(6):
        check(text, seed)


def outlined(text: str, name: str = "part", **how) -> str:
    statements = list(cst.parse_module(text).body)
    namer = Namer(reads(statements) | writes(statements))
    made = outline.outline(statements, name, origins=Origins(), namer=namer, **how)
    return cst.Module([made.function, *made.call]).code


def test_plain_piece():
    assert outlined(
        "x = x * k\ny = f(x)\n", bound={"x", "k"}, live_after={"x", "y"}
    ) == (
        "def part(x, k):\n    x = x * k\n    y = f(x)\n    return x, y\nx, y = part(x, k)\n"
    )


def test_boxed_piece_shows_each_binding_at_once():
    text = outlined("x = x + 1\ng(x)\n", bound={"x"}, live_after={"x"}, boxed=True)
    assert text == (
        "def part(x, box_x):\n    x = x + 1\n    box_x.value = x\n    g(x)\n"
        "box_x = Box(x)\ntry:\n    part(x, box_x)\nfinally:\n    x = box_x.take()\n"
    )


def test_a_variable_that_may_be_unbound():
    text = outlined("g(x)\n", bound=set(), maybe={"x"}, live_after=set())
    assert text == (
        "def part(x):\n    if x is UNBOUND: del x\n    g(x)\n"
        "try:\n    x_given = x\nexcept NameError:\n    x_given = UNBOUND\npart(x_given)\n"
    )


def test_a_piece_that_always_returns():
    text = outlined("if x:\n    return f(x)\nreturn 1\n", bound={"x"}, live_after=set())
    assert text.endswith("return part(x)\n")


def test_declared_globals():
    text = outlined("n = n + x\n", bound={"x"}, live_after={"n"}, global_names={"n"})
    assert text == "def part(x):\n    global n\n    n = n + x\npart(x)\n"


def test_a_compound_test_is_asked_once():
    (loop,) = cst.parse_module("while f(x) and g(x):\n    x = h(x)\n").body
    made = outline.outline_while(
        loop, bound={"x"}, live_after=set(), origins=Origins(), namer=Namer({"x"})
    )
    assert (
        "return True if (f(x) and g(x)) else False" in cst.Module(made.functions).code
    )


def test_nested_function_that_rebinds():
    with pytest.raises(CannotOutline, match="nested function"):
        outlined(
            "x = 1\ndef g():\n    nonlocal x\n    x = 2\ng()\n",
            bound=set(),
            live_after={"x"},
        )
