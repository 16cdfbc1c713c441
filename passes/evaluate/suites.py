"""The statement lists of compound statements.

if x: a = 1; b = 2        is evaluated as       if x:
                                                    a = 1
                                                    b = 2
"""

from __future__ import annotations

import weakref
from typing import Any

import libcst as cst

from srcjit.nodes import subtree
from srcjit.origin import Origins
from srcjit.source import FunctionSource

_expanded: weakref.WeakKeyDictionary[FunctionSource, cst.FunctionDef] = (
    weakref.WeakKeyDictionary()
)
# NOTE: one source must give the same nodes each time, since origins know them by identity.


def expanded(source: FunctionSource) -> cst.FunctionDef:
    """Returns the definition with one small statement a line and every suite indented."""
    tree = _expanded.get(source)
    if tree is None:
        tree = source.tree
        if any(map(_shares_line, subtree(tree))):
            made = tree.visit(_Expand(source.origins))
            assert isinstance(made, cst.FunctionDef)
            tree = made
        _expanded[source] = tree
    return tree


def _shares_line(node: cst.CSTNode) -> bool:
    """Whether `node` holds statements that stand on one line with something else."""
    if isinstance(node, cst.SimpleStatementLine):
        return len(node.body) != 1
    return isinstance(node, cst.SimpleStatementSuite)


class _Expand(cst.CSTTransformer):
    def __init__(self, origins: Origins) -> None:
        super().__init__()
        self.origins = origins

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        made = super().on_leave(original_node, updated_node)
        if made is not original_node and isinstance(made, cst.CSTNode):
            origin = self.origins.get(original_node)
            if origin is not None:  # what is below has been given its own
                self.origins.table.setdefault(made, origin)
        return made

    def leave_SimpleStatementSuite(self, original_node: Any, updated_node: Any) -> Any:
        return cst.IndentedBlock(self._lines(updated_node.body))

    def leave_SimpleStatementLine(self, original_node: Any, updated_node: Any) -> Any:
        if len(updated_node.body) == 1:
            return updated_node
        return cst.FlattenSentinel(self._lines(updated_node.body))

    def _lines(self, body: Any) -> list[cst.SimpleStatementLine]:
        lines = []
        for small in body:
            alone = small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
            line = cst.SimpleStatementLine([alone])
            for new in (alone, line):
                self.origins.inherit(new, small)
            lines.append(line)
        return lines


def body_of(node: Any) -> Any:
    """The statements of a compound statement's suite."""
    body = node.body
    return body.body if isinstance(body, cst.IndentedBlock) else body
