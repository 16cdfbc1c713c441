"""Variables of which nobody could tell whether what they hold is still there.

    for i in range(n):
        h = x * i               # a number or a tensor that only tensor operations read: it may
        log.append(h.sum())     # never exist as an object, and nothing refers to it
        x = h + 1

What is decided here is decided on the text, with what is known of the names around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libcst as cst

from srcjit.nodes import parts, subtree
from srcjit.passes.scopes import writes

_NUMBERS = ("float", "int", "len", "bool", "abs", "round", "str", "repr", "isinstance")
"""Built-in functions that look at what they are given, and return what has no identity."""


class Unseen:
    """Finds such variables.

    Args:
        is_data: Whether a name that is not among the variables is a number or a tensor.
        is_torch: Whether a name means a module of PyTorch.
        is_builtin: Whether a name means the built-in function of that name.
    """

    def __init__(
        self,
        is_data: Callable[[str], bool],
        is_torch: Callable[[str], bool],
        is_builtin: Callable[[str], bool],
    ) -> None:
        self.is_data, self.is_torch, self.is_builtin = is_data, is_torch, is_builtin

    def among(self, names: set[str], piece: cst.CSTNode) -> set[str]:
        """Returns those of the variables that a piece of text binds that are unseen."""
        written = writes(piece)
        uses = _Uses(written)
        uses.visit(piece, None)
        # What is read before it is bound has a value from before.
        data = {n for n in written - uses.odd if n in names or self.is_data(n)}
        while True:
            wrong = {
                name
                for name in data
                for value in uses.bound.get(name, ())
                if not self._is_data(value, data, written)
            }
            if not wrong:
                break
            data -= wrong
        plain = {
            name
            for name in data & names
            if all(map(self._is_number, uses.bound.get(name, ())))
        }
        left = (data & names) - plain
        while True:
            seen = {
                name
                for name in left
                for node in uses.read.get(name, ())
                if not self._is_private(node, uses, data)
            }
            if not seen:
                return plain | left
            left -= seen
            data -= seen

    def _is_data(self, value: Any, data: set[str], written: set[str]) -> bool:
        """Whether an expression is a number, a text or a tensor."""

        def all_data(*parts: Any) -> bool:
            return all(self._is_data(part, data, written) for part in parts)

        match value:
            case cst.Name(value=name) if name not in ("None", "True", "False"):
                return name in data or (name not in written and self.is_data(name))
            case cst.BinaryOperation(left=left, right=right):
                return all_data(left, right)
            case cst.UnaryOperation(expression=inner):
                return all_data(inner)
            case cst.Comparison(left=left, comparisons=others):
                return all_data(left, *(other.comparator for other in others))
            case cst.Subscript(value=inner):
                return all_data(inner)
            case cst.Attribute(value=inner, attr=cst.Name(value=name)):
                return name in _FACTS and all_data(inner)
            case cst.Call(func=cst.Attribute(value=receiver)):
                return all_data(receiver) or self._is_torch(value)
        return self._is_number(value)

    def _is_number(self, value: Any) -> bool:
        match value:
            case cst.Call(func=cst.Name(value=name)):
                return name in _NUMBERS and self.is_builtin(name)
            case cst.Call(func=cst.Attribute(attr=cst.Name(value="item")), args=[]):
                return True
            case cst.Name(value="None" | "True" | "False"):
                return True
            case cst.UnaryOperation(expression=inner):
                return self._is_number(inner)
            case cst.BinaryOperation(left=left, right=right):
                return self._is_number(left) and self._is_number(right)
        return isinstance(value, _CONSTANTS)

    def _is_torch(self, call: cst.Call) -> bool:
        root: Any = call.func
        while isinstance(root, cst.Attribute):
            root = root.value
        return isinstance(root, cst.Name) and self.is_torch(root.value)

    def _is_private(self, node: Any, uses: _Uses, data: set[str]) -> bool:
        """Whether what stands around an expression keeps no reference to its object."""
        around: Any = uses.parents.get(id(node))
        match around:
            case cst.BinaryOperation() | cst.UnaryOperation() | cst.ComparisonTarget():
                return True
            case cst.Comparison() | cst.Expr() | cst.Assert() | cst.Return():
                return True
            case cst.If() | cst.While() | cst.Index():
                return True
            case cst.AugAssign(target=cst.Name(value=name)):
                return name in data
            case cst.AugAssign():
                return True
            case cst.Subscript(value=inner):
                return inner is not node or self._is_private(around, uses, data)
            case cst.Attribute(attr=attr):
                call = uses.parents.get(id(around))
                if isinstance(call, cst.Call) and call.func is around:
                    return attr.value not in _REFERRING and self._is_private(
                        call, uses, data
                    )
                return attr.value in _FACTS
            case cst.Arg():
                return self._is_private_argument(around, uses, data)
            case cst.Assign(targets=targets):
                return all(self._takes(target.target, uses, data) for target in targets)
        return isinstance(around, cst.FormattedStringExpression)

    def _takes(self, target: Any, uses: _Uses, data: set[str]) -> bool:
        """Whether an assignment to a target leaves a tensor unseen."""
        if isinstance(target, cst.Subscript):
            return self._is_data(target.value, data, uses.names)
        return isinstance(target, cst.Name) and target.value in data

    def _is_private_argument(self, argument: Any, uses: _Uses, data: set[str]) -> bool:
        call = uses.parents.get(id(argument))
        if not isinstance(call, cst.Call):
            return False
        if isinstance(call.func, cst.Name):
            name = call.func.value
            return name in (*_NUMBERS, "print") and self.is_builtin(name)
        if self._is_torch(call) or (
            isinstance(call.func, cst.Attribute)
            and self._is_data(call.func.value, data, uses.names)
        ):
            return self._is_private(call, uses, data)
        return False


_CONSTANTS = (
    cst.BaseNumber,
    cst.SimpleString,
    cst.ConcatenatedString,
    cst.FormattedString,
)

_REFERRING = ("register_hook", "register_post_accumulate_grad_hook")

_FACTS = ("shape", "dtype", "device", "ndim", "requires_grad")
"""Attributes of a tensor that do not refer to it."""


class _Uses:
    """Where variables are bound and read in a piece of text.

    Attributes:
        bound: The values that plain assignments bind a name to.
        odd: Names that something else binds, or a nested function reads.
        read: Where names are read.
        parents: What stands around an expression, by its `id`.
    """

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.bound: dict[str, list[cst.BaseExpression]] = {}
        self.odd: set[str] = set()
        self.read: dict[str, list[cst.Name]] = {}
        self.parents: dict[int, cst.CSTNode] = {}

    def visit(self, node: Any, parent: Any) -> None:
        """Looks at a node and what is below it."""
        if parent is not None:
            self.parents[id(node)] = parent
        match node:
            case cst.Assign() if all(
                isinstance(target.target, cst.Name) for target in node.targets
            ):
                for target in node.targets:
                    self._bind(target.target, node.value)
                self.visit(node.value, node)
                return
            case cst.AugAssign(target=cst.Name() as target):
                self._bind(target, node.value)
                self.visit(node.value, node)
                return
            case cst.AnnAssign(target=cst.Name() as target):
                if node.value is not None:
                    self._bind(target, node.value)
                    self.odd |= {target.value} & self.names
                    self.visit(node.value, node)
                return
            case cst.Name(value=name):
                if name in self.names:
                    self.read.setdefault(name, []).append(node)
                return
            case cst.Attribute():
                self.visit(node.value, node)
                return
            case cst.For() | cst.CompFor():
                self._strange(node.target)
            case cst.With():
                for item in node.items:
                    self._strange(item.asname)
            case cst.FunctionDef() | cst.ClassDef() | cst.Lambda() | cst.MatchCase():
                self._strange(node)
                return
            case cst.Del() | cst.Import() | cst.ImportFrom() | cst.ExceptHandler():
                self._strange(
                    node if not isinstance(node, cst.ExceptHandler) else node.name
                )
            case cst.Assign():
                for target in node.targets:
                    if not isinstance(target.target, cst.Subscript):
                        self._strange(target)
            case cst.NamedExpr() | cst.Global() | cst.Nonlocal():
                self._strange(node)
        for part in parts(node):
            self.visit(part, node)

    def _bind(self, target: Any, value: cst.BaseExpression) -> None:
        if target.value in self.names:
            self.bound.setdefault(target.value, []).append(value)

    def _strange(self, node: Any) -> None:
        if node is not None:
            found = {n.value for n in subtree(node) if isinstance(n, cst.Name)}
            self.odd |= found & self.names
