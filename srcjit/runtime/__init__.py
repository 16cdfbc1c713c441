"""What emitted modules import: compilers' products and the fast ways to run them.

Each name is imported when it is first asked for, so that a CPU program never imports triton.
"""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "cpp_kernels": "srcjit.runtime.cpp",
    "compiler_available": "srcjit.runtime.cpp",
    "empty": "srcjit.runtime.cpp",
    "empty_cpu": "srcjit.runtime.cpp",
    "empty_large_cpu": "srcjit.runtime.large_memory",
    "NoCompiler": "srcjit.runtime.cpp",
    "missing_compiler": "srcjit.runtime.cpp",
    "laid_out": "srcjit.runtime.layout",
    "launch": "srcjit.runtime.triton",
    "empty_cuda": "srcjit.runtime.triton",
    "precompile": "srcjit.runtime.triton",
    "triton_available": "srcjit.runtime.triton",
}
"""Name -> the module that defines it."""

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value
