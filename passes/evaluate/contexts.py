"""`with` statements that evaluation enters itself.

The grad-mode family and autocast become nodes of the segment; managers without effect vanish;
managers of user classes are evaluated by their own `__enter__` and `__exit__`. Every other
`with` stays native; its body becomes a function of its own.

    with torch.no_grad():       _set_grad_enabled(False)
        y = x * 2          →    y = x * 2
                                _set_grad_enabled(True)
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import libcst as cst
import torch

from . import suites
from .breaks import Break, raising
from .frames import Block, Flow, Frame
from .values import ContextValue, IteratorValue, Known, Value, constant, is_constant

if TYPE_CHECKING:
    from .evaluator import Evaluator

_GRAD_MODES = {torch.no_grad: False, torch.enable_grad: True}
_AUTOCAST = (torch.amp.autocast, torch.cuda.amp.autocast, torch.cpu.amp.autocast)  # type: ignore[attr-defined]
_PROFILING = (torch.autograd.profiler.record_function,)
_WITHOUT_EFFECT = (torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction)
_TRACKED = (
    *_GRAD_MODES,
    *_AUTOCAST,
    *_PROFILING,
    *_WITHOUT_EFFECT,
    torch.set_grad_enabled,
    contextlib.nullcontext,
)


def manager(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """Returns the tracked manager that a constructor call makes; None for other calls."""
    obj = function.obj
    if not any(obj is known for known in _TRACKED):
        return None
    ev.use(function)
    if obj is torch.set_grad_enabled:
        # Not only a manager: the call itself sets the mode.
        raise Break("SJ012", "`set_grad_enabled` changes the grad mode")
    if obj in _GRAD_MODES:
        if args or kwargs:
            raise Break("SJ015", f"`{obj.__name__}` is used as a decorator")
        return ContextValue("grad", (obj, (), _GRAD_MODES[obj]))
    if obj in _AUTOCAST:
        return _autocast(ev, obj, args, kwargs)
    if obj in _PROFILING:
        return _profiling(ev, obj, args)
    if obj is contextlib.nullcontext:
        result = ev.look(
            args[0] if args else kwargs.get("enter_result", constant(None))
        )
        if not isinstance(result, Known) or not is_constant(result.obj):
            raise Break("SJ043", "`nullcontext` of an object")
        return NullContext("nothing", (obj, (ev.use(result),), None), result)
    return ContextValue("nothing", (obj, (), None))


class NullContext(ContextValue):
    """`contextlib.nullcontext(result)`."""

    def __init__(self, kind: str, value: Any, result: Value) -> None:
        super().__init__(kind, value)
        self.result = result


def _grad_mode(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) + len(kwargs) != 1 or set(kwargs) - {"mode"}:
        raise Break("SJ030", "raises TypeError: set_grad_enabled() takes one argument")
    value = args[0] if args else kwargs["mode"]
    mode = bool(ev.known(value, "`set_grad_enabled`"))
    return ContextValue("grad", (torch.set_grad_enabled, (mode,), mode))


def _autocast(
    ev: Evaluator, obj: Any, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    known = [ev.known(value, "`autocast`") for value in args]
    named = {key: ev.known(value, "`autocast`") for key, value in kwargs.items()}
    for given in (*known, *named.values()):
        if not is_constant(given):
            raise Break(
                "SJ015",
                f"`autocast` is given a `{type(given).__name__}`",
                hint="call `autocast` with a device's type, a dtype and booleans",
            )
    try:
        real = obj(*known, **named)
    except Exception as error:
        raise raising(error) from error
    settings = (real.device, real.fast_dtype, real._enabled, real._cache_enabled)
    return ContextValue("autocast", (torch.amp.autocast, settings, settings))


def _profiling(ev: Evaluator, obj: Any, args: list[Value]) -> Value:
    enabled = torch._C._autograd._profiler_enabled
    if enabled():
        raise Break(
            "SJ043",
            "a profiler is running",
            hint="put the label around the call of the function",
        )
    ev.guards.add(f"not {ev.guards.bind(enabled, 'profiler_enabled')}()", "no profiler")
    return ContextValue(
        "nothing", (obj, tuple(ev.known(a, "a label") for a in args), None)
    )


# ── entering and leaving ────────────────────────────────────────────────────────────


def enter(ev: Evaluator, context: Value) -> tuple[Value, Any]:
    """Enters a manager; returns what `as` binds, and what `leave` needs.

    Raises:
        Break: SJ043 when the manager is not tracked.
    """
    if isinstance(context, ContextValue):
        if context.kind == "grad":
            previous = torch.is_grad_enabled()
            _set_grad(ev, context.value[2])
            return constant(None), previous
        if context.kind == "autocast":
            return context, _enter_autocast(ev, context.value[2])
        return getattr(context, "result", context), None
    from .generators import enter_generator
    from .special_methods import call_special, special

    entered = enter_generator(ev, context)
    if entered is not None:
        return entered, None
    if special(ev, context, "__exit__") is not None:
        result = call_special(ev, context, "__enter__")
        if result is not None:
            return result, None
    raise Break("SJ043", "the context manager is not tracked")


def leave(ev: Evaluator, context: Value, state: Any) -> None:
    """Leaves a manager whose body ended without an exception."""
    if isinstance(context, ContextValue):
        if context.kind == "grad":
            _set_grad(ev, state)
        elif context.kind == "autocast":
            _leave_autocast(ev, state)
        return
    from .generators import leave_generator
    from .special_methods import call_special

    if isinstance(context, IteratorValue):
        leave_generator(ev, context)
        return
    none = constant(None)
    call_special(ev, context, "__exit__", none, none, none)


def _set_grad(ev: Evaluator, mode: bool) -> None:
    previous = torch.is_grad_enabled()
    ev.journal.record(lambda: torch._C._set_grad_enabled(previous))
    torch._C._set_grad_enabled(mode)
    if mode is not previous:
        ev.builder.effect(torch._C._set_grad_enabled, mode)


def _enter_autocast(ev: Evaluator, settings: tuple[Any, ...]) -> Any:
    device, dtype, enabled, _ = settings
    # NOTE: the cache would keep casts of fake tensors.
    real = torch.amp.autocast(device, dtype, enabled, cache_enabled=False)
    real.__enter__()  # type: ignore[no-untyped-call]
    ev.journal.record(lambda: real.__exit__(None, None, None))
    node = ev.builder.effect(torch.amp.autocast_mode._enter_autocast, *settings)
    return real, node


def _leave_autocast(ev: Evaluator, state: Any) -> None:
    real, node = state
    real.__exit__(None, None, None)
    ev.journal.record(real.__enter__)
    ev.builder.effect(torch.amp.autocast_mode._exit_autocast, node)


# ── the statement ───────────────────────────────────────────────────────────────────


def with_statement(
    ev: Evaluator, frame: Frame, node: cst.With
) -> tuple[Flow, Value | None]:
    """Evaluates a `with` whole, as one transaction.

    Raises:
        Break: SJ043 for a manager that is not tracked, or whatever breaks in the body.
    """
    from . import targets
    from .generators import can_suspend

    assert node.asynchronous is None  # a coroutine is left to Python as a whole
    entered: list[tuple[Value, Any]] = []
    operations, risks = ev.builder.operations, ev.builder.risks
    suspends = can_suspend(frame, node) and not frame.nested
    frame.nested += 1
    try:
        for item in node.items:
            context = _evaluate_manager(ev, frame, item.item)
            try:
                result, state = enter(ev, context)
            except Break as stop:
                if stop.diagnostic.origin is None:
                    raise Break(
                        stop.diagnostic.code,
                        stop.diagnostic.message,
                        ev.origin_of(frame, item.item),
                    ) from stop
                raise
            entered.append((context, state))
            if item.asname is not None:
                targets.assign(ev, frame, item.asname.name, result)
        if suspends and all(isinstance(c, ContextValue) for c, _ in entered):
            block = Block(suites.body_of(node))
            block.ended = lambda: _leave_all(ev, list(entered))
            frame.blocks.append(block)
            return Flow.NEXT, None
        flow, value = ev.run_block(frame, suites.body_of(node))
        seen = any(not isinstance(context, ContextValue) for context, _ in entered)
        _leave_all(ev, entered)
        if seen and ev.builder.risks != risks:
            raise Break(
                "SJ043",
                "an operation may raise, and the context manager would see it",
                ev.origin_of(frame, node.items[0].item),
            )
        if seen and ev.builder.operations != operations:
            ev.builder.watch()
        return flow, value
    except Break:
        raise  # the caller rolls back, which leaves the managers too
    except BaseException:
        for context, state in reversed(entered):
            if isinstance(context, ContextValue):
                leave(ev, context, state)
        raise
    finally:
        frame.nested -= 1


def _leave_all(ev: Evaluator, entered: list[tuple[Value, Any]]) -> None:
    while entered:
        leave(ev, *entered.pop())


def _evaluate_manager(ev: Evaluator, frame: Frame, node: cst.BaseExpression) -> Value:
    from . import calls, expressions

    if isinstance(node, cst.Call):
        mark = ev.journal.mark()
        function, args, kwargs = calls.operands(ev, frame, node)
        if isinstance(function, Known) and function.obj is torch.set_grad_enabled:
            ev.use(function)
            return _grad_mode(ev, args, kwargs)
        if (
            isinstance(function, Known)
            and function.obj is contextlib.nullcontext
            and args
        ):
            ev.use(function)
            return NullContext("nothing", (function.obj, (), None), args[0])
        ev.journal.rollback(mark)
    return expressions.evaluate(ev, frame, node)
