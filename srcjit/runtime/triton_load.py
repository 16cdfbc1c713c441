"""Loads compiled Triton kernels onto a GPU, and says how each is started.

Triton builds its own launchers with a C compiler: up to 3.6 one for each list of argument types,
0.3 s each, and one module of helpers for each new cache. PyTorch ships a launcher for all kernels
(`torch._C._StaticCudaLauncher`), which Inductor uses; where it is there, Triton's driver is never
started. What it cannot do is left to Triton's. Both are called from Python; `cuda_launcher.c`, which
is not, starts what is `plain` with the handle that they have.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

MOST_PROGRAMS = 2**31 - 1
"""Launchers, Triton's and PyTorch's, multiply the sides of a grid as C ints, and start nothing
where that is not positive."""


Plain = tuple[int, int, str]


@dataclass(frozen=True)
class Start:
    """How a loaded kernel is started: what fills in the names of `launch_call`.

    Attributes:
        start: The function that does it.
        function: The kernel's handle.
        shape: What is known of the launch beside the grid.
        rest: What follows after the arguments.
        plain: Of a kernel that is started as a grid of blocks and no more: warps, bytes of
            shared memory and a letter for each parameter; the last may be for scratch memory,
            of which there is none.
    """

    start: Callable[..., object]
    function: int
    shape: tuple[Any, ...]
    rest: tuple[Any, ...]
    plain: Plain | None = None


def launch_call() -> str:
    """The text of a call that starts a kernel, the same for all kernels of this process.

    `{args}` are the arguments that are not constants, each with a comma after it; `{x}`, `{y}`,
    `{z}` the grid; `{device}` the GPU; `start`, `function`, `*shape` and `*rest` are a `Start`'s.
    """
    return "start(function, {x}, {y}, {z}, *shape, ({args}*rest), stream({device}))"


def load(kernel: Any, device: int) -> Start:
    """Loads a compiled kernel onto a GPU.

    Args:
        kernel: What `triton.compile` returned.
        device: Index of the GPU.

    Raises:
        triton.OutOfResources: When it needs more shared memory than there is.
        RuntimeError: When it needs scratch memory.
    """
    facts = kernel.metadata
    if getattr(facts, "global_scratch_size", 0) or getattr(
        facts, "profile_scratch_size", 0
    ):
        raise RuntimeError(
            f"kernel {kernel.name} needs scratch memory, which launch() does not allocate"
        )
    launcher = getattr(torch._C, "_StaticCudaLauncher", None)
    plain, scratch = _plain(kernel)
    if launcher is None or plain is None:
        return load_with_triton(kernel, device)
    limit: int = getattr(
        torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0
    )
    if facts.shared >= limit:
        # Triton's says what is too much. (All that there is is not; PyTorch's thinks it is.)
        return load_with_triton(kernel, device)
    with (
        torch.cuda.device(device),
        tempfile.NamedTemporaryFile(suffix=".cubin") as file,
    ):
        file.write(kernel.asm["cubin"])
        file.flush()
        loaded = launcher._load_kernel(file.name, kernel.name, facts.shared, device)
    # (function, registers, spills); later versions put the module first.
    return Start(launcher._launch_kernel, loaded[-3], plain, scratch, plain)


def load_with_triton(kernel: Any, device: int) -> Start:
    """As `load`, started by the launcher that Triton builds."""
    constants = [t == "constexpr" for t in kernel.src.signature.values()]
    with torch.cuda.device(device):
        run = kernel.run

    def start(
        function: int, x: int, y: int, z: int, given: tuple[Any, ...], stream: int
    ) -> None:
        values = iter(given)
        # Triton's launchers take constants, too, and ignore them.
        args = [None if constant else next(values) for constant in constants]
        run(x, y, z, stream, function, kernel.packed_metadata, None, None, None, *args)

    return Start(start, kernel.function, (), (), _plain(kernel)[0])


_KINDS = {
    "i1": "i",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "l",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "K",
    "fp32": "f",
    "fp64": "d",
}


def argument_kinds(types: Any) -> str | None:
    """A letter for each argument, as PyTorch's launcher reads them; None where it has none."""
    passed = [t for t in types if t != "constexpr"]
    letters = [
        "O" if isinstance(t, str) and t.startswith("*") else _KINDS.get(t)
        for t in passed
    ]
    return None if None in letters else "".join(map(str, letters))


def _plain(kernel: Any) -> tuple[Plain | None, tuple[None, ...]]:
    """How a kernel is started as a grid of blocks, and what it gets as scratch memory."""
    facts = kernel.metadata
    names = ("global_scratch_size", "profile_scratch_size")
    scratch = (None,) * sum(hasattr(facts, name) for name in names)
    kinds = argument_kinds(kernel.src.signature.values())
    clusters = getattr(facts, "num_ctas", 1) != 1
    special = any(
        getattr(facts, name, False)
        for name in ("launch_cooperative_grid", "launch_pdl")
    )
    if kinds is None or clusters or special or torch.version.hip is not None:
        return None, scratch
    return (facts.num_warps, facts.shared, kinds + "O" * len(scratch)), scratch
