"""Finds the source of a function: its text, its tree, and where every node stands.

Imports without torch.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any

import libcst as cst
from libcst.metadata import CodeRange, PositionProvider
from libcst.metadata.position_provider import PositionProvidingCodegenState

from srcjit.locate import (
    SourceUnavailable,
    lines_of,
    locate,
    parsed_file,
    uses_frames,
)
from srcjit.nodes import subtree
from srcjit.origin import Origin, Origins

__all__ = ["FunctionSource", "SourceUnavailable", "find_source"]


Positions = Mapping[cst.CSTNode, CodeRange]


_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


@dataclass(frozen=True, eq=False)
class FunctionSource:
    """The definition of one function.

    Attributes:
        name: The name that `tree` defines; an identifier, also for a lambda.
        qualname: Qualified name as users see it.
        file: File name as the code object has it.
        first_line: Line of `def` (or `lambda`) in `file`, from 1.
        tree: The definition without its decorators; a lambda is a `def` with a `return`,
            and `super()` is spelled out, so that each statement may move to another function.
        origins: Where each statement and expression of `tree` stands.
        freevars: Names that live in closure cells.
        class_name: The class around it, by which `__x` is mangled, or None.
        uses_frames: It calls `locals`, `eval`, `sys._getframe` or the like, by name.
        is_generator: It has a `yield` of its own.
        is_async: It is declared with `async def`.
        scope: Qualified name of the user's function that its statements come from, where
            that is not `qualname`.
    """

    name: str
    qualname: str
    file: str
    first_line: int
    tree: cst.FunctionDef
    origins: Origins
    freevars: tuple[str, ...] = ()
    class_name: str | None = None
    uses_frames: bool = False
    is_generator: bool = False
    is_async: bool = False
    scope: str = ""

    @property
    def locals_name(self) -> str:
        """What the qualified names of functions and classes defined in it begin with."""
        around = self.scope or self.qualname
        # Python counts a comprehension's function in, but has no locals of it.
        return around if around.endswith(_COMPREHENSIONS) else f"{around}.<locals>"

    @cached_property
    def printed(self) -> tuple[str, Positions]:
        """The text of the definition, and where each node of `tree` stands in it."""
        return printed(cst.Module([self.tree]))

    @property
    def text(self) -> str:
        """The text of the definition, not indented."""
        return self.printed[0]

    @cached_property
    def sha256(self) -> str:
        """Hex digest of `text`."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @classmethod
    def from_tree(
        cls,
        name: str,
        tree: cst.FunctionDef,
        origins: Origins,
        *,
        file: str,
        freevars: tuple[str, ...] = (),
        qualname: str | None = None,
        first_line: int | None = None,
        class_name: str | None = None,
        scope: str = "",
    ) -> FunctionSource:
        """Wraps a definition that a pass has written.

        Its first line is that of the first statement with an origin, unless it is given.
        """
        if first_line is None:
            origin = next(_found_origins(tree, origins), None)
            first_line = origin.line if origin else 1
        return cls(
            name=name,
            qualname=qualname or name,
            file=file,
            first_line=first_line,
            tree=tree,
            origins=origins,
            freevars=freevars,
            class_name=class_name,
            scope=scope,
        )


def _found_origins(tree: cst.FunctionDef, origins: Origins) -> Iterator[Origin]:
    for statement in tree.body.body:
        origin = origins.get(statement)
        if origin is not None:
            yield origin


# ── The cache ───────────────────────────────────────────────────────────────────────

_sources: dict[int, tuple[weakref.ref[CodeType], FunctionSource]] = {}
# NOTE: keyed by id. Code objects compare by value and ignore the file name, so equal text in
# two files would share an entry in a WeakKeyDictionary.


def find_source(function: FunctionType) -> FunctionSource:
    """Finds the definition that `function` was compiled from.

    Args:
        function: A Python function. Wrappers are not unwrapped.

    Returns:
        The same object each time for one code object.

    Raises:
        SourceUnavailable: There is no text for it, or the text is no longer what it runs.
    """
    code = function.__code__
    entry = _sources.get(id(code))
    if entry is not None and entry[0]() is code:
        return entry[1]
    source = _find(function, code)
    key = id(code)
    # NOTE: when Python exits, the module's variables may be gone before the code is.
    forget = functools.partial(_sources.pop, key)
    _sources[key] = (weakref.ref(code, lambda _: forget(None)), source)
    return source


def _find(function: FunctionType, code: CodeType) -> FunctionSource:
    lines = lines_of(code.co_filename, function.__globals__)
    found = locate(parsed_file(code.co_filename, lines), code)
    if isinstance(found.node, ast.Lambda):
        name = f"lambda_{found.node.lineno}"
        tree, origins = _lambda_as_def(
            found.node, name, lines, function.__qualname__, code
        )
    else:
        name = found.node.name
        tree, origins = _parse_def(found.node, lines, function.__qualname__, code)
    return FunctionSource(
        name=name,
        qualname=function.__qualname__,
        file=code.co_filename,
        first_line=found.node.lineno,
        tree=tree,
        origins=origins,
        freevars=code.co_freevars,
        class_name=found.class_name,
        # A decorator may have given it another name, but not what is defined in it.
        scope=getattr(code, "co_qualname", ""),
        uses_frames=uses_frames(found.node),
        is_generator=bool(
            code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR)
        ),
        is_async=bool(
            code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)
        ),
    )


# ── Trees ───────────────────────────────────────────────────────────────────────────

_CONFIG = cst.PartialParserConfig(default_indent="    ")


def _parse_def(
    node: ast.FunctionDef | ast.AsyncFunctionDef,
    lines: list[str],
    qualname: str,
    code: CodeType,
) -> tuple[cst.FunctionDef, Origins]:
    first = node.lineno
    text = "".join(lines[first - 1 : node.end_lineno])
    if not text.endswith("\n"):
        text += "\n"
    # NOTE: an indented definition is parsed under a header of its own rather than dedented,
    # because dedenting would change strings that span lines.
    indented = text[0] in " \t\f"
    module = _parse_module("if True:\n" + text if indented else text, code)
    shift = first - 2 if indented else first - 1
    statement = module.body[0]
    if indented:
        assert isinstance(statement, cst.If)
        statement = statement.body.body[0]  # type: ignore[assignment]
    assert isinstance(statement, cst.FunctionDef)
    origins = Origins()
    tree = statement.with_changes(
        decorators=(), leading_lines=(), lines_after_decorators=()
    )
    _record(module, statement, origins, code.co_filename, qualname, shift, 0)
    origins.table[tree] = origins.table[statement]
    del origins.table[statement]
    if "__class__" in code.co_freevars:
        tree = _with_explicit_super(tree, origins)
    return tree, origins


class _ZeroArgumentSuper(cst.CSTTransformer):
    """Spells out `super()` where it means the method itself, not a function in it."""

    def __init__(self, first: str, origins: Origins) -> None:
        self.first = first
        self.origins = origins

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def on_leave(self, original: cst.CSTNode, updated: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
        if isinstance(updated, cst.Call) and not updated.args:
            called = updated.func
            if isinstance(called, cst.Name) and called.value == "super":
                names = (cst.Name("__class__"), cst.Name(self.first))
                updated = updated.with_changes(args=[cst.Arg(name) for name in names])
        if updated is not original:
            self.origins.inherit(updated, original)
        return updated


def _with_explicit_super(tree: cst.FunctionDef, origins: Origins) -> cst.FunctionDef:
    """Writes `super()` as `super(__class__, self)`, which may move to another function."""
    given = [*tree.params.posonly_params, *tree.params.params]
    if not given:
        return tree
    body = tree.body.visit(_ZeroArgumentSuper(given[0].name.value, origins))
    if body is tree.body:
        return tree
    made = tree.with_changes(body=body)
    origins.table[made] = origins.table[tree]
    return made


def _lambda_as_def(
    node: ast.Lambda, name: str, lines: list[str], qualname: str, code: CodeType
) -> tuple[cst.FunctionDef, Origins]:
    text = ast.get_source_segment("".join(lines), node)
    assert text is not None
    column = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
    module = _parse_module(f"({text})\n", code)
    line = module.body[0]
    assert isinstance(line, cst.SimpleStatementLine)
    statement = line.body[0]
    assert isinstance(statement, cst.Expr)
    expression = statement.value
    assert isinstance(expression, cst.Lambda)
    origins = Origins()
    _record(
        module,
        expression,
        origins,
        code.co_filename,
        qualname,
        node.lineno - 1,
        column - 1,
    )
    body = expression.body
    if "\n" in text and not (
        isinstance(body, cst.BaseExpression) and getattr(body, "lpar", None)
    ):
        wrapped = body.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        origins.table[wrapped] = origins.table[body]
        body = wrapped
    returned = cst.SimpleStatementLine([cst.Return(body)])
    tree = cst.FunctionDef(
        name=cst.Name(name),
        params=expression.params,
        body=cst.IndentedBlock([returned]),
    )
    for made in (returned, returned.body[0]):
        origins.inherit(made, body)
    places: list[cst.CSTNode] = [tree, tree.name, tree.body]
    for place in places:
        origins.table[place] = origins.table[expression]
    return tree, origins


def printed(module: cst.Module) -> tuple[str, Positions]:
    """Returns the text of a module and the place of each node in it, printing it once.

    What `MetadataWrapper` does, without the copy and the visits of every node.
    """
    provider = PositionProvider()
    state = PositionProvidingCodegenState(
        default_indent=module.default_indent,
        default_newline=module.default_newline,
        provider=provider,
    )
    module._codegen(state)
    places: dict[cst.CSTNode, Any] = dict(provider._computed)  # none of them lazy
    return "".join(state.tokens), places


def _parse_module(text: str, code: CodeType) -> cst.Module:
    try:
        return cst.parse_module(text, _CONFIG)
    except cst.ParserSyntaxError as error:
        raise SourceUnavailable(
            f"libcst does not parse `{code.co_name}` in {code.co_filename!r}: {error.message}"
        ) from error


def _record(
    module: cst.Module,
    root: cst.CSTNode,
    origins: Origins,
    file: str,
    function: str,
    lines: int,
    columns: int,
) -> None:
    """Records the origin of every node under `root` (see `srcjit.nodes`).

    Args:
        module: What was parsed; each of its nodes occurs once, so it need not be copied.
        root: Node to start from.
        origins: Filled.
        file: The user's file.
        function: Qualified name for the origins.
        lines: Added to each line.
        columns: Added to each column of the first parsed line.
    """
    _, positions = printed(module)
    table = origins.table
    for node in subtree(root):
        place = positions.get(node)
        if place is not None:
            start, end = place.start, place.end
            table[node] = Origin(
                file,
                start.line + lines,
                start.column + columns if start.line == 1 else start.column,
                end.line + lines,
                end.column + columns if end.line == 1 else end.column,
                function,
            )
