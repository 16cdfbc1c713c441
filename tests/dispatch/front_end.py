"""A front end that leaves the program as it is: dispatch can be tested without the real one.

The residual program is the user's function, word for word. Tensors are guarded by their
facts, numbers, strings and None by their value, anything else by its type.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from srcjit.guards import GuardText
from srcjit.lines import origin_lines
from srcjit.options import Options
from srcjit.origin import Origin
from srcjit.passes.program import (
    Guard,
    GuardSet,
    Hints,
    Residual,
    Segment,
    SegmentCode,
    Specialized,
    TensorGuard,
)
from srcjit.source import FunctionSource


def tensor_guard(text: str, value: torch.Tensor) -> TensorGuard:
    return TensorGuard(
        text,
        type(value),
        value.dtype,
        value.device,
        tuple(value.shape),
        tuple(value.stride()),
        value.requires_grad,
        is_inference=value.is_inference(),
    )


def guard_of(text: str, value: Any) -> Guard | TensorGuard:
    if isinstance(value, torch.Tensor):
        return tensor_guard(text, value)
    if value is None or isinstance(value, bool):
        return Guard(f"{text} is {value!r}")
    if isinstance(value, (int, float, str, tuple, dict)):
        return Guard(f"type({text}) is {type(value).__name__} and {text} == {value!r}")
    return Guard(f"type({text}).__name__ == {type(value).__name__!r}")


def specialized_of(
    function: FunctionType,
    source: FunctionSource,
    arguments: dict[str, Any],
    extra: tuple[Guard | TensorGuard, ...] = (),
) -> Specialized:
    guards = [guard_of(name, value) for name, value in arguments.items()]
    lines = {
        line: Origin(source.file, user_line)
        for line, user_line in origin_lines(source).items()
    }
    return Specialized(
        name=source.name,
        source=source,
        guards=GuardSet((*guards, *extra)),
        segments=(),
        residual=Residual(source.text, lines),
        continuations=(),
        natives=(),
        breaks=(),
    )


def emit_module(
    definitions: str,
    specialized: Specialized,
    codes: tuple[SegmentCode, ...],
    guard: GuardText,
    options: Options,
) -> str:
    parts = ["\n".join(guard.imports), guard.text]
    parts += [code.definitions + code.function for code in codes]
    parts += [definitions, specialized.residual.text]
    return "\n\n\n".join(parts)


class FrontEnd:
    """Counts what it compiles; `fault` is raised instead, `before` runs first.

    Guards in `extra` and text in `definitions` are added to each module.
    """

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.hints: list[Hints] = []
        self.fault: BaseException | None = None
        self.before: Callable[[], None] = lambda: None
        self.extra: tuple[Guard | TensorGuard, ...] = ()
        self.definitions = ""

    def emit_module(self, *args: Any) -> str:
        return emit_module(self.definitions, *args)

    def specialize(
        self,
        function: FunctionType,
        source: FunctionSource,
        arguments: dict[str, Any],
        options: Options,
        hints: Hints,
    ) -> Specialized:
        self.before()
        if self.fault is not None:
            raise self.fault
        self.compiled.append(function.__qualname__)
        self.hints.append(hints)
        return specialized_of(function, source, arguments, self.extra)


def traced(function: Callable[..., Any], *inputs: torch.Tensor) -> Segment:
    """Returns a segment that computes `function`, with its tensors as they are."""
    module = torch.fx.symbolic_trace(function)
    output = next(n for n in module.graph.nodes if n.op == "output")
    if not isinstance(output.args[0], tuple):
        output.args = ((output.args[0],),)
        module.recompile()
    return Segment("segment_0", module, inputs, (), torch.is_grad_enabled())
