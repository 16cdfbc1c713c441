r"""The rest of a program, from some point on, as statements and as a function.

Where evaluation stands is a stack of blocks. What is left of each, innermost first, is the rest
of the program. For an unrolled loop that is the rest of this iteration and the iterations that
are left:

>>> loop = cst.parse_statement('''for i in xs:
...     g(i)
...     x = x + i
... else:
...     h(x)
... ''')
>>> after = Block([loop, cst.parse_statement("return x\n")], 1)
>>> inside = Block(loop.body.body, 1, "for", loop, "remaining")
>>> print(cst.Module(rest([after, inside], origins=Origins())).code, end="")
x = x + i
for i in remaining:
    g(i)
    x = x + i
else:
    h(x)
return x

If the rest of the iteration may `break` or `continue`, Python's own `for … else` says what that
means:

>>> loop = cst.parse_statement('''for i in xs:
...     g(i)
...     if x > i:
...         break
... ''')
>>> inside = Block(loop.body.body, 1, "for", loop, "remaining")
>>> print(cst.Module(rest([inside], origins=Origins())).code, end="")
for _ in once:
    if x > i:
        break
else:
    for i in remaining:
        g(i)
        if x > i:
            break
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from srcjit.origin import Origins
from srcjit.passes.blocks import Statement, line, map_blocks, suite_of
from srcjit.passes.clone import clone, clone_all
from srcjit.passes.flow import deleted
from srcjit.passes.namer import Namer
from srcjit.passes.scopes import captured, ends, reads, writes
from srcjit.source import FunctionSource

ONCE = "once"
"""Name of what has one item; whoever runs the text provides it."""


@dataclass(frozen=True, eq=False)
class Block:
    """A list of statements, and how far it has been run.

    Attributes:
        statements: The statements.
        index: The first one that has not been run.
        kind: `body` (a function's body, an arm of an `if`), `for` or `while` (one iteration).
        node: The loop, for `for` and `while`.
        remaining: The variable that holds the items that are left, for `for`.
    """

    statements: Sequence[Any]
    index: int = 0
    kind: str = "body"
    node: cst.For | cst.While | None = None
    remaining: str | None = None


def rest(
    blocks: Sequence[Block], *, origins: Origins, namer: Namer | None = None
) -> list[Statement]:
    """Returns what is left to do.

    Args:
        blocks: Where the program stands: the function's body first, the innermost block last.
        origins: Takes the origins of copies. What is left is copied, so that each rest may be
            changed apart.
        namer: Makes the variable of a loop over `once` where the program reads `_`.

    Returns:
        Statements of the function. They name `once`, and `remaining` of each block.
    """
    left: list[Statement] = []
    for block in reversed(blocks):
        here = [_as_line(s) for s in block.statements[block.index :]]
        left += clone_all(here, origins)
        if block.kind != "body":
            left = _loop_rest(left, block, origins, namer)
        if not ends(left) and not _jumps(left):
            break  # nothing behind it is reached
    return left


def _as_line(statement: Any) -> Statement:
    if isinstance(statement, cst.BaseSmallStatement):
        return cst.SimpleStatementLine([statement])
    return statement  # type: ignore[no-any-return]


def _loop_rest(
    left: list[Statement], block: Block, origins: Origins, namer: Namer | None
) -> list[Statement]:
    """Returns the rest of an iteration and the rest of its loop."""
    last = _sole_jump(left)
    if isinstance(last, cst.Break):
        return left[:-1]
    if isinstance(last, cst.Continue):
        left = left[:-1]
    if not _jumps(left) and not ends(left):
        return left
    loop: Any = block.node
    if block.kind == "for":
        assert block.remaining is not None
        left_over = cst.Name(block.remaining)
        again = loop.with_changes(
            iter=left_over, whitespace_after_in=cst.SimpleWhitespace(" ")
        )
        origins.inherit(left_over, loop.iter)
    else:
        again = loop.with_changes()
    origins.inherit(again, loop)
    again = clone(again, origins)
    if not _jumps(left):
        return [*left, again]
    turn = "_"
    if "_" in reads(left) | reads(loop) and namer is not None:
        turn = namer.fresh("turn")
    items = ONCE if namer is None else namer.fixed(ONCE)
    once = cst.For(
        cst.Name(turn), cst.Name(items), suite_of(left), cst.Else(suite_of([again]))
    )
    origins.inherit(once, loop)
    return [once]


def _sole_jump(statements: Sequence[Statement]) -> cst.BaseSmallStatement | None:
    """Returns the `break` or `continue` at the end, if it is the only one of its loop."""
    if not statements or _jumps(statements[:-1]):
        return None
    last = statements[-1]
    if not isinstance(last, cst.SimpleStatementLine) or len(last.body) != 1:
        return None
    jump = last.body[0]
    return jump if isinstance(jump, cst.Break | cst.Continue) else None


def _jumps(statements: Iterable[Statement]) -> bool:
    """Tells whether there is a `break` or `continue` of the loop around `statements`."""
    found = False

    def look(block: list[Statement], where: str) -> list[Statement]:
        nonlocal found
        if where != "loop":
            found = found or _jumps(block)
        return block

    for statement in statements:
        if isinstance(statement, cst.SimpleStatementLine):
            found = found or any(
                isinstance(small, cst.Break | cst.Continue) for small in statement.body
            )
        else:
            map_blocks(statement, look)
    return found


def make_resume(
    name: str,
    statements: Sequence[Statement],
    params: Sequence[str],
    unbound: Collection[str],
    origins: Origins,
    *,
    file: str,
    class_name: str | None = None,
    scope: str = "",
    freevars: tuple[str, ...] = (),
    global_names: Collection[str] = (),
    nonlocal_names: Collection[str] = (),
    maybe_unbound: Collection[str] = (),
    unbound_value: str = "UNBOUND",
    apart: Mapping[str, str] | None = None,
    boxed: Collection[str] = (),
) -> FunctionSource:
    """Makes a function of the rest of a program.

    Args:
        name: The function's name.
        statements: What it does.
        params: The variables that it is given.
        unbound: Local variables that are not bound at this point: reading one is an error, as
            it is in the function that this is the rest of.
        origins: Origins of the statements.
        file: The user's file.
        class_name: The class around the user's function.
        scope: Qualified name of the user's function.
        freevars: Names in closure cells.
        global_names: Names that the user's function declares global.
        nonlocal_names: Names that the user's function declares nonlocal.
        maybe_unbound: Parameters for which `UNBOUND` is given where they are not bound.
        unbound_value: What the text calls `UNBOUND`.
        apart: Parameters that have another name than their variables; see `kept_apart`.
        boxed: Those of them that are given in a list of one; see `dropped_with`.
    """
    apart = apart or {}
    statements = dropped_with(
        {name: apart[name] for name in boxed}, statements, origins
    )
    read, written = reads(list(statements)), writes(list(statements))
    prologue: list[Statement] = []
    for word, names in (("global", global_names), ("nonlocal", nonlocal_names)):
        bound_here = sorted(set(names) & written)
        if bound_here:
            prologue.append(line(f"{word} {', '.join(bound_here)}"))
    used = read | captured(list(statements))
    prologue += taken_over(apart, boxed)
    prologue += never_bound(set(unbound) & (used - written))
    for variable in sorted(maybe_unbound):
        prologue.append(
            cst.parse_statement(
                f"if {variable} is {unbound_value}:\n    del {variable}\n"
            )
        )
    given = [apart.get(parameter, parameter) for parameter in params]
    tree = function_of(name, given, [*prologue, *statements])
    first = next((s for s in statements if origins.get(s) is not None), None)
    if first is not None:
        for made in (tree, *prologue):
            origins.inherit(made, first)
    return FunctionSource.from_tree(
        name,
        tree,
        origins,
        file=file,
        freevars=freevars,
        class_name=class_name,
        scope=scope,
    )


def kept_apart(
    params: Sequence[str], statements: Sequence[Statement], namer: Namer
) -> dict[str, str]:
    """Returns other names for the parameters whose variables the statements delete.

    A function's guards know its arguments by the names of its parameters for as long as it
    runs, and the error that tells of a deleted variable has the name that the user gave it.
    """
    lost: frozenset[str] = frozenset().union(*(deleted(s) for s in statements))
    return {name: namer.fresh(f"{name}_given") for name in params if name in lost}


def taken_over(
    apart: Mapping[str, str], boxed: Collection[str] = ()
) -> list[Statement]:
    """Returns what binds variables to the parameters that are `kept_apart`."""
    return [
        line(f"{name} = {given}[0]" if name in boxed else f"{name} = {given}")
        for name, given in apart.items()
    ]


def dropped_with(
    boxes: Mapping[str, str], statements: Sequence[Statement], origins: Origins
) -> list[Statement]:
    """Has `del` of a variable also empty the list in which the function was given it.

    Whoever has called the function holds what it was given until it returns; so what is
    deleted on the way is given in a list, and then nobody holds it any more.

    >>> made = dropped_with({"t": "t_given"}, [line("del t, x")], Origins())
    >>> print(cst.Module(made).code, end="")
    del t, x; t_given.clear()

    Args:
        boxes: Variable -> list.
        statements: What the function does.
        origins: Origins of the statements.
    """
    if not boxes:
        return list(statements)
    emptied = _Emptied(boxes, origins)
    return [s.visit(emptied) for s in statements]  # type: ignore[misc]


def deleted_by_name(statements: Iterable[Statement]) -> frozenset[str]:
    """Returns the variables of which statements have a `del`, outside of other functions."""
    found = _Deleted()
    for statement in statements:
        statement.visit(found)
    return frozenset(found.names)


def _targets_of(node: cst.Del) -> list[str]:
    targets = (
        [element.value for element in node.target.elements]
        if isinstance(node.target, cst.Tuple | cst.List)
        else [node.target]
    )
    return [target.value for target in targets if isinstance(target, cst.Name)]


class _Deleted(cst.CSTVisitor):
    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_Del(self, node: cst.Del) -> None:
        self.names.update(_targets_of(node))

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        return False


class _Emptied(cst.CSTTransformer):
    def __init__(self, boxes: Mapping[str, str], origins: Origins) -> None:
        self.boxes = boxes
        self.origins = origins

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        return False

    def leave_SimpleStatementLine(
        self,
        original_node: cst.SimpleStatementLine,
        updated_node: cst.SimpleStatementLine,
    ) -> cst.SimpleStatementLine:
        body: list[cst.BaseSmallStatement] = []
        for small in original_node.body:
            body.append(small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT))
            self.origins.inherit(body[-1], small)
            for name in _targets_of(small) if isinstance(small, cst.Del) else ():
                if name in self.boxes:
                    call = cst.parse_expression(f"{self.boxes[name]}.clear()")
                    body.append(cst.Expr(call))
                    self.origins.inherit(body[-1], small)
        if len(body) == len(original_node.body):
            return updated_node
        made = updated_node.with_changes(body=body)
        self.origins.inherit(made, original_node)
        return made

    def on_leave(self, original: cst.CSTNode, updated: cst.CSTNode) -> Any:
        made = super().on_leave(original, updated)
        if made is not original and isinstance(made, cst.CSTNode):
            self.origins.inherit(made, original)
        return made


def never_bound(names: Iterable[str]) -> list[Statement]:
    """Returns what makes names locals of a function that are not bound."""
    return [
        line(text)
        for name in sorted(names)
        for text in (f"{name} = None", f"del {name}")
    ]


def function_of(
    name: str, params: Sequence[str], statements: Iterable[Statement]
) -> cst.FunctionDef:
    """Returns the definition of a function of positional parameters."""
    given = [cst.Param(cst.Name(parameter)) for parameter in params]
    return cst.FunctionDef(cst.Name(name), cst.Parameters(given), suite_of(statements))
