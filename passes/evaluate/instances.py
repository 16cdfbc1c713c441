"""Instances of user classes made during evaluation: dataclasses, named tuples, plain classes."""

from __future__ import annotations

import abc
import dataclasses
import enum
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from . import enums
from .binding import Signature, bind
from .breaks import Break
from .frozen import is_frozen
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
        raise Break("SJ010", f"an instance of `{cls.__name__}` is made")
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
    signature = Signature(cls.__name__, positional=list(cls._fields))
    signature.defaults = {k: Known(v, None) for k, v in cls._field_defaults.items()}
    bound = bind(signature, args, kwargs)
    return TupleValue([bound[name] for name in cls._fields], cls)


def _generated_init(cls: Any) -> bool:
    """Whether `__init__` is the one that `dataclass` wrote."""
    code = getattr(cls.__init__, "__code__", None)
    return code is not None and code.co_filename == "<string>"


def _dataclass(
    ev: Evaluator, instance: InstanceValue, args: list[Value], kwargs: dict[str, Value]
) -> None:
    from . import attributes
    from .calls import call

    cls: Any = instance.cls
    fields = [f for f in dataclasses.fields(cls) if f.init]
    signature = Signature(
        cls.__name__,
        positional=[f.name for f in fields if not f.kw_only],
        keyword_only=[f.name for f in fields if f.kw_only],
    )
    factories: dict[str, Value] = {}
    for field in fields:
        if field.default is not dataclasses.MISSING:
            signature.defaults[field.name] = Known(field.default, None)
        elif field.default_factory is not dataclasses.MISSING:
            factories[field.name] = Known(field.default_factory, None)
            signature.defaults[field.name] = factories[field.name]
    bound = bind(signature, args, kwargs)
    for name, value in bound.items():
        if name in factories and value is factories[name]:
            value = call(ev, value, [], {})
        ev.journal.set_item(instance.attributes, name, value)
    if hasattr(cls, "__post_init__"):
        call(ev, attributes.load(ev, instance, "__post_init__"), [], {})
