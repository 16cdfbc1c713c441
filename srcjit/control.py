"""What a user can say about compiling from inside and outside a program.

Marks on functions and tensors, the process-wide stance, and the reset of everything. The
names and meanings are those of `torch.compiler`.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

import torch

if TYPE_CHECKING:
    from srcjit.dispatch import Dispatcher

F = TypeVar("F", bound=Callable[..., Any])

DISABLED = "__srcjit_disabled__"
"""Attribute of a function that is to be left to Python."""

ALLOWED = "__srcjit_allow_in_graph__"
"""Attribute of a function whose calls are one operation of a segment."""


# ── Marks ───────────────────────────────────────────────────────────────────────────


@overload
def disable(fn: F, recursive: bool = ..., *, reason: str | None = ...) -> F: ...
@overload
def disable(
    fn: None = ..., recursive: bool = ..., *, reason: str | None = ...
) -> Callable[[F], F]: ...


def disable(
    fn: Any = None, recursive: bool = True, *, reason: str | None = None
) -> Any:
    """Leaves a function to Python, also where a jitted function calls it.

    Args:
        fn: The function; a jitted one is turned back into what it was made from. Without
            it, returns a decorator.
        recursive: As in `torch.compiler.disable`. Python runs what the function calls in
            either case, unless that is jitted itself.
        reason: Shown in the diagnostic of the graph break at a call.

    Returns:
        The function itself, marked; a wrapper where it cannot carry a mark.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if not callable(fn):
        raise TypeError(f"srcjit.disable needs a callable, got {type(fn).__name__}")
    dispatcher = dispatcher_of(fn)
    if dispatcher is not None:
        fn = dispatcher.function
    if not isinstance(fn, FunctionType):
        inner = fn

        @functools.wraps(inner, updated=())
        def native(*args: Any, **kwargs: Any) -> Any:
            return inner(*args, **kwargs)

        fn = native
    setattr(fn, DISABLED, Mark(fn, reason or ""))
    return fn


def is_disabled(fn: object) -> bool:
    """True for a function marked by `srcjit.disable` or `torch.compiler.disable`."""
    return _marked(fn, DISABLED) or bool(getattr(fn, "_torchdynamo_disable", False))


class Mark:
    """A mark on a function, which holds for that function alone.

    `functools.wraps` copies attributes to the wrapper, which may do anything.

    Attributes:
        reason: What the user gave as a reason.
    """

    __slots__ = ("_id", "reason")

    def __init__(self, fn: object, reason: str = "") -> None:
        self._id = id(fn)
        self.reason = reason

    def holds_for(self, fn: object) -> bool:
        """True if `fn` is what was marked."""
        return id(fn) == self._id


def _marked(fn: object, name: str) -> bool:
    mark = getattr(fn, name, None)
    return isinstance(mark, Mark) and mark.holds_for(fn)


def dispatcher_of(fn: object) -> Dispatcher | None:
    """Returns the dispatcher whose stub `fn` is, or None."""
    dispatcher: Dispatcher | None = getattr(fn, "__srcjit__", None)
    return dispatcher if dispatcher is not None and dispatcher.stub is fn else None


def allow_in_graph(fn: Any) -> Any:
    """Says that a function, called with tensors, does nothing but tensor operations.

    Its calls become one operation of a segment; the compiler does not look inside.

    Args:
        fn: A function, or a list or tuple of functions.

    Returns:
        `fn`.
    """
    if isinstance(fn, (list, tuple)):
        return type(fn)(allow_in_graph(one) for one in fn)
    if not callable(fn):
        raise TypeError(f"allow_in_graph needs a callable, got {type(fn).__name__}")
    setattr(fn, ALLOWED, Mark(fn))
    return fn


def graph_break(msg: str = "") -> None:
    """Splits the segment at this place; does nothing when Python runs it.

    Args:
        msg: Shown as a note of the diagnostic.
    """


graph_break.__srcjit_graph_break__ = Mark(graph_break)  # type: ignore[attr-defined]


def mark_dynamic(
    tensor: torch.Tensor, index: int | list[int] | tuple[int, ...]
) -> None:
    """Says that a dimension's size will vary, so that the first compile makes it symbolic.

    Args:
        tensor: An argument of a jitted function, before its first call.
        index: The dimension or dimensions, from 0 to `tensor.dim() - 1`.
    """
    dims = {index} if isinstance(index, int) else set(index)
    wrong = sorted(d for d in dims if not 0 <= d < tensor.dim())
    if wrong:
        raise IndexError(f"no dimension {wrong[0]} in a tensor of {tensor.dim()}")
    known: set[int] = getattr(tensor, "_srcjit_dynamic_dims", set())
    tensor._srcjit_dynamic_dims = known | dims  # type: ignore[attr-defined]


class _Compiling(threading.local):
    """Whether this thread is inside the compiler."""

    active = False


compiling = _Compiling()
compile_lock = threading.RLock()
"""Held while compiling: PyTorch's tracing patches global state in places."""


def is_compiling() -> bool:
    """True in code that runs because srcjit is compiling it, not because it was called."""
    return compiling.active


# ── All dispatchers ─────────────────────────────────────────────────────────────────

_dispatchers: weakref.WeakSet[Dispatcher] = weakref.WeakSet()
_dispatchers_lock = threading.RLock()


def register(dispatcher: Dispatcher) -> None:
    """Makes a dispatcher follow `reset` and `set_stance`."""
    with _dispatchers_lock:
        _dispatchers.add(dispatcher)


def dispatchers() -> list[Dispatcher]:
    """Returns all dispatchers that are alive."""
    with _dispatchers_lock:
        return list(_dispatchers)


Event = Literal["specialized", "recompiles", "stopped"]
"""What observers hear of, with a `Specialization`, a reason or a `Diagnostic`."""

observers: list[Callable[[Event, Dispatcher, Any], None]] = []
"""Called at each event in any dispatcher (`explain`, `emit` and `bisect` listen)."""


class Tap(Protocol):
    """Sees the calls of jitted functions, arguments and results (`bisect` has one).

    Attributes:
        listening: Whether the next call is to go through `call`.
    """

    listening: bool

    def call(self, dispatcher: Dispatcher, /, *args: Any, **kwargs: Any) -> Any:
        """Calls `dispatcher.stub` with these arguments, not listening meanwhile."""


tap: Tap | None = None
"""Put into every stub that is written while it is set."""


def notify(event: Event, dispatcher: Dispatcher, detail: Any) -> None:
    """Tells the observers what has happened."""
    for observer in tuple(observers):
        observer(event, dispatcher, detail)


def reset() -> None:
    """Forgets all specializations of all functions, as if nothing had been called yet.

    What is kept of large results' memory is given back to the system.
    """
    from srcjit import logs, shared
    from srcjit.runtime import large_memory

    shared.clear()
    logs.forget_told()
    large_memory.give_back()
    for dispatcher in dispatchers():
        dispatcher.reset()


FORK_WAIT = 60.0
"""Seconds that a fork waits for another thread that is compiling."""


class _Forking(threading.local):
    """Whether this thread's fork waited successfully."""

    waited = False


_forking = _Forking()


def _before_fork() -> None:
    # PyTorch's state is the process's in places, and a child would inherit the middle of it.
    _forking.waited = compile_lock.acquire(timeout=FORK_WAIT)


def _after_fork_in_parent() -> None:
    if _forking.waited:
        compile_lock.release()


def _after_fork_in_child() -> None:
    # Another thread of the parent may have held a lock; it does not exist in the child.
    global _dispatchers_lock, compile_lock
    _dispatchers_lock = threading.RLock()
    compile_lock = threading.RLock()
    for dispatcher in list(_dispatchers):
        dispatcher.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


# ── Stance ──────────────────────────────────────────────────────────────────────────

STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")

_stance = "default"


class set_stance:
    """Sets how all jitted functions behave; also a context manager and a decorator.

    Args:
        stance: `"default"`; `"force_eager"`: everything runs natively;
            `"eager_on_recompile"`: what is compiled is used, anything else runs natively
            if something has been compiled before; `"fail_on_recompile"`: that is an error.
    """

    def __init__(self, stance: str = "default") -> None:
        if stance not in STANCES:
            raise ValueError(f"stance must be one of {STANCES}, got {stance!r}")
        self._previous = _stance
        self._wanted = stance
        _apply(stance)

    def __call__(self, fn: F) -> F:
        """Makes a function run under this stance; the stance before is put back."""
        _apply(self._previous)
        wanted = self._wanted

        @functools.wraps(fn)
        def under_stance(*args: Any, **kwargs: Any) -> Any:
            with set_stance(wanted):
                return fn(*args, **kwargs)

        return under_stance  # type: ignore[return-value]

    def __enter__(self) -> None:
        _apply(self._wanted)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _apply(self._previous)


def _apply(stance: str) -> None:
    global _stance
    if stance != _stance:
        _stance = stance
        for dispatcher in dispatchers():
            dispatcher.regenerate()


def eager() -> bool:
    """True if everything is to run natively."""
    return _stance == "force_eager"


def may_recompile(function: str, what: str) -> bool:
    """True if a function that has specializations may get another.

    Raises:
        RuntimeError: Under the stance `fail_on_recompile`.
    """
    if _stance == "fail_on_recompile":
        raise RuntimeError(
            f"`{function}` needs another specialization under the stance "
            f"`fail_on_recompile`: {what}"
        )
    return _stance != "eager_on_recompile"
