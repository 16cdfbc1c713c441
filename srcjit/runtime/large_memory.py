"""Memory for large results on the CPU: `empty_large_cpu`, and the pool behind it.

    >>> y = empty_large_cpu((2048, 4096), (4096, 1), torch.float32)
    >>> y.shape
    torch.Size([2048, 4096])

The C library takes fresh memory for such a result from the system, which maps it page by page as
it is written and takes it back when it dies: 8192 faults for 32 MiB, three times what a loop over
it takes. So these results have memory of their own (`large_memory.cpp`): with huge pages where
they can be had fast, and kept for the next result in such a way that the system may take it at
any time.

The extension is built in the background, once a machine and PyTorch, when a second large result
is made; until then, and where there is no compiler or no Linux, the C library's memory does.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from types import ModuleType

import torch

from . import cpp_build
from .cpp import empty_cpu

_SOURCE = "large_memory"

LARGE = 8 << 20
"""Bytes of a result for which all this is done."""

SLOW = 800_000
"""Nanoseconds that a huge page may take, on average: what 512 small ones in its place take.

Measured on a virtual machine, which gives what is free back to its host every other second:
85,000 for a huge page that the host has not taken yet, 3 to 5 million for one that it has, and
that comes back in 512 pieces. Elsewhere pages may have to be moved to make a huge one.
"""

_made = 0
_is_wanted = True
_module: ModuleType | None = None
_is_possible = sys.platform == "linux"


def loaded(wait: bool = False) -> ModuleType | None:
    """Returns the extension, or None if it is not built yet, or cannot be.

    Args:
        wait: Wait until it is built.
    """
    global _module, _is_possible
    if _module is None and _is_possible:
        has_compiler = cpp_build.compiler_available()
        build = cpp_build.start_extension(_SOURCE) if has_compiler else None
        if build is None:
            _is_possible = False
        elif wait or build.is_done():
            _module = cpp_build.extension(_SOURCE)
            _is_possible = _module is not None
    return _module


def give_back() -> None:
    """Unmaps what is kept for later results."""
    if _module is not None:
        _module.drop()


@contextlib.contextmanager
def c_librarys() -> Iterator[None]:
    """Large results have the C library's memory meanwhile; for measurements."""
    global _is_wanted
    before, _is_wanted = _is_wanted, False
    try:
        yield
    finally:
        _is_wanted = before


def empty_large_cpu(
    size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """`empty_cpu` for what may be large, and will be written all over."""
    global _made
    if _is_wanted and math.prod(size) * dtype.itemsize >= LARGE:
        _made += 1
        # A first call has enough to compile.
        module = _module or (loaded() if _made > 1 else None)
        if module is not None:
            made = empty_cpu((0,), (1,), dtype)
            if module.place(made._cdata, size, stride, SLOW):
                return made
    return empty_cpu(size, stride, dtype)
