"""Reifying: how the residual program gets hold of a value.

A tensor is a variable or a path such as `self._parameters['scale']`; a constant is its literal; a
list made during evaluation is a display in a variable of its own, so that it is one object however
often it is used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import libcst as cst
import torch

from srcjit.origin import Origin, Origins

from .evaluate.lazy import LazyItems
from .evaluate.values import (
    BuiltinMethod,
    ContextValue,
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
from .kinds import is_a
from .spelling import has_decimals

if TYPE_CHECKING:
    from .evaluate.evaluator import Evaluator


class _Cycle(Exception):
    """A container is reached again while it is built; `at` has to be made empty first."""

    def __init__(self, at: Value) -> None:
        self.at = at


class Reifier:
    """Expressions for values; the residual program's builder adds the lines that build them."""

    ev: Evaluator
    constants: dict[str, Any]
    _inline: set[int]
    _constant_names: dict[int, str]
    lines: list[tuple[str, Origin | None, str]]
    _building: list[Value]

    def emit(self, text: str, origin: Origin | None = None, note: str = "") -> None:
        """Adds a line to the residual program."""
        raise NotImplementedError

    def emit_statement(
        self,
        statement: cst.CSTNode,
        origin: Origin | None,
        note: str = "",
        origins: Origins | None = None,
    ) -> None:
        """Adds a native statement; `origins` has the lines of its parts."""
        raise NotImplementedError

    def fresh(self, hint: str) -> str:
        """Returns an unused variable name."""
        raise NotImplementedError

    def variable(self, name: str) -> str:
        """Returns a variable for what the user calls `name`."""
        raise NotImplementedError

    def constant_name(self, obj: Any, hint: str) -> str:
        """Returns the name by which the text sees an object that it cannot spell."""
        raise NotImplementedError

    def reify(self, value: Value) -> str:
        """Returns an expression for `value`; may add lines that build it.

        The expression is an atom or a display: safe as an argument.
        """
        value = self.ev.look(value)
        match value:
            case Known():
                return self._known(value)
            case TensorValue():
                if value.name is not None:
                    return value.name
                if value.node is not None and value.node.op != "placeholder":
                    raise AssertionError(
                        f"tensor {value.node} is not an output of its segment"
                    )
                assert value.source is not None
                return value.source.residual
            case Scalar():
                return value.text
            case Unknown():
                assert value.name is not None
                return value.name
        if value.name is not None:
            return value.name
        source = getattr(value, "source", None)
        if source is not None:
            return str(source.residual)
        if isinstance(value, (ListValue, DictValue, TupleValue)):
            return self._container(value)
        return self._build(value)

    def _container(self, value: ListValue | DictValue | TupleValue) -> str:
        """Builds a container, which may contain itself.

        A display cannot: a list or dict on the way round is made empty and filled later.
        """
        around = [v for v in self._building if v is value]
        if around:
            inner = self._building[self._building.index(value) :]
            mutable = [v for v in inner if not isinstance(v, TupleValue)]
            if any(v.name is None for v in mutable):
                raise _Cycle(next(v for v in mutable if v.name is None))
            return self._held_tuple(value)
        mark, count = self.ev.journal.mark(), len(self.lines)
        self._building.append(value)
        try:
            text = self._build(value)
            return value.name or text
        except _Cycle as cycle:
            if cycle.at is not value:
                raise
            self.ev.journal.rollback(mark)
            del self.lines[count:]
            return self._fill(value)
        finally:
            self._building.pop()

    def _held_tuple(self, value: Value) -> str:
        name = self.fresh("items")
        self.emit(f"{name} = {self._build(value)}")
        self.ev.journal.set_attr(value, "name", name)
        return name

    def _fill(self, value: Value) -> str:
        """Builds a list or dict that contains itself."""
        if isinstance(value, ListValue):
            name = self.fresh("items")
            self.emit(f"{name} = []")
            self.ev.journal.set_attr(value, "name", name)
            for item in self.ev.list_items(value):
                self.emit(f"{name}.append({self.reify(item)})")
            return name
        assert isinstance(value, DictValue)
        name = self.fresh("table")
        empty = "{}" if value.cls is dict else self._made_dict(value, "{}")
        self.emit(f"{name} = {empty}")
        self.ev.journal.set_attr(value, "name", name)
        for key, item in self.ev.dict_items(value).items():
            self.emit(f"{name}[{self.reify(Known(key))}] = {self.reify(item)}")
        return name

    def atom(self, value: Value) -> str:
        """Like `reify`, but the expression is a name, a path or a literal."""
        text = self.reify(value)
        if text.isidentifier() or _is_path(text):
            return text
        if isinstance(value, Scalar):
            return self.hold(value, value.name or "number")
        if isinstance(value, Known) and not text.startswith(("-", "(")):
            return text
        return self.hold(value, "value")

    def hold(self, value: Value, hint: str) -> str:
        """Puts `value` into a variable of its own; returns the variable."""
        text = self.reify(value)
        if text.isidentifier() and not isinstance(value, Known):
            return text
        name = self.fresh(hint)
        self.emit(f"{name} = {text}")
        if isinstance(value, Scalar):
            self.ev.journal.set_attr(value, "text", name)
        elif not isinstance(value, Known):
            self.ev.journal.set_attr(value, "name", name)
        return name

    def _known(self, value: Known) -> str:
        if value.name is not None:
            return value.name
        obj = value.obj
        if value.source is not None:
            return value.source.residual
        if type(obj) is float and obj != obj:
            # NOTE: containers find NaN by identity, so there is one object for it.
            name = self.fresh("nan")
            self.emit(f"{name} = {literal(obj)}")
            self.ev.journal.set_attr(value, "name", name)
            return name
        text = literal(obj)
        if text is not None:
            return text
        if is_a(obj, tuple) and type(obj) is tuple:
            items = [self._known(Known(item)) for item in obj]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        hint = getattr(obj, "__name__", None) or str(obj).rsplit(".", 1)[-1]
        return self.constant_name(
            obj, "".join(c if c.isalnum() else "_" for c in str(hint))
        )

    def _build(self, value: Value) -> str:
        """Returns an expression that builds a new object, held in a variable if it is mutable."""
        build = getattr(value, "build", None)
        if build is not None:
            return str(build(self))
        match value:
            case TupleValue():
                return self._tuple(value)
            case SliceValue():
                parts = [self.reify(p) for p in (value.start, value.stop, value.step)]
                return f"slice({', '.join(parts)})"
            case ListValue():
                return self._mutable(
                    value, f"[{self._items(self.ev.list_items(value))}]", "items"
                )
            case DictValue():
                return self._dict(value)
            case SetValue():
                items = ", ".join(self.reify(Known(item)) for item in value.items)
                display = f"{{{items}}}" if items else "set()"
                text = display if value.cls is set else f"frozenset({display})"
                return self._mutable(value, text, "names")
            case FunctionValue():
                from .evaluate.nested_functions import reify_function

                return reify_function(self, value)
            case MethodValue():
                if value.attribute:
                    return f"{self.atom(value.receiver)}.{value.attribute}"
                bind = self.constant_name(type(_bound_method), "MethodType")
                return f"{bind}({self.reify(value.function)}, {self.reify(value.receiver)})"
            case BuiltinMethod():
                return f"{self.atom(value.receiver)}.{value.attribute}"
            case PartialValue():
                partial = self.constant_name(functools.partial, "partial")
                args = [self.reify(v) for v in (value.function, *value.args)]
                args += [f"{k}={self.reify(v)}" for k, v in value.kwargs.items()]
                return self._mutable(
                    value, f"{partial}({', '.join(args)})", "partial_call"
                )
            case IteratorValue():
                if isinstance(value.items, ListValue):
                    text = f"iter({self.reify(value.items)})"
                    if value.position:
                        skip = self.constant_name(_skip, "skip")
                        text = f"{skip}({text}, {value.position})"
                else:
                    if isinstance(value.items, LazyItems):
                        if not (value.private or value.generator):
                            value.items.hand_over()
                    display = f"[{self._items(value.items[value.position :])}]"
                    text = (
                        f"(v for v in {display})"
                        if value.generator
                        else f"iter({display})"
                    )
                return self._mutable(value, text, "iterator")
            case InstanceValue():
                return self._instance(value)
            case SuperValue():
                owner = self.constant_name(value.owner, value.owner.__name__)
                return f"super({owner}, {self.reify(value.receiver)})"
            case ContextValue():
                context = self.constant_name(value.value[0], value.value[0].__name__)
                given = ", ".join(self.reify(Known(a)) for a in value.value[1])
                return f"{context}({given})"
        raise AssertionError(value)

    def _mutable(self, value: Value, text: str, hint: str) -> str:
        if id(value) in self._inline:
            return text
        name = self.fresh(hint)
        self.emit(f"{name} = {text}")
        self.ev.journal.set_attr(value, "name", name)
        return name

    def _items(self, items: Iterable[Value]) -> str:
        return ", ".join(self.reify(item) for item in items)

    def _tuple(self, value: TupleValue) -> str:
        items = [self.reify(item) for item in value.items]
        if value.name is not None:
            return value.name  # built on the way, because it contains itself
        if value.cls is tuple:
            text = f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        else:
            text = f"{self.constant_name(value.cls, value.cls.__name__)}"
            if value.cls is torch.Size or value.cls.__module__ == "torch.return_types":
                text += f"([{', '.join(items)}])"
            else:
                text += f"({', '.join(items)})"
        constant = all(isinstance(item, Known) for item in value.items)
        return text if constant else self._mutable(value, text, "items")

    def _dict(self, value: DictValue) -> str:
        entries = self.ev.dict_items(value)
        text = ", ".join(
            f"{self.reify(Known(k))}: {self.reify(v)}" for k, v in entries.items()
        )
        display = f"{{{text}}}"
        if value.cls is not dict:
            display = self._made_dict(value, display)
        return self._mutable(value, display, "table")

    def _made_dict(self, value: DictValue, display: str) -> str:
        """Returns the call that makes a dict of a subclass with these entries."""
        cls = self.constant_name(value.cls, value.cls.__name__)
        if isinstance(value, DefaultDictValue):
            return f"{cls}({self.reify(value.factory)}, {display})"
        return f"{cls}({display})"

    def _instance(self, value: InstanceValue) -> str:
        cls = self.constant_name(value.cls, value.cls.__name__)
        name = self.fresh(value.cls.__name__.lower())
        self.emit(f"{name} = {cls}.__new__({cls})")
        self.ev.journal.set_attr(value, "name", name)
        for attribute, item in value.attributes.items():
            self.emit(f"object.__setattr__({name}, {attribute!r}, {self.reify(item)})")
        return name


def literal(obj: Any) -> str | None:
    """Returns the literal for a constant, or None when it has none that needs no import."""
    if obj is None or obj is Ellipsis or is_a(obj, (bool, str, bytes)):
        return repr(obj) if obj is not Ellipsis else "..."
    if type(obj) is int:
        return repr(obj) if has_decimals(obj) else None
    if type(obj) is float:
        if obj != obj and math.copysign(1, obj) < 0:
            return "float('-nan')"
        return repr(obj) if math.isfinite(obj) else f"float({str(obj)!r})"
    if type(obj) is tuple and is_constant(obj):
        items = [literal(item) for item in obj]
        if any(item is None for item in items):
            return None
        return f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"
    if type(obj) is range:
        return repr(obj)
    if type(obj) is slice:
        return repr(obj)
    return None


def _is_path(text: str) -> bool:
    return text.replace(".", "").replace("_", "a").isalnum() and not text[0].isdigit()


def _skip(iterator: Iterator[Any], count: int) -> Iterator[Any]:
    for _ in range(count):
        next(iterator, None)
    return iterator


class _Holder:
    def method(self) -> None: ...


_bound_method = _Holder().method
