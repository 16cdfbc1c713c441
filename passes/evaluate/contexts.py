"""Context managers that evaluation enters itself: the grad-mode family.

Every other `with` stays native; its body becomes a function of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .breaks import Break
from .values import ContextValue, Known, Value

if TYPE_CHECKING:
    from .evaluator import Evaluator

_GRAD_MODES = {torch.no_grad: False, torch.enable_grad: True}


def manager(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """Returns the tracked manager that a constructor call makes; None for other calls."""
    obj = function.obj
    try:
        known = obj in _GRAD_MODES or obj is torch.set_grad_enabled
    except TypeError:
        return None
    if not known:
        return None
    if obj is torch.set_grad_enabled:
        if len(args) != 1 or kwargs:
            raise Break("SJ040", "`set_grad_enabled` called in an unusual way")
        mode = bool(ev.known(args[0], "`set_grad_enabled`"))
        ev.use(function)
        return ContextValue("set_grad", (obj, (mode,), mode))
    if args or kwargs:
        raise Break("SJ010", f"`{obj.__name__}` is used as a decorator")
    ev.use(function)
    return ContextValue("grad", (obj, (), _GRAD_MODES[obj]))


def enter(ev: Evaluator, context: ContextValue) -> Any:
    """Enters a manager during evaluation; returns what `leave` needs."""
    previous = torch.is_grad_enabled()
    _set_grad(ev, context.value[2])
    return previous


def leave(ev: Evaluator, context: ContextValue, previous: Any) -> None:
    """Leaves a manager."""
    _set_grad(ev, previous)


def _set_grad(ev: Evaluator, mode: bool) -> None:
    previous = torch.is_grad_enabled()
    ev.journal.record(lambda: torch._C._set_grad_enabled(previous))
    torch._C._set_grad_enabled(mode)
    if mode is not previous:
        ev.builder.effect(torch._C._set_grad_enabled, mode)
