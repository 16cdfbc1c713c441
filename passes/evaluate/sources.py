"""How the running program reaches an object that existed before the call.

A source renders itself twice: for the guard function, whose names are the parameters plus
`user_globals` and `cells`, and for the residual program, which runs with the user's globals and
closure.

    >>> up = Attribute(Argument("self"), "up")
    >>> Item(up, "w").guard, Item(up, "w").residual
    ("self.up['w']", "self.up['w']")
    >>> Global("scale").guard, Global("scale").residual
    ("user_globals['scale']", 'scale')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..program import guard_parameter


@dataclass(frozen=True)
class Source:
    """Base class; `root` is the parameter, global or cell at the start of the path."""

    @property
    def guard(self) -> str:
        raise NotImplementedError

    @property
    def residual(self) -> str:
        raise NotImplementedError

    @property
    def root(self) -> Source:
        return self

    @property
    def hint(self) -> str:
        """A short identifier for a variable that holds the object."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Named(Source):
    """What the residual program, and most often the guard, reaches by a name."""

    name: str

    @property
    def guard(self) -> str:
        return self.name

    @property
    def residual(self) -> str:
        return self.name

    @property
    def hint(self) -> str:
        return self.name


@dataclass(frozen=True)
class Argument(_Named):
    """A parameter of the function being specialized."""

    @property
    def guard(self) -> str:
        return guard_parameter(self.name)


@dataclass(frozen=True)
class Global(_Named):
    """A global variable of the module of the function being specialized."""

    @property
    def guard(self) -> str:
        return f"user_globals[{self.name!r}]"


@dataclass(frozen=True)
class Cell(_Named):
    """The contents of a closure cell of the function being specialized."""

    @property
    def guard(self) -> str:
        return f"cells[{self.name!r}].cell_contents"


@dataclass(frozen=True)
class Bound(_Named):
    """An object that the compiler hands to guard and residual program under a name.

    Used for dictionaries and functions whose identity an earlier guard has fixed, such as the
    globals of an inlined function.
    """


@dataclass(frozen=True)
class _Path(Source):
    base: Source

    def _render(self, base: str) -> str:
        raise NotImplementedError

    @property
    def guard(self) -> str:
        return self._render(self.base.guard)

    @property
    def residual(self) -> str:
        return self._render(self.base.residual)

    @property
    def root(self) -> Source:
        return self.base.root


@dataclass(frozen=True)
class Attribute(_Path):
    """`base.name`."""

    name: str

    def _render(self, base: str) -> str:
        return f"{base}.{self.name}"

    @property
    def hint(self) -> str:
        return self.name.strip("_") or "value"


@dataclass(frozen=True)
class Item(_Path):
    """`base[key]`; `name` is what a key is bound to whose `repr` does not spell it."""

    key: Any
    name: str | None = None

    def _render(self, base: str) -> str:
        return f"{base}[{self.name or repr(self.key)}]"

    @property
    def hint(self) -> str:
        if isinstance(self.key, str) and self.key.isidentifier():
            return self.key
        return (
            f"{self.base.hint}_{self.key}"
            if isinstance(self.key, int)
            else self.base.hint
        )


@dataclass(frozen=True)
class TypeOf(_Path):
    """`type(base)`."""

    def _render(self, base: str) -> str:
        return f"type({base})"

    @property
    def hint(self) -> str:
        return f"{self.base.hint}_type"


@dataclass(frozen=True)
class Called(_Path):
    """`base()` of a weak reference."""

    def _render(self, base: str) -> str:
        return f"{base}()"

    @property
    def hint(self) -> str:
        return self.base.hint


@dataclass(frozen=True)
class Contents(_Path):
    """Cell contents of a function's closure: `base.__closure__[index].cell_contents`."""

    index: int
    name: str

    def _render(self, base: str) -> str:
        return f"{base}.__closure__[{self.index}].cell_contents"

    @property
    def hint(self) -> str:
        return self.name
