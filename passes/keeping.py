r"""Variables that live until the end of a call although a piece of the function bound them.

    with open(path) as f:                      kept = Kept()
        lock = acquire()             ->        with open(path) as f:
        y = read(f)                                lock = acquire()
    return y.sin()                                 kept.lock = lock
                                                   y = read(f)
                                               return y.sin()

The body of a statement that Python runs becomes a function (`srcjit.passes.outline`), and what
that function binds would die with it. In Python a variable holds its object until it is bound
anew or deleted, or until the call is over: finalizers and weak references tell. So what nothing
behind the body reads is given to an object that lives as long as the call.

>>> block = list(
...     cst.parse_module('''
... a = f()
... for b in a:
...     c, d = b
...     del c
... ''').body
... )
>>> print(
...     cst.Module(stored(block, dict.fromkeys("abc", "kept"), Origins())).code, end=""
... )
<BLANKLINE>
a = f()
kept.a = a
for b in a:
    kept.b = b
    c, d = b
    kept.c = c
    del c
    kept.c = None
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import libcst as cst

from srcjit.origin import Origins
from srcjit.passes.blocks import (
    Statement,
    line,
    map_blocks,
    statements_of,
    suite_of,
)
from srcjit.passes.scopes import definitely_bound, live_in, writes
from srcjit.passes.unseen import Unseen


class Kept:
    """Holds objects that variables of a call are bound to, by the names of the variables."""

    def __repr__(self) -> str:
        return f"Kept({', '.join(vars(self))})"


def worth_keeping(statement: Any, live_after: set[str], unseen: Unseen) -> set[str]:
    """Returns variables that blocks of a statement bind and nothing behind the blocks reads.

    Args:
        statement: A loop, `with` or `try`.
        live_after: Names that may be read behind it.
        unseen: Knows what nobody could tell to be gone.
    """
    bound = writes(_blocks_of(statement))
    live = set(live_after)
    if isinstance(statement, cst.For | cst.While):
        live |= live_in(statement)
    if isinstance(statement, cst.Try | cst.TryStar):
        # What `else` alone reads is lost where the body raises.
        for handler in statement.handlers:
            live |= live_in(handler)
        if statement.finalbody is not None:
            live |= live_in(statement.finalbody)
    dropped = bound - live
    return dropped - unseen.among(dropped, statement) if dropped else dropped


def kept_in(
    statement: Any, names: Mapping[str, str], origins: Origins
) -> cst.BaseCompoundStatement:
    """Returns a statement whose blocks store what they bind; its head is left alone."""
    made: Any = map_blocks(
        statement, lambda block, where: stored(block, names, origins)
    )
    origins.inherit(made, statement)
    return made  # type: ignore[no-any-return]


def stored(
    statements: Sequence[Statement], names: Mapping[str, str], origins: Origins
) -> list[Statement]:
    """Returns statements that hand what they bind on to what keeps it.

    Args:
        statements: Statements of a function.
        names: What keeps the object of a variable, by the variable.
        origins: Takes the origins of what is made.
    """
    made: list[Statement] = []
    for number, statement in enumerate(statements):
        touched = writes(statement) & names.keys()
        if not touched:
            made.append(statement)
            continue
        following = statements[number + 1 : number + 1 + 2 * len(touched)]
        there = {store_of(later) for later in following}
        if isinstance(statement, cst.SimpleStatementLine):
            after = _bound_by_line(statement, touched)
            made.append(statement)
        elif isinstance(statement, cst.FunctionDef | cst.ClassDef):
            after = dict.fromkeys(sorted(touched), True)
            made.append(statement)
        else:
            after = _bound_by_test(statement, touched)
            made.append(_compound(statement, names, origins))
        made += [
            _store(name, bound, names, origins, statement)
            for name, bound in after.items()
            if (names[name], name) not in there
        ]
    return made


def store_of(statement: Any) -> tuple[str, str] | None:
    """Returns the keeper and the variable of `kept.x = x` or `kept.x = None`, or None."""
    match statement:
        case cst.SimpleStatementLine(body=[cst.Assign() as small]):
            return store_of(small)
        case cst.Assign(
            targets=[
                cst.AssignTarget(
                    target=cst.Attribute(
                        value=cst.Name(value=keeper), attr=cst.Name(value=name)
                    )
                )
            ],
            value=cst.Name(value=value),
        ) if value in (name, "None"):
            return keeper, name
    return None


def store_text(keeper: str, name: str, value: str) -> str:
    """The statement that has `keeper` hold what the variable `name` is bound to."""
    return f"{keeper}.{name} = {value}"


def _store(
    name: str,
    bound: bool,
    names: Mapping[str, str],
    origins: Origins,
    user: cst.CSTNode,
) -> Statement:
    made = line(store_text(names[name], name, name if bound else "None"))
    for part in (made, made.body[0]):
        origins.inherit(part, user)
    return made


def _bound_by_line(
    statement: cst.SimpleStatementLine, touched: set[str]
) -> dict[str, bool]:
    """Names that a line has certainly bound at its end, or (False) certainly deleted."""
    found: dict[str, bool] = {}
    for small in statement.body:
        if isinstance(small, cst.Return | cst.Raise):
            return {}
        if isinstance(small, cst.Del):
            found |= dict.fromkeys(sorted(writes(small) & touched), False)
        else:
            found |= dict.fromkeys(sorted(definitely_bound([small]) & touched), True)
    return found


def _bound_by_test(statement: Any, touched: set[str]) -> dict[str, bool]:
    """Names that the test of an `if` binds by `:=`."""
    if not isinstance(statement, cst.If):
        return {}
    test = cst.SimpleStatementLine([cst.Expr(statement.test)])
    return dict.fromkeys(sorted(definitely_bound([test]) & touched), True)


def _compound(
    statement: Any, names: Mapping[str, str], origins: Origins
) -> cst.BaseCompoundStatement:
    """Stores in the blocks of a statement, and at their starts what its head binds."""
    if isinstance(statement, cst.Match):
        cases = []
        for case in statement.cases:
            first = _first(case.pattern, names, origins, case)
            body = stored(statements_of(case.body), names, origins)
            cases.append(case.with_changes(body=suite_of([*first, *body])))
        made: Any = statement.with_changes(cases=cases)
    else:
        where, head = _head(statement)
        first = _first(head, names, origins, statement) if head is not None else []
        made = map_blocks(
            statement,
            lambda block, here: [
                *(first if here == where else ()),
                *stored(block, names, origins),
            ],
        )
    if isinstance(statement, cst.Try | cst.TryStar):
        handlers = []
        for handler in made.handlers:
            name = handler.name.name.value if handler.name is not None else ""
            if name in names:
                # The name is bound anew there, and to nothing at the end.
                first = [_store(name, False, names, origins, handler)]
                body = [*first, *statements_of(handler.body)]
                handler = handler.with_changes(body=suite_of(body))
            handlers.append(handler)
        made = made.with_changes(handlers=handlers)
    origins.inherit(made, statement)
    return made  # type: ignore[no-any-return]


def _head(statement: Any) -> tuple[str, cst.CSTNode | None]:
    """The block that begins where the head of a statement has bound names, and what does."""
    match statement:
        case cst.For():
            target = cst.AssignTarget(statement.target)
            return "loop", cst.Assign([target], cst.Ellipsis())
        case cst.While():
            return "loop", cst.Expr(statement.test)
        case cst.If():
            return "if", cst.Expr(statement.test)
        case cst.With():
            targets: list[Any] = [
                cst.AssignTarget(item.asname.name)
                for item in statement.items
                if item.asname is not None
            ]
            if targets:
                return "with", cst.Assign(targets, cst.Ellipsis())
    return "", None


def _first(
    head: Any, names: Mapping[str, str], origins: Origins, user: cst.CSTNode
) -> list[Statement]:
    if isinstance(head, cst.BaseSmallStatement):
        bound = definitely_bound([cst.SimpleStatementLine([head])])
    else:
        bound = writes(head)
    return [
        _store(name, True, names, origins, user)
        for name in sorted(bound & names.keys())
    ]


def _blocks_of(statement: Any) -> list[Statement]:
    found: list[Statement] = []

    def look(block: list[Statement], where: str) -> list[Statement]:
        found.extend(block)
        return block

    map_blocks(statement, look)
    return found
