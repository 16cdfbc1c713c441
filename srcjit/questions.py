"""What a guard asks at each call, as questions that need no Python.

    def guard_0(self, x):                           questions(guard_0, text):
        try:
            if not tensors.check(x):                ("tensors", tensors, "check", True, (1,)),
                return False
            if not state.check() or modes():        ("call", state, "check", True, ()),
                return False                        ("call", modes, None, False, ()),
            if unchanged.now(self) is None:
                ...
            elif user_globals["F"] is not F_1:      ("is", user_globals, "F", F_1, True),
                return False
            return True
        ...

An extension asks them (`runtime/questions.h`). What is learned of objects (`Unchanged`) it compares
itself, so the branch where that has changed is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from types import FunctionType
from typing import Any

from srcjit.dynamo import opaque
from srcjit.facts import TensorFacts
from srcjit.unchanged import Unchanged

Question = tuple[Any, ...]


def questions(guard: FunctionType, text: str) -> tuple[Question, ...]:
    """Returns the questions of a guard; other conditions become one function that is called.

    Args:
        guard: The guard. At most one `Unchanged` is among its globals.
        text: The module that it was loaded from.
    """
    first, *rest = text.splitlines()[guard.__code__.co_firstlineno - 1 :]
    body = takewhile(lambda line: not line or line[0].isspace(), rest)
    definition = ast.parse("\n".join((first, *body))).body[0]
    assert isinstance(definition, ast.FunctionDef)
    values = {a.arg: n for n, a in enumerate(definition.args.args)}
    scope = guard.__globals__
    found: list[Question] = []
    others: list[ast.expr] = []
    try:
        for tree, wanted in _conditions(definition.body, scope):
            question = _question(tree, wanted, scope, values)
            if question is not None:
                found.append(question)
            else:
                others.append(tree if wanted else ast.UnaryOp(ast.Not(), tree))
    except _StatementError:
        known = {n for n, value in scope.items() if type(value) is Unchanged}
        assumed = {**scope, **dict.fromkeys(known, _Assumed)}
        function = FunctionType(guard.__code__, assumed, guard.__name__)
        return (_call_of(function, values),)
    if others:
        asked = ast.Lambda(
            definition.args, ast.BoolOp(ast.And(), [*others, ast.Constant(True)])
        )
        whole = ast.fix_missing_locations(ast.Expression(asked))
        code = compile(whole, guard.__code__.co_filename, "eval")
        found.append(_call_of(eval(code, scope), values))
    return tuple(found)


def _call_of(function: FunctionType, values: Mapping[str, int]) -> Question:
    return "call", opaque(function), None, True, tuple(values.values())


class _StatementError(Exception):
    """There is more than conditions in a guard."""


class _Assumed:
    """In the place of an `Unchanged` whose snapshots are compared later."""

    @staticmethod
    def now(*roots: Any) -> tuple[Any, ...]:
        return ()


def _conditions(
    body: Sequence[ast.stmt], scope: Mapping[str, Any]
) -> Iterator[tuple[ast.expr, bool]]:
    """Yields all that must hold, and what must not, while nothing learned has changed."""
    for statement in body:
        match statement:
            case ast.Try(body=inner):
                yield from _conditions(inner, scope)
            case ast.If(
                test=ast.Compare(
                    left=ast.Call(func=ast.Attribute(value=ast.Name(name), attr="now")),
                    ops=[ast.Is()],
                    comparators=[ast.Constant(None)],
                ),
                orelse=otherwise,
            ) if type(scope.get(name)) is Unchanged:
                yield from _conditions(otherwise, scope)
            case ast.If(
                test=test, body=[ast.Return(value=ast.Constant(False))], orelse=[]
            ):
                yield from _parts(test, False)
            case ast.Return(value=ast.Constant(True)):
                return
            case _:
                raise _StatementError


def _parts(tree: ast.expr, wanted: bool) -> Iterator[tuple[ast.expr, bool]]:
    match tree:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _parts(operand, not wanted)
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) is wanted:
            for value in values:
                yield from _parts(value, wanted)
        case _:
            yield tree, wanted


def _question(
    tree: ast.expr, wanted: bool, scope: Mapping[str, Any], values: Mapping[str, int]
) -> Question | None:
    """Writes that a condition is as wanted; None for one that needs Python."""
    match tree:
        case ast.Call(
            func=ast.Attribute(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(name), attr="keys"), args=[]
                ),
                attr="isdisjoint",
            ),
            args=[ast.Tuple(elts=keys)],
        ) if wanted and type(scope.get(name)) is dict:
            return "absent", scope[name], tuple(map(ast.literal_eval, keys))
        case ast.Call(
            func=ast.Attribute(value=ast.Name(name), attr=method),
            args=arguments,
            keywords=[],
        ) if name in scope and _all_values(arguments, values):
            facts = wanted and type(scope[name]) is TensorFacts and method == "check"
            kind = "tensors" if facts else "call"
            return kind, scope[name], method, wanted, _places(arguments, values)
        case ast.Call(func=ast.Name(name), args=arguments, keywords=[]) if (
            name in scope and _all_values(arguments, values)
        ):
            return "call", scope[name], None, wanted, _places(arguments, values)
        case ast.Compare(
            left=ast.Subscript(value=ast.Name(name), slice=ast.Constant(str() as key)),
            ops=[ast.Is() | ast.IsNot() as op],
            comparators=[ast.Name(other)],
        ) if type(scope.get(name)) is dict and other in scope:
            same = isinstance(op, ast.Is) is wanted
            return "is", scope[name], key, scope[other], same
        case ast.Compare(
            left=ast.Attribute(value=ast.Name(name), attr=attribute),
            ops=[ast.GtE()],
            comparators=[ast.Constant(int() as least)],
        ) if not wanted and name in scope:
            return "below", scope[name], attribute, least
    return None


def _all_values(arguments: Sequence[ast.expr], values: Mapping[str, int]) -> bool:
    return all(isinstance(a, ast.Name) and a.id in values for a in arguments)


def _places(
    arguments: Sequence[ast.expr], values: Mapping[str, int]
) -> tuple[int, ...]:
    """Which values of the call are given."""
    return tuple(values[a.id] for a in arguments if isinstance(a, ast.Name))
