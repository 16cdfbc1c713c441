"""What a dispatch stub is made of: a function without code that looks like the user's.

    stub = FunctionType(empty_stub.__code__, stub_globals())
    dress(stub, function, stub_defaults(function, signature))   # name, doc, defaults

`srcjit.dispatch` writes its code.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

from srcjit.lines import not_counted
from srcjit.signature import Default, Signature
from srcjit.tails import Tail
from srcjit.tracebacks import CONTINUES, merged, unseen


def stub_globals() -> dict[str, Any]:
    """The globals of a stub, but for the compiler's objects."""
    # No `__name__`: TorchDynamo would look names up in the module of that name.
    return {"__builtins__": builtins.__dict__}


def empty_stub() -> None:
    """The code that a stub is made with, before its own is written."""


class StubNames:
    """Names of the compiler's objects in a stub, none of them a parameter's."""

    def __init__(self, taken: tuple[str, ...]) -> None:
        self._taken = taken

    def __call__(self, name: str) -> str:
        """Returns `name`, with underscores behind it if a parameter has it."""
        while name in self._taken:
            name += "_"
        return name


def stub_defaults(function: FunctionType, signature: Signature) -> dict[str, Default]:
    """Returns what stands for the default of each parameter that has one."""
    count = signature.positional_defaults
    names = signature.positional[len(signature.positional) - count :]
    found = dict(zip(names, function.__defaults__ or (), strict=True))
    found |= function.__kwdefaults__ or {}
    return {name: Default(value) for name, value in found.items()}


def dress(
    stub: FunctionType, function: FunctionType, defaults: dict[str, Default]
) -> None:
    """Makes `stub` look like `function` from outside."""
    functools.update_wrapper(stub, function)
    count = len(function.__defaults__ or ())
    stub.__defaults__ = tuple(defaults.values())[:count] or None
    stub.__kwdefaults__ = dict(list(defaults.items())[count:]) or None


def identifier(name: str) -> str:
    """Returns a function's name as text can spell it (a lambda's is `<lambda>`)."""
    made = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return made if made.isidentifier() else f"function_{made.strip('_')}".rstrip("_")


def whole(
    run: Callable[..., Any], tail: Tail | None, merges: bool
) -> Callable[..., Any]:
    """Returns a function that runs a program and what it asks for, in nobody's frame.

    Args:
        run: The program.
        tail: How it says what is to be called next.
        merges: Whether frames below may be parts of one activation.
    """
    if tail is None and not merges:
        return run
    call = "run(*args, **kwargs)"
    lines = tail.lines(call, str) if tail else [f"return {call}"]
    lines = unseen(lines, "error", "merged" if merges else None)
    text = "\n    ".join(["def whole(*args, **kwargs):", *lines])
    scope = {**stub_globals(), "run": run, "merged": merged, CONTINUES: True}
    exec(compile(text, not_counted("first call"), "exec"), scope)
    made: Callable[..., Any] = scope["whole"]
    return made
