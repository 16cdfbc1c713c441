"""The host function: allocations, kernel and extern calls, frees, and the return.

Before (a schedule):

    Call(mm = aten.mm.default(x_t, w)),  Launch(kernel relu: relu[i] = maximum(mm[i], 0.0))

After:

    def segment_0(x, w):
        mm = torch.mm(x.t(), w)
        relu = empty_cpu((64, 64), (64, 1), torch.float32)
        segment_0_kernels.relu(mm, relu)                     # reads 16.4 kB, writes 16.4 kB
        return (relu,)

Views are made by the host where an extern call or a result needs them, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy
import torch
from torch import fx

from srcjit.runtime.large_memory import LARGE

from .attention_library import Operand
from .constants import Constants
from .definitions import EXTERN, SOURCE, VIEW, Definition, Number
from .groups import base_of
from .indexing import as_expr, contiguous_strides
from .loops import Buffer, ScalarArg
from .partition import is_view
from .placement import Place
from .plans import ATenGraph
from .reuse import last_uses, names_made
from .schedule import Attend, Call, Launch, Schedule, Summed
from .spelling import spell, spell_call, spell_expr, spell_in_place, spell_out
from .takeovers import takeovers
from .views import MOST_STEPS

Finish = Callable[[list[str], list[str]], list[str]]
"""From the texts of inputs and results to the last lines of the function."""


def simple_return(_: list[str], results: list[str]) -> list[str]:
    """Returns the graph's results as a tuple."""
    inside = f"{results[0]}," if len(results) == 1 else ", ".join(results)
    return [f"return ({inside})"]


class Host:
    """Writes the body of one host function."""

    def __init__(
        self,
        graph: ATenGraph,
        schedule: Schedule,
        calls: Mapping[str, tuple[str, ...]],
        symbols: dict[sympy.Symbol, str],
        constants: Constants,
        comments: Mapping[fx.Node, str],
    ) -> None:
        self.graph, self.schedule, self.calls = graph, schedule, calls
        self.symbols, self.constants, self.comments = symbols, constants, comments
        self.lowered = schedule.lowered
        self.lines: list[str] = []
        self.imports: dict[str, None] = {}
        self.named: dict[fx.Node, str] = {}
        self.allocated: set[str] = set()
        self.given: frozenset[str] = frozenset()
        self.takeovers: dict[str, str] = {}
        for node, value in self.lowered.values.items():
            if node.op == "placeholder":
                self.named[node] = node.name
            elif node.op == "get_attr" and isinstance(value, Definition):
                self.named[node] = constants.name(graph.constants[str(node.target)])

    def take_results(self) -> tuple[str | None, ...]:
        """Lets the caller give the memory that kernels write results to.

        Returns:
            The name of the parameter for each result; None for one that has no memory of its
            own which a kernel writes.
        """
        stored = {*self.schedule.stored, *self.schedule.empty}
        for step in self.schedule.steps:
            if isinstance(step, Launch):
                stored.difference_update(step.reused)
        found: list[str | None] = []
        for result in self.graph.results:
            value = self.lowered.values.get(result)
            name = None
            if isinstance(value, Definition) and value in stored:
                name = value.name
            found.append(None if name in found else name)
        self.given = frozenset(n for n in found if n)
        return tuple(found)

    def body(self, finish: Finish, released: Iterable[str] = ()) -> list[str]:
        """All lines of the function.

        Args:
            finish: Its last lines.
            released: Inputs that nobody else may hold, so that they can be freed.
        """
        steps: list[Launch | Call] = list(self.schedule.steps)
        for d in self.schedule.empty:
            self._allocate(d)
        in_place = self.schedule.in_place
        stored = {d.name: d for d in self.schedule.stored if d not in in_place}
        for d, source in in_place.items():
            if d.kind != EXTERN:
                self.named.update({d.node: source.name})
        for d, place in self.schedule.places.items():
            if d is place.whole:
                self.named[d.node] = place.memory.name
        last = last_uses(self.graph, self.schedule, frozenset(released))
        self.takeovers = takeovers(self.schedule, last, self.given)
        seen: set[str] = set()
        for number, step in enumerate(steps):
            for name in names_made(step, self.schedule):
                if name in self.takeovers and name not in seen:
                    last[self.takeovers[name]] = number
                seen.add(name)
            if isinstance(step, Launch):
                for d in step.reused:
                    del stored[d.name]
        for number, step in enumerate(steps):
            if isinstance(step, Attend):
                self._attend(step)
            elif isinstance(step, Summed):
                self._name_sum(step)
            elif isinstance(step, Call):
                self._call(step)
            else:
                taken = {source.name for source in step.reused.values()}
                taken |= self.allocated
                for buffer in step.kernel.outputs:
                    # What is written in place is an input already.
                    if buffer.name in stored and buffer.name not in taken:
                        self._allocate(stored[buffer.name])
                if step.kernel.name in self.calls:
                    self._bring(step)
                    self.lines.extend(self.calls[step.kernel.name])
                for d, source in step.reused.items():
                    self.lines.append(f"{d.name} = {source.name}")
                    self.allocated.add(d.name)
                    if self.lowered.values.get(d.node) is d:
                        self.named[d.node] = d.name
            dead = [name for name, at in last.items() if at == number]
            if dead and number < len(steps) - 1:
                self.lines.append(f"del {', '.join(dead)}")
        results = [self._result(r) for r in self.graph.results]
        return [
            *self.lines,
            *finish([n.name for n in self.graph.placeholders], results),
        ]

    # ── memory ────────────────────────────────────────────────────────────────────────────

    def _allocate(self, d: Definition) -> None:
        size, stride = self._tuple(d.size), self._tuple(d.stride)
        if d.name in self.takeovers:
            text = self.takeovers[d.name]
        elif d.device.type == "cpu":
            size_in_bytes = as_expr(sympy.prod(d.size)) * d.dtype.itemsize
            small = size_in_bytes.is_number and size_in_bytes < LARGE
            make = "empty_cpu" if small else "empty_large_cpu"
            self.imports[f"from srcjit.runtime import {make}"] = None
            text = f"{make}({size}, {stride}, {d.dtype})"
        elif d.device.type == "cuda":
            self.imports["from srcjit.runtime.triton import empty_cuda"] = None
            text = f"empty_cuda({size}, {stride}, {d.dtype}, {d.device.index or 0})"
        else:
            device = f"device={str(d.device)!r}"
            text = f"torch.empty_strided({size}, {stride}, dtype={d.dtype}, {device})"
        if d.name in self.given:
            self.lines.append(f"if {d.name} is None:")
            text = f"    {d.name} = {text}"
        else:
            text = f"{d.name} = {text}"
        self.lines.append(text)
        self.allocated.add(d.name)
        if self.lowered.values.get(d.node) is d:
            self.named[d.node] = d.name

    def _tuple(self, exprs: Iterable[Any]) -> str:
        parts = [spell_expr(e, self.symbols) for e in exprs]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"

    def _bring(self, step: Launch) -> None:
        """Binds the names of a kernel's inputs that differ from the host's.

        Those are constants, and numbers that the host computes.
        """
        for p in step.kernel.parameters:
            if isinstance(p, ScalarArg) and p.name not in self.allocated:
                self.allocated.add(p.name)
                for node, value in self.lowered.values.items():
                    if (
                        isinstance(value, Number)
                        and node.op == "call_function"
                        and node.name == p.name
                    ):
                        self.lines.append(f"{p.name} = {self.text(node)}")
            if isinstance(p, Buffer) and p.name not in self.allocated:
                self.allocated.add(p.name)
                made = self._source(p.name)
                if made is not None and self.named.get(made, p.name) != p.name:
                    self.lines.append(f"{p.name} = {self.named[made]}")

    def _source(self, name: str) -> fx.Node | None:
        for d in self.lowered.definitions:
            if d.name == name and d.kind == SOURCE:
                return d.node
        return None

    # ── calls ─────────────────────────────────────────────────────────────────────────────

    def _call(self, step: Call) -> None:
        node, in_place = step.node, step.in_place
        value = self.lowered.values[node]
        if step.place is not None:
            self._call_there(step, step.place)
            return
        if node.meta.get("part_of_input"):
            self._write_part(node)
            return
        # What goes into an input is written there; who counts a kernel's writes counts this.
        in_place = in_place or value in self.schedule.in_place
        comment = self.comments.get(node, "")
        tail = f"  # {comment}" if comment else ""
        text = spell_call(node, self.text, self.symbols)
        taken = self.takeovers.get(node.name)
        if taken is not None:
            self.named[node] = name = node.name
            self.lines.append(f"{name} = {taken}")
            self.lines.append(f"{text[:-1]}, out={name}){tail}")
            return
        if in_place:
            first, *_ = node.args
            assert isinstance(first, fx.Node)
            call = spell_in_place(node, self.text, self.symbols)
            self.lines.append(f"{call}{tail}")
            text, tail = self.text(first), ""
        if step.out:
            memory = [d.name for d in step.out]
            call = spell_out(node, memory, self.text, self.symbols)
            self.lines.append(f"{call}{tail}")
            text, tail = ", ".join(memory), ""
            text += "," if isinstance(value, tuple) and len(value) == 1 else ""
        if getattr(node.target, "namespace", "") == "srcjit":
            self.imports["from srcjit.runtime import checks"] = None
        if isinstance(value, tuple):
            names = [d.name if isinstance(d, Definition) else "_" for d in value]
            target = f"{names[0]}, = " if len(names) == 1 else f"{', '.join(names)} = "
            self.lines.append(f"{target}{text}{tail}")
            if "_" in names:
                self.lines.append("del _")
            for d in value:
                if isinstance(d, Definition) and self._may_differ(d):
                    self.imports["from srcjit.runtime import laid_out"] = None
                    stride = self._tuple(d.stride)
                    self.lines.append(f"{d.name} = laid_out({d.name}, {stride})")
        else:
            self.named[node] = node.name
            if isinstance(value, Definition) and self._may_differ(value):
                self.imports["from srcjit.runtime import laid_out"] = None
                text = f"laid_out({text}, {self._tuple(value.stride)})"
            self.lines.append(f"{node.name} = {text}{tail}")

    def _call_there(self, step: Call, place: Place) -> None:
        """A call that leaves its result in a part of other memory."""
        node, memory = step.node, place.memory
        if memory in self.schedule.stored and memory.name not in self.allocated:
            self._allocate(memory)
        if step.in_place:
            text = spell_in_place(node, self.text, self.symbols)
        else:
            part = self._part(self.lowered.values[node], place)
            text = spell_out(node, [part], self.text, self.symbols)
        comment = self.comments.get(node, "")
        self.lines.append(f"{text}{f'  # {comment}' if comment else ''}")

    def _part(self, d: Definition, place: Place) -> str:
        """What has a place in other memory, as a view of that."""
        where = [self._tuple(d.size), self._tuple(place.stride)]
        where.append(f"{place.memory.name}.storage_offset()")
        if place.offset != 0:
            where[-1] += f" + {spell_expr(place.offset, self.symbols)}"
        return f"{place.memory.name}.as_strided({', '.join(where)})"

    def _write_part(self, node: fx.Node) -> None:
        """Writes a part of an input where it is, or of a copy (`passes.overwrites`)."""
        first, *rest = node.args
        assert isinstance(first, fx.Node)
        value, size, stride, offset = (spell(a, self.text, self.symbols) for a in rest)
        own = self.lowered.values[node] in self.schedule.in_place
        whole = f"{self.text(first)}.{'data' if own else 'clone()'}"
        self.named[node] = name = node.name
        comment = self.comments.get(node, "")
        tail = f"  # {comment}" if comment else ""
        start = f"{name}.storage_offset() + {offset}"
        part = f"{name}.as_strided({size}, {stride}, {start})"
        self.lines += [f"{name} = {whole}", f"{part}.copy_({value}){tail}"]

    def _attend(self, step: Attend) -> None:
        """The call of a library that computes a whole attention."""
        library, name = step.library, step.node.name
        self.imports[f"from {library.module} import {library.function}"] = None
        operands = [self._operand(o) for o in library.operands]
        arguments = ", ".join([*operands, repr(library.scale)])
        comment = self.comments.get(step.node, "")
        tail = f"  # {comment}" if comment else ""
        size = self._tuple(library.size)
        self.lines.append(f"{name} = {library.function}({arguments}, {size}){tail}")
        self.named[step.node] = name

    def _name_sum(self, step: Summed) -> None:
        """Calls the memory that launches have added to by the name of their sum."""
        start, name = step.start, step.result.name
        found = self.named.get(start.node) if start.kind == SOURCE else None
        self.lines.append(f"{name} = {found or start.name}")
        self.allocated.add(name)
        self.named[step.node] = name

    def _operand(self, operand: Operand) -> str:
        d = operand.definition
        name = self.named.get(d.node, d.name) if d.kind == SOURCE else d.name
        whole = operand.size == d.size and operand.stride == d.stride
        if whole and operand.offset == 0:
            return name
        size, stride = self._tuple(operand.size), self._tuple(operand.stride)
        plain = d.stride == contiguous_strides(d.size) and operand.offset == 0
        if plain and operand.stride[1:] == contiguous_strides(operand.size)[1:]:
            return f"{name}.view{size}"
        offset = f"{name}.storage_offset()"
        if operand.offset != 0:
            offset += f" + {spell_expr(operand.offset, self.symbols)}"
        return f"torch.as_strided({name}, {size}, {stride}, {offset})"

    def _own_tensor(self, node: fx.Node) -> str | None:
        """A view of a temporary that is a result: to PyTorch it must not be one.

        Eager gives a tensor of its own there, which may be written to in any grad mode. It
        is a view here because of how its values are computed: a product of matrices is
        reshaped, and what was written to through a view is read back through it.
        """
        reshapes = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
        value = self.lowered.values[node]
        if not isinstance(value, Definition) or base_of(value).kind == SOURCE:
            return None
        if node.target not in reshapes:
            stored = value.kind != EXTERN and value.name in self.allocated
            if stored or not node.meta.get("owning") or not is_view(node):
                return None
            return f"{self.text(node)}.detach()"
        if node in self.named:
            return None
        base, size = node.args[:2]
        assert isinstance(base, fx.Node)
        spelled = spell(size, self.text, self.symbols)
        return f"torch.ops.aten._unsafe_view.default({self.text(base)}, {spelled})"

    def _may_differ(self, d: Definition) -> bool:
        """True if a kernel reads the result of a call whose strides are not certain."""
        target = d.node.target
        name = getattr(getattr(target, "_schema", None), "name", "").partition("::")[2]
        if name in _CERTAIN or not d.size:
            return False
        return any(
            isinstance(step, Launch)
            and any(b.name == d.name for b in step.kernel.inputs)
            for step in self.schedule.steps
        ) or any(place.memory is d for place in self.schedule.places.values())

    def text(self, node: fx.Node) -> str:
        """The host's expression for the value of a node."""
        found = self.named.get(node)
        if found is not None:
            return found
        value = self.lowered.values[node]
        if isinstance(value, Number):
            if value.expr is not None:
                return spell_expr(value.expr, self.symbols)
            return f"({spell_call(node, self.text, self.symbols)})"
        if value is None and not isinstance(node.target, torch._ops.OpOverload):
            # A step of a computation on numbers.
            return f"({spell_call(node, self.text, self.symbols)})"
        if isinstance(value, Definition):
            if value in self.schedule.places:
                return self._part(value, self.schedule.places[value])
            if value.kind == EXTERN or value.name in self.allocated:
                return value.name
            # A view: the call of its node on the text of its base.
            self._name_long_chain(node)
            return spell_call(node, self.text, self.symbols)
        raise KeyError(f"{node.name} is not available to the host")

    def _name_long_chain(self, node: fx.Node) -> None:
        """Names views on the way to one that is made of many, so that no text gets long."""
        chain: list[fx.Node] = []
        while node not in self.named:
            value = self.lowered.values[node]
            if not isinstance(value, Definition) or value.kind != VIEW:
                break
            chain.append(node)
            node = node.all_input_nodes[0]
        for step in range(len(chain) - MOST_STEPS, 0, -MOST_STEPS):
            name = chain[step].name
            self.lines.append(f"{name} = {self.text(chain[step])}")
            self.named[chain[step]] = name

    def _result(self, result: Any) -> str:
        if isinstance(result, fx.Node):
            text = self._own_tensor(result) or self.text(result)
            if not text.isidentifier():
                # A name, because the plan may ask for the same object twice.
                self.lines.append(f"{result.name} = {text}")
                self.named[result] = text = result.name
            return text
        return spell(result, self.text, self.symbols)


_CERTAIN = frozenset(
    "mm addmm bmm baddbmm mv dot embedding gather index_select index index_put scatter "
    "scatter_add cumsum cumprod rand randn randint bernoulli rand_like randn_like full "
    "empty empty_like as_strided linspace".split()
)
"""Operators whose meta functions are known to give the strides that every device gives."""
