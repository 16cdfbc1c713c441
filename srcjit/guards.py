"""Guards: under which conditions a specialization may run.

A guard set becomes one readable Python function of the function's parameters:

    tensors = TensorFacts(
        state,
        (Tensor, torch.float32, "cpu", (4, 8), (8, 1), False),  # x
    )

    def guard_0(self, x):
        try:
            return (
                tensors.check(x)
                and state.check() and not function_modes() and not dispatch_modes() ...
                and self.eps == 1e-05
            )
        except Exception:  # a path that does not exist any more
            return False

It checks what is most likely to differ, and cheapest to check, first: the tensors among the
arguments, then PyTorch's global state, then everything else in the order in which the
compiler came to rely on it. `srcjit.facts` checks facts about tensors and global state.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from srcjit.facts import GlobalState, TensorFacts, disjoint
from srcjit.passes.program import Guard, GuardSet, TensorGuard

GUARD_IMPORTS = (
    "import torch",
    "from torch.autograd import forward_ad",
    "from srcjit.facts import (GlobalState, Parameter, Tensor, TensorFacts, disjoint,"
    " dispatch_modes, function_modes, functorch_level, inference_mode)",
)
"""What an emitted module imports for its guards."""


@dataclass(frozen=True)
class GuardText:
    """The guard of one specialization as text.

    Attributes:
        definitions: Objects that the function uses: the tables of facts.
        function: The definition of the guard.
        name: The guard's name.
        imports: Import statements that both need.
        bindings: Objects that text cannot spell, by name.
    """

    definitions: str
    function: str
    name: str
    imports: tuple[str, ...] = GUARD_IMPORTS
    bindings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Definitions and function."""
        return f"{self.definitions}\n\n{self.function}"


def emit_guard(
    guard_set: GuardSet,
    parameters: Sequence[str],
    name: str = "guard",
    state: GlobalState | None = None,
) -> GuardText:
    """Writes a guard set as one Python function.

    Args:
        guard_set: The conditions. `TensorGuard`s must reach different objects; one whose
            text is also in a guard `a is b` is left out, as implied.
        parameters: Names of the function's parameters, `*args` and `**kwargs` as plain
            names, in order; the guard takes them by position.
        name: Name of the function to write.
        state: Global state under which the specialization was made; the present one if
            None.

    Returns:
        The text. Its function returns true or false and never raises an `Exception`.
    """
    state = state or GlobalState.now()
    writer = _Writer(parameters, set(guard_set.bindings))
    arguments, others = _tensor_groups(guard_set, parameters)
    tables = [f"state = {state.text}"]
    if arguments:
        tables.append(_table("argument_tensors", arguments, writer.bindings))
    if others:
        tables.append(_table("tensors", others, writer.bindings))

    if arguments:
        writer.require(_call("argument_tensors.check", [g.text for g in arguments]))
    writer.require_state(state, any_tensor=bool(arguments or others))
    before, after = _around_tensors(guard_set)
    writer.plan([g.text for g in before] + [g.text for g in others])
    for guard in before:
        writer.require(guard.text, guard.reason)
    if others:
        writer.require(
            _call("tensors.check", [writer.hoisted(g.text) for g in others]),
            hoist=False,
        )
    for guard in after:
        writer.require(guard.text, guard.reason)
    if len(guard_set.distinct_tensors) > 1:
        writer.require(_call("disjoint", guard_set.distinct_tensors))
    return GuardText(
        definitions="\n".join(tables),
        function=writer.function(name),
        name=name,
        bindings={**guard_set.bindings, **writer.bindings},
    )


def first_failure(
    guard_set: GuardSet,
    arguments: Mapping[str, Any],
    names: Mapping[str, Any],
    state: GlobalState | None = None,
) -> Guard | TensorGuard | None:
    """Names the first condition that does not hold (the slow path, for logs).

    Args:
        guard_set: The conditions.
        arguments: Value of each parameter.
        names: `user_globals` and `cells`; the bindings of the guard set are added.
        state: The global state that the specialization needs.

    Returns:
        The first guard that fails; a `Guard` made up for a change of global state or for
        overlapping tensors; None if all hold.
    """
    scope = {"torch": __import__("torch"), **names, **guard_set.bindings, **arguments}
    near, far = _tensor_groups(guard_set, list(arguments))
    before, after = _around_tensors(guard_set)
    for tensor in near:
        if not _tensor_holds(tensor, scope):
            return tensor
    if state is not None:
        changed = state.first_difference()
        if changed:
            return Guard(changed, "global state of PyTorch")
    for guard in before:
        if not _holds(guard.text, scope):
            return guard
    for tensor in far:
        if not _tensor_holds(tensor, scope):
            return tensor
    for guard in after:
        if not _holds(guard.text, scope):
            return guard
    texts = [g.text for g in (*near, *far)]
    repeated = _repeated(texts, scope)
    if repeated:
        return Guard(f"{repeated[0]} is not {repeated[1]}", "tensors must be different")
    if len(guard_set.distinct_tensors) > 1:
        text = _call("disjoint", guard_set.distinct_tensors)
        if not _holds(text, {**scope, "disjoint": disjoint}):
            return Guard(text, "tensors must not overlap")
    return None


def describe_failure(guard: Guard | TensorGuard, arguments: Mapping[str, Any]) -> str:
    """Says in one line what a failed guard wanted, and what it got instead."""
    if isinstance(guard, Guard):
        return guard.text
    scope = {"torch": __import__("torch"), **arguments}
    try:
        got = _shown(eval(guard.text, scope))
    except Exception as error:
        got = f"{type(error).__name__}"
    return f"{guard.text} is {_wanted(guard)}, got {got}"


# ── Groups ──────────────────────────────────────────────────────────────────────────


def _tensor_groups(
    guard_set: GuardSet, parameters: Sequence[str]
) -> tuple[list[TensorGuard], list[TensorGuard]]:
    """Splits the tensor guards into those of plain arguments and the others."""
    found = {g.text: g for g in guard_set.guards if isinstance(g, TensorGuard)}
    for guard in guard_set.guards:
        if isinstance(guard, Guard):
            left, operator, right = guard.text.partition(" is ")
            if operator and left in found and right in found:
                del found[left]
    near = [g for g in found.values() if g.text in parameters]
    return near, [g for g in found.values() if g.text not in parameters]


def _around_tensors(guard_set: GuardSet) -> tuple[list[Guard], list[Guard]]:
    """Splits the plain guards into those that look into a checked tensor and the others.

    The first may rely on facts that the tensor check establishes (the number of
    dimensions), so they come after it; the others lead to the tensors and come before.
    """
    tensors = {g.text for g in guard_set.guards if isinstance(g, TensorGuard)}
    before: list[Guard] = []
    after: list[Guard] = []
    for guard in guard_set.guards:
        if isinstance(guard, Guard):
            looks = any(
                ast.unparse(node) in tensors
                for node in ast.walk(ast.parse(guard.text.strip(), mode="eval"))
                if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))
            )
            (after if looks else before).append(guard)
    return before, after


def _holds(text: str, scope: Mapping[str, Any]) -> bool:
    # A guard whose path is gone does not hold; there is no other way for one to raise.
    try:
        return bool(eval(text, dict(scope)))
    except Exception:
        return False


def _tensor_holds(guard: TensorGuard, scope: Mapping[str, Any]) -> bool:
    try:
        value = eval(guard.text, dict(scope))
    except Exception:
        return False
    return TensorFacts(None, _row(guard)).reference(value)


def _repeated(texts: Iterable[str], scope: Mapping[str, Any]) -> tuple[str, str] | None:
    seen: dict[int, str] = {}
    for text in texts:
        key = id(eval(text, dict(scope)))
        if key in seen:
            return text, seen[key]
        seen[key] = text
    return None


def _row(guard: TensorGuard) -> tuple[Any, ...]:
    row = (guard.cls, guard.dtype, str(guard.device), guard.size, guard.stride)
    inference = getattr(guard, "is_inference", False)
    return (*row, guard.requires_grad, *([inference] if inference else []))


def _wanted(guard: TensorGuard) -> str:
    size = ", ".join("*" if n is None else str(n) for n in guard.size)
    grad = ", requires_grad" if guard.requires_grad else ""
    dtype = str(guard.dtype).removeprefix("torch.")
    name = "" if guard.cls.__name__ == "Tensor" else f"{guard.cls.__name__} "
    stride = tuple("*" if n is None else n for n in guard.stride)
    return f"{name}{dtype}[{size}] stride {stride} on {guard.device}{grad}"


def _shown(value: Any) -> str:
    import torch

    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__}"
    made = TensorGuard(
        "",
        type(value),
        value.dtype,
        value.device,
        tuple(value.shape),
        tuple(value.stride()) if value.layout is torch.strided else (),
        value.requires_grad,
    )
    return _wanted(made)


# ── Text ────────────────────────────────────────────────────────────────────────────


def _call(function: str, arguments: Sequence[str]) -> str:
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= 70:
        return line
    rows = "".join(f"            {argument},\n" for argument in arguments)
    return f"{function}(\n{rows}        )"


def _table(name: str, guards: Sequence[TensorGuard], bindings: dict[str, Any]) -> str:
    import torch

    classes = {torch.Tensor: "Tensor", torch.nn.Parameter: "Parameter"}
    rows = []
    for guard in guards:
        cls, dtype, device, *rest = _row(guard)
        spelled = classes.get(cls)
        if spelled is None:
            spelled = f"class_{cls.__name__}"
            while bindings.get(spelled, cls) is not cls:
                spelled += "_"
            bindings[spelled] = cls
        facts = ", ".join([spelled, f"{dtype}", f'"{device}"', *map(repr, rest)])
        why = f"  ({guard.reason})" if guard.reason else ""
        rows.append(f"    ({facts}),  # {guard.text}{why}\n")
    return f"{name} = TensorFacts(\n    state,\n{''.join(rows)})"


class _Writer:
    """Writes the body of a guard, with repeated paths read once into local variables."""

    def __init__(self, parameters: Sequence[str], taken: set[str]) -> None:
        self.parameters = parameters
        self.taken = {*parameters, *taken, "user_globals", "cells", "state", "tensors"}
        self.taken |= {"argument_tensors", "torch", "disjoint", "forward_ad"}
        self.bindings: dict[str, Any] = {}
        self.lines: list[str] = []
        self.locals: dict[str, str] = {}
        self.wanted: set[str] = set()

    def plan(self, texts: Iterable[str]) -> None:
        """Chooses the paths worth a local variable: where several longer paths part."""
        branches: dict[str, set[str]] = {}
        for text in texts:
            for node in _always_evaluated(ast.parse(text.strip(), mode="eval").body):
                for path in _prefixes(node):
                    branches.setdefault(ast.unparse(path.value), set()).add(
                        ast.unparse(path)
                    )
        for path, longer in branches.items():
            if len(longer) > 1 and not path.isidentifier():
                self.wanted.add(path)

    def hoisted(self, text: str) -> str:
        """Returns `text` with its repeated paths replaced; reads them before."""
        tree = ast.parse(text.strip(), mode="eval")
        for node in _always_evaluated(tree.body):
            for path in reversed(list(_prefixes(node))):
                self._assign(path.value)
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
        last = "".join(c if c.isalnum() else "_" for c in last).strip("_")
        name = last = last if last.isidentifier() else f"item_{last}"
        number = 2
        while name in self.taken or not name.isidentifier() or name in _KEYWORDS:
            name, number = f"{last}_{number}", number + 1
        self.taken.add(name)
        return name

    def require(self, text: str, reason: str = "", hoist: bool = True) -> None:
        """Adds one condition."""
        if hoist and self.wanted:
            text = self.hoisted(text)
        comment = f"  # {reason}" if reason else ""
        negated = _negated(text)
        if "\n" in text:
            self.lines += [f"        if not {text}:{comment}"]
        else:
            self.lines += [f"        if {negated}:{comment}"]
        self.lines.append("            return False")

    def require_state(self, state: GlobalState, any_tensor: bool) -> None:
        """Adds the conditions about PyTorch's global state."""
        for condition in state.conditions(any_tensor):
            self.require(condition)

    def function(self, name: str) -> str:
        """Returns the definition."""
        head = f"def {name}({', '.join(self.parameters)}):\n    try:\n"
        tail = (
            "        return True\n"
            "    except Exception:  # a path that is not there any more\n"
            "        return False\n"
        )
        return head + "\n".join(self.lines) + "\n" + tail


_KEYWORDS = frozenset(
    __import__("keyword").kwlist + ["True", "False", "None", "Exception"]
)


def _negated(text: str) -> str:
    """Writes `not text` the way a person would."""
    tree = ast.parse(text, mode="eval").body
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        return ast.unparse(tree.operand)
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
        other = {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn}.get(
            type(tree.ops[0])
        )
        if other is not None:
            tree.ops = [other()]
            return ast.unparse(tree)
    simple = isinstance(tree, (ast.Call, ast.Name, ast.Attribute, ast.Subscript))
    return f"not {text}" if simple else f"not ({text})"


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
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            name = self.names.get(ast.unparse(node))
            if name is not None:
                return ast.Name(id=name, ctx=ast.Load())
        return super().generic_visit(node)
