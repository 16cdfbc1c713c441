"""The stages `lower` and `fuse` as Python text.

`lower` is the functional graph, one ATen call a line. `fuse` has one function for each
fusion group, with the ATen calls whose work the kernel would do:

    def sin_mul_sum(x):
        sin = torch.ops.aten.sin.default(x)
        y = torch.ops.aten.mul.Tensor(sin, 2)
        total = torch.ops.aten.sum.default(y)
        return y, total

    def segment_0(x):
        y, total = sin_mul_sum(x)
        return (y, total)

A value that a kernel would compute again is computed again here, so that the stage has the
same data flow as the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch import fx

from .attention_form import Attention
from .constants import Constants
from .definitions import Definition, Number
from .host import Finish
from .indexing import as_expr
from .loops import Store
from .plans import ATenGraph
from .schedule import Call, Launched, Schedule
from .spelling import spell, spell_call, spell_expr

Symbols = dict[sympy.Symbol, str]


class _Flat:
    """Texts of the values of a graph whose calls are all written out."""

    def __init__(
        self, graph: ATenGraph, symbols: Symbols, constants: Constants
    ) -> None:
        self.graph, self.symbols, self.constants = graph, symbols, constants

    def text(self, node: fx.Node) -> str:
        if node.op == "get_attr":
            return self.constants.name(self.graph.constants[str(node.target)])
        if node.op == "call_function":
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                return f"({spell_expr(as_expr(value), self.symbols)})"
        return node.name

    def call(self, node: fx.Node) -> str:
        return spell_call(node, self.text, self.symbols)

    def finish(self, finish: Finish) -> list[str]:
        lines, results = [], []
        for position, result in enumerate(self.graph.results):
            text = spell(result, self.text, self.symbols)
            if isinstance(result, fx.Node) and not text.isidentifier():
                lines.append(f"number_{position} = {text}")
                text = f"number_{position}"
            results.append(text)
        return [*lines, *finish([n.name for n in self.graph.placeholders], results)]


def flat_lines(
    graph: ATenGraph,
    symbols: Symbols,
    constants: Constants,
    comments: Mapping[fx.Node, str],
    finish: Finish,
) -> list[str]:
    """The body of a function that makes the graph's calls one by one."""
    flat = _Flat(graph, symbols, constants)
    lines, said = [], ""
    for node in graph.graph_module.graph.nodes:
        if node.op != "call_function" or isinstance(node.meta.get("val"), torch.SymInt):
            continue
        line = f"{node.name} = {flat.call(node)}"
        comment = comments.get(node, "")
        if comment and comment != said:
            line, said = f"{line}  # {comment}", comment
        lines.append(line)
    return [*lines, *flat.finish(finish)]


class _Groups:
    def __init__(
        self,
        graph: ATenGraph,
        schedule: Schedule,
        symbols: Symbols,
        constants: Constants,
        comments: Mapping[fx.Node, str],
    ) -> None:
        self.graph, self.schedule = graph, schedule
        self.flat = _Flat(graph, symbols, constants)
        self.comments = comments
        self.values = schedule.lowered.values
        self.nodes = {
            value: node
            for node, value in self.values.items()
            if isinstance(value, Definition)
        }
        self.ready: set[fx.Node] = set(graph.placeholders)
        self.functions: list[str] = []
        self.lines: list[str] = []

    def write(self, finish: Finish) -> None:
        stored = {d.name: d for d in self.schedule.stored}
        for d in self.schedule.empty:
            self._inline(self.nodes.get(d))
        for step in self.schedule.steps:
            if isinstance(step, Call):
                self._inline(step.node)
                continue
            written = [stored[b.name] for b in step.kernel.outputs]
            summed = _summed(step.kernel)
            outputs = [
                d.node if d.name in summed else self.nodes.get(d) for d in written
            ]
            self._function(step.kernel.name, [n for n in outputs if n is not None])
        for result in self.graph.results:
            if isinstance(result, fx.Node):
                self._inline(result)
        self.lines.extend(self.flat.finish(finish))

    def _function(self, name: str, outputs: list[fx.Node]) -> None:
        outputs = [n for n in dict.fromkeys(outputs) if n not in self.ready]
        if not outputs:
            return
        needed, inputs = self._needed(outputs)
        body, said = [], ""
        for node in needed:
            line = f"{node.name} = {self.flat.call(node)}"
            comment = self.comments.get(node, "")
            if comment and comment != said:
                line, said = f"{line}  # {comment}", comment
            body.append(line)
        names = ", ".join(n.name for n in outputs)
        sizes = [s for s in self._sizes_of(needed) if s not in {n.name for n in inputs}]
        parameters = ", ".join([*(n.name for n in inputs), *sizes])
        lines = [f"def {name}({parameters}):", *body, f"return {names}"]
        self.functions.append("\n    ".join(lines))
        self.lines.append(f"{names} = {name}({parameters})")
        self.ready.update(outputs)

    def _inline(self, node: fx.Node | None) -> None:
        """Makes a value in the segment function itself."""
        if node is None or node in self.ready:
            return
        for needed in self._needed([node])[0]:
            self.lines.append(f"{needed.name} = {self.flat.call(needed)}")
            self.ready.add(needed)

    def _needed(self, outputs: list[fx.Node]) -> tuple[list[fx.Node], list[fx.Node]]:
        """Calls that make `outputs` from what is ready, and the inputs, in graph order."""
        needed: set[fx.Node] = set()
        inputs: set[fx.Node] = set()
        stack = list(outputs)
        while stack:
            node = stack.pop()
            if node.op == "get_attr" or node in needed:
                continue
            value = self.values.get(node)
            spelled = isinstance(value, Number) and value.expr is not None
            if spelled and node.op != "placeholder":
                continue
            if node in self.ready:
                inputs.add(node)
                continue
            needed.add(node)
            stack.extend(node.all_input_nodes)
        order = [*self.values]
        return [n for n in order if n in needed], [n for n in order if n in inputs]

    def _sizes_of(self, nodes: list[fx.Node]) -> list[str]:
        """Names of the sizes that the texts of calls mention."""
        found: set[Any] = set()

        def visit(argument: Any) -> Any:
            value = self.values.get(argument) if isinstance(argument, fx.Node) else None
            if isinstance(argument, torch.SymInt):
                found.update(as_expr(argument).free_symbols)
            elif isinstance(value, Number) and value.expr is not None:
                found.update(value.expr.free_symbols)
            return argument

        for node in nodes:
            fx.node.map_aggregate((node.args, dict(node.kwargs)), visit)
        return sorted(self.flat.symbols.get(s, str(s)) for s in found)


def _summed(kernel: Launched) -> set[str]:
    """Names of the memory that a kernel adds to: its node's call starts and adds at once."""
    if isinstance(kernel, Attention):
        return set()
    return {s.buffer.name for s in kernel.body if isinstance(s, Store) and s.adds}


def group_functions(
    graph: ATenGraph,
    schedule: Schedule,
    symbols: Symbols,
    constants: Constants,
    comments: Mapping[fx.Node, str],
    finish: Finish,
) -> tuple[list[str], list[str]]:
    """The functions of the groups, and the body of the function that calls them."""
    groups = _Groups(graph, schedule, symbols, constants, comments)
    groups.write(finish)
    return groups.functions, groups.lines
