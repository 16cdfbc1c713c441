"""`import` inside a function: library modules that are already loaded are constants."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import libcst as cst
from libcst.helpers import get_full_name_for_node

from .breaks import Break
from .frames import Frame
from .frozen import is_frozen
from .values import Known, Value

if TYPE_CHECKING:
    from .evaluator import Evaluator


def imported(
    ev: Evaluator, frame: Frame, node: cst.Import | cst.ImportFrom
) -> list[tuple[str, Value]]:
    """Returns the bindings that an import makes.

    Raises:
        Break: SJ051 when the import may run code or reaches a user's module.
    """
    if isinstance(node, cst.Import):
        return [_module(alias) for alias in node.names]
    if node.relative or isinstance(node.names, cst.ImportStar) or node.module is None:
        raise Break("SJ051", "an import inside a function", harmless=True)
    module = _loaded(get_full_name_for_node(node.module))
    found = []
    for alias in node.names:
        name = get_full_name_for_node(alias.name)
        if name is None or not hasattr(module, name):
            raise Break("SJ051", "an import inside a function", harmless=True)
        bound = (
            name if alias.asname is None else get_full_name_for_node(alias.asname.name)
        )
        found.append((str(bound), Known(getattr(module, name), None)))
    return list(found)


def _module(alias: cst.ImportAlias) -> tuple[str, Value]:
    name = get_full_name_for_node(alias.name)
    module = _loaded(name)
    assert name is not None
    if alias.asname is not None:
        return str(get_full_name_for_node(alias.asname.name)), Known(module, None)
    return name.split(".")[0], Known(_loaded(name.split(".")[0]), None)


def _loaded(name: str | None) -> object:
    module = sys.modules.get(name or "")
    if module is None or not is_frozen(name):
        raise Break("SJ051", "an import inside a function", harmless=True)
    return module
