"""Jitted `nn.Module`s: a second object over the same state.

`jit_module(m)` is an object of a subclass of `type(m)` made on the fly, with the same
names, that shares `m.__dict__`. So parameters, buffers, hooks, `training`, `to()`,
`state_dict()` (no prefixes) and every attribute are those of `m`, both ways. Only `forward`
differs: it is the dispatch stub of the user's `forward`, bound to `m` itself, so that the
user's code sees the object and the class that it always saw.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules import module as torch_module

from srcjit.options import Options

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
    return made


def original_of(module: Module) -> Module:
    """Returns the module that `module` is the jitted form of, or `module`."""
    return getattr(module, "_srcjit_original", module) if is_jitted(module) else module


def is_jitted(module: Module) -> bool:
    """True for what `jit_module` returns."""
    return getattr(type(module), "_srcjit_subclass", False)


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
            "_srcjit_jit",
            "_srcjit_options",
            "_srcjit_original",
        ),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__class__": property(lambda self: cls),
        "_srcjit_subclass": True,
        "forward": property(_get_forward, _set_forward, _delete_forward),
        "__deepcopy__": _deepcopy,
        "__copy__": _copy,
        "__reduce_ex__": _reduce,
        **{name: _shared_slot(name) for name in _slots(cls)},
    }
    usual = cls.__call__ is Module.__call__ and cls._call_impl is Module._call_impl
    if usual:
        body["__call__"] = _call
    # A metaclass or `__init_subclass__` of the user's is not told about this class.
    made = type.__new__(type(cls), cls.__name__, (cls,), body)
    return made


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


# ── Calling ─────────────────────────────────────────────────────────────────────────


def _get_forward(self: Any) -> Any:
    try:
        original = self._srcjit_original
    except AttributeError:
        # Made by copying `__dict__` (data parallel replicas): it stands for itself.
        return super(type(self), self).forward
    function = original.__dict__.get("forward")
    if function is None:
        function = type(original).forward
    known, forward = self._srcjit_forward
    if known is not function:
        forward = _jitted_forward(original, function, self._srcjit_jit)
        object.__setattr__(self, "_srcjit_forward", (function, forward))
    return forward


def _jitted_forward(original: Module, function: Any, jit: Jit) -> Any:
    bound = original.forward
    if isinstance(bound, MethodType) and isinstance(bound.__func__, FunctionType):
        return MethodType(_keep_jitted(bound.__func__, jit), bound.__self__)
    if isinstance(bound, FunctionType):
        return _keep_jitted(bound, jit)
    return bound


def _keep_jitted(function: FunctionType, jit: Jit) -> Any:
    return function if hasattr(function, "__srcjit__") else jit(function)


def _set_forward(self: Any, value: Any) -> None:
    self.__dict__["forward"] = value


def _delete_forward(self: Any) -> None:
    try:
        del self.__dict__["forward"]
    except KeyError:
        raise AttributeError("forward") from None


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`Module.__call__` with the common case, no hooks at all, first."""
    if (
        self._forward_hooks
        or self._forward_pre_hooks
        or self._backward_hooks
        or self._backward_pre_hooks
        or torch_module._global_forward_hooks
        or torch_module._global_forward_pre_hooks
        or torch_module._global_backward_hooks
        or torch_module._global_backward_pre_hooks
        or self._compiled_call_impl is not None
        or torch._C._get_tracing_state()
    ):
        return Module.__call__(self, *args, **kwargs)
    return self.forward(*args, **kwargs)


# ── Copies ──────────────────────────────────────────────────────────────────────────


def _deepcopy(self: Any, memo: dict[int, Any]) -> Module:
    return _rebuild(copy.deepcopy(self._srcjit_original, memo), self._srcjit_options)


def _copy(self: Any) -> Module:
    return _rebuild(copy.copy(self._srcjit_original), self._srcjit_options)


def _reduce(self: Any, protocol: int) -> Any:
    return _rebuild, (self._srcjit_original, self._srcjit_options)
