"""Spells fx nodes as the Python calls that a person would write.

aten.view.default(x, [24, 8])      x.view(24, 8)
aten.t.default(w)                  w.t()
aten.mm.default(a, b)              torch.mm(a, b)
aten.sort.default(x, 1, True)      torch.ops.aten.sort.default(x, 1, True)
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._sympy.functions import FloorDiv, Mod

from .indexing import as_expr

Names = Callable[[fx.Node], str]
"""Gives the text of a node that is used as an argument."""

_AS_METHOD = {
    "view.default": "view",
    "t.default": "t",
    "transpose.int": "transpose",
    "permute.default": "permute",
    "expand.default": "expand",
    "unsqueeze.default": "unsqueeze",
    "squeeze.dim": "squeeze",
    "squeeze.dims": "squeeze",
    "squeeze.default": "squeeze",
    "select.int": "select",
    "detach.default": "detach",
}
"""Views, for which a method says the same in fewer words."""

_AS_FUNCTION = frozenset(
    "mm.default addmm.default bmm.default baddbmm.default convolution.default mv.default "
    "dot.default rand.default randn.default randint.default randint.low randperm.default "
    "rand_like.default randn_like.default randint_like.default normal.float_float "
    "empty.memory_format _addmm_activation.default cat.default gather.default "
    "index_select.default cumsum.default topk.default embedding.default".split()
)
"""Operators whose `torch.` function takes the same arguments and means that overload.

Its call takes the host 3 µs less.

NOTE: the operators that draw random numbers count a write in the version of what they return,
and their `torch.` functions do not.
"""

_INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
    operator.matmul: "@",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lshift: "<<",
    operator.rshift: ">>",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}
_PREFIX = {operator.neg: "-", operator.invert: "~", operator.pos: "+"}
_ATOMIC = str.maketrans("", "", "_.()[]'\",: ")


class Unspeakable(TypeError):
    """Text cannot spell this object; it has to be bound to a name."""


def spell_expr(expr: Any, symbols: Mapping[sympy.Symbol, str] | None = None) -> str:
    """Python text for an integer expression; `symbols` gives the names of its symbols."""
    return _spell(sympy.sympify(expr), symbols or {}, 0)


_SUM, _NEGATED, _PRODUCT, _DIVIDED = range(1, 5)
"""How tightly text binds. `a // b` may follow a minus, but `n * a // b` is `(n * a) // b`."""


def _spell(e: Any, symbols: Mapping[sympy.Symbol, str], level: int) -> str:
    if isinstance(e, sympy.Symbol):
        return symbols.get(e, str(e))
    if e.is_Integer:
        return str(int(e)) if int(e) >= 0 or level == 0 else f"({int(e)})"
    if e.is_Add:
        # Constants last, as a person writes them: s0 - 1.
        terms = sorted(
            e.args, key=lambda a: (bool(a.is_number), bool(a.as_coeff_Mul()[0] < 0))
        )
        text, mine = _spell(terms[0], symbols, _SUM), _SUM
        for term in terms[1:]:
            minus = bool(term.as_coeff_Mul()[0] < 0)
            sign = "-" if minus else "+"
            piece = (
                _spell(-term, symbols, _NEGATED)
                if minus
                else _spell(term, symbols, _SUM)
            )
            text += f" {sign} {piece}"
    elif e.is_Mul:
        factors = [_spell(a, symbols, _PRODUCT) for a in e.args]
        text, mine = "*".join(factors), _PRODUCT
    elif isinstance(e, FloorDiv | Mod):
        sign = "//" if isinstance(e, FloorDiv) else "%"
        number, by = (_spell(a, symbols, _DIVIDED) for a in e.args)
        text, mine = f"{number} {sign} {by}", _NEGATED
    elif e.is_Pow and e.args[1].is_Integer and e.args[1] > 0:
        base = _spell(e.args[0], symbols, _DIVIDED)
        text, mine = f"{base}**{int(e.args[1])}", _DIVIDED
    elif isinstance(e, sympy.Max | sympy.Min):
        name = "max" if isinstance(e, sympy.Max) else "min"
        return f"{name}({', '.join(_spell(a, symbols, 0) for a in e.args)})"
    else:
        from torch.utils._sympy.printers import PythonPrinter

        table = {s: sympy.Symbol(symbols.get(s, str(s))) for s in e.free_symbols}
        return f"({PythonPrinter().doprint(e.xreplace(table))})"
    return f"({text})" if mine < level or (mine == level == _DIVIDED) else text


def spell(
    value: Any, names: Names, symbols: Mapping[sympy.Symbol, str] | None = None
) -> str:
    """Python text for an argument of a node.

    Raises:
        Unspeakable: For an object that has no text.
    """

    def sub(v: Any) -> str:
        return spell(v, names, symbols)

    if isinstance(value, fx.Node):
        return names(value)
    if isinstance(value, torch.SymInt):
        return spell_expr(as_expr(value), symbols)
    if type(value) is int:
        return repr(value) if has_decimals(value) else hex(value)
    if (
        value is None
        or value is Ellipsis
        or isinstance(value, bool | int | str | bytes)
    ):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if isinstance(value, complex):
        return f"complex({sub(value.real)}, {sub(value.imag)})"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return str(value)
    if isinstance(value, slice):
        return f"slice({sub(value.start)}, {sub(value.stop)}, {sub(value.step)})"
    if isinstance(value, torch.Size):
        return f"torch.Size({sub(list(value))})"
    if isinstance(value, list):
        return f"[{', '.join(map(sub, value))}]"
    if type(value) in (tuple, fx.immutable_collections.immutable_list):
        inside = ", ".join(map(sub, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        raise Unspeakable(type(value).__name__)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{sub(k)}: {sub(v)}" for k, v in value.items()) + "}"
    if isinstance(value, range):
        return repr(value)
    if isinstance(value, type) or callable(value):
        return function_name(value)
    raise Unspeakable(type(value).__name__)


def spell_call(
    node: fx.Node, names: Names, symbols: Mapping[sympy.Symbol, str] | None = None
) -> str:
    """Python text of a `call_function` or `call_method` node."""
    arguments = [spell(a, names, symbols) for a in node.args]
    keywords = [f"{k}={spell(v, names, symbols)}" for k, v in node.kwargs.items()]
    inside = ", ".join([*arguments, *keywords])
    if node.op == "call_method":
        return f"{_operand(arguments[0])}.{node.target}({', '.join([*arguments[1:], *keywords])})"
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return _spell_overload(node, target, arguments, keywords)
    if target is operator.getitem:
        item = node.args[1]
        return f"{_operand(arguments[0])}[{_spell_item(item, names, symbols)}]"
    if target in _INFIX and len(arguments) == 2:
        left, right = map(_operand, arguments)
        return f"{left} {_INFIX[target]} {right}"
    if target in _PREFIX and len(arguments) == 1:
        return f"{_PREFIX[target]}{_operand(arguments[0])}"
    if target is getattr and len(node.args) == 2 and isinstance(node.args[1], str):
        return f"{_operand(arguments[0])}.{node.args[1]}"
    return f"{function_name(target)}({inside})"


def spell_in_place(
    node: fx.Node, names: Names, symbols: Mapping[sympy.Symbol, str] | None = None
) -> str:
    """The call of an ATen operator that leaves its result in its first operand.

    `cumsum` has `cumsum_`; what `diagonal_scatter` writes is copied into `diagonal`. The
    operand's version stays what it is.
    """
    target: Any = node.target
    parts = [spell(a, names, symbols) for a in node.args]
    parts += [f"{k}={spell(v, names, symbols)}" for k, v in node.kwargs.items()]
    parts[0] = f"{_operand(parts[0])}.data"
    name = target._schema.name.partition("::")[2]
    view = VIEWS_OF_PARTS.get(name)
    if view is not None:
        source = parts.pop(1)
        return f"torch.ops.aten.{view}({', '.join(parts)}).copy_({source})"
    form = in_place_form(target)
    written = form._schema.name.partition("::")[2]
    return f"torch.ops.aten.{written}.{form._overloadname}({', '.join(parts)})"


FILLING = frozenset(
    "uniform normal_functional exponential geometric cauchy log_normal random "
    "bernoulli".split()
)
"""Operators that fill a copy of their first operand with random numbers."""

_OTHER_NAMES = {
    torch.ops.aten.normal_functional.default: torch.ops.aten.normal_.default,
    torch.ops.aten.bernoulli.p: torch.ops.aten.bernoulli_.float,
}


def in_place_form(target: Any) -> Any:
    """The overload that works in place as an ATen operator does on a copy, or None."""
    if target in _OTHER_NAMES:
        return _OTHER_NAMES[target]
    name = target._schema.name.partition("::")[2]
    packet = getattr(torch.ops.aten, f"{name}_", None)
    return getattr(packet, target._overloadname, None)


def out_form(target: Any) -> Any:
    """The overload that writes into given memory what an ATen operator returns, or None.

    Losses have none: those that are reduced write what they reduce there first, over whatever
    lies behind it, and move the memory (`mse_loss.out`).
    """
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    if any(str(r.type) != "Tensor" for r in target._schema.returns):
        return None
    if any(a.name == "reduction" for a in target._schema.arguments):
        return None
    own = [(a.name, str(a.type)) for a in target._schema.arguments]
    packet = target.overloadpacket
    for name in packet.overloads():
        form = getattr(packet, name)
        rest = [(a.name, str(a.type)) for a in form._schema.arguments if not a.is_out]
        given = len(form._schema.arguments) - len(rest)
        if rest == own and given == len(target._schema.returns):
            return form
    return None


def spell_out(
    node: fx.Node,
    memory: Sequence[str],
    names: Names,
    symbols: Mapping[sympy.Symbol, str] | None = None,
) -> str:
    """The call of an ATen operator that leaves its results in given memory.

    The versions of what lies there stay what they are.
    """
    form = out_form(node.target)
    parts = [spell(a, names, symbols) for a in node.args]
    parts += [f"{k}={spell(v, names, symbols)}" for k, v in node.kwargs.items()]
    given = (a.name for a in form._schema.arguments if a.is_out)
    parts += [f"{n}={m}.data" for n, m in zip(given, memory, strict=True)]
    name = form._schema.name.partition("::")[2]
    return f"torch.ops.aten.{name}.{form._overloadname}({', '.join(parts)})"


VIEWS_OF_PARTS = {
    "as_strided_scatter": "as_strided.default",
    "diagonal_scatter": "diagonal.default",
    "select_scatter": "select.int",
    "slice_scatter": "slice.Tensor",
}
"""What shows the part that an operator writes into a copy of its first operand."""


def _operand(text: str) -> str:
    """Puts an operand into parentheses unless it is a name, a call or a number."""
    return (
        text if text.translate(_ATOMIC).isalnum() and " " not in text else f"({text})"
    )


def _spell_item(item: Any, names: Names, symbols: Any) -> str:
    def part(v: Any) -> str:
        if isinstance(v, slice):
            ends = [
                "" if e is None else spell(e, names, symbols) for e in (v.start, v.stop)
            ]
            step = "" if v.step is None else f":{spell(v.step, names, symbols)}"
            return f"{ends[0]}:{ends[1]}{step}"
        return "..." if v is Ellipsis else spell(v, names, symbols)

    if isinstance(item, tuple) and item:
        return ", ".join(map(part, item)) + ("," if len(item) == 1 else "")
    return part(item)


def _spell_overload(
    node: fx.Node,
    target: torch._ops.OpOverload,
    arguments: list[str],
    keywords: list[str],
) -> str:
    name = target._schema.name.partition("::")[2]
    key = f"{name}.{target._overloadname}"
    if target.namespace == "aten":
        if key in _AS_METHOD and not keywords:
            rest = arguments[1:]
            listed = key in ("view.default", "permute.default", "expand.default")
            if (
                listed
                and len(rest) == 1
                and rest[0].startswith("[")
                and len(rest[0]) > 2
            ):
                rest = [rest[0][1:-1]]
            return f"{_operand(arguments[0])}.{_AS_METHOD[key]}({', '.join(rest)})"
        if key in _AS_FUNCTION:
            return f"torch.{name}({', '.join([*arguments, *keywords])})"
    function = f"torch.ops.{target.namespace}.{name}.{target._overloadname}"
    return f"{function}({', '.join([*arguments, *keywords])})"


_MODULES = {"_operator": "operator", "torch._C._nn": "torch._C._nn"}


def function_name(target: Any) -> str:
    """A dotted name that means this function once its top module is imported.

    Raises:
        Unspeakable: If no such name leads back to the object.
    """
    if isinstance(target, torch._ops.OpOverload):
        name = target._schema.name.partition("::")[2]
        return f"torch.ops.{target.namespace}.{name}.{target._overloadname}"
    if isinstance(target, torch._ops.OpOverloadPacket):
        return f"torch.ops.{str(target).replace('::', '.')}"
    name = getattr(target, "__name__", "")
    if getattr(builtins, name, None) is target:
        return name
    for candidate in _candidates(target, name):
        if resolve(candidate) is target:
            return candidate
    raise Unspeakable(repr(target))


def _candidates(target: Any, name: str) -> Iterable[str]:
    module = getattr(target, "__module__", None)
    qualified = getattr(target, "__qualname__", name)
    yield f"torch.{name}"
    yield f"torch.nn.functional.{name}"
    yield f"torch._C._nn.{name}"
    yield f"torch.Tensor.{name}"
    for space in ("special", "linalg", "fft"):
        for prefix in (f"{space}_", ""):
            if name.startswith(prefix):
                yield f"torch.{space}.{name.removeprefix(prefix)}"
    if module:
        yield f"{_MODULES.get(module, module)}.{qualified}"
    yield f"math.{name}"


def resolve(dotted: str) -> Any:
    """The object that a dotted name means after `import` of its first part, or None."""
    first, *rest = dotted.split(".")
    if first not in ("torch", "operator", "math"):
        return None
    found: Any = {"torch": torch, "operator": operator, "math": math}[first]
    for part in rest:
        found = getattr(found, part, None)
    return found


IMPORTS = ("import math", "import operator", "import torch")
"""What text made here may need; `needed_imports` picks."""


def needed_imports(text: str) -> tuple[str, ...]:
    """Those of `IMPORTS` that a text mentions."""
    found = []
    for line in IMPORTS:
        module = line.removeprefix("import ")
        if f"{module}." in text:
            found.append(line)
    return tuple(found)


def has_decimals(value: int) -> bool:
    """Whether Python spells an int in decimals: it refuses to with thousands of digits.

    >>> has_decimals(1 << 64), has_decimals(1 << 16384)
    (True, False)
    """
    return value.bit_length() < 4096
