"""Writes random programs: tensors, Python values, all control flow, all kinds of breaks.

A program is well typed most of the time: the generator knows of each variable what it holds.
What it holds is one of `KINDS`. Where a program does raise, the exception has to be the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .tree import Body, Compound, Line, Statement

PARAMETERS = {
    "a": "mat",
    "b": "vec",
    "c": "mat",
    "n": "int",
    "r": "float",
    "flag": "bool",
    "mode": "str",
    "nums": "nlist",
    "parts": "tlist",
    "table": "tdict",
    "st": "state",
    "net": "net",
}
"""Parameters of every program, and what they hold."""

TENSORS = ("mat", "vec", "scal")
"""Tensors of 2, 1 and 0 dimensions; `mat` is (rows, 4) and `vec` is (4,)."""

KINDS = (*TENSORS, "int", "float", "bool", "str", "nlist", "tlist", "tdict", "fn")


class Generator:
    """One random program in the making.

    Args:
        seed: The same seed gives the same program.
        size: About how many statements the program has.
    """

    def __init__(self, seed: int, size: int = 14) -> None:
        self.random = random.Random(seed)
        self.env: dict[str, str] = dict(PARAMETERS)
        self.count = 0
        self.left = size
        self.loops = 0
        self.fragile = 0
        self.in_function = 0
        self.maybe_unbound: list[str] = []
        self.protected: set[str] = set()

    # ── choices ───────────────────────────────────────────────────────────────────

    def chance(self, probability: float) -> bool:
        """Tosses a coin."""
        return self.random.random() < probability

    def one_of(self, *choices: str) -> str:
        """Picks one of several texts."""
        return self.random.choice(choices)

    def fresh(self, prefix: str) -> str:
        """Returns a new variable name."""
        self.count += 1
        return f"{prefix}{self.count}"

    def variable(self, *kinds: str) -> str | None:
        """Picks a bound variable of one of the kinds."""
        names = [name for name, kind in self.env.items() if kind in kinds]
        return self.random.choice(names) if names else None

    def target(self, kind: str) -> str:
        """Picks a variable to assign a value of `kind` to: an old or a new one."""
        names = [
            n for n, k in self.env.items() if k == kind and n not in self.protected
        ]
        if names and self.chance(0.55):
            return self.random.choice(names)
        return self.fresh({"tlist": "ts", "nlist": "ns", "tdict": "td"}.get(kind, "v"))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is bound inside may be unbound outside."""
        before = dict(self.env)
        try:
            yield
        finally:
            self.maybe_unbound += [n for n in self.env if n not in before]
            gone = set(before) - set(self.env)
            self.env = {n: k for n, k in before.items() if n not in gone}

    # ── expressions ───────────────────────────────────────────────────────────────

    def tensor(self, depth: int = 2, kind: str | None = None) -> str:
        """Returns an expression for a tensor."""
        kind = kind or self.random.choice(TENSORS)
        name = self.variable(kind)
        if depth <= 0 or (name and self.chance(0.2)):
            return name or {"mat": "a", "vec": "b", "scal": "torch.tensor(0.5)"}[kind]
        sub = lambda k=kind: self.tensor(depth - 1, k)  # noqa: E731
        choices: list[Callable[[], str]] = [
            lambda: f"torch.{self.one_of('sin', 'cos', 'tanh', 'sigmoid')}({sub()})",
            lambda: f"{sub()}.{self.one_of('relu', 'abs', 'neg', 'clone', 'detach')}()",
            lambda: (
                f"({sub()} {self.one_of('+', '-', '*')} {self.lower(depth - 1, kind)})"
            ),
            lambda: f"({sub()} * {self.number(depth - 1)})",
            lambda: f"({self.number(depth - 1)} - {sub()})",
            lambda: f"torch.where({sub()} > 0, {sub()}, {self.number(0)})",
            lambda: f"helper({sub()}, {self.integer(depth - 1)})",
            lambda: f"{sub()}.clamp(-2, 2)",
            lambda: f"({sub()} if {self.condition(0)} else {sub()})",
            lambda: f"blend({sub()}, scale={self.number(depth - 1)})",
            lambda: f"st.apply({sub()})",
            lambda: f"early({sub()}, {self.integer(0)})",
        ]
        if kind == "mat":
            choices += [
                lambda: f"net({sub()})",
                lambda: f"{sub()}.t().t()",
                lambda: f"({sub()} + {sub('vec')})",
                lambda: f"{sub()}.flip(0)",
                lambda: f"{sub()} @ torch.ones(4, 4)",
                lambda: f"torch.softmax({sub()}.float(), -1)",
            ]
        elif kind == "vec":
            choices += [
                lambda: (
                    f"{sub('mat')}[{self.one_of('0', '-1', 'n % 2', 'len(nums) % 2')}]"
                ),
                lambda: f"{sub('mat')}.sum(0)",
                lambda: f"{sub()}.flip(0)",
                lambda: f"{sub()}.cumsum(0)",
            ]
        else:
            choices += [
                lambda: (
                    f"{sub(self.one_of('mat', 'vec'))}.{self.one_of('sum', 'mean', 'max')}()"
                ),
                lambda: f"{sub('vec')}[{self.one_of('0', '-1', 'n % 4')}]",
            ]
        if self.chance(0.08):
            choices = [
                lambda: f"opaque({sub()})",
                lambda: f"breaking({sub()})",
                lambda: f"counted({sub()})",
                lambda: f"torch.from_numpy(({sub()}).detach().numpy() * 1)",
                lambda: f"st.callback({sub()})",
                lambda: f"st.prop + {sub()}",
            ]
        fn, bag = self.variable("fn"), self.variable("tlist")
        if fn and self.chance(0.25):
            return f"{fn}({sub()})"
        if bag and self.chance(0.08):
            return f"({bag}[-1] if {bag} else {sub()})"
        return self.random.choice(choices)()

    def lower(self, depth: int, kind: str) -> str:
        """A tensor with no more dimensions than `kind`."""
        index = TENSORS.index(kind)
        return self.tensor(depth, self.random.choice(TENSORS[index:]))

    def number(self, depth: int = 1) -> str:
        """Returns an int or a float."""
        return self.integer(depth) if self.chance(0.5) else self.real(depth)

    def integer(self, depth: int = 1) -> str:
        """Returns a small integer."""
        name = self.variable("int")
        if depth <= 0 or self.chance(0.35):
            return name if name and self.chance(0.7) else self.one_of("1", "2", "3")
        sub = lambda: self.integer(depth - 1)  # noqa: E731
        bag = self.variable("nlist", "tlist", "tdict") or "nums"
        return self.random.choice(
            [
                lambda: f"({sub()} + {sub()}) % 7",
                lambda: f"len({bag})",
                lambda: f"{self.tensor(0, 'mat')}.shape[{self.one_of('0', '1')}]",
                lambda: f"max({sub()}, {sub()})",
                lambda: f"({sub()} if {self.condition(0)} else {sub()})",
                lambda: f"{self.tensor(0)}.dim()",
                lambda: "st.count",
                lambda: "len(mode)",
                lambda: f"abs({sub()} - {sub()})",
                lambda: f"(int({self.tensor(1, 'scal')}.item() * 3) % 5)",
                lambda: f"int({self.tensor(1, 'scal')} > 0)",
                lambda: f"twice({sub()})",
                lambda: f"sum(i for i in range({sub()}))",
            ]
        )()

    def real(self, depth: int = 1) -> str:
        """Returns a float."""
        name = self.variable("float")
        if depth <= 0 or self.chance(0.35):
            return name if name and self.chance(0.7) else self.one_of("0.5", "1.5")
        return self.random.choice(
            [
                lambda: f"{self.tensor(1, 'scal')}.item()",
                lambda: f"float({self.tensor(1, 'scal')})",
                lambda: f"math.sin({self.real(depth - 1)})",
                lambda: f"({self.real(depth - 1)} * 0.5)",
                lambda: f"{self.integer(depth - 1)} / 2",
                lambda: "st.rate",
            ]
        )()

    def condition(self, depth: int = 1) -> str:
        """Returns a truth value."""
        choices: list[Callable[[], str]] = [
            lambda: f"{self.integer(0)} > {self.integer(0)}",
            lambda: f"{self.integer(0)} % 2 == 0",
            lambda: self.variable("bool") or "flag",
            lambda: "'k' in table",
            lambda: "mode == 'x'",
            lambda: "net.training",
        ]
        if depth > 0:
            choices += [
                lambda: f"{self.tensor(1, 'scal')} > {self.number(0)}",
                lambda: f"not {self.condition(depth - 1)}",
                lambda: (
                    f"({self.condition(depth - 1)} and {self.condition(depth - 1)})"
                ),
                lambda: f"({self.condition(depth - 1)} or {self.condition(depth - 1)})",
                lambda: f"{self.real(1)} < {self.number(0)}",
                lambda: f"bool({self.tensor(1, 'scal')} > 0)",
                lambda: f"len({self.variable('nlist') or 'nums'}) > 2",
                lambda: f"noisy({self.condition(0)})",
            ]
        return self.random.choice(choices)()

    def string(self) -> str:
        """Returns a string."""
        return self.random.choice(
            [
                lambda: f'f"{{{self.integer(1)}}}-{{mode}}"',
                lambda: self.one_of("'x'", "'y'"),
                lambda: f"str({self.integer(1)})",
                lambda: "mode + 'z'",
            ]
        )()

    def value(self, kind: str) -> str:
        """Returns an expression for a value of `kind`."""
        if kind in TENSORS:
            return self.tensor(2, kind)
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
                return self.random.choice(
                    [
                        lambda: f"[{self.number(1)}, {self.number(1)}]",
                        lambda: f"[i * 2 for i in range({self.integer(1)})]",
                        lambda: "[]",
                        lambda: self.variable("nlist") or "nums",
                        lambda: (
                            f"[v + 1 for v in {self.variable('nlist') or 'nums'} if v]"
                        ),
                        lambda: f"sorted({self.variable('nlist') or 'nums'})",
                        lambda: f"list({self.variable('nlist') or 'nums'})",
                    ]
                )()
            case "tlist":
                return self.random.choice(
                    [
                        lambda: f"[{self.tensor(1)}, {self.tensor(1)}]",
                        lambda: (
                            f"[{self.tensor(1)} * i for i in range({self.integer(0)})]"
                        ),
                        lambda: "[]",
                        lambda: self.variable("tlist") or "parts",
                        lambda: (
                            f"[helper(p, 1) for p in {self.variable('tlist') or 'parts'}]"
                        ),
                        lambda: "list(table.values())",
                    ]
                )()
            case "tdict":
                return self.random.choice(
                    [
                        lambda: f"{{'k': {self.tensor(1)}, mode: {self.tensor(0)}}}",
                        lambda: "dict(table)",
                        lambda: self.variable("tdict") or "table",
                        lambda: (
                            f"{{str(i): {self.tensor(0)} + i for i in range({self.integer(0)})}}"
                        ),
                    ]
                )()
        name = self.fresh("p")
        with self.scope():
            self.env[name] = "mat"
            body = self.tensor(1, "mat")
        default = f", k={self.integer(0)}" if self.chance(0.3) else ""
        return f"(lambda {name}{default}: {body})"

    # ── statements ────────────────────────────────────────────────────────────────

    def body(self, most: int, least: int = 1) -> Body:
        """Returns a few statements."""
        made: list[Statement] = []
        for _ in range(self.random.randint(least, most)):
            if self.left <= 0 and len(made) >= least:
                break
            self.left -= 1
            made += self.statement()
        return tuple(made)

    def block(self, most: int = 3) -> Body:
        """Returns the body of a compound statement."""
        with self.scope():
            return self.body(most)

    def statement(self) -> list[Statement]:
        """Returns one statement (sometimes two that belong together)."""
        kinds: list[tuple[int, Callable[[], list[Statement]]]] = [
            (22, self.assignment),
            (8, self.augmented),
            (9, self.in_place),
            (9, self.container),
            (8, self.effect),
            (5, self.view),
            (3, self.unpacking),
            (3, self.deletion),
        ]
        if self.left > 0:
            kinds += [
                (10, self.if_),
                (7, self.for_),
                (5, self.while_),
                (5, self.try_),
                (4, self.with_),
                (3, self.match_),
                (5, self.nested_function),
            ]
        if self.loops:
            kinds.append((8, self.jump))
        kinds.append((2, self.leave))
        weights = [weight for weight, _ in kinds]
        return self.random.choices([make for _, make in kinds], weights)[0]()

    def assignment(self) -> list[Statement]:
        kind = self.random.choice(KINDS[:-1] + TENSORS * 2)
        value = self.value(kind)
        if self.maybe_unbound and self.chance(0.03):
            value = self.random.choice(self.maybe_unbound)
        name = self.target(kind)
        self.env[name] = kind
        if self.chance(0.06):
            second = self.fresh("w")
            self.env[second] = kind
            return [Line(f"{name} = {second} = {value}")]
        return [Line(f"{name} = {value}")]

    def augmented(self) -> list[Statement]:
        kind = self.one_of("mat", "vec", "int", "float", "str")
        name = self.variable(kind)
        if name is None or name in self.protected:
            return self.assignment()
        if kind in TENSORS:
            return [Line(f"{name} {self.one_of('+=', '*=', '-=')} {self.number(1)}")]
        value = {
            "int": self.integer,
            "float": self.real,
        }.get(kind, lambda depth=0: "'.'")(1)
        return [Line(f"{name} += {value}")]

    def in_place(self) -> list[Statement]:
        kind = self.one_of("mat", "vec")
        name = self.variable(kind) or "a"
        low = self.lower(1, "scal")
        return [
            Line(
                self.one_of(
                    f"{name}.add_({self.number(1)})",
                    f"{name}.mul_({low})",
                    f"{name}[0] = {self.number(1)}",
                    f"{name}[0] += {low}",
                    f"{name}[{name} > 0] = {self.number(0)}",
                    f"{name}.sin_()",
                    f"{name}[-1:] *= {self.number(0)}",
                    f"torch.add({name}, {self.number(0)}, out={name})"
                    if self.chance(0.2)
                    else f"{name}.clamp_(-1, 1)",
                    f"{name}.copy_({name} * 2)",
                )
            )
        ]

    def view(self) -> list[Statement]:
        name = self.fresh("view")
        mat, vec = self.variable("mat") or "a", self.variable("vec") or "b"
        choice = self.random.choice(
            [
                (f"{mat}[0]", "vec"),
                (f"{mat}[1:]", "mat"),
                (f"{mat}.view(-1, 4)", "mat"),
                (f"{mat}.t()", "mat"),
                (f"{vec}[0]", "scal"),
                (f"{vec}.expand_as({mat})", "mat"),
                (f"{vec}.unsqueeze(0)", "mat"),
                (f"{mat}.detach()", "mat"),
                (f"{mat}.double()", "mat"),
                (f"{mat}.long()", "mat"),
                (f"{mat} > 0", "mat"),
                (f"{vec}.to(torch.float32)", "vec"),
            ]
        )
        self.env[name] = choice[1]
        return [Line(f"{name} = {choice[0]}")]

    def container(self) -> list[Statement]:
        numbers = self.variable("nlist") or "nums"
        tensors = self.variable("tlist") or "parts"
        table = self.variable("tdict") or "table"
        return [
            Line(
                self.one_of(
                    f"{numbers}.append({self.number(2)})",
                    f"{tensors}.append({self.tensor(2)})",
                    f"{table}['k'] = {self.tensor(2)}",
                    f"{table}[mode] = {self.tensor(1)}",
                    f"{numbers}.extend([{self.number(1)}, 4])",
                    f"{numbers}.insert(0, {self.integer(0)})",
                    f"{tensors} += [{self.tensor(0)}]",
                    f"{table}.pop('k', None)",
                    f"{table}.update(z={self.tensor(1)})",
                    f"{tensors}.reverse()",
                    f"{tensors}.append(a); a = a + 1",
                    f"{numbers}[0:1] = [{self.number(0)}]",
                    f"{numbers}.append(len({numbers}))",
                    f"{tensors}.clear()",
                )
            )
        ]

    def effect(self) -> list[Statement]:
        return [
            Line(
                self.one_of(
                    f"print({self.integer(1)}, {self.string()})",
                    f"print({self.tensor(1)})",
                    f"print(len({self.variable('nlist', 'tlist') or 'nums'}), 'items')",
                    "st.count += 1",
                    f"st.last = {self.tensor(1)}",
                    f"st.rate = {self.real(1)}",
                    f"st.note({self.integer(1)})",
                    "net.steps += 1",
                    f"net.buffer.add_({self.number(0)})",
                    "bump()",
                    f"GLOBAL.append({self.number(1)})",
                    "net.train(not net.training)",
                    f"st.log.append({self.tensor(1, 'scal')}.item())",
                    f"st.prop = {self.number(0)}",
                    f"keep({self.tensor(1)})",
                    f"keep({self.variable('tlist', 'nlist') or 'nums'})",
                    f"append_to({self.number(1)})",
                    f"assert {self.condition(1)}, {self.string()}",
                    f"State.shared = {self.integer(1)}",
                )
            )
        ]

    def unpacking(self) -> list[Statement]:
        first, second = self.target("int"), self.fresh("u")
        kind = self.one_of("int", "mat")
        if kind == "int":
            text = f"{first}, {second} = {self.integer(1)}, {self.integer(1)}"
            if self.chance(0.3):
                text = f"{first}, *{second}_ = [{self.integer(1)}, *nums]; {second} = 0"
        else:
            first = self.target("mat")
            text = f"{first}, {second} = pair({self.tensor(1, 'mat')}, {self.tensor(1, 'mat')})"
        self.env[first] = self.env[second] = kind
        return [Line(text)]

    def deletion(self) -> list[Statement]:
        names = [n for n in self.env if n not in PARAMETERS and n not in self.protected]
        if not names:
            return self.assignment()
        name = self.random.choice(names)
        self.maybe_unbound.append(name)
        del self.env[name]
        return [Line(f"del {name}")]

    def if_(self) -> list[Statement]:
        clauses = [(f"if {self.condition(2)}:", self.block())]
        if self.chance(0.3):
            clauses.append((f"elif {self.condition(1)}:", self.block()))
        if self.chance(0.5):
            clauses.append(("else:", self.block()))
        return [Compound(tuple(clauses))]

    def _loop_body(self, names: dict[str, str]) -> Body:
        self.loops += 1
        try:
            with self.scope():
                self.env.update(names)
                return self.body(4)
        finally:
            self.loops -= 1

    def for_(self) -> list[Statement]:
        item = self.fresh("i")
        bags = {
            f"range({self.integer(1)})": (item, {item: "int"}),
            "range(2)": (item, {item: "int"}),
            f"range({self.random.choice((3, 3, 4, 9))})": (item, {item: "int"}),
            f"list({self.variable('nlist') or 'nums'})": (item, {item: "float"}),
            f"{self.variable('tlist') or 'parts'}[:3]": (item, {item: "vec"}),
            f"enumerate({self.variable('tlist') or 'parts'}[:2])": (
                f"{item}, {item}_",
                {item: "int", f"{item}_": "vec"},
            ),
            f"zip(nums[:3], {self.variable('nlist') or 'nums'})": (
                f"{item}, {item}_",
                {item: "float", f"{item}_": "float"},
            ),
            "sorted(table.items())": (f"_, {item}", {item: "vec"}),
            f"counting({self.integer(0)})": (item, {item: "int"}),
            f"{self.tensor(1, 'mat')}": (item, {item: "vec"}),
        }
        iterable = self.random.choice(list(bags))
        target, names = bags[iterable]
        clauses = [(f"for {target} in {iterable}:", self._loop_body(names))]
        if self.chance(0.25):
            clauses.append(("else:", self.block(2)))
        return [Compound(tuple(clauses))]

    def while_(self) -> list[Statement]:
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

    def try_(self) -> list[Statement]:
        error = self.one_of("ValueError", "KeyError", "RuntimeError")
        body = self.block()
        if self.chance(0.6):
            condition = self.condition(1)
            body += (
                Compound(
                    (
                        (
                            f"if {condition}:",
                            (Line(f"raise {error}({self.string()})"),),
                        ),
                    )
                ),
            )
        clauses = [("try:", body)]
        caught = self.one_of(error, "Exception", "(ValueError, KeyError)")
        finish = self.chance(0.3)
        if self.chance(0.85) or not finish:
            name = self.fresh("e")
            handler: Body = (Line(f"print(type({name}).__name__, {name})"),)
            clauses.append((f"except {caught} as {name}:", handler + self.block(2)))
            if self.chance(0.3):
                clauses.append(("else:", self.block(2)))
        if finish:
            clauses.append(("finally:", self.block(2)))
        return [Compound(tuple(clauses))]

    def with_(self) -> list[Statement]:
        manager = self.one_of(
            "torch.no_grad()",
            "torch.enable_grad()",
            "Manager('m', st)",
            "Manager('q', st) as st2",
            "Swallow()",
            "contextlib.suppress(ValueError)",
            "torch.set_grad_enabled(flag)",
            "manager(st)",
        )
        with self.scope():
            if "st2" in manager:
                self.env["st2"] = "int"
            body = self.body(3)
        if "Swallow" in manager or "suppress" in manager:
            if self.chance(0.5):
                body += (
                    Compound(
                        (
                            (
                                f"if {self.condition(1)}:",
                                (Line("raise ValueError('in with')"),),
                            ),
                        )
                    ),
                )
        return [Compound(((f"with {manager}:", body),))]

    def match_(self) -> list[Statement]:
        subject, cases = self.random.choice(
            [
                ("mode", ("'x'", "'y' | 'yz'", "_")),
                (self.integer(1), ("0", "1 | 2", "_")),
                ("nums", ("[]", "[first, *_]", "_")),
                ("st", ("State(count=0)", "State(count=1 | 2)", "_")),
            ]
        )
        clauses = [(f"match {subject}:\n    case {cases[0]}:", self.block(2))]
        clauses += [(f"    case {c}:", self.block(2)) for c in cases[1:]]
        # Clauses of a match stand one level deeper than their header.
        body = tuple(
            Compound(((header.split("\n")[-1].strip(), inner),))
            for header, inner in clauses
        )
        return [Compound(((f"match {subject}:", body),))]

    def nested_function(self) -> list[Statement]:
        name, arg = self.fresh("fn"), self.fresh("p")
        captured = [
            n
            for n, k in self.env.items()
            if k in ("int", "float", *TENSORS)
            and n not in PARAMETERS
            and n not in self.protected
        ]
        before: list[Statement] = []
        declared: Body = ()
        if captured and self.chance(0.4) and not self.in_function:
            chosen = self.random.choice(captured)
            declared = (
                Line(f"nonlocal {chosen}"),
                Line(f"{chosen} = {chosen} + {self.one_of('1', 'k')}"),
            )
        loops, self.loops = self.loops, 0
        self.in_function += 1
        env = dict(self.env)
        frozen = set(self.protected)
        self.protected |= set(env)
        self.env[arg], self.env["k"] = "mat", "int"
        body = self.body(3)
        result = self.tensor(2, "mat")
        self.env = env
        self.protected = frozen
        self.in_function -= 1
        self.loops = loops
        self.env[name] = "fn"
        head = f"def {name}({arg}, k={self.integer(0)}):"
        return [
            *before,
            Compound(((head, (*declared, *body, Line(f"return {result}"))),)),
        ]

    def jump(self) -> list[Statement]:
        jump = Line(self.one_of("break", "continue"))
        return [Compound(((f"if {self.condition(1)}:", (jump,)),))]

    def leave(self) -> list[Statement]:
        if self.in_function:
            out = Line(f"return {self.tensor(1, 'mat')}")
        else:
            out = Line(
                self.one_of(
                    f"return {self.tensor(1)}",
                    f"return {self.integer(1)}, {self.tensor(1)}",
                    f"raise ValueError({self.string()})",
                )
            )
        return [Compound(((f"if {self.condition(1)}:", (out,)),))]

    def program(self) -> Body:
        """Returns the statements of the function."""
        made = self.body(10, least=5)
        names = [n for n, k in self.env.items() if k not in ("fn", "net", "state")]
        shown = [n for n in names if n not in PARAMETERS or self.chance(0.4)]
        return (*made, Line(f"return ({', '.join([*shown, 'None'])},)"))
