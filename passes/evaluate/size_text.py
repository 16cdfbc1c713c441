"""The Python text of an expression over symbolic sizes.

    FloorDiv(s0, 2) + 1     becomes     x_size_0 // 2 + 1

A condition may call more than a number in the residual program may, where the user's module can
hide the names of built-in functions.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set
from typing import Any

_CALLABLE = {"max", "min", "abs", "size", "stride", "storage_offset"}
"""Functions and methods that the text of a number may call."""

IN_CONDITIONS = _CALLABLE | {"float", "int", "round", "__floor__", "__ceil__"}
"""The same for a condition, where names of built-in functions mean those."""


class CannotSpell(Exception):
    """An expression over sizes has no text in Python."""


def spelled(
    expression: Any, names: Mapping[Any, str], callable_: Set[str] = _CALLABLE
) -> str:
    """Returns the Python text of an expression over symbols.

    Args:
        expression: The expression.
        names: What the text calls the symbols.
        callable_: Names of functions and methods that it may call.

    Raises:
        CannotSpell: It has none.
    """
    try:
        text = str(_printer(names).doprint(expression))
        tree = ast.parse(text, mode="eval")
    except (NotImplementedError, AssertionError, KeyError, SyntaxError) as error:
        raise CannotSpell(f"{expression}: {error}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called not in callable_:
                raise CannotSpell(text)
    return text


def _printer(names: Mapping[Any, str]) -> Any:
    from torch.utils._sympy.printers import PythonPrinter

    class Printer(PythonPrinter):
        def _print_Symbol(self, expr: Any) -> str:
            return names[expr]

        def _print_Float(self, expr: Any) -> str:
            return repr(float(expr))  # sympy prints fifteen digits

        def _print_ToFloat(self, expr: Any) -> str:
            return f"float({self._print(expr.args[0])})"

        def _print_FloorToInt(self, expr: Any) -> str:
            return f"({self._print(expr.args[0])}).__floor__()"

        def _print_CeilToInt(self, expr: Any) -> str:
            return f"({self._print(expr.args[0])}).__ceil__()"

        def _print_TruncToInt(self, expr: Any) -> str:
            return f"int({self._print(expr.args[0])})"

        def _print_TruncToFloat(self, expr: Any) -> str:
            return f"float(int({self._print(expr.args[0])}))"

        def _print_CeilDiv(self, expr: Any) -> str:
            number, by = map(self._print, expr.args)
            return f"(-(-({number}) // ({by})))"

        def _print_LShift(self, expr: Any) -> str:
            number, by = map(self._print, expr.args)
            return f"(({number}) << ({by}))"

        def _print_RShift(self, expr: Any) -> str:
            number, by = map(self._print, expr.args)
            return f"(({number}) >> ({by}))"

        def _print_Where(self, expr: Any) -> str:
            test, first, second = map(self._print, expr.args)
            return f"(({first}) if ({test}) else ({second}))"

    return Printer()


__all__ = ["IN_CONDITIONS", "CannotSpell", "spelled"]
