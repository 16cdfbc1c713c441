"""The parts of a libcst node, fast.

`CSTNode.children` rebuilds the node to find them. The passes ask for the parts of every
node many times over, so here each class is looked at once: which attributes hold nodes, in
the order of the text. What is never anything but white space, punctuation or an operator is
left out, since it has no names, no origin and no parts that do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import libcst as cst

_BARE = (
    cst.BaseParenthesizableWhitespace,
    cst.TrailingWhitespace,
    cst.EmptyLine,
    cst.Newline,
    cst.Comment,
    cst.BaseUnaryOp,
    cst.BaseBinaryOp,
    cst.BaseBooleanOp,
    cst.BaseCompOp,
    cst.BaseAugOp,
    cst.AssignEqual,
    cst.LeftParen,
    cst.RightParen,
    cst.LeftSquareBracket,
    cst.RightSquareBracket,
    cst.LeftCurlyBrace,
    cst.RightCurlyBrace,
    cst.Comma,
    cst.Colon,
    cst.Dot,
    cst.Semicolon,
)


class _Kinds(dict[type, bool]):
    """Whether a class is that of a node with something in it."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, cst.CSTNode) and not issubclass(kind, _BARE)
        return self[kind]


class _Attributes(cst.CSTTransformer):
    """Notes the attributes of one node in the order in which libcst visits them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        return False

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        return original_node

    def on_visit_attribute(self, node: cst.CSTNode, attribute: str) -> None:
        self.names.append(attribute)


_kinds = _Kinds()
_attributes: dict[type, tuple[str, ...]] = {}


def _attributes_of(node: cst.CSTNode) -> tuple[str, ...]:
    visitor = _Attributes()
    node._visit_and_replace_children(visitor)
    # The one attribute that libcst passes by where it is None.
    if hasattr(node, "format_spec"):
        visitor.names.append("format_spec")
    names = tuple(
        name
        for name in dict.fromkeys(visitor.names)
        if "whitespace" not in name and name not in _WITHOUT_PARTS
    )
    _attributes[type(node)] = names
    return names


_WITHOUT_PARTS = frozenset(
    "lpar rpar lbracket rbracket lbrace rbrace comma semicolon operator equal dot "
    "leading_lines lines_after_decorators header footer indent newline".split()
)
# NOTE: `operator` of a `ComparisonTarget` and `equal` of an f-string's `{x=}` are punctuation,
# too. `lines` of white space is never reached.


def parts(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Returns the nodes right below `node`, in the order of the text.

    White space, punctuation and operators are left out.
    """
    found: list[cst.CSTNode] = []
    names = _attributes.get(type(node))
    for name in _attributes_of(node) if names is None else names:
        value = getattr(node, name)
        kind = type(value)
        if kind is tuple or kind is list:
            for item in value:
                if _kinds[type(item)]:
                    found.append(item)
        elif _kinds[kind]:
            found.append(value)
    return found


def subtree(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yields `node` and all nodes below it, in no order that means anything."""
    pending = [node]
    while pending:
        here = pending.pop()
        yield here
        pending += parts(here)
