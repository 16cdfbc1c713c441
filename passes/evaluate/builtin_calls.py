"""Python's built-in functions and classes, and what their native calls can do."""

from __future__ import annotations

import builtins
import collections
import functools
import itertools
import logging
import operator
import time
import typing
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from . import attributes, operators
from .breaks import Break, unknown_operand
from .frozen import is_frozen
from .instances import make_instance
from .truth import size_of, truth
from .values import (
    BuiltinMethod,
    DictValue,
    FunctionValue,
    InstanceValue,
    IteratorValue,
    Known,
    ListValue,
    MethodValue,
    PartialValue,
    Scalar,
    SetValue,
    SliceValue,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    constant,
    is_constant,
    python_type,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

Handler = Callable[["Evaluator", list[Value], dict[str, Value]], Value]


def handler(obj: Any) -> Handler | None:
    """Returns the evaluation of a built-in callable, if it has one here."""
    try:
        return _HANDLERS.get(obj)
    except TypeError:
        return None


# ── what a native call can do ───────────────────────────────────────────────────────

_HARMLESS: set[Any] = {
    builtins.print,
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
    warnings.warn,
    time.time,
    time.perf_counter,
    time.perf_counter_ns,
    time.monotonic,
    time.sleep,
    time.process_time,
    torch.cuda.synchronize,
}
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


def is_harmless(obj: Any) -> bool:
    """Whether a native call of `obj` changes nothing that evaluation tracks."""
    try:
        return obj in _HARMLESS
    except TypeError:
        return False


def is_harmless_method(obj: Any, name: str) -> bool:
    """Whether a native method call of an object from outside is harmless: logging, writing."""
    if isinstance(obj, (logging.Logger, logging.LoggerAdapter)) and name in _LOGGING:
        return True
    return name in ("write", "flush", "read", "readline") and hasattr(obj, "fileno")


def result_type(obj: Any) -> type | None:
    """The type of the number that a native call returns, if it is certain."""
    try:
        return _RESULTS.get(obj)
    except TypeError:
        return None


def _side_effect(name: str) -> Handler:
    def call(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise Break("SJ012", f"call to `{name}` has a side effect", harmless=True)

    return call


def _module_log(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Break("SJ012", "logging has a side effect", harmless=True)


# ── helpers ─────────────────────────────────────────────────────────────────────────


def _iterate(ev: Evaluator, value: Value) -> list[Value]:
    from .loops import iterator_over

    return list(ev.iterate(iterator_over(ev, value)))


def _no_keywords(name: str, kwargs: dict[str, Value]) -> None:
    if kwargs:
        raise Break("SJ010", f"`{name}` with keyword arguments")


def _call(ev: Evaluator, function: Value, *args: Value) -> Value:
    from .calls import call

    return call(ev, function, list(args), {})


def _fold(function: Any) -> Handler:
    def folded(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        from .calls import fold_call

        return fold_call(ev, function, args, kwargs)

    return folded


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
        raise Break("SJ020", f"the class of a {type(value).__name__}")
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


def _isinstance(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, classes = args
    cls = class_of(ev, value)
    wanted = _classes(ev, classes)
    looked = ev.look(value)
    try:
        if isinstance(looked, Known):
            return constant(isinstance(looked.obj, wanted))
        if cls is torch.Tensor and isinstance(looked, TensorValue):
            return constant(isinstance(looked.fake, wanted) and _not_fake_class(wanted))
        return constant(issubclass(cls, wanted))
    except TypeError as error:
        raise Break("SJ030", f"raises TypeError: {error}") from error


def _not_fake_class(wanted: Any) -> bool:
    classes = wanted if isinstance(wanted, tuple) else (wanted,)
    return any(
        issubclass(torch.Tensor, c) or getattr(c, "__instancecheck__", None) is not None
        for c in classes
        if isinstance(c, type)
    )


def _type(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1 or kwargs:
        raise Break("SJ010", "a class is made")
    value = ev.look(args[0])
    if isinstance(value, InstanceValue):
        return attributes.load(ev, value, "__class__")
    cls = class_of(ev, value)
    source = getattr(value, "source", None)
    from .sources import TypeOf

    if source is not None and not is_frozen(cls.__module__):
        return Known(cls, TypeOf(source))
    return Known(cls, None)


def _getattr(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name = ev.known(args[1], "`getattr`")
    if len(args) == 3 and not attributes.has(ev, args[0], name):
        return args[2]
    return attributes.load(ev, args[0], name)


def _hasattr(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return constant(attributes.has(ev, args[0], ev.known(args[1], "`hasattr`")))


def _setattr(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    attributes.store(ev, args[0], ev.known(args[1], "`setattr`"), args[2])
    return constant(None)


def _callable(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = ev.look(args[0])
    if isinstance(value, (FunctionValue, MethodValue, BuiltinMethod, PartialValue)):
        return constant(True)
    if isinstance(value, Known):
        class_of(ev, value)
        return constant(callable(value.obj))
    return constant(hasattr(class_of(ev, value), "__call__"))


def _issubclass(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return constant(issubclass(_classes(ev, args[0]), _classes(ev, args[1])))


# ── sequences ───────────────────────────────────────────────────────────────────────


def _len(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = ev.look(args[0])
    if isinstance(value, InstanceValue):
        from .calls import call_method_if_defined

        result = call_method_if_defined(ev, value, "__len__", [])
        if result is not None:
            return result
    return constant(size_of(ev, value))


def _enumerate(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    start = args[1] if len(args) > 1 else kwargs.get("start", constant(0))
    first = ev.known(start, "`enumerate`")
    items = _iterate(ev, args[0])
    return IteratorValue(
        [TupleValue([constant(first + i), item]) for i, item in enumerate(items)]
    )


def _zip(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    columns = [_iterate(ev, arg) for arg in args]
    strict = "strict" in kwargs and truth(ev, kwargs["strict"])
    if strict and len({len(column) for column in columns}) > 1:
        raise Break("SJ030", "raises ValueError: zip() arguments differ in length")
    return IteratorValue([TupleValue(list(row)) for row in zip(*columns)])


def _reversed(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return IteratorValue(_iterate(ev, args[0])[::-1])


def _map(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    rows = zip(*[_iterate(ev, arg) for arg in args[1:]])
    before = len(ev.effects)
    items = [_call(ev, args[0], *row) for row in rows]
    if len(ev.effects) != before:
        raise Break("SJ040", "`map` of a function with side effects")
    return IteratorValue(items)


def _filter(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    test = ev.look(args[0])
    kept = []
    for item in _iterate(ev, args[1]):
        verdict = item if isinstance(test, Known) and test.obj is None else _call(ev, test, item)
        if truth(ev, verdict):
            kept.append(item)
    return IteratorValue(kept)


def sorted_items(ev: Evaluator, items: list[Value], **kwargs: Value) -> list[Value]:
    """Returns the items in order of known keys."""
    key = kwargs.get("key")
    reverse = "reverse" in kwargs and truth(ev, kwargs["reverse"])
    plain = key is None or (isinstance(key, Known) and key.obj is None)
    keys = [item if plain else _call(ev, key, item) for item in items]  # type: ignore[arg-type]
    known = [ev.known(k, "`sorted`") for k in keys]
    try:
        order = sorted(range(len(items)), key=lambda i: known[i], reverse=reverse)
    except TypeError as error:
        raise Break("SJ030", f"raises TypeError: {error}") from error
    return [items[i] for i in order]


def _sorted(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ListValue(sorted_items(ev, _iterate(ev, args[0]), **kwargs))


def _iter(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    from .loops import iterator_over

    if len(args) != 1:
        raise Break("SJ010", "`iter` with a sentinel")
    return iterator_over(ev, args[0])


def _next(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterator = ev.look(args[0])
    if not isinstance(iterator, IteratorValue):
        raise Break("SJ020", "`next` of a value that is no tracked iterator")
    item = ev.next_item(iterator)
    if item is not None:
        return item
    if len(args) > 1:
        return args[1]
    raise Break("SJ030", "raises StopIteration")


def _sum(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    total = args[1] if len(args) > 1 else kwargs.get("start", constant(0))
    for item in _iterate(ev, args[0]):
        total = operators.apply(ev, "add", operator.add, total, item)
    return total


def _any(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return constant(any(truth(ev, item) for item in _iterate(ev, args[0])))


def _all(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return constant(all(truth(ev, item) for item in _iterate(ev, args[0])))


def _extreme(name: str, function: Any) -> Handler:
    def extreme(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        items = _iterate(ev, args[0]) if len(args) == 1 else args
        if not items:
            if "default" in kwargs:
                return kwargs["default"]
            raise Break("SJ030", f"raises ValueError: {name}() of an empty sequence")
        key = kwargs.get("key")
        known = [
            ev.known(item if key is None else _call(ev, key, item), f"`{name}`") for item in items
        ]
        return items[function(range(len(items)), key=lambda i: known[i])]

    return extreme


# ── conversions ─────────────────────────────────────────────────────────────────────


def _number(cls: type) -> Handler:
    def convert(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        from .calls import fold_call

        if not args:
            return constant(cls())
        value = ev.look(args[0])
        if cls is bool:
            if isinstance(value, Scalar):
                return ev.scalar(f"bool({ev.residual.reify(value)})", bool, "condition")
            if isinstance(value, TensorValue):
                raise Break(
                    "SJ103", "`bool()` reads the value of a tensor", harmless=True, result=bool
                )
            return constant(truth(ev, value))
        if isinstance(value, TensorValue):
            raise Break(
                "SJ103",
                f"`{cls.__name__}()` reads the value of a tensor",
                harmless=True,
                result=cls,
            )
        if isinstance(value, Scalar):
            if value.kind is cls:
                return value
            raise Break(
                "SJ020", f"`{cls.__name__}` of a run-time number", harmless=True, result=cls
            )
        if isinstance(value, Unknown):
            raise Break(
                "SJ020",
                f"`{cls.__name__}` of a value that is not known",
                harmless=True,
                result=cls,
            )
        return fold_call(ev, cls, args, kwargs)

    return convert


def _text(function: Any) -> Handler:
    def convert(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        value = ev.look(args[0]) if args else constant("")
        if isinstance(value, Known) and is_constant(value.obj):
            from .calls import fold_call

            return fold_call(ev, function, args, kwargs)
        if isinstance(value, Known) and isinstance(value.obj, type):
            return constant(function(ev.use(value)))
        raise Break("SJ012", f"`{function.__name__}` of an object", harmless=True)

    return convert


def _list(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ListValue(_iterate(ev, args[0]) if args else [])


def _tuple(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args and isinstance(ev.look(args[0]), TupleValue):
        value = ev.look(args[0])
        if value.cls is tuple:  # type: ignore[attr-defined]
            return value
    return TupleValue(_iterate(ev, args[0]) if args else [])


def _size(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    items = _iterate(ev, args[0]) if args else []
    return constant(torch.Size([ev.known(item, "a size") for item in items]))


def _dict(cls: type) -> Handler:
    def make(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        made = DictValue({}, cls=cls)
        if args:
            first = ev.look(args[0])
            if isinstance(first, DictValue):
                made.items.update(ev.dict_items(first))
            else:
                from .expressions import key_of

                for pair in _iterate(ev, first):
                    key, value = _iterate(ev, pair)
                    made.items[key_of(ev, key)] = value
        made.items.update(kwargs)
        return made

    return make


def _set(cls: type) -> Handler:
    def make(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        from .expressions import key_of

        items = _iterate(ev, args[0]) if args else []
        return SetValue(dict.fromkeys(key_of(ev, item) for item in items), cls)

    return make


def _slice(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    none = constant(None)
    if len(args) == 1:
        return SliceValue(none, args[0], none)
    return SliceValue(args[0], args[1], args[2] if len(args) > 2 else none)


def _round_or_abs(function: Any) -> Handler:
    def convert(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        value = ev.look(args[0])
        if isinstance(value, TensorValue):
            name = "abs" if function is abs else "round"
            return ev.builder.call("call_method", name, list(args), kwargs, name)
        if isinstance(value, Scalar):
            kind = value.kind if function is abs or len(args) > 1 else int
            raise Break(
                "SJ020", f"`{function.__name__}` of a run-time number", harmless=True, result=kind
            )
        from .calls import fold_call

        return fold_call(ev, function, args, kwargs)

    return convert


# ── functools, itertools, operator ──────────────────────────────────────────────────


def _partial(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return PartialValue(args[0], list(args[1:]), dict(kwargs))


def _reduce(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    items = _iterate(ev, args[1])
    if len(args) > 2:
        items.insert(0, args[2])
    if not items:
        raise Break("SJ030", "raises TypeError: reduce() of an empty iterable")
    total = items[0]
    for item in items[1:]:
        total = _call(ev, args[0], total, item)
    return total


def _chain(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return IteratorValue([item for arg in args for item in _iterate(ev, arg)])


def _product(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    repeat = ev.known(kwargs["repeat"], "`product`") if "repeat" in kwargs else 1
    rows = itertools.product(*[_iterate(ev, arg) for arg in args], repeat=repeat)
    return IteratorValue([TupleValue(list(row)) for row in rows])


def _operator(name: str, function: Any) -> Handler:
    def apply(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return operators.apply(ev, name, function, *args)

    return apply


def _identity(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return args[-1]


def construct(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Makes an instance of a class.

    Raises:
        Break: When its construction runs code that is not evaluated.
    """
    return make_instance(ev, function, args, kwargs)


def _is_compiling(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return constant(False)


_HANDLERS: dict[Any, Handler] = {
    builtins.print: _side_effect("print"),
    builtins.open: _side_effect("open"),
    builtins.input: _side_effect("input"),
    warnings.warn: _side_effect("warnings.warn"),
    **{
        getattr(logging, name): _module_log
        for name in ("debug", "info", "warning", "error", "critical", "log")
    },
    builtins.len: _len,
    builtins.range: _fold(range),
    builtins.enumerate: _enumerate,
    builtins.zip: _zip,
    builtins.reversed: _reversed,
    builtins.map: _map,
    builtins.filter: _filter,
    builtins.sorted: _sorted,
    builtins.iter: _iter,
    builtins.next: _next,
    builtins.sum: _sum,
    builtins.any: _any,
    builtins.all: _all,
    builtins.min: _extreme("min", min),
    builtins.max: _extreme("max", max),
    builtins.int: _number(int),
    builtins.float: _number(float),
    builtins.bool: _number(bool),
    builtins.complex: _fold(complex),
    builtins.str: _text(str),
    builtins.repr: _text(repr),
    builtins.format: _fold(format),
    builtins.ord: _fold(ord),
    builtins.chr: _fold(chr),
    builtins.divmod: _fold(divmod),
    builtins.pow: _operator("pow", pow),
    builtins.abs: _round_or_abs(abs),
    builtins.round: _round_or_abs(round),
    builtins.list: _list,
    builtins.tuple: _tuple,
    builtins.dict: _dict(dict),
    collections.OrderedDict: _dict(collections.OrderedDict),
    builtins.set: _set(set),
    builtins.frozenset: _set(frozenset),
    builtins.slice: _slice,
    builtins.isinstance: _isinstance,
    builtins.issubclass: _issubclass,
    builtins.type: _type,
    builtins.getattr: _getattr,
    builtins.hasattr: _hasattr,
    builtins.setattr: _setattr,
    builtins.callable: _callable,
    functools.partial: _partial,
    functools.reduce: _reduce,
    itertools.chain: _chain,
    itertools.product: _product,
    typing.cast: _identity,
    torch.Size: _size,
    torch.device: _fold(torch.device),
    torch.compiler.is_compiling: _is_compiling,
    torch.compiler.is_dynamo_compiling: _is_compiling,
    torch.jit.is_scripting: _is_compiling,
    torch.jit.is_tracing: _is_compiling,
    torch.onnx.is_in_onnx_export: _is_compiling,
    **{
        getattr(operator, name): _operator(name.strip("_"), getattr(operator, name))
        for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
    },
}

__all__ = ["FunctionType", "construct", "handler", "is_harmless", "result_type"]
