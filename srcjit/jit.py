"""`srcjit.jit`: from anything that can be called to its jitted form."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypeVar, overload

import torch

from srcjit import control
from srcjit.diagnostics import Diagnostic, GraphBreakError, render
from srcjit.dispatch import Dispatcher, definition_line
from srcjit.logs import warn_once
from srcjit.module import jit_module
from srcjit.options import Options

F = TypeVar("F", bound=Callable[..., Any])

DISABLE = "SRCJIT_DISABLE"
"""Environment variable: if 1, `jit` gives back what it is given."""

_MODES = (
    None,
    "default",
    "reduce-overhead",
    "max-autotune",
    "max-autotune-no-cudagraphs",
)

_NATIVE_FLAGS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@overload
def jit(
    fn: F,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    disable: bool = ...,
) -> F: ...
@overload
def jit(
    fn: None = ...,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    disable: bool = ...,
) -> Callable[[F], F]: ...


def jit(
    fn: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "srcjit",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compiles a function or module; a drop-in for `torch.compile`.

    Nothing happens before the first call. Each call runs a specialization whose guards
    hold; if there is none, one is compiled.

    Args:
        fn: A function, lambda, method, `functools.partial`, callable object or
            `nn.Module`. Without it, returns a decorator.
        fullgraph: Raise `srcjit.GraphBreakError` at a graph break.
        dynamic: False to never make a size symbolic.
        backend: `"srcjit"`, the name of a `torch.compile` backend, or a callable
            `(gm, example_inputs) -> callable`.
        mode: None, `"default"`, `"reduce-overhead"` (segments on a GPU are recorded as CUDA
            graphs where that is sound and faster; no effect on the CPU) or
            `"max-autotune"` (schedules of kernels are chosen by timing them on memory of
            their own, and kept in the cache).
        options: More options by name; see `srcjit.options.Options`.
        disable: Return `fn` as it is. So does the environment variable SRCJIT_DISABLE=1.

    Returns:
        For a function, a function with the same signature. For a module, a module that
        shares all its state. A function that cannot be compiled as such (a generator, one
        written in C) is returned as it is, with a warning.

    Raises:
        TypeError: `fn` cannot be called, or is a class without anything to compile.
        ValueError: An option is unknown or has an impossible value.
    """
    made = _options(fullgraph, dynamic, backend, mode, options)
    if fn is None:
        return functools.partial(_jit, options=made, disable=disable)
    return _jit(fn, made, disable)


def _options(
    fullgraph: bool,
    dynamic: bool | None,
    backend: str | Callable[..., Any],
    mode: str | None,
    given: dict[str, Any] | None,
) -> Options:
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {_MODES[1:]}, got {mode!r}")
    if isinstance(backend, str):
        if backend != "srcjit":
            _check_backend(backend)
    elif not callable(backend):
        raise TypeError(f"backend must be a name or a callable, got {backend!r}")
    made = Options(fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode)
    return made.with_user_options(given)


def _check_backend(name: str) -> None:
    from torch._dynamo.backends.registry import list_backends

    known = list_backends(exclude_tags=())
    if name not in known:
        raise ValueError(f"no backend is called {name!r}; there are {sorted(known)}")


def _jit(fn: Any, options: Options, disable: bool = False) -> Any:
    if not callable(fn) and not isinstance(fn, (staticmethod, classmethod)):
        raise TypeError(
            f"srcjit.jit needs a function or a module, got {type(fn).__name__}; "
            "decorate the function itself, not its result"
        )
    if disable or os.environ.get(DISABLE) == "1" or control.is_disabled(fn):
        return fn
    if isinstance(fn, FunctionType):
        return jit_function(fn, options)
    if isinstance(fn, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return _native(fn, "is compiled by TorchScript")
    if isinstance(fn, torch.nn.Module):
        return jit_module(fn, options, lambda f: _jit(f, options))
    if isinstance(fn, MethodType):
        return MethodType(_jit(fn.__func__, options), fn.__self__)
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(_jit(fn.__func__, options))
    if isinstance(fn, functools.partial):
        made = type(fn)(_jit(fn.func, options), *fn.args, **fn.keywords)
        made.__dict__.update(fn.__dict__)
        return made
    if isinstance(fn, type):
        return _jit_class(fn, options)
    if isinstance(fn, BuiltinFunctionType):
        return _native(fn, "is written in C")
    call = type(fn).__call__
    if isinstance(call, FunctionType):
        return MethodType(_jit(call, options), fn)
    return _native(fn, "is called by code written in C")


def jit_function(function: FunctionType, options: Options) -> Any:
    """Returns the dispatch stub of a plain function; one that has one gets a new one."""
    known = control.dispatcher_of(function)
    if known is not None:
        function = known.function
    if function.__code__.co_flags & _NATIVE_FLAGS:
        return _generator(function, options)
    return Dispatcher(function, options).stub


def _generator(function: FunctionType, options: Options) -> FunctionType:
    kind = "coroutine" if inspect.iscoroutinefunction(function) else "generator"
    diagnostic = Diagnostic(
        "SJ002",
        f"`{function.__qualname__}` is a {kind} function",
        definition_line(function),
        (f"Python runs `{function.__qualname__}` as a whole",),
    )
    if options.fullgraph:
        raise GraphBreakError(diagnostic)
    text = render(diagnostic)
    warn_once(text, "%s", text)
    return function


def _native(fn: Any, why: str) -> Any:
    name = getattr(fn, "__qualname__", type(fn).__name__)
    text = f"srcjit.jit: `{name}` {why}, so it runs as it is"
    warn_once(text, "%s", text)
    return fn


def _jit_class(cls: type, options: Options) -> type:
    """Compiles what calling an instance runs, in place, as `torch.compile` does."""
    name = "forward" if issubclass(cls, torch.nn.Module) else "__call__"
    method = cls.__dict__.get(name) or getattr(cls, name, None)
    if not isinstance(method, FunctionType) or method is torch.nn.Module.forward:
        raise TypeError(
            f"srcjit.jit got the class `{cls.__qualname__}`, which has no `{name}` "
            "method to compile; jit an instance, or decorate the methods"
        )
    setattr(cls, name, _jit(method, options))
    return cls
