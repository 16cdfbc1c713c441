"""Subscripts: reading, storing and deleting items."""

from __future__ import annotations

import enum
import operator
from typing import TYPE_CHECKING, Any

import torch

from ..kinds import is_a
from . import default_dicts, enums
from .breaks import Break, raising, unknown_operand
from .modules import MODULE_TABLES, module_keys
from .names import held_by_variables, save_old
from .sources import Attribute, Item
from .values import (
    DefaultDictValue,
    DictValue,
    InstanceValue,
    Known,
    ListValue,
    ModuleSlice,
    Scalar,
    SetValue,
    SliceValue,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    constant,
    described,
    is_constant,
)
from .wrapping import dict_item

if TYPE_CHECKING:
    from .evaluator import Evaluator


def load(ev: Evaluator, base: Value, index: Value) -> Value:
    """Returns `base[index]`."""
    base = ev.look(base)
    if isinstance(base, Unknown):
        raise unknown_operand("a subscript reads")
    match base:
        case TensorValue():
            return _selected(ev, base, index) or ev.builder.call(
                "call_function", operator.getitem, [base, index], {}, "item"
            )
        case ListValue():
            return _sequence_item(ev, ev.list_items(base), index, ListValue)
        case TupleValue():
            return _sequence_item(ev, base.items, index, TupleValue)
        case DictValue():
            key = _key(ev, index)
            items = ev.dict_items(base)
            if key not in items:
                if isinstance(base, DefaultDictValue):
                    return default_dicts.missing(ev, base, key)
                raise Break("SJ030", f"raises KeyError: {key!r}")
            return items[key]
        case ModuleSlice():
            return _module_slice_item(ev, base, index)
        case Known() | InstanceValue():
            from .special_methods import call_special

            result = call_special(ev, base, "__getitem__", index)
            if result is not None:
                return result
            if isinstance(base, Known):
                return _known_item(ev, base, index)
    raise Break("SJ020", f"a subscript of {described(base)}")


def _selected(ev: Evaluator, base: TensorValue, index: Value) -> Value | None:
    """`base[:, n]` for a number that stays a symbol: `base.select(1, n)`.

    PyTorch's own subscripts ask a symbol for its value. None where there is no symbol, or an
    index by tensors or masks.
    """
    parts = list(index.items) if isinstance(index, TupleValue) else [index]
    if not any(map(_is_symbolic, parts)):
        return None
    plain = [p.obj if isinstance(p, Known) else p for p in parts]
    if not all(
        p is None or p is Ellipsis or type(p) in (int, SliceValue) or _is_symbolic(p)
        for p in plain
    ):
        return None
    taken = sum(p is not None and p is not Ellipsis for p in plain)
    more = ev.builder.fake(base).dim() - taken
    if more < 0 or plain.count(Ellipsis) > 1:
        return None
    whole = SliceValue(constant(None), constant(None), constant(None))
    at, chosen, rest = 0, [], []
    for part, value in zip(plain, parts, strict=True):
        if _is_symbolic(part):
            chosen.append((at, value))
        rest.append(whole if _is_symbolic(part) else value)
        at += more if part is Ellipsis else type(part) is not int
    view: Value = base
    if any(r is not whole for r in rest):
        given = TupleValue(rest)
        view = ev.builder.call(
            "call_function", operator.getitem, [view, given], {}, "item"
        )
    for dim, value in reversed(chosen):
        args = [view, constant(dim), value]
        view = ev.builder.call("call_function", torch.select, args, {}, "item")
    return view


def _is_symbolic(value: Any) -> bool:
    return (
        isinstance(value, Scalar)
        and value.kind is int
        and isinstance(value.symbol, torch.SymInt)
    )


def _key(ev: Evaluator, index: Value) -> Any:
    from .keys import key_of

    return key_of(ev, index)


def _sequence_item(ev: Evaluator, items: list[Value], index: Value, cls: Any) -> Value:
    where = (
        slice_of(ev, index)
        if isinstance(index, SliceValue)
        else ev.known(index, "an index")
    )
    if type(where) is slice:
        return cls(items[where])  # type: ignore[no-any-return]
    try:
        return ev.look(items[operator.index(where)])
    except (IndexError, TypeError) as error:
        raise raising(error) from error


def slice_of(ev: Evaluator, value: SliceValue) -> slice:
    """Returns the real slice of known bounds; what no sequence takes raises at run time."""
    where = slice(
        *(ev.known(part, "a slice") for part in (value.start, value.stop, value.step))
    )
    try:
        where.indices(0)
    except (TypeError, ValueError) as error:
        raise raising(error) from error
    return where


_MODULE_LISTS = (torch.nn.ModuleList, torch.nn.Sequential)


def _known_item(ev: Evaluator, base: Known, index: Value) -> Value:
    obj = base.obj
    if is_constant(obj):
        if isinstance(index, SliceValue):
            where = slice_of(ev, index)
            try:
                return constant(ev.use(base)[where])
            except TypeError as error:
                raise raising(error) from error
        from .operators import fold

        return fold(ev, operator.getitem, base, index)
    if is_a(obj, enum.EnumMeta):
        return enums.by_name(ev, base, index)
    if base.source is None:
        if is_a(obj, type):
            return constant_generic(ev, obj, index)
        if is_a(obj, dict):
            key = _key(ev, index)
            if key in obj:
                return Known(obj[key], None)
        raise Break("SJ020", f"a subscript of a `{type(obj).__name__}`")
    if getattr(type(obj), "__getitem__", None) in [
        c.__getitem__ for c in _MODULE_LISTS
    ]:
        return _module_item(ev, base, index)
    if is_a(obj, torch.nn.ModuleDict):
        key = ev.known(index, "a key")
        if key not in module_keys(ev, base):
            raise Break("SJ030", f"raises KeyError: {key!r}")
        return ev.wrap(obj._modules[key], Item(Attribute(base.source, "_modules"), key))
    if is_a(obj, (torch.nn.ParameterList, torch.nn.ParameterDict)):
        from . import attributes

        return attributes.load(ev, base, str(ev.known(index, "an index")))
    if type(obj) is dict:
        key = _key(ev, index)
        if not is_constant(key):
            raise Break(
                "SJ020",
                f"a `{type(key).__name__}` is used as a key",
                hint="use numbers or strings as keys",
            )
        if key not in obj:
            raise Break("SJ030", f"raises KeyError: {key!r}")
        item = dict_item(ev, base.source, key)
        ev.guards.add(f"{item.name or repr(key)} in {base.source.guard}")
        return ev.wrap(obj[key], item)
    raise Break("SJ020", f"a subscript of a `{type(obj).__name__}`")


def constant_generic(ev: Evaluator, cls: type, index: Value) -> Value:
    """`list[int]` and the like; only its class matters."""
    raise Break("SJ020", f"a subscript of the class `{cls.__name__}`")


def _module_item(ev: Evaluator, base: Known, index: Value) -> Value:
    assert base.source is not None
    keys = module_keys(ev, base)
    if isinstance(index, SliceValue):
        return _module_slice(ev, base, index)
    where = ev.known(index, "an index")
    try:
        key = keys[operator.index(where)]
    except (IndexError, TypeError) as error:
        raise raising(error) from error
    return ev.wrap(
        base.obj._modules[key], Item(Attribute(base.source, "_modules"), key)
    )


def _module_slice(ev: Evaluator, base: Known, index: SliceValue) -> Value:
    cls = type(base.obj)
    owner: Any = next(c for c in _MODULE_LISTS if c.__getitem__ is cls.__getitem__)
    if cls.__init__ is not owner.__init__ or cls.__new__ is not owner.__new__:
        raise Break(
            "SJ020",
            f"a slice of a `{cls.__name__}`",
            hint="loop over a `range` of indices",
        )
    assert base.source is not None
    where = slice_of(ev, index)
    children = [
        ev.wrap(base.obj._modules[key], Item(Attribute(base.source, "_modules"), key))
        for key in module_keys(ev, base)[where]
    ]
    return ModuleSlice(children, cls, Item(base.source, where))


def _module_slice_item(ev: Evaluator, base: ModuleSlice, index: Value) -> Value:
    if isinstance(index, SliceValue):
        where = slice_of(ev, index)
        return ModuleSlice(base.items[where], base.cls, Item(base.source, where))
    position = ev.known(index, "an index")
    try:
        return base.items[operator.index(position)]
    except (IndexError, TypeError) as error:
        raise raising(error) from error


def store(ev: Evaluator, base: Value, index: Value, value: Value) -> None:
    """`base[index] = value`."""
    base = ev.look(base)
    if isinstance(base, Unknown) or isinstance(value, Unknown):
        raise unknown_operand("a subscript store needs")
    match base:
        case TensorValue():
            _tensor_store(ev, base, index, value)
        case ListValue():
            _list_store(ev, base, index, value)
        case DictValue():
            key = _key(ev, index)
            effect_if_outside(
                ev,
                base,
                lambda r, b: r.emit(f"{b}[{r.reify(index)}] = {r.reify(value)}"),
                value,
            )
            ev.dict_items(base)
            ev.journal.set_item(base.items, key, value)
        case Known() | InstanceValue():
            from .special_methods import call_special

            if call_special(ev, base, "__setitem__", index, value) is None:
                raise Break("SJ021", "an item store that cannot be tracked")
        case _:
            raise Break("SJ021", "an item store that cannot be tracked")


def _tensor_store(ev: Evaluator, base: TensorValue, index: Value, value: Value) -> None:
    part = _selected(ev, base, index)
    where = [base, index] if part is None else [part, constant(Ellipsis)]
    ev.builder.store(operator.setitem, [*where, value])


def _list_store(ev: Evaluator, base: ListValue, index: Value, value: Value) -> None:
    items = list(ev.list_items(base))
    if isinstance(index, SliceValue):
        from .containers import replace_items
        from .iterators import iterate

        try:
            items[slice_of(ev, index)] = iterate(ev, value)
        except (ValueError, TypeError) as error:
            raise raising(error) from error
        replace_items(ev, base, items)
        return
    where = ev.known(index, "an index")
    try:
        items[operator.index(where)] = value
    except (IndexError, TypeError) as error:
        raise raising(error) from error
    effect_if_outside(
        ev, base, lambda r, b: r.emit(f"{b}[{where}] = {r.reify(value)}"), value
    )
    assert base.items is not None
    ev.journal.replace_list(base.items, items)


def effect_if_outside(
    ev: Evaluator, base: Any, action: Any, *values: Value, overwrites: bool = True
) -> None:
    """Schedules `action(residual, text of base)` when the object exists outside evaluation.

    `overwrites` tells whether items that were read before may be elsewhere afterwards.
    """
    ev.journal.changes += 1
    if base.source is None and base.name is None:
        return
    if isinstance(base.source, Attribute) and base.source.name in MODULE_TABLES:
        # Attributes of the module would have to show it.
        raise Break(
            "SJ021",
            f"an entry of `{base.source.name}` of a module changes",
            hint="assign the attribute of the module",
        )
    if base.source is not None:
        kind = base.cls if isinstance(base, (DictValue, SetValue)) else list
        ev.guards.mutated(base.source.guard, kind)
    residual = ev.residual
    held: frozenset[int] = frozenset()
    if overwrites:
        ev.journal.set_attr(ev, "removes", True)
        if base.source is not None and ev.unsaved.is_new_below(base.source):
            held = held_by_variables(ev)

    def replay() -> None:
        if base.source is not None and overwrites:
            # What is taken out is bound behind the effect.
            kept = lambda: held | held_by_variables(ev)  # noqa: E731
            save_old(ev, base.source, below_only=True, held=kept)
        action(residual, residual.reify(base))

    ev.effect(replay, base, *values)


def delete(ev: Evaluator, base: Value, index: Value) -> None:
    """`del base[index]`."""
    base = ev.look(base)
    if isinstance(base, DictValue):
        key = _key(ev, index)
        if key not in base.items:
            raise Break("SJ030", f"raises KeyError: {key!r}")
        effect_if_outside(
            ev, base, lambda r, b: r.emit(f"del {b}[{r.reify(constant(key))}]")
        )
        ev.journal.delete_item(base.items, key)
        return
    if isinstance(base, ListValue) and not isinstance(index, SliceValue):
        where = ev.known(index, "an index")
        items = list(ev.list_items(base))
        try:
            del items[operator.index(where)]
        except (IndexError, TypeError) as error:
            raise raising(error) from error
        effect_if_outside(ev, base, lambda r, b: r.emit(f"del {b}[{where}]"))
        assert base.items is not None
        ev.journal.replace_list(base.items, items)
        return
    if isinstance(base, ListValue):
        from .containers import replace_items

        assert isinstance(index, SliceValue)
        items = list(ev.list_items(base))
        del items[slice_of(ev, index)]
        replace_items(ev, base, items)
        return
    if isinstance(base, (Known, InstanceValue)):
        from .special_methods import call_special

        if call_special(ev, base, "__delitem__", index) is not None:
            return
    raise Break("SJ021", "a `del` that cannot be tracked")
