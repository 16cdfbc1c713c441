"""Statements of control flow, and functions, generators and classes in functions."""

from __future__ import annotations

from .tree import Body, Compound, Line, Statement
from .values import Values

ERRORS = ("ValueError", "KeyError", "RuntimeError")


def when(condition: str, *statements: Statement) -> Compound:
    """Returns an `if` without `else`."""
    return Compound(((f"if {condition}:", statements),))


class Control(Values):
    """Makes compound statements."""

    def if_(self) -> list[Statement]:
        """An `if`, with `elif` and `else` or without."""
        clauses = [(f"if {self.condition(2)}:", self.block())]
        if self.chance(0.3):
            clauses.append((f"elif {self.condition(1)}:", self.block()))
        if self.chance(0.5):
            clauses.append(("else:", self.block()))
        return [Compound(tuple(clauses))]

    # ── loops ─────────────────────────────────────────────────────────────────────

    def _loop_body(self, names: dict[str, str]) -> Body:
        self.loops += 1
        try:
            with self.scope():
                self.env.update(names)
                return self.body(4)
        finally:
            self.loops -= 1

    def for_(self) -> list[Statement]:
        """A `for` over one of many things, with `else` or without."""
        bags = self.iterables(self.fresh("i"))
        iterable = self.random.choice(list(bags))
        target, names = bags[iterable]
        clauses = [(f"for {target} in {iterable}:", self._loop_body(names))]
        if self.chance(0.25):
            clauses.append(("else:", self.block(2)))
        return [Compound(tuple(clauses))]

    def while_(self) -> list[Statement]:
        """A `while` that a counter ends."""
        counter = self.fresh("loop")
        self.env[counter] = "int"
        test = f"{counter} < {self.random.randint(1, 4)}"
        if self.chance(0.5):
            test += f" and {self.condition(1)}"
        self.protected.add(counter)
        body = (Line(f"{counter} += 1"), *self._loop_body({}))
        clauses = [(f"while {test}:", body)]
        if self.chance(0.25):
            clauses.append(("else:", self.block(2)))
        return [Line(f"{counter} = 0"), Compound(tuple(clauses))]

    def changing(self) -> list[Statement]:
        """A loop over something that its body changes."""
        item, nums, scores = self.fresh("i"), self.numbers(), self.scores()
        head, change = self.random.choice(
            [
                (f"for {item} in {nums}:", f"{nums}.append({item})"),
                (f"for {item} in {nums}:", f"{nums}.pop()"),
                (f"for {item} in {scores}:", f"{scores}[{item} + 'q'] = 1"),
                (f"for {item} in list({scores}):", f"del {scores}[{item}]"),
                (f"for {item} in {scores}.values():", f"{scores}.clear()"),
            ]
        )
        body = (when(f"len({nums}) < 6 and len({scores}) < 6", Line(change)),)
        if "pop" in change or "del" in change:
            body = (when(self.condition(1), Line(change)),)
        loop = Compound(((head, body),))
        if "values" in head or "q'" in change:
            caught = (f"except RuntimeError as {item}_e:", (Line(f"print({item}_e)"),))
            return [Compound((("try:", (loop,)), caught))]
        return [loop]

    def jump(self) -> list[Statement]:
        """A conditional `break` or `continue`."""
        return [when(self.condition(1), Line(self.one_of("break", "continue")))]

    def leave(self) -> list[Statement]:
        """A conditional `return` or `raise`."""
        if self.in_generator:
            out = f"return {self.integer(0)}"
        elif self.in_function:
            out = f"return {self.made_operand(1)}"
        else:
            out = self.one_of(
                f"return {self.made_operand(1)}",
                f"return {self.integer(1)}, {self.made_operand(1)}",
                f"raise ValueError({self.string()})",
            )
        return [when(self.condition(1), Line(out))]

    # ── exceptions and contexts ───────────────────────────────────────────────────

    def try_(self) -> list[Statement]:
        """A `try` with handlers, `else` and `finally`, or some of them."""
        error = self.one_of(*ERRORS)
        body = self.block()
        if self.chance(0.6):
            raised = Line(f"raise {error}({self.string()})")
            body += (when(self.condition(1), raised),)
        clauses = [("try:", body)]
        caught = self.one_of(
            error,
            "Exception",
            "(ValueError, KeyError)",
            "(ZeroDivisionError, TypeError)",
        )
        finish = self.chance(0.35)
        if self.chance(0.85) or not finish:
            name = self.fresh("e")
            clauses.append((f"except {caught} as {name}:", self._handler(name)))
            if self.chance(0.15):
                shown = (Line("print('other')"),)
                clauses.append(("except Exception:", shown + self.block(1)))
            if self.chance(0.3):
                clauses.append(("else:", self.block(2)))
        if finish:
            clauses.append(("finally:", self.block(2)))
        return [Compound(tuple(clauses))]

    def _handler(self, name: str) -> Body:
        shown = Line(f"print(type({name}).__name__, {name})")
        self.in_handler += 1
        rest = self.block(2)
        self.in_handler -= 1
        return (shown, *rest)

    def again(self) -> list[Statement]:
        """Raises again what is being handled, or something because of it."""
        out = self.one_of(
            "raise",
            f"raise {self.one_of(*ERRORS)}({self.string()}) from None",
            f"raise {self.one_of(*ERRORS)}({self.string()}) from ValueError('cause')",
            f"raise {self.one_of(*ERRORS)}({self.string()})",
        )
        return [when(self.condition(1), Line(out))]

    def chained(self) -> list[Statement]:
        """Shows the exceptions behind an exception."""
        name, inner = self.fresh("e"), self.fresh("e")
        cause = self.one_of(f" from {inner}", " from None", "")
        raised = Line(f"raise {self.one_of(*ERRORS)}({self.string()}){cause}")
        first = Compound(
            (
                ("try:", (*self.block(1), Line(f"1 // ({self.integer(1)})"))),
                (f"except ZeroDivisionError as {inner}:", (raised,)),
            )
        )
        shown = (
            Line(
                f"print(repr({name}), repr({name}.__cause__), repr({name}.__context__))"
            ),
            Line(f"print({name}.__suppress_context__)"),
        )
        return [Compound((("try:", (first,)), (f"except Exception as {name}:", shown)))]

    def grouped(self) -> list[Statement]:
        """A `try` with `except*`."""
        name, other = self.fresh("e"), self.fresh("e")
        raised = Line(
            "raise ExceptionGroup('several', [ValueError(mode), "
            f"{self.one_of('KeyError', 'TypeError')}({self.integer(0)})])"
        )
        return [
            Compound(
                (
                    ("try:", (*self.block(1), when(self.condition(1), raised))),
                    (
                        f"except* ValueError as {name}:",
                        (Line(f"print({name}.exceptions)"),),
                    ),
                    (
                        f"except* (KeyError, TypeError) as {other}:",
                        (Line("print('two')"),),
                    ),
                )
            )
        ]

    def with_(self) -> list[Statement]:
        """A `with` of one item or two."""
        manager = self.random.choice(self.managers())
        with self.scope():
            if " as st2" in manager:
                self.env["st2"] = "int"
            body = self.body(3)
        if ("Swallow" in manager or "suppress" in manager) and self.chance(0.5):
            body += (when(self.condition(1), Line("raise ValueError('in with')")),)
        return [Compound(((f"with {manager}:", body),))]

    def match_(self) -> list[Statement]:
        """A `match` on a value, a sequence, a mapping or an object."""
        subject, cases = self.random.choice(
            [
                ("mode", ("'x'", "'y' | 'yz'", "_")),
                (self.integer(1), ("0", "1 | 2", "_")),
                ("nums", ("[]", "[first, *_]", "_")),
                ("nums", ("[]", "[1, *others] if others", "[_, _]")),
                ("scores", ("{'k': value, **left}", "{}", "_")),
                ("st", ("State(count=0)", "State(count=1 | 2)", "_")),
                (
                    self.variable("point") or "Point(1, 2)",
                    ("Point(0, y)", "Point(x=1 as x)", "Point()"),
                ),
                (f"({self.integer(1)}, mode)", ("(0, _)", "(int() as i, 'x')", "_")),
            ]
        )
        # Clauses of a match stand one level deeper than their header.
        body = tuple(Compound(((f"case {c}:", self.block(2)),)) for c in cases)
        return [Compound(((f"match {subject}:", body),))]

    # ── functions and classes ─────────────────────────────────────────────────────

    def nested_function(self) -> list[Statement]:
        """A function in the function, which may bind a variable of it."""
        name, arg = self.fresh("fn"), self.fresh("p")
        shared = [
            n
            for n, k in self.env.items()
            if k in ("int", "float")
            and n not in self.parameters
            and n not in self.protected
        ]
        declared: Body = ()
        if shared and self.chance(0.4) and not self.in_function:
            chosen = self.random.choice(shared)
            declared = (
                Line(f"nonlocal {chosen}"),
                Line(f"{chosen} = {chosen} + {self.one_of('1', 'k')}"),
            )
        elif self.chance(0.1):
            declared = (Line("global COUNT"), Line(f"COUNT += {self.integer(0)}"))
        default = self.integer(0)
        with self.function({arg: self.operand, "k": "int"}):
            body = self.body(3)
            result = self.made_operand(2)
        self.env[name] = "fn"
        head = f"def {name}({arg}, k={default}):"
        if self.chance(0.15):
            head = f"@{self.one_of('logged', 'repeated(2)')}\n" + head
        return [Compound(((head, (*declared, *body, Line(f"return {result}"))),))]

    def generator_function(self) -> list[Statement]:
        """A generator function, and a generator that it makes."""
        name, arg, made = self.fresh("fn"), self.fresh("p"), self.fresh("g")
        with self.function({arg: "int"}, generator=True):
            body = self.body(3)
        start = self.integer(0)
        head = f"def {name}({arg}):"
        first = Line(f"yield {arg}")
        uses: list[Statement] = [Line(f"{made} = {name}({start})")]
        self.env[made] = "gen"
        if self.chance(0.3):
            uses = [Line(f"{made} = iter(list({name}({start})))")]
        elif self.chance(0.2):
            uses.append(Line(f"print(list({made}))"))
        return [Compound(((head, (first, *body)),)), *uses]

    def yield_(self) -> list[Statement]:
        """Hands something out of a generator."""
        sent = self.fresh("v")
        self.env[sent] = "int"
        return [
            Line(
                self.one_of(
                    f"{sent} = (yield {self.integer(1)}) or {self.integer(0)}",
                    f"{sent} = (yield from counting({self.integer(0)} % 3)) or 1",
                    f"{sent} = (yield from relay({self.integer(0)} % 3)) or 0",
                )
            )
        ]

    def closures(self) -> list[Statement]:
        """Functions made in a loop, which share the loop's variable or have their own."""
        made, item, called = self.fresh("fs"), self.fresh("i"), self.fresh("v")
        kept = self.one_of(
            f"lambda: {item}", f"lambda {item}={item}: {item}", f"lambda: {item} + n"
        )
        loop = Compound(
            ((f"for {item} in range(3):", (Line(f"{made}.append({kept})"),)),)
        )
        self.env[called] = "nlist"
        between = list(self.body(1)) if self.chance(0.5) else []
        return [
            Line(f"{made} = []"),
            loop,
            *between,
            Line(f"{called} = [f() for f in {made}]"),
        ]

    def nested_class(self) -> list[Statement]:
        """A class in the function, and what an instance of it says."""
        name, arg, made = self.fresh("C"), self.fresh("p"), self.fresh("v")
        base = self.one_of("", "(Derived)", "(Point)")
        with self.function({arg: "int"}):
            body = self.body(2)
            result = self.integer(1)
        method = Compound(
            ((f"def area(self, {arg}):", (*body, Line(f"return {result}"))),)
        )
        lines: list[Statement] = [Line(f"size = {self.integer(0)}"), method]
        if self.chance(0.4):
            head = "@property\ndef twice(self):"
            lines.append(Compound(((head, (Line("return self.size * 2"),)),)))
        shown = f"{made}.twice" if len(lines) > 2 else f"{made}.size"
        arguments = {"": "", "(Derived)": "2", "(Point)": "1, 2"}[base]
        self.env[made] = "object"
        value = self.fresh("v")
        self.env[value] = "int"
        return [
            Compound(((f"class {name}{base}:", tuple(lines)),)),
            Line(f"{made} = {name}({arguments})"),
            Line(f"{value} = {made}.area({self.integer(0)}) + {shown}"),
        ]
