"""Which PyTorch functions and methods are tensor operations, and which read tensor data.

The list of operations is PyTorch's own: what `torch.overrides` lets a subclass override takes
tensors and returns tensors or metadata. Factories take no tensor and are named here.
"""

from __future__ import annotations

from functools import lru_cache
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

import torch

from ..kinds import is_a
from .breaks import Break, raising
from .frozen import is_member
from .size_arithmetic import pin
from .values import (
    DictValue,
    Known,
    ListValue,
    Scalar,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

_FACTORIES = frozenset(
    getattr(torch, name)
    for name in (
        "zeros ones full empty empty_strided eye arange range linspace logspace rand randn randint "
        "randperm normal tensor as_tensor scalar_tensor tril_indices triu_indices complex polar "
        "hann_window hamming_window blackman_window bartlett_window kaiser_window "
        "randn_like rand_like randint_like zeros_like ones_like full_like empty_like"
    ).split()
    if hasattr(torch, name)
)

_PURE = frozenset(
    getattr(torch, name)
    for name in (
        "is_tensor is_floating_point is_complex is_storage broadcast_shapes promote_types "
        "result_type can_cast get_default_dtype is_grad_enabled is_inference_mode_enabled "
        "is_autocast_enabled finfo iinfo"
    ).split()
)


def is_pure(obj: Any) -> bool:
    """Whether a callable only looks at the metadata of tensors, or at PyTorch's state."""
    return is_member(obj, _PURE)


_READS_DATA = {
    "tolist": None,
    "numpy": None,
    "is_nonzero": bool,
    "equal": bool,
    "allclose": bool,
    "__bool__": bool,
    "__int__": int,
    "__float__": float,
    "__index__": int,
    "__array__": None,
}

_NATIVE_METHODS = frozenset(
    "backward register_hook register_post_accumulate_grad_hook retain_grad share_memory_ "
    "data_ptr untyped_storage storage _is_view is_pinned is_shared sizeof __sizeof__ record_stream set_ resize_ resize_as_ "
    "__dlpack__ __reduce__ __reduce_ex__ __deepcopy__ pin_memory is_shared requires_grad_ "
    "detach_ map_ map2_ apply_ swapaxes_ t_ transpose_ squeeze_ unsqueeze_ swapdims_ "
    "_typed_storage module_load as_subclass align_to refine_names rename rename_ is_set_to "
    "__repr__ __str__ __format__ __hash__ __dir__".split()
)
"""Methods with effects beyond the tensor's data, or that look at its memory or itself."""

_NATIVE_FUNCTIONS = frozenset(
    {
        torch.autograd.backward,
        torch.autograd.grad,
        torch.equal,
        torch.allclose,
        torch.is_nonzero,
        # Fakes of these are plain tensors.
        torch.quantize_per_tensor,
        torch.quantize_per_tensor_dynamic,
        torch.quantize_per_channel,
    }
)


@lru_cache(maxsize=1)
def operations() -> frozenset[Any]:
    """Returns PyTorch's functions of tensors; finding them takes 13 ms."""
    found: set[Any] = set()
    for functions in torch.overrides.get_overridable_functions().values():
        for function in functions:
            try:
                found.add(function)
            except TypeError:
                continue
    found |= set(_FACTORIES)
    return frozenset(found - _NATIVE_FUNCTIONS)


def is_operation(obj: Any) -> bool:
    """Whether a callable is a tensor operation that is recorded as one node."""
    if is_a(obj, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    if is_member(obj, operations()):
        return True
    if is_a(obj, BuiltinFunctionType) and obj not in _NATIVE_FUNCTIONS:
        holder = obj.__qualname__.rpartition(".")[0]
        return holder == "_VariableFunctionsClass" or obj.__self__ is torch._C._nn
    return False


def call_function(
    ev: Evaluator, function: Any, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Records a call of a tensor function.

    Raises:
        Break: When it reads data, has effects, or eager would raise.
    """
    if args and isinstance(receiver := ev.look(args[0]), TensorValue):
        method = getattr(function, "__name__", "")
        if getattr(torch.Tensor, method, None) is function and _is_special(method):
            return call_method(ev, receiver, method, args[1:], kwargs)
    _check_operands([*args, *kwargs.values()])
    if function in _PURE:
        return _pure(ev, function, args, kwargs)
    name = getattr(function, "__name__", str(function)).rsplit(".", 1)[-1].strip("_")
    if function is torch.tensor or function is torch.as_tensor:
        args = [_literal(ev, value) for value in args]
        _check_literal(ev, args, kwargs)
    return ev.builder.call("call_function", function, args, kwargs, name or "value")


def _is_special(method: str) -> bool:
    """Whether a method of tensors is more than an operation on their data."""
    return (
        method in _NATIVE_METHODS
        or method in _READS_DATA
        or method in ("item", "storage_offset")
    )


def _pure(
    ev: Evaluator, function: Any, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    from .values import constant, is_constant

    fakes = [ev.builder.fake(a) for a in args]
    for value in [*args, *kwargs.values()]:
        ev.use_deep(value)
    try:
        result = function(*fakes, **{k: ev.builder.fake(v) for k, v in kwargs.items()})
    except Exception as error:
        raise raising(error) from error
    return constant(result) if is_constant(result) else Known(result, None)


def _literal(ev: Evaluator, value: Value) -> Value:
    """`value` with plain numbers in place of those computed from sizes."""
    value = ev.look(value)
    if isinstance(value, ListValue):
        items = ev.list_items(value)
        if any(isinstance(ev.look(i), Scalar | ListValue | TupleValue) for i in items):
            return ListValue([_literal(ev, item) for item in items])
    if isinstance(value, TupleValue) and value.cls in (tuple, torch.Size):
        return TupleValue([_literal(ev, item) for item in value.items])
    return pin(ev, value)


def _check_literal(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> None:
    """`torch.tensor` of nested Python numbers is traced; of tensors it reads data."""

    def visit(value: Value) -> None:
        value = ev.look(value)
        if isinstance(value, (TensorValue, Scalar)):
            raise Break(
                "SJ103", "`torch.tensor` copies a run-time value", harmless=True
            )
        if isinstance(value, ListValue):
            for item in ev.list_items(value):
                visit(item)
        elif isinstance(value, TupleValue):
            for item in value.items:
                visit(item)

    for value in args[:1] or [kwargs[k] for k in ("data",) if k in kwargs]:
        visit(value)


def _check_operands(values: list[Value]) -> None:
    for value in values:
        if isinstance(value, Unknown):
            raise Break(
                "SJ020",
                "a tensor operation needs a value that is not known",
                needs_unknown=True,
            )
        if isinstance(value, (TupleValue, ListValue)) and value.items:
            _check_operands(list(value.items))
        if isinstance(value, DictValue):
            _check_operands(list(value.items.values()))


def call_method(
    ev: Evaluator,
    receiver: TensorValue,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
) -> Value:
    """Records `receiver.name(*args, **kwargs)`.

    Raises:
        Break: SJ103 for methods that read data, SJ015 for those with other effects.
    """
    if name == "item" and not args and not kwargs:
        raise Break(
            "SJ103",
            "`.item()` reads the value of a tensor",
            harmless=True,
            result=number_type(receiver),
        )
    if name in _READS_DATA:
        raise Break(
            "SJ103",
            f"`.{name}()` reads the value of a tensor",
            harmless=True,
            result=_READS_DATA[name],
        )
    if name == "storage_offset":
        return _storage_offset(ev, receiver)
    if name in _NATIVE_METHODS:
        raise Break("SJ015", f"`.{name}()` has effects that are not traced")
    _check_operands([*args, *kwargs.values()])
    return ev.builder.call(
        "call_method", name, [receiver, *args], kwargs, name.strip("_")
    )


def _storage_offset(ev: Evaluator, tensor: TensorValue) -> Value:
    if tensor.source is None:
        raise Break(
            "SJ015", "`.storage_offset()` of a new tensor", harmless=True, result=int
        )
    offset = int(tensor.fake.storage_offset())
    ev.guards.add(f"{tensor.source.guard}.storage_offset() == {offset}")
    return Known(offset)


def number_type(tensor: TensorValue) -> type | None:
    """The Python type of the tensor's `.item()`."""
    dtype = tensor.fake.dtype
    if tensor.fake.numel() != 1:
        return None
    if dtype is torch.bool:
        return bool
    if dtype.is_floating_point:
        return float
    if dtype.is_complex:
        return None
    return int
