"""Evaluates expressions: one handler per libcst node type, in CPython's evaluation order."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import libcst as cst

from . import (
    attributes,
    calls,
    comparisons,
    comprehensions,
    names,
    operators,
    subscripts,
)
from .breaks import Break
from .enums import text as enum_text
from .frames import Frame
from .keys import key_of
from .lazy import iterate as iterate_over
from .truth import truth
from .values import (
    DictValue,
    FunctionValue,
    Known,
    ListValue,
    Scalar,
    SetValue,
    SliceValue,
    TensorValue,
    TupleValue,
    Value,
    constant,
    described,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

_NAMES = {
    "Yield": "a `yield` inside an expression",
    "TemplatedString": "a template string",
}
"""What a user calls the expressions that have no handler."""

Handler = Callable[["Evaluator", Frame, Any], Value]


def evaluate(ev: Evaluator, frame: Frame, node: cst.BaseExpression) -> Value:
    """Returns the value of one expression.

    Raises:
        Break: When it cannot be traced; tells the smallest expression that broke.
    """
    handler = EXPRESSIONS.get(type(node))
    if handler is None:
        raise Break(
            "SJ040",
            f"{_NAMES.get(type(node).__name__, 'this expression')} is not evaluated",
            ev.origin_of(frame, node),
            hint="put it into a statement of its own that gives it a name",
            node=node,
        )
    around, frame.expression = frame.expression, node
    try:
        return ev.look(handler(ev, frame, node))
    except Break as stop:
        if stop.diagnostic.origin is None:
            raise located(stop, ev, frame, node) from stop.__cause__
        raise
    finally:
        frame.expression = around


def located(stop: Break, ev: Evaluator, frame: Frame, node: cst.CSTNode) -> Break:
    """The same break with a place; a plain GraphBreak becomes a Break."""
    diagnostic = stop.diagnostic
    return Break(
        diagnostic.code,
        diagnostic.message,
        ev.origin_of(frame, node),
        notes=diagnostic.notes,
        hint=diagnostic.hint,
        harmless=stop.harmless,
        result=stop.result,
        needs_unknown=stop.needs_unknown,
        needs_known=stop.needs_known,
        node=node,
    )


def _name(ev: Evaluator, frame: Frame, node: cst.Name) -> Value:
    if node.value in _KEYWORDS:
        return constant(_KEYWORDS[node.value])
    return names.load(ev, frame, node.value)


_KEYWORDS = {"None": None, "True": True, "False": False}


def _literal(ev: Evaluator, frame: Frame, node: Any) -> Value:
    return constant(ast.literal_eval(node.value))


def _ellipsis(ev: Evaluator, frame: Frame, node: cst.Ellipsis) -> Value:
    return constant(...)


def _string(ev: Evaluator, frame: Frame, node: cst.SimpleString) -> Value:
    return constant(node.evaluated_value)


def _concatenated(ev: Evaluator, frame: Frame, node: cst.ConcatenatedString) -> Value:
    left = evaluate(ev, frame, node.left)
    right = evaluate(ev, frame, node.right)
    return constant(ev.known(left, "a string") + ev.known(right, "a string"))


def _formatted(ev: Evaluator, frame: Frame, node: cst.FormattedString) -> Value:
    """An f-string: folded when all parts are known constants."""
    return constant(_joined(ev, frame, node.parts, node.prefix, node.quote))


def _joined(ev: Evaluator, frame: Frame, nodes: Any, prefix: str, quote: str) -> str:
    parts: list[str] = []
    for part in nodes:
        if isinstance(part, cst.FormattedStringText):
            parts.append(_unescape(part.value, prefix, quote))
            continue
        if part.equal is not None:
            parts.append(_source_text(part))
        value = evaluate(ev, frame, part.expression)
        spec = ""
        if part.format_spec is not None:
            spec = _joined(ev, frame, part.format_spec, prefix, quote)
        conversion = part.conversion
        if part.equal is not None and conversion is None and part.format_spec is None:
            conversion = "r"
        parts.append(_format(ev, value, conversion, spec))
    return "".join(parts)


def _source_text(part: cst.FormattedStringExpression) -> str:
    """What `{expression = }` shows: the text between the brace and the value."""
    module = cst.Module([])
    assert part.equal is not None
    return "".join(
        module.code_for_node(node)
        for node in (part.whitespace_before_expression, part.expression, part.equal)
    )


def _format(ev: Evaluator, value: Value, conversion: str | None, spec: str) -> str:
    from .conversions import text_of

    value = ev.look(value)
    if conversion is None and (shown := enum_text(ev, value, str, spec)) is not None:
        return shown
    if isinstance(value, Known) and is_constant(value.obj) and conversion is None:
        obj = ev.use(value)
    else:
        if conversion is None and spec:
            raise Break(
                "SJ012",
                f"an f-string formats {described(value)}",
                hint="format the numbers that the object holds",
                harmless=True,
            )
        obj = text_of(ev, value, str if conversion in (None, "s") else repr)
        if conversion == "a":
            obj = obj.encode("ascii", "backslashreplace").decode("ascii")
    try:
        return format(obj, spec)
    except (ValueError, TypeError) as error:
        raise Break(
            "SJ030", f"an f-string raises {type(error).__name__}: {error}"
        ) from error


def _unescape(text: str, prefix: str, quote: str) -> str:
    """Text between the fields: doubled braces, then escapes as in any string."""
    text = text.replace("{{", "{").replace("}}", "}")
    if "r" in prefix.lower() or "\\" not in text:
        return text
    return str(ast.literal_eval(f"{quote}{text}{quote}"))


def elements(ev: Evaluator, frame: Frame, nodes: Any) -> list[Value]:
    """Evaluates display elements, `*starred` ones included."""
    found: list[Value] = []
    for element in nodes:
        value = evaluate(ev, frame, element.value)
        if isinstance(element, cst.StarredElement):
            found += list(iterate_over(ev, iteration(ev, value)))
        else:
            found.append(value)
    return found


def iteration(ev: Evaluator, value: Value) -> Any:
    """Returns an iterator value over `value`."""
    from .loops import iterator_over

    return iterator_over(ev, value)


def _tuple(ev: Evaluator, frame: Frame, node: cst.Tuple) -> Value:
    return TupleValue(elements(ev, frame, node.elements))


def _list(ev: Evaluator, frame: Frame, node: cst.List) -> Value:
    return ListValue(elements(ev, frame, node.elements))


def _set(ev: Evaluator, frame: Frame, node: cst.Set) -> Value:
    items = elements(ev, frame, node.elements)
    return SetValue(dict.fromkeys(key_of(ev, item) for item in items))


def _dict(ev: Evaluator, frame: Frame, node: cst.Dict) -> Value:
    made: dict[Any, Value] = {}
    for element in node.elements:
        value = (
            evaluate(ev, frame, element.value)
            if isinstance(element, cst.StarredDictElement)
            else None
        )
        if value is not None:
            if not isinstance(value, DictValue):
                raise Break("SJ020", "`**` of a value that is not a tracked dict")
            made.update(ev.dict_items(value))
            continue
        assert isinstance(element, cst.DictElement)
        key = key_of(ev, evaluate(ev, frame, element.key))
        made[key] = evaluate(ev, frame, element.value)
    return DictValue(made)


def _if(ev: Evaluator, frame: Frame, node: cst.IfExp) -> Value:
    from .conditions import condition

    chosen = node.body if condition(ev, frame, node.test) else node.orelse
    return evaluate(ev, frame, chosen)


def _boolean(ev: Evaluator, frame: Frame, node: cst.BooleanOperation) -> Value:
    from .conditions import boolean

    return boolean(ev, frame, node)


def _comparison(ev: Evaluator, frame: Frame, node: cst.Comparison) -> Value:
    left = evaluate(ev, frame, node.left)
    result: Value = constant(True)
    for index, target in enumerate(node.comparisons):
        right = evaluate(ev, frame, target.comparator)
        result = comparisons.compare(ev, target.operator, left, right)
        if index + 1 < len(node.comparisons) and not truth(ev, result):
            return result
        left = right
    return result


def _binary(ev: Evaluator, frame: Frame, node: cst.BinaryOperation) -> Value:
    left = evaluate(ev, frame, node.left)
    right = evaluate(ev, frame, node.right)
    return operators.binary(ev, type(node.operator), left, right)


def _unary(ev: Evaluator, frame: Frame, node: cst.UnaryOperation) -> Value:
    operand = evaluate(ev, frame, node.expression)
    if isinstance(node.operator, cst.Not):
        if isinstance(operand, Scalar) and not operand.sizes:
            return ev.scalar(f"(not {ev.residual.reify(operand)})", bool, "negated")
        if isinstance(operand, TensorValue):
            raise Break("SJ101", "branch on tensor data", harmless=True, result=bool)
        return constant(not truth(ev, operand))
    return operators.unary(ev, type(node.operator), operand)


def _attribute(ev: Evaluator, frame: Frame, node: cst.Attribute) -> Value:
    base = evaluate(ev, frame, node.value)
    return attributes.load(ev, base, mangled(frame, node.attr.value))


def mangled(frame: Frame, name: str) -> str:
    """Applies Python's mangling of `__private` names inside a class."""
    cls = frame.source.class_name
    if cls and name.startswith("__") and not name.endswith("__"):
        return f"_{cls.lstrip('_')}{name}"
    return name


def _subscript(ev: Evaluator, frame: Frame, node: cst.Subscript) -> Value:
    base = evaluate(ev, frame, node.value)
    return subscripts.load(ev, base, index_of(ev, frame, node))


def index_of(ev: Evaluator, frame: Frame, node: cst.Subscript) -> Value:
    """Evaluates what stands between the brackets."""
    items: list[Value] = []
    starred = False
    for element in node.slice:
        part: Any = element.slice
        if isinstance(part, cst.Slice):
            bounds = [
                evaluate(ev, frame, bound) if bound is not None else constant(None)
                for bound in (part.lower, part.upper, part.step)
            ]
            items.append(SliceValue(*bounds))
        elif part.star is not None:
            starred = True
            items += list(
                iterate_over(ev, iteration(ev, evaluate(ev, frame, part.value)))
            )
        else:
            items.append(evaluate(ev, frame, part.value))
    is_tuple = starred or len(items) > 1 or _has_comma(node)
    return TupleValue(items) if is_tuple else items[0]


def _has_comma(node: cst.Subscript) -> bool:
    return isinstance(node.slice[-1].comma, cst.Comma)


def _lambda(ev: Evaluator, frame: Frame, node: cst.Lambda) -> Value:
    from .nested_functions import default_values

    return FunctionValue(
        node, frame, default_values(ev, frame, node.params), "<lambda>"
    )


def _walrus(ev: Evaluator, frame: Frame, node: cst.NamedExpr) -> Value:
    value = evaluate(ev, frame, node.value)
    assert isinstance(node.target, cst.Name)
    name_tensor(value, node.target.value)
    target = frame
    while target.source.name == comprehensions.SCOPE_NAME and target.parent is not None:
        target = target.parent
    names.store(ev, target, node.target.value, value)
    return value


def name_tensor(value: Value, name: str) -> None:
    """Calls the node of a new tensor by the user's variable."""
    if isinstance(value, TensorValue) and value.node is not None:
        node = value.node
        if node.op != "placeholder" and not node.meta.get("named"):
            node._rename(name)
            node.meta["named"] = True


EXPRESSIONS: dict[type[cst.BaseExpression], Handler] = {
    cst.Name: _name,
    cst.Integer: _literal,
    cst.Float: _literal,
    cst.Imaginary: _literal,
    cst.Ellipsis: _ellipsis,
    cst.SimpleString: _string,
    cst.ConcatenatedString: _concatenated,
    cst.FormattedString: _formatted,
    cst.Tuple: _tuple,
    cst.List: _list,
    cst.Set: _set,
    cst.Dict: _dict,
    cst.IfExp: _if,
    cst.BooleanOperation: _boolean,
    cst.Comparison: _comparison,
    cst.BinaryOperation: _binary,
    cst.UnaryOperation: _unary,
    cst.Attribute: _attribute,
    cst.Subscript: _subscript,
    cst.Call: calls.call_expression,
    cst.Lambda: _lambda,
    cst.NamedExpr: _walrus,
    cst.ListComp: comprehensions.list_comprehension,
    cst.SetComp: comprehensions.set_comprehension,
    cst.DictComp: comprehensions.dict_comprehension,
    cst.GeneratorExp: comprehensions.generator_expression,
}
