"""What the compiler has to tell the user: codes, diagnostics and their text.

Every message about a user's program is a `Diagnostic`. Its code stands in one table
(`CODES`); `render` prints it the way rustc prints its own:

    graph break[SJ012]: call to `print` has a side effect
      --> model.py:14:5
       |
    14 |     print(h.mean())
       |     ^^^^^^^^^^^^^^^
       = help: move the call out of the function, or behind its last tensor operation

There are three classes of trouble, and one exception for each: `UserError` (srcjit was
used in a way that cannot mean anything), `GraphBreak` (a limitation: Python runs the
statement) and `CompilerFault` (a bug in srcjit: Python runs the function).

This module knows no torch, so that the passes that work on text alone can use it.
"""

from __future__ import annotations

import linecache
import os
import unicodedata
from dataclasses import dataclass

from srcjit.origin import Origin

TAB = "    "
"""What a tab in a source line is printed as (rustc's choice)."""

SPAN_LINES = 6
"""A span of more lines than this is printed with its middle left out."""


@dataclass(frozen=True)
class CodeInfo:
    """One row of the table of codes.

    Attributes:
        code: `SJ` and three digits.
        title: What happened, in a few words.
        explanation: Why the compiler stops there, and what it does instead.
        hint: What a user can do about it; printed where a diagnostic has no hint of its own.
    """

    code: str
    title: str
    explanation: str
    hint: str

    @property
    def section(self) -> str:
        """The section of the documentation about this code."""
        return f"docs/breaks.md#{self.code.lower()}"


def _table(*rows: CodeInfo) -> dict[str, CodeInfo]:
    return {row.code: row for row in rows}


CODES: dict[str, CodeInfo] = _table(
    CodeInfo(
        "SJ001",
        "no source",
        "srcjit rewrites source, and this function's source cannot be found: it was made "
        "by `exec`, typed at a bare prompt, or its file has changed since it was loaded. "
        "Python runs the function.",
        "define the function in a file, a notebook cell or a doctest",
    ),
    CodeInfo(
        "SJ002",
        "generator or coroutine",
        "A generator or coroutine runs in pieces that its caller asks for, so there is no "
        "single run to trace. Python runs it; functions that it calls may be jitted.",
        "return a list, or jit the function that does the tensor work",
    ),
    CodeInfo(
        "SJ003",
        "looks at its own frame",
        "`locals()`, `eval`, `exec`, `sys._getframe` and `inspect.stack` can see variables "
        "and frames that a rewritten function does not have. Python runs the function.",
        "pass the values that are needed as arguments",
    ),
    CodeInfo(
        "SJ010",
        "call of a function without source",
        "The callee is written in C, or its source cannot be found, and it is not known to "
        "be free of side effects. Python calls it; tracing goes on behind the call.",
        "if the call is only made of tensor operations, mark it with `srcjit.allow_in_graph`",
    ),
    CodeInfo(
        "SJ012",
        "call with a side effect",
        "The call writes to the screen, a file or a log, reads a clock, or changes "
        "something that the compiler cannot see. Python makes the call at its place in the "
        "program, once for each time that the program reaches it.",
        "move the call out of the function, or behind its last tensor operation",
    ),
    CodeInfo(
        "SJ013",
        "call of a disabled function",
        "The callee is marked with `srcjit.disable` or `torch.compiler.disable`. Python "
        "calls it as it is.",
        "remove the mark, or move the call to an end of the function",
    ),
    CodeInfo(
        "SJ014",
        "recursion too deep to inline",
        "Inlining the call would go deeper than the limit. The callee is called through its "
        "own dispatch stub instead.",
        "write the recursion as a loop, or make its depth known and small",
    ),
    CodeInfo(
        "SJ015",
        "call in a form that is not evaluated",
        "The compiler knows what is called, but has no rule for this use of it: a copy of an "
        "object of the user's, a class that is made at run time, a module with backward hooks. "
        "Python makes the call; tracing goes on behind it.",
        "move the call out of the function, or mark what it does as one operation with "
        "`srcjit.allow_in_graph`",
    ),
    CodeInfo(
        "SJ020",
        "operation that cannot be followed",
        "An operand was computed by Python while the program ran and nothing is known about "
        "it, or code that the compiler does not look into decides what the operation means. "
        "Python does it.",
        "pass the value as an argument, or keep it in a plain attribute",
    ),
    CodeInfo(
        "SJ021",
        "store that cannot be tracked",
        "The statement stores to an attribute or item of an object that runs code of its "
        "own on a store, or about which nothing is known. Python does the store.",
        "store once, at the end of the function",
    ),
    CodeInfo(
        "SJ030",
        "statement raises while it is traced",
        "The statement raised an exception on the abstract values. It is rolled back and "
        "left to Python, which raises the real exception at the real place if there is one.",
        "if the program is right, please report it: the traced operation should have run",
    ),
    CodeInfo(
        "SJ031",
        "raise statement",
        "The program reaches a `raise`. Python raises, so that the traceback and the "
        "exception's context are its own.",
        "check the arguments before the function is called",
    ),
    CodeInfo(
        "SJ032",
        "operation that warns",
        "The operation warned when it was tried. Python does it, so that the warning comes "
        "at the user's line and as often as without a compiler.",
        "write the operation in the way that the warning asks for",
    ),
    CodeInfo(
        "SJ040",
        "unsupported syntax",
        "The compiler has no rule for this construct. Python runs the statement.",
        "write it with plainer statements if it stands between tensor operations",
    ),
    CodeInfo(
        "SJ041",
        "loop over an unknown iterable",
        "How often the loop runs is only known when it runs, so it cannot be unrolled. The "
        "loop stays a loop, and its body is compiled as a function of its own.",
        "loop over a `range`, list or tuple that is known when the function is called",
    ),
    CodeInfo(
        "SJ042",
        "loop too long to unroll with a break in it",
        "The body contains a graph break and the loop runs so often that unrolling it would "
        "make a program of thousands of pieces. The loop stays a loop, and its body is "
        "compiled as a function of its own.",
        "move the statement that breaks out of the loop",
    ),
    CodeInfo(
        "SJ043",
        "unknown context manager",
        "`with` enters an object whose methods the compiler cannot look into. The `with` "
        "stays, and its body is compiled as a function of its own.",
        "open files and take locks outside the function",
    ),
    CodeInfo(
        "SJ044",
        "try whose body breaks or may raise",
        "Only Python can raise into the user's handlers, so a `try` whose body breaks or may "
        "raise stays, and its blocks are compiled as functions of their own.",
        "keep only the statement that can raise inside the `try`",
    ),
    CodeInfo(
        "SJ050",
        "closure variable rebound after capture",
        "A nested function that captured this variable has escaped to Python and the "
        "variable is bound again. Both must go on sharing it, and here it cannot be kept in "
        "a list that both have. Python runs the function.",
        "give the variable that is bound later another name",
    ),
    CodeInfo(
        "SJ051",
        "import in a function",
        "The first `import` of a module runs that module, which can do anything. Python "
        "runs the statement.",
        "move the import to the top of the file",
    ),
    CodeInfo(
        "SJ101",
        "branch on tensor data",
        "Which way the program goes depends on numbers inside a tensor. Python decides; "
        "each way is compiled when it is first taken.",
        "use `torch.where` to keep both ways in one segment",
    ),
    CodeInfo(
        "SJ102",
        "loop condition on tensor data",
        "How often the `while` runs depends on numbers inside a tensor. The loop stays a "
        "loop, and its body is compiled as a function of its own.",
        "run a fixed number of steps where the result allows it",
    ),
    CodeInfo(
        "SJ103",
        "tensor value read by Python",
        "`.item()`, `float()`, `.tolist()`, `.numpy()` and the like need the numbers "
        "themselves, so everything before must have run.",
        "keep the value in a tensor as long as possible",
    ),
    CodeInfo(
        "SJ104",
        "output shape depends on data",
        "How large the result is depends on numbers inside a tensor (`nonzero`, a boolean "
        "mask, `unique`). Python makes the call, and the rest is compiled for the size that "
        "arrived.",
        "use `torch.where` or a mask multiplication, which keep the shape",
    ),
    CodeInfo(
        "SJ105",
        "tensor operation that cannot run on fake tensors",
        "PyTorch has no meta function for this operation, so its result's shape cannot be "
        "found without running it. Python runs it.",
        "register a fake implementation with `torch.library.register_fake`",
    ),
    CodeInfo(
        "SJ110",
        "tensor subclass or foreign mode",
        "A tensor subclass, a `__torch_function__` or `__torch_dispatch__` mode, or a "
        "functorch transform changes what every operation means. Python runs the function.",
        "jit the function inside the transform, or pass plain tensors",
    ),
    CodeInfo(
        "SJ120",
        "explicit graph break",
        "The program asks for it with `srcjit.graph_break()`.",
        "remove the call of `graph_break`",
    ),
    CodeInfo(
        "SJ900",
        "compiler fault",
        "srcjit itself failed. Python ran the function, so the result is right; only speed is lost.",
        "please report it, with the output of `srcjit bisect` on your script",
    ),
)


@dataclass(frozen=True)
class Diagnostic:
    """One thing to tell the user about one place in the program.

    Attributes:
        code: A key of `CODES`.
        message: One lower-case sentence without a full stop.
        origin: The smallest range that the message is about, or None.
        notes: Context, each printed behind `note:`.
        hint: What to do, printed behind `help:`; the table's hint if empty.
    """

    code: str
    message: str
    origin: Origin | None = None
    notes: tuple[str, ...] = ()
    hint: str = ""

    @property
    def info(self) -> CodeInfo:
        """The table's row for this code."""
        return CODES[self.code]

    @property
    def severity(self) -> str:
        """`"compiler fault"` for a bug in srcjit, `"graph break"` for a limitation."""
        return "compiler fault" if self.code.startswith("SJ9") else "graph break"

    @property
    def place(self) -> str:
        """`file:line:column` with the column from 1, or an empty string."""
        if self.origin is None:
            return ""
        origin = self.origin
        return f"{_short_path(origin.file)}:{origin.line}:{origin.column + 1}"

    def __str__(self) -> str:
        where = f"{self.place}: " if self.origin is not None else ""
        return f"{where}{self.severity}[{self.code}]: {self.message}"


class GraphBreak(Exception):
    """Tracing cannot go past a statement; Python will run it.

    Raised and caught inside the compiler. `diagnostic` says what and where.
    """

    def __init__(
        self,
        code: str,
        message: str,
        origin: Origin | None = None,
        notes: tuple[str, ...] = (),
        hint: str = "",
    ) -> None:
        super().__init__(code, message, origin, notes, hint)
        self.diagnostic = Diagnostic(code, message, origin, tuple(notes), hint)

    def __str__(self) -> str:
        return str(self.diagnostic)


class UserError(Exception):
    """srcjit was asked for something that has no meaning; the text says what to do."""


class CompilerFault(Exception):
    """srcjit itself failed; `diagnostic` says on which of the user's lines, if known."""

    def __init__(
        self, message: str, origin: Origin | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, origin, notes)
        self.diagnostic = Diagnostic("SJ900", message, origin, tuple(notes))

    def __str__(self) -> str:
        return str(self.diagnostic)


class GraphBreakError(RuntimeError):
    """A graph break under `fullgraph=True`."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic)
        self.diagnostic = diagnostic

    def __str__(self) -> str:
        return "`fullgraph=True` allows no graph break\n" + render(self.diagnostic)


# ANSI sequences, in rustc's colours: the heading is red and bold, the frame blue.
_RESET, _BOLD, _RED, _YELLOW, _BLUE = (
    "\x1b[0m",
    "\x1b[1m",
    "\x1b[1;31m",
    "\x1b[1;33m",
    "\x1b[1;34m",
)


def render(diagnostic: Diagnostic, color: bool = False) -> str:
    """Returns the diagnostic as rustc would print it, without a final newline.

    Args:
        diagnostic: What to print.
        color: Whether to add ANSI colours.
    """

    def paint(text: str, style: str) -> str:
        return f"{style}{text}{_RESET}" if color else text

    style = _RED if diagnostic.severity == "compiler fault" else _YELLOW
    heading = paint(f"{diagnostic.severity}[{diagnostic.code}]", style)
    lines = [heading + paint(f": {diagnostic.message}", _BOLD)]
    width = 2
    if diagnostic.origin is not None:
        excerpt = _excerpt(diagnostic.origin)
        if excerpt:
            width = max(len(number) for number, _, _ in excerpt if number != "...")
        lines.append(" " * width + paint("--> ", _BLUE) + diagnostic.place)
        if excerpt:
            lines.append(paint(" " * width + " |", _BLUE))
        for number, text, marks in excerpt:
            gutter = f"{number:>{width}} | " if number != "..." else f"...{' ' * width}"
            body = paint(text, style) if marks else text
            lines.append((paint(gutter, _BLUE) + body).rstrip())
    for kind, texts in (("note", diagnostic.notes), ("help", (_help(diagnostic),))):
        for text in filter(None, texts):
            label = paint(" " * width + " = ", _BLUE) + paint(f"{kind}:", _BOLD)
            indent = "\n" + " " * (width + 3 + len(kind) + 2)
            lines.append(f"{label} {indent.join(text.splitlines())}")
    return "\n".join(lines)


def _help(diagnostic: Diagnostic) -> str:
    if diagnostic.hint:
        return diagnostic.hint
    return CODES[diagnostic.code].hint if diagnostic.code in CODES else ""


def _excerpt(origin: Origin) -> list[tuple[str, str, bool]]:
    """Returns rows (line number or "", text, is a row of marks) that show the range."""
    last = max(origin.end_line, origin.line)
    source = {
        number: linecache.getline(origin.file, number).rstrip("\r\n")
        for number in range(origin.line, last + 1)
    }
    if not source[origin.line].strip():
        return []  # The file is gone or has changed: better no line than a wrong one.
    if last == origin.line:
        text = source[last]
        start = min(origin.column, len(text))
        end = origin.end_column if origin.end_line else start
        marks = _spaces(text[:start]) + "^" * max(1, len(_spaces(text[start:end])))
        return [(str(last), _printable(text), False), ("", marks, True)]
    return _multi_line(origin, source, last)


def _multi_line(
    origin: Origin, source: dict[int, str], last: int
) -> list[tuple[str, str, bool]]:
    """Returns the rows of a range over several lines, with rustc's line at the left.

    14 |       x = foo(
       |  _________^
    15 | |         a,
    16 | |     )
       | |_____^
    """
    first = source[origin.line]
    before = _spaces(first[: origin.column])
    rows: list[tuple[str, str, bool]] = []
    if not first[: origin.column].strip():
        rows.append((str(origin.line), "/ " + _printable(first), False))
    else:
        rows.append((str(origin.line), "  " + _printable(first), False))
        rows.append(("", " _" + "_" * len(before) + "^", True))
    numbers = list(range(origin.line + 1, last + 1))
    if len(numbers) >= SPAN_LINES:
        numbers = [*numbers[:2], 0, *numbers[-2:]]
    for number in numbers:
        if number:
            rows.append((str(number), "| " + _printable(source[number]), False))
        else:
            rows.append(("...", "|", False))
    end = _spaces(source[last][: max(origin.end_column - 1, 0)])
    rows.append(("", "|_" + "_" * len(end) + "^", True))
    return rows


def _printable(text: str) -> str:
    return text.replace("\t", TAB)


def _spaces(text: str) -> str:
    """Returns as many spaces as `text` takes columns on a terminal."""
    return " " * sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if character == "\t":
        return len(TAB)
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _short_path(file: str) -> str:
    """Returns `file` relative to the working directory where it lies below it."""
    if not os.path.isabs(file):
        return file
    here = os.getcwd()
    return os.path.relpath(file, here) if file.startswith(here + os.sep) else file
