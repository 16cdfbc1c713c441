"""What an abstract value reaches: tensors, variables of the residual program, other values."""

from __future__ import annotations

import gc
import itertools
import re
import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from .evaluate.values import (
    BuiltinMethod,
    DefaultDictValue,
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
    SuperValue,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluate.evaluator import Evaluator


def tensors_in(
    ev: Evaluator, value: Value, seen: set[int] | None = None
) -> Iterator[TensorValue]:
    """Yields the tensors that `value` reaches."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    children: Iterable[Value] = ()
    match value:
        case TensorValue():
            yield value
        case ListValue():
            children = value.items if value.items is not None else value.appended
        case TupleValue():
            children = value.items
        case DefaultDictValue():
            children = (value.factory, *value.items.values())
        case DictValue():
            children = value.items.values()
        case SliceValue():
            children = (value.start, value.stop, value.step)
        case InstanceValue():
            children = value.attributes.values()
        case FunctionValue():
            children = captured_by(ev, value)
        case MethodValue():
            children = (value.function, value.receiver)
        case BuiltinMethod():
            children = (value.receiver,)
        case PartialValue():
            children = (value.function, *value.args, *value.kwargs.values())
        case SuperValue():
            children = (value.receiver,)
        case IteratorValue():
            children = (
                (value.items,) if isinstance(value.items, ListValue) else value.items
            )
    for child in list(children):
        yield from tensors_in(ev, child, seen)


def held_by_arguments(ev: Evaluator, variable: str) -> bool:
    """Whether another argument leads to an object that is known by the path of `variable`.

    Evaluation may not have looked there yet. Once it does, the object is still the one
    value, whose path must not have become another object's. Tensors find a new path.
    """
    if variable not in ev.arguments or not any(
        variable in roots(ev, [value])
        for value, _ in ev.memo.values()
        if not isinstance(value, (TensorValue, Scalar))
        and not (isinstance(value, Known) and is_constant(value.obj))
    ):
        return False
    known = {id(obj) for obj in _held([ev.arguments[variable]])}
    others = [obj for name, obj in ev.arguments.items() if name != variable]
    reached = list(itertools.islice(_held(others), _MANY))
    return len(reached) == _MANY or any(id(obj) in known for obj in reached)


_MANY = 2000
"""Objects to look at; where there are more, any may be among them."""


def _held(objects: list[Any]) -> Iterator[Any]:
    """Yields what has an identity among objects and what they hold."""
    stack, seen = list(objects), set()
    while stack:
        obj = stack.pop()
        if id(obj) in seen or isinstance(obj, (type, types.ModuleType)):
            continue
        if isinstance(obj, torch.Tensor) or is_constant(obj):
            continue
        seen.add(id(obj))
        yield obj
        if isinstance(obj, types.FunctionType):
            stack += [*(obj.__closure__ or ()), *(obj.__defaults__ or ())]
        else:
            stack += gc.get_referents(obj)


def roots(ev: Evaluator, values: Iterable[Value]) -> set[str]:
    """Returns the variables of the residual program by which values are reached."""
    found: set[str] = set()
    stack = list(values)
    seen: set[int] = set()
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        source = getattr(item, "source", None)
        for text in (getattr(item, "name", None), getattr(source, "residual", None)):
            if text is not None:
                found.add(re.split(r"\W", text, maxsplit=1)[0])
        if isinstance(item, Scalar):
            found |= set(re.findall(r"\w+", item.text))
        if isinstance(item, FunctionValue):
            stack += captured_by(ev, item)
        stack += parts_of(item)
    return found


def reaches(ev: Evaluator, values: Iterable[Value], wanted: Value) -> bool:
    """Whether `wanted` is one of `values` or held by one of them."""
    stack = list(values)
    seen: set[int] = set()
    while stack:
        item = stack.pop()
        if item is wanted:
            return True
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, FunctionValue):
            stack += captured_by(ev, item)
        stack += parts_of(item)
    return False


def captured_by(ev: Evaluator, function: FunctionValue) -> Iterator[Value]:
    """Yields what a function made during evaluation holds."""
    from .evaluate.nested_functions import captured_values

    return captured_values(ev, function)


def parts_of(item: Value) -> Iterator[Value]:
    """Yields the values that an abstract value holds."""
    if isinstance(item, TensorValue):
        return
    for attribute in vars(item).values():
        held: Iterable[Any] = ()
        if isinstance(attribute, Value):
            held = (attribute,)
        elif isinstance(attribute, (list, tuple)):
            held = attribute
        elif isinstance(attribute, dict):
            held = attribute.values()
        yield from (v for v in held if isinstance(v, Value))


def used_once(ev: Evaluator, value: Value) -> set[int]:
    """Ids of the new containers that stand in exactly one place of a result."""
    counts: dict[int, int] = {}

    def visit(item: Value) -> None:
        if isinstance(item, (ListValue, DictValue, SetValue, TupleValue)):
            counts[id(item)] = counts.get(id(item), 0) + 1
            if counts[id(item)] > 1:
                return
        if isinstance(item, (ListValue, TupleValue)):
            for child in item.items or ():
                visit(child)
        elif isinstance(item, DictValue):
            for child in item.items.values():
                visit(child)
            if isinstance(item, DefaultDictValue):
                visit(item.factory)
        elif not isinstance(item, (Known, TensorValue, Scalar, Unknown)):
            # Anything else may hold a second reference.
            for other in containers_below(item):
                counts[id(other)] = counts.get(id(other), 0) + 2

    visit(value)
    return {key for key, count in counts.items() if count == 1}


def containers_below(value: Value) -> Iterator[Value]:
    """Yields the lists and dicts directly below a value that is no plain container."""
    stack = [value]
    seen: set[int] = set()
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, (ListValue, DictValue, SetValue)):
            yield item
        stack += parts_of(item)
