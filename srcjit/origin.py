"""Where a piece of code came from in the user's program."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from srcjit.nodes import subtree


@dataclass(frozen=True)
class Origin:
    """A range in the user's file.

    Attributes:
        file: File name as the code object has it (not made absolute).
        line: First line, from 1.
        column: First column, from 0.
        end_line: Last line.
        end_column: Column behind the last character.
        function: Qualified name of the function that holds it.
    """

    file: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    function: str = ""


@dataclass
class Origins:
    """Origins of libcst nodes, by identity, for nodes as parsed and nodes made by passes.

    NOTE: a pass that replaces a node calls `inherit(new, old)`, so that every node that
    stands for user code has an origin.
    """

    table: dict[cst.CSTNode, Origin] = field(default_factory=dict)

    def get(self, node: cst.CSTNode) -> Origin | None:
        """Returns the origin of `node`, or None for a node that no user wrote."""
        return self.table.get(node)

    def inherit(self, new: cst.CSTNode, old: cst.CSTNode) -> cst.CSTNode:
        """Gives `new` and those below it that have none the origin of `old`; returns `new`."""
        origin = self.table.get(old)
        if origin is not None:
            for part in subtree(new):
                self.table.setdefault(part, origin)
        return new
