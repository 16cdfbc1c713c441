"""Assembles the module of one specialization: header, guards, segments, residual program.

The text is what runs (see `srcjit.load`), so it is also what `srcjit emit` shows. The same
specialization gives the same bytes every time.
"""

from __future__ import annotations

import io
import linecache
import os
import shlex
import tokenize
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Protocol

import torch

from srcjit.options import Options
from srcjit.source import FunctionSource

from .program import Continuation, Native, Residual, SegmentCode, Specialized

WIDTH = 88
_COMMENT_COLUMN = 40


class _Guard(Protocol):
    @property
    def definitions(self) -> str: ...

    @property
    def function(self) -> str: ...

    @property
    def imports(self) -> tuple[str, ...]: ...


def emit_module(
    specialized: Specialized,
    codes: Sequence[SegmentCode],
    guard: _Guard,
    options: Options,
) -> str:
    """Returns the text of the emitted module.

    Args:
        specialized: What the front end made.
        codes: The text of each segment at the stage `options.stage`.
        guard: The guard's text.
        options: The options, for the header.
    """
    parts = [_header(specialized, options), _imports(codes, guard)]
    parts.append(_rule("guards") + "\n" + _joined(guard.definitions, guard.function))
    segments = (*specialized.segments, *specialized.steps)
    for segment, code in zip(segments, codes, strict=True):
        lines = sorted({o.line for o in segment.origins.values()})
        where = f" · {_span(lines)}" if lines else ""
        if segment in specialized.steps:
            where += " · for when the segment fails"
        title = _rule(f"{code.name.replace('_', ' ')}{where}")
        parts.append(title + "\n" + _joined(code.definitions, code.function))
    for native in specialized.natives:
        parts.append(_rule(f"{native.name} · runs with its own module's globals"))
        parts[-1] += "\n" + _commented(native)
    for continuation in specialized.continuations:
        parts.append(_rule(_title(continuation)) + "\n" + _commented(continuation))
    parts.append(_rule("residual program") + "\n" + residual_text(specialized.residual))
    return "\n\n".join(part.rstrip("\n") for part in parts if part.strip()) + "\n"


def _header(specialized: Specialized, options: Options) -> str:
    import srcjit

    source = specialized.source
    place = "/".join(PurePath(source.file).parts[-2:])
    backend = options.backend if isinstance(options.backend, str) else "callable"
    version = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    return (
        f"# srcjit {srcjit.__version__} · {source.qualname}\n"
        f"# from {place}:{source.first_line} (sha256 {source.sha256[:8]}…)\n"
        f"# torch {version} · backend={backend} mode={options.mode or 'default'} "
        f"stage={options.stage}\n"
        f"# reproduce: {_command(source, place, specialized.example)}"
    )


def _command(source: FunctionSource, place: str, example: str | None) -> str:
    """The command that emits a function; what is left of one is emitted with it.

    With arguments at hand only the function is called, and otherwise the script is run. A file of an installed package is no script: its functions are emitted by running the
    program that calls them.
    """
    # What the compiler wrote is reproduced with the function that it is from.
    written = source.scope and source.qualname == source.name
    name = shlex.quote(source.scope if written else source.qualname)
    installed = "site-packages" in source.file or source.file.startswith(_STANDARD)
    if installed or source.file.startswith("<"):
        return f"srcjit emit SCRIPT --fn {name}  # the script that calls it"
    args = f" --args {shlex.quote(example)}" if example is not None else ""
    return f"srcjit emit {place} --fn {name}{args}"


_STANDARD = os.path.dirname(os.__file__) + os.sep


def _imports(codes: Sequence[SegmentCode], guard: _Guard) -> str:
    lines = {line for code in codes for line in code.imports} | set(guard.imports)
    plain = sorted(line for line in lines if line.startswith("import "))
    others = sorted(lines - set(plain))
    return "\n".join([*plain, *others])


def _rule(title: str) -> str:
    head = f"# ── {title} "
    return head + "─" * max(WIDTH - len(head), 3)


def _joined(*texts: str) -> str:
    return "\n\n".join(text.strip("\n") for text in texts if text.strip())


def _span(lines: list[int]) -> str:
    if len(lines) == 1:
        return f"line {lines[0]}"
    return f"lines {lines[0]}–{lines[-1]}"


def _title(continuation: Continuation) -> str:
    kinds = {
        "resume": "the rest of the program, compiled when it is first reached",
        "body": "a body that stays in a native statement, compiled when it is first run",
    }
    return f"{continuation.name} · {kinds.get(continuation.kind, continuation.kind)}"


def _commented(function: Continuation | Native) -> str:
    return "\n".join(
        f"# {line}".rstrip() for line in function.source.text.strip().splitlines()
    )


def residual_text(residual: Residual) -> str:
    """Returns the residual program with the user's line behind each line."""
    lines = residual.text.rstrip("\n").split("\n")
    ends = _comment_lines(residual.text)
    last: Any = None
    for number, origin in residual.line_map.items():
        note = residual.notes.get(number, "")
        if number not in ends or (origin.line == last and not note):
            continue
        last = origin.line
        text = note or linecache.getline(origin.file, origin.line).strip()
        body = lines[number - 1]
        shown = body.strip()
        comment = f"# {origin.line}: {text}" if text != shown else f"# {origin.line}:"
        room = max(WIDTH + 24 - max(len(body), _COMMENT_COLUMN), 20)
        if len(comment) > room:
            comment = comment[: room - 1] + "…"
        lines[number - 1] = f"{body:<{_COMMENT_COLUMN}}  {comment}"
    return "\n".join(lines) + "\n"


def _comment_lines(text: str) -> set[int]:
    """Lines on which a comment may be added: those that do not end inside a string."""
    ends = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NEWLINE, tokenize.NL):
            ends.add(token.start[0])
        elif token.type == tokenize.COMMENT:
            ends.discard(token.start[0])
    return ends
