"""Calls: decides whether a callee is folded, recorded, inlined or left to Python."""

from __future__ import annotations

import functools
import operator
import weakref
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import libcst as cst
import torch
from torch._library.custom_ops import CustomOpDef

from ..kinds import is_a
from ..scopes import parameter_names
from . import (
    attribute_stores,
    attributes,
    builtin_calls,
    callables,
    class_lookup,
    containers,
    contexts,
    conversions,
    copying,
    custom_functions,
    functions,
    generators,
    iterators,
    itertools_calls,
    library,
    module_calls,
    module_trees,
    nested_functions,
    registry,
    size_arithmetic,
    special_methods,
    tensors,
)
from .breaks import Break, raising, unknown_operand
from .enums import unboxed
from .frames import Frame
from .frozen import is_frozen
from .lazy import iterate as iterate_over
from .sources import Attribute, Bound, Item
from .values import (
    BuiltinMethod,
    DictValue,
    FunctionValue,
    InstanceValue,
    IteratorValue,
    Known,
    ListValue,
    MethodValue,
    ModuleSlice,
    PartialValue,
    Scalar,
    SuperValue,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    ViewValue,
    constant,
    described,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


def call_expression(ev: Evaluator, frame: Frame, node: cst.Call) -> Value:
    """Evaluates a call inside an expression."""
    function, args, kwargs = operands(ev, frame, node)
    if isinstance(function, Known) and function.obj is super:
        return _super(ev, frame, args)
    return call(ev, function, args, kwargs)


def operands(
    ev: Evaluator, frame: Frame, node: cst.Call
) -> tuple[Value, list[Value], dict[str, Value]]:
    """Evaluates the callee and the arguments of a call, in order."""
    from .expressions import evaluate, iteration

    function = evaluate(ev, frame, node.func)
    args: list[Value] = []
    kwargs: dict[str, Value] = {}
    for argument in node.args:
        value = evaluate(ev, frame, argument.value)
        if argument.star == "*":
            args += list(iterate_over(ev, iteration(ev, value)))
        elif argument.star == "**":
            if isinstance(value, Unknown):
                raise unknown_operand("`**` needs")
            if not isinstance(value, DictValue):
                raise Break("SJ020", "`**` of a value that is not a tracked dict")
            for key, item in ev.dict_items(value).items():
                if type(key) is not str:
                    raise raising(TypeError("keywords must be strings"))
                _keyword(kwargs, key, item)
        elif argument.keyword is not None:
            _keyword(kwargs, argument.keyword.value, value)
        else:
            args.append(value)
    return function, args, kwargs


def _keyword(kwargs: dict[str, Value], name: str, value: Value) -> None:
    if name in kwargs:
        raise raising(TypeError("multiple values for keyword argument"))
    kwargs[name] = value


def call(
    ev: Evaluator, function: Value, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Returns the value of `function(*args, **kwargs)`.

    Raises:
        Break: When only Python can make the call.
    """
    target = resolve(ev, function, args, kwargs)
    if isinstance(target, Frame):
        return ev.run_nested(target)
    return target


def resolve(
    ev: Evaluator, function: Value, args: list[Value], kwargs: dict[str, Value]
) -> Value | Frame:
    """Returns the result of a call, or the frame to evaluate if it is inlined."""
    function = ev.look(function)
    match function:
        case FunctionValue():
            frame = nested_functions.frame_of_value(ev, function, args, kwargs)
            if frame.source.is_generator:
                call = (function, args, kwargs)
                return generators.make_generator(ev, frame, call)
            return frame
        case MethodValue():
            return resolve(ev, function.function, [function.receiver, *args], kwargs)
        case ViewValue():
            raise Break("SJ030", "raises TypeError: a dict view is not callable")
        case BuiltinMethod():
            return containers.call_method(
                ev, function.receiver, function.attribute, args, kwargs
            )
        case PartialValue():
            return resolve(
                ev,
                function.function,
                [*function.args, *args],
                {**function.kwargs, **kwargs},
            )
        case InstanceValue():
            method = special_methods.special(ev, function, "__call__")
            if method is None:
                raise Break("SJ030", "raises TypeError: the object is not callable")
            return resolve(ev, method, args, kwargs)
        case ModuleSlice():
            return module_calls.call_slice(ev, function, args, kwargs)
        case Unknown():
            raise Break("SJ020", "the called value is not known", needs_unknown=True)
        case Known():
            return _known(ev, function, args, kwargs)
    raise Break("SJ020", f"{described(function)} is called")


def _known(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value | Frame:
    obj = function.obj
    special = registry.handler(obj)
    if special is not None:
        ev.use(function)
        return special(ev, args, kwargs)
    if is_a(obj, torch.nn.Module):
        return module_calls.call_module(ev, function, args, kwargs)
    context = contexts.manager(ev, function, args, kwargs)
    if context is not None:
        return context
    if is_a(obj, FunctionType):
        return _python_function(ev, function, args, kwargs)
    if is_a(obj, CustomOpDef):
        ev.use(function)
        return tensors.call_function(ev, obj._opoverload, args, kwargs)
    if tensors.is_operation(obj) or tensors.is_pure(obj):
        ev.use(function)
        return tensors.call_function(ev, obj, args, kwargs)
    if is_a(obj, MethodType):
        return _bound_method(ev, function, args, kwargs)
    if is_a(obj, functools.partial) and function.source is not None:
        return _partial(ev, function, args, kwargs)
    if is_a(obj, (operator.itemgetter, operator.attrgetter)):
        ev.use(function)
        return callables.call_getter(ev, obj, args)
    if library.is_pure_numpy(obj):
        return fold_call(ev, obj, args, kwargs)
    if is_a(obj, weakref.ref) and not args:
        return library.dereference(ev, function)
    if is_a(obj, type):
        return builtin_calls.construct(ev, function, args, kwargs)
    if is_a(obj, (MethodDescriptorType, WrapperDescriptorType)) and args:
        receiver = ev.look(args[0])
        if isinstance(receiver, TensorValue) and hasattr(torch.Tensor, obj.__name__):
            return tensors.call_method(ev, receiver, obj.__name__, args[1:], kwargs)
        constant_receiver = isinstance(receiver, Known) and is_constant(receiver.obj)
        if constant_receiver or not isinstance(receiver, (Known, Unknown)):
            return containers.call_method(ev, receiver, obj.__name__, args[1:], kwargs)
    if is_a(obj, BuiltinFunctionType):
        return _builtin(ev, function, args, kwargs)
    method = special_methods.special(ev, function, "__call__")
    if method is not None:
        return resolve(ev, method, args, kwargs)
    if function.source is None and _defines_call(obj):
        method = attributes.load(ev, function, "__call__")
        if isinstance(method, MethodValue):
            return resolve(ev, method, args, kwargs)
    raise Break("SJ010", f"`{_name(obj)}` has no source")


def _name(obj: Any) -> str:
    cls = type(obj)
    if not is_frozen(cls.__module__) and class_lookup.has_hooked_lookup(cls):
        return type(obj).__name__
    return str(getattr(obj, "__qualname__", None) or type(obj).__name__)


def _defines_call(obj: Any) -> bool:
    return isinstance(class_lookup.class_attribute(type(obj), "__call__"), FunctionType)


def _python_function(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value | Frame:
    obj: FunctionType = function.obj
    if getattr(obj, "_torchdynamo_disable", False) or _marked(
        obj, "__srcjit_disabled__"
    ):
        raise Break("SJ013", f"`{obj.__name__}` is disabled")
    if getattr(obj, "_torchdynamo_orig_callable", None) is not None:
        raise Break("SJ010", f"`{obj.__name__}` was compiled by `torch.compile`")
    if _marked(obj, "__srcjit_graph_break__"):
        raise Break("SJ120", "explicit graph break", harmless=True)
    if _marked(obj, "__srcjit_allow_in_graph__"):
        ev.use(function)
        return tensors.call_function(ev, obj, args, kwargs)
    write = getattr(obj, "__srcjit_continuation__", None)
    if write is not None:
        written, source = write()
        functions.SUBSTITUTES[written] = source
        return _python_function(
            ev, _inner_function(ev, function, written), args, kwargs
        )
    dispatcher = getattr(obj, "__srcjit__", None)
    if dispatcher is not None and dispatcher.stub is obj:
        inner = dispatcher.function
        return _python_function(ev, _inner_function(ev, function, inner), args, kwargs)
    if tensors.is_operation(obj):
        ev.use(function)
        try:
            return tensors.call_function(ev, obj, args, kwargs)
        except Break as stop:
            # A Python function that fakes cannot run whole may still run piece by piece.
            if stop.diagnostic.code not in (
                "SJ103",
                "SJ104",
                "SJ105",
                "SJ010",
                "SJ015",
            ):
                raise
    if functions.is_generator(obj):
        frame = functions.generator_frame(ev, function, args, kwargs)
        return generators.make_generator(ev, frame, (function, args, kwargs))
    managed = generators.manager_call(ev, function, args, kwargs)
    if managed is not None:
        return managed
    return functions.frame_of_known(ev, function, args, kwargs)


def _marked(obj: Any, name: str) -> bool:
    """Whether `obj` itself was marked; `functools.wraps` copies marks to wrappers."""
    mark = getattr(obj, name, None)
    return mark is not None and mark.holds_for(obj)


def _inner_function(ev: Evaluator, stub: Known, inner: FunctionType) -> Known:
    """The user's function behind a dispatch stub."""
    if stub.source is None:
        return Known(inner, None)
    ev.use(stub)
    return Known(inner, Bound(ev.guards.bind(inner, inner.__name__)))


def _bound_method(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value | Frame:
    obj: MethodType = function.obj
    if function.source is None:
        receiver: Value = Known(obj.__self__, None)
        inner = Known(obj.__func__, None)
    else:
        ev.guards.type_of(function.source, obj)
        receiver = ev.wrap(obj.__self__, Attribute(function.source, "__self__"))
        inner = ev.wrap(obj.__func__, Attribute(function.source, "__func__"))  # type: ignore[assignment]
    return resolve(ev, inner, [receiver, *args], kwargs)


def _partial(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value | Frame:
    obj, source = function.obj, function.source
    assert source is not None
    ev.guards.type_of(source, obj)
    ev.guards.add(f"len({source.guard}.args) == {len(obj.args)}")
    ev.guards.add(f"tuple({source.guard}.keywords) == {tuple(obj.keywords)!r}")
    inner = ev.wrap(obj.func, Attribute(source, "func"))
    first = [
        ev.wrap(a, Item(Attribute(source, "args"), i)) for i, a in enumerate(obj.args)
    ]
    named = {
        key: ev.wrap(value, Item(Attribute(source, "keywords"), key))
        for key, value in obj.keywords.items()
    }
    return resolve(ev, inner, [*first, *args], {**named, **kwargs})


def _builtin(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """A C function: folded when it is pure and its arguments are known."""
    obj = function.obj
    module = getattr(obj, "__module__", None)
    receiver = getattr(obj, "__self__", None)
    if module in ("math", "_operator", "operator", "cmath", "unicodedata") or (
        receiver is not None and is_constant(receiver)
    ):
        ev.use(function)
        return fold_call(ev, obj, args, kwargs)
    raise Break(
        "SJ010",
        f"`{_name(obj)}` has no source",
        harmless=builtin_calls.is_harmless(obj),
        result=builtin_calls.result_type(obj),
    )


def fold_call(
    ev: Evaluator,
    function: Any,
    args: list[Value],
    kwargs: dict[str, Value],
    *,
    decides: bool = False,
) -> Value:
    """Calls a pure function of constants during evaluation.

    Args:
        ev: The evaluator.
        function: What to call.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        decides: Whether its result is no number but something that the program's course
            depends on (a `range`, a string), so that a parameter that was made an
            argument of kernels has to be known after all.
    """
    name = getattr(function, "__name__", "a function")
    if not kwargs and args:
        number = size_arithmetic.call(ev, function, args)
        if number is not None:
            return number
    for value in args:
        if isinstance(value, TensorValue):
            raise Break("SJ103", f"`{name}` reads the value of a tensor", harmless=True)
        if isinstance(value, Scalar) and not value.sizes:
            raise Break(
                "SJ020",
                f"`{name}` of a run-time number",
                harmless=True,
                needs_known=value if decides and ev.is_parameter(value) else None,
            )
    known = [_plain(ev, value, name) for value in args]
    named = {key: _plain(ev, value, name) for key, value in kwargs.items()}
    try:
        result = function(*known, **named)
    except Exception as error:
        raise raising(error) from error
    return from_constant(result)


def _plain(ev: Evaluator, value: Value, name: str) -> Any:
    """The real object for an argument that a pure function only reads."""
    value = ev.look(value)
    if isinstance(value, ListValue):
        return [_plain(ev, item, name) for item in ev.list_items(value)]
    if isinstance(value, TupleValue) and value.cls is tuple:
        return tuple(_plain(ev, item, name) for item in value.items)
    if isinstance(value, DictValue) and value.cls is dict:
        return {
            key: _plain(ev, item, name) for key, item in ev.dict_items(value).items()
        }
    if isinstance(value, IteratorValue):
        return [_plain(ev, item, name) for item in iterate_over(ev, value)]
    obj = ev.known(unboxed(ev, value), f"`{name}`")
    if not is_constant(obj):
        raise Break("SJ015", f"`{name}` of an object that is not a constant")
    return obj


def from_constant(result: Any) -> Value:
    """Returns the value for a new object that a pure function made of constants."""
    from .values import SetValue

    if is_constant(result):
        return constant(result)
    if type(result) in (list, tuple):
        items = [from_constant(item) for item in result]
        return ListValue(items) if type(result) is list else TupleValue(items)
    if type(result) is dict:
        return DictValue({key: from_constant(value) for key, value in result.items()})
    if type(result) is set:
        return SetValue(dict.fromkeys(result))
    raise Break("SJ020", f"a `{type(result).__name__}` is made")


# ── super ───────────────────────────────────────────────────────────────────────────


def _super(ev: Evaluator, frame: Frame, args: list[Value]) -> Value:
    if len(args) == 2:
        owner, receiver = args
        if isinstance(owner, Known) and is_a(owner.obj, type):
            ev.use(owner)
            return SuperValue(owner.obj, receiver)
        raise Break("SJ030", "raises TypeError: super() argument 1 must be a type")
    if args:
        raise Break("SJ040", "`super` with one argument")
    holder = frame
    while holder.parent is not None and not holder.scope.cells.get("__class__"):
        holder = holder.parent
    cell = holder.scope.cells.get("__class__")
    method = frame
    while method.source.name == "<comprehension>" and method.parent is not None:
        method = method.parent
    first = next(iter(parameter_names(method.source.tree.params)), None)
    try:
        cls = None if cell is None else cell.cell_contents
    except ValueError:  # the class is being made
        cls = None
    if cls is None or first is None or first not in method.env:
        raise Break("SJ040", "`super()` outside a method")
    return SuperValue(cls, ev.look(method.env[first]))


_TABLES = (
    attribute_stores,
    conversions,
    copying,
    custom_functions,
    iterators,
    itertools_calls,
    module_trees,
    nested_functions,
)
"""Modules whose import fills the table of callables that evaluation knows."""
