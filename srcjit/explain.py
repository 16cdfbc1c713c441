"""`srcjit.explain(fn)(*args)`: what becomes of a function for these arguments.

The function is really called, once, under a fresh `jit`; what its dispatchers compile on
the way, resume functions and outlined bodies included, is the explanation. Paths that the
call does not take are not compiled and not counted.
"""

from __future__ import annotations

import contextlib
import functools
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from srcjit import control, shared
from srcjit.diagnostics import Diagnostic, render
from srcjit.passes.program import Guard, TensorGuard

if TYPE_CHECKING:
    from srcjit.compiler import Specialization
    from srcjit.dispatch import Dispatcher


# ── Recording ───────────────────────────────────────────────────────────────────────


@dataclass
class Record:
    """What one dispatcher did while it was watched.

    Attributes:
        dispatcher: The dispatcher, kept alive by this record.
        specializations: Those that were added, in order.
        recompiles: Why calls fitted none of those before.
        stopped: Why Python runs the function as a whole, or None.
    """

    dispatcher: Dispatcher
    specializations: list[Specialization] = field(default_factory=list)
    recompiles: list[str] = field(default_factory=list)
    stopped: Diagnostic | None = None

    @property
    def name(self) -> str:
        """The function's qualified name without the scopes it is nested in."""
        return self.dispatcher.function.__qualname__.replace("<locals>.", "")

    @property
    def breaks(self) -> list[Diagnostic]:
        """Graph breaks of all specializations, as often as they were met."""
        found = [d for s in self.specializations for d in s.breaks]
        return [*found, *([self.stopped] if self.stopped else [])]


class Recording(dict[int, Record]):
    """Records by dispatcher, in the order in which the program reached them."""

    def observe(
        self, event: control.Event, dispatcher: Dispatcher, detail: Any
    ) -> None:
        """Takes down one event."""
        record = self.setdefault(id(dispatcher), Record(dispatcher))
        if event == "specialized":
            record.specializations.append(detail)
        elif event == "recompiles":
            record.recompiles.append(detail)
        else:
            record.stopped = detail

    @property
    def records(self) -> list[Record]:
        """All records, each function before the continuations that it made."""
        children = {
            id(child): parent
            for parent in self.values()
            for child in continuations(parent.dispatcher)
        }
        ordered: list[Record] = []

        def visit(record: Record) -> None:
            ordered.append(record)
            for child in continuations(record.dispatcher):
                if id(child) in self and children[id(child)] is record:
                    visit(self[id(child)])

        for key, record in self.items():
            if key not in children:
                visit(record)
        return ordered


def continuations(dispatcher: Dispatcher) -> list[Dispatcher]:
    """Returns the dispatchers of the continuations that have been reached."""
    stubs = [stub for s in dispatcher.specializations for stub in s.stubs.values()]
    found = [getattr(stub, "__srcjit__", None) for stub in stubs]
    return list(dict.fromkeys(child for child in found if child is not None))


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Records what all dispatchers compile inside the block."""
    made = Recording()
    observer = made.observe
    control.observers.append(observer)
    try:
        yield made
    finally:
        control.observers.remove(observer)


# ── Explaining ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class BreakReason:
    """Why a graph ended, with the attributes of `torch._dynamo`'s `GraphCompileReason`."""

    diagnostic: Diagnostic
    graph_break: bool = True

    @property
    def reason(self) -> str:
        """The message."""
        return self.diagnostic.message

    @property
    def user_stack(self) -> list[traceback.FrameSummary]:
        """The user's line, as an entry of a traceback."""
        origin = self.diagnostic.origin
        if origin is None:
            return []
        return [traceback.FrameSummary(origin.file, origin.line, origin.function)]

    def __str__(self) -> str:
        return render(self.diagnostic)


@dataclass(frozen=True)
class ExplainOutput:
    """The explanation, with the attribute names of `torch._dynamo.explain`'s.

    Attributes:
        graphs: The segments, at torch level, in the order in which they were compiled.
        graph_count: How many there are.
        graph_break_count: Number of graph breaks on the path taken.
        break_reasons: One entry for each.
        op_count: Number of operations in all graphs.
        ops_per_graph: For each graph, what it calls.
        out_guards: The guards of all specializations.
        compile_times: Seconds of the call, compiling included, as text.
        records: What each dispatcher did.
        result: What the call returned.
    """

    graphs: list[torch.fx.GraphModule]
    graph_count: int
    graph_break_count: int
    break_reasons: list[BreakReason]
    op_count: int
    ops_per_graph: list[list[Any]]
    out_guards: list[Guard | TensorGuard]
    compile_times: str
    records: tuple[Record, ...] = ()
    result: Any = None

    def __str__(self) -> str:
        return describe(self.records)


def explain(fn: Callable[..., Any], **options: Any) -> Callable[..., ExplainOutput]:
    """Returns a function that calls `fn` once and explains how it was compiled.

    Args:
        fn: A function or module, jitted or not.
        options: Arguments of `srcjit.jit` to use.
    """
    from srcjit.jit import jit

    if not callable(fn):
        raise TypeError(f"srcjit.explain needs a callable, got {type(fn).__name__}")

    @functools.wraps(fn, updated=())
    def explained(*args: Any, **kwargs: Any) -> ExplainOutput:
        # A fresh jit: what other functions with the same code have compiled is not used.
        with recording() as records, shared.bypassed():
            start = time.perf_counter()
            result = jit(fn, **options)(*args, **kwargs)
            seconds = time.perf_counter() - start
        return summarize(records, result, f"{seconds:.3f} s, the call included")

    return explained


def summarize(records: Recording, result: Any, times: str) -> ExplainOutput:
    """Counts what has been recorded."""
    specializations = [s for record in records.records for s in record.specializations]
    graphs = [
        seg.graph_module for s in specializations for seg in s.specialized.segments
    ]
    ops = [
        [node.target for node in graph.graph.nodes if node.op.startswith("call_")]
        for graph in graphs
    ]
    reasons = [BreakReason(d) for record in records.records for d in record.breaks]
    return ExplainOutput(
        graphs=graphs,
        graph_count=len(graphs),
        graph_break_count=len(reasons),
        break_reasons=reasons,
        op_count=sum(map(len, ops)),
        ops_per_graph=ops,
        out_guards=[guard for s in specializations for guard in s.guards.guards],
        compile_times=times,
        records=tuple(records.records),
        result=result,
    )


# ── Text ────────────────────────────────────────────────────────────────────────────


def describe(records: tuple[Record, ...] | list[Record], color: bool = False) -> str:
    """Returns what became of each function as text.

    What splits programs comes first: segments, breaks and recompilations. The guards of all
    functions stand at the end, because there may be many.
    """
    if not records:
        return "nothing was compiled"
    parts = [_describe_one(record, color) for record in records]
    guards = [text for record in records if (text := _guards_of(record, color))]
    return "\n\n".join([*parts, *guards])


def _describe_one(record: Record, color: bool) -> str:
    segments = [seg for s in record.specializations for seg in s.specialized.segments]
    counts = (
        _count(len(record.specializations), "specialization"),
        _count(len(segments), "segment"),
        _count(sum(s.kernels for s in record.specializations), "kernel"),
        _count(len(record.breaks), "graph break"),
    )
    lines = [f"{_bold(record.name, color)}: {', '.join(counts)}"]
    for number, specialization in enumerate(record.specializations):
        lines.append(f"  specialization {number}")
        for segment in specialization.specialized.segments:
            nodes = segment.graph_module.graph.nodes
            calls = sum(node.op.startswith("call_") for node in nodes)
            lines.append(f"    {segment.name}: {_count(calls, 'operation')}")
    lines += [f"  recompiled because of {reason}" for reason in record.recompiles]
    for diagnostic, times in Counter(record.breaks).items():
        shown = diagnostic
        if times > 1:
            shown = replace(shown, notes=(*shown.notes, f"met {times} times"))
        text = render(shown, color)
        lines += ["", *(f"  {line}".rstrip() for line in text.splitlines())]
    return "\n".join(lines)


def _guards_of(record: Record, color: bool) -> str:
    """The guards of one function, or nothing if it has none."""
    lines = [f"guards of {_bold(record.name, color)}"]
    for number, specialization in enumerate(record.specializations):
        if specialization.guards.guards:
            lines.append(f"  specialization {number}")
        for guard in specialization.guards.guards:
            lines.append(f"    guard: {_guard_text(guard)}")
    return "\n".join(lines) if len(lines) > 1 else ""


def _bold(text: str, color: bool) -> str:
    return f"\x1b[1m{text}\x1b[0m" if color else text


def _guard_text(guard: Guard | TensorGuard) -> str:
    if isinstance(guard, Guard):
        return guard.text + (f"  ({guard.reason})" if guard.reason else "")
    size = ", ".join("?" if s is None else str(s) for s in guard.size)
    grad = ", requires grad" if guard.requires_grad else ""
    dtype = str(guard.dtype).removeprefix("torch.")
    return f"{guard.text} is {dtype}[{size}] on {guard.device}{grad}"


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'s' if number != 1 else ''}"
