"""Container modules: their children as known structure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..kinds import is_a
from .breaks import Break
from .sources import Attribute, Item
from .values import Known, Value, constant

if TYPE_CHECKING:
    from .evaluator import Evaluator


MODULE_TABLES = ("_parameters", "_buffers", "_modules")
"""Where a module keeps what its `__setattr__` does not put into its `__dict__`."""


def refuse_written(ev: Evaluator, module: torch.nn.Module, table: str) -> None:
    """Breaks where a table of a module is read that a store has yet to change.

    NOTE: `self.steps = self.steps + 1` of a buffer is kept as a store to the attribute.
    """
    if any((id(module), name) in ev.overlay for name in getattr(module, table)):
        raise Break("SJ020", f"`{table}` of a module is read after a store to it")


def module_children(ev: Evaluator, value: Known) -> list[Value] | None:
    """The items of ModuleList, Sequential, ParameterList; keys of ModuleDict."""
    module, source = value.obj, value.source
    from . import attributes

    assert source is not None
    cls = type(module)
    nn = torch.nn
    if cls.__iter__ not in (nn.ModuleList.__iter__, nn.Sequential.__iter__):
        if getattr(cls, "__iter__", None) in (
            nn.ModuleDict.__iter__,
            nn.ParameterDict.__iter__,
        ):
            return [constant(key) for key in module_keys(ev, value)]
        if getattr(cls, "__iter__", None) is nn.ParameterList.__iter__:
            return [attributes.load(ev, value, str(i)) for i in range(len(module))]
        return None
    base = Attribute(source, "_modules")
    return [
        ev.wrap(child, Item(base, name))
        for name, child in zip(module_keys(ev, value), module._modules.values())
    ]


def module_keys(ev: Evaluator, value: Known) -> tuple[str, ...]:
    """Names of the children of a container module, guarded."""
    assert value.source is not None
    ev.guards.type_of(value.source, value.obj)
    table = "_keys" if is_a(value.obj, torch.nn.ParameterDict) else "_modules"
    keys = tuple(getattr(value.obj, table))
    ev.guards.add(f"tuple({value.source.guard}.{table}) == {keys!r}")
    return keys
