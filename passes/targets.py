"""Kernel languages: prints kernels for a target and says how the host calls them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .crossed_form import Crossed
from .equal_kernels import Shared, share, unlike
from .loops import Buffer, Kernel, ScalarArg
from .schedule import Launched
from .spelling import spell_expr
from .tuning import Tuner


@dataclass(frozen=True)
class Printed:
    """Kernels as text.

    Attributes:
        definitions: Module-level text.
        calls: Kernel name -> the host's lines that run it, without indentation.
        imports: Import statements that both need.
        count: Number of kernels in the text; those that are equal are one.
    """

    definitions: str
    calls: Mapping[str, tuple[str, ...]]
    imports: tuple[str, ...]
    count: int = 0


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
    kernels: Sequence[Launched],
    target: str,
    segment: str,
    symbols: dict[Any, str],
    *,
    forced: bool = False,
    tuner: Tuner | None = None,
    taken: Collection[str] = (),
) -> Printed:
    """Prints kernels in the language of `target`, by a tuner if schedules are measured.

    Kernels on CPU tensors in a segment that works on a GPU are printed as C++, unless the
    user asked for the target (`forced`). Memory between kernels is named unlike `taken`.
    """
    shared = share(kernels)
    if target == "triton" and not forced:
        on_cpu = [s for s in shared if s.kernel.outputs[0].device.type == "cpu"]
        on_gpu = [s for s in shared if s not in on_cpu]
        cpp = _cpp(on_cpu, segment, symbols, tuner)
        return _both(cpp, _triton(on_gpu, symbols, tuner, taken))
    return (
        _triton(shared, symbols, tuner, taken)
        if target == "triton"
        else _cpp(shared, segment, symbols, tuner)
    )


def _both(first: Printed, second: Printed) -> Printed:
    definitions = [p.definitions for p in (first, second) if p.definitions]
    return Printed(
        "\n\n\n".join(definitions),
        {**first.calls, **second.calls},
        (*first.imports, *second.imports),
        first.count + second.count,
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
    shared: Sequence[Shared],
    segment: str,
    symbols: dict[Any, str],
    tuner: Tuner | None,
) -> Printed:
    from .print_cpp import print_kernel

    if not shared:
        return Printed("", {}, ())
    holder = f"{segment}_kernels"
    texts, calls = [], {}
    for one in shared:
        # `passes.attention` streams nothing on a CPU.
        assert isinstance(one.kernel, Kernel)
        name, count = one.kernel.name, 1
        if tuner is None:
            text = print_kernel(one.kernel, name)
        else:
            text, count = tuner.cpp(one.kernel, name)
        texts.append(text.strip("\n"))
        for member, lines in zip(one.members, one.lines, strict=True):
            assert isinstance(member, Kernel)
            said = _said(member.comment, lines)
            said = f"{said}, fastest of {count}" if count > 1 else said
            call = f"{holder}.{name}({arguments(member, symbols)})  # {said}"
            calls[member.name] = (call,)
    body = "\n\n".join(texts)
    text = f'{holder} = cpp_kernels(r"""\n{body}\n""")'
    imports = ("from srcjit.runtime import cpp_kernels",)
    return Printed(text, calls, imports, len(shared))


def _commented(lines: tuple[str, ...], comment: str) -> tuple[str, ...]:
    commented = not comment or any("  # " in line for line in lines)
    last = lines[-1] if commented else f"{lines[-1]}  # {comment}"
    return (*lines[:-1], last)


def _said(comment: str, lines: str) -> str:
    return f"{lines} · {comment}" if lines else comment


def _triton(
    shared: Sequence[Shared],
    symbols: dict[Any, str],
    tuner: Tuner | None,
    taken: Collection[str],
) -> Printed:
    from .print_triton import print_kernel
    from .print_triton_attention import print_attention
    from .print_triton_crossed import print_crossed

    if not shared:
        return Printed("", {}, ())
    print_rows = tuner.triton if tuner else print_kernel
    print_both = tuner.crossed if tuner else print_crossed
    print_scores = tuner.attention if tuner else print_attention
    texts: list[str] = []
    jobs: list[str] = []
    calls: dict[str, tuple[str, ...]] = {}
    imports: dict[str, None] = {}
    for one in shared:
        kernel = one.kernel
        printed = (
            print_rows(kernel, kernel.name)
            if isinstance(kernel, Kernel)
            else print_both(kernel, kernel.name)
            if isinstance(kernel, Crossed)
            else print_scores(kernel, kernel.name)
        )
        texts.append(printed.text.strip("\n"))
        jobs.extend(printed.precompile_jobs())
        imports.update(dict.fromkeys(printed.imports))
        between = [b.name for b in printed.temporaries]
        memory = dict(zip(between, unlike(between, taken), strict=True))
        for member, lines in zip(one.members, one.lines, strict=True):
            passed = printed.passing(one.names(member) | memory, lines)
            host = passed.host_lines(symbols)
            calls[member.name] = _commented(host, _said(member.comment, lines))
    text = "\n\n\n".join(texts)
    if jobs:
        # All of them at once, in threads; `launch` waits for the one that it needs.
        imports["from srcjit.runtime.triton import precompile"] = None
        text += "\n\nprecompile(\n    [\n"
        text += "".join(f"        {job},\n" for job in jobs) + "    ]\n)"
    return Printed(text, calls, tuple(imports), len(shared))
