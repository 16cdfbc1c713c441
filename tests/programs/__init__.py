"""The programs of the differential tests, and how each is called.

`CASES` maps a name to a factory that builds the program anew: function or module, positional
arguments, keyword arguments. Nothing here knows srcjit: what is tested is that it makes no
difference.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

Made = tuple[Any, tuple[Any, ...], dict[str, Any]]
CASES: dict[str, Callable[[], Made]] = {}

EXAMPLES = Path(__file__).parents[2] / "examples"


def case(make: Callable[[], tuple[Any, ...]]) -> Callable[[], Made]:
    """Adds a factory to `CASES`; it returns (function, args) or (function, args, kwargs)."""

    def made() -> Made:
        function, args, *rest = make()
        return function, args, (rest[0] if rest else {})

    CASES[make.__name__] = made
    return made


def example(name: str) -> ModuleType:
    """Loads a script of `examples/` as a module, without running its main part."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


from tests.programs import (  # noqa: E402, F401
    breaks,
    features,
    float8,
    modules,
    specialize,
    tensors,
    training,
)
