r"""Writes a comprehension as a loop, so that a graph break in it splits only one iteration.

>>> from srcjit.origin import Origins
>>> from srcjit.passes.namer import Namer
>>> statement = cst.parse_statement("ys = [f(x) for x in xs if x]\n")
>>> made = as_loop(statement, Namer({"ys", "f", "x", "xs"}), Origins())
>>> print(cst.Module(made).code, end="")
ys_1 = []
for x_1 in xs:
    if x_1:
        ys_1.append(f(x_1))
ys = ys_1

The targets get names of their own, since they are not visible outside of the comprehension.
"""

from __future__ import annotations

from typing import Any

import libcst as cst

from srcjit.origin import Origins

from .namer import Namer
from .scopes import captured, rename, writes

_KINDS = (cst.ListComp, cst.SetComp, cst.DictComp)


def as_loop(statement: Any, namer: Namer, origins: Origins) -> list[Any] | None:
    """Returns `name = <comprehension>` (or `return`) as a loop; None for other statements.

    A comprehension whose parts capture its targets in a nested function is left alone: each
    loop iteration would share one variable.
    """
    small = (
        statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    )
    if not isinstance(small, (cst.Assign, cst.Return, cst.Expr)):
        return None
    value = small.value
    if not isinstance(value, _KINDS) or _is_async(value):
        return None
    targets = _targets(value)
    if captured(cst.SimpleStatementLine([cst.Expr(_parts(value))])) & targets:
        return None
    hint = "items"
    if isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Name):
        hint = small.targets[0].target.value
    name = namer.fresh(hint)
    mapping = {target: namer.fresh(target) for target in sorted(targets)}
    first = _empty(value)
    body: list[Any] = [
        _renamed(_line(part), mapping, origins) for part in _add(value, name, namer)
    ]
    for clause in reversed(_clauses(value)):
        for condition in reversed(clause.ifs):
            test = _renamed_expression(condition.test, mapping, origins)
            body = [cst.If(test, cst.IndentedBlock(body))]
        outermost = clause is value.for_in
        iterable = (
            clause.iter
            if outermost
            else _renamed_expression(clause.iter, mapping, origins)
        )
        target = _renamed_target(clause.target, mapping, origins)
        body = [cst.For(target, iterable, cst.IndentedBlock(body))]
    made = [
        _line(cst.Assign([cst.AssignTarget(cst.Name(name))], first)),
        *body,
        _line(small.with_changes(value=cst.Name(name))),
    ]
    for one in made:
        origins.inherit(one, statement)
    return made


def _line(small: Any) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([small])


def _clauses(value: Any) -> list[cst.CompFor]:
    found = []
    clause = value.for_in
    while clause is not None:
        found.append(clause)
        clause = clause.inner_for_in
    return found


def _is_async(value: Any) -> bool:
    return any(clause.asynchronous is not None for clause in _clauses(value))


def _targets(value: Any) -> set[str]:
    names: set[str] = set()
    for clause in _clauses(value):
        names |= writes(
            _line(cst.Assign([cst.AssignTarget(clause.target)], cst.Ellipsis()))
        )
    return names


def _parts(value: Any) -> cst.BaseExpression:
    """The expressions evaluated inside, as one tuple."""
    parts = [value.key, value.value] if isinstance(value, cst.DictComp) else [value.elt]
    for clause in _clauses(value):
        parts += [condition.test for condition in clause.ifs]
        if clause is not value.for_in:
            parts.append(clause.iter)
    return cst.Tuple([cst.Element(part) for part in parts])


def _empty(value: Any) -> cst.BaseExpression:
    if isinstance(value, cst.ListComp):
        return cst.List([])
    if isinstance(value, cst.DictComp):
        return cst.Dict([])
    return cst.parse_expression("{*()}")  # `set` may be another object


def _add(value: Any, name: str, namer: Namer) -> list[Any]:
    if isinstance(value, cst.DictComp):
        # The key comes first here, and the value first in an assignment.
        key = cst.Name(namer.fresh("key"))
        target = cst.Subscript(cst.Name(name), [cst.SubscriptElement(cst.Index(key))])
        return [
            cst.Assign([cst.AssignTarget(key)], value.key.deep_clone()),
            cst.Assign([cst.AssignTarget(target)], value.value.deep_clone()),
        ]
    method = "append" if isinstance(value, cst.ListComp) else "add"
    function = cst.Attribute(cst.Name(name), cst.Name(method))
    return [cst.Expr(cst.Call(function, [cst.Arg(value.elt.deep_clone())]))]


def _renamed(statement: Any, mapping: dict[str, str], origins: Origins) -> Any:
    return rename(statement, mapping, origins)


def _renamed_expression(node: Any, mapping: dict[str, str], origins: Origins) -> Any:
    line = rename(_line(cst.Expr(node)), mapping, origins)
    return line.body[0].value  # type: ignore[attr-defined]


def _renamed_target(node: Any, mapping: dict[str, str], origins: Origins) -> Any:
    line = rename(
        _line(cst.Assign([cst.AssignTarget(node)], cst.Ellipsis())), mapping, origins
    )
    return line.body[0].targets[0].target  # type: ignore[attr-defined]
