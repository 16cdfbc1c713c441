"""Writes the body of an emitted guard: conditions in order, repeated paths read once.

>>> writer = GuardWriter(["self"], set())
>>> writer.plan(["self.parts['up'].on", "self.parts['up'].size == 3"])
>>> for text in ("self.parts['up'].on", "self.parts['up'].size == 3"):
...     writer.require(writer.hoisted(text))
>>> print(writer.function("guard"))
def guard(self):
try:
up = self.parts['up']
if not up.on:
return False
if up.size != 3:
return False
return True
except Exception:  # a path that is not there any more
return False
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from keyword import kwlist

from srcjit.passes.program import Guard

_IMPORTED = {
    "CompilerFault": "srcjit.diagnostics",
    "disjoint": "srcjit.facts",
    "dispatch_modes": "srcjit.facts",
    "forward_ad": "torch.autograd",
    "function_modes": "srcjit.facts",
    "functorch_level": "srcjit.facts",
    "inference_mode": "srcjit.facts",
}
"""What a guard may call, and the module that has it."""


def call_text(function: str, arguments: Sequence[str]) -> str:
    """Writes a call, on several lines where it is long."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= 70:
        return line
    rows = "".join(f"            {argument},\n" for argument in arguments)
    return f"{function}(\n{rows}        )"


class GuardWriter:
    """Writes the body of a guard, with repeated paths read once into local variables."""

    def __init__(self, parameters: Sequence[str], taken: set[str]) -> None:
        self.parameters = parameters
        self.taken = {*parameters, *taken, "user_globals", "cells", *dir(builtins)}
        self.taken |= set(kwlist)
        self.imported: dict[str, str] = {}
        self.lines: list[str] = []
        self.locals: dict[str, str] = {}
        self.wanted: set[str] = set()
        self.raised = ""

    def reserve(self, name: str) -> str:
        """Returns `name`, or a name made from it that nothing else has."""
        made, number = name, 2
        while made in self.taken:
            made, number = f"{name}_{number}", number + 1
        self.taken.add(made)
        return made

    def qualified(self, condition: str, state_name: str) -> str:
        """Spells one of our own conditions with the names that are free here."""
        names = {"state": state_name}
        for node in ast.walk(parsed(condition)):
            if isinstance(node, ast.Name) and node.id in _IMPORTED:
                if node.id not in self.imported:
                    self.imported[node.id] = self.reserve(node.id)
                names[node.id] = self.imported[node.id]
        changed = {old: new for old, new in names.items() if old != new}
        if not changed:
            return condition
        return ast.unparse(_Replace(changed).visit(ast.parse(condition, mode="eval")))

    def imports(self) -> tuple[str, ...]:
        """Returns the import statements for what `qualified` has used."""
        lines: dict[str, list[str]] = {}
        for name, local in sorted(self.imported.items()):
            spelled = name if name == local else f"{name} as {local}"
            lines.setdefault(_IMPORTED[name], []).append(spelled)
        return tuple(
            f"from {module} import {', '.join(names)}"
            for module, names in sorted(lines.items(), reverse=True)
        )

    def plan(self, texts: Iterable[str]) -> None:
        """Chooses the paths worth a local variable: where several longer paths part."""
        branches: dict[str, set[str]] = {}
        for text in texts:
            for node in _always_evaluated(parsed(text).body):
                for path in _prefixes(node):
                    branches.setdefault(ast.unparse(path.value), set()).add(
                        ast.unparse(path)
                    )
        for start, longer in branches.items():
            if len(longer) > 1 and not start.isidentifier():
                self.wanted.add(start)

    def hoisted(self, text: str) -> str:
        """Returns `text` with its repeated paths replaced; reads them before."""
        tree = ast.parse(text.strip(), mode="eval")
        for node in _always_evaluated(tree.body):
            for path in reversed(list(_prefixes(node))):
                self._assign(path.value)
            self._assign(node)
        return ast.unparse(_Replace(self.locals).visit(tree))

    def _assign(self, path: ast.expr) -> None:
        key = ast.unparse(path)
        if key not in self.wanted or key in self.locals:
            return
        value = ast.unparse(_Replace(self.locals).visit(ast.parse(key, mode="eval")))
        name = self._name(path)
        self.lines.append(f"        {name} = {value}")
        self.locals[key] = name

    def _name(self, path: ast.expr) -> str:
        last = "value"
        if isinstance(path, ast.Attribute):
            last = path.attr
        elif isinstance(path, ast.Subscript) and isinstance(path.slice, ast.Constant):
            last = str(path.slice.value)
        last = re.sub(r"\W", "_", last, flags=re.ASCII).strip("_")
        return self.reserve(last if last.isidentifier() else f"item_{last}".rstrip("_"))

    def require(self, *conditions: str, reason: str = "") -> None:
        """Adds conditions that one `if` tests, in order."""
        test = " or ".join(
            f"not {condition}" if "\n" in condition else _negated(condition)
            for condition in conditions
        )
        if len(test) > 76 and len(conditions) > 1:
            test = f"({test.replace(' or ', f'{chr(10)}            or ')})"
        comment = f"  # {reason}" if reason else ""
        self.lines += [f"        if {test}:{comment}", "            return False"]

    def unless_unchanged(
        self,
        unchanged: str,
        roots: Sequence[str],
        conditions: Sequence[Guard],
        rest: Sequence[Guard],
        check: str,
        tensors: Sequence[str],
    ) -> None:
        """Asks conditions if something may have changed, and always those of `rest`.

        Args:
            unchanged: The name of what knows.
            roots: Its arguments.
            conditions: All conditions.
            rest: Those that it does not know.
            check: What checks the tensors that it knows.
            tensors: Their paths.
        """
        arguments = ", ".join(roots)
        lines, shared = self.lines, dict(self.locals)
        blocks = []
        for block in (conditions, rest):
            self.lines, self.locals = [], dict(shared)
            for guard in block:
                self.require(self.hoisted(guard.text), reason=guard.reason)
            if block is conditions:
                if tensors:
                    paths = [self.hoisted(text) for text in tensors]
                    self.require(call_text(check, paths))
                self.lines.append(f"        {unchanged}.learn({arguments})")
            blocks.append([textwrap.indent(line, "    ") for line in self.lines])
        self.lines, self.locals = lines, shared
        self.lines += [
            f"        if {unchanged}.now({arguments}) is None:  # new, or changed",
            *blocks[0],
        ]
        if blocks[1]:
            self.lines += ["        else:", *blocks[1]]
        self.imported.setdefault("CompilerFault", self.reserve("CompilerFault"))
        self.raised = self.imported["CompilerFault"]

    def function(self, name: str) -> str:
        """Returns the definition."""
        head = f"def {name}({', '.join(self.parameters)}):\n    try:\n"
        faults = f"    except {self.raised}:\n        raise\n" if self.raised else ""
        tail = (
            "        return True\n"
            f"{faults}"
            "    except Exception:  # a path that is not there any more\n"
            "        return False\n"
        )
        return head + "\n".join(self.lines) + "\n" + tail


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@functools.lru_cache(maxsize=4096)
def parsed(text: str) -> ast.Expression:
    """Parses a condition. Most of them come again in the next guard; do not change the tree."""
    return ast.parse(text.strip(), mode="eval")


@functools.lru_cache(maxsize=4096)
def _negated(text: str) -> str:
    """Writes `not text` the way a person would.

    >>> _negated("type(n) is int and n == 3")
    'type(n) is not int or n != 3'
    >>> _negated("not up._forward_hooks"), _negated("x.size(0) > 1")
    ('up._forward_hooks', 'not x.size(0) > 1')
    """
    return ast.unparse(_negation(parsed(text).body))


def _negation(tree: ast.expr) -> ast.expr:
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        return tree.operand
    if isinstance(tree, ast.BoolOp):
        opposite = ast.Or() if isinstance(tree.op, ast.And) else ast.And()
        return ast.BoolOp(opposite, [_negation(value) for value in tree.values])
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
        operator = _OPPOSITE.get(type(tree.ops[0]))
        # `==` and `!=` are only opposites where no user's method is asked.
        plain = isinstance(tree.comparators[0], ast.Constant)
        if operator is None and plain and isinstance(tree.ops[0], ast.Eq):
            operator = ast.NotEq
        if operator is not None:
            return ast.Compare(tree.left, [operator()], tree.comparators)
    return ast.UnaryOp(ast.Not(), tree)


_Path = ast.Attribute | ast.Subscript


def _prefixes(node: ast.expr) -> Iterable[_Path]:
    """Yields a path and its beginnings, longest first; nothing if it is no path."""
    while isinstance(node, ast.Attribute) or (
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    ):
        yield node
        node = node.value


def _always_evaluated(node: ast.AST) -> Iterable[ast.expr]:
    """Yields the outermost paths in `node` that are evaluated whatever their values are."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and any(_prefixes(node)):
        paths = list(_prefixes(node))
        yield node
        if not isinstance(paths[-1].value, ast.Name):
            yield from _always_evaluated(paths[-1].value)
    elif isinstance(node, ast.BoolOp):
        yield from _always_evaluated(node.values[0])
    elif isinstance(node, ast.IfExp):
        yield from _always_evaluated(node.test)
    elif isinstance(node, ast.Compare):
        yield from _always_evaluated(node.left)
        yield from _always_evaluated(node.comparators[0])
    elif not isinstance(
        node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    ):
        for child in ast.iter_child_nodes(node):
            yield from _always_evaluated(child)


class _Replace(ast.NodeTransformer):
    """Replaces paths by the local variables that hold them."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Name)):
            name = self.names.get(ast.unparse(node))
            if name is not None:
                return ast.Name(id=name, ctx=ast.Load())
        return super().generic_visit(node)
