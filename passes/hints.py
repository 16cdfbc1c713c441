"""Names for values that the user did not name, taken from how they are computed.

>>> [
...     hint(cst.parse_expression(text))
...     for text in ("y.sum()", "torch.sin(x)", "a + 1", "f(g(x))")
... ]
['y_sum', 'sin_x', 'a_plus_1', 'f_value']
>>> [
...     hint(cst.parse_expression(text))
...     for text in ("self.scale", "x[0]", "x > y", "not done")
... ]
['scale', 'x_0', 'x_gt_y', 'not_done']
"""

from __future__ import annotations

import libcst as cst

_LONGEST = 24

_OPERATORS: dict[type[cst.CSTNode], tuple[str, str]] = {
    cst.Add: ("plus", "total"),
    cst.Subtract: ("minus", "difference"),
    cst.Multiply: ("times", "product"),
    cst.Divide: ("over", "quotient"),
    cst.FloorDivide: ("floordiv", "quotient"),
    cst.Modulo: ("mod", "remainder"),
    cst.Power: ("pow", "power"),
    cst.MatrixMultiply: ("at", "product"),
    cst.LeftShift: ("shl", "shifted"),
    cst.RightShift: ("shr", "shifted"),
    cst.BitAnd: ("and", "common"),
    cst.BitOr: ("or", "union"),
    cst.BitXor: ("xor", "parity"),
    cst.LessThan: ("lt", "less"),
    cst.LessThanEqual: ("le", "at_most"),
    cst.GreaterThan: ("gt", "greater"),
    cst.GreaterThanEqual: ("ge", "at_least"),
    cst.Equal: ("eq", "equal"),
    cst.NotEqual: ("ne", "unequal"),
    cst.Is: ("is", "same"),
    cst.IsNot: ("is_not", "other"),
    cst.In: ("in", "found"),
    cst.NotIn: ("not_in", "missing"),
    cst.Minus: ("minus", "negative"),
    cst.Plus: ("plus", "positive"),
    cst.BitInvert: ("inverted", "inverted"),
    cst.Not: ("not", "negation"),
}

_FIXED: dict[type[cst.CSTNode], str] = {
    cst.ListComp: "items",
    cst.SetComp: "items",
    cst.DictComp: "entries",
    cst.GeneratorExp: "items",
    cst.List: "items",
    cst.Tuple: "items",
    cst.Set: "items",
    cst.Dict: "entries",
    cst.FormattedString: "text",
    cst.ConcatenatedString: "text",
    cst.IfExp: "chosen",
    cst.BooleanOperation: "value",
    cst.Lambda: "function",
    cst.Await: "result",
    cst.Yield: "sent",
}


def hint(expression: cst.BaseExpression) -> str:
    """Returns a short name that tells what `expression` computes."""
    kind = type(expression)
    if kind in _FIXED:
        return _FIXED[kind]
    if isinstance(expression, cst.Name):
        return expression.value
    if isinstance(expression, cst.Attribute):
        return _of_attribute(expression)
    if isinstance(expression, cst.Call):
        return _of_call(expression)
    if isinstance(expression, cst.Subscript):
        return _of_subscript(expression)
    if isinstance(expression, cst.BinaryOperation):
        parts = (expression.left, expression.operator, expression.right)
        return _of_operator(*parts)
    if isinstance(expression, cst.Comparison):
        first = expression.comparisons[0]
        if len(expression.comparisons) > 1:
            return "in_order"
        return _of_operator(expression.left, first.operator, first.comparator)
    if isinstance(expression, cst.UnaryOperation):
        word, fallback = _OPERATORS[type(expression.operator)]
        return _short(f"{word}_{_word(expression.expression)}", fallback)
    if isinstance(expression, cst.NamedExpr):
        return hint(expression.target)
    return "value"


def _short(name: str, otherwise: str) -> str:
    return name if "?" not in name and len(name) <= _LONGEST else otherwise


def _word(part: cst.CSTNode) -> str:
    """Returns how an operand is spelled inside a name; `?` if it has no short spelling."""
    if isinstance(part, cst.Name):
        return part.value
    if isinstance(part, cst.Integer):
        return part.value
    if isinstance(part, cst.Attribute):
        return _of_attribute(part)
    return "?"


def _of_operator(
    left: cst.BaseExpression, operator: cst.CSTNode, right: cst.BaseExpression
) -> str:
    word, fallback = _OPERATORS.get(type(operator), ("?", "value"))
    return _short(f"{_word(left)}_{word}_{_word(right)}", fallback)


def _of_attribute(node: cst.Attribute) -> str:
    base = _word(node.value)
    if base in ("self", "cls", "?"):
        return node.attr.value
    return _short(f"{base}_{node.attr.value}", node.attr.value)


_MODULES = frozenset(
    {"torch", "nn", "F", "math", "np", "numpy", "functional", "os", "sys"}
)


def _of_call(node: cst.Call) -> str:
    called = node.func
    if isinstance(called, cst.Attribute):
        base = called.value
        of_module = (isinstance(base, cst.Name) and base.value in _MODULES) or (
            isinstance(base, cst.Attribute) and base.attr.value in _MODULES
        )
        if not of_module:
            return _of_attribute(called)
        name = called.attr.value
    elif isinstance(called, cst.Name):
        name = called.value
    else:
        return "value"
    if name == "super":
        return "parent"
    if node.args and isinstance(node.args[0].value, cst.Name):
        return _short(f"{name}_{node.args[0].value.value}", f"{name}_value")
    return f"{name}_value"


def _of_subscript(node: cst.Subscript) -> str:
    base = _word(node.value)
    element = node.slice[0].slice
    index = _word(element.value) if isinstance(element, cst.Index) else "part"
    if len(node.slice) > 1 or index == "?":
        index = "part"
    return _short(f"{base}_{index}", "item")
