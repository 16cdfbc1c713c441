"""Instances of user classes made during evaluation: dataclasses, named tuples, plain classes."""

from __future__ import annotations

import abc
import dataclasses
import enum
import re
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from . import class_lookup, enums, named_tuples
from .binding import Signature, bind
from .breaks import Break
from .frozen import is_frozen
from .sources import Bound
from .values import InstanceValue, Known, TupleValue, Value

if TYPE_CHECKING:
    from .evaluator import Evaluator


def make_instance(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Returns the value of `cls(*args, **kwargs)`.

    Raises:
        Break: When construction runs code that is not evaluated.
    """
    cls = function.obj
    ev.use(function)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _named_tuple(ev, cls, args, kwargs)
    if cls in (torch.finfo, torch.iinfo):
        from .tensors import call_function

        return call_function(ev, cls, args, kwargs)
    if issubclass(cls, enum.Enum):
        return enums.by_value(ev, function, args, kwargs)
    if issubclass(cls, np.generic):
        from .calls import fold_call

        return fold_call(ev, cls, args, kwargs)
    plain = (
        type(cls) in (type, abc.ABCMeta)
        and not getattr(cls, "__abstractmethods__", None)
        and cls.__new__ is object.__new__
        and not issubclass(cls, (BaseException, torch.nn.Module, torch.Tensor))
        and not is_frozen(cls.__module__)
        and (cls.__setattr__ is object.__setattr__ or _has_setattr(cls))
        and not hasattr(cls, "__del__")
    )
    if issubclass(cls, BaseException):
        raise Break("SJ031", f"a `{cls.__name__}` is made")
    if not plain:
        raise Break("SJ015", f"an instance of `{cls.__name__}` is made")
    instance = InstanceValue(cls, {}, cls_value=function)
    if hasattr(cls, "__dataclass_fields__") and _generated_init(cls):
        _dataclass(ev, instance, args, kwargs)
        return instance
    init = cls.__init__
    if init is object.__init__:
        if args or kwargs:
            raise Break(
                "SJ030", f"raises TypeError: {cls.__name__}() takes no arguments"
            )
        return instance
    if not isinstance(init, FunctionType):
        raise Break("SJ010", f"`{cls.__name__}.__init__` has no source")
    from . import attributes
    from .calls import call

    call(ev, attributes.load(ev, instance, "__init__"), args, kwargs)
    return instance


def _has_setattr(cls: type) -> bool:
    """Whether stores during construction can be evaluated."""
    from .attribute_stores import is_frozen_dataclass

    return is_frozen_dataclass(cls) or isinstance(cls.__setattr__, FunctionType)


def _named_tuple(
    ev: Evaluator, cls: Any, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    if not named_tuples.is_plain(ev, cls, made=True):
        raise Break("SJ015", f"an instance of `{cls.__name__}` is made")
    signature = Signature(cls.__name__, positional=list(cls._fields))
    signature.defaults = {k: Known(v, None) for k, v in cls._field_defaults.items()}
    bound = bind(signature, args, kwargs)
    return TupleValue([bound[name] for name in cls._fields], cls)


def _generated_init(cls: Any) -> bool:
    """Whether `__init__` is the one that `dataclass` wrote for the fields of the class.

    They may have changed since, or be those of a class that has inherited it.
    """
    init = cls.__init__
    code = getattr(init, "__code__", None)
    if code is None or code.co_filename != "<string>":
        return False
    fields = _fields(cls)
    taken = [f for f in fields if f.init]
    expected = [f.name for f in taken if not f.kw_only]
    expected += [f.name for f in taken if f.kw_only]
    count = code.co_argcount + code.co_kwonlyargcount
    made = {f.name for f in fields if f.default_factory is not dataclasses.MISSING}
    factories = _factories(init).keys()
    return (
        list(code.co_varnames[1:count]) == expected
        and made <= factories
        and factories <= {f.name for f in fields}
    )


def _dataclass(
    ev: Evaluator, instance: InstanceValue, args: list[Value], kwargs: dict[str, Value]
) -> None:
    from . import attribute_stores, attributes
    from .calls import call

    cls: Any = instance.cls
    fields = _fields(cls)
    taken = [f for f in fields if f.init]
    signature = Signature(
        cls.__name__,
        positional=[f.name for f in taken if not f.kw_only],
        keyword_only=[f.name for f in taken if f.kw_only],
    )
    init = class_lookup.user_function(ev, cls, cls.__init__, "__init__")
    _add_defaults(ev, signature, init)
    bound = bind(signature, args, kwargs)
    factories = _factories(cls.__init__)
    names = cls.__init__.__code__.co_names
    frozen = "__setattr__" in names
    for field in fields:
        value = bound.get(field.name)
        if field.name in factories:
            if value is None or _is_factory_mark(value):
                value = _held(ev, init, factories[field.name], field.name)
                if field.default_factory is not dataclasses.MISSING:
                    value = call(ev, value, [], {})
        if value is None or field._field_type is _INIT_ONLY:
            continue
        if frozen:
            ev.journal.set_item(instance.attributes, field.name, value)
        else:
            attribute_stores.store(ev, instance, field.name, value)
    if "__post_init__" in names:
        given = [bound[f.name] for f in fields if f._field_type is _INIT_ONLY]
        call(ev, attributes.load(ev, instance, "__post_init__"), given, {})


def _fields(cls: Any) -> list[Any]:
    found = cls.__dataclass_fields__.values()
    return [f for f in found if f._field_type in _STORED]


def _factories(init: FunctionType) -> dict[str, int]:
    """Which fields `__init__` calls a factory or takes a default for, and its cell of it."""
    found = {}
    for index, name in enumerate(init.__code__.co_freevars):
        match = _FACTORY_CELL.fullmatch(name)
        if match:
            found[match[1] or match[2]] = index
    return found


_FACTORY_CELL = re.compile(r"_dflt_(.+)|__dataclass_dflt_(.+)__")


def _held(ev: Evaluator, init: Known, index: int, name: str) -> Known:
    """The factory or default that `__init__` has, whatever the fields say by now."""
    held = init.obj.__closure__[index].cell_contents
    bound = ev.guards.bind(held, f"{name}_default")
    assert init.source is not None
    path = f"{init.source.guard}.__closure__[{index}].cell_contents"
    ev.guards.add(f"{path} is {bound}", f"what makes `{name}`")
    return Known(held, Bound(bound))


_INIT_ONLY: Any = dataclasses._FIELD_INITVAR  # type: ignore[attr-defined]
_STORED: Any = (dataclasses._FIELD, _INIT_ONLY)  # type: ignore[attr-defined]


def _is_factory_mark(value: Value) -> bool:
    """Whether a value is the default that stands for a call of the field's factory."""
    mark: Any = dataclasses._HAS_DEFAULT_FACTORY  # type: ignore[attr-defined]
    return isinstance(value, Known) and value.obj is mark


def _add_defaults(ev: Evaluator, signature: Signature, init: Known) -> None:
    """Takes the defaults from the function that `dataclass` wrote, guarded."""
    function: FunctionType = init.obj
    assert init.source is not None
    positional = function.__defaults__ or ()
    named = function.__kwdefaults__ or {}
    names = signature.positional[len(signature.positional) - len(positional) :]
    for name, obj in [*zip(names, positional), *named.items()]:
        signature.defaults[name] = Known(obj, None)
    for table in ("__defaults__", "__kwdefaults__"):
        holder = getattr(function, table)
        if holder:
            fixed = ev.guards.bind(holder, table.strip("_"))
            ev.guards.add(f"{init.source.guard}.{table} is {fixed}", "its defaults")
