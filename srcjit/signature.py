"""The parameters of a function, and the text that passes them on exactly.

A dispatch stub has the user's signature, so CPython itself binds the arguments and raises
its own `TypeError`s. Inside, every parameter is one variable (`*args` a tuple, `**kwargs` a
dict); guards take those variables by position, and a call hands them on:

    >>> def poly(x, /, coeffs=(), *rest, reverse=False, **opts): ...
    >>> s = Signature.of(poly)
    >>> s.definition
    'x, /, coeffs=DEFAULT, *rest, reverse=DEFAULT, **opts'
    >>> s.parameters
    ('x', 'coeffs', 'rest', 'reverse', 'opts')
    >>> s.call
    'x, coeffs, *rest, reverse=reverse, **opts'
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import FunctionType


@dataclass(frozen=True)
class Signature:
    """Parameters by kind.

    Attributes:
        positional: Positional parameters, positional-only ones first.
        positional_only: How many of them are positional-only.
        keyword_only: Keyword-only parameters.
        rest: Name of `*args`, or None.
        keywords: Name of `**kwargs`, or None.
        positional_defaults: How many positional parameters have a default, counted from
            the last one.
        keyword_defaults: Keyword-only parameters that have a default.
    """

    positional: tuple[str, ...]
    positional_only: int
    keyword_only: tuple[str, ...]
    rest: str | None
    keywords: str | None
    positional_defaults: int
    keyword_defaults: frozenset[str]

    @classmethod
    def of(cls, function: FunctionType) -> Signature:
        """Reads the signature off the code object, where names are already mangled."""
        code = function.__code__
        names = list(code.co_varnames)
        count, only = code.co_argcount, code.co_kwonlyargcount
        extra = names[count + only :]
        rest = extra.pop(0) if code.co_flags & inspect.CO_VARARGS else None
        keywords = extra.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else None
        return cls(
            tuple(names[:count]),
            code.co_posonlyargcount,
            tuple(names[count : count + only]),
            rest,
            keywords,
            len(function.__defaults__ or ()),
            frozenset(function.__kwdefaults__ or ()),
        )

    @property
    def parameters(self) -> tuple[str, ...]:
        """All names, in the order of a signature."""
        rest = (self.rest,) if self.rest else ()
        keywords = (self.keywords,) if self.keywords else ()
        return (*self.positional, *rest, *self.keyword_only, *keywords)

    def as_written(self, class_name: str | None) -> tuple[str, ...]:
        """The parameters as the source of a method of `class_name` spells them (`__x`)."""
        prefix = f"_{class_name.lstrip('_')}" if class_name else ""
        return tuple(
            name[len(prefix) :] if prefix and name.startswith(f"{prefix}__") else name
            for name in self.parameters
        )

    @property
    def definition(self) -> str:
        """The parameter list of a `def`; each default is spelled `DEFAULT`."""
        first = len(self.positional) - self.positional_defaults
        parts = []
        for index, name in enumerate(self.positional):
            parts.append(f"{name}=DEFAULT" if index >= first else name)
            if index + 1 == self.positional_only:
                parts.append("/")
        if self.rest:
            parts.append(f"*{self.rest}")
        elif self.keyword_only:
            parts.append("*")
        parts += [
            f"{name}=DEFAULT" if name in self.keyword_defaults else name
            for name in self.keyword_only
        ]
        if self.keywords:
            parts.append(f"**{self.keywords}")
        return ", ".join(parts)

    @property
    def call(self) -> str:
        """The argument list that hands all parameters on."""
        parts = list(self.positional)
        if self.rest:
            parts.append(f"*{self.rest}")
        parts += [f"{name}={name}" for name in self.keyword_only]
        if self.keywords:
            parts.append(f"**{self.keywords}")
        return ", ".join(parts)

    @property
    def defaults(self) -> tuple[tuple[str, str], ...]:
        """For each parameter with a default: its name and where the function keeps it.

        Positional defaults are counted from the last one, as CPython does, so that the
        place stays right when `__defaults__` is given another length.
        """
        count = self.positional_defaults
        positional = tuple(
            (name, f"__defaults__[{index - count}]")
            for index, name in enumerate(
                self.positional[len(self.positional) - count :]
            )
        )
        keyword_only = tuple(
            (name, f"__kwdefaults__[{name!r}]")
            for name in self.keyword_only
            if name in self.keyword_defaults
        )
        return positional + keyword_only


class Default:
    """Stands for a default in a stub; the stub reads the real one from the user's function.

    So that a later change of the function's `__defaults__` takes effect.
    """

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)
