"""Binds the arguments of an inlined call exactly as CPython does."""

from __future__ import annotations

from dataclasses import dataclass, field

from .breaks import Break
from .values import DictValue, TupleValue, Value


@dataclass
class Signature:
    """Parameters of a Python function, with the values of their defaults."""

    name: str
    positional_only: list[str] = field(default_factory=list)
    positional: list[str] = field(default_factory=list)
    keyword_only: list[str] = field(default_factory=list)
    star: str | None = None
    double_star: str | None = None
    defaults: dict[str, Value] = field(default_factory=dict)


def bind(
    signature: Signature, args: list[Value], kwargs: dict[str, Value]
) -> dict[str, Value]:
    """Returns the locals with which the call starts.

    Raises:
        Break: SJ030 where CPython raises TypeError (Python then raises it).
    """
    names = [*signature.positional_only, *signature.positional]
    bound: dict[str, Value] = dict(zip(names, args))
    rest = args[len(names) :]
    if rest and signature.star is None:
        raise _error(
            signature, f"takes {len(names)} positional arguments, {len(args)} given"
        )
    extra: dict[str, Value] = {}
    accepts = {*signature.positional, *signature.keyword_only}
    for key, value in kwargs.items():
        if key in accepts:
            if key in bound:
                raise _error(signature, f"got multiple values for argument `{key}`")
            bound[key] = value
        elif signature.double_star is not None:
            extra[key] = value
        else:
            raise _error(signature, f"got an unexpected keyword argument `{key}`")
    for name in [*names, *signature.keyword_only]:
        if name not in bound:
            if name not in signature.defaults:
                raise _error(signature, f"misses argument `{name}`")
            bound[name] = signature.defaults[name]
    if signature.star is not None:
        bound[signature.star] = TupleValue(list(rest))
    if signature.double_star is not None:
        bound[signature.double_star] = DictValue(extra)
    return bound


def _error(signature: Signature, what: str) -> Break:
    return Break("SJ030", f"raises TypeError: {signature.name}() {what}")
