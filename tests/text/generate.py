"""Random functions over three parameters `a`, `b`, `c`, locals `d`, `e`, `i` and globals."""

from __future__ import annotations

import os
import random
import textwrap

NAMES = ("a", "b", "c", "d", "e")
GLOBALS = ("g", "h", "k")


class Generator:
    """Writes functions.

    Args:
        chance: Makes the choices.
        expressions: How deep expressions go.
        depth: How deep blocks go.
        closures: Nested functions that share variables may occur.
    """

    def __init__(
        self,
        chance: random.Random,
        expressions: int = 2,
        depth: int = 2,
        closures: bool = False,
    ) -> None:
        self.chance = chance
        self.expressions = expressions
        self.depth = depth
        self.closures = closures

    def pick(self, *choices):
        return self.chance.choice(choices)

    # ── Expressions ─────────────────────────────────────────────────────────────────

    def name(self) -> str:
        return self.pick("a", "b", "c", "a", "b", "c", *NAMES)

    def atom(self) -> str:
        return self.pick(
            self.name(),
            self.name(),
            self.name(),
            self.pick(*GLOBALS),
            "1",
            "'s'",
            "None",
        )

    def expression(self, depth: int | None = None) -> str:
        depth = self.expressions if depth is None else depth
        if depth <= 0:
            return self.atom()
        e = lambda: self.expression(depth - 1)  # noqa: E731
        kind = self.chance.randrange(24)
        if kind < 2:
            return self.atom()
        if kind < 4:
            return f"({e()} {self.pick('+', '-', '*')} {e()})"
        if kind == 4:
            return f"({e()} {self.pick('<', '>', 'in', 'is not', '==')} {e()})"
        if kind == 5:
            return f"({self.name()} < {e()} <= {e()})"
        if kind < 8:
            return f"({e()} {self.pick('and', 'or')} {e()})"
        if kind == 8:
            return f"(not {e()})"
        if kind == 9:
            return f"({e()} if {e()} else {e()})"
        if kind < 14:
            return self.call(depth)
        if kind == 14:
            return f"{self.name()}.{self.pick('x', 'y')}"
        if kind == 15:
            return f"{self.name()}[{e()}]"
        if kind == 16:
            return f"{self.name()}[{e()}:{e()}, {self.atom()}]"
        if kind == 17:
            return self.pick("[{}, {}]", "({}, {})", "[*{}, {}]", "({}, *{})").format(
                e(), e()
            )
        if kind == 18:
            return self.pick(
                "{{1: {}, 's': {}}}", "{{**{}, 'z': {}}}", "{{{}: {}}}"
            ).format(e(), e())
        if kind == 19:
            return self.pick("f'{{{}}} {{{}}}'", "f'{{{}!r:>9}}{{{}=}}'").format(
                e().replace("'", '"'),
                self.pick(self.name(), f"{self.name()}.x", f"{self.name()}[1]"),
            )
        if kind == 20:
            return self.pick(
                "[{0} for i in {1}]",
                "[i for i in {1} if {0}]",
                "list({0} for i in {1})",
            ).format(self.pick("i", "(i + a)", f"({self.name()}, i)"), e())
        if kind == 21:
            return f"({self.name()} := {e()})"
        if kind == 22:
            return f"(lambda i, j={self.atom()}: (i, j, b))({e()})"
        return f"(-{self.name()})"

    def call(self, depth: int) -> str:
        e = lambda: self.expression(depth - 1)  # noqa: E731
        called = self.pick(
            self.pick(*GLOBALS),
            f"{self.name()}.m",
            f"g.h.{self.pick('p', 'q')}",
            self.name(),
        )
        form = self.pick(
            "{}({})",
            "{}({}, {})",
            "{}({}, n={})",
            "{}(*{}, {})",
            "{}(*{}, n={})",
            "{}(n={}, *{})",
            "{}({}, **{})",
            "{}(**{}, n={})",
        )
        return form.format(called, e(), e())

    # ── Statements ──────────────────────────────────────────────────────────────────

    def target(self) -> str:
        return self.pick(
            self.name(), self.name(), self.name(),
            f"{self.name()}.x", f"{self.name()}[{self.expression(1)}]",
            f"{self.name()}, {self.name()}",
            f"{self.name()}[{self.name()}], {self.name()}",
            f"({self.name()}, *{self.name()})",
        )  # fmt: skip

    def simple(self, in_loop: bool) -> str:
        kind = self.chance.randrange(20)
        if kind < 6:
            return f"{self.target()} = {self.expression()}"
        if kind == 6:
            return f"{self.target()} = {self.name()} = {self.expression()}"
        if kind < 9:
            place = self.pick(
                self.name(),
                self.name(),
                f"{self.name()}.x",
                f"{self.name()}[{self.expression(1)}]",
            )
            return f"{place} += {self.expression()}"
        if kind < 12:
            return self.expression()
        if kind == 12:
            return f"del {self.pick(self.name(), f'{self.name()}.x', f'{self.name()}[{self.expression(1)}]')}"
        if kind == 13:
            return f"assert {self.expression()}, {self.expression(1)}"
        if kind == 14 and in_loop:
            return self.pick("break", "continue")
        if kind == 15:
            return f"return {self.expression()}"
        if kind == 16:
            return self.pick(
                "raise Boom('u')",
                f"raise Boom({self.expression(1)})",
                "raise Boom from None",
            )
        if kind == 17:
            return f"{self.name()}: int = {self.expression()}"
        if kind == 18:
            return "pass"
        return f"g({self.expression()})"

    def block(self, depth: int, in_loop: bool) -> str:
        count = self.pick(1, 1, 2, 2, 3)
        return "\n".join(self.statement(depth, in_loop) for _ in range(count))

    def statement(self, depth: int, in_loop: bool) -> str:
        if depth <= 0 or self.chance.random() < 0.5:
            return self.simple(in_loop)

        def inner(loop: bool = in_loop) -> str:
            return textwrap.indent(self.block(depth - 1, loop), "    ")

        kind = self.chance.randrange(12 if self.closures else 11)
        if kind < 3:
            text = f"if {self.expression()}:\n{inner()}"
            if self.pick(0, 0, 1):
                text += f"\nelif {self.expression(1)}:\n{inner()}"
            return text + self.pick("", f"\nelse:\n{inner()}")
        if kind < 6:
            target = self.pick(self.name(), "i", f"{self.name()}, {self.name()}")
            iterable = self.pick(self.expression(1), self.name(), "range(2)")
            text = f"for {target} in {iterable}:\n{inner(True)}"
            return text + self.pick("", f"\nelse:\n{inner()}")
        if kind == 6:
            test = self.pick(self.expression(1), self.expression(), "True")
            # `over()` is true after some turns: what `finally` swallows cannot end a loop.
            text = f"while {test}:\n    if over():\n        break\n{inner(True)}"
            return text + self.pick("", f"\nelse:\n{inner()}")
        if kind < 9:
            text = f"try:\n{inner()}"
            handlers = self.pick(0, 1, 1, 2)
            for number in range(handlers):
                caught = (
                    ("Boom", "Exception")[number]
                    if handlers == 2
                    else self.pick("Boom", "(Boom, NameError)", "Exception")
                )
                text += f"\nexcept {caught}{self.pick('', f' as {self.name()}')}:\n{inner()}"
            if handlers and self.pick(0, 1):
                text += f"\nelse:\n{inner()}"
            if not handlers or self.pick(0, 1):
                text += f"\nfinally:\n{inner()}"
            return text
        if kind == 9:
            items = self.pick("{}", "{} as {}", "{} as {}, h({}) as i")
            items = items.format(self.expression(1), self.name(), self.name())
            return f"with {items}:\n{inner()}"
        if kind == 10:
            pattern = self.pick(
                f"[{self.name()}, *_]", f"{{'k': {self.name()}}}", "'s' | 1", "None"
            )
            last = self.pick("_", self.name(), "'t'")
            guard = self.pick("", f" if {self.expression(1)}")
            return (
                f"match {self.expression(1)}:\n    case {pattern}{guard}:\n"
                f"{textwrap.indent(inner(), '    ')}\n    case {last}:\n{textwrap.indent(inner(), '    ')}"
            )
        shared = self.pick(*NAMES)
        return f"def n(i):\n    nonlocal {shared}\n    {shared} = (i, {shared}, b)\n    return g\n{self.name()} = n({self.name()})"

    def function(self, statements: int = 4) -> str:
        body = "\n".join(self.statement(self.depth, False) for _ in range(statements))
        body += f"\nreturn ({', '.join(NAMES[:3])})"
        return "def f(a, b, c):\n" + textwrap.indent(body, "    ") + "\n"


EXAMPLES = int(os.environ.get("SRCJIT_EXAMPLES", "60"))
"""How many random programs a test tries."""
