"""Callables of PyTorch and the standard library whose answer is known without running them."""

from __future__ import annotations

import logging
import typing
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..kinds import is_a
from .breaks import Break
from .builtin_calls import is_harmless
from .conversions import fold
from .registry import HANDLERS, Handler, evaluates
from .sources import Called
from .truth import truth
from .values import Known, Value, constant

if TYPE_CHECKING:
    from .evaluator import Evaluator


def _always(answer: Any) -> Handler:
    """Ignores its arguments: the answer is fixed while no mode or subclass is around."""

    def call(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return constant(answer)

    return call


def _register(answer: Any, *paths: str) -> None:
    for path in paths:
        obj: Any = torch
        for part in path.split("."):
            obj = getattr(obj, part, None)
        if obj is not None:
            HANDLERS[obj] = _always(answer)


# NOTE: function modes, tracing and functorch transforms are guarded for the whole program.
_register(
    False,
    "_C._has_torch_function",
    "_C._has_torch_function_unary",
    "_C._has_torch_function_variadic",
    "overrides.has_torch_function",
    "overrides.has_torch_function_unary",
    "overrides.has_torch_function_variadic",
    "compiler.is_compiling",
    "compiler.is_dynamo_compiling",
    "compiler.is_exporting",
    "_utils.is_compiling",
    "jit.is_scripting",
    "jit.is_tracing",
    "_jit_internal.is_scripting",
    "_C._is_tracing",
    "_C._are_functorch_transforms_active",
    "_C._is_torch_function_mode_enabled",
    "onnx.is_in_onnx_export",
    "fx._symbolic_trace.is_fx_tracing",
    "fx._symbolic_trace.is_fx_symbolic_tracing",
    "_C._functorch.is_batchedtensor",
    "_C._functorch.is_functorch_wrapped_tensor",
    "nn.modules.activation._is_make_fx_tracing",
)
_register(
    None,
    "_C._get_tracing_state",
    "_C._log_api_usage_once",
    "_C._log_api_usage_metadata",
)

HANDLERS[typing.cast] = lambda ev, args, kwargs: (
    kwargs["val"] if "val" in kwargs else args[1]
)


@evaluates(typing.TypeVar, typing.NewType)
def _typing(ev: Evaluator, *args: Value, **kwargs: Value) -> Value:
    raise Break("SJ015", "a type is made")


@evaluates(torch._assert)
def _assert(ev: Evaluator, condition: Value, message: Value) -> Value:
    if not truth(ev, condition):
        raise Break("SJ031", "the assertion fails")
    return constant(None)


@evaluates(torch._check)
def _check(ev: Evaluator, cond: Value, message: Value | None = None) -> Value:
    if not truth(ev, cond):
        raise Break("SJ031", "the check fails")
    return constant(None)


def dereference(ev: Evaluator, reference: Known) -> Value:
    """`ref()` of an existing weak reference."""
    target = reference.obj()
    if reference.source is None:
        raise Break(
            "SJ020",
            "a weak reference that a library holds",
            hint="keep the reference in an attribute, a global variable or an argument "
            "of your own",
        )
    if ev.removes:
        raise Break(
            "SJ015",
            "a weak reference is asked behind what may drop its object",
            hint="ask it before",
        )
    ev.guards.type_of(reference.source, reference.obj)
    return ev.wrap(target, Called(reference.source))


_NUMPY_FUNCTIONS = (
    "prod",
    "round",
    "clip",
    "isnan",
    "isinf",
    "isclose",
    "min",
    "max",
    "sum",
    "mean",
)
for _name in _NUMPY_FUNCTIONS:
    HANDLERS[getattr(np, _name)] = fold(getattr(np, _name))


def is_pure_numpy(obj: Any) -> bool:
    """Whether a callable computes a NumPy scalar of numbers and nothing else."""
    return is_a(obj, np.ufunc)


# ── side effects ────────────────────────────────────────────────────────────────────


def _side_effect(name: str, function: Any = None) -> Handler:
    harmless = function is None or is_harmless(function)

    def call(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise Break("SJ012", f"call to `{name}` has a side effect", harmless=harmless)

    return call


_builtin: Any
for _builtin in (print, open, input, warnings.warn):
    HANDLERS[_builtin] = _side_effect(_builtin.__name__, _builtin)
for _name in ("debug", "info", "warning", "error", "critical", "log", "exception"):
    _function = getattr(logging, _name)
    HANDLERS[_function] = _side_effect(f"logging.{_name}", _function)
for _function in (
    torch.manual_seed,
    torch.seed,
    torch.cuda.manual_seed,
    torch.cuda.manual_seed_all,
    torch.cuda.synchronize,
    torch.cuda.empty_cache,
    torch.random.manual_seed,
    torch.set_rng_state,
):
    HANDLERS[_function] = _side_effect(f"torch.{_function.__name__}")
