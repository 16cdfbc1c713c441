"""Prints kernels of the loop form as Triton.

    kernel sin_mul_sum over one point, inner i < 1000:
        y[i] = mul(sin(x[i]), 2.0)
        total = sum(mul(sin(x[i]), 2.0))
        total[0] = total  (outer)

becomes one function and what the host must know to launch it:

    >>> import sympy, torch
    >>> from srcjit.passes.loops import *
    >>> def tensor(name, *size):
    ...     ones = tuple(sympy.Integer(1) for _ in size)
    ...     return Buffer(
    ...         name,
    ...         torch.float32,
    ...         torch.device("cuda"),
    ...         tuple(map(sympy.Integer, size)),
    ...         ones,
    ...     )
    >>> i = Axis(symbol("i"), sympy.Integer(1000))
    >>> y = op(
    ...     "mul",
    ...     op("sin", Load(tensor("x", 1000), i.symbol)),
    ...     Const(2.0, torch.float32),
    ... )
    >>> total = Reduce("total", "sum", y, torch.float32)
    >>> kernel = Kernel(
    ...     "sin_mul_sum",
    ...     (),
    ...     (i,),
    ...     (
    ...         Store(tensor("y", 1000), i.symbol, y),
    ...         total,
    ...         Store(tensor("total"), sympy.Integer(0), total.ref, "outer"),
    ...     ),
    ...     {
    ...         y: Label("y", "20: y = torch.sin(x) * 2"),
    ...         total.ref: Label("total", "21: y.sum()"),
    ...     },
    ... )
    >>> printed = print_kernel(kernel)
    >>> print(printed.text)
    @triton.jit
    def sin_mul_sum(x_ptr, y_ptr, total_ptr, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        live = i < 1000
        x = tl.load(x_ptr + i, live, other=0.0)
        y = libdevice.sin(x) * 2.0                 # 20: y = torch.sin(x) * 2
        tl.store(y_ptr + i, y, live)
        total = tl.sum(tl.where(live, y, 0.0), 0)  # 21: y.sum()
        tl.store(total_ptr, total)
    >>> printed.host_lines()
    ('launch(sin_mul_sum, 1, x, y, total, BLOCK=1024, num_warps=4)',)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import sympy

from .loops import Buffer, Kernel, ScalarArg
from .print_triton_axes import merge_axes
from .print_triton_body import KernelPrinter
from .print_triton_loops import LoopPrinter
from .print_triton_repeats import repeat_in_tiles
from .print_triton_schedule import Schedule, schedule
from .print_triton_split import split
from .print_triton_values import SIGNATURE, index_text

IMPORTS = (
    "import triton",
    "import triton.language as tl",
    "from srcjit.runtime import launch",
)
"""What every emitted module with Triton kernels imports."""


@dataclass(frozen=True)
class Launch:
    """One call of a kernel.

    Attributes:
        kernel: Name of the `@triton.jit` function.
        grid: Python expression for the number of programs; may use the names of sizes.
        arguments: Names of buffers, scalars and sizes, as the host knows them.
        constants: The kernel's constants and compile options.
        signature: Types of the arguments as `srcjit.runtime.triton.Variant.parse` reads
            them, pointers aligned.
        comment: For the end of the line.
    """

    kernel: str
    grid: str
    arguments: tuple[str, ...]
    constants: dict[str, int]
    signature: str
    comment: str = ""

    @property
    def text(self) -> str:
        """The host's statement."""
        constants = [f"{k}={v}" for k, v in self.constants.items()]
        call = ", ".join([self.kernel, self.grid, *self.arguments, *constants])
        return f"launch({call})" + (f"  # {self.comment}" if self.comment else "")


@dataclass(frozen=True)
class TritonText:
    """A printed kernel: mostly one function; several where a reduction is split.

    Attributes:
        text: The function definitions.
        launches: The calls, in order.
        temporaries: Buffers that the host must allocate before the calls.
        library: Names that the text uses from `srcjit.runtime.triton_library`.
    """

    text: str
    launches: tuple[Launch, ...]
    temporaries: tuple[Buffer, ...] = ()
    library: tuple[str, ...] = ()

    @property
    def imports(self) -> tuple[str, ...]:
        """Import statements that the module needs."""
        if not self.library:
            return IMPORTS
        # One name a statement, so that the imports of several kernels merge by set union.
        return (
            *IMPORTS,
            *(f"from srcjit.runtime.triton_library import {n}" for n in self.library),
        )

    def passing(self, names: Mapping[str, str], lines: str = "") -> TritonText:
        """The same kernels, launched with something else.

        Args:
            names: Argument -> what to pass for it.
            lines: The user's lines, for the comments of the launches.
        """
        launches = []
        for call in self.launches:
            arguments = tuple(names.get(a, a) for a in call.arguments)
            said = " · ".join(part for part in (lines, call.comment) if part)
            comment = said if call.comment else ""
            launches.append(replace(call, arguments=arguments, comment=comment))
        temporaries = (
            replace(b, name=names.get(b.name, b.name)) for b in self.temporaries
        )
        return replace(self, launches=tuple(launches), temporaries=tuple(temporaries))

    def host_lines(
        self, symbols: Mapping[sympy.Symbol, str] | None = None
    ) -> tuple[str, ...]:
        """The host's statements, temporaries (by `torch.empty`) included.

        They refer to buffers and scalars by name, and need `torch` if there are temporaries.

        Args:
            symbols: How the host spells sizes, where it is not the symbol's name.
        """
        allocations = tuple(
            f"{b.name} = torch.empty({_size_text(b)}, dtype={b.dtype}, device={str(b.device)!r})"
            for b in self.temporaries
        )
        lines = (*allocations, *(call.text for call in self.launches))
        table = {
            str(s): t if t.isidentifier() else f"({t})"
            for s, t in (symbols or {}).items()
            if str(s) != t
        }
        if not table:
            return lines
        word = re.compile(rf"\b({'|'.join(map(re.escape, table))})\b")
        return tuple(word.sub(lambda m: table[m.group()], line) for line in lines)

    def precompile_jobs(self) -> tuple[str, ...]:
        """Text of one argument of `srcjit.runtime.triton.precompile` for each launch."""
        return tuple(
            f"({c.kernel}, {c.signature!r}, {c.constants!r})" for c in self.launches
        )


def _size_text(buffer: Buffer) -> str:
    sizes = [index_text(s, {})[0] for s in buffer.size]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def arranged(
    kernel: Kernel, part_count: int | None = None
) -> tuple[tuple[Kernel, ...], tuple[Buffer, ...]]:
    """The kernels that are printed for one, as a GPU walks through them, and their memory."""
    parts, temporaries = split(merge_axes(kernel), part_count)
    return tuple(map(repeat_in_tiles, parts)), temporaries


def print_kernel(
    kernel: Kernel,
    name: str | None = None,
    *,
    choose: Callable[[Kernel], Schedule] = schedule,
    part_count: int | None = None,
) -> TritonText:
    """Prints a kernel under `name` (by default its own).

    The parameters of the function are `kernel.parameters` in order, unless the kernel was
    split; `TritonText.launches` says what to pass in any case. `choose` decides how each
    resulting kernel runs, `part_count` how a reduction is split (`print_triton_split`).
    """
    name = name or kernel.name
    parts, temporaries = arranged(kernel, part_count)
    texts, launches = [], []
    library: set[str] = set()
    for number, part in enumerate(parts):
        part_name = name if len(parts) == 1 else f"{name}_{number}"
        plan = choose(part)
        made = LoopPrinter if plan.looped else KernelPrinter
        printer = made(part, plan, part_name)
        texts.append(printer.print())
        launches.append(launch_of(printer, kernel.comment if number == 0 else ""))
        library |= printer.library
    return TritonText(
        "\n\n\n".join(texts), tuple(launches), temporaries, tuple(sorted(library))
    )


def launch_of(printer: KernelPrinter, comment: str) -> Launch:
    """How the host launches a printed function."""
    constants = {printer.at.blocks[g]: g.block for g in printer.at.vectors}
    constants["num_warps"] = printer.plan.num_warps
    if printer.asserts:
        constants |= {"debug": True, "sanitize_overflow": False}
    types = [
        f"*{SIGNATURE[p.dtype]}:16"
        if isinstance(p, Buffer)
        else SIGNATURE[p.dtype]
        if isinstance(p, ScalarArg)
        else "i32"
        for p, _ in printer.parameters
    ]
    return Launch(
        printer.name,
        printer.at.grid(),
        tuple(n for _, n in printer.parameters),
        constants,
        ", ".join(types),
        comment,
    )
