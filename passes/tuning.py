"""Chooses the schedule of each kernel by measuring (`mode="max-autotune"`).

Before (what the rules choose):

    launch(softmax, 16384, x, y, BLOCK=8192, num_warps=16)

After (what was fastest on this device):

    launch(softmax, 16384, x, y, BLOCK=8192, num_warps=8)  # fastest of 7

First it is chosen into how many parts a reduction is split, then how each part runs. The
candidates are in `passes.candidates`; `srcjit.runtime.measure` times them, on memory of their
own. Without the device, or without a size to measure at, the rules' choice stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch

from .attention_form import Attention
from .candidates import attention_blocks, cpp_schedules, triton_schedules
from .crossed_form import Crossed
from .indexing import as_expr
from .loops import Buffer, Kernel, ScalarArg
from .plans import ATenGraph
from .print_cpp import print_kernel as print_cpp_kernel
from .print_cpp_schedule import Schedule as CppSchedule
from .print_triton import TritonText, arranged, print_kernel
from .print_triton_attention import print_attention
from .print_triton_axes import merge_axes
from .print_triton_crossed import crossed_tiles, print_crossed
from .print_triton_schedule import Schedule
from .print_triton_split import part_counts
from .schedule import Launched

MEASURED_MODES = ("max-autotune", "max-autotune-no-cudagraphs")
"""Values of `mode` under which schedules are measured."""

Parameters = Sequence[Buffer | ScalarArg | sympy.Symbol]


def size_hints(graph: ATenGraph) -> dict[sympy.Symbol, int]:
    """What the symbols of sizes were when the graph was made."""
    found: dict[sympy.Symbol, int] = {}
    for value in graph.inputs:
        numbers: tuple[Any, ...] = (value,)
        if isinstance(value, torch.Tensor):
            numbers = (*value.size(), *value.stride())
        for number in numbers:
            if isinstance(number, torch.SymInt) and number.node.has_hint():
                expr = as_expr(number)
                if expr.is_Symbol:
                    found.setdefault(expr, int(number.node.hint))
    return found


@dataclass(frozen=True)
class Tuner:
    """Prints kernels under the schedules that were measured to be the fastest.

    Attributes:
        sizes: What to take symbols of sizes for.
    """

    sizes: Mapping[sympy.Symbol, int]

    def triton(self, kernel: Kernel, name: str) -> TritonText:
        """As `print_triton.print_kernel`."""
        counts = part_counts(merge_axes(kernel))
        whole = [print_kernel(kernel, name, part_count=n) for n in counts]
        number = self._fastest(whole, [f"parts={n}" for n in counts], kernel)
        best = counts[number]
        parts, _ = arranged(kernel, best)
        chosen: dict[Kernel, tuple[Schedule, int]] = {}
        for part in parts:
            plans = triton_schedules(part)
            texts = [_triton_text(part, name, plan) for plan in plans]
            labels = [_difference(text) for text in texts]
            plan = plans[self._fastest(texts, labels, part)]
            chosen[part] = plan, len(plans)
        given = iter(chosen.values())
        printed = print_kernel(
            kernel, name, choose=lambda _: next(given)[0], part_count=best
        )
        counted = [len(counts) * n for _, n in chosen.values()]
        return _said(printed, counted)

    def attention(self, attention: Attention, name: str) -> TritonText:
        """As `print_triton_attention.print_attention`."""
        texts = [
            print_attention(attention, name, b) for b in attention_blocks(attention)
        ]
        labels = [_difference(text) for text in texts]
        text = texts[self._fastest(texts, labels, attention)]
        return _said(text, [0] * (len(text.launches) - 1) + [len(texts)])

    def crossed(self, crossed: Crossed, name: str) -> TritonText:
        """As `print_triton_crossed.print_crossed`."""
        tiles = crossed_tiles(crossed)
        texts = [print_crossed(crossed, name, tile) for tile in tiles]
        labels = [repr(tile) for tile in tiles]
        text = texts[self._fastest(texts, labels, crossed)]
        return _said(text, [len(texts)] + [0] * (len(text.launches) - 1))

    def cpp(self, kernel: Kernel, name: str) -> tuple[str, int]:
        """As `print_cpp.print_kernel`; also how many candidates there were."""
        plans = cpp_schedules(kernel)
        texts = [_cpp_text(kernel, name, plan) for plan in plans]
        names = ", ".join(_name(p) for p in kernel.parameters)
        run = [f"kernels.{name}({names})"]
        modules = [
            _module(
                ["from srcjit.runtime import cpp_kernels"],
                f'kernels = cpp_kernels(r"""\n{text}""")',
                kernel.parameters,
                run,
            )
            for text in texts
        ]
        labels = [_label(plan, plans[0]) for plan in plans]
        return texts[self._choose(modules, labels, kernel)], len(plans)

    def _fastest(
        self,
        texts: Sequence[TritonText],
        labels: Sequence[str],
        kernel: Launched,
    ) -> int:
        if len(texts) == 1:
            return 0
        modules = []
        for text in texts:
            jobs = ", ".join(text.precompile_jobs())
            modules.append(
                _module(
                    [
                        "import torch",
                        *text.imports,
                        "from srcjit.runtime.triton import precompile",
                    ],
                    f"{text.text}\n\n\nprecompile([{jobs}])",
                    kernel.parameters,
                    text.host_lines(),
                )
            )
        return self._choose(modules, labels, kernel)

    def _choose(
        self,
        modules: Sequence[str],
        labels: Sequence[str],
        kernel: Launched,
    ) -> int:
        """The number of the fastest module."""
        from srcjit.runtime.measure import Candidate, Trial, fastest

        if len(modules) == 1:
            return 0
        found = [self._argument(p) for p in kernel.parameters]
        arguments = [a for a in found if a is not None]
        if len(arguments) < len(found):
            return 0
        # A label names one candidate.
        named = [f"{n} {label}" for n, label in enumerate(labels)]
        candidates = tuple(map(Candidate, named, modules))
        device = kernel.outputs[0].device
        return fastest(Trial(candidates, tuple(arguments), device))

    def _argument(self, parameter: Buffer | ScalarArg | sympy.Symbol) -> Any:
        """What stands for a parameter; None where a size is unknown."""
        from srcjit.runtime.measure import Memory

        if isinstance(parameter, ScalarArg):
            return 1.0 if parameter.dtype.is_floating_point else 1
        if isinstance(parameter, sympy.Symbol):
            return self.sizes.get(parameter)
        size, stride = self._numbers(parameter.size), self._numbers(parameter.stride)
        if size is None or stride is None:
            return None
        return Memory(size, stride, parameter.dtype)

    def _numbers(self, exprs: Iterable[Any]) -> tuple[int, ...] | None:
        known = {s: sympy.Integer(n) for s, n in self.sizes.items()}
        found = [sympy.sympify(e).xreplace(known) for e in exprs]
        return tuple(map(int, found)) if all(e.is_Integer for e in found) else None


def _triton_text(part: Kernel, name: str, plan: Schedule) -> TritonText:
    return print_kernel(part, name, choose=lambda _: plan, part_count=1)


def _cpp_text(kernel: Kernel, name: str, plan: CppSchedule) -> str:
    return print_cpp_kernel(kernel, name, choose=lambda _: plan)


def _name(parameter: Buffer | ScalarArg | sympy.Symbol) -> str:
    return str(getattr(parameter, "name", parameter))


def _module(
    imports: Iterable[str],
    definitions: str,
    parameters: Parameters,
    lines: Iterable[str],
) -> str:
    """A module whose `run` takes a kernel's parameters."""
    names = ", ".join(map(_name, parameters))
    body = "\n".join(f"    {line}" for line in lines)
    head = "\n".join(imports)
    return f"{head}\n\n\n{definitions}\n\n\ndef run({names}):\n{body}\n"


def _difference(text: TritonText) -> str:
    constants = text.launches[-1].constants
    walks = " walked" if "\n    for " in text.text else ""
    return " ".join(f"{k}={v}" for k, v in constants.items()) + walks


def _label(plan: Any, usual: Any) -> str:
    """In which fields a schedule differs from the usual one."""
    fields: Callable[[Any], dict[str, Any]] = vars
    found = [
        f"{k}={getattr(v, 'value', v)}"
        for k, v in fields(plan).items()
        if v != fields(usual)[k]
    ]
    return " ".join(found) or plan.shape.value


def _said(text: TritonText, counted: Sequence[int]) -> TritonText:
    """Says at each launch of how many candidates it is the fastest."""
    launches = []
    for launch, count in zip(text.launches, counted, strict=True):
        said = [launch.comment] if launch.comment else []
        if count > 1:
            said.append(f"fastest of {count}")
        launches.append(replace(launch, comment=", ".join(said)))
    return replace(text, launches=tuple(launches))
