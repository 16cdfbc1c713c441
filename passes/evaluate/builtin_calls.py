"""What native calls can do, and the built-in functions about types and attributes."""

from __future__ import annotations

import builtins
import inspect
import logging
import time
import warnings
from collections.abc import Callable
from types import WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from srcjit.runtime import output

from ..kinds import is_a
from . import attribute_stores, attributes, class_lookup
from .breaks import Break, raising, unknown_operand
from .frozen import is_frozen, is_member
from .instances import make_instance
from .registry import evaluates
from .sources import TypeOf
from .truth import checked_size, size_of
from .values import (
    BuiltinMethod,
    FunctionValue,
    InstanceValue,
    Known,
    MethodValue,
    PartialValue,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    ViewValue,
    constant,
    described,
    python_type,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

# ── what a native call can do ───────────────────────────────────────────────────────

_HARMLESS: set[Any] = {
    builtins.open,
    builtins.input,
    builtins.id,
    builtins.repr,
    builtins.str,
    builtins.format,
    builtins.float,
    builtins.int,
    builtins.bool,
    builtins.len,
    builtins.hash,
    time.time,
    time.perf_counter,
    time.perf_counter_ns,
    time.monotonic,
    time.sleep,
    time.process_time,
    torch.cuda.synchronize,
}
_UNHEARD: dict[Any, Callable[[], bool]] = {
    builtins.print: output.prints_are_unheard,
    warnings.warn: output.warnings_are_unheard,
}
for _name in ("debug", "info", "warning", "error", "critical", "log", "exception"):
    _UNHEARD[getattr(logging, _name)] = output.logs_are_unheard
_LOGGING = {"debug", "info", "warning", "error", "critical", "exception", "log"}
_RESULTS: dict[Any, type] = {
    builtins.float: float,
    builtins.int: int,
    builtins.bool: bool,
    builtins.len: int,
    builtins.id: int,
    builtins.hash: int,
    time.time: float,
    time.perf_counter: float,
    time.perf_counter_ns: int,
    time.monotonic: float,
    time.process_time: float,
}


def is_harmless(obj: Any) -> bool | Callable[[], bool]:
    """Whether a native call of `obj` changes nothing that evaluation tracks.

    Some do as long as a function returns True, which `split.native` makes a guard of.
    """
    if is_member(obj, _UNHEARD):
        return _UNHEARD[obj]
    return is_member(obj, _HARMLESS)


def is_harmless_method(obj: Any, name: str) -> bool:
    """Whether a native method call of an object from outside is harmless: logging, writing."""
    if is_a(obj, (logging.Logger, logging.LoggerAdapter)) and name in _LOGGING:
        return True
    return name in ("write", "flush", "read", "readline") and hasattr(obj, "fileno")


def result_type(obj: Any) -> type | None:
    """The type of the number that a native call returns, if it is certain."""
    return _RESULTS[obj] if is_member(obj, _RESULTS) else None


# ── types and attributes ────────────────────────────────────────────────────────────


def class_of(ev: Evaluator, value: Value) -> type:
    """Returns `type(value)`, guarded."""
    value = ev.look(value)
    if isinstance(value, Unknown):
        raise unknown_operand("`type` is asked of")
    if isinstance(value, Known) and value.source is not None:
        ev.guards.type_of(value.source, value.obj)
    cls = python_type(value)
    if cls is None:
        raise Break(
            "SJ020",
            f"the class of {described(value)}",
            hint="decide on the class before the function is called",
        )
    return cls


def _classes(ev: Evaluator, value: Value) -> Any:
    value = ev.look(value)
    if isinstance(value, TupleValue):
        return tuple(_classes(ev, item) for item in value.items)
    if isinstance(value, Known):
        if value.source is not None:
            ev.use(value)
        return value.obj
    raise unknown_operand("`isinstance` needs")


@evaluates(builtins.isinstance)
def _isinstance(ev: Evaluator, value: Value, classes: Value, /) -> Value:
    cls = class_of(ev, value)
    wanted = _classes(ev, classes)
    looked = ev.look(value)
    _refuse_hooks(wanted, "__instancecheck__")
    if isinstance(looked, TensorValue) and _asks_for_legacy_class(wanted):
        raise Break(
            "SJ020", "`isinstance` of a tensor class such as `torch.FloatTensor`"
        )
    try:
        if isinstance(looked, Known):
            return constant(_is_instance(looked.obj, wanted))
        if cls is torch.Tensor and isinstance(looked, TensorValue):
            return constant(isinstance(looked.fake, wanted) and _not_fake_class(wanted))
        return constant(issubclass(cls, wanted))
    except TypeError as error:
        raise raising(error) from error


def _is_instance(obj: Any, wanted: Any) -> bool:
    """`isinstance` of an object: it is asked for `__class__` if its class is none of them."""
    cls = type(obj)
    own_class = class_lookup.class_attribute(cls, "__class__")
    looked_up = (
        not is_a(cls.__getattribute__, WrapperDescriptorType)
        or own_class is not object.__dict__["__class__"]
    )
    if looked_up and not is_a(obj, wanted):
        raise Break("SJ020", f"`{cls.__name__}` says itself what its `__class__` is")
    return isinstance(obj, wanted)


def _refuse_hooks(wanted: Any, hook: str) -> None:
    """Breaks where a class check runs the user's code."""
    if isinstance(wanted, tuple):
        for one in wanted:
            _refuse_hooks(one, hook)
        return
    if not isinstance(wanted, type) or is_frozen(wanted.__module__):
        return
    if getattr(wanted, "_is_protocol", False):
        raise Break(
            "SJ020",
            f"the protocol `{wanted.__name__}` looks at attributes",
            hint="ask `hasattr` for the attributes",
        )
    for name, cls in ((hook, type(wanted)), ("__subclasshook__", wanted)):
        owner = next((c for c in inspect.getmro(cls) if name in vars(c)), object)
        if not is_frozen(owner.__module__):
            raise Break(
                "SJ020",
                f"`{owner.__name__}.{name}` decides what is an instance",
                hint="decide on the class before the function is called",
            )


def _asks_for_legacy_class(wanted: Any) -> bool:
    classes = wanted if isinstance(wanted, tuple) else (wanted,)
    return any(type(cls) is type(torch.FloatTensor) for cls in classes)


def _not_fake_class(wanted: Any) -> bool:
    classes = wanted if isinstance(wanted, tuple) else (wanted,)
    return any(
        issubclass(torch.Tensor, c) or getattr(c, "__instancecheck__", None) is not None
        for c in classes
        if isinstance(c, type)
    )


@evaluates(builtins.type)
def _type(ev: Evaluator, value: Value, *rest: Value, **kwargs: Value) -> Value:
    if rest or kwargs:
        raise Break("SJ015", "a class is made")
    value = ev.look(value)
    if isinstance(value, InstanceValue):
        return attributes.load(ev, value, "__class__")
    cls = class_of(ev, value)
    source = getattr(value, "source", None)
    if source is not None and not is_frozen(cls.__module__):
        return Known(cls, TypeOf(source))
    return Known(cls, None)


def _attribute_name(ev: Evaluator, value: Value, what: str) -> str:
    name = ev.known(value, what)
    if not isinstance(name, str):
        raise Break("SJ030", f"raises TypeError: {what}: attribute name must be string")
    return name


@evaluates(builtins.getattr)
def _getattr(
    ev: Evaluator, obj: Value, attribute: Value, default: Value | None = None, /
) -> Value:
    name = _attribute_name(ev, attribute, "`getattr`")
    if default is not None and not attributes.has(ev, obj, name):
        return default
    return attributes.load(ev, obj, name)


@evaluates(builtins.hasattr)
def _hasattr(ev: Evaluator, obj: Value, attribute: Value, /) -> Value:
    return constant(
        attributes.has(ev, obj, _attribute_name(ev, attribute, "`hasattr`"))
    )


@evaluates(builtins.setattr)
def _setattr(ev: Evaluator, obj: Value, attribute: Value, value: Value, /) -> Value:
    attribute_stores.store(ev, obj, _attribute_name(ev, attribute, "`setattr`"), value)
    return constant(None)


@evaluates(builtins.delattr)
def _delattr(ev: Evaluator, obj: Value, attribute: Value, /) -> Value:
    attribute_stores.delete(
        ev, ev.look(obj), _attribute_name(ev, attribute, "`delattr`")
    )
    return constant(None)


@evaluates(builtins.len)
def _len(ev: Evaluator, obj: Value, /) -> Value:
    value = ev.look(obj)
    if isinstance(value, (InstanceValue, Known)):
        from .special_methods import call_special

        result = call_special(ev, value, "__len__")
        if result is not None:
            return constant(checked_size(ev, result))
    if isinstance(value, TensorValue) and value.fake.dim():
        return ev.sizes.value(value.fake.size(0))
    return constant(size_of(ev, value))


@evaluates(builtins.callable)
def _callable(ev: Evaluator, obj: Value, /) -> Value:
    value = ev.look(obj)
    if isinstance(value, ViewValue):
        return constant(False)
    if isinstance(value, (FunctionValue, MethodValue, BuiltinMethod, PartialValue)):
        return constant(True)
    if isinstance(value, Known):
        class_of(ev, value)
        return constant(callable(value.obj))
    return constant(
        class_lookup.class_attribute(class_of(ev, value), "__call__")
        is not class_lookup.MISSING
    )


@evaluates(builtins.issubclass)
def _issubclass(ev: Evaluator, cls: Value, classes: Value, /) -> Value:
    wanted = _classes(ev, classes)
    _refuse_hooks(wanted, "__subclasscheck__")
    try:
        return constant(issubclass(_classes(ev, cls), wanted))
    except TypeError as error:
        raise raising(error) from error


def construct(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Makes an instance of a class.

    Raises:
        Break: When its construction runs code that is not evaluated.
    """
    return make_instance(ev, function, args, kwargs)
