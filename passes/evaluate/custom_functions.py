"""`torch.autograd.Function.apply`, and PyTorch's higher-order functions.

    y = Scale.apply(x, 2)       # one node, if forward and backward do nothing but tensor work

A custom function is tried out on what is known, and rolled back: only if neither its forward
nor its backward breaks or changes an object may PyTorch run them while it traces.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint

from ..kinds import is_a
from . import attributes, class_lookup, contexts
from .breaks import Break
from .iterators import call
from .registry import HANDLERS, Handler, evaluates
from .truth import truth
from .values import (
    InstanceValue,
    Known,
    TensorValue,
    TupleValue,
    Value,
    constant,
    described,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

Function = torch.autograd.Function


class Context:
    """Stands for the `ctx` of a custom function while it is tried out."""

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        self.forward_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value


@evaluates(Function.__dict__["apply"].__func__)
def _apply(ev: Evaluator, cls: Value, *args: Value) -> Value:
    cls = ev.look(cls)
    if not isinstance(cls, Known) or not is_a(cls.obj, type):
        raise Break("SJ030", f"raises AttributeError: `apply` of {described(cls)}")
    wanted: type = cls.obj
    args = tuple(ev.look(arg) for arg in args)
    if cls.source is not None:
        ev.use(cls)
    for guard in _try_out(ev, cls, args):
        ev.guards.add(guard.text, guard.reason)
    return ev.builder.call(
        "call_function",
        wanted.apply,  # type: ignore[attr-defined]
        list(args),
        {},
        wanted.__name__.lower(),
    )


def _try_out(ev: Evaluator, cls: Known, args: tuple[Value, ...]) -> list[Any]:
    """Evaluates forward and backward and undoes it; returns the guards that it needed.

    Raises:
        Break: When they do more than tensor operations.
    """
    name = cls.obj.__name__
    mark, changes = ev.journal.mark(), ev.journal.changes
    before, effects = set(ev.guards.texts()), len(ev.effects)
    try:
        _forward_and_backward(ev, cls, args)
        pure = ev.journal.changes == changes and len(ev.effects) == effects
        needed = [g for g in ev.guards.conditions() if g.text not in before]
    except Break as stop:
        ev.journal.rollback(mark)
        reason = stop.diagnostic.message
        raise Break(
            "SJ015", f"`{name}.apply` does more than tensor work: {reason}"
        ) from stop
    ev.journal.rollback(mark)
    if not pure:
        raise Break("SJ015", f"`{name}.apply` changes an object")
    return needed


def _forward_and_backward(ev: Evaluator, cls: Known, args: tuple[Value, ...]) -> None:
    for method in ("forward", "backward"):
        static = class_lookup.class_attribute(cls.obj, method)
        if not isinstance(static, staticmethod) or not isinstance(
            static.__func__, FunctionType
        ):
            raise Break("SJ015", f"`{method}` is no static method")
    needs = [isinstance(a, TensorValue) and a.fake.requires_grad for a in args]
    context = InstanceValue(Context, {"needs_input_grad": constant(tuple(needs))})
    contexts._set_grad(ev, False)
    forward = attributes.load(ev, cls, "forward")
    if cls.obj.setup_context is not Function.setup_context:
        output = call(ev, forward, *args)
        setup = attributes.load(ev, cls, "setup_context")
        call(ev, setup, context, TupleValue(list(args)), output)
    else:
        output = call(ev, forward, context, *args)
    outputs = output.items if isinstance(output, TupleValue) else [output]
    if not all(isinstance(o, TensorValue) for o in map(ev.look, outputs)):
        raise Break("SJ015", "it returns something that is no tensor")
    if not any(needs):
        return
    gradients = [_gradient(ev, ev.look(o)) for o in outputs]
    call(ev, attributes.load(ev, cls, "backward"), context, *gradients)


def _gradient(ev: Evaluator, output: Value) -> TensorValue:
    assert isinstance(output, TensorValue)
    with ev.fake_mode, torch.no_grad():
        return TensorValue(torch.ones_like(output.fake))


# ── higher-order functions ──────────────────────────────────────────────────────────


@evaluates(torch.utils.checkpoint.checkpoint)
def _checkpoint(ev: Evaluator, function: Value, *args: Value, **kwargs: Value) -> Value:
    """Without gradients, checkpointing is a call; with them PyTorch has to do it."""
    known = set(kwargs) <= {"use_reentrant", "preserve_rng_state"}
    if torch.is_grad_enabled() or not known or "use_reentrant" not in kwargs:
        raise Break(
            "SJ015", "`checkpoint` runs its function again in the backward pass"
        )
    truth(ev, kwargs["use_reentrant"])
    return call(ev, function, *args)


def _transform(name: str) -> Handler:
    def refuse(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise Break("SJ015", f"`{name}` transforms a function")

    return refuse


for _name in (
    "vmap",
    "grad",
    "grad_and_value",
    "vjp",
    "jvp",
    "jacrev",
    "jacfwd",
    "hessian",
):
    HANDLERS[getattr(torch.func, _name)] = _transform(f"torch.func.{_name}")
for _name in ("functional_call", "linearize", "functionalize", "stack_module_state"):
    HANDLERS[getattr(torch.func, _name)] = _transform(f"torch.func.{_name}")
for _function in (
    torch.vmap,
    torch.compile,
    torch.jit.script,
    torch.jit.trace,
    torch.autograd.grad,
):
    HANDLERS[_function] = _transform(_function.__name__)
