"""The pipeline: what happens to a function between its source and the code that runs.

    source      the user's text
    specialize  evaluated for these arguments, split at graph breaks; segments at torch level
    lower       segments as functional ATen graphs
    fuse        ATen operations grouped into kernels-to-be
    emit        kernels in C++ or Triton

Each stage is a runnable Python program that computes what the user's function computes. The
front half, `specialize`, is here; the back half is `segment.compile_segment`, which prints a
segment at any stage.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import CellType, FunctionType
from typing import Any

import libcst as cst
import torch

from srcjit.options import Options
from srcjit.origin import Origin
from srcjit.source import FunctionSource

from .evaluate.breaks import (
    FixSizes,
    LeaveGenerator,
    Place,
    Respecialize,
    ShareVariables,
)
from .evaluate.evaluator import Evaluator
from .evaluate.frames import Scope
from .evaluate.functions import check_inlinable, compiler_names, new_frame
from .evaluate.sources import Argument, Cell
from .program import Hints, Specialized
from .scopes import all_names

log = logging.getLogger("srcjit.sizes")


def specialize(
    function: FunctionType,
    source: FunctionSource,
    arguments: Mapping[str, Any],
    options: Options,
    hints: Hints | None = None,
) -> Specialized:
    """Evaluates `function` for `arguments` and splits it at graph breaks.

    Args:
        function: The function, for its globals, closure and name.
        source: Its definition.
        arguments: Value of each parameter by name; `*args` as a tuple, `**kwargs` as a dict.
        options: The options it was jitted with.
        hints: What earlier specializations taught.

    Raises:
        GraphBreak: The function as a whole is left to Python (it looks at its own frame,
            is a generator, ...).
    """
    check_inlinable(source)
    dynamic = (
        (hints or Hints()).changed if options.dynamic is not False else frozenset()
    )
    sizes = None if hints is not None and hints.fixed else (hints or Hints()).sizes
    left: frozenset[Origin] = frozenset()
    shared: dict[Place, frozenset[str]] = {}
    while True:
        grad = torch.is_grad_enabled()
        try:
            return _evaluate(
                function,
                source,
                arguments,
                options,
                dynamic,
                sizes,
                left,
                shared,
                hints or Hints(),
            )
        except ShareVariables as again:
            known = shared.get(again.place, frozenset())
            # NOTE: what is shared is no variable any more, and cannot be met again.
            assert not again.names <= known, again
            shared[again.place] = known | again.names
        except LeaveGenerator as again:
            # NOTE: what is made at one of these places is no `Generator` any more.
            assert again.site is not None and again.site not in left, again
            left |= {again.site}
        except FixSizes as problem:
            log.info("sizes are fixed: %s", problem)
            if sizes is None:
                raise AssertionError("no size is symbolic") from problem
            sizes = None
        except Respecialize as again:
            if again.source_text not in dynamic:
                raise AssertionError(f"{again.source_text} is known already") from again
            dynamic = dynamic - {again.source_text}
        finally:
            torch._C._set_grad_enabled(grad)


def _evaluate(
    function: FunctionType,
    source: FunctionSource,
    arguments: Mapping[str, Any],
    options: Options,
    dynamic: frozenset[str],
    sizes: Mapping[str, frozenset[int]] | None,
    left: frozenset[Origin],
    shared: Mapping[Place, frozenset[str]],
    hints: Hints,
) -> Specialized:
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    taken = all_names(source.tree) | set(cells)
    # Text of functions that are inlined may name any global.
    taken |= set(function.__globals__)
    taken |= {"user_globals", "cells", "guard", "torch", source.name}
    ev = Evaluator(function, source, options, dynamic, taken, sizes)
    ev.python_generators = left
    ev.shared_variables = shared
    ev.hints, ev.resumed = hints, hints.resumed
    try:
        return _result(ev, function, cells, arguments)
    finally:
        ev.release()


def _result(
    ev: Evaluator,
    function: FunctionType,
    cells: Mapping[str, CellType],
    arguments: Mapping[str, Any],
) -> Specialized:
    source = ev.source
    scope = Scope(
        function.__globals__,
        None,
        dict(cells),
        {n: Cell(n) for n in cells},
        compiler_names=compiler_names(function, source),
    )
    frame = new_frame(ev, source, scope)
    for name, value in arguments.items():
        frame.env[name] = ev.lazy(value, Argument(name))
    ev.arguments = dict(arguments)
    ev.own_locals = frame.locals - set(arguments)
    ev.kept = dict.fromkeys(((frame, n) for n in ev.hints.kept), "an object")
    ev.frames.append(frame)
    ev.run()
    residual = ev.residual.result(source.name, _parameters(source))
    return Specialized(
        name=source.name,
        source=source,
        guards=ev.guards.finish(),
        segments=tuple(ev.segments),
        steps=tuple(ev.steps),
        residual=residual,
        continuations=tuple(ev.continuations),
        natives=tuple(ev.natives),
        breaks=tuple(ev.breaks),
        settle=ev.sizes.settle if ev.sizes.places else None,
        original=ev.residual.original,
    )


def _parameters(source: FunctionSource) -> str:
    """The parameter list without defaults and annotations."""
    params = source.tree.params
    parts = [p.name.value for p in params.posonly_params]
    if parts:
        parts.append("/")
    parts += [p.name.value for p in params.params]
    star = params.star_arg
    if isinstance(star, cst.Param):
        parts.append(f"*{star.name.value}")
    elif params.kwonly_params:
        parts.append("*")
    parts += [p.name.value for p in params.kwonly_params]
    if params.star_kwarg is not None:
        parts.append(f"**{params.star_kwarg.name.value}")
    return ", ".join(parts)
