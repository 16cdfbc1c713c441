"""Simple statements on plain Python values, and the choice between all statements."""

from __future__ import annotations

from collections.abc import Callable

from .control import Control
from .tree import Body, Line, Statement

Maker = Callable[[], list[Statement]]


class Simple(Control):
    """Makes simple statements, and picks the statements of a program."""

    def statement_makers(self) -> list[tuple[int, Maker]]:
        """Returns what makes statements, with how often each is picked."""
        makers: list[tuple[int, Maker]] = [
            (22, self.assignment),
            (9, self.augmented),
            (9, self.container),
            (8, self.effect),
            (4, self.unpacking),
            (3, self.deletion),
        ]
        if self.left > 0:
            makers += [
                (10, self.if_),
                (7, self.for_),
                (5, self.while_),
                (6, self.try_),
                (4, self.with_),
                (3, self.match_),
                (5, self.nested_function),
                (2, self.generator_function),
                (2, self.closures),
                (2, self.nested_class),
                (1, self.changing),
                (1, self.chained),
                (1, self.grouped),
            ]
        if self.loops:
            makers.append((8, self.jump))
        if self.in_handler:
            makers.append((4, self.again))
        if self.in_generator:
            makers.append((15, self.yield_))
        makers.append((2, self.leave))
        return makers

    def statement(self) -> list[Statement]:
        """Returns one statement (sometimes several that belong together)."""
        makers = self.statement_makers()
        weights = [weight for weight, _ in makers]
        return self.random.choices([make for _, make in makers], weights)[0]()

    def body(self, most: int, least: int = 1) -> Body:
        """Returns a few statements."""
        made: list[Statement] = []
        for _ in range(self.random.randint(least, most)):
            if self.left <= 0 and len(made) >= least:
                break
            self.left -= 1
            made += self.statement()
        return tuple(made)

    def program(self) -> Body:
        """Returns the statements of the function."""
        made: Body = ()
        while self.left > 0:
            made += self.body(10)
        names = [
            n for n, k in self.env.items() if k not in ("fn", "net", "state", "object")
        ]
        shown = [n for n in names if n not in self.parameters or self.chance(0.4)]
        return (*made, Line(f"return ({', '.join([*shown, 'None'])},)"))

    # ── names ─────────────────────────────────────────────────────────────────────

    def assignment(self) -> list[Statement]:
        """Binds a name, or two."""
        kind = self.random.choice(self.kinds)
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
        """`+=` and the like, on a name, an attribute or an item."""
        kind = self.one_of("int", "int", "float", "str", "nlist", "place")
        if kind == "place":
            return [Line(self._augmented_place())]
        name = self.assignable(kind)
        if name is None:
            return self.assignment()
        match kind:
            case "int":
                text = f"{self.one_of('+=', '-=', '*=', '%=', '//=', '|=')} {self.integer(1)}"
            case "float":
                text = f"{self.one_of('+=', '*=', '-=')} {self.real(1)}"
            case "str":
                text = "+= '.'"
            case _:
                text = f"+= [{self.number(1)}]"
        return [Line(f"{name} {text}")]

    def _augmented_place(self) -> str:
        return self.one_of(
            f"st.count += {self.integer(1)}",
            f"st.rate *= {self.real(0)}",
            f"{self.numbers()}[0] += {self.integer(1)}",
            f"{self.numbers()}[{self.integer(0)}] -= {self.integer(0)}",
            f"{self.scores()}['k'] += {self.integer(1)}",
            f"st.log += [{self.integer(0)}]",
            f"State.shared += {self.integer(0)}",
            f"{self.numbers()}[:] += [{self.integer(0)}]"
            if self.chance(0.2)
            else "st.prop += 1",
        )

    def unpacking(self) -> list[Statement]:
        """Binds several names to the items of something."""
        first, second = self.target("int"), self.fresh("u")
        text = self.one_of(
            f"{first}, {second} = {self.integer(1)}, {self.integer(1)}",
            f"{first}, *_, {second} = [{self.integer(1)}, *nums, 2]",
            f"({first}, [{second}, *_]) = {self.integer(0)}, [{self.integer(1)}, 2]",
            f"{first}, {second} = divmod({self.integer(1)}, 3)",
            f"{first}, {second} = Pair({self.integer(0)}, {self.integer(1)})",
            f"{first}, st.count, {second} = range({self.one_of('3', '3', '4')})",
            f"*_, {first}, {second} = {self.numbers()}",
        )
        self.env[first] = self.env[second] = "int"
        return [Line(text)]

    def deletion(self) -> list[Statement]:
        """Deletes a name, an item, a slice or an attribute."""
        names = [
            n for n in self.env if n not in self.parameters and n not in self.protected
        ]
        if not names or self.chance(0.3):
            return [
                Line(
                    self.one_of(
                        f"del {self.numbers()}[{self.one_of('0', '-1', '1:', ':n')}]",
                        f"del {self.scores()}[{self.one_of('mode', repr('k'))}]",
                        "del st.extra",
                        f"del {self.numbers()}[-1:], {self.numbers()}[5:]",
                    )
                )
            ]
        name = self.random.choice(names)
        self.maybe_unbound.append(name)
        del self.env[name]
        return [Line(f"del {name}")]

    # ── effects ───────────────────────────────────────────────────────────────────

    def container(self) -> list[Statement]:
        """Changes a list, dict or set."""
        return [Line(self.made(self.container_makers()))]

    def container_makers(self) -> list[Callable[[], str]]:
        """Returns what makes statements that change containers."""
        nums, scores = self.numbers(), self.scores()
        bag = self.variable("pset")
        makers = [
            lambda: f"{nums}.append({self.number(2)})",
            lambda: f"{nums}.extend([{self.number(1)}, 4])",
            lambda: f"{nums}.insert(0, {self.integer(0)})",
            lambda: f"{nums}[0:1] = [{self.number(0)}]",
            lambda: f"{nums}[{self.one_of('::2', '1:', ':')}] = [{self.integer(0)}, 1]",
            lambda: f"{nums}.append(len({nums}))",
            lambda: f"{nums}.{self.one_of('reverse', 'sort', 'clear', 'pop')}()",
            lambda: f"{nums}.sort(key=lambda v: -v)",
            lambda: f"{nums}.remove({self.integer(0)})",
            lambda: f"{scores}['k'] = {self.integer(2)}",
            lambda: f"{scores}[mode] = {self.integer(1)}",
            lambda: f"{scores}.pop('k', None)",
            lambda: f"{scores}.pop(mode)",
            lambda: f"{scores}.update(z={self.integer(1)})",
            lambda: f"{scores}.setdefault(mode, {self.integer(0)})",
            lambda: f"st.table[{self.integer(0)}].append({self.integer(1)})",
        ]
        if bag:
            makers.append(
                lambda: f"{bag}.{self.one_of('add', 'discard')}({self.integer(1)})"
            )
        return makers

    def effect(self) -> list[Statement]:
        """Changes something that others see."""
        return [Line(self.made(self.effect_makers()))]

    def effect_makers(self) -> list[Callable[[], str]]:
        """Returns what makes statements with effects."""
        return [
            lambda: f"print({self.integer(1)}, {self.string()})",
            lambda: f"print({self.numbers()}, sep='+')",
            lambda: f"print({self.string()}, end=';', file=st.out)",
            lambda: f"print(len({self.numbers()}), 'items')",
            lambda: "st.count += 1",
            lambda: f"st.rate = {self.real(1)}",
            lambda: f"st.extra = {self.integer(1)}",
            lambda: f"st.note({self.integer(1)})",
            lambda: f"st.table[{self.integer(0)}] = [{self.integer(1)}]",
            lambda: "bump()",
            lambda: f"GLOBAL.append({self.number(1)})",
            lambda: f"st.prop = {self.number(0)}",
            lambda: f"keep({self.numbers()})",
            lambda: f"append_to({self.number(1)})",
            lambda: f"assert {self.condition(1)}, {self.string()}",
            lambda: f"State.shared = {self.integer(1)}",
            lambda: f"setattr(st, 'extra', {self.integer(0)})",
            lambda: f"{self.variable('point') or 'Point(1, 2)'}.x = {self.integer(1)}",
            lambda: f"GLOBAL.append(memo({self.integer(0)}))",
            lambda: f"print([*map(lambda v: v, {self.numbers()})][:3], {self.real(1)})",
        ]
