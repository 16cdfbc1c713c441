"""The abstract values of the partial evaluator.

Values have identity: two variables that hold one object hold one `Value`. Fields that change
during evaluation are changed through the journal only.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import libcst as cst
import numpy as np
import torch

from .sources import Source

if TYPE_CHECKING:
    from .frames import Frame


class Value:
    """Base class of abstract values."""

    name: str | None = None
    """Residual variable that holds the object, once it exists there."""


@dataclass(eq=False)
class Known(Value):
    """A real Python object.

    `source` is None for a constant computed during evaluation (immutable, or frozen library
    code that text can spell by its import path).
    """

    obj: Any
    source: Source | None = None
    name: str | None = None

    def __repr__(self) -> str:
        return f"Known({self.obj!r})"


class LazyValue(Value):
    """An object that is wrapped when somebody first looks at it."""

    def __init__(self, obj: Any, source: Source) -> None:
        self.obj = obj
        self.source = source


@dataclass(eq=False)
class TensorValue(Value):
    """A tensor: `fake` has its metadata; it lives in the open segment or in the residual program.

    `node` is its node in the open segment (None when not referenced there yet); `name` the
    residual variable or `source` path that holds it outside. It is `lost` when that variable
    holds something else by now: whoever reaches the tensor again brings another path.
    """

    fake: torch.Tensor
    node: torch.fx.Node | None = None
    name: str | None = None
    source: Source | None = None
    cls: type = torch.Tensor
    lost: bool = False


@dataclass(eq=False)
class Scalar(Value):
    """A Python number that only exists at run time.

    `text` is a residual expression (cheap, cannot raise); `kind` its exact type; `symbol` the
    SymInt/SymFloat/SymBool that stands for it in segments. A number that is computed from
    symbolic sizes alone has those `sizes` (SymInts), and `hint` is its value in this call.
    """

    text: str
    kind: type
    symbol: Any = None
    name: str | None = None
    node: torch.fx.Node | None = None
    hint: Any = None
    sizes: tuple[Any, ...] = ()


@dataclass(eq=False)
class Unknown(Value):
    """A residual variable about which nothing is known."""

    name: str | None


@dataclass(eq=False)
class ListValue(Value):
    """A list. With `source` it existed before the call; `items` is None until somebody reads it.

    `appended` holds items appended before the list was read.
    """

    items: list[Value] | None
    source: Source | None = None
    obj: list[Any] | None = None
    name: str | None = None
    appended: list[Value] = field(default_factory=list)


@dataclass(eq=False)
class TupleValue(Value):
    """A tuple or named tuple (`cls`)."""

    items: list[Value]
    cls: type = tuple
    source: Source | None = None
    name: str | None = None


@dataclass(eq=False)
class DictValue(Value):
    """A dict with known hashable keys, in order. `cls` is dict or a plain subclass of it."""

    items: dict[Any, Value]
    source: Source | None = None
    name: str | None = None
    cls: type = dict

    def like(self, items: dict[Any, Value]) -> DictValue:
        """Returns a new dict of the same class with other items."""
        return replace(self, items=items, source=None, name=None)


@dataclass(eq=False)
class DefaultDictValue(DictValue):
    """A `defaultdict`; `factory` makes the values of missing keys."""

    factory: Value = field(default_factory=lambda: Known(None))


@dataclass(eq=False)
class SetValue(Value):
    """A set or frozenset of known hashable constants."""

    items: dict[Any, None]
    cls: type = set
    name: str | None = None
    source: Source | None = None
    plain: bool = True
    """Whether it was made by adding `items` one by one, which fixes Python's order."""


@dataclass(eq=False)
class ModuleSlice(Value):
    """`layers[1:]` of a `ModuleList` or `Sequential`: a new container of the same modules."""

    items: list[Value]
    cls: type
    source: Source
    name: str | None = None


@dataclass(eq=False)
class SliceValue(Value):
    """`slice(start, stop, step)`."""

    start: Value
    stop: Value
    step: Value


@dataclass(eq=False)
class FunctionValue(Value):
    """A function or lambda made during evaluation, with the frame that it closes over."""

    node: cst.FunctionDef | cst.Lambda
    frame: Frame
    defaults: dict[str, Value]
    function_name: str
    attributes: dict[str, Value] = field(default_factory=dict)
    name: str | None = None


@dataclass(eq=False)
class MethodValue(Value):
    """`receiver.function` bound; `function` is Known or FunctionValue."""

    function: Value
    receiver: Value
    attribute: str = ""
    name: str | None = None


@dataclass(eq=False)
class BuiltinMethod(Value):
    """A method of a tensor, a built-in container or a constant: `receiver.attribute`."""

    receiver: Value
    attribute: str
    name: str | None = None


@dataclass(eq=False)
class ViewValue(BuiltinMethod):
    """A view of a dict: `receiver.keys()`, `receiver.values()` or `receiver.items()`.

    It prints like a method whose name is a call: `attribute` is `keys()` and so on.
    """

    @property
    def kind(self) -> str:
        """`keys`, `values` or `items`."""
        return self.attribute.removesuffix("()")


@dataclass(eq=False)
class InstanceValue(Value):
    """An instance of a user class made during evaluation."""

    cls: type
    attributes: dict[str, Value]
    name: str | None = None
    source: Source | None = None
    cls_value: Value | None = None


@dataclass(eq=False)
class PartialValue(Value):
    """`functools.partial(function, *args, **kwargs)` made during evaluation."""

    function: Value
    args: list[Value]
    kwargs: dict[str, Value]
    name: str | None = None


@dataclass(eq=False)
class SuperValue(Value):
    """`super(owner, receiver)`."""

    owner: type
    receiver: Value


@dataclass(eq=False)
class IteratorValue(Value):
    """An iterator over values that are at hand.

    Either over fixed `items` or live over a `ListValue` (mutation while iterating is seen).
    One that is `private` belongs to a loop, and the program cannot ask what it is.
    """

    items: list[Value] | ListValue
    position: int = 0
    generator: bool = False
    name: str | None = None
    private: bool = False


@dataclass(eq=False)
class ContextValue(Value):
    """A context manager that evaluation enters itself, such as `torch.no_grad()`.

    `function` is called with each entry of `enter` and afterwards with the previous state.
    """

    kind: str
    value: Any
    name: str | None = None


CONSTANT_TYPES = (
    int,
    float,
    bool,
    complex,
    str,
    bytes,
    type(None),
    type(Ellipsis),
    type(NotImplemented),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
    range,
    np.bool_,
    np.int32,
    np.int64,
    np.float32,
    np.float64,
)
"""Types whose instances are immutable and compared by value."""


def is_constant(obj: Any) -> bool:
    """Whether `obj` is an immutable constant that text can spell."""
    if type(obj) in (tuple, frozenset):
        return all(is_constant(item) for item in obj)
    if type(obj) is slice:
        return is_constant((obj.start, obj.stop, obj.step))
    if type(obj) is torch.Size:
        return all(type(item) is int for item in obj)
    return type(obj) in CONSTANT_TYPES


def constant(obj: Any) -> Known:
    """A Known that needs no guard."""
    return Known(obj, None)


def python_type(value: Value) -> type | None:
    """Returns the exact type of the object that `value` stands for, or None when unknown."""
    match value:
        case Known():
            return type(value.obj)
        case (
            TensorValue()
            | TupleValue()
            | DictValue()
            | SetValue()
            | InstanceValue()
            | ModuleSlice()
        ):
            return value.cls
        case Scalar():
            return value.kind
        case ListValue():
            return list
        case SliceValue():
            return slice
        case FunctionValue():
            return type(lambda: None)
        case ViewValue():
            return type(getattr({}, value.kind)())
        case PartialValue():
            return functools.partial
        case MethodValue():
            return type(value_method)
        case _:
            return None


def described(value: Value) -> str:
    """What a user would call the object that `value` stands for: "a `dict`"."""
    kind = python_type(value)
    if kind is not None:
        return f"a `{kind.__name__}`"
    match value:
        case IteratorValue():
            return "an iterator"
        case ContextValue():
            return "a context manager"
        case BuiltinMethod():
            return f"the method `{value.attribute}`"
        case SuperValue():
            return "a `super` object"
    return "a value that is not known"


class _Holder:
    def method(self) -> None: ...


value_method = _Holder().method
