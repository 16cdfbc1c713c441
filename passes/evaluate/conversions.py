"""Built-in classes and conversions: `int`, `str`, `list`, `dict`, `slice`, `round`, ..."""

from __future__ import annotations

import builtins
import collections
import math
from typing import TYPE_CHECKING, Any

import torch

from ..kinds import is_a
from . import enums
from .breaks import Break, raising
from .iterators import iterate, iterate_in_any_order
from .registry import HANDLERS, Handler, evaluates
from .size_arithmetic import is_sized, pin
from .truth import truth
from .values import (
    DictValue,
    InstanceValue,
    Known,
    ListValue,
    Scalar,
    SetValue,
    SliceValue,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    constant,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


def fold(function: Any) -> Handler:
    """A pure function: Python itself computes it from known constants."""

    def folded(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        from .calls import fold_call

        return fold_call(ev, function, args, kwargs, decides=True)

    return folded


for _pure in (range, complex, format, ord, chr, divmod, bytes, ascii, bin, hex, oct):
    HANDLERS[_pure] = fold(_pure)
HANDLERS[torch.device] = fold(torch.device)


# ── numbers ─────────────────────────────────────────────────────────────────────────

_SPECIAL = {
    int: ("__int__", "__index__", "__trunc__"),
    float: ("__float__", "__index__"),
}


def _number(cls: type) -> Handler:
    def convert(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        from .calls import fold_call
        from .special_methods import call_special

        if not args:
            return fold_call(ev, cls, args, kwargs)
        value = ev.look(args[0])
        if isinstance(value, TensorValue):
            _reads_tensor(ev, value, cls)
        if isinstance(value, Scalar):
            if value.kind is cls:
                return value
            if value.sizes:
                return fold_call(ev, cls, [value], {})
            raise Break(
                "SJ020",
                f"`{cls.__name__}` of a run-time number",
                hint="convert the tensor before its value is read",
                harmless=True,
                result=cls,
            )
        if isinstance(value, Unknown):
            raise Break(
                "SJ020",
                f"`{cls.__name__}` of a value that is not known",
                harmless=True,
                result=cls,
            )
        if isinstance(value, InstanceValue):
            for name in _SPECIAL[cls]:
                result = call_special(ev, value, name)
                if result is not None:
                    return convert(ev, [result], {})
        return fold_call(ev, cls, args, kwargs)

    return convert


def _reads_tensor(ev: Evaluator, value: TensorValue, cls: type) -> None:
    raise Break(
        "SJ103",
        f"`{cls.__name__}()` reads the value of a tensor",
        harmless=True,
        result=cls,
    )


HANDLERS[int] = _number(int)
HANDLERS[float] = _number(float)


@evaluates(builtins.bool)
def _bool(ev: Evaluator, value: Value | None = None, /) -> Value:
    if value is None:
        return constant(False)
    value = ev.look(value)
    if isinstance(value, Scalar) and not value.sizes:
        return ev.scalar(f"bool({ev.residual.reify(value)})", bool, "condition")
    if isinstance(value, TensorValue):
        _reads_tensor(ev, value, bool)
    return constant(truth(ev, value))


@evaluates(builtins.abs)
def _abs(ev: Evaluator, value: Value, /) -> Value:
    return _rounded(ev, abs, value, [])


@evaluates(builtins.round)
def _round(ev: Evaluator, number: Value, ndigits: Value | None = None) -> Value:
    return _rounded(ev, round, number, [] if ndigits is None else [ndigits])


@evaluates(math.floor)
def _floor(ev: Evaluator, value: Value, /) -> Value:
    return _rounded(ev, math.floor, value, [])


@evaluates(math.ceil)
def _ceil(ev: Evaluator, value: Value, /) -> Value:
    return _rounded(ev, math.ceil, value, [])


def _rounded(ev: Evaluator, function: Any, value: Value, rest: list[Value]) -> Value:
    from .calls import fold_call
    from .special_methods import call_special

    value = ev.look(value)
    name = function.__name__
    if isinstance(value, TensorValue):
        if name == "abs":
            return ev.builder.call("call_method", "abs", [value, *rest], {}, name)
        raise Break(
            "SJ103",
            f"`{name}` of a tensor",
            hint=f"use `torch.{name}`",
            harmless=True,
        )
    if isinstance(value, Scalar) and not value.sizes:
        kind = value.kind if function is abs and value.kind is not bool else int
        raise Break(
            "SJ020",
            f"`{name}` of a run-time number",
            harmless=True,
            result=None if rest else kind,
        )
    if isinstance(value, InstanceValue):
        result = call_special(ev, value, f"__{name}__", *rest)
        if result is not None:
            return result
    return fold_call(ev, function, [value, *rest], {})


@evaluates(builtins.hash)
def _hash(ev: Evaluator, value: Value, /) -> Value:
    value = ev.look(value)
    value = pin(ev, value)
    if isinstance(value, Known) and type(value.obj) in (int, float, bool):
        return constant(hash(ev.use(value)))
    raise Break("SJ015", "`hash` of an object", harmless=True, result=int)


# ── text ────────────────────────────────────────────────────────────────────────────


def text_of(ev: Evaluator, value: Value, function: Any) -> str:
    """Returns `str(value)` or `repr(value)` of what is known.

    Raises:
        Break: When it runs code that is not evaluated, or shows a run-time value.
    """
    from .special_methods import call_special

    value = ev.look(value)
    shown = enums.text(ev, value, function)
    if shown is not None:
        return shown
    match value:
        case Known() if is_constant(value.obj) or is_a(value.obj, type):
            try:
                return str(function(ev.use(value)))
            except ValueError as error:  # an int of thousands of digits
                raise raising(error) from error
        case ListValue():
            return f"[{', '.join(text_of(ev, v, repr) for v in ev.list_items(value))}]"
        case TupleValue() if value.cls is tuple:
            items = [text_of(ev, v, repr) for v in value.items]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        case DictValue() if value.cls is dict:
            entries = ev.dict_items(value).items()
            items = [
                f"{text_of(ev, constant(k), repr)}: {text_of(ev, v, repr)}"
                for k, v in entries
            ]
            return f"{{{', '.join(items)}}}"
        case SetValue():
            iterate(ev, value)  # breaks where the order is not certain
            return str(function(value.cls(value.items)))
        case InstanceValue():
            for name in ("__str__", "__repr__") if function is str else ("__repr__",):
                result = call_special(ev, value, name)
                if result is not None:
                    return str(ev.known(result, f"`{name}`"))
    raise Break("SJ012", f"`{function.__name__}` of an object", harmless=True)


@evaluates(builtins.str)
def _str(ev: Evaluator, *args: Value, **kwargs: Value) -> Value:
    if len(args) != 1 or kwargs:
        return fold(str)(ev, list(args), kwargs)
    return constant(text_of(ev, args[0], str))


@evaluates(builtins.repr)
def _repr(ev: Evaluator, value: Value, /) -> Value:
    return constant(text_of(ev, value, repr))


# ── containers ──────────────────────────────────────────────────────────────────────


@evaluates(builtins.list)
def _list(ev: Evaluator, iterable: Value | None = None, /) -> Value:
    return ListValue(iterate(ev, iterable) if iterable is not None else [])


@evaluates(builtins.tuple)
def _tuple(ev: Evaluator, iterable: Value | None = None, /) -> Value:
    if iterable is None:
        return TupleValue([])
    value = ev.look(iterable)
    if isinstance(value, TupleValue) and value.cls is tuple:
        return value
    if isinstance(value, Known) and type(value.obj) is tuple:
        return value
    return TupleValue(iterate(ev, value))


@evaluates(torch.Size)
def _size(ev: Evaluator, iterable: Value | None = None, /) -> Value:
    items = iterate(ev, iterable) if iterable is not None else []
    if any(is_sized(ev.look(item)) for item in items):
        return TupleValue(items, torch.Size)
    parts = [ev.known(item, "a size") for item in items]
    try:
        return constant(torch.Size(parts))
    except TypeError as error:
        raise raising(error) from error


def entries_of(ev: Evaluator, value: Value) -> dict[Any, Value]:
    """The entries that `dict(value)` or `update(value)` takes."""
    from .keys import key_of

    value = ev.look(value)
    if isinstance(value, DictValue):
        return dict(ev.dict_items(value))
    if isinstance(value, (Known, InstanceValue)):
        raise Break("SJ020", "a dict is made of a value that is not tracked")
    entries: dict[Any, Value] = {}
    for pair in iterate(ev, value):
        parts = iterate(ev, pair)
        if len(parts) != 2:
            raise Break("SJ030", "raises ValueError: a dict entry is no pair")
        entries[key_of(ev, parts[0])] = parts[1]
    return entries


def _dict_class(cls: type) -> Handler:
    def make(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) > 1:
            raise Break("SJ030", "raises TypeError: too many arguments for a dict")
        made = DictValue({}, cls=cls)
        if args:
            made.items.update(entries_of(ev, args[0]))
        made.items.update(kwargs)
        return made

    return make


HANDLERS[dict] = _dict_class(dict)
HANDLERS[collections.OrderedDict] = _dict_class(collections.OrderedDict)


@evaluates(dict.fromkeys)
def _from_keys(ev: Evaluator, iterable: Value, value: Value | None = None, /) -> Value:
    from .keys import key_of

    filler = value if value is not None else constant(None)
    return DictValue({key_of(ev, item): filler for item in iterate(ev, iterable)})


def _set_class(cls: type) -> Handler:
    def make(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        from .keys import key_of

        if len(args) > 1 or kwargs:
            raise Break("SJ030", "raises TypeError: too many arguments for a set")
        items = iterate_in_any_order(ev, args[0]) if args else []
        plain = not args or not isinstance(ev.look(args[0]), (SetValue, DictValue))
        keys = dict.fromkeys(key_of(ev, item) for item in items)
        return SetValue(keys, cls, plain=plain)

    return make


HANDLERS[set] = _set_class(set)
HANDLERS[frozenset] = _set_class(frozenset)


@evaluates(builtins.slice)
def _slice(ev: Evaluator, *bounds: Value) -> Value:
    none = constant(None)
    if len(bounds) == 1:
        return SliceValue(none, bounds[0], none)
    if len(bounds) not in (2, 3):
        raise Break("SJ030", "raises TypeError: slice() arguments")
    return SliceValue(bounds[0], bounds[1], bounds[2] if len(bounds) > 2 else none)
