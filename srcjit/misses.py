"""Misses: which guards failed, which specialization was nearest, and what that teaches.

    guard_0 wants            x.size(0) == 10, n == 3
    the call has             x.size(0) == 20, n == 3
    described as             x: float32[10] stride (1,) on cpu; got float32[20] stride (1,) on cpu
    learned                  dimension 0 of x varies: the next program takes it as a symbol

This is the slow path, behind a guard that has said no.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from srcjit.facts import GlobalState, TensorFacts, disjoint
from srcjit.guard_text import call_text
from srcjit.guards import around_tensors, facts_row, tensor_groups
from srcjit.passes.program import Guard, GuardSet, Hints, TensorGuard


class Demand(Guard):
    """A condition that every specialization has and that no guard of the set spells."""


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
        The failing guards, in the order in which the emitted guard checks; a `Demand` for
        a change of global state and for tensors that are one or overlap.
    """
    scope = {"torch": torch, **names, **guard_set.bindings, **arguments}
    near, far = tensor_groups(guard_set, list(arguments))
    before, after = around_tensors(guard_set)
    yield from (g for g in near if not _tensor_holds(g, scope))
    changed = state.first_difference() if state is not None else None
    if changed:
        yield Demand(changed, "global state of PyTorch")
    strangers: list[str] = []
    rest: list[Guard | TensorGuard] = [*before, *far, *after]
    for guard in rest:
        # NOTE: below an object of another type, reading may run code of that type: a
        # `defaultdict` would take up the keys that are asked for.
        if any(f"{path}{step}" in guard.text for path in strangers for step in ".["):
            continue
        if isinstance(guard, TensorGuard):
            holds = _tensor_holds(guard, scope)
        else:
            holds = _holds(guard.text, scope)
        if not holds:
            if guard.text.startswith("type("):
                strangers.append(guard.text[len("type(") :].partition(") is ")[0])
            yield guard
    for group in (near, far):
        repeated = _repeated([g.text for g in group], scope)
        if repeated:
            text = f"{repeated[0]} is not {repeated[1]}"
            yield Demand(text, "tensors must be different objects")
    for distinct in guard_set.distinct_tensors:
        text = call_text("disjoint", distinct)
        if not _holds(text, {**scope, "disjoint": disjoint}):
            yield Demand(text, "tensors must not share memory")


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
        elif not isinstance(guard, Demand):
            tree = ast.parse(guard.text.strip(), mode="eval")
            roots = {*scope, "user_globals", "cells"}
            changed.update(_paths(tree, roots))
    return replace(known, changed=frozenset(changed), sizes=sizes, fixed=False)


def only_sizes_changed(guard: Guard | TensorGuard, scope: Mapping[str, Any]) -> bool:
    """Whether a guard that failed would hold for this tensor at other sizes."""
    return isinstance(guard, TensorGuard) and bool(_changed_sizes(guard, scope))


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
    return TensorFacts(None, facts_row(guard)).reference(value)


def _repeated(texts: Iterable[str], scope: Mapping[str, Any]) -> tuple[str, str] | None:
    seen: dict[int, str] = {}
    for text in texts:
        try:
            key = id(eval(text, dict(scope)))
        except Exception:  # A path that does not exist here repeats nothing.
            continue
        if key in seen:
            return text, seen[key]
        seen[key] = text
    return None


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


@dataclass(frozen=True)
class Miss:
    """Why a specialization does not fit a call.

    Attributes:
        failed: The guards that do not hold.
        scope: The names that their texts use.
    """

    failed: tuple[Guard | TensorGuard, ...]
    scope: Mapping[str, Any]

    @property
    def description(self) -> str:
        """The first guard that failed, in one line."""
        if not self.failed:
            return "its guard"
        return describe_failure(self.failed[0], self.scope)

    def teach(self, known: Hints) -> Hints:
        """Returns `known` and what this says of what varies between calls."""
        return learn(known, self.failed, self.scope)


class Guarded(Protocol):
    """What has guards: a specialization."""

    @property
    def guards(self) -> GuardSet:
        """The conditions."""

    @property
    def state(self) -> GlobalState:
        """The global state that it needs."""


def miss_of(
    guarded: Guarded, arguments: Mapping[str, Any], names: Mapping[str, Any]
) -> Miss:
    """Returns why a specialization does not fit.

    Args:
        guarded: The specialization.
        arguments: Value of each parameter, under the names that guards have for them.
        names: `user_globals` and `cells`.
    """
    failed = tuple(failures(guarded.guards, arguments, names, guarded.state))
    return Miss(failed, {**names, **guarded.guards.bindings, **arguments})


def nearest_miss(
    numbered: Mapping[int, Guarded],
    arguments: Mapping[str, Any],
    names: Mapping[str, Any],
) -> tuple[int, Miss]:
    """Returns the specialization that is nearest to fitting, and why it does not.

    Many sizes that changed are nearer than one object of another kind: that of a first call
    without a cache does not hide that the cache grows.
    """
    found: dict[int, Miss] = {}
    ranks: list[tuple[int, int, int]] = []
    for number, guarded in numbered.items():
        miss = found[number] = miss_of(guarded, arguments, names)
        other = sum(not only_sizes_changed(g, miss.scope) for g in miss.failed)
        ranks.append((other, len(miss.failed), number))
    number = min(ranks)[-1]
    return number, found[number]
