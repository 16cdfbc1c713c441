"""Finds the definition in a file that a code object was compiled from, and proves it.

The definitions that stand at the code object's first line are compiled again and compared
with it, so that a file which was edited after the import, or a lambda that shares its line
with others, never yields the wrong text.
"""

from __future__ import annotations
import __future__ as future

import ast
import linecache
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_FRAME_BUILTINS = {"locals", "eval", "exec", "globals"}
_FRAME_BUILTINS_WITHOUT_ARGUMENTS = {"vars", "dir"}
_FRAME_ATTRIBUTES = {
    "_getframe",
    "_current_frames",
    "currentframe",
    "stack",
    "trace",
    "getouterframes",
    "getinnerframes",
    "getframeinfo",
    "print_stack",
    "extract_stack",
    "format_stack",
    "walk_stack",
}
_FRAME_MODULES = {"sys", "inspect", "traceback"}

_FUTURE_FLAGS = 0
for _name in future.all_feature_names:
    _FUTURE_FLAGS |= getattr(future, _name).compiler_flag


class SourceUnavailable(Exception):
    """The function has no source that is certain to be what it runs.

    Attributes:
        reason: One lower-case sentence for the user.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# ── Lines and files ─────────────────────────────────────────────────────────────────


def lines_of(file: str, module_globals: dict[str, object]) -> list[str]:
    """Returns the lines of a file, a notebook cell or a doctest example."""
    linecache.checkcache(file)
    lines = linecache.getlines(file, module_globals)
    if not lines:
        raise SourceUnavailable(f"no source text for code from {file!r}")
    return lines


@dataclass(eq=False)
class Definition:
    """A definition in a file, and the class around it."""

    node: AnyFunction
    class_name: str | None


@dataclass(eq=False)
class SourceFile:
    """The definitions of one file."""

    name: str
    lines: list[str]
    tree: ast.Module
    by_line: dict[int, list[Definition]] = field(default_factory=dict)
    """Definitions by the first line of their code, as far as they were asked for."""
    walked: set[ast.stmt] = field(default_factory=set)
    """Top-level statements whose definitions are in `by_line`."""
    compiled: dict[object, CodeType] = field(default_factory=dict)
    """The code of the file by `__future__` flags (and the line that was marked)."""

    def definitions(self, line: int) -> list[Definition]:
        """Returns the definitions whose code starts at a line."""
        for statement in self.tree.body:
            decorators = getattr(statement, "decorator_list", [])
            first = min([statement.lineno, *(d.lineno for d in decorators)])
            around = first <= line <= (statement.end_lineno or first)
            if around and statement not in self.walked:
                self.walked.add(statement)
                self._collect(ast.Module([statement], []), None)
        return self.by_line.get(line, [])

    def _collect(self, node: ast.AST, class_name: str | None) -> None:
        # In the order of the text, without recursion: `a + b + c + …` nests to the left.
        stack = [(node, class_name)]
        while stack:
            node, class_name = stack.pop()
            if isinstance(node, AnyFunction):
                definition = Definition(node, class_name)
                self.by_line.setdefault(_marked(node).lineno, []).append(definition)
            elif isinstance(node, ast.ClassDef):
                class_name = node.name
            children = list(ast.iter_child_nodes(node))
            stack.extend((child, class_name) for child in reversed(children))

    def codes(
        self, candidates: list[Definition], name: str, flags: int
    ) -> dict[AnyFunction, CodeType]:
        """Compiles the file; returns the code object of each of some definitions.

        The whole file is needed, because the scopes around a function, and what the module
        imports, decide how its names compile. Where several definitions share a line, each
        stands at a line of its own for the length of the compilation, which tells their code
        objects apart.
        """
        if len(candidates) == 1:
            (only,) = candidates
            line = _marked(only.node).lineno
            at_line = (c for c in self._all_codes(flags) if c.co_firstlineno == line)
            found = next((c for c in at_line if c.co_name == name), None)
            return {} if found is None else {only.node: found}
        places = [
            (n := _marked(d.node), n.lineno, n.end_lineno, n.end_col_offset)
            for d in candidates
        ]
        for line, (node, *_) in enumerate(places, _MARK):
            node.lineno = node.end_lineno = line
            node.end_col_offset = max(node.end_col_offset or 0, node.col_offset)
        try:
            codes = self._all_codes(flags, places[0][1])
        finally:
            for node, first, last, column in places:
                node.lineno, node.end_lineno, node.end_col_offset = first, last, column
        by_mark = {code.co_firstlineno: code for code in codes}
        return {
            definition.node: by_mark[line]
            for line, definition in enumerate(candidates, _MARK)
            if line in by_mark
        }

    def _all_codes(self, flags: int, marked: int = 0) -> Iterator[CodeType]:
        key = (flags, marked)
        if key not in self.compiled:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.compiled[key] = compile(
                        self.tree, self.name, "exec", flags=flags, dont_inherit=True
                    )
            except (SyntaxError, ValueError) as error:
                raise SourceUnavailable(
                    f"{self.name!r} does not compile: {error}"
                ) from error
        return _codes(self.compiled[key])


_MARK = 10_000_000


def _marked(node: AnyFunction) -> ast.expr | AnyFunction:
    """Returns the node whose line becomes `co_firstlineno` of the code of `node`."""
    if isinstance(node, ast.Lambda) or not node.decorator_list:
        return node
    return node.decorator_list[0]


_MAX_FILES = 16
_files: OrderedDict[str, SourceFile] = OrderedDict()


def parsed_file(name: str, lines: list[str]) -> SourceFile:
    """Parses a file with `ast`, which is fast and knows exactly what stands where."""
    parsed = _files.get(name)
    if parsed is None or (parsed.lines is not lines and parsed.lines != lines):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse("".join(lines), filename=name)
        except (SyntaxError, ValueError) as error:
            raise SourceUnavailable(f"{name!r} does not parse: {error}") from error
        parsed = _files[name] = SourceFile(name, lines, tree)
        if len(_files) > _MAX_FILES:
            _files.popitem(last=False)
    _files.move_to_end(name)
    return parsed


# ── Finding and proving ─────────────────────────────────────────────────────────────


def locate(file: SourceFile, code: CodeType) -> Definition:
    """Finds the definition in `file` that compiles to `code`."""
    is_lambda = code.co_name == "<lambda>"
    candidates = [
        d
        for d in file.definitions(code.co_firstlineno)
        if (
            isinstance(d.node, ast.Lambda)
            if is_lambda
            else _name_of(d.node) == code.co_name
        )
    ]
    codes = {}
    if candidates:
        codes = file.codes(candidates, code.co_name, code.co_flags & _FUTURE_FLAGS)
    proved = [
        d for d in candidates if d.node in codes and _same_code(codes[d.node], code)
    ]
    if not proved:
        # pytest rewrites `assert` in test modules: the text is right although the code
        # differs. Several on one line cannot be told apart then.
        rewritten = "@py_builtins" in code.co_names and len(candidates) == 1
        if rewritten and _parameters(candidates[0].node) <= set(code.co_varnames):
            return candidates[0]
        name = "lambda" if is_lambda else f"`{code.co_name}`"
        raise SourceUnavailable(
            f"{file.name!r} does not hold {name} at line {code.co_firstlineno} as it was "
            "compiled; the file was edited after the import, or the code was generated"
        )
    for definition in proved:
        if _same_columns(codes[definition.node], code):
            return definition
    return proved[0]


def _name_of(node: AnyFunction) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _parameters(node: AnyFunction) -> set[str]:
    given = node.args
    every = [
        *given.posonlyargs,
        *given.args,
        *given.kwonlyargs,
        given.vararg,
        given.kwarg,
    ]
    return {argument.arg for argument in every if argument is not None}


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


_COMPARED = (
    "co_name",
    "co_code",
    "co_names",
    "co_varnames",
    "co_freevars",
    "co_cellvars",
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_flags",
)


def _same_code(left: CodeType, right: CodeType) -> bool:
    """Tells whether two code objects do the same, wherever they stand."""
    if any(getattr(left, name) != getattr(right, name) for name in _COMPARED):
        return False
    return _same_constant(left.co_consts, right.co_consts)


def _same_constant(left: object, right: object) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, CodeType):
        return _same_code(left, right)  # type: ignore[arg-type]
    if isinstance(left, tuple):
        assert isinstance(right, tuple)
        return len(left) == len(right) and all(map(_same_constant, left, right))
    if isinstance(left, frozenset):
        assert isinstance(right, frozenset)
        return sorted(map(repr, left)) == sorted(map(repr, right))
    return repr(left) == repr(right)  # tells 0.0 from -0.0, and nan is nan


def _same_columns(left: CodeType, right: CodeType) -> bool:
    """Compares columns, which tell apart equal lambdas on one line (from Python 3.11)."""
    if not hasattr(left, "co_positions"):
        return False

    def columns(code: Any) -> list[tuple[int | None, int | None]]:
        # The first instructions stand at the marked line, so their columns are left out.
        return [position[2:] for position in code.co_positions() if position[2]]

    return columns(left) == columns(right)


# ── Frames ──────────────────────────────────────────────────────────────────────────


def uses_frames(node: AnyFunction) -> bool:
    """Tells whether the function calls, by name, what looks at frames or runs text."""
    return any(_looks_at_frames(n) for n in ast.walk(node) if isinstance(n, ast.Call))


def _looks_at_frames(call: ast.Call) -> bool:
    called = call.func
    if isinstance(called, ast.Name):
        if called.id in _FRAME_BUILTINS_WITHOUT_ARGUMENTS:
            return not call.args
        return called.id in _FRAME_BUILTINS | (_FRAME_ATTRIBUTES - {"stack", "trace"})
    return (
        isinstance(called, ast.Attribute)
        and called.attr in _FRAME_ATTRIBUTES
        and isinstance(called.value, ast.Name)
        and called.value.id in _FRAME_MODULES
    )
