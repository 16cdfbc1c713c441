r"""Variables that a nested function shares become items of lists.

>>> function = cst.parse_statement('''def f(x, n):
...     def scaled(y):
...         nonlocal calls
...         calls += 1
...         return y * n
...     calls = 0
...     register(scaled)
...     n = 3
...     return scaled(x), calls
... ''')
>>> shared = share(function, {"n"}, Origins(), Namer({"shared_n"}))
>>> print(cst.Module([shared]).code, end="")
def f(x, n):
    shared_n_1 = [n]
    def scaled(y):
        nonlocal calls
        calls += 1
        return y * shared_n_1[0]
    calls = 0
    register(scaled)
    shared_n_1[0] = 3
    return scaled(x), calls

A variable in a closure cell is one thing for all functions that see it. Where the function is
split, the pieces could only be given its value. They can be given the list.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import libcst as cst

from srcjit.nodes import subtree
from srcjit.origin import Origins
from srcjit.passes.blocks import line
from srcjit.passes.clone import clone
from srcjit.passes.flow import Walk, deleted
from srcjit.passes.namer import Namer
from srcjit.passes.scopes import keep_debug_text, parameter_names


class CannotShare(Exception):
    """A variable that cannot be an item of a list; the argument says why."""


def share(
    function: cst.FunctionDef, names: Collection[str], origins: Origins, namer: Namer
) -> cst.FunctionDef:
    """Returns `function` with some of its local variables kept in lists.

    Args:
        function: A definition.
        names: Local variables of it.
        origins: Takes the origins of the copies.
        namer: Makes the names of the lists.

    Raises:
        CannotShare: A variable is bound in a way that an item cannot be, or may be read
            while it is not bound: that would raise another error.
    """
    walk = Walk.over(function.body)
    given = set(parameter_names(function.params))
    boxes = {name: namer.fresh(f"shared_{name}") for name in sorted(names)}
    for name in boxes:
        if name not in given and name in walk.exposed:
            raise CannotShare(f"`{name}` may be read before it is bound")
        if any(name in deleted(statement) for statement in function.body.body):
            raise CannotShare(f"`{name}` is deleted")
    fixed = _names_only(function.body)
    replaced: dict[cst.CSTNode, cst.CSTNode | Sequence[cst.CSTNode]] = {}
    for node, name in walk.occurrences.items():
        if name not in boxes:
            continue
        if not isinstance(node, cst.Name) or node in fixed:
            raise CannotShare(f"`{name}` is bound by a statement of its own")
        index = cst.SubscriptElement(cst.Index(cst.Integer("0")))
        replaced[node] = cst.Subscript(
            cst.Name(boxes[name]), [index], lpar=node.lpar, rpar=node.rpar
        )
    for node, made in _without_nonlocals(function.body, set(replaced), boxes):
        replaced[node] = made
    keep_debug_text(function.body, replaced)
    body = clone(function.body, origins, replaced)
    prologue = []
    for name, box in boxes.items():
        prologue.append(line(f"{box} = [{name if name in given else None}]"))
        origins.inherit(prologue[-1], function)
    if not isinstance(body, cst.IndentedBlock):
        raise CannotShare("the function is written on one line")
    made = function.with_changes(body=body.with_changes(body=[*prologue, *body.body]))
    origins.inherit(made, function)
    return made


def _names_only(body: cst.CSTNode) -> set[cst.CSTNode]:
    """Nodes that must be names where they stand."""
    found: set[cst.CSTNode | None] = set()
    for node in subtree(body):
        match node:
            case cst.FunctionDef() | cst.ClassDef():
                found.add(node.name)
            case cst.NamedExpr():
                found.add(node.target)
            case cst.ExceptHandler() | cst.ExceptStarHandler():
                if node.name is not None:
                    found.add(node.name.name)
            case cst.MatchAs() | cst.MatchStar():
                found.add(node.name)
            case cst.MatchMapping():
                found.add(node.rest)
    return {node for node in found if node is not None}


def _without_nonlocals(
    body: cst.CSTNode, replaced: set[cst.CSTNode], boxes: Collection[str]
) -> list[tuple[cst.CSTNode, cst.CSTNode]]:
    """Pairs of `nonlocal` statements that name a variable of these, and what they become."""
    made: list[tuple[cst.CSTNode, cst.CSTNode]] = []
    for function in subtree(body):
        if not isinstance(function, cst.FunctionDef):
            continue
        inside = set(subtree(function))
        if not inside & replaced:
            continue
        for node in inside:
            if isinstance(node, cst.Nonlocal):
                kept = [i for i in node.names if i.name.value not in boxes]
                if not kept:
                    made.append((node, cst.Pass()))
                elif len(kept) < len(node.names):
                    last = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
                    made.append((node, node.with_changes(names=[*kept[:-1], last])))
    return made
