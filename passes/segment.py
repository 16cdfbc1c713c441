"""Compiles one segment: from a torch-level graph to the text of a stage.

    specialize    the torch-level calls           def segment_0(x): y = torch.sin(x) …
    lower         the functional graph            torch.ops.aten.sin.default(x) …
    fuse          one function per fusion group   def sin_mul_sum(x): …
    emit          kernels and host code           segment_0_kernels.sin_mul_sum(x, y)

Every text computes what the segment computes. What cannot be made functional is written at
torch level at every stage, and the log says why.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from srcjit.options import Options

from . import attention_library, autograd, plans, recording
from .attention import fix_heads, rounds_float32, stream
from .constants import Constants
from .crossing import cross
from .definitions import Definition, Lowered
from .epilogues import ride_activations
from .functional import Functional, functionalize
from .fuse import fuse
from .groups_text import flat_lines, group_functions
from .host import Finish, Host, simple_return
from .host_sizes import UnknownSize, check_sizes, size_symbols
from .layouts import lay_out
from .lower import lower
from .node_names import functions_called, node_comments, shorten_names, user_lines
from .overwrites import write_parts, write_views
from .placement import parts_apart
from .plans import ATenGraph, Backward
from .print_triton_expressions import LIBRARY
from .products import ride_sums
from .program import Segment, SegmentCode
from .reuse import reuse
from .schedule import Call, Schedule, Summed
from .spelling import needed_imports
from .targets import choose, print_kernels, why_aten
from .torch_text import torch_text
from .tuning import MEASURED_MODES, Tuner, size_hints

log = logging.getLogger("srcjit.segments")
_said: set[str] = set()


def compile_segment(segment: Segment, options: Options) -> SegmentCode:
    """Returns the program text of `segment` at the stage `options.stage`."""
    comments = user_lines(segment.origins)
    if options.stage == "specialize":
        return torch_text(segment, comments)
    attention_library.foresee(segment)
    functional = functionalize(segment)
    if functional.torch_level or functional.forward is None:
        log.info("%s stays at torch level: %s", segment.name, functional.reason)
        return torch_text(segment, comments, dropping=True)
    try:
        return _SegmentWriter(segment, functional, options, comments).write()
    except UnknownSize as why:
        log.info("%s stays at torch level: %s", segment.name, why)
        return torch_text(segment, comments, dropping=True)


def step_code(step: Segment) -> SegmentCode:
    """Returns the text of a part of a segment, which runs when the whole has failed."""
    return torch_text(step, user_lines(step.origins))


def merged_imports(lines: Iterable[str]) -> tuple[str, ...]:
    """One `from … import a, b` a module, plain imports first, in alphabetical order."""
    plain: set[str] = set()
    names: dict[str, set[str]] = {}
    for line in lines:
        if line.startswith("from "):
            module, _, imported = line.removeprefix("from ").partition(" import ")
            names.setdefault(module, set()).update(imported.split(", "))
        else:
            plain.add(line)
    joined = (
        f"from {m} import {', '.join(sorted(n))}" for m, n in sorted(names.items())
    )
    return (*sorted(plain), *joined)


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        logging.getLogger("srcjit").warning(message)


def devices_of(functional: Functional) -> set[torch.device]:
    """Devices of all tensors of a segment."""
    found: set[torch.device] = set()
    graphs = [functional.forward]
    if functional.backward is not None:
        graphs.append(functional.backward.graph)
    for graph in filter(None, graphs):
        for node in graph.graph_module.graph.nodes:
            value = node.meta.get("val")
            for v in value if isinstance(value, tuple | list) else (value,):
                if isinstance(v, torch.Tensor):
                    found.add(v.device)
    return found


def _host_names(graph: ATenGraph, schedule: Schedule) -> set[str]:
    """What the host may call tensors and numbers of a graph."""
    nodes = graph.graph_module.graph.nodes
    return {n.name for n in nodes} | {d.name for d in schedule.lowered.definitions}


class _SegmentWriter:
    def __init__(
        self,
        segment: Segment,
        functional: Functional,
        options: Options,
        comments: Mapping[str, str],
    ) -> None:
        self.segment, self.functional, self.options = segment, functional, options
        self.comments = comments
        self.name = segment.name
        self.constants = Constants(self.name)
        self.stage = options.stage
        self.target = "aten"
        # At stage `fuse` the groups are those of the kernels.
        wanted = choose(options.target, devices_of(functional))
        self.streams = self.stage in ("fuse", "emit") and wanted != "aten"
        if self.stage == "emit":
            self.target = wanted
            if self.target == "aten":
                self.stage = "lower"
                if options.target == "auto":
                    why = why_aten(devices_of(functional))
                    _say_once(f"segments run as ATen calls: {why}")
        self.definitions: list[str] = []
        self.imports: dict[str, None] = {}
        self.kernels = 0
        self.numerics = False
        self.in_place: dict[int, None] = {}
        self.given: tuple[str | None, ...] = ()
        self.taken = {
            "torch",
            "triton",
            "tl",
            "launch",
            "libdevice",
            self.name,
            *LIBRARY,
        }

    def write(self) -> SegmentCode:
        forward, backward = self.functional.forward, self.functional.backward
        assert forward is not None
        if backward is None:

            def finish(inputs: list[str], results: list[str]) -> list[str]:
                left = tuple(
                    m for m in self.functional.mutations if m.input not in self.in_place
                )
                rest = replace(self.functional, mutations=left)
                counted = {m.input: m.versions for m in self.functional.mutations}
                written = [(inputs[i], counted[i]) for i in self.in_place]
                return [
                    *autograd.count_writes(written),
                    *autograd.count_writes(zip(results, self.functional.versions)),
                    *autograd.after_the_call(rest, inputs, results),
                ]

            if self._is_recorded():
                self.numerics |= recording.rounds(forward)
                function = self._recorded(forward, finish)
            else:
                function = self._function(forward, self.name, finish, top=True)
        else:
            names = [f"{self.name}_forward", f"{self.name}_backward"]
            self.taken.update(names)
            self.definitions.append(self._function(forward, names[0], simple_return))
            self.definitions.append(
                self._function(backward.graph, names[1], simple_return, saved=backward)
            )
            class_name = "".join(part.capitalize() for part in self.name.split("_"))
            text = autograd.emit_autograd(
                self.functional,
                self.name,
                forward_name=names[0],
                backward_name=names[1],
                class_name=class_name,
            )
            self.imports.update(dict.fromkeys(autograd.needed_imports(text)))
            head, _, tail = text.rpartition(f"def {self.name}(")
            self.definitions.append(head.strip("\n"))
            function = f"def {self.name}({tail}"
        pieces = [*self.constants.lines, *self.definitions]
        definitions = "\n\n\n".join(pieces)
        whole = f"{definitions}\n{function}"
        self.imports.update(dict.fromkeys(needed_imports(whole)))
        return SegmentCode(
            self.name,
            function.strip("\n") + "\n",
            definitions=f"{definitions}\n" if definitions else "",
            imports=merged_imports(self.imports),
            bindings=self.constants.bindings,
            kernels=self.kernels,
            numerics=self.numerics,
        )

    def _is_recorded(self) -> bool:
        """Whether the segment's launches may become a CUDA graph."""
        if self.options.mode != "reduce-overhead" or self.stage != "emit":
            return False
        reason = recording.why_not(self.functional, devices_of(self.functional))
        if reason:
            message = "%s is launched kernel by kernel: %s"
            logging.getLogger("srcjit.graphs").info(message, self.name, reason)
        return not reason

    def _recorded(self, forward: ATenGraph, finish: Finish) -> str:
        """The text of a segment whose launches are recorded."""
        launches, graphs = f"{self.name}_launches", f"{self.name}_graphs"
        self.taken.update((launches, graphs))
        self.definitions.append(
            self._function(forward, launches, simple_return, top=True, given=True)
        )
        (device,) = devices_of(self.functional)
        names = ", ".join(map(repr, self.given))
        names = f"({names},)" if len(self.given) == 1 else f"({names})"
        self.definitions.append(
            f"{graphs} = Graphs({launches}, {names}, device={device.index or 0})"
        )
        self.imports["from srcjit.runtime.graphs import Graphs"] = None
        inputs = [n.name for n in forward.placeholders]
        results = autograd.result_names(forward, len(forward.results))
        call = f"{graphs}.run({', '.join(inputs)})"
        last = finish(inputs, results)
        listed = f"({''.join(f'{r}, ' for r in results).strip()})"
        if last == [f"return {listed}"]:
            return f"{self.name} = {graphs}.segment"
        lines = [f"{listed} = {call}", *last]
        header = f"def {self.name}({', '.join(inputs)}):"
        return "\n".join([header, *(f"    {line}" for line in lines)])

    def _function(
        self,
        graph: ATenGraph,
        name: str,
        finish: Finish,
        *,
        top: bool = False,
        given: bool = False,
        saved: Backward | None = None,
    ) -> str:
        """The text of one graph as a function; its definitions go before it.

        Args:
            graph: The graph.
            name: Name of the function.
            finish: Its last lines.
            top: It is the whole segment.
            given: It takes the memory of results that its kernels write.
            saved: What it is the backward graph of: it frees what was saved.
        """
        if self.stage in ("fuse", "emit"):
            ride_sums(graph, keep_fp32=self.options.keep_fp32)
            ride_activations(graph, keep_fp32=self.options.keep_fp32)
            lay_out(graph)
        if top and self._may_write_inputs():
            write_parts(graph, self.functional.mutations)
            write_views(graph, self.functional.mutations)
        shorten_names(graph)
        comments = node_comments(graph, self.comments)
        symbols, sizes = size_symbols(graph)
        if symbols and self.streams:
            target = self.options.target
            if fix_heads(lower(graph), keep_fp32=self.options.keep_fp32, target=target):
                symbols, sizes = size_symbols(graph)
        parameters = [n.name for n in graph.placeholders]
        released: list[str] = []
        if saved is not None:
            parameters, released, held = autograd.backward_parameters(saved)
            if released:
                targets = f"{', '.join(released)}{',' if len(released) == 1 else ''}"
                sizes = [f"{targets} = {held}", f"{held}.clear()", *sizes]
        externs = True
        if self.stage == "lower":
            lines = flat_lines(graph, symbols, self.constants, comments, finish)
        else:
            lowered = lower(graph)
            if self.streams:
                lowered = stream(
                    lowered,
                    keep_fp32=self.options.keep_fp32,
                    target=self.options.target,
                )
                self.numerics |= any(map(rounds_float32, lowered.streams.values()))
                for node, why in lowered.reasons.items():
                    said = [c for c in (comments.get(node), f"apart: {why}") if c]
                    comments[node] = " · ".join(said)
            mutations = self._mutations(graph, lowered) if top else {}
            for note in lowered.notes:
                log.debug("%s: %s", name, note)
            schedule = self._schedule(graph, lowered, comments, mutations, given)
            apart = parts_apart(schedule, mutations) if self.stage == "emit" else ()
            if apart:
                # What is computed into parts of an input has to read its old values first.
                other = self._schedule(
                    graph, lowered, comments, mutations, given, apart
                )
                if not parts_apart(other, mutations):
                    schedule = other
            self.taken.update(k.name for k in schedule.kernels)
            for position, node in enumerate(graph.placeholders):
                written = (*schedule.in_place.values(), *schedule.landed.values())
                if lowered.values[node] in written:
                    self.in_place[position] = None
            # At stage `fuse` the groups are ATen calls as well.
            externs = self.stage == "fuse" or any(
                isinstance(s, Call) and not isinstance(s, Summed)
                for s in schedule.steps
            )
            if self.stage == "fuse":
                text, lines = group_functions(
                    graph, schedule, symbols, self.constants, comments, finish
                )
                self.definitions.extend(text)
            else:
                lines = self._kernel_lines(
                    graph, name, schedule, symbols, comments, finish, given, released
                )
        check_sizes(graph, symbols, lines)
        lines = [*sizes, *lines]
        if externs and top:
            lines = self._guarded(graph, lines)
        if given:
            parameters += [f"{n}=None" for n in self.given if n]
        header = f"def {name}({', '.join(parameters)}):"
        return "\n".join([header, *(f"    {line}" for line in lines)])

    def _schedule(
        self,
        graph: ATenGraph,
        lowered: Lowered,
        comments: Mapping[fx.Node, str],
        mutations: Mapping[Definition, Definition],
        given: bool,
        apart: Container[Definition] = frozenset(),
    ) -> Schedule:
        """The kernels and calls of a graph, and where what they compute lies."""
        schedule = fuse(
            lowered,
            comments=comments,
            words=functions_called(graph, self.segment),
            keep_fp32=self.options.keep_fp32,
            taken=self.taken,
            prefix="" if self.name in ("segment_0", "segment") else f"{self.name}_",
            mutations=mutations,
            reusing=self.stage == "emit" and not given,
            apart=apart,
        )
        if self.stage != "emit":
            return schedule
        if self.target == "triton" and not schedule.places:
            schedule = cross(schedule, self._is_on_gpu)
        return reuse(graph, schedule, results=not given, mutations=mutations)

    def _is_on_gpu(self, device: torch.device) -> bool:
        """Whether kernels of a device are printed as Triton (`targets.print_kernels`)."""
        return self.options.target != "auto" or device.type != "cpu"

    def _kernel_lines(
        self,
        graph: ATenGraph,
        name: str,
        schedule: Schedule,
        symbols: dict[Any, str],
        comments: Mapping[fx.Node, str],
        finish: Finish,
        given: bool,
        released: Iterable[str],
    ) -> list[str]:
        forced = self.options.target != "auto"
        measured = self.options.mode in MEASURED_MODES
        printed = print_kernels(
            schedule.kernels,
            self.target,
            name,
            symbols,
            forced=forced,
            tuner=Tuner(size_hints(graph)) if measured else None,
            taken=_host_names(graph, schedule) | {*symbols.values()},
        )
        if printed.definitions:
            self.definitions.append(printed.definitions)
        self.imports.update(dict.fromkeys(printed.imports))
        self.kernels += printed.count
        host = Host(graph, schedule, printed.calls, symbols, self.constants, comments)
        if given:
            self.given = host.take_results()
        lines = host.body(finish, released)
        self.imports.update(host.imports)
        return lines

    def _guarded(self, graph: ATenGraph, lines: list[str]) -> list[str]:
        """Extern calls run without autocast and without recording gradients."""
        guards = []
        if self.functional.autocast:
            # What autocast would cast is written out in the graph.
            guards.append("torch._C._DisableAutocast()")
        if self.segment.grad_enabled and any(
            isinstance(v, torch.Tensor) and v.requires_grad for v in self.segment.inputs
        ):
            guards.append("torch.no_grad()")
        if not guards:
            return lines
        *body, last = lines
        if not body:
            return lines
        return [f"with {', '.join(guards)}:", *(f"    {line}" for line in body), last]

    def _may_write_inputs(self) -> bool:
        """Whether what goes into inputs may be written there before the segment's end."""
        return self.stage == "emit" and not self.segment.may_raise

    def _mutations(
        self, graph: ATenGraph, lowered: Lowered
    ) -> dict[Definition, Definition]:
        """Results that only go into an input, which a kernel may write there itself."""
        if not self._may_write_inputs():
            return {}
        wanted = [r for r in graph.results if isinstance(r, fx.Node)]
        found: dict[Definition, Definition] = {}
        for mutation in self.functional.mutations:
            node = graph.results[mutation.output]
            target = lowered.values[graph.placeholders[mutation.input]]
            result = lowered.values.get(node) if isinstance(node, fx.Node) else None
            if not isinstance(result, Definition) or not isinstance(target, Definition):
                continue
            planned = any(
                getattr(plan, "index", None) == mutation.output
                for plan in self.functional.outputs
                if isinstance(plan, plans.Value | plans.ViewOfOutput)
            )
            # NOTE: tensors made in inference mode have no version to count.
            inference = self.segment.inputs[mutation.input].is_inference()
            if not planned and not inference and wanted.count(node) == 1:
                found[result] = target
        return found
