"""Which line of which file a traceback shows.

The residual program is compiled with the user's file name and lines, so that tracebacks,
coverage and debuggers show the user's program. The emitted text carries them as trailing
comments:

    y = y + 1                     # 21: y = y + 1

Text that is in no file is shown as well: `register_lines` lets Python find it.
"""

from __future__ import annotations

import ast
import io
import linecache
import re
import tokenize
from collections.abc import Mapping
from typing import Any

from srcjit.nodes import subtree
from srcjit.source import FunctionSource

_LINE_COMMENT = re.compile(r"#\s?(\d+)(?:–\d+)?:")


def not_counted(what: str) -> str:
    """Returns a file name for code whose frames are nobody's.

    By two words in it `warnings` and `logging` know frames that they do not count, so that
    `stacklevel=2` is the user's caller.
    """
    return f"<{what}, skipped like importlib._bootstrap>"


def register_lines(file: str, text: str) -> None:
    """Lets tracebacks and `inspect` find `text` under `file`, whether or not it exists."""
    # NOTE: an entry without a modification time is never dropped by `checkcache`.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)


def commented_lines(text: str, node: ast.FunctionDef) -> dict[int, int]:
    """Returns the user's line for each line of `node` that ends in a comment `# 21: …`."""
    assert node.end_lineno is not None
    rows = text.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno]
    found = {}
    for token in tokenize.generate_tokens(io.StringIO("".join(rows)).readline):
        if token.type == tokenize.COMMENT:
            match = _LINE_COMMENT.match(token.string)
            if match:
                found[token.start[0] + node.lineno - 1] = int(match[1])
    return found


def origin_lines(source: FunctionSource) -> dict[int, int]:
    """Returns the user's line for each line of `source.text`."""
    _, positions = source.printed
    found: dict[int, int] = {}
    for node in subtree(source.tree):
        origin = source.origins.get(node)
        if origin is not None and origin.file == source.file:
            line = positions[node].start.line
            found[line] = min(origin.line, found.get(line, origin.line))
    return found


def move_to_origins(
    node: ast.FunctionDef,
    file: str,
    first_line: int,
    lines: Mapping[int, int],
    text: str,
) -> None:
    """Gives every node below `node` the user's line.

    A line that has no origin of its own belongs to the one before it. Columns are kept
    where the line reads as the user wrote it, and left out otherwise, so that a traceback
    never underlines the wrong words.
    """
    assert node.end_lineno is not None
    rows = text.splitlines()
    line_of: dict[int, int] = {}
    shift_of: dict[int, int | None] = {}
    current = first_line
    for line in range(node.lineno, node.end_lineno + 1):
        current = lines.get(line, current)
        line_of[line] = current
        shift_of[line] = _column_shift(rows[line - 1], linecache.getline(file, current))
    parts: list[Any] = [part for part in ast.walk(node) if hasattr(part, "lineno")]
    for part in parts:
        start, end = part.lineno, part.end_lineno or part.lineno
        shift, end_shift = shift_of[start], shift_of[end]
        part.lineno = line_of[start]
        part.end_lineno = max(part.lineno, line_of[end])
        if shift is None or end_shift is None or part.end_lineno != line_of[end]:
            part.col_offset = part.end_col_offset = -1
        else:
            part.col_offset += shift
            part.end_col_offset += end_shift
    node.lineno = first_line
    node.end_lineno = max(first_line, node.end_lineno or first_line)
    node.col_offset = node.end_col_offset = -1


def _column_shift(emitted: str, written: str) -> int | None:
    """Says by how much the columns of `written` differ, or None if the text does."""
    code = re.sub(r"\s*#\s?\d+(–\d+)?:.*$", "", emitted)
    stripped = code.strip()
    if not stripped or written.split("#", 1)[0].strip() != stripped:
        return None
    return (len(written) - len(written.lstrip())) - (len(code) - len(code.lstrip()))
