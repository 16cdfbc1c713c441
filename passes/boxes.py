r"""Bindings that leave an outlined body at once, also when an exception ends it.

    y = f(x)            ->    y = f(x)
    for i in y:               box_y.value = y
        z[i] = y              for i in y:
    del y                         z[i] = y
                              del y
                              box_y.value = UNBOUND

Behind each statement that binds a boxed name stands its store to the box. A statement that
could fail after it has bound the name is taken apart first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

from srcjit.nodes import parts
from srcjit.origin import Origins
from srcjit.passes.blocks import Statement, line, map_blocks, statements_of, suite_of
from srcjit.passes.namer import Namer
from srcjit.passes.normalize import normalize
from srcjit.passes.scopes import reads, writes


class CannotOutline(Exception):
    """A statement that no function of its own can do exactly.

    Attributes:
        reason: One lower-case sentence.
        node: What stands in the way.
    """

    def __init__(self, reason: str, node: cst.CSTNode) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node


class Boxes:
    """Adds the stores to boxes.

    Args:
        names: Boxes by the names whose values they hold.
        namer: Makes names of intermediate values.
        origins: Takes the origins of what is made.
        unbound: What a box holds when the name is not bound.
    """

    def __init__(
        self, names: Mapping[str, str], namer: Namer, origins: Origins, unbound: str
    ) -> None:
        self.names = names
        self.namer = namer
        self.origins = origins
        self.unbound = unbound

    def stored(self, statements: list[Statement]) -> list[Statement]:
        """Returns `statements` with a store to the box behind each binding of a name."""
        made: list[Statement] = []
        for statement in statements:
            if not writes(statement) & self.names.keys():
                made.append(statement)
            elif isinstance(statement, cst.SimpleStatementLine):
                made += self._line(statement)
            elif isinstance(statement, cst.FunctionDef | cst.ClassDef):
                made += [statement, *self._stores(statement, writes(statement))]
            else:
                made += self._compound(statement)
        return made

    def _stores(self, user: cst.CSTNode, names: set[str]) -> list[Statement]:
        made: list[Statement] = []
        for name in sorted(names & self.names.keys()):
            value = self.unbound if isinstance(user, cst.Del) else name
            made.append(line(f"{self.names[name]}.value = {value}"))
            self.origins.inherit(made[-1], user)
        return made

    # ── Simple statements ───────────────────────────────────────────────────────────

    def _line(self, statement: cst.SimpleStatementLine) -> list[Statement]:
        if len(statement.body) > 1:
            made: list[Statement] = []
            for small in statement.body:
                alone = cst.SimpleStatementLine(
                    [small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]
                )
                self.origins.inherit(alone, small)
                made.append(alone)
            return self.stored(made)
        small = statement.body[0]
        if isinstance(small, cst.Import | cst.ImportFrom):
            return self._import(statement, small)
        if isinstance(small, cst.AnnAssign) and small.value is None:
            return [statement]
        if isinstance(small, cst.Del) and not isinstance(small.target, cst.Name):
            return self.stored(self._separate_deletions(small))
        if not binds_last(statement):
            return self.stored(self._taken_apart(statement))
        return [statement, *self._stores(small, writes(statement))]

    def _walrus(self, piece: cst.CSTNode) -> set[str]:
        """Boxed names that `:=` binds in an expression."""
        return writes(piece) & self.names.keys()

    def _taken_apart(self, statement: Statement) -> list[Statement]:
        if isinstance(statement, cst.SimpleStatementLine):
            (small,) = statement.body
            if isinstance(small, cst.Assert) and small.msg and self._walrus(small.msg):
                # The message stays where it is: it is evaluated only after a failure.
                raise CannotOutline("the message of an `assert` binds", statement)
        made = normalize(statement, self.namer, self.origins, unstable=reads(statement))
        if len(made) > 1 or made[0] is not statement:
            return made
        if isinstance(statement, cst.SimpleStatementLine):
            small = statement.body[0]
            if isinstance(small, cst.Assign) and isinstance(
                small.targets[0].target, cst.Tuple | cst.List
            ):
                return self._nested_unpacking(small, small.targets[0].target)
        raise CannotOutline("an expression binds a variable in the middle", statement)

    def _nested_unpacking(
        self, small: cst.Assign, target: cst.Tuple | cst.List
    ) -> list[Statement]:
        elements = []
        later: list[Statement] = []
        for element in target.elements:
            if _is_name(element.value):
                elements.append(element)
                continue
            name = self.namer.fresh("items")
            elements.append(element.with_changes(value=cst.Name(name)))
            stored: Any = element.value
            inner = cst.Assign([cst.AssignTarget(stored)], cst.Name(name))
            later.append(cst.SimpleStatementLine([inner]))
        first = cst.Assign(
            [cst.AssignTarget(target.with_changes(elements=elements))], small.value
        )
        made: list[Statement] = [cst.SimpleStatementLine([first]), *later]
        for statement in made:
            self.origins.inherit(statement, small)
        return made

    def _separate_deletions(self, small: cst.Del) -> list[Statement]:
        if not isinstance(small.target, cst.Tuple | cst.List):
            return self._taken_apart(cst.SimpleStatementLine([small]))
        made: list[Statement] = []
        for element in small.target.elements:
            target: Any = element.value
            made.append(cst.SimpleStatementLine([cst.Del(target)]))
            self.origins.inherit(made[-1], small)
        return made

    def _import(
        self, statement: cst.SimpleStatementLine, small: cst.Import | cst.ImportFrom
    ) -> list[Statement]:
        if isinstance(small.names, cst.ImportStar) or len(small.names) == 1:
            return [statement, *self._stores(small, writes(statement))]
        made: list[Statement] = []
        for alias in small.names:
            one = small.with_changes(
                names=[alias.with_changes(comma=cst.MaybeSentinel.DEFAULT)]
            )
            made.append(cst.SimpleStatementLine([one]))
            self.origins.inherit(made[-1], small)
        return self.stored(made)

    # ── Compound statements ─────────────────────────────────────────────────────────

    def _compound(self, statement: Any) -> list[Statement]:
        if isinstance(statement, cst.If):
            # An `elif` is an `if` of its own from here on.
            statement = _without_elif(statement)
        if isinstance(statement, cst.If | cst.While) and self._walrus(statement.test):
            return self.stored(self._taken_apart(statement))
        if isinstance(statement, cst.For):
            return [self._for(statement)]
        if isinstance(statement, cst.With):
            return [self._with(statement)]
        if isinstance(statement, cst.Match):
            return self._match(statement)
        if isinstance(statement, cst.Try | cst.TryStar):
            return [self._try(statement)]
        return [self._with_stores(statement)]

    def _with_stores(self, statement: Any, where: str = "", first: Any = ()) -> Any:
        """Stores in all blocks of a statement; `first` come first in the block `where`."""

        def change(block: list[Statement], here: str) -> list[Statement]:
            return [*(first if here == where else ()), *self.stored(block)]

        return map_blocks(statement, change)

    def _for(self, statement: cst.For) -> Any:
        if self._walrus(statement.iter):
            raise CannotOutline("the iterable of a loop binds a variable", statement)
        target = statement.target
        bound = _bound_by(target)
        if not bound & self.names.keys():
            return self._with_stores(statement)
        if isinstance(target, cst.Name):
            return self._with_stores(statement, "loop", self._stores(target, bound))
        item, taken = self._taken(target, "item")
        statement = statement.with_changes(target=item)
        return self._with_stores(statement, "loop", self.stored([taken]))

    def _taken(self, target: Any, word: str) -> tuple[cst.Name, Statement]:
        """Returns a simple target, and the assignment from it to `target`."""
        item = self.namer.fresh(word)
        assignment = cst.Assign([cst.AssignTarget(target)], cst.Name(item))
        taken = cst.SimpleStatementLine([assignment])
        self.origins.inherit(taken, target)
        return cst.Name(item), taken

    def _with(self, statement: cst.With) -> Any:
        if any(self._walrus(item.item) for item in statement.items):
            raise CannotOutline("the head of a `with` binds a variable", statement)
        first, *others = statement.items
        if others:
            plain = {
                "lpar": cst.MaybeSentinel.DEFAULT,
                "rpar": cst.MaybeSentinel.DEFAULT,
            }
            inner = statement.with_changes(items=others, leading_lines=(), **plain)
            item = first.with_changes(comma=cst.MaybeSentinel.DEFAULT)
            statement = statement.with_changes(
                items=[item], body=suite_of([inner]), **plain
            )
            self.origins.inherit(inner, first)
            self.origins.inherit(statement, first)
            return self._with(statement)
        if first.asname is None or not _bound_by(first.asname.name) & self.names.keys():
            return self._with_stores(statement)
        target = first.asname.name
        if isinstance(target, cst.Name):
            stores = self._stores(target, _bound_by(target))
            return self._with_stores(statement, "with", stores)
        name, taken = self._taken(target, "entered")
        asname = first.asname.with_changes(name=name)
        statement = statement.with_changes(items=[first.with_changes(asname=asname)])
        return self._with_stores(statement, "with", self.stored([taken]))

    def _match(self, statement: cst.Match) -> list[Statement]:
        if self._walrus(statement.subject):
            return self.stored(self._taken_apart(statement))
        cases = []
        for case in statement.cases:
            bound = writes(case.pattern)
            if case.guard is not None:
                bound |= writes(case.guard)
                if bound & self.names.keys():
                    raise CannotOutline("a guarded `case` binds a variable", case)
            stores = self._stores(case.pattern, bound)
            body = [*stores, *self.stored(statements_of(case.body))]
            cases.append(case.with_changes(body=suite_of(body)))
        return [statement.with_changes(cases=cases)]

    def _try(self, statement: cst.Try | cst.TryStar) -> Any:
        made = self._with_stores(statement)
        handlers = []
        for handler in made.handlers:
            target = handler.name and handler.name.name
            if not isinstance(target, cst.Name) or target.value not in self.names:
                handlers.append(handler)
                continue
            # Python unbinds the name however the handler ends.
            box = self.names[target.value]
            ended = cst.Finally(suite_of([line(f"{box}.value = {self.unbound}")]))
            inner = cst.Try(suite_of(statements_of(handler.body)), finalbody=ended)
            store = line(f"{box}.value = {target.value}")
            for new in (store, inner):
                self.origins.inherit(new, handler)
            handlers.append(handler.with_changes(body=suite_of([store, inner])))
        return made.with_changes(handlers=handlers)


def binds_last(statement: cst.SimpleStatementLine) -> bool:
    """Tells whether nothing of a simple statement can fail once it has bound a name."""
    (small,) = statement.body
    if isinstance(small, cst.Assign):
        if len(small.targets) > 1:
            return False
        target = small.targets[0].target
        flat = isinstance(target, cst.Tuple | cst.List) and all(
            _is_name(element.value) for element in target.elements
        )
        if not flat and not isinstance(target, cst.Name):
            return False
    elif isinstance(small, cst.AugAssign | cst.AnnAssign | cst.Del):
        if not isinstance(small.target, cst.Name):
            return False
    expressions = [p for p in parts(small) if isinstance(p, cst.BaseExpression)]
    return not any(map(writes, expressions))


def _is_name(target: cst.BaseExpression) -> bool:
    return isinstance(target, cst.Name)


def _bound_by(target: Any) -> set[str]:
    """Names that an assignment to `target` binds."""
    return writes(cst.Assign([cst.AssignTarget(target)], cst.Ellipsis()))


def _without_elif(statement: cst.If) -> cst.If:
    if isinstance(statement.orelse, cst.If):
        return statement.with_changes(orelse=cst.Else(suite_of([statement.orelse])))
    return statement
