"""One piece of text as a function of its live variables, and the call that replaces it.

    x = x * k           def body(x, k):
    y = f(x)                x = x * k
                            y = f(x)
                            return x, y

                        x, y = body(x, k)

`srcjit.passes.outline` uses this for the blocks of compound statements, and shows more cases.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import libcst as cst

from srcjit.origin import Origins
from srcjit.passes.blocks import Statement, line, map_blocks
from srcjit.passes.boxes import Boxes, CannotOutline, binds_last
from srcjit.passes.flow import Walk, deleted
from srcjit.passes.namer import Namer
from srcjit.passes.resume import function_of, kept_apart, never_bound, taken_over
from srcjit.passes.scopes import captured, live_in, reads, writes

NEXT, BREAK, RETURN, CONTINUE = range(4)
"""How an outlined body ended."""


@dataclass(frozen=True)
class Around:
    """What is known about the place of a piece of text.

    Attributes:
        bound: Local variables that are certainly bound when it starts.
        maybe: Local variables that may be bound when it starts; it holds `bound`.
        local: All local variables of the function.
        live_after: Names that may be read after it, wherever control goes on: behind it, at
            the target of a `break` or `continue`, in the next iteration.
        live_raised: Names that may be read after an exception has left it.
        global_names: Names that the function declares global.
    """

    bound: frozenset[str]
    maybe: frozenset[str]
    local: frozenset[str]
    live_after: frozenset[str]
    live_raised: frozenset[str] = frozenset()
    global_names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Outlined:
    """A piece of text as a function.

    Attributes:
        function: The definition.
        call: Statements that do what the text did, by calling the function.
        params: The function's parameters.
    """

    function: cst.FunctionDef
    call: list[Statement]
    params: tuple[str, ...]


def outline(
    statements: Sequence[Statement],
    name: str,
    *,
    bound: Collection[str],
    live_after: Collection[str],
    origins: Origins,
    namer: Namer,
    boxed: bool = False,
    maybe: Collection[str] | None = None,
    local: Collection[str] | None = None,
    live_raised: Collection[str] = (),
    global_names: Collection[str] = (),
    loop_body: bool = False,
) -> Outlined:
    """Turns statements into a function of their live variables.

    The function must not share variables with nested functions that bind them anew; see
    `scopes.rebound_after_capture`.

    Args:
        statements: A block of the user's function.
        name: The name of the new function.
        bound: Local variables that are certainly bound when the statements start.
        live_after: Names that may be read afterwards, wherever control goes on.
        origins: Takes the origins of what is made.
        namer: Makes names.
        boxed: All that is live afterwards must be right after an exception, too.
        maybe: Local variables that may be bound when the statements start; by default those
            in `bound` and no others.
        local: The function's local variables; by default those in `bound` or `maybe` and
            those that the statements bind.
        live_raised: Names that may be read after an exception has left the statements.
        global_names: Names that the user's function declares global.
        loop_body: The statements are the body of a loop, so that `continue` is their end.

    Returns:
        The function, and the statements that stand in the place of the old ones. These name
        `Box` and `UNBOUND`, if at all.

    Raises:
        CannotOutline: Some binding cannot be made visible at the moment when it is made.
    """
    around = place(
        statements, bound, maybe, local, live_after, live_raised, global_names
    )
    if boxed:
        around = replace(around, live_raised=around.live_raised | around.live_after)
    return Outliner(list(statements), name, around, origins, namer, loop_body).run()


def place(
    statements: Any,
    bound: Collection[str],
    maybe: Collection[str] | None,
    local: Collection[str] | None,
    live_after: Collection[str],
    live_raised: Collection[str],
    global_names: Collection[str],
) -> Around:
    """Returns what is known about the place of `statements`; see `outline`."""
    possible = frozenset(bound) | frozenset(maybe or ())
    if local is None:
        local = possible | writes(statements)
    names = frozenset(local) - frozenset(global_names)
    return Around(
        frozenset(bound) & names,
        possible & names,
        names,
        frozenset(live_after) & names,
        frozenset(live_raised) & names,
        frozenset(global_names),
    )


@dataclass
class Outliner:
    """Makes one function; the arguments are those of `outline`."""

    statements: list[Statement]
    name: str
    around: Around
    origins: Origins
    namer: Namer
    loop_body: bool
    ways: set[int] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    plain: list[str] = field(default_factory=list)
    boxes: dict[str, str] = field(default_factory=dict)
    returns_only: bool = False

    def run(self) -> Outlined:
        """Returns the function and its call."""
        walk = Walk.over(self.statements, self.around.bound)
        written = (walk.written - walk.declared_global) & self.around.local
        if walk.rebound_by_closures & self.around.local:
            raise CannotOutline(
                "a nested function binds a variable of the function", self.statements[0]
            )
        self._collect_ways(self.statements, in_loop=False)
        goes_on = walk.reachable or (self.loop_body and CONTINUE in self.ways)
        if self.loop_body:
            self.ways.discard(CONTINUE)
        live = self.around.live_after | self.around.live_raised
        boxed = (written & self.around.live_raised) - self._bound_last()
        plain = (written & live) - boxed
        self.returns_only = self.ways == {RETURN} and not goes_on
        if self.returns_only:
            plain = set()
        # NOTE: `return` inside `try … finally` fixes what it returns before `finally` runs.
        boxed |= plain & self.late
        boxed |= {name for name in plain if not self._bound_at_exits(name, walk)}
        order = self._order(walk)
        self.plain = [name for name in order if name in plain - boxed]
        self.boxes = {
            name: self.namer.fresh(f"box_{name}") for name in order if name in boxed
        }
        body = self._body(walk.reachable)
        values = self._parameters(body, order)
        unbound_values = [name for name in values if name not in self.around.bound]
        apart = kept_apart(values, self.statements, self.namer)
        prologue = taken_over(apart)
        prologue += [
            statement
            for name in unbound_values
            for statement in parsed(f"if {name} is {self.unbound}: del {name}\n")
        ]
        given = {*values, *self.boxes}
        prologue += never_bound(self._unbound(body) - given)
        body = [*self._declarations(), *prologue, *body]
        for statement in body:
            self.origins.inherit(statement, self.statements[0])
        params = [apart.get(name, name) for name in values]
        params += self.boxes.values()
        function = function_of(self.name, params, body)
        self.origins.inherit(function, self.statements[0])
        return Outlined(function, self._call(values, written), tuple(params))

    @property
    def unbound(self) -> str:
        """What the text calls `UNBOUND`."""
        return self.namer.fixed("UNBOUND")

    # ── The function ────────────────────────────────────────────────────────────────

    def _collect_ways(self, block: list[Statement], in_loop: bool) -> None:
        for statement in block:
            if isinstance(statement, cst.SimpleStatementLine):
                for small in statement.body:
                    way = _way(small)
                    if way == RETURN or (way != NEXT and not in_loop):
                        self.ways.add(way)
                continue
            outer, self.ways = self.ways, set()

            def look(inner: list[Statement], where: str) -> list[Statement]:
                self._collect_ways(inner, in_loop or where == "loop")
                return inner

            map_blocks(statement, look)
            if isinstance(statement, cst.Try | cst.TryStar) and statement.finalbody:
                self.late |= writes(statement.finalbody) if self.ways else set()
            self.ways |= outer

    def _bound_last(self) -> set[str]:
        """Names that only the last statement binds, behind all that can fail."""
        *others, last = self.statements
        if not isinstance(last, cst.SimpleStatementLine) or len(last.body) != 1:
            return set()
        if not isinstance(last.body[0], cst.Assign | cst.AugAssign) or not binds_last(
            last
        ):
            return set()
        return writes(last) - writes(others)

    def _bound_at_exits(self, name: str, walk: Walk) -> bool:
        exits = walk.bound_at_jumps
        if walk.reachable:
            exits.append(walk.bound)
        return all(name in bound for bound in exits)

    def _order(self, walk: Walk) -> list[str]:
        order = list(dict.fromkeys(walk.occurrences.values()))
        return [name for name in order if name in self.around.local]

    def _body(self, reachable: bool) -> list[Statement]:
        statements = self.statements
        if self.boxes:
            boxes = Boxes(self.boxes, self.namer, self.origins, self.unbound)
            statements = boxes.stored(statements)
        made = self._with_exits(statements, in_loop=False)
        if reachable:
            made = [*made, *self._exit(NEXT, None, None)]
        return made

    def _with_exits(self, block: list[Statement], in_loop: bool) -> list[Statement]:
        """Replaces what leaves the block by returns that say so."""
        made: list[Statement] = []
        for statement in block:
            if not isinstance(statement, cst.SimpleStatementLine):
                made.append(
                    map_blocks(
                        statement,
                        lambda inner, where: self._with_exits(
                            inner, in_loop or where == "loop"
                        ),
                    )
                )
                continue
            last = statement.body[-1] if statement.body else None
            way = _way(last)
            if way == NEXT or (in_loop and way != RETURN):
                made.append(statement)
                continue
            before = statement.body[:-1]
            if before:
                kept = before[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
                made.append(statement.with_changes(body=[*before[:-1], kept]))
            value = last.value if isinstance(last, cst.Return) else None
            made += self._exit(way, value, statement)
        return made

    def _exit(
        self, way: int, value: cst.BaseExpression | None, user: Statement | None
    ) -> list[Statement]:
        if way == CONTINUE and self.loop_body:
            way = NEXT
        if self.returns_only:
            made = cst.Return(value)
        else:
            parts: list[cst.BaseExpression] = []
            if self.ways:
                parts += [cst.Integer(str(way)), value or cst.Name("None")]
            # Nothing reads the variables after `return`.
            left = (cst.Name("None" if way == RETURN else n) for n in self.plain)
            parts += left
            if len(parts) > 1:
                parts = [_parenthesized(part) for part in parts]
                made = cst.Return(
                    cst.Tuple([cst.Element(p) for p in parts], lpar=[], rpar=[])
                )
            elif parts:
                made = cst.Return(parts[0])
            elif user is None:
                return []
            else:
                made = cst.Return()
        statement = cst.SimpleStatementLine([made])
        if user is not None:
            self.origins.inherit(statement, user)
            if isinstance(user, cst.SimpleStatementLine):
                statement = statement.with_changes(
                    leading_lines=user.leading_lines,
                    trailing_whitespace=user.trailing_whitespace,
                )
                self.origins.inherit(statement, user)
        return [statement]

    def _parameters(self, body: list[Statement], order: list[str]) -> list[str]:
        wanted = live_in(body) & self.around.local
        return [name for name in order if name in wanted and name in self.around.maybe]

    def _unbound(self, body: list[Statement]) -> set[str]:
        """Locals that the body reads, or hands to nested functions, and that are not bound."""
        used = (reads(body) | captured(body)) & self.around.local
        return used - self.around.maybe - writes(body)

    def _declarations(self) -> list[Statement]:
        names = sorted(writes(self.statements) & self.around.global_names)
        return [line(f"global {', '.join(names)}")] if names else []

    # ── The call ────────────────────────────────────────────────────────────────────

    def _call(self, values: list[str], written: set[str]) -> list[Statement]:
        made: list[Statement] = []
        given = []
        for name in values:
            text = name
            if name not in self.around.bound:
                text = self.namer.fresh(f"{name}_given")
                made += parsed(
                    f"try:\n    {text} = {name}\n"
                    f"except NameError:\n    {text} = {self.unbound}\n"
                )
            given.append(text)
        lost = set().union(*(deleted(statement) for statement in self.statements))
        restored = ""
        for name, box in self.boxes.items():
            if name in self.around.bound:
                made.append(line(f"{box} = {self.namer.fixed('Box')}({name})"))
            else:
                made.append(line(f"{box} = {self.namer.fixed('Box')}()"))
                if name in self.around.maybe:
                    made += parsed(
                        f"try:\n    {box}.value = {name}\nexcept NameError:\n    pass\n"
                    )
            restored += f"    {name} = {box}.take()\n"
            if name not in self.around.bound - lost:
                restored += f"    if {name} is {self.unbound}: del {name}\n"
        call = f"{self.name}({', '.join([*given, *self.boxes.values()])})"
        how = value = ""
        if self.returns_only:
            text = f"return {call}"
        else:
            targets = []
            if self.ways:
                how, value = self.namer.fresh("how"), self.namer.fresh("value")
                targets += [how, value]
            targets += self.plain
            text = f"{', '.join(targets)} = {call}" if targets else call
        if restored:
            made += parsed(f"try:\n    {text}\nfinally:\n{restored}")
        else:
            made.append(line(text))
        if not self.returns_only:
            for way, then in (
                (BREAK, "break"),
                (RETURN, f"return {value}"),
                (CONTINUE, "continue"),
            ):
                if way in self.ways:
                    made += parsed(f"if {how} == {way}:\n    {then}\n")
        for statement in made:
            self.origins.inherit(statement, self.statements[0])
        return made


def _way(small: cst.CSTNode | None) -> int:
    if isinstance(small, cst.Break):
        return BREAK
    if isinstance(small, cst.Continue):
        return CONTINUE
    return RETURN if isinstance(small, cst.Return) else NEXT


def parsed(text: str) -> list[Statement]:
    """Parses statements that a pass writes."""
    return list(cst.parse_module(text).body)


def _parenthesized(expression: cst.BaseExpression) -> cst.BaseExpression:
    """Returns `expression` as it can stand in a tuple."""
    if expression.lpar or not isinstance(
        expression,
        cst.Tuple | cst.Yield | cst.NamedExpr | cst.Lambda | cst.GeneratorExp,
    ):
        return expression
    return expression.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
