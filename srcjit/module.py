"""Jitted `nn.Module`s: a second object over the same state.

`jit_module(m)` is an object of a subclass of `type(m)` made on the fly, with the same
names, that shares `m.__dict__`. So parameters, buffers, hooks, `training`, `to()`,
`state_dict()` (no prefixes) and every attribute are those of `m`, both ways. Only `forward`
differs: it is the dispatch stub of the user's `forward`, bound to `m` itself, so that the
user's code sees the object and the class that it always saw.
"""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules import module as torch_module

from srcjit.control import dispatcher_of
from srcjit.options import Options
from srcjit.runtime import reader
from srcjit.unchanged import Unchanged

Jit = Callable[[Any], Any]

_subclasses: weakref.WeakKeyDictionary[type, weakref.ref[type]] = (
    weakref.WeakKeyDictionary()
)


def jit_module(module: Module, options: Options, jit: Jit) -> Module:
    """Returns the jitted form of `module`.

    Args:
        module: The module; one that is jitted already is jitted anew.
        options: Kept for copies.
        jit: Compiles a function with these options.
    """
    module = original_of(module)
    made = object.__new__(_subclass(type(module)))
    object.__setattr__(made, "__dict__", module.__dict__)
    object.__setattr__(made, "_srcjit_original", module)
    object.__setattr__(made, "_srcjit_options", options)
    object.__setattr__(made, "_srcjit_jit", jit)
    object.__setattr__(made, "_srcjit_forward", (None, None))
    object.__setattr__(made, "_srcjit_forwards", {})
    object.__setattr__(made, "_srcjit_usual", (None, None, module, None))
    return made


def original_of(module: Module) -> Module:
    """Returns the module that `module` is the jitted form of, or `module`."""
    if not is_jitted(module):
        return module
    original: Module = getattr(module, "_srcjit_original", module)
    return original


def is_jitted(module: Module) -> bool:
    """True for what `jit_module` returns."""
    return issubclass(type(module), _Jitted)


def _rebuild(module: Module, options: Options) -> Module:
    from srcjit.jit import _jit

    return jit_module(module, options, lambda function: _jit(function, options))


def _subclass(cls: type[Module]) -> type[Module]:
    known = _subclasses.get(cls)
    made = known() if known is not None else None
    if made is None:
        made = _make_subclass(cls)
        _subclasses[cls] = weakref.ref(made)
    return made


def _make_subclass(cls: type[Module]) -> type[Module]:
    body: dict[str, Any] = {
        "__slots__": (
            "_srcjit_forward",
            "_srcjit_forwards",
            "_srcjit_jit",
            "_srcjit_options",
            "_srcjit_original",
            "_srcjit_usual",
        ),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__class__": property(lambda self: cls),
        **{name: _shared_slot(name) for name in _slots(cls)},
    }
    if cls.__call__ is Module.__call__ and cls._call_impl is Module._call_impl:
        body["__call__"] = _call_without_python() if reader.is_loaded() else _call
    return type.__new__(type(cls), cls.__name__, (_Jitted, cls), body)


def _slots(cls: type) -> Iterator[str]:
    """Yields the names of attributes that live in slots of `cls`, as they are stored."""
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{base.__name__.lstrip('_')}{name}"
            if name not in ("__dict__", "__weakref__"):
                yield name


def _shared_slot(name: str) -> property:
    """A slot of the original, seen from the jitted module."""
    return property(
        lambda self: getattr(original_of(self), name),
        lambda self, value: setattr(original_of(self), name, value),
        lambda self: delattr(original_of(self), name),
    )


# ── What differs ────────────────────────────────────────────────────────────────────


class _Jitted:
    """What stands before the user's class in the jitted class."""

    __slots__ = ()
    __srcjit_jitted__ = True

    def __init_subclass__(cls) -> None:
        """The user's class is not told about a subclass that its user did not write."""

    @property
    def forward(self: Any) -> Any:
        """The dispatch stub of the user's `forward`, bound to the user's module."""
        try:
            original = self._srcjit_original
        except AttributeError:
            # Made by copying `__dict__` (a replica): it stands for itself.
            return super().forward  # type: ignore[misc]
        function = original.__dict__.get("forward")
        if function is None:
            function = type(original).forward
        known, forward = self._srcjit_forward
        if known is not function:
            forwards = self._srcjit_forwards
            forward = forwards.get(function)
            if forward is None:
                forward = forwards[function] = _jitted(original, self._srcjit_jit)
            object.__setattr__(self, "_srcjit_forward", (function, forward))
            if isinstance(forward, MethodType) and forward.__self__ is original:
                plain = _Hooks("module, hooks", conditions=_PLAIN)
                usual = (function, forward.__func__, original, plain)
                object.__setattr__(self, "_srcjit_usual", usual)
        return forward

    @forward.setter
    def forward(self, value: Any) -> None:
        self.__dict__["forward"] = value

    @forward.deleter
    def forward(self) -> None:
        if "forward" not in self.__dict__:
            raise AttributeError("forward")
        del self.__dict__["forward"]

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Module:
        made = copy.deepcopy(self._srcjit_original, memo)
        return _rebuild(made, self._srcjit_options)

    def __copy__(self: Any) -> Module:
        return _rebuild(copy.copy(self._srcjit_original), self._srcjit_options)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        return _rebuild, (self._srcjit_original, self._srcjit_options)


def _jitted(original: Module, jit: Jit) -> Any:
    """Returns what `original.forward` is, jitted unless the user has done so."""
    bound = original.forward
    function = bound.__func__ if isinstance(bound, MethodType) else bound
    if not isinstance(function, FunctionType):
        return bound
    stub = function if dispatcher_of(function) is not None else jit(function)
    return MethodType(stub, bound.__self__) if isinstance(bound, MethodType) else stub


class _Hooks(Unchanged):
    """Whether a call of a module is a call of its class's `forward`, as it was."""

    longest_wait = 2**16
    """Asking costs little: where each call changes an attribute, learning must cost nothing."""


_GLOBAL_HOOKS = torch_module.__dict__

_PLAIN = (
    "not module._forward_hooks",
    "not module._forward_pre_hooks",
    "not module._backward_hooks",
    "not module._backward_pre_hooks",
    "module.__dict__.keys().isdisjoint(('forward', '_compiled_call_impl'))",
    "not hooks['_global_forward_hooks']",
    "not hooks['_global_forward_pre_hooks']",
    "not hooks['_global_backward_hooks']",
    "not hooks['_global_backward_pre_hooks']",
)
"""When a call of a module is a call of its class's `forward`."""


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`Module.__call__` with the common case, no hooks at all, first."""
    try:
        function, stub, original, plain = self._srcjit_usual
    except AttributeError:  # a replica
        return Module.__call__(self, *args, **kwargs)
    if plain is None or torch._C._get_tracing_state():
        return Module.__call__(self, *args, **kwargs)
    if plain.now(original, _GLOBAL_HOOKS) is None:
        own = self.__dict__
        if (
            own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            or own["_backward_hooks"]
            or own["_backward_pre_hooks"]
            or torch_module._global_forward_hooks
            or torch_module._global_forward_pre_hooks
            or torch_module._global_backward_hooks
            or torch_module._global_backward_pre_hooks
            or "forward" in own
            or "_compiled_call_impl" in own
            or function is not type(original).forward
        ):
            return Module.__call__(self, *args, **kwargs)
        plain.learn(original, _GLOBAL_HOOKS)
        if reader.is_loaded() and type(self).__dict__.get("__call__") is _call:
            type(self).__call__ = _call_without_python()
    return stub(original, *args, **kwargs)


@functools.cache
def _call_without_python() -> Any:
    """What does the same as `_call`, which it calls in all but the common case."""
    make = getattr(reader.loaded(), "module_call", None)
    if make is None:
        return _call
    return make(_call, torch._C._get_tracing_state, _GLOBAL_HOOKS)
