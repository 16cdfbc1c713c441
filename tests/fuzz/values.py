"""Expressions for plain Python values: numbers, strings, containers, objects, functions."""

from __future__ import annotations

from .choices import Choices, Makers


class Values(Choices):
    """Makes expressions without tensors; well typed most of the time."""

    def number(self, depth: int = 1) -> str:
        """Returns an int or a float."""
        return self.integer(depth) if self.chance(0.5) else self.real(depth)

    def numbers(self) -> str:
        """Returns a variable that holds a list of numbers."""
        return self.variable("nlist") or "nums"

    def scores(self) -> str:
        """Returns a variable that holds a dict of numbers."""
        return self.variable("pdict") or "scores"

    # ── int ───────────────────────────────────────────────────────────────────────

    def integer(self, depth: int = 1) -> str:
        """Returns an integer, small most of the time."""
        name = self.variable("int")
        if depth <= 0 or self.chance(0.3):
            if name and self.chance(0.7):
                return name
            return self.one_of("1", "2", "3", "0", "-1")
        return self.made(self.integer_makers(depth - 1))

    def integer_makers(self, depth: int) -> Makers:
        """Returns what makes integers of parts with `depth`."""
        sub = lambda: self.integer(depth)  # noqa: E731
        nums = self.numbers()
        makers = [
            lambda: f"({sub()} + {sub()}) % 7",
            lambda: f"({sub()} {self.one_of('+', '-', '*', '&', '|', '^')} {sub()})",
            lambda: f"({sub()} % 5 - {sub()} // 3)",
            lambda: f"len({self.variable('nlist', 'pdict', 'pset', 'str') or 'nums'})",
            lambda: f"{self.one_of('max', 'min')}({sub()}, {sub()})",
            lambda: f"({sub()} if {self.condition(0)} else {sub()})",
            lambda: f"({sub()} {self.one_of('and', 'or')} {sub()})",
            lambda: "st.count",
            lambda: "len(mode)",
            lambda: f"abs({sub()} - {sub()})",
            lambda: f"twice({sub()})",
            lambda: f"-{sub()}",
            lambda: f"sum(i for i in range({sub()} % 6))",
            lambda: f"{self.scores()}.get({self.one_of('mode', repr('k'))}, {sub()})",
            lambda: f"(({sub()} << 65) + {sub()}) % 1000003",
            lambda: f"({sub()}, {sub()})[{self.condition(0)}]",
            lambda: f"[*{nums}, {sub()}][-1]",
            lambda: f"len({{*{nums}, {sub()}}})",
            lambda: f"(lambda q, k={sub()}: q + k)({sub()})",
            lambda: f"divmod({sub()}, 3)[1]",
            lambda: f"sum(x > {sub()} for x in {nums})",
            lambda: f"functools.reduce(lambda p, q: p + q, {nums}, {sub()})",
            lambda: f"functools.partial(affine, {sub()})({sub()})",
            lambda: f"affine({sub()}, k={sub()})",
            lambda: f"variadic({sub()}, *{nums}, k={sub()})",
            lambda: f"Color.{self.one_of('RED', 'BLUE')}.value",
            lambda: (
                f"{self.variable('point') or 'Point(1, 2)'}.{self.one_of('x', 'y')}"
            ),
            lambda: f"Pair({sub()}, {sub()}).{self.one_of('left', 'right', 'total')}",
            lambda: f"({sub()}).bit_length()",
            lambda: f"{nums}.count({sub()})",
            lambda: f"Counted({sub()})[{sub()}]",
            lambda: f"Derived({sub()}).area({sub()})",
            lambda: f"opaque_number({sub()})",
        ]
        gen, fn = self.variable("gen"), self.variable("fn")
        if gen:
            makers += [lambda: f"next({gen}, {sub()})"] * 2
        if fn and self.operand == "int":
            makers += [lambda: f"{fn}({sub()})"] * 3
        if not self.in_generator:
            makers.append(self._walrus)
        return makers

    def _walrus(self) -> str:
        """Binds a new name in the middle of an expression."""
        name = self.fresh("w")
        text = f"({name} := {self.integer(0)})"
        self.maybe_unbound.append(name)
        return text

    # ── float, bool, str ──────────────────────────────────────────────────────────

    def real(self, depth: int = 1) -> str:
        """Returns a float."""
        name = self.variable("float")
        if depth <= 0 or self.chance(0.35):
            return name if name and self.chance(0.7) else self.one_of("0.5", "1.5")
        return self.made(self.real_makers(depth - 1))

    def real_makers(self, depth: int) -> Makers:
        """Returns what makes floats of parts with `depth`."""
        sub = lambda: self.real(depth)  # noqa: E731
        return [
            lambda: f"math.sin({sub()})",
            lambda: f"({sub()} * 0.5)",
            lambda: f"({sub()} {self.one_of('+', '-', '*')} {self.integer(depth)})",
            lambda: f"{self.integer(depth)} / 2",
            lambda: f"{sub()} / {self.integer(0)}",
            lambda: "st.rate",
            lambda: self.one_of("-0.0", "float('nan')", "float('inf')", "1e-3"),
            lambda: f"round({sub()}, {self.integer(0)})",
            lambda: f"float({self.integer(depth)})",
            lambda: f"max({sub()}, {sub()})",
            lambda: f"{sub()} % 1.25",
            lambda: f"math.sqrt(abs({sub()}))",
            lambda: f"({sub()} if {self.condition(0)} else {sub()})",
        ]

    def condition(self, depth: int = 1) -> str:
        """Returns a truth value."""
        return self.made(self.condition_makers(depth))

    def condition_makers(self, depth: int) -> Makers:
        """Returns what makes truth values."""
        nums, sub = self.numbers(), lambda: self.condition(depth - 1)
        makers = [
            lambda: (
                f"{self.integer(0)} {self.one_of('>', '<', '>=', '!=')} {self.integer(0)}"
            ),
            lambda: f"{self.integer(0)} % 2 == 0",
            lambda: self.variable("bool") or "flag",
            lambda: "mode == 'x'",
            lambda: (
                f"{self.one_of(repr('x'), 'mode')} {self.one_of('in', 'not in')} {self.scores()}"
            ),
        ]
        if depth > 0:
            makers += [
                lambda: f"not {sub()}",
                lambda: f"({sub()} {self.one_of('and', 'or')} {sub()})",
                lambda: f"{self.real(1)} < {self.number(0)}",
                lambda: f"len({nums}) > 2",
                lambda: f"noisy({self.condition(0)})",
                lambda: f"0 <= {self.integer(0)} < {self.integer(1)}",
                lambda: f"{self.integer(0)} < {self.integer(1)} != {self.integer(0)}",
                lambda: f"{self.integer(1)} in {nums}",
                lambda: (
                    f"{self.one_of('any', 'all')}(v > {self.integer(0)} for v in {nums})"
                ),
                lambda: f"isinstance({self.number(0)}, {self.one_of('int', 'float')})",
                lambda: f"{self.numbers()} {self.one_of('is', 'is not')} {nums}",
                lambda: f"identity({self.numbers()}) is {nums}",
                lambda: (
                    f"{self.variable('float') or 'r'} != {self.variable('float') or 'r'}"
                ),
                lambda: f"{nums} == {self.numbers()}",
                lambda: (
                    f"{self.variable('point') or 'Point(1, 2)'} == Point({self.integer(0)}, 2)"
                ),
            ]
            if not self.in_generator:
                makers.append(lambda: f"{self._walrus()} > {self.integer(0)}")
        return makers

    def string(self) -> str:
        """Returns a string."""
        return self.made(
            [
                lambda: f'f"{{{self.integer(1)}}}-{{mode}}"',
                lambda: self.one_of("'x'", "'y'", "'k'"),
                lambda: f"str({self.integer(1)})",
                lambda: "mode + 'z'",
                lambda: "mode.upper()",
                lambda: "mode[::-1]",
                lambda: f'f"{{{self.variable("int", "float", "nlist") or "n"}=}}"',
                lambda: f'f"{{{self.variable("float") or "r"}:.2f}}|"',
                lambda: f'f"{{{self.variable("int") or "n"}:>4}}{{mode!r}}"',
                lambda: f"'-'.join(map(str, {self.numbers()}))",
                lambda: f"'%s/%d' % (mode, {self.integer(0)})",
                lambda: f"'{{}}:{{k}}'.format({self.integer(0)}, k=mode)",
                lambda: f"repr({self.variable('point') or 'Point(1, 2)'})",
            ]
        )

    # ── containers, objects, functions ────────────────────────────────────────────

    def value(self, kind: str) -> str:
        """Returns an expression for a value of `kind`."""
        match kind:
            case "int":
                return self.integer(2)
            case "float":
                return self.real(2)
            case "bool":
                return self.condition(1)
            case "str":
                return self.string()
            case "nlist":
                return self._number_list()
            case "pdict":
                return self._dict()
            case "pset":
                return self._set()
            case "point":
                x, y = self.integer(1), self.integer(0)
                return self.one_of(f"Point({x}, {y})", f"Point(x={x}).moved({y})")
            case "gen":
                return self._generator()
        return self._lambda()

    def _number_list(self) -> str:
        nums = self.numbers()
        return self.made(
            [
                lambda: f"[{self.number(1)}, {self.number(1)}]",
                lambda: f"[i * 2 for i in range({self.integer(1)} % 6)]",
                lambda: "[]",
                lambda: nums,
                lambda: f"[v + 1 for v in {nums} if v]",
                lambda: f"[i + j for i in range(2) for j in {nums}[:2] if i != j]",
                lambda: (
                    f"[[i for i in range(j)] for j in range({self.integer(0)} % 4)][-1:]"
                ),
                lambda: f"sorted({nums})",
                lambda: f"sorted({nums}, key=lambda v: -v)",
                lambda: (
                    f"sorted({nums}, key=opaque_number, reverse={self.condition(0)})"
                ),
                lambda: f"list({nums})",
                lambda: f"[*{nums}, {self.integer(1)}][:6]",
                lambda: (
                    f"{nums}[{self.one_of('1:', ':-1', '::2', '::-1', ':n', '-2:')}]"
                ),
                lambda: f"({nums} * 2)[:5]",
                lambda: f"list(map(twice, {nums}))",
                lambda: f"[x * y for x, y in zip({nums}, {self.numbers()})]",
                lambda: f"[k for k, _ in enumerate({nums})]",
                lambda: f"list({self.scores()}.values())",
                lambda: f"list(itertools.accumulate({nums}))",
                lambda: f"list(counting({self.integer(0)} % 4))",
                lambda: f"list(relay({self.integer(0)} % 4))",
                lambda: f"[(lambda: v)() for v in {nums}]",
            ]
        )

    def _dict(self) -> str:
        scores = self.scores()
        return self.made(
            [
                lambda: f"{{'k': {self.integer(1)}, mode: {self.integer(0)}}}",
                lambda: f"dict({scores})",
                lambda: scores,
                lambda: f"{{**{scores}, 'z': {self.integer(0)}}}",
                lambda: f"{{str(i): i * {self.integer(0)} for i in range(3)}}",
                lambda: f"{scores} | {{mode: {self.integer(1)}}}",
                lambda: f"dict(zip('xyz', {self.numbers()}))",
                lambda: f"collections.Counter({self.string()})",
                lambda: f"collections.OrderedDict(sorted({scores}.items()))",
            ]
        )

    def _set(self) -> str:
        nums = self.numbers()
        other = self.variable("pset") or "{1, 2}"
        return self.made(
            [
                lambda: f"set({nums})",
                lambda: f"{{{self.integer(1)}, {self.integer(0)}}}",
                lambda: (
                    f"{other} {self.one_of('|', '&', '-', '^')} {{{self.integer(0)}, 3}}"
                ),
                lambda: f"{{v % 3 for v in {nums}}}",
                lambda: f"frozenset({nums})",
            ]
        )

    def _generator(self) -> str:
        return self.made(
            [
                lambda: f"counting({self.integer(0)} % 5)",
                lambda: f"relay({self.integer(0)} % 5)",
                lambda: f"(v * {self.integer(0)} for v in {self.numbers()})",
                lambda: f"iter({self.numbers()})",
                lambda: f"map(twice, {self.numbers()})",
                lambda: f"echo({self.integer(0)} % 4)",
            ]
        )

    def _lambda(self) -> str:
        name = self.fresh("p")
        with self.scope(), self.function({name: self.operand}):
            body = self.made_operand(1)
        default = f", k={self.integer(0)}" if self.chance(0.3) else ""
        return f"(lambda {name}{default}: {body})"

    def made_operand(self, depth: int) -> str:
        """Returns an expression of the kind that nested functions take and return."""
        return self.integer(depth)

    def iterables(self, item: str) -> dict[str, tuple[str, dict[str, str]]]:
        """Returns what a loop can go over: its target, and what its names hold."""
        one, two = (item, {item: "int"}), f"{item}, {item}_"
        both = (two, {item: "int", f"{item}_": "int"})
        return {
            f"range({self.integer(1)} % 6)": one,
            "range(2)": one,
            f"range({self.one_of('3', '3', '4', '9')})": one,
            f"list({self.numbers()})": (item, {item: "float"}),
            f"{self.numbers()}[:3]": (item, {item: "float"}),
            f"counting({self.integer(0)} % 5)": one,
            f"relay({self.integer(0)} % 5)": one,
            f"enumerate(range({self.integer(0)} % 4))": both,
            f"zip(nums[:3], {self.numbers()})": (
                two,
                {item: "float", f"{item}_": "float"},
            ),
            f"reversed(range({self.integer(0)} % 5))": one,
            f"sorted({self.scores()}.items())": (f"_, {item}", {item: "int"}),
            "[(1, [2, 3]), (4, [5])]": (f"{item}, [{item}_, *_]", both[1]),
            f"itertools.islice(itertools.count({self.integer(0)}), 3)": one,
            "mode": (item, {item: "str"}),
            "Steps(3)": one,
        }

    def managers(self) -> list[str]:
        """Returns context managers."""
        return [
            "Manager('m', st)",
            "Manager('q', st) as st2",
            "Manager('o', st), Manager('i', st)",
            "Swallow()",
            "contextlib.suppress(ValueError)",
            "manager(st)",
            "manager(st) as st3, Swallow()",
            "contextlib.ExitStack()",
        ]
