"""`copy.copy` and `copy.deepcopy` of containers whose structure is known."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from ..kinds import is_a
from .breaks import Break
from .registry import evaluates
from .values import (
    DictValue,
    Known,
    ListValue,
    SetValue,
    TupleValue,
    Value,
    constant,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


@evaluates(copy.copy)
def _copy(ev: Evaluator, value: Value, /) -> Value:
    value = ev.look(value)
    match value:
        case ListValue():
            return ListValue(list(ev.list_items(value)))
        case DictValue():
            return value.like(dict(ev.dict_items(value)))
        case SetValue():
            return SetValue(dict(value.items), value.cls, plain=False)
        case TupleValue() if value.cls is tuple:
            return value
        case Known() if is_constant(value.obj):
            return value
    raise Break("SJ015", "`copy` of an object")


@evaluates(copy.deepcopy)
def _deepcopy(ev: Evaluator, value: Value, memo: Value | None = None) -> Value:
    if memo is not None:
        raise Break("SJ015", "`deepcopy` with a memo")
    return _deep(ev, value, {})


def _deep(ev: Evaluator, value: Value, memo: dict[int, Value]) -> Value:
    value = ev.look(value)
    if id(value) in memo:
        return memo[id(value)]
    match value:
        case ListValue():
            items: list[Value] = []
            memo[id(value)] = made = ListValue(items)
            items += [_deep(ev, item, memo) for item in ev.list_items(value)]
            return made
        case DictValue():
            memo[id(value)] = table = value.like({})
            for key, item in ev.dict_items(value).items():
                if not is_constant(key):
                    raise Break("SJ015", "`deepcopy` of a dict with objects as keys")
                table.items[key] = _deep(ev, item, memo)
            return table
        case SetValue() if all(is_constant(key) for key in value.items):
            memo[id(value)] = keys = SetValue(dict(value.items), value.cls, plain=False)
            return keys
        case TupleValue() if value.cls is tuple:
            parts = [_deep(ev, item, memo) for item in value.items]
            same = all(new is ev.look(old) for new, old in zip(parts, value.items))
            return value if same else TupleValue(parts)
        case Known() if is_a(value.obj, torch.Size):
            return constant(torch.Size(ev.use(value)))
        case Known() if is_a(value.obj, frozenset):
            raise Break("SJ015", "`deepcopy` of a `frozenset`")
        case Known() if is_constant(value.obj) or is_a(value.obj, type):
            return value
    raise Break("SJ015", "`deepcopy` of an object")
