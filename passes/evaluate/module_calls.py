"""Calls of modules: `forward`, with the hooks around it.

y = self.layer(x)         # without hooks: y = self.layer.forward(x)
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from ..kinds import is_a
from . import attributes, class_lookup
from .breaks import Break
from .frames import Frame
from .iterators import call
from .sources import Attribute, Bound, Item, Source
from .values import (
    DictValue,
    Known,
    ModuleSlice,
    TupleValue,
    Value,
    constant,
    described,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

_state = torch.nn.modules.module
_BACKWARD = ("_backward_hooks", "_backward_pre_hooks")
_FORWARD = ("_forward_pre_hooks", "_forward_hooks")
_GLOBAL = {
    "_forward_pre_hooks": "_global_forward_pre_hooks",
    "_forward_hooks": "_global_forward_hooks",
}


def call_module(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value | Frame:
    """Returns `module(*args, **kwargs)`, or the frame of `forward`.

    Raises:
        Break: When the module is called in a way that is not evaluated.
    """
    from .calls import resolve

    module, source = function.obj, function.source
    cls = type(module)
    if getattr(cls, "__srcjit_jitted__", False) and source is not None:
        # What `srcjit.jit` made of a module: the module itself is inlined.
        ev.guards.type_of(source, module)
        original = Attribute(source, "_srcjit_original")
        return resolve(ev, ev.wrap(module._srcjit_original, original), args, kwargs)
    if cls.__call__ is not torch.nn.Module.__call__:
        method = attributes.load(ev, function, "__call__")
        return resolve(ev, method, args, kwargs)
    class_lookup.stays_absent(ev, cls, "__call__")
    if source is None:
        raise Break(
            "SJ015",
            f"a `{cls.__name__}` that a library holds is called",
            hint="keep the module in an attribute, a global variable or an argument of "
            "your own",
        )
    ev.guards.type_of(source, module)
    if cls._call_impl is not torch.nn.Module._call_impl:
        raise Break("SJ015", f"`{cls.__name__}` defines `_call_impl`")
    if module.__dict__.get("_compiled_call_impl") is not None:
        raise Break("SJ015", f"`{cls.__name__}` was compiled by `torch.compile`")
    if any(getattr(module, name) for name in _BACKWARD) or _backward_global():
        raise Break("SJ015", f"`{cls.__name__}` has backward hooks")
    _refuse_changed_hooks(ev, module)
    before, after = (_hooks(ev, module, source, table) for table in _FORWARD)
    text = source.guard
    absent = [*_BACKWARD, *(t for t in _FORWARD if not getattr(module, t))]
    ev.guards.add(
        f"not ({' or '.join(f'{text}.{name}' for name in absent)})", "no hooks"
    )
    if not before and not after:
        if has_global_hooks():  # type: ignore[no-untyped-call]
            # `remove` leaves the wishes of a hook behind.
            raise _wishes()
        check = ev.guards.bind(has_global_hooks, "has_global_hooks")
        ev.guards.add(f"not {check}()")
        return resolve(ev, attributes.load(ev, function, "forward"), args, kwargs)
    return _with_hooks(ev, function, args, kwargs, before, after)


def _refuse_changed_hooks(ev: Evaluator, module: Any) -> None:
    """Breaks if the program itself has added or removed hooks that it calls by."""
    tables = [
        *(getattr(module, name) for name in (*_BACKWARD, *_FORWARD)),
        *(table for name, table in vars(_state).items() if name.startswith("_global_")),
    ]
    for table in tables:
        value = ev.memo.get(id(table), (None,))[0]
        if isinstance(value, DictValue) and list(value.items) != list(table):
            raise Break("SJ015", "the program has added or removed hooks")


has_global_hooks = _state._has_any_global_hook
"""Whether hooks for all modules are registered. Guards call it, so it is PyTorch's own."""


def _backward_global() -> bool:
    return bool(_state._global_backward_hooks or _state._global_backward_pre_hooks)


def call_slice(
    ev: Evaluator, modules: ModuleSlice, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """`layers[1:](x)` of a `Sequential`: the modules one after the other."""
    if (
        getattr(modules.cls, "forward", None) is not torch.nn.Sequential.forward
        or len(args) != 1
        or kwargs
    ):
        raise Break(
            "SJ015",
            f"a slice of a `{modules.cls.__name__}` is called",
            hint="call the modules of the slice in a loop",
        )
    if has_global_hooks():  # type: ignore[no-untyped-call]
        raise Break(
            "SJ015",
            "hooks for all modules are registered",
            hint="call the modules of the slice in a loop",
        )
    ev.guards.add(f"not {ev.guards.bind(has_global_hooks, 'has_global_hooks')}()")
    result = args[0]
    for module in modules.items:
        result = call(ev, module, result)
    return result


class _Hook:
    """One hook: its function as a value, and how it wants to be called."""

    def __init__(self, function: Value, with_kwargs: bool) -> None:
        self.function = function
        self.with_kwargs = with_kwargs


def _hooks(ev: Evaluator, module: Any, source: Source, table: str) -> list[_Hook]:
    """The hooks of one table, global ones first, guarded."""
    found: list[_Hook] = []
    everywhere = getattr(_state, _GLOBAL[table])
    if everywhere or getattr(module, table):
        _guard_globals(ev)
    if everywhere:
        holder = Bound(ev.guards.bind(_state, "module_state"))
        found += _table(ev, Attribute(holder, _GLOBAL[table]), everywhere, set())
    hooks = getattr(module, table)
    if not hooks:
        return found
    if getattr(module, "_forward_hooks_always_called", None):
        raise Break("SJ015", "a forward hook is called even when `forward` raises")
    ev.guards.add(f"not {source.guard}._forward_hooks_always_called")
    wanting = getattr(module, f"{table}_with_kwargs")
    ev.guards.add(f"tuple({source.guard}.{table}_with_kwargs) == {tuple(wanting)!r}")
    return found + _table(ev, Attribute(source, table), hooks, set(wanting))


def _guard_globals(ev: Evaluator) -> None:
    if (
        _state._global_forward_hooks_always_called
        or _state._global_forward_hooks_with_kwargs
    ):
        raise _wishes()
    name = ev.guards.bind(_state, "module_state")
    absent = [
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
        "_global_forward_hooks_always_called",
        "_global_forward_hooks_with_kwargs",
    ]
    absent += [t for t in _GLOBAL.values() if not getattr(_state, t)]
    ev.guards.add(f"not ({' or '.join(f'{name}.{t}' for t in absent)})", "global hooks")


def _wishes() -> Break:
    return Break(
        "SJ015",
        "a hook for all modules takes keyword arguments, or is always called",
        hint="register the hook on the modules that it is for",
    )


def _table(
    ev: Evaluator, source: Source, hooks: OrderedDict[int, Any], wanting: set[int]
) -> list[_Hook]:
    ev.guards.add(f"tuple({source.guard}) == {tuple(hooks)!r}", "the same hooks")
    return [
        _Hook(ev.wrap(hook, Item(source, key)), key in wanting)
        for key, hook in hooks.items()
    ]


def is_none(value: Value) -> bool:
    return isinstance(value, Known) and value.obj is None


def _with_hooks(
    ev: Evaluator,
    module: Known,
    args: list[Value],
    kwargs: dict[str, Value],
    before: list[_Hook],
    after: list[_Hook],
) -> Value:
    from .calls import call as call_value

    given, named = TupleValue(list(args)), DictValue(dict(kwargs))
    for hook in before:
        operands = (module, given, named) if hook.with_kwargs else (module, given)
        answer = ev.look(call(ev, hook.function, *operands))
        if is_none(answer):
            continue
        if hook.with_kwargs:
            if not isinstance(answer, TupleValue) or len(answer.items) != 2:
                raise Break("SJ030", "raises RuntimeError: a forward pre-hook's answer")
            given, named = _structure(answer)
        elif isinstance(answer, Known) and is_a(answer.obj, tuple):
            given = TupleValue([constant(item) for item in ev.use(answer)])
        else:
            given = answer if isinstance(answer, TupleValue) else TupleValue([answer])
    forward = attributes.load(ev, module, "forward")
    result = call_value(ev, forward, list(given.items), dict(ev.dict_items(named)))
    for hook in after:
        shown: tuple[Value, ...] = (
            (module, given, named, result)
            if hook.with_kwargs
            else (module, given, result)
        )
        answer = ev.look(call(ev, hook.function, *shown))
        if not is_none(answer):
            result = answer
    return result


def _structure(answer: TupleValue) -> tuple[TupleValue, DictValue]:
    """The arguments, and those by keyword, that a forward pre-hook returns."""
    args, kwargs = answer.items
    if not isinstance(args, TupleValue) or not isinstance(kwargs, DictValue):
        raise Break(
            "SJ020",
            f"a forward pre-hook returns {described(args)} and {described(kwargs)}",
            hint="return a tuple of arguments and a dict of those by keyword",
        )
    return args, kwargs
