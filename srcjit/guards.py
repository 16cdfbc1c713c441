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
import builtins
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from keyword import kwlist
from typing import Any

import torch

from srcjit.facts import GlobalState, TensorFacts, disjoint
from srcjit.passes.program import Guard, GuardSet, Hints, TensorGuard

_IMPORTED = {
    "disjoint": "srcjit.facts",
    "dispatch_modes": "srcjit.facts",
    "forward_ad": "torch.autograd",
    "function_modes": "srcjit.facts",
    "functorch_level": "srcjit.facts",
    "inference_mode": "srcjit.facts",
}
"""What a guard may call, and the module that has it."""


@dataclass(frozen=True)
class GuardText:
    """The guard of one specialization as text.

    Attributes:
        definitions: Objects that the function uses: the tables of facts.
        function: The definition of the guard.
        name: The guard's name.
        imports: Import statements that both need.
        bindings: Objects that the function names and text cannot spell. They are globals
            of the guard alone, since their names may be taken in the rest of the module.
        classes: Tensor subclasses that the definitions name: globals of the module.
    """

    definitions: str
    function: str
    name: str
    imports: tuple[str, ...]
    bindings: Mapping[str, Any] = field(default_factory=dict)
    classes: Mapping[str, type] = field(default_factory=dict)

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
    near, far = _tensor_groups(guard_set, parameters)
    classes: dict[str, type] = {}
    state_name = writer.reserve("state")
    tables = [f"{state_name} = {state.text}"]
    if near:
        near_name = writer.reserve("argument_tensors" if far else "tensors")
        tables.append(_table(near_name, state_name, near, classes))
        writer.require(_call(f"{near_name}.check", [g.text for g in near]))
    conditions = state.conditions(any_tensor=bool(near or far))
    writer.require(*[writer.qualified(c, state_name) for c in conditions])
    before, after = _around_tensors(guard_set)
    writer.plan([g.text for g in before] + [g.text for g in far])
    for guard in before:
        writer.require(writer.hoisted(guard.text), reason=guard.reason)
    if far:
        far_name = writer.reserve("tensors")
        tables.append(_table(far_name, state_name, far, classes))
        paths = [writer.hoisted(g.text) for g in far]
        writer.require(_call(f"{far_name}.check", paths))
    for guard in after:
        writer.require(writer.hoisted(guard.text), reason=guard.reason)
    if len(guard_set.distinct_tensors) > 1:
        call = _call("disjoint", guard_set.distinct_tensors)
        writer.require(writer.qualified(call, state_name))
    return GuardText(
        definitions="\n".join(tables),
        function=writer.function(name),
        name=name,
        imports=("import torch", *_facts_import(near + far), *writer.imports()),
        bindings=dict(guard_set.bindings),
        classes=classes,
    )


def failures(
    guard_set: GuardSet,
    arguments: Mapping[str, Any],
    names: Mapping[str, Any],
    state: GlobalState | None = None,
) -> Iterator[Guard | TensorGuard]:
    """Yields the conditions that do not hold (the slow path, for logs and hints).

    Args:
        guard_set: The conditions.
        arguments: Value of each parameter.
        names: `user_globals` and `cells`; the bindings of the guard set are added.
        state: The global state that the specialization needs.

    Yields:
        The failing guards, in the order in which the emitted guard checks; a `Guard` made
        up for a change of global state and for tensors that are one or overlap.
    """
    scope = {"torch": torch, **names, **guard_set.bindings, **arguments}
    near, far = _tensor_groups(guard_set, list(arguments))
    before, after = _around_tensors(guard_set)
    yield from (g for g in near if not _tensor_holds(g, scope))
    changed = state.first_difference() if state is not None else None
    if changed:
        yield Guard(changed, "global state of PyTorch")
    yield from (g for g in before if not _holds(g.text, scope))
    yield from (g for g in far if not _tensor_holds(g, scope))
    yield from (g for g in after if not _holds(g.text, scope))
    for group in (near, far):
        repeated = _repeated([g.text for g in group], scope)
        if repeated:
            text = f"{repeated[0]} is not {repeated[1]}"
            yield Guard(text, "tensors must be different objects")
    if len(guard_set.distinct_tensors) > 1:
        text = _call("disjoint", guard_set.distinct_tensors)
        if not _holds(text, {**scope, "disjoint": disjoint}):
            yield Guard(text, "tensors must not share memory")


def first_failure(
    guard_set: GuardSet,
    arguments: Mapping[str, Any],
    names: Mapping[str, Any],
    state: GlobalState | None = None,
) -> Guard | TensorGuard | None:
    """Returns the first of `failures`, or None if all conditions hold."""
    return next(failures(guard_set, arguments, names, state), None)


def describe_failure(guard: Guard | TensorGuard, scope: Mapping[str, Any]) -> str:
    """Says in one line what a failed guard wanted, and what it got instead.

    Args:
        guard: The guard.
        scope: The names that its text uses.
    """
    if isinstance(guard, Guard):
        return guard.text
    try:
        got = _shown(eval(guard.text, dict(scope)))
    except Exception as error:
        got = f"{type(error).__name__}: {error}"
    return f"{guard.text}: {_wanted(guard)}; got {got}"


def learn(
    known: Hints,
    failed: Iterable[Guard | TensorGuard],
    scope: Mapping[str, Any],
) -> Hints:
    """Adds to `known` what failed guards teach about what varies between calls."""
    changed = set(known.changed)
    sizes = dict(known.sizes)
    for guard in failed:
        if isinstance(guard, TensorGuard):
            dims = _changed_sizes(guard, scope)
            if dims:
                sizes[guard.text] = sizes.get(guard.text, frozenset()) | dims
        else:
            tree = ast.parse(guard.text.strip(), mode="eval")
            roots = {*scope, "user_globals", "cells"}
            changed.update(_paths(tree, roots))
    return Hints(frozenset(changed), sizes)


def _changed_sizes(guard: TensorGuard, scope: Mapping[str, Any]) -> frozenset[int]:
    """Returns the dimensions that differ, if nothing but sizes and strides do."""
    try:
        value = eval(guard.text, dict(scope))
    except Exception:
        return frozenset()
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return frozenset()
    as_found = replace(guard, size=tuple(value.shape), stride=tuple(value.stride()))
    if len(guard.size) != value.dim() or not _tensor_holds(as_found, scope):
        return frozenset()
    return frozenset(
        dim
        for dim, (wanted, found) in enumerate(zip(guard.size, value.shape, strict=True))
        if wanted is not None and wanted != found
    )


def _paths(tree: ast.AST, roots: set[str]) -> Iterator[str]:
    """Yields the longest paths in an expression that start at one of `roots`."""
    if isinstance(tree, (ast.Name, ast.Attribute, ast.Subscript)):
        base = tree
        while isinstance(base, (ast.Attribute, ast.Subscript)):
            base = base.value  # type: ignore[assignment]
        if isinstance(base, ast.Name) and base.id in roots:
            yield ast.unparse(tree)
            return
    for child in ast.iter_child_nodes(tree):
        yield from _paths(child, roots)


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


def _facts_import(guards: Sequence[TensorGuard]) -> tuple[str, ...]:
    names = ["GlobalState"]
    if guards:
        used = {g.cls for g in guards}
        names += [cls.__name__ for cls in _PLAIN_CLASSES if cls in used]
        names.append("TensorFacts")
    return (f"from srcjit.facts import {', '.join(names)}",)


_PLAIN_CLASSES = (torch.nn.Parameter, torch.Tensor)


def _table(
    name: str, state: str, guards: Sequence[TensorGuard], classes: dict[str, type]
) -> str:
    rows = []
    for guard in guards:
        cls, dtype, device, *rest = _row(guard)
        spelled = cls.__name__
        if cls not in _PLAIN_CLASSES:
            spelled = f"class_{spelled}"
            while classes.get(spelled, cls) is not cls:
                spelled += "_"
            classes[spelled] = cls
        facts = ", ".join([spelled, f"{dtype}", f'"{device}"', *map(repr, rest)])
        why = f"  ({guard.reason})" if guard.reason else ""
        rows.append(f"    ({facts}),  # {guard.text}{why}\n")
    return f"{name} = TensorFacts(\n    {state},\n{''.join(rows)})"


class _Writer:
    """Writes the body of a guard, with repeated paths read once into local variables."""

    def __init__(self, parameters: Sequence[str], taken: set[str]) -> None:
        self.parameters = parameters
        self.taken = {*parameters, *taken, "user_globals", "cells", *dir(builtins)}
        self.taken |= set(kwlist)
        self.imported: dict[str, str] = {}
        self.lines: list[str] = []
        self.locals: dict[str, str] = {}
        self.wanted: set[str] = set()

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
        for node in ast.walk(ast.parse(condition, mode="eval")):
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

    def function(self, name: str) -> str:
        """Returns the definition."""
        head = f"def {name}({', '.join(self.parameters)}):\n    try:\n"
        tail = (
            "        return True\n"
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


def _negated(text: str) -> str:
    """Writes `not text` the way a person would.

    >>> _negated("type(n) is int and n == 3")
    'type(n) is not int or n != 3'
    >>> _negated("not up._forward_hooks"), _negated("x.size(0) > 1")
    ('up._forward_hooks', 'not x.size(0) > 1')
    """
    return ast.unparse(_negation(ast.parse(text, mode="eval").body))


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
