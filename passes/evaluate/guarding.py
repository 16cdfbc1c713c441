"""Records the conditions under which what evaluation decided stays valid."""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from ..kinds import is_a
from ..namer import Namer
from ..program import Guard, GuardSet, TensorGuard
from ..spelling import has_decimals
from .breaks import Break
from .journal import Journal
from .sources import Source

_COMPARISON = re.compile(" ==| is ")
_IS_INT = ") is int and"
_LITERAL = (int, str, bytes)
_SINGLETON = (type(None), bool, type(Ellipsis), type(NotImplemented))


class GuardRecorder:
    """Collects guards in order, each once."""

    def __init__(self, journal: Journal, namer: Namer) -> None:
        self._journal = journal
        self._guards: dict[str, Guard | TensorGuard] = {}
        self._compared: dict[str, list[str]] = {}
        self.bindings: dict[str, Any] = {}
        self._bound: dict[int, str] = {}
        self._namer = namer
        self._distinct: dict[frozenset[str], tuple[str, ...]] = {}
        self._absent: dict[str, dict[str, None]] = {}
        self._reached: dict[type, dict[str, int]] = {}
        self._mutated: dict[type, dict[str, None]] = {}

    def add(self, text: str, reason: str = "") -> None:
        """Requires the Python expression `text` to be true."""
        if text not in self._guards:
            self._journal.set_item(self._guards, text, Guard(text, reason))
            for found in _COMPARISON.finditer(text):
                path = text[: found.start()]
                self._compared.setdefault(path, []).append(text)
                if path.startswith("type(") and text.startswith(_IS_INT, len(path) - 1):
                    self._compared.setdefault(path[5:-1], []).append(text)

    def add_tensor(self, source: Source, tensor: torch.Tensor) -> None:
        """Requires the tensor at `source` to have the metadata of `tensor`."""
        text = source.guard
        if text not in self._guards:
            facts = TensorGuard(
                text=text,
                cls=type(tensor),
                dtype=tensor.dtype,
                device=tensor.device,
                size=tuple(tensor.shape),
                stride=tuple(tensor.stride()),
                requires_grad=tensor.requires_grad,
                is_inference=tensor.is_inference(),
            )
            self._journal.set_item(self._guards, text, facts)

    def add_distinct(self, sources: Iterable[Source]) -> None:
        """Requires of tensors that no two of them share memory."""
        paths = tuple(dict.fromkeys(source.guard for source in sources))
        if len(paths) > 1 and not any(d.issuperset(paths) for d in self._distinct):
            self._journal.set_item(self._distinct, frozenset(paths), paths)

    def reached(self, path: str, obj: Any) -> None:
        """Notes that evaluation looks at the mutable `obj` by the expression `path`."""
        self._reached.setdefault(type(obj), {})[path] = id(obj)

    def mutated(self, path: str, kind: type) -> None:
        """Notes that the program changes the object at `path`, which was reached before.

        What was read by another path may be changed with it, so which paths lead to one
        object, and which to different ones, becomes a condition.
        """
        table = self._mutated.setdefault(kind, {})
        if path not in table:
            self._journal.set_item(table, path, None)

    def _fix_aliases(self) -> None:
        for kind, changed in self._mutated.items():
            paths = self._reached.get(kind, {})
            if not changed or len(paths) < 2:
                continue
            first: dict[int, str] = {}
            for path, identity in paths.items():
                if identity in first:
                    self.add(f"{path} is {first[identity]}", "one object, changed here")
                else:
                    first[identity] = path
            if len(first) == 2:
                self.add(f"{' is not '.join(first.values())}", "changed here")
            elif len(first) > 2:
                ids = ", ".join(f"id({path})" for path in first.values())
                self.add(f"len({{{ids}}}) == {len(first)}", "changed here")

    def add_absent(self, table: str, name: str) -> None:
        """Requires that the dict `table` gets no entry `name`: it would hide another.

        `table` are globals (which hide builtins), or the `__dict__` of a class or object.
        """
        names = self._absent.setdefault(table, {})
        if name not in names:
            self._journal.set_item(names, name, None)

    def bind(self, obj: Any, hint: str) -> str:
        """Returns the name under which guards (and the residual program) see `obj`."""
        name = self._bound.get(id(obj))
        if name is None:
            name = self._namer.fresh(_identifier(hint))
            self._bound[id(obj)] = name
            self.bindings[name] = obj
        return name

    def texts(self) -> list[str]:
        """The expressions that are guarded so far."""
        return list(self._guards)

    def conditions(self) -> list[Guard]:
        """The guards so far, without those on tensors."""
        return [guard for guard in self._guards.values() if isinstance(guard, Guard)]

    def decided(self, source: Source) -> bool:
        """Whether a guard on the value at `source` exists already."""
        texts = self._compared.get(source.guard, ())
        return any(text in self._guards for text in texts)

    def type_of(self, source: Source, obj: Any) -> None:
        """Requires the object at `source` to be of exactly `obj`'s type."""
        cls = type(obj)
        self.add(f"type({source.guard}) is {self._type_name(cls)}")

    def _type_name(self, cls: type) -> str:
        if vars(builtins).get(cls.__name__) is cls:
            return str(cls.__name__)
        return self.bind(cls, cls.__name__)

    def keys_of(self, source: Source, obj: Any) -> None:
        """Requires the dict or set at `source` to hold the keys of `obj`, in their order."""
        text = source.guard
        if not obj:
            self.add(f"not {text}")
            return
        keys = tuple(obj)
        self.add(f"tuple({text}) == {self.bind(keys, f'{source.hint}_keys')}")
        if not all(type(key) is str for key in keys):
            # NOTE: 1, 1.0 and True are equal, and so are 0.0 and -0.0.
            self.add(f"repr(tuple({text})) == {repr(keys)!r}")

    def value_of(self, source: Source, obj: Any) -> None:
        """Requires the object at `source` to equal the constant `obj`, type included."""
        text = source.guard
        kind = type(obj)
        if kind in _SINGLETON:
            self.add(f"{text} is {obj!r}")
        elif kind in _LITERAL:
            long = kind is int and not has_decimals(obj)
            value = self.bind(obj, "number") if long else repr(obj)
            self.add(f"type({text}) is {kind.__name__} and {text} == {value}")
        elif kind is float:
            if math.isnan(obj):
                self.add(f"type({text}) is float and {text} != {text}")
            elif obj == 0.0:
                self.add(f"type({text}) is float and str({text}) == {str(obj)!r}")
            elif math.isinf(obj):
                self.add(f"type({text}) is float and {text} == float({str(obj)!r})")
            else:
                self.add(f"type({text}) is float and {text} == {obj!r}")
        elif is_a(obj, np.generic):
            self.add(
                f"type({text}) is {self._type_name(kind)} and repr({text}) == {repr(obj)!r}"
            )
        elif kind is complex:
            self.add(f"type({text}) is complex and repr({text}) == {repr(obj)!r}")
        elif is_a(obj, (torch.dtype, torch.layout, torch.memory_format)):
            self.add(f"{text} is {self.bind(obj, str(obj).split('.')[-1])}")
        elif kind in (range, slice):
            # Ranges of the same numbers are equal, whatever their stop is.
            name = kind.__name__
            self.add(f"type({text}) is {name} and repr({text}) == {repr(obj)!r}")
        elif is_a(obj, (torch.device, torch.Size)):
            name = self.bind(obj, kind.__name__.lower())
            self.add(f"type({text}) is {self._type_name(kind)} and {text} == {name}")
        else:
            raise Break("SJ020", f"a decision on a `{kind.__name__}`")

    def identity_of(self, source: Source, obj: Any) -> None:
        """Requires the object at `source` to be `obj` itself."""
        hint = source.hint
        if is_a(obj, (FunctionType, BuiltinFunctionType, ModuleType, type)):
            hint = str(getattr(obj, "__name__", None) or hint).rsplit(".", 1)[-1]
        self.add(f"{source.guard} is {self.bind(obj, str(hint))}")

    def finish(self) -> GuardSet:
        """Returns all guards."""
        for table, names in self._absent.items():
            if names:
                spelled = ", ".join(repr(name) for name in names) + ","
                self.add(f"{table}.keys().isdisjoint(({spelled}))", "nothing is hidden")
        self._fix_aliases()
        distinct = tuple(
            paths
            for key, paths in self._distinct.items()
            if not any(key < other for other in self._distinct)
        )
        return GuardSet(tuple(self._guards.values()), dict(self.bindings), distinct)


def _identifier(hint: str) -> str:
    name = "".join(c if c.isalnum() or c == "_" else "_" for c in hint).strip("_")
    return name if name and not name[0].isdigit() else f"value_{name}".rstrip("_")
