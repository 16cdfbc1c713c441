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

    Attributes:
        table: The origin of each node.
        parsed: What a function's text gave, which lives as long as the function; then `table`
            holds only what one compilation has made.
    """

    table: dict[cst.CSTNode, Origin] = field(default_factory=dict)
    parsed: Origins | None = None

    def for_compilation(self) -> Origins:
        """Returns origins that begin with these; what is added goes with the compilation."""
        return Origins(parsed=self) if self.parsed is None else self

    def get(self, node: cst.CSTNode) -> Origin | None:
        """Returns the origin of `node`, or None for a node that no user wrote."""
        found = self.table.get(node)
        if found is None and self.parsed is not None:
            return self.parsed.table.get(node)
        return found

    def inherit(self, new: cst.CSTNode, old: cst.CSTNode) -> cst.CSTNode:
        """Gives `new` and those below it that have none the origin of `old`; returns `new`."""
        origin = self.get(old)
        if origin is not None:
            for part in subtree(new):
                if self.get(part) is None:
                    self.table[part] = origin
        return new
