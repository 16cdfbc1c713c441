"""srcjit compiles ordinary PyTorch functions by rewriting their source.

    import srcjit, torch

    @srcjit.jit
    def gelu(x):
        return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))

The call is that of `torch.compile`, so switching is one word.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srcjit.control import (
        allow_in_graph,
        disable,
        graph_break,
        is_compiling,
        mark_dynamic,
        reset,
        set_stance,
    )
    from srcjit.diagnostics import GraphBreakError
    from srcjit.explain import explain
    from srcjit.jit import jit

__version__ = "0.1.0"

__all__ = [
    "GraphBreakError",
    "allow_in_graph",
    "disable",
    "explain",
    "graph_break",
    "is_compiling",
    "jit",
    "mark_dynamic",
    "reset",
    "set_stance",
]

_HOMES = {
    "GraphBreakError": "srcjit.diagnostics",
    "explain": "srcjit.explain",
    "jit": "srcjit.jit",
}
"""Where a public name lives, if not in `srcjit.control`."""


def __getattr__(name: str) -> Any:
    # Loaded when first used, so that what works on text alone never imports torch.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES.get(name, "srcjit.control")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Lets `srcjit.jit` and `srcjit.explain` be the functions, never the modules.

    The import system sets a package's attribute to each submodule that it has loaded.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
