"""What new lists, dicts, sets and objects held at some moment of the evaluation.

    items = []
    log.append(items)        # what `log` gets is a list that is empty
    items.append(x[i])       # raises, or `log` sees the item, too

The lines that hand such an object to the program are written when the segment ends. By then
it holds more than it did, and of that some may never be computed. `contents` remembers;
`Rewritten` writes the lines for a moment, and later what has changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .evaluate.values import (
    DictValue,
    InstanceValue,
    Known,
    ListValue,
    SetValue,
    TensorValue,
    Value,
)

if TYPE_CHECKING:
    from .evaluate.evaluator import Evaluator
    from .residual import ResidualBuilder

Contents = Mapping[int, tuple[Value, Any]]
"""Id of a new mutable object -> the object and what it holds."""

_HOLDERS = {
    ListValue: "items",
    DictValue: "items",
    SetValue: "items",
    InstanceValue: "attributes",
}


def contents(ev: Evaluator, values: Iterable[Value]) -> Contents:
    """Returns what new mutable objects that are reached by `values` hold now."""
    from .reachable import parts_of

    found: dict[int, tuple[Value, Any]] = {}
    seen: set[int] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, (TensorValue, Known)):
            continue
        seen.add(id(value))
        if _is_new(value):
            held = getattr(value, _HOLDERS[type(value)])
            found[id(value)] = value, held.copy()
        stack += parts_of(value)
    return found


def _is_new(value: Value) -> bool:
    """Whether a value is a mutable object that the program has not built yet."""
    if type(value) not in _HOLDERS or value.name is not None:
        return False
    return getattr(value, "source", None) is None


class Rewritten:
    """New objects whose lines are written for moments before the end of a segment."""

    def __init__(self, residual: ResidualBuilder) -> None:
        self.residual = residual
        self._last: dict[int, tuple[Value, Any]] = {}
        self._final: dict[int, tuple[Value, Any]] = {}

    def enter(self, then: Contents) -> None:
        """Makes objects hold what they held at a moment, in what is written already, too."""
        for key, (value, held) in then.items():
            name = _HOLDERS[type(value)]
            self._final.setdefault(key, (value, getattr(value, name)))
            if key not in self._last:
                setattr(value, name, held)
                self._last[key] = value, held
        for key, (value, held) in then.items():
            before = self._last[key][1]
            if before is held:
                continue
            setattr(value, _HOLDERS[type(value)], held)
            self._last[key] = value, held
            if value.name is not None and not _same(before, held):
                self._write(value, before, held)

    def leave(self, *, write: bool) -> None:
        """Makes the objects hold what they hold at the end.

        Args:
            write: Whether to write that for those whose lines are written.
        """
        final = dict(self._final)
        if write:
            self.enter(final)
        for value, held in final.values():
            setattr(value, _HOLDERS[type(value)], held)

    def _write(self, value: Value, before: Any, held: Any) -> None:
        residual = self.residual
        name = value.name
        if isinstance(value, ListValue):
            items = ", ".join(residual.reify(item) for item in held)
            residual.emit(f"{name}[:] = [{items}]")
        elif isinstance(value, DictValue):
            entries = ", ".join(
                f"{residual.reify(Known(k))}: {residual.reify(v)}"
                for k, v in held.items()
            )
            residual.emit(f"{name}.clear()")
            residual.emit(f"{name}.update({{{entries}}})")
        elif isinstance(value, SetValue):
            residual.emit(f"{name}.clear()")
            for item in held:
                residual.emit(f"{name}.add({residual.reify(Known(item))})")
        else:
            for key in before:
                if key not in held:
                    residual.emit(f"object.__delattr__({name}, {key!r})")
            for key, item in held.items():
                if before.get(key) is not item:
                    text = residual.reify(item)
                    residual.emit(f"object.__setattr__({name}, {key!r}, {text})")


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, dict):
        return list(before) == list(after) and all(
            before[key] is after[key] for key in before
        )
    return len(before) == len(after) and all(
        a is b for a, b in zip(before, after, strict=True)
    )
