"""What kernels are called, and what the comments at their launches say.

def sin_mul_sum(...)                       # torch.sin, torch.mul and Tensor.sum, in order
segment_0_kernels.sin_mul_sum(x, total)    # reads 4.0 kB, writes 4 B
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import sympy
from torch import fx

from .attention_form import Attention
from .loops import Kernel, ReadsAndWrites, moved_bytes
from .spelling import spell_expr

AnyKernel = TypeVar("AnyKernel", Kernel, Attention)

_QUIET = frozenset(
    "view reshape expand permute transpose t alias _to_copy to full zeros ones clone contiguous "
    "squeeze unsqueeze getitem float bfloat16 half double type flatten unflatten view_as".split()
)
"""Functions that say little about what a kernel computes."""


def kernel_name(nodes: tuple[fx.Node, ...], words: Mapping[fx.Node, str]) -> str:
    """`sin_mul_sum`: the user's functions in order, views and conversions left out."""
    loud: dict[str, None] = {}
    quiet: dict[str, None] = {}
    for node in nodes:
        parts = str(node.target).split(".")
        word = words.get(node) or (parts[1] if len(parts) > 1 else parts[0])
        word = word.strip("_")
        if not word.isidentifier():
            continue
        (quiet if word in _QUIET else loud)[word] = None
    chosen = list(loud) or list(quiet) or ["kernel"]
    if len(chosen) > 4:
        chosen = [*chosen[:3], chosen[-1]]
    return "_".join(chosen)


class KernelNamer:
    """Numbers the names of a program's kernels, so that each is another."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)

    def __call__(self, wanted: str) -> str:
        """Returns the name for a kernel that would like to be called `wanted`."""
        name, number = wanted, 1
        if "_" not in wanted or wanted in self.taken:
            # Else it would be called like a function of C or like the tensor it computes.
            name = wanted = f"{wanted}_kernel"
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name


def named(kernel: AnyKernel, name: str) -> AnyKernel:
    """The kernel under a name, with a comment that says how much memory it moves."""
    return replace(kernel, name=name, comment=traffic(kernel))


def traffic(kernel: ReadsAndWrites) -> str:
    """What a kernel moves through memory: `reads 4.0 kB, writes 4 B`."""
    reads, writes = moved_bytes(kernel)
    return f"reads {_bytes(reads)}, writes {_bytes(writes)}"


def _bytes(number: sympy.Expr) -> str:
    """Bytes as a person says them: `4.0 kB`."""
    if not number.is_Integer:
        return f"{spell_expr(sympy.expand(number))} B"
    size = float(number)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
