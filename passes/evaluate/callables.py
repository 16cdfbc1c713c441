"""`functools` and `operator`: partial application, getters, operators as functions."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

import libcst as cst

from . import attributes, comparisons, operators, subscripts
from .breaks import Break, raising
from .iterators import call
from .registry import HANDLERS, Handler, evaluates
from .truth import truth
from .values import (
    FunctionValue,
    Known,
    PartialValue,
    TupleValue,
    Value,
    constant,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


@evaluates(functools.partial)
def _partial(ev: Evaluator, func: Value, /, *args: Value, **keywords: Value) -> Value:
    func = ev.look(func)
    if isinstance(func, PartialValue):
        return PartialValue(
            func.function, [*func.args, *args], {**func.kwargs, **keywords}
        )
    return PartialValue(func, list(args), dict(keywords))


_DEFAULT_UPDATE = {
    "assigned": constant(functools.WRAPPER_ASSIGNMENTS),
    "updated": constant(functools.WRAPPER_UPDATES),
}


@evaluates(functools.wraps)
def _wraps(ev: Evaluator, wrapped: Value) -> Value:
    update = Known(functools.update_wrapper)
    return PartialValue(update, [], {"wrapped": wrapped, **_DEFAULT_UPDATE})


@evaluates(functools.update_wrapper)
def _update_wrapper(
    ev: Evaluator,
    wrapper: Value,
    wrapped: Value,
    assigned: Value = _DEFAULT_UPDATE["assigned"],
    updated: Value = _DEFAULT_UPDATE["updated"],
) -> Value:
    wrapper, wrapped = ev.look(wrapper), ev.look(wrapped)
    if not isinstance(wrapper, FunctionValue):
        raise Break("SJ020", "`wraps` of a function that existed before the call")
    for name in ev.known(assigned, "`update_wrapper`"):
        if attributes.has(ev, wrapped, name):
            value = attributes.load(ev, wrapped, name)
            ev.journal.set_item(wrapper.attributes, name, value)
    if isinstance(wrapped, FunctionValue):
        for name, value in wrapped.attributes.items():
            if name not in ("<source>", *functools.WRAPPER_ASSIGNMENTS):
                ev.journal.set_item(wrapper.attributes, name, value)
    elif not isinstance(wrapped, Known) or vars(wrapped.obj):
        raise Break("SJ020", "`wraps` copies the attributes of a function")
    ev.journal.set_item(wrapper.attributes, "__wrapped__", wrapped)
    return wrapper


def _getter(cls: type, args: tuple[Value, ...], ev: Evaluator) -> Value:
    known = [ev.known(arg, f"`{cls.__name__}`") for arg in args]
    if not all(is_constant(obj) for obj in known):
        raise Break("SJ020", f"`{cls.__name__}` of an object")
    try:
        return Known(cls(*known), None)
    except TypeError as error:
        raise raising(error) from error


@evaluates(operator.itemgetter)
def _item_getter(ev: Evaluator, *items: Value) -> Value:
    return _getter(operator.itemgetter, items, ev)


@evaluates(operator.attrgetter)
def _attribute_getter(ev: Evaluator, *names: Value) -> Value:
    return _getter(operator.attrgetter, names, ev)


@evaluates(operator.methodcaller)
def _method_caller(
    ev: Evaluator, name: Value, /, *args: Value, **kwargs: Value
) -> Value:
    wanted = ev.known(name, "`methodcaller`")
    return (
        PartialValue(
            Known(_call_method),
            [],
            {"name": constant(wanted), "arguments": TupleValue(list(args))},
        )
        if not kwargs
        else _no_keywords()
    )


def _no_keywords() -> Value:
    raise Break("SJ015", "`methodcaller` with keyword arguments")


def _call_method(receiver: Any, name: str, arguments: tuple[Any, ...]) -> Any:
    """Stands for what `operator.methodcaller(name, *arguments)` returns."""
    return getattr(receiver, name)(*arguments)


@evaluates(_call_method)
def _method_called(
    ev: Evaluator, receiver: Value, name: Value, arguments: Value
) -> Value:
    assert isinstance(arguments, TupleValue)
    method = attributes.load(ev, receiver, ev.known(name, "a name"))
    return call(ev, method, *arguments.items)


def call_getter(ev: Evaluator, getter: Any, args: list[Value]) -> Value:
    """Calls an `itemgetter` or `attrgetter`."""
    if len(args) != 1:
        raise Break("SJ030", "raises TypeError: a getter takes one argument")
    wanted = getter.__reduce__()[1]
    found = []
    for key in wanted:
        if isinstance(getter, operator.itemgetter):
            found.append(subscripts.load(ev, args[0], constant(key)))
            continue
        value = args[0]
        for part in key.split("."):
            value = attributes.load(ev, value, part)
        found.append(value)
    return found[0] if len(found) == 1 else TupleValue(found)


# ── operators as functions ──────────────────────────────────────────────────────────


def _binary(name: str, function: Any) -> Handler:
    def apply(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) != 2 or kwargs:
            raise Break("SJ030", f"raises TypeError: `{name}` takes two arguments")
        return operators.apply(ev, name, function, *args)

    return apply


def _in_place(node: type) -> Handler:
    def apply(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) != 2 or kwargs:
            raise Break("SJ030", "raises TypeError: an operator takes two arguments")
        return operators.in_place(ev, node, *args)

    return apply


def _compare(node: Any) -> Handler:
    def apply(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) != 2 or kwargs:
            raise Break("SJ030", "raises TypeError: a comparison takes two arguments")
        return comparisons.compare(ev, node, *args)

    return apply


def _unary(node: type) -> Handler:
    def apply(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) != 1 or kwargs:
            raise Break("SJ030", "raises TypeError: an operator takes one argument")
        return operators.unary(ev, node, ev.look(args[0]))

    return apply


for _name, _function in operators.BINARY.values():
    HANDLERS[_function] = _binary(_name, _function)
for _node, _operator in operators.IN_PLACE.items():
    HANDLERS[_operator[1]] = _in_place(_node)
for _comparison, _function in (
    (cst.Equal(), operator.eq),
    (cst.NotEqual(), operator.ne),
    (cst.LessThan(), operator.lt),
    (cst.LessThanEqual(), operator.le),
    (cst.GreaterThan(), operator.gt),
    (cst.GreaterThanEqual(), operator.ge),
    (cst.Is(), operator.is_),
    (cst.IsNot(), operator.is_not),
):
    HANDLERS[_function] = _compare(_comparison)
for _node, _function in (
    (cst.Minus, operator.neg),
    (cst.Plus, operator.pos),
    (cst.BitInvert, operator.invert),
):
    HANDLERS[_function] = _unary(_node)


@evaluates(operator.getitem)
def _get_item(ev: Evaluator, base: Value, index: Value, /) -> Value:
    return subscripts.load(ev, base, index)


@evaluates(operator.contains)
def _contains(ev: Evaluator, base: Value, item: Value, /) -> Value:
    return constant(comparisons.contains(ev, item, base))


@evaluates(operator.truth)
def _truth(ev: Evaluator, value: Value, /) -> Value:
    return constant(truth(ev, value))


@evaluates(operator.not_)
def _not(ev: Evaluator, value: Value, /) -> Value:
    return constant(not truth(ev, value))


@evaluates(pow)
def _pow(ev: Evaluator, base: Value, exp: Value, mod: Value | None = None) -> Value:
    if mod is not None:
        from .calls import fold_call

        return fold_call(ev, pow, [base, exp, mod], {})
    return operators.apply(ev, "pow", operator.pow, base, exp)
