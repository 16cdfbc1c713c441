r"""Copies trees together with their origins, replacing some nodes on the way.

    x = f(x)    with `x` on the left replaced by `y`    ->    y = f(x)

libcst's `deep_clone` copies white space too, checks every node again and forgets origins. A
pass that uses a piece of text twice (an unrolled loop, an inlined function, the rest of a
program) makes each use a `clone`, because a node that stands in two places has one identity
and so one origin.

>>> line = cst.parse_statement("x = f(x)\n")
>>> target = line.body[0].targets[0].target
>>> copy = clone(line, Origins(), {target: cst.Name("y")})
>>> cst.Module([copy]).code
'y = f(x)\n'
>>> copy.body[0].value is line.body[0].value
False
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TypeVar

import libcst as cst

from srcjit.origin import Origins

Node = TypeVar("Node", bound=cst.CSTNode)
Replacements = Mapping[cst.CSTNode, "cst.CSTNode | Sequence[cst.CSTNode]"]

_SHARED = (
    cst.BaseParenthesizableWhitespace,
    cst.TrailingWhitespace,
    cst.EmptyLine,
    cst.Newline,
    cst.Comment,
)
"""White space has no origin, so copies may share it."""

_field_names: dict[type, tuple[str, ...]] = {}


def clone(
    node: Node, origins: Origins, replacements: Replacements | None = None
) -> Node:
    """Copies `node` and all below it; each copy has the origin of what it is a copy of.

    Args:
        node: What to copy.
        origins: Where origins are read and recorded.
        replacements: Nodes (by identity) that are put in place of others. A sequence stands
            for any number of elements where the node is an element of a sequence. They are
            put in as they are, and take the origin of what they replace if they have none.
    """
    return _clone(node, origins, replacements or {})  # type: ignore[return-value]


def clone_all(
    nodes: Iterable[Node], origins: Origins, replacements: Replacements | None = None
) -> list[Node]:
    """Copies each of `nodes`, as `clone` does."""
    return list(_clone_sequence(nodes, origins, replacements or {}))  # type: ignore[arg-type]


def _clone(
    node: cst.CSTNode, origins: Origins, replacements: Replacements
) -> cst.CSTNode | Sequence[cst.CSTNode]:
    replacement = replacements.get(node)
    if replacement is not None:
        for made in (
            (replacement,) if isinstance(replacement, cst.CSTNode) else replacement
        ):
            origins.inherit(made, node)
        return replacement
    if isinstance(node, _SHARED):
        return node
    cls = type(node)
    names = _field_names.get(cls)
    if names is None:
        names = _field_names[cls] = tuple(f.name for f in fields(cls))
    made = object.__new__(cls)
    # NOTE: the fields are set without the checks of `__init__`: a copy of a valid node with
    # nodes of the same kind replaced is valid, and the checks cost more than the copy.
    for name in names:
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            value = _clone(value, origins, replacements)
        elif type(value) in (list, tuple):
            value = _clone_sequence(value, origins, replacements)
        object.__setattr__(made, name, value)
    origin = origins.get(node)
    if origin is not None:
        origins.table[made] = origin
    return made


def _clone_sequence(
    nodes: Iterable[cst.CSTNode], origins: Origins, replacements: Replacements
) -> tuple[cst.CSTNode, ...]:
    made: list[cst.CSTNode] = []
    for node in nodes:
        copy = _clone(node, origins, replacements)
        if isinstance(copy, cst.CSTNode):
            made.append(copy)
        else:
            made.extend(copy)
    return tuple(made)


def on_one_line(node: Node, origins: Origins) -> Node:
    """Returns `node`, or a copy of it, without line breaks between its tokens.

    An expression that spans lines inside brackets cannot stand outside of them as it is.
    """
    breaks: dict[cst.CSTNode, cst.CSTNode | Sequence[cst.CSTNode]] = {}
    pending: list[cst.CSTNode] = [node]
    while pending:
        here = pending.pop()
        if isinstance(here, cst.ParenthesizedWhitespace):
            breaks[here] = cst.SimpleWhitespace(" ")
        else:
            pending += here.children
    return clone(node, origins, breaks) if breaks else node
