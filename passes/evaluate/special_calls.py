"""Special methods of built-in containers, called by name: `d.__len__()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .values import (
    Value,
    constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


def _special(name: str) -> Any:
    def method(ev: Evaluator, target: Value, *args: Value) -> Value:
        from . import subscripts
        from .comparisons import contains
        from .truth import size_of

        if name == "__len__":
            return constant(size_of(ev, target))
        if name == "__contains__":
            return constant(contains(ev, args[0], target))
        if name == "__getitem__":
            return subscripts.load(ev, target, args[0])
        if name == "__setitem__":
            subscripts.store(ev, target, *args)
        elif name == "__delitem__":
            subscripts.delete(ev, target, *args)
        else:
            from .loops import iterator_over

            return iterator_over(ev, target)
        return constant(None)

    return method


SPECIAL = {
    name: _special(name)
    for name in (
        "__len__",
        "__contains__",
        "__getitem__",
        "__setitem__",
        "__delitem__",
        "__iter__",
    )
}
