"""Turns the text of an emitted module into functions that run.

One file holds guards, kernels, segments and the residual program. They run in two worlds:

- guards, kernels and segments run with the emitted module's own globals, under the emitted
  file's name, as in any module;
- the residual program is the user's program, so it runs with the globals of the user's
  module and the user's own closure cells. The compiler's names (segments, resume
  functions, constants) reach it as free variables, so nothing is ever written into the
  user's module. It is compiled with the user's file name and lines (`srcjit.lines`).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

from srcjit.diagnostics import CompilerFault
from srcjit.dynamo import opaque
from srcjit.lines import commented_lines, move_to_origins, origin_lines, register_lines
from srcjit.origin import Origin
from srcjit.passes.program import NOT_BOUND
from srcjit.source import FunctionSource
from srcjit.tails import Helpers, Tail, merge_in_handlers, rewrite
from srcjit.tracebacks import merged

_FACTORY, _PLACEHOLDER = "enclosing", "the function"
"""Names that the compiled function and the one around it have while it is compiled."""


@dataclass(frozen=True)
class Loaded:
    """An emitted module, ready to run.

    Attributes:
        guard: Takes the function's parameters one by one; true where the module is valid.
        run: The residual program, with the user's signature.
        tail: How it says what is to be called next, if it does; see `srcjit.tails`.
        namespace: Globals of the emitted module.
        path: Its file.
    """

    guard: FunctionType
    run: FunctionType
    tail: Tail | None
    namespace: dict[str, Any]
    path: Path


def load_module(
    text: str,
    path: Path,
    *,
    guard: str,
    residual: str,
    function: FunctionType,
    origins: Mapping[int, Origin] | None = None,
    segments: Iterable[str] = (),
    names: Mapping[str, Any] | None = None,
    continuations: Collection[str] = (),
    bodies: Collection[str] = (),
    keepers: Collection[str] = (),
    bindings: Mapping[str, Any] | None = None,
    guard_bindings: Mapping[str, Any] | None = None,
    class_name: str | None = None,
    locals_name: str | None = None,
    emitted_lines: bool = False,
) -> Loaded:
    """Loads the text of one emitted module.

    Args:
        text: The module. Its last definition of `residual` is the residual program.
        path: The file that `text` stands in.
        guard: Name of the guard function in it.
        residual: Name of the residual program in it.
        function: The user's function; lends its globals, cells, file and first line.
        origins: For lines of the residual program, from 1, where they came from; without
            it, the trailing comments say.
        segments: Names of the module's functions that the residual program calls.
        names: More objects that the residual program names (constants, resume functions).
        continuations: Those of them that do the rest of the program.
        bodies: Those of them that are bodies of the program's statements.
        keepers: Variables of the program that keep objects until its call ends.
        bindings: Objects that segments and kernels name and text cannot spell.
        guard_bindings: The same for the guard; globals of the guard alone.
        class_name: The class whose private names (`__x`) the residual program mangles.
        locals_name: What the qualified names of what is defined in it begin with.
        emitted_lines: Compile with the emitted file's lines instead of the user's.

    Raises:
        CompilerFault: The text does not define what it should.
    """
    register_lines(str(path), text)
    tree = ast.parse(text, str(path))
    node = next(
        (
            statement
            for statement in reversed(tree.body)
            if isinstance(statement, ast.FunctionDef) and statement.name == residual
        ),
        None,
    )
    if node is None:
        raise CompilerFault(f"emitted module {path} defines no `{residual}`")
    tree.body.remove(node)
    cells = closure_cells(function)
    namespace: dict[str, Any] = {
        "__name__": f"srcjit.emitted.{path.stem}",
        "__file__": str(path),
        **(bindings or {}),
    }
    exec(compile(tree, str(path), "exec"), namespace)
    # Classes and kernels have taken their module's name; there is none to import, though,
    # and TorchDynamo imports what a frame's globals claim to be.
    del namespace["__name__"]
    segments = list(segments)
    reachable = {name: namespace[name] for name in segments} | dict(names or {})
    if emitted_lines:
        lines = None
    elif origins is None:
        lines = commented_lines(text, node)
    else:
        file = function.__code__.co_filename
        lines = {
            line + node.lineno - 1: origin.line
            for line, origin in origins.items()
            if origin.file == file
        }
    helpers = Helpers(node, {*reachable, *cells})
    tail = rewrite(node, continuations, segments, helpers, keepers)
    merge_in_handlers(node, [*continuations, *bodies], helpers, merged)
    reachable |= helpers.names
    run = build_function(
        node,
        file=str(path) if emitted_lines else function.__code__.co_filename,
        first_line=node.lineno if emitted_lines else function.__code__.co_firstlineno,
        lines=lines,
        text=text,
        user_globals=function.__globals__,
        cells=cells,
        names=reachable,
        class_name=class_name,
        qualname=function.__qualname__,
        locals_name=locals_name,
    )
    guard_globals = {
        **namespace,
        **(guard_bindings or {}),
        "user_globals": function.__globals__,
        "cells": cells,
    }
    check = opaque(FunctionType(namespace[guard].__code__, guard_globals, guard))
    return Loaded(check, run, tail, namespace, path)


def function_from_source(
    source: FunctionSource,
    user_globals: dict[str, Any],
    cells: Mapping[str, CellType] | None = None,
    names: Mapping[str, Any] | None = None,
) -> FunctionType:
    """Makes the function that `source` defines, with the user's lines.

    Args:
        source: Text that a pass wrote (a resume function, an outlined body).
        user_globals: Globals of the module that the statements come from.
        cells: The user's closure cells, by name.
        names: Objects of the compiler that the text names.
    """
    text = source.text
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    return build_function(
        node,
        file=source.file,
        first_line=source.first_line,
        lines=origin_lines(source),
        text=text,
        user_globals=user_globals,
        cells=cells or {},
        names=names or {},
        class_name=source.class_name,
        qualname=source.qualname,
        locals_name=source.locals_name,
    )


def build_function(
    node: ast.FunctionDef,
    *,
    file: str,
    first_line: int,
    lines: Mapping[int, int] | None,
    text: str,
    user_globals: dict[str, Any],
    cells: Mapping[str, CellType],
    names: Mapping[str, Any],
    class_name: str | None = None,
    qualname: str | None = None,
    locals_name: str | None = None,
) -> FunctionType:
    """Compiles one definition so that it belongs to the user's module.

    Args:
        node: The definition, as parsed from `text`; it is changed.
        file: File name of the code.
        first_line: Its first line in `file`.
        lines: Line of `text` -> line of `file`; None keeps lines and columns.
        text: What `node` was parsed from.
        user_globals: Its globals.
        cells: The user's closure cells, by name.
        names: Objects that it names and that are neither globals nor user's variables.
        class_name: The class by which its private names are mangled.
        qualname: Its `__qualname__`.
        locals_name: What the qualified names of what is defined in it begin with, where
            that is not `qualname`.

    Raises:
        CompilerFault: It has a free variable that neither `cells` nor `names` holds.
    """
    if lines is not None:
        move_to_origins(node, file, first_line, lines, text)
    if class_name is not None:
        class_name = _unseen(class_name, node)
    code = _code_in_scope(node, file, {*cells, *names}, class_name)
    qualname = qualname or node.name
    within = locals_name or f"{qualname}.<locals>"
    code = _qualified(code, class_name, qualname, within, _given_names(node))
    closure = []
    for name in code.co_freevars:
        # The user's variable wins: compiler names are chosen not to meet any of them.
        if name in cells:
            closure.append(cells[name])
        elif name in names:
            bound = names[name] is not NOT_BOUND
            closure.append(CellType(names[name]) if bound else CellType())
        elif name == "__class__":
            # To name `super`, even with arguments, makes this cell; nothing reads it then.
            closure.append(CellType())
        else:
            raise CompilerFault(f"`{node.name}` uses `{name}`, which nothing defines")
    # No defaults: a dispatch stub has bound the arguments before any of this runs.
    made = FunctionType(code, user_globals, node.name, None, tuple(closure))
    made.__qualname__ = qualname
    return made


def closure_cells(function: FunctionType) -> dict[str, CellType]:
    """Returns the closure cells of `function` by variable name."""
    closure = function.__closure__ or ()
    return dict(zip(function.__code__.co_freevars, closure, strict=True))


def with_cells(function: FunctionType, cells: Mapping[str, CellType]) -> FunctionType:
    """Returns another closure over the code of `function`; it has no defaults."""
    code = function.__code__
    closure = tuple(cells[name] for name in code.co_freevars)
    return FunctionType(code, function.__globals__, function.__name__, None, closure)


# ── Scopes ──────────────────────────────────────────────────────────────────────────


def _code_in_scope(
    node: ast.FunctionDef, file: str, outer: set[str], class_name: str | None
) -> CodeType:
    """Compiles `node` inside a function that has the variables `outer`."""
    inner: ast.stmt = node
    if class_name is not None:
        inner = ast.ClassDef(
            name=class_name, bases=[], keywords=[], body=[node], decorator_list=[]
        )
    factory = ast.FunctionDef(
        name=_FACTORY,
        args=ast.arguments(
            posonlyargs=[],
            # `__class__` is the class scope's own where there is one.
            args=[
                ast.arg(arg=name)
                for name in sorted(outer)
                if class_name is None or name != "__class__"
            ],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[],
        ),
        body=[inner],
        decorator_list=[],
    )
    if "type_params" in ast.FunctionDef._fields:
        factory.type_params = []  # type: ignore[attr-defined]
        if isinstance(inner, ast.ClassDef):
            inner.type_params = []  # type: ignore[attr-defined]
    located: list[Any] = [factory, *factory.args.args]
    if inner is not node:
        located.append(inner)
    for made in located:
        made.lineno = made.end_lineno = max(node.lineno, 1)
        made.col_offset = made.end_col_offset = 0
    # Under its own name the function would hide a global of that name: itself, most likely.
    name, node.name = node.name, _PLACEHOLDER
    module = compile(ast.Module(body=[factory], type_ignores=[]), file, "exec")
    found = next(
        (code for code in _codes_below(module) if code.co_name == node.name), None
    )
    node.name = name
    assert found is not None
    return found.replace(co_name=name)


def _unseen(class_name: str, node: ast.FunctionDef) -> str:
    """Returns a class name that mangles private names alike and that `node` does not use.

    The class itself is not there: its name in the text is a global or one of the cells.
    """
    used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    while class_name in used:
        class_name = f"_{class_name}"
    return class_name


def _given_names(node: ast.FunctionDef) -> dict[str, tuple[str, str]]:
    """Returns the names that functions are given right behind their definitions.

    So the text spells them where a function is a lambda or from an inlined one: its
    `__name__`, if it is not that of the definition, and its `__qualname__`, with which the
    names of what is defined in it begin. What is behind that was written by the user.
    """
    found: dict[str, tuple[str, str]] = {}
    stack: list[ast.AST] = [node]
    while stack:
        block = stack.pop()
        name = shown = ""
        for statement in ast.iter_child_nodes(block):
            match statement:
                case ast.FunctionDef(name=name):
                    shown = name
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id=owner), attr=attribute)],
                    value=ast.Constant(value=str(value)),
                ) if name and owner == name:
                    if attribute == "__name__":
                        shown = value
                        continue
                    if attribute == "__qualname__":
                        found[name] = shown, value
                    name = ""
                case _:
                    name = ""
                    if isinstance(statement, _BLOCKS):
                        stack.append(statement)
    return found


_BLOCKS = (
    *(ast.If, ast.For, ast.While, ast.Try, ast.With, ast.ExceptHandler),
    *(ast.Match, ast.match_case),
)
"""What has statements of the same scope."""


def _qualified(
    code: CodeType,
    class_name: str | None,
    qualname: str,
    locals_name: str,
    given: Mapping[str, tuple[str, str]],
) -> CodeType:
    """Gives what is defined in a function the qualified names that it has in the user's.

    Python computes them where it compiles a definition: a class has its own in a constant
    of its body, and a function in its code (before 3.11, in a constant of the code around).
    """
    around = f"{_FACTORY}.<locals>." + (f"{class_name}." if class_name else "")
    compiled = f"{around}{_PLACEHOLDER}.<locals>"

    def visit(
        code: CodeType, old: str, new: str, own: str | None = None, shown: str = ""
    ) -> CodeType:
        constants: list[Any] = []
        for value in code.co_consts:
            if isinstance(value, CodeType):
                name = value.co_name
                if own and name in given:
                    short, long = given[name]
                    value = visit(value, f"{old}.{name}", long, shown=short)
                else:
                    value = visit(value, old, new)
            elif type(value) is str and value.startswith(old):
                value = new + value.removeprefix(old)
            constants.append(value)
        changed: dict[str, Any] = {"co_consts": tuple(constants)}
        if sys.version_info >= (3, 11):
            changed["co_qualname"] = own or new + code.co_qualname.removeprefix(old)
        if shown:
            changed["co_name"] = shown
        return code.replace(**changed)

    # What tracebacks and log records call the function.
    name = locals_name.removesuffix(".<locals>").rpartition(".")[2]
    return visit(code, compiled, locals_name, qualname, name)


def _codes_below(code: CodeType) -> Iterator[CodeType]:
    """Yields the code objects inside `code`, outer ones first."""
    level = [code]
    while level:
        level = [c for one in level for c in one.co_consts if isinstance(c, CodeType)]
        yield from level
