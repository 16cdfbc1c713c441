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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from srcjit.facts import GlobalState
from srcjit.guard_text import GuardWriter, call_text, parsed
from srcjit.passes.program import Guard, GuardSet, TensorGuard
from srcjit.unchanged import (
    LEAST,
    class_looked_into,
    class_required,
    is_about,
    is_path,
    may_be_learned,
)


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
    writer = GuardWriter(parameters, set(guard_set.bindings))
    near, far = tensor_groups(guard_set, parameters)
    classes: dict[str, type] = {}
    state_name = writer.reserve("state")
    tables = [f"{state_name} = {state.text}"]
    if near:
        near_name = writer.reserve("argument_tensors" if far else "tensors")
        tables.append(_table(near_name, state_name, near, classes))
        writer.require(call_text(f"{near_name}.check", [g.text for g in near]))
    before, after = around_tensors(guard_set)
    learned = _learned(before, far, guard_set, parameters)
    # What is learned of a tensor does not notice a transform; who checks all of it does.
    checked = near or (far if learned is None or not learned.tensors else ())
    conditions = state.conditions(any_tensor=bool(checked))
    writer.require(*[writer.qualified(c, state_name) for c in conditions])
    writer.plan([g.text for g in before] + [g.text for g in far])
    far_name = writer.reserve("tensors")
    if far:
        tables.append(_table(far_name, state_name, far, classes))
    check, always = f"{far_name}.check", far
    if learned is not None:
        unchanged = writer.reserve("unchanged")
        tables.append(learned.definition(unchanged))
        always = [] if learned.tensors else far
        writer.unless_unchanged(
            unchanged,
            learned.roots,
            before,
            learned.rest(before),
            check,
            [g.text for g in learned.tensors],
        )
    else:
        for guard in before:
            writer.require(writer.hoisted(guard.text), reason=guard.reason)
    if always:
        writer.require(call_text(check, [writer.hoisted(g.text) for g in always]))
    for guard in after:
        writer.require(writer.hoisted(guard.text), reason=guard.reason)
    for distinct in guard_set.distinct_tensors:
        call = call_text("disjoint", distinct)
        writer.require(writer.qualified(call, state_name))
    return GuardText(
        definitions="\n".join(tables),
        function=writer.function(name),
        name=name,
        imports=(
            "import torch",
            *_facts_import(near + far),
            *writer.imports(),
            *(("from srcjit.unchanged import Unchanged",) if learned else ()),
        ),
        bindings=dict(guard_set.bindings),
        classes=classes,
    )


# ── Groups ──────────────────────────────────────────────────────────────────────────


def tensor_groups(
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


def around_tensors(guard_set: GuardSet) -> tuple[list[Guard], list[Guard]]:
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
                for node in ast.walk(parsed(guard.text))
                if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))
            )
            (after if looks else before).append(guard)
    return before, after


@dataclass(frozen=True)
class _Learned:
    """What is not asked again while the objects that it is about have not changed.

    Attributes:
        roots: Arguments that all of it begins at.
        conditions: Some of the conditions.
        tensors: All tensors that are no arguments, or none.
    """

    roots: tuple[str, ...]
    conditions: tuple[Guard, ...]
    tensors: tuple[TensorGuard, ...]

    def rest(self, guards: Sequence[Guard]) -> list[Guard]:
        """The conditions that are asked at each call."""
        return [guard for guard in guards if guard not in self.conditions]

    def definition(self, name: str) -> str:
        """The table of it."""
        parts = [f"    {', '.join(self.roots)!r},\n"]
        for label, guards in (
            ("conditions", self.conditions),
            ("tensors", self.tensors),
        ):
            rows = "".join(f"        {guard.text.strip()!r},\n" for guard in guards)
            parts.append(f"    {label}=(\n{rows}    ),\n")
        return f"{name} = Unchanged(\n{''.join(parts)})"


def _learned(
    before: Sequence[Guard],
    far: Sequence[TensorGuard],
    guard_set: GuardSet,
    parameters: Sequence[str],
) -> _Learned | None:
    """Chooses what is learned from the arguments, if that is worth it."""
    fixed = set(guard_set.bindings)
    required = [class_required(g.text) for g in before]
    tuples = {path for path, cls in required if cls == "tuple"}
    conditions = [
        g for g in before if may_be_learned(g.text, parameters, fixed, tuples)
    ]
    # That no two tensors are one object is checked of all at once.
    all_known = all(
        g.cls in _PLAIN_CLASSES and is_path(parsed(g.text).body, parameters)
        for g in far
    )
    tensors = far if all_known else ()
    texts = [g.text for g in conditions] + [g.text for g in tensors]
    roots = tuple(p for p in parameters if any(_begins_at(p, text) for text in texts))
    conditions = [g for g in conditions if is_about(g.text, roots, tuples)]
    conditions += _about_classes(before, conditions, guard_set.bindings)
    if len(conditions) < LEAST or not roots:
        return None
    return _Learned(roots, tuple(conditions), tuple(tensors))


def _about_classes(
    before: Sequence[Guard], known: Sequence[Guard], bindings: Mapping[str, Any]
) -> list[Guard]:
    """Conditions on what classes hold that a change of an instance's class would show.

    A change of a base is a change of all classes below it.
    """
    required = (class_required(guard.text)[1] for guard in known)
    classes = [bindings[n] for n in required if isinstance(bindings.get(n), type)]
    made = []
    for guard in before:
        holder = bindings.get(class_looked_into(guard.text))
        if isinstance(holder, type) and any(holder in cls.__mro__ for cls in classes):
            made.append(guard)
    return made


def _begins_at(parameter: str, text: str) -> bool:
    """Whether a longer path begins at a parameter."""
    return any(
        isinstance(node, (ast.Attribute, ast.Subscript))
        and isinstance(node.value, ast.Name)
        and node.value.id == parameter
        for node in ast.walk(parsed(text))
    )


def facts_row(guard: TensorGuard) -> tuple[Any, ...]:
    """What `TensorFacts` is told of one tensor."""
    row = (guard.cls, guard.dtype, str(guard.device), guard.size, guard.stride)
    inference = getattr(guard, "is_inference", False)
    return (*row, guard.requires_grad, *([inference] if inference else []))


# ── Text ────────────────────────────────────────────────────────────────────────────


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
        cls, dtype, device, *rest = facts_row(guard)
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
