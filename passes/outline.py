r"""Outlining: the body of a statement that stays native becomes a function.

>>> def show(text, outliner, **how):
...     statement = cst.parse_statement(text)
...     taken = Namer(reads(statement) | writes(statement))
...     made = outliner(statement, origins=Origins(), namer=taken, **how)
...     print(cst.Module([*made.functions, *made.statements]).code, end="")
>>> show(
...     '''while (x * x - 2).abs().max() > tol:
...     x = x - (x * x - 2) / (2 * x)
...     steps += 1
... ''',
...     outline_while,
...     bound={"x", "tol", "steps"},
...     live_after={"x", "steps"},
... )
def test(x, tol):
    return (x * x - 2).abs().max() > tol
def body(x, steps):
    x = x - (x * x - 2) / (2 * x)
    steps += 1
    return x, steps
while test(x, tol):
    x, steps = body(x, steps)

A body that may leave the loop reports how it ended:

>>> show(
...     '''for i in xs:
...     if f(i):
...         break
...     if i.bad:
...         return x
...     x = x + i
... ''',
...     outline_for,
...     bound={"xs", "x", "f"},
...     live_after={"x"},
... )
def body(f, i, x):
    if f(i):
        return 1, None, x
    if i.bad:
        return 2, x, None
    x = x + i
    return 0, None, x
for i in xs:
    how, value, x = body(f, i, x)
    if how == 1:
        break
    if how == 2:
        return value

What an exception must not undo travels in boxes:

>>> show(
...     '''with open(path) as f:
...     k = float(f.read())
...     log(k)
... ''',
...     outline_with,
...     bound={"path", "log"},
...     live_after={"k"},
... )
def body(f, log, box_k):
    k = float(f.read())
    box_k.value = k
    log(k)
with open(path) as f:
    box_k = Box()
    try:
        body(f, log, box_k)
    finally:
        k = box_k.take()
        if k is UNBOUND: del k
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import libcst as cst

from srcjit.origin import Origins
from srcjit.passes.blocks import Statement, statements_of, suite_of
from srcjit.passes.boxes import CannotOutline
from srcjit.passes.flow import Walk, deleted
from srcjit.passes.namer import Namer
from srcjit.passes.normalize import normalize
from srcjit.passes.operands import COMPOSITE, closed, kind_of
from srcjit.passes.outliner import Around, Outlined, Outliner, outline, place
from srcjit.passes.resume import function_of, never_bound
from srcjit.passes.scopes import definitely_bound, live_in, reads, writes

__all__ = [
    "UNBOUND",
    "Box",
    "CannotOutline",
    "Outlined",
    "OutlinedStatement",
    "outline",
    "outline_for",
    "outline_try",
    "outline_while",
    "outline_with",
]


class _Unbound:
    """What stands for the value of a variable that is not bound."""

    def __repr__(self) -> str:
        return "UNBOUND"


UNBOUND = _Unbound()


class Box:
    """Holds the value of a variable while a function of its own runs a piece of the text.

    Attributes:
        value: The value, or `UNBOUND`.
    """

    __slots__ = ("value",)

    def __init__(self, value: object = UNBOUND) -> None:
        self.value = value

    def take(self) -> object:
        """Returns the value, and does not hold it any longer."""
        value, self.value = self.value, UNBOUND
        return value

    def __repr__(self) -> str:
        return f"Box({self.value!r})"


@dataclass(frozen=True)
class OutlinedStatement:
    """A compound statement whose blocks are functions.

    Attributes:
        statements: The native statements.
        functions: The functions that they call.
    """

    statements: list[Statement]
    functions: list[cst.FunctionDef]


def outline_for(
    statement: cst.For,
    *,
    bound: Collection[str],
    live_after: Collection[str],
    origins: Origins,
    namer: Namer,
    maybe: Collection[str] | None = None,
    local: Collection[str] | None = None,
    live_raised: Collection[str] = (),
    global_names: Collection[str] = (),
) -> OutlinedStatement:
    """Makes functions of the body of a `for` loop and of its `else`.

    The arguments are those of `outline`; `live_after` is what is live behind the loop.
    """
    around = place(
        statement, bound, maybe, local, live_after, live_raised, global_names
    )
    outliner = _Blocks(origins, namer)
    head = live_in(statement.with_changes(iter=cst.Name("None")))
    inside = _in_loop(statement, around, head)
    target = writes(cst.Assign([cst.AssignTarget(statement.target)], cst.Ellipsis()))
    inside = replace(inside, bound=inside.bound | (target & around.local))
    return outliner.loop(statement, around, inside)


def outline_while(
    statement: cst.While,
    *,
    bound: Collection[str],
    live_after: Collection[str],
    origins: Origins,
    namer: Namer,
    maybe: Collection[str] | None = None,
    local: Collection[str] | None = None,
    live_raised: Collection[str] = (),
    global_names: Collection[str] = (),
) -> OutlinedStatement:
    """Makes functions of the test and the body of a `while` loop, and of its `else`.

    The arguments are those of `outline`; `live_after` is what is live behind the loop.
    """
    around = place(
        statement, bound, maybe, local, live_after, live_raised, global_names
    )
    outliner = _Blocks(origins, namer)
    inside = _in_loop(statement, around, live_in(statement))
    if _is_plain_test(statement.test):
        return outliner.loop(statement, around, inside)
    read = live_in(statement.test) & around.local
    wanted = read & inside.maybe
    if writes(statement.test) or wanted - inside.bound:
        return _with_test_inside(statement, around, origins, namer)
    params = [n for n in dict.fromkeys(_names_in_order(statement.test)) if n in wanted]
    name = outliner.name("test", statement)
    result = statement.test
    if _has_truth_inside(result):
        # As a condition, each part is asked for its truth once; as a value, the last one
        # would be asked again by the loop.
        result = cst.IfExp(
            body=cst.Name("True"), test=closed(result), orelse=cst.Name("False")
        )
    returned = cst.SimpleStatementLine([cst.Return(result)])
    origins.inherit(returned, statement.test)
    made = [*never_bound(read - wanted), returned]
    for first in made[:-1]:
        origins.inherit(first, statement.test)
    function = function_of(name, params, made)
    origins.inherit(function, statement.test)
    outliner.functions.append(function)
    call = cst.parse_expression(f"{name}({', '.join(params)})")
    origins.inherit(call, statement.test)
    native = statement.with_changes(
        test=call, whitespace_after_while=cst.SimpleWhitespace(" ")
    )
    origins.inherit(native, statement)
    return outliner.loop(native, around, inside)


def _with_test_inside(
    statement: cst.While, around: Around, origins: Origins, namer: Namer
) -> OutlinedStatement:
    """The test becomes part of the body, with a `break`."""
    made: list[Statement] = []
    functions: list[cst.FunctionDef] = []
    parts = normalize(statement, namer, origins, unstable=reads(statement.test))
    if len(parts) == 1 and parts[0] is statement:
        raise CannotOutline(
            "the test of a loop reads a variable that may be unbound", statement
        )
    local = around.local | writes(parts)
    bound = around.bound
    for number, part in enumerate(parts):
        if isinstance(part, cst.While):
            after = around.live_after | live_in(parts[number + 1 :])
            outlined = outline_while(
                part,
                bound=bound,
                live_after=after,
                origins=origins,
                namer=namer,
                maybe=around.maybe | writes(parts),
                local=local,
                live_raised=around.live_raised,
                global_names=around.global_names,
            )
            made += outlined.statements
            functions += outlined.functions
        else:
            made.append(part)
            bound |= writes(part) & local
    return OutlinedStatement(made, functions)


def outline_with(
    statement: cst.With,
    *,
    bound: Collection[str],
    live_after: Collection[str],
    origins: Origins,
    namer: Namer,
    maybe: Collection[str] | None = None,
    local: Collection[str] | None = None,
    live_raised: Collection[str] = (),
    global_names: Collection[str] = (),
) -> OutlinedStatement:
    """Makes a function of the body of a `with`; its items stay native.

    An `__exit__` may swallow an exception, so what is live behind the statement must be right
    after one. The arguments are those of `outline`.
    """
    around = place(
        statement, bound, maybe, local, live_after, live_raised, global_names
    )
    outliner = _Blocks(origins, namer)
    items = statement.with_changes(body=suite_of([]))
    inside = replace(
        around,
        bound=(around.bound - deleted(statement)) | (writes(items) & around.local),
        maybe=around.maybe | (writes(items) & around.local),
        live_raised=around.live_raised | around.live_after,
    )
    body = outliner.block(statements_of(statement.body), "body", inside)
    return outliner.done(statement, body=suite_of(body))


def outline_try(
    statement: cst.Try | cst.TryStar,
    *,
    bound: Collection[str],
    live_after: Collection[str],
    origins: Origins,
    namer: Namer,
    maybe: Collection[str] | None = None,
    local: Collection[str] | None = None,
    live_raised: Collection[str] = (),
    global_names: Collection[str] = (),
) -> OutlinedStatement:
    """Makes functions of the blocks of a `try`.

    The arguments are those of `outline`.
    """
    around = place(
        statement, bound, maybe, local, live_after, live_raised, global_names
    )
    outliner = _Blocks(origins, namer)
    lost = deleted(statement)
    possible = around.maybe | (writes(statement) & around.local)
    final = statement.finalbody
    last = live_in(final) & around.local if final is not None else set()
    if final is not None:
        # `finally` is followed by what is behind, or by the exception.
        last |= around.live_after | around.live_raised
    ended = replace(
        around,
        maybe=possible,
        live_after=around.live_after | last,
        live_raised=around.live_raised | last,
    )
    caught = set().union(*(live_in(handler) for handler in statement.handlers))
    if statement.handlers:
        caught |= around.live_after
    after_body = live_in(statement.orelse) if statement.orelse is not None else set()
    body = outliner.block(
        statements_of(statement.body),
        "body",
        replace(
            ended,
            maybe=around.maybe,
            live_after=ended.live_after | (after_body & around.local),
            live_raised=ended.live_raised | (caught & around.local),
        ),
    )
    changes: dict[str, Any] = {"body": suite_of(body)}
    handlers = []
    for handler in statement.handlers:
        name = handler.name.name.value if handler.name is not None else None  # type: ignore[union-attr]
        known = (around.bound - lost) | ({name} if name else set())
        inside = replace(ended, bound=frozenset(known), maybe=possible | known)
        block = outliner.block(statements_of(handler.body), "handler", inside)
        handlers.append(handler.with_changes(body=suite_of(block)))
        origins.inherit(handlers[-1], handler)
    changes["handlers"] = handlers
    if statement.orelse is not None:
        sure = definitely_bound(statement.body, around.bound) & around.local
        inside = replace(ended, bound=frozenset(sure))
        block = outliner.block(
            statements_of(statement.orelse.body), "otherwise", inside
        )
        changes["orelse"] = statement.orelse.with_changes(body=suite_of(block))
    if final is not None:
        inside = replace(around, bound=around.bound - lost, maybe=possible)
        block = outliner.block(statements_of(final.body), "finish", inside)
        changes["finalbody"] = final.with_changes(body=suite_of(block))
    return outliner.done(statement, **changes)


def _in_loop(statement: cst.For | cst.While, around: Around, head: set[str]) -> Around:
    """What is known at the start of the body of a loop."""
    return replace(
        around,
        bound=around.bound - deleted(statement),
        maybe=around.maybe | (writes(statement) & around.local),
        live_after=around.live_after | (head & around.local),
    )


class _Blocks:
    """Makes functions of the blocks of one statement."""

    def __init__(self, origins: Origins, namer: Namer) -> None:
        self.origins = origins
        self.namer = namer
        self.functions: list[cst.FunctionDef] = []

    def name(self, word: str, user: cst.CSTNode) -> str:
        """Returns a name with the line that a block comes from."""
        origin = self.origins.get(user)
        return self.namer.fresh(f"{word}_{origin.line}" if origin else word)

    def block(
        self,
        statements: list[Statement],
        word: str,
        around: Around,
        loop_body: bool = False,
    ) -> list[Statement]:
        """Returns the call of a function that does `statements`, or those if they do nothing."""
        if _is_trivial(statements):
            return statements
        name = self.name(word, statements[0])
        made = Outliner(
            statements, name, around, self.origins, self.namer, loop_body
        ).run()
        self.functions.append(made.function)
        return made.call

    def loop(
        self, statement: cst.For | cst.While, around: Around, inside: Around
    ) -> OutlinedStatement:
        """Makes functions of the body and the `else` of a loop."""
        block = self.block(
            statements_of(statement.body), "body", inside, loop_body=True
        )
        changes: dict[str, Any] = {"body": suite_of(block)}
        if statement.orelse is not None:
            after = replace(
                around, bound=around.bound - deleted(statement), maybe=inside.maybe
            )
            block = self.block(statements_of(statement.orelse.body), "otherwise", after)
            changes["orelse"] = statement.orelse.with_changes(body=suite_of(block))
        return self.done(statement, **changes)

    def done(self, statement: Any, **changes: Any) -> OutlinedStatement:
        """Returns the native statement with its blocks changed."""
        made = statement.with_changes(**changes)
        self.origins.inherit(made, statement)
        return OutlinedStatement([made], self.functions)


def _is_trivial(statements: list[Statement]) -> bool:
    """Tells whether statements do nothing that is worth a function."""
    for statement in statements:
        if not isinstance(statement, cst.SimpleStatementLine):
            return False
        for small in statement.body:
            if isinstance(small, cst.Raise | cst.Pass | cst.Break | cst.Continue):
                continue
            if not isinstance(small, cst.Return | cst.Expr):
                return False
            if small.value is not None and kind_of(small.value) == COMPOSITE:
                return False
    return True


def _is_plain_test(test: cst.BaseExpression) -> bool:
    """Tells whether a test has nothing to compile: names, constants, their comparison."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _is_plain_test(test.expression)
    if isinstance(test, cst.BooleanOperation):
        return _is_plain_test(test.left) and _is_plain_test(test.right)
    if isinstance(test, cst.Comparison):
        parts = [test.left, *(target.comparator for target in test.comparisons)]
        return all(isinstance(part, cst.Name | cst.BaseNumber) for part in parts)
    return kind_of(test) != COMPOSITE


def _has_truth_inside(test: cst.BaseExpression) -> bool:
    """Tells whether an expression as a condition differs from its value as a condition."""
    if isinstance(test, cst.Comparison):
        return len(test.comparisons) > 1
    if isinstance(test, cst.UnaryOperation):
        return isinstance(test.operator, cst.Not)
    return isinstance(test, cst.BooleanOperation | cst.IfExp)


def _names_in_order(piece: cst.CSTNode) -> list[str]:
    return list(Walk.over(piece).occurrences.values())
