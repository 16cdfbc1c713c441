r"""The statement lists inside compound statements: taking them out and putting others in.

>>> loop = cst.parse_statement("for i in x: f(i); g(i)\n")
>>> made = map_blocks(loop, lambda block, where: [*block, *block])
>>> print(cst.Module([made]).code, end="")
for i in x:
    f(i); g(i)
    f(i); g(i)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import libcst as cst

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
Change = Callable[[list[Statement], str], list[Statement]]


def statements_of(suite: cst.BaseSuite) -> list[Statement]:
    """Returns the statements of a block, also of one that stands behind the colon."""
    if isinstance(suite, cst.SimpleStatementSuite):
        return [cst.SimpleStatementLine(suite.body)] if suite.body else []
    return list(suite.body)  # type: ignore[arg-type]


def suite_of(statements: Iterable[Statement]) -> cst.IndentedBlock:
    """Returns a block of `statements`; an empty one holds `pass`."""
    return cst.IndentedBlock(list(statements) or [line("pass")])


def line(text: str) -> cst.SimpleStatementLine:
    """Parses one simple statement that a pass writes."""
    made = cst.parse_statement(text + "\n")
    assert isinstance(made, cst.SimpleStatementLine)
    return made


def map_blocks(statement: Statement, change: Change) -> Statement:
    """Returns `statement` with each of its blocks changed; itself if none is.

    Args:
        statement: Any statement. A nested function or class has no blocks of this function.
        change: Takes the statements of a block and where they stand: `if`, `else` (of an
            `if`), `loop`, `loop_else`, `try`, `handler`, `try_else`, `finally`, `with` or
            `case`. It returns the same list for no change.
    """
    if isinstance(statement, cst.If):
        return _map_if(statement, change)
    if isinstance(statement, cst.For | cst.While):
        return _with(  # type: ignore[no-any-return]
            statement,
            body=_map_suite(statement.body, change, "loop"),
            orelse=_map_else(statement.orelse, change, "loop_else"),
        )
    if isinstance(statement, cst.Try | cst.TryStar):
        handlers: list[Any] = [
            _with(handler, body=_map_suite(handler.body, change, "handler"))
            for handler in statement.handlers
        ]
        return _with(  # type: ignore[no-any-return]
            statement,
            body=_map_suite(statement.body, change, "try"),
            handlers=_same_list(statement.handlers, handlers),
            orelse=_map_else(statement.orelse, change, "try_else"),
            finalbody=_map_else(statement.finalbody, change, "finally"),
        )
    if isinstance(statement, cst.With):
        body = _map_suite(statement.body, change, "with")
        return _with(statement, body=body)  # type: ignore[no-any-return]
    if isinstance(statement, cst.Match):
        cases: list[Any] = [
            _with(case, body=_map_suite(case.body, change, "case"))
            for case in statement.cases
        ]
        cases = list(_same_list(statement.cases, cases))
        return _with(statement, cases=cases)  # type: ignore[no-any-return]
    return statement


def _map_if(statement: cst.If, change: Change) -> cst.If:
    orelse = statement.orelse
    if isinstance(orelse, cst.If):
        orelse = _map_if(orelse, change)
    else:
        orelse = _map_else(orelse, change, "else")
    made: cst.If = _with(
        statement, body=_map_suite(statement.body, change, "if"), orelse=orelse
    )
    return made


def _map_suite(suite: cst.BaseSuite, change: Change, where: str) -> cst.BaseSuite:
    old = statements_of(suite)
    new = change(old, where)
    if len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True)):
        return suite
    if isinstance(suite, cst.IndentedBlock):
        return suite.with_changes(body=new or [line("pass")])
    return suite_of(new)


def _map_else(part: Any, change: Change, where: str) -> Any:
    return part and _with(part, body=_map_suite(part.body, change, where))


def _same_list(old: Sequence[Any], new: Sequence[Any]) -> Sequence[Any]:
    return old if all(a is b for a, b in zip(old, new, strict=True)) else new


def _with(node: Any, **changes: Any) -> Any:
    if all(getattr(node, name) is new for name, new in changes.items()):
        return node
    return node.with_changes(**changes)
