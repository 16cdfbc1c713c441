"""The data that passes hand to one another. All of it is immutable once built."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from srcjit.diagnostics import Diagnostic
from srcjit.origin import Origin
from srcjit.source import FunctionSource


@dataclass(frozen=True)
class Guard:
    """One condition under which a specialization is valid.

    `text` is a Python expression over the function's parameters, `user_globals` (the dict of
    the user's module), `cells` (name -> closure cell) and the names in `GuardSet.bindings`.
    Guards are evaluated in order, so one may rely on those before it.
    """

    text: str
    reason: str = ""
    origin: Origin | None = None


@dataclass(frozen=True)
class TensorGuard:
    """Facts about one tensor reached by the expression `text` (checked by C++ in one call).

    `size` and `stride` entries are ints, or None where the dimension is symbolic.
    """

    text: str
    cls: type
    dtype: torch.dtype
    device: torch.device
    size: tuple[int | None, ...]
    stride: tuple[int | None, ...]
    requires_grad: bool
    reason: str = ""
    is_inference: bool = False


_GUARD_NAMES = frozenset(dir(builtins)) | {"torch", "user_globals", "cells"}


def guard_parameter(name: str) -> str:
    """Returns what a guard calls the parameter `name`: not what it calls something else.

    >>> guard_parameter("x"), guard_parameter("type")
    ('x', 'argument_type')
    """
    return f"argument_{name}" if name in _GUARD_NAMES else name


@dataclass(frozen=True)
class GuardSet:
    """All conditions of one specialization, in the order in which they must be checked."""

    guards: tuple[Guard | TensorGuard, ...]
    bindings: Mapping[str, Any] = field(default_factory=dict)
    distinct_tensors: tuple[tuple[str, ...], ...] = ()
    """Groups of expressions of tensors: those of a group must be different objects with
    disjoint memory."""


@dataclass(frozen=True)
class Hints:
    """What earlier specializations of a function taught: what to generalize now.

    `changed` holds the paths (as a guard spells them: `n`, `user_globals['scale']`,
    `self.eps`) in conditions that an earlier specialization needed and that do not hold
    now. `sizes` maps the expression of a tensor to the dimensions whose size has changed
    between calls, or that the user marked as dynamic; nothing but its sizes and strides
    had changed.
    """

    changed: frozenset[str] = frozenset()
    sizes: Mapping[str, frozenset[int]] = field(default_factory=dict)
    resumed: frozenset[Origin] = frozenset()
    """Where the functions broke whose rest this function is the rest of, and the tests of the
    `while` loops that they broke in."""
    kept: frozenset[str] = frozenset()
    """Variables of which what keeps them may hold an object; see `srcjit.passes.keeping`."""
    unseen: frozenset[str] = frozenset()
    """Parameters that are tensors which only segments have seen."""
    goes_on: bool = False
    """Whether the call that it is a part of goes on when it returns: a body, and its rest."""
    fixed: bool = False
    """Nothing may be symbolic whose value is at hand: PyTorch or a pass cannot do with it."""


@dataclass(frozen=True)
class Segment:
    """A maximal run of traced tensor operations between two graph breaks.

    `graph_module` is at torch level; its placeholders are in the order of the call in the
    residual program. `inputs` holds a FakeTensor, SymInt, SymFloat or number for each.
    """

    name: str
    graph_module: torch.fx.GraphModule
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    grad_enabled: bool
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """fx node name -> origin."""
    may_raise: bool = False
    """If it fails, the program does again what it was to do: until all of it is computed it
    must not write to its inputs."""


@dataclass(frozen=True)
class SegmentCode:
    """The text of one segment at one stage.

    `function` is `def <name>(<placeholders>): ...`, returning a tuple in the order of the
    graph's outputs (always a tuple). `definitions` (kernels, constants) stands before it.
    `bindings` are objects that text cannot spell (a foreign backend's callable).
    """

    name: str
    function: str
    definitions: str = ""
    imports: tuple[str, ...] = ()
    bindings: Mapping[str, Any] = field(default_factory=dict)
    kernels: int = 0
    numerics: bool = False
    """Whether it is right only as long as libraries may round what they might."""


@dataclass(frozen=True)
class Continuation:
    """A function that the compiler wrote (resume function, outlined body), compiled lazily.

    `source.tree` is its text; it runs with `user_globals` and sees the closure cells `cells`.
    """

    name: str
    source: FunctionSource
    user_globals: dict[str, Any]
    cells: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "resume"
    names: Mapping[str, Any] = field(default_factory=dict)
    """Objects of the compiler that the text names."""
    dynamic: frozenset[str] = frozenset()
    """Parameters that are run-time numbers: not specialized on unless something needs them."""
    resumed: frozenset[Origin] = frozenset()
    """Where the functions broke whose rest it is."""
    kept: frozenset[str] = frozenset()
    """Variables of which what keeps them may hold an object; see `srcjit.passes.keeping`."""
    unseen: frozenset[str] = frozenset()
    """Parameters that are tensors which only segments have seen."""
    goes_on: bool = False
    """Whether the call that it is a part of goes on when it returns: a body, and its rest."""
    called: bool = False
    """Whether it is (the rest of) a function that the program calls, not of its own."""


NOT_BOUND = object()
"""Among the objects that a residual program names: a variable of the function around the
user's that is not bound."""


@dataclass(frozen=True)
class Native:
    """A statement block that runs natively in another module's globals (from an inlined callee)."""

    name: str
    source: FunctionSource
    user_globals: dict[str, Any]
    cells: Mapping[str, Any] = field(default_factory=dict)
    own_names: frozenset[str] = frozenset()
    """Names in it that are the user's, whatever the program means by them."""


@dataclass(frozen=True)
class Residual:
    """The residual program of one specialization.

    `text` is one `def` with the user's parameters. `line_map` maps a line of `text` (from 1)
    to its origin. `constants` are Python objects that the text names but cannot spell.
    """

    text: str
    line_map: Mapping[int, Origin]
    constants: Mapping[str, Any] = field(default_factory=dict)
    keepers: frozenset[str] = frozenset()
    """Variables that hold a `Kept`; see `srcjit.passes.keeping`."""
    notes: Mapping[int, str] = field(default_factory=dict)
    """Line -> what the comment behind it says instead of the user's line."""


@dataclass(frozen=True)
class Specialized:
    """What the front end makes of one function for one set of arguments."""

    name: str
    source: FunctionSource
    guards: GuardSet
    segments: tuple[Segment, ...]
    residual: Residual
    continuations: tuple[Continuation, ...]
    natives: tuple[Native, ...]
    breaks: tuple[Diagnostic, ...]
    settle: Callable[[GuardSet], GuardSet] | None = None
    """Adds the conditions on symbolic sizes: after the segments' code, which may add some."""
    steps: tuple[Segment, ...] = ()
    """Parts of segments, for when the whole has failed."""
    original: str | None = None
    """The residual program's name of the user's function, for when a segment has failed."""
    example: str | None = None
    """Arguments like those that it was made for, as text; None if there is none."""
