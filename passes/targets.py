"""Kernel languages: prints kernels for a target and says how the host calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .attention_form import Attention
from .loops import Buffer, Kernel, ScalarArg
from .spelling import spell_expr
from .tuning import Tuner


@dataclass(frozen=True)
class Printed:
    """Kernels as text.

    Attributes:
        definitions: Module-level text.
        calls: Kernel name -> the host's lines that run it, without indentation.
        imports: Import statements that both need.
    """

    definitions: str
    calls: Mapping[str, tuple[str, ...]]
    imports: tuple[str, ...]


def choose(target: str, devices: set[torch.device]) -> str:
    """The kernel language for a segment: `cpp`, `triton` or `aten`."""
    if target != "auto":
        return target
    kinds = {d.type for d in devices}
    if kinds <= {"cpu"}:
        from srcjit.runtime import compiler_available

        return "cpp" if compiler_available() else "aten"
    if "cuda" in kinds:
        from srcjit.runtime import triton_available

        return "triton" if triton_available() else "aten"
    return "aten"


def why_aten(devices: set[torch.device]) -> str:
    """Says why `choose` found no kernel language for a segment."""
    kinds = {d.type for d in devices}
    if kinds <= {"cpu"}:
        from srcjit.runtime import missing_compiler

        return str(missing_compiler())
    if "cuda" in kinds:
        return "Triton is not installed"
    return f"no kernels are made for {' and '.join(sorted(kinds))} tensors"


def print_kernels(
    kernels: Sequence[Kernel | Attention],
    target: str,
    segment: str,
    symbols: dict[Any, str],
    *,
    forced: bool = False,
    tuner: Tuner | None = None,
) -> Printed:
    """Prints kernels in the language of `target`, by a tuner if schedules are measured.

    Kernels on CPU tensors in a segment that works on a GPU are printed as C++, unless the
    user asked for the target (`forced`).
    """
    if target == "triton" and not forced:
        on_cpu = [k for k in kernels if k.outputs[0].device.type == "cpu"]
        on_gpu = [k for k in kernels if k not in on_cpu]
        cpp = _cpp(on_cpu, segment, symbols, tuner)
        return _both(cpp, _triton(on_gpu, symbols, tuner))
    return (
        _triton(kernels, symbols, tuner)
        if target == "triton"
        else _cpp(kernels, segment, symbols, tuner)
    )


def _both(first: Printed, second: Printed) -> Printed:
    definitions = [p.definitions for p in (first, second) if p.definitions]
    return Printed(
        "\n\n\n".join(definitions),
        {**first.calls, **second.calls},
        (*first.imports, *second.imports),
    )


def arguments(kernel: Kernel, symbols: dict[Any, str]) -> str:
    """The host's argument list for `kernel.parameters`."""
    spelled = []
    for p in kernel.parameters:
        if isinstance(p, Buffer | ScalarArg):
            spelled.append(p.name)
        else:
            spelled.append(spell_expr(p, symbols))
    return ", ".join(spelled)


def _cpp(
    found: Sequence[Kernel | Attention],
    segment: str,
    symbols: dict[Any, str],
    tuner: Tuner | None,
) -> Printed:
    from .print_cpp import print_kernel

    # `passes.attention` streams nothing on a CPU.
    kernels = [k for k in found if isinstance(k, Kernel)]
    if not kernels:
        return Printed("", {}, ())
    holder = f"{segment}_kernels"
    printed = {
        k.name: tuner.cpp(k, k.name) if tuner else (print_kernel(k, k.name), 1)
        for k in kernels
    }
    body = "\n\n".join(text.strip("\n") for text, _ in printed.values())
    text = f'{holder} = cpp_kernels(r"""\n{body}\n""")'
    calls = {}
    for k in kernels:
        count = printed[k.name][1]
        said = f"{k.comment}, fastest of {count}" if count > 1 else k.comment
        call = f"{holder}.{k.name}({arguments(k, symbols)})  # {said}"
        calls[k.name] = (call,)
    return Printed(text, calls, ("from srcjit.runtime import cpp_kernels",))


def _triton(
    kernels: Sequence[Kernel | Attention],
    symbols: dict[Any, str],
    tuner: Tuner | None,
) -> Printed:
    from .print_triton import print_kernel
    from .print_triton_attention import print_attention

    if not kernels:
        return Printed("", {}, ())
    print_rows = tuner.triton if tuner else print_kernel
    print_scores = tuner.attention if tuner else print_attention
    printed = {
        k.name: print_rows(k, k.name)
        if isinstance(k, Kernel)
        else print_scores(k, k.name)
        for k in kernels
    }
    imports: dict[str, None] = {}
    for p in printed.values():
        imports.update(dict.fromkeys(p.imports))
    text = "\n\n\n".join(p.text.strip("\n") for p in printed.values())
    jobs = [job for p in printed.values() for job in p.precompile_jobs()]
    if jobs:
        # All of them at once, in threads; `launch` waits for the one that it needs.
        imports["from srcjit.runtime.triton import precompile"] = None
        text += "\n\nprecompile(\n    [\n"
        text += "".join(f"        {job},\n" for job in jobs) + "    ]\n)"
    calls = {
        k.name: _commented(printed[k.name].host_lines(symbols), k.comment)
        for k in kernels
    }
    return Printed(text, calls, tuple(imports))


def _commented(lines: tuple[str, ...], comment: str) -> tuple[str, ...]:
    commented = not comment or any("  # " in line for line in lines)
    last = lines[-1] if commented else f"{lines[-1]}  # {comment}"
    return (*lines[:-1], last)
