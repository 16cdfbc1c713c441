"""Compiles one function for one set of arguments: evaluate, segments, text, file, load.

The passes know nothing of files, caches or dispatch; this module calls them in order and
keeps what they made, so that `explain`, `emit` and `bisect` can look at it later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

import torch

from srcjit import cache
from srcjit.diagnostics import GraphBreak, GraphBreakError, render
from srcjit.dynamo import opaque
from srcjit.facts import GlobalState
from srcjit.guards import emit_guard
from srcjit.load import function_from_source, load_module, with_cells
from srcjit.logs import logger
from srcjit.logs import root as log
from srcjit.options import Options
from srcjit.passes.graph_modules import with_text
from srcjit.passes.kinds import is_a
from srcjit.passes.program import (
    Continuation,
    GuardSet,
    Hints,
    Segment,
    SegmentCode,
    Specialized,
    guard_parameter,
)
from srcjit.quiet import undisturbed
from srcjit.signature import Signature
from srcjit.source import FunctionSource
from srcjit.stub import whole
from srcjit.tails import Tail

Codes = tuple[SegmentCode, ...]

GUARD = "guard"
"""Name of the guard function in every emitted module."""


@dataclass(eq=False)
class Specialization:
    """One compiled version of a function, and the record of how it came about.

    Attributes:
        specialized: What the front end made.
        guard: Takes the parameters by position; true where `run` may be called.
        run: The residual program, with the user's signature.
        tail: How it says what is to be called next, if it does; see `srcjit.tails`.
        state: The global state of PyTorch that it was made under.
        codes: The text of each segment at the stage that runs.
        text: The emitted module.
        path: Its file.
        options: What it was compiled with.
        stubs: Dispatch stub of each continuation, by name; compiled when first called.
        parameters: Names of the function's parameters, in the order of the guard's.
    """

    specialized: Specialized
    guard: FunctionType
    run: FunctionType
    tail: Tail | None
    state: GlobalState
    codes: tuple[SegmentCode, ...]
    text: str
    path: Path
    options: Options
    stubs: Mapping[str, FunctionType]
    parameters: tuple[str, ...]

    @property
    def guards(self) -> GuardSet:
        """The conditions under which it is valid."""
        return self.specialized.guards

    @property
    def breaks(self) -> tuple[Any, ...]:
        """The graph breaks in it, as diagnostics."""
        return self.specialized.breaks

    @cached_property
    def entry(self) -> Callable[..., Any]:
        """Runs the program and what it asks for."""
        return whole(self.run, self.tail, self.nests)

    @property
    def nests(self) -> bool:
        """Whether other parts of the user's function run while its frame is live."""
        kinds = {c.kind for c in self.specialized.continuations}
        return "body" in kinds or bool(kinds and self.tail is None)

    @property
    def kernels(self) -> int:
        """Number of kernels in its segments."""
        return sum(code.kernels for code in self.codes)

    @property
    def portable(self) -> bool:
        """True if `with_cells` gives what compiling for another closure would give."""
        closed = bool(self.specialized.source.freevars)
        return not (closed and (self.stubs or self.specialized.natives))

    def with_cells(self, cells: Mapping[str, CellType]) -> Specialization:
        """Returns this specialization for another closure over the same code.

        Args:
            cells: Cells of the user's variables, by name.
        """
        guard_globals = {**self.guard.__globals__, "cells": dict(cells)}
        guard = opaque(FunctionType(self.guard.__code__, guard_globals, GUARD))
        old = zip(
            self.run.__code__.co_freevars, self.run.__closure__ or (), strict=True
        )
        closure = tuple(
            CellType(with_cells(cell.cell_contents, cells))
            if name == self.specialized.original
            else cells.get(name, cell)
            for name, cell in old
        )
        run = FunctionType(
            self.run.__code__, self.run.__globals__, self.run.__name__, None, closure
        )
        run.__qualname__ = self.run.__qualname__
        return replace(self, guard=guard, run=run)

    def stage_text(self, stage: str, target: str | None = None) -> str:
        """Returns the emitted module at another stage of the pipeline.

        Args:
            stage: One of `options.STAGES`.
            target: The kernel language, if not the one that runs.
        """
        from srcjit.passes.emit import emit_module

        options = replace(
            self.options, stage=stage, target=target or self.options.target
        )
        if options == self.options:
            return self.text
        if options not in self._other_texts:
            codes = _codes(self.specialized, options)
            guard = emit_guard(self.guards, self.parameters, GUARD, self.state)
            made = emit_module(self.specialized, codes, guard, options)
            self._other_texts[options] = made
        return self._other_texts[options]

    @cached_property
    def _other_texts(self) -> dict[Options, str]:
        return {}


def compile_specialization(
    function: FunctionType,
    source: FunctionSource,
    arguments: Mapping[str, Any],
    options: Options,
    hints: Hints | None = None,
    make_stub: Callable[[Continuation, Options], FunctionType] | None = None,
) -> Specialization:
    """Compiles `function` for `arguments`.

    Args:
        function: The user's function, or a continuation's.
        source: Its definition.
        arguments: Value of each parameter, by name and in order; `*args` as a tuple and
            `**kwargs` as a dict.
        options: The options it was jitted with.
        hints: What to generalize.
        make_stub: Makes the dispatch stub of a continuation; `dispatch` gives it.

    Raises:
        GraphBreak: The function as a whole cannot be compiled.
        GraphBreakError: It has a graph break, and `options.fullgraph` allows none.
        CompilerFault: srcjit failed. Any other exception is a fault too.
    """
    from srcjit.passes.evaluate.size_text import CannotSpell
    from srcjit.passes.example_call import arguments_text
    from srcjit.passes.pipeline import specialize

    state = GlobalState.now()

    def attempt(hints: Hints) -> tuple[Specialized, Codes]:
        specialized = specialize(function, source, arguments, options, hints)
        if options.fullgraph and specialized.breaks:
            raise GraphBreakError(specialized.breaks[0])
        codes = _codes(specialized, options)
        if specialized.settle is not None:
            guards = specialized.settle(specialized.guards)
            specialized = replace(specialized, guards=guards)
        return specialized, codes

    with undisturbed():
        wanted = _with_marks(hints or Hints(), arguments)
        try:
            specialized, codes = attempt(wanted)
        except (GraphBreak, GraphBreakError):
            raise
        except CannotSpell as problem:
            log.info("`%s` is compiled for fixed sizes: %s", source.qualname, problem)
            specialized, codes = attempt(replace(wanted, fixed=True))
        except Exception as problem:
            symbolic = wanted.sizes or wanted.changed or options.dynamic
            if not symbolic or os.environ.get("SRCJIT_RAISE") == "1":
                raise
            # Sizes are the part that can do without: for these ones alone it is simpler.
            name = function.__qualname__
            log.info("`%s` is compiled for fixed sizes: %s", name, problem)
            specialized, codes = attempt(replace(wanted, fixed=True))
        specialized = replace(specialized, example=arguments_text(source, arguments))
        return assemble(function, specialized, codes, state, options, make_stub)


def assemble(
    function: FunctionType,
    specialized: Specialized,
    codes: tuple[SegmentCode, ...],
    state: GlobalState,
    options: Options,
    make_stub: Callable[[Continuation, Options], FunctionType] | None = None,
) -> Specialization:
    """Writes and loads the module of a specialized function with its segments' code."""
    from srcjit.passes.emit import emit_module

    if make_stub is None:
        from srcjit import continuations

        make_stub = continuations.make_stub
    written = Signature.of(function).as_written(specialized.source.class_name)
    parameters = tuple(map(guard_parameter, written))
    if any(code.numerics for code in codes):
        state = state.with_numerics()
    guard = emit_guard(specialized.guards, parameters, GUARD, state)
    text = emit_module(specialized, codes, guard, options)
    path = cache.store_text("modules", specialized.name, text)
    stubs = {c.name: make_stub(c, options) for c in specialized.continuations}
    natives: dict[str, FunctionType] = {}
    names = {**specialized.guards.bindings, **specialized.residual.constants, **stubs}
    for native in specialized.natives:
        natives[native.name] = function_from_source(
            native.source,
            native.user_globals,
            native.cells,
            {
                n: v
                for n, v in {**names, **natives}.items()
                if n not in native.own_names
            },
        )
    loaded = load_module(
        text,
        path,
        guard=GUARD,
        residual=specialized.name,
        function=function,
        origins=specialized.residual.line_map,
        segments=[code.name for code in codes],
        names={**names, **natives},
        continuations=[c.name for c in specialized.continuations if c.kind != "body"],
        bodies=[c.name for c in specialized.continuations if c.kind == "body"],
        keepers=specialized.residual.keepers,
        bindings={
            **guard.classes,
            **{name: value for code in codes for name, value in code.bindings.items()},
        },
        guard_bindings=guard.bindings,
        class_name=specialized.source.class_name,
        locals_name=specialized.source.locals_name,
        emitted_lines=options.emitted_lines,
    )
    # The guard's own state, so that its fast checks can be made anew.
    state = next(
        (v for v in loaded.namespace.values() if type(v) is GlobalState), state
    )
    for diagnostic in specialized.breaks:
        logger("breaks").info("%s", render(diagnostic))
    # A kernel that does not compile has to fail here, while Python can still run it all.
    for value in loaded.namespace.values():
        wait = getattr(type(value), "wait_until_ready", None)
        if wait is not None:
            wait(value)
    logger("code").info("%s", text)
    logger("guards").info("%s", guard.text)
    return Specialization(
        specialized,
        loaded.guard,
        loaded.run,
        loaded.tail,
        state,
        codes,
        text,
        path,
        options,
        stubs,
        parameters,
    )


def _codes(specialized: Specialized, options: Options) -> Codes:
    """The text of each segment, and behind them that of the steps of those that may fail."""
    from srcjit.passes.segment import step_code

    return (
        *(_segment_code(segment, options) for segment in specialized.segments),
        *(step_code(step) for step in specialized.steps),
    )


def _segment_code(segment: Segment, options: Options) -> SegmentCode:
    if options.backend == "srcjit":
        from srcjit.passes.segment import compile_segment

        return compile_segment(segment, options)
    return _foreign_code(segment, options.backend)


def _foreign_code(segment: Segment, backend: str | Callable[..., Any]) -> SegmentCode:
    """Hands a segment to a `torch.compile` backend."""
    if isinstance(backend, str):
        from torch._dynamo.backends.registry import lookup_backend

        name, backend = backend, lookup_backend(backend)
    else:
        name = getattr(backend, "__name__", type(backend).__name__)
    run = backend(with_text(segment.graph_module), list(segment.inputs))
    inputs = [n.name for n in segment.graph_module.graph.nodes if n.op == "placeholder"]
    compiled = f"compiled_{segment.name}"
    call = f"{compiled}({', '.join(inputs)})"
    return SegmentCode(
        name=segment.name,
        function=(
            f"def {segment.name}({', '.join(inputs)}):\n"
            f"    return tuple({call})  # by the backend `{name}`\n"
        ),
        bindings={compiled: run},
    )


def _with_marks(hints: Hints, arguments: Mapping[str, Any]) -> Hints:
    """Adds the dimensions that the user marked with `mark_dynamic`."""
    sizes = dict(hints.sizes)
    for name, value in arguments.items():
        if not is_a(value, torch.Tensor):
            continue  # asking it for an attribute may run code of the user's
        if marked := getattr(value, "_srcjit_dynamic_dims", None):
            name = guard_parameter(name)
            sizes[name] = sizes.get(name, frozenset()) | frozenset(marked)
    return replace(hints, sizes=sizes)


__all__ = ["Specialization", "assemble", "compile_specialization"]
