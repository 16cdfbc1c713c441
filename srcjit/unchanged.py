"""What a guard has found out about the objects below its arguments stays true until they change.

A module with many parts has a guard with many conditions on classes, hooks and attributes. All
of them only look into dictionaries, and CPython counts the changes of every dictionary:

    unchanged = Unchanged(
        "self",
        conditions=("type(self) is Net", "not self.up._forward_hooks"),
        tensors=("self.up._parameters['weight']",),
    )

    def guard(self, x):
        if unchanged.now(self) is None:
            if type(self) is not Net or self.up._forward_hooks:
                return False
            if not tensors.check(self.up._parameters['weight']):
                return False
            unchanged.learn(self)
        return True

`Unchanged.now` compares the versions of dictionaries and classes, and of the tensors what
`TensorFacts` asks of them (`runtime/unchanged.cpp`). Where it cannot know (an argument that was
not seen before, a Python without versions, a list on a path) it returns None, and all is asked
again. `Paths` reads many of an object's tensors the same way.

NOTE: a condition may be left to it only if nothing but classes of objects, and contents of
dictionaries, decide it: `may_be_learned`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from srcjit.diagnostics import CompilerFault
from srcjit.guard_text import parsed
from srcjit.logs import root as log
from srcjit.runtime import cpp_build, reader

_ATOMS = (int, float, complex, bool, str, bytes, type(None))
"""Classes of objects that never change."""

_TABLES = (dict, OrderedDict)
"""Dictionaries whose length and items are what `dict` says they are."""

KEPT = 4
"""Snapshots of one guard, for different arguments."""

LONGEST_WAIT = 64
"""Guards that ask everything before something is learned again."""

LEAST = 8
"""Conditions that must be saved for a snapshot to be worth its text."""

Snapshot = Callable[..., tuple[Any, ...] | None]


class Unchanged:
    """Snapshots of what one guard looks at.

    Args:
        roots: The arguments that all paths begin at, separated by commas.
        conditions: What holds whenever `learn` is called; see `may_be_learned`.
        tensors: Paths of tensors whose facts hold, too.

    Attributes:
        now: From the roots to an empty tuple, or None if something may have changed.
    """

    whole = True
    """Whether facts of the tensors are remembered, or only which tensors they are."""

    longest_wait = LONGEST_WAIT

    def __init__(
        self, roots: str, conditions: tuple[str, ...], tensors: tuple[str, ...] = ()
    ) -> None:
        self.roots = tuple(name.strip() for name in roots.split(","))
        self.conditions, self.tensors = conditions, tensors
        self.snapshots: tuple[Snapshot, ...] = ()
        self.now: Snapshot = _nothing
        self._walk: Callable[..., tuple[Any, ...]] | None = None
        self._steps: dict[str, _Step] = {}
        # What changes at every call is learned more and more rarely.
        self._wait = self._patience = 1
        self._may_learn = sys.version_info < (3, 13) and cpp_build.compiler_available()
        if self._may_learn:
            reader.start()

    def learn(self, *roots: Any) -> None:
        """Takes a snapshot; all conditions hold now.

        Raises:
            CompilerFault: Under `SRCJIT_RAISE=1`. Otherwise nothing is learned any more.
        """
        self._wait -= 1
        if self._wait > 0 or not self._may_learn:
            return
        try:
            self._learn(roots)
        except Exception as problem:
            self._may_learn = False
            fault = CompilerFault(f"learning what a guard looks at failed: {problem!r}")
            if os.environ.get("SRCJIT_RAISE") == "1":
                raise fault from problem
            log.warning("%s", fault, exc_info=problem)

    def _learn(self, roots: tuple[Any, ...]) -> None:
        extension = reader.loaded()
        if extension is None:
            return
        self._patience = self._wait = min(2 * self._patience, self.longest_wait)
        found = self._objects(roots)
        if found is None:
            return
        made = extension.snapshot(len(roots), *found, self.whole)
        if made is not None:
            self.snapshots = (made, *self.snapshots)[:KEPT]
            self.now = made if len(self.snapshots) == 1 else self._any

    def _any(self, *roots: Any) -> tuple[Any, ...] | None:
        for snapshot in self.snapshots:
            found = snapshot(*roots)
            if found is not None:
                return found
        return None

    def _objects(
        self, roots: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
        """The objects of a snapshot, each behind those that lead to it, and its leaves."""
        if self._walk is None:
            self._steps = self._planned()
            self._walk = written(self.roots, list(self._steps))
        values = dict(zip(self._steps, self._walk(*roots), strict=True))
        rows: dict[int, Any] = {}
        for path, (parent, name, kinds) in self._steps.items():
            value = values[path]
            if parent is not None and not _is_plain_step(values[parent], name, value):
                return None
            if not all(_FITS[kind](value) for kind in kinds):
                return None
            if _has_version(value):
                rows.setdefault(id(value), value)
        return tuple(rows.values()), tuple(values[path] for path in self.tensors)

    def _planned(self) -> dict[str, _Step]:
        """All places on the paths, each behind its parent."""
        steps: dict[str, _Step] = {root: (None, "", {"parent"}) for root in self.roots}
        for text in self.conditions:
            # What is looked for in a class is part of its version, which instances have.
            if not class_looked_into(text):
                for path, kind in _places(parsed(text).body):
                    _add(steps, path, kind)
        for text in self.tensors:
            _add(steps, parsed(text).body, "any")
        return steps


_Step = tuple[str | None, str, set[str]]
"""The place that leads to this one, by which name, and what has to be true of what is there.

A name begins with `.` if it is an attribute, with `[` if it is a key, with `=` if it is a key
of `__dict__` and with `#` if it is an index of a tuple.
"""

_FITS: dict[str, Callable[[Any], bool]] = {
    "any": lambda value: True,
    "parent": lambda value: _has_version(value),
    "tuple": lambda value: type(value) is tuple,
    "typed": lambda value: _has_version(value) or _is_constant(value),
    "constant": lambda value: _is_constant(value),
    "truth": lambda value: type(value) in _TABLES or _is_constant(value),
    "table": lambda value: type(value) in _TABLES or _is_constant(value),
    "ordered": lambda value: type(value) is dict,
}
"""What a place must be so that versions decide about it, for what is asked of it."""


def _add(steps: dict[str, _Step], path: ast.expr, kind: str) -> None:
    """Notes a place behind all that lead to it."""
    if isinstance(path, ast.Attribute) and path.attr == "__dict__":
        # What is read from the dictionary of an instance is an attribute without a class.
        path, kind = path.value, "parent"
    text = ast.unparse(path)
    if text not in steps:
        assert isinstance(path, (ast.Attribute, ast.Subscript))
        parent, step = path.value, "."
        leads = "parent"
        if isinstance(path, ast.Attribute):
            name = path.attr
        else:
            assert isinstance(path.slice, ast.Constant)
            name, step = str(path.slice.value), "["
            if type(path.slice.value) is int:
                step, leads = "#", "tuple"
            if isinstance(parent, ast.Attribute) and parent.attr == "__dict__":
                parent, step = parent.value, "="
        _add(steps, parent, leads)
        steps[text] = ast.unparse(parent), step + name, set()
    steps[text][2].add(kind)


class Paths(Unchanged):
    """Reads what many paths lead to, all at once.

        paths = Paths("self", "self.up._parameters['weight']", "self.up._parameters['bias']")

        def forward(self, x):
            return segment_0(x, *(paths.now(self) or paths.read(self)))

    Args:
        roots: What all paths begin at, separated by commas.
        paths: What is read.

    Attributes:
        now: From the roots to the tuple of what was found, or None if it may have changed.
    """

    whole = False

    def __init__(self, roots: str, *paths: str) -> None:
        super().__init__(roots, (), paths)
        self._read = written(self.roots, list(paths))

    def read(self, *roots: Any) -> tuple[Any, ...]:
        """Goes over the paths."""
        found = self._read(*roots)
        self.learn(*roots)
        return found


def written(roots: tuple[str, ...], paths: list[str]) -> Callable[..., tuple[Any, ...]]:
    """Writes what reads all places."""
    scope: dict[str, Any] = {}
    exec(f"def walk({', '.join(roots)}):\n    return ({', '.join(paths)},)", scope)
    walk: Callable[..., tuple[Any, ...]] = scope["walk"]
    return walk


def _is_plain_step(parent: Any, name: str, value: Any) -> bool:
    """Whether versions of the parent decide what is found below it."""
    step, name = name[0], name[1:]
    if step == "#":
        return type(parent) is tuple
    if (type(parent) in _TABLES) != (step == "["):
        return False
    if step != ".":
        return True
    cls = type(parent)
    plain: Any = object.__getattribute__
    if cls.__getattribute__ is not plain:
        return False
    of_class = inspect.getattr_static(cls, name, None)
    if name in parent.__dict__:
        return not hasattr(type(of_class), "__set__")
    return of_class is value and _is_constant(value)


def _nothing(*roots: Any) -> None:
    return None


def _has_version(value: Any) -> bool:
    if type(value) in _TABLES:
        return True
    if isinstance(value, (dict, type, torch.Tensor)):
        return False  # what these hold, others decide, too
    return type(getattr(value, "__dict__", None)) is dict


def _is_constant(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_constant, value))
    return type(value) in _ATOMS


# ── Which conditions ────────────────────────────────────────────────────────────────


def may_be_learned(
    text: str,
    roots: Collection[str],
    names: Collection[str],
    tuples: Collection[str] = (),
) -> bool:
    """Whether classes of objects and contents of dictionaries alone decide a condition.

    Args:
        text: The condition.
        roots: Parameters that paths may begin at.
        names: Names of objects that are always the same.
        tuples: Paths to what is surely a tuple, which nothing changes.

    >>> [
    ...     may_be_learned(t, ["self"], ["Net"])
    ...     for t in (
    ...         "type(self) is Net",
    ...         "self.parts[0].on",
    ...         "tuple(self._modules) == ('up',)",
    ...     )
    ... ]
    [True, False, True]
    """
    fixed = {*names, *dir(builtins)} - {*roots}
    found = list(_places(parsed(text).body, fixed))
    return bool(found) and all(is_path(path, roots, tuples) for path, _ in found)


def class_looked_into(text: str) -> str:
    """Returns the name of a class whose own dictionary alone decides a condition, or "".

    >>> class_looked_into("Net.__dict__.keys().isdisjoint(('up', 'norm'))")
    'Net'
    """
    match parsed(text).body:
        case ast.Call(
            func=ast.Attribute(
                value=ast.Call(
                    func=ast.Attribute(
                        value=ast.Attribute(value=ast.Name(name), attr="__dict__"),
                        attr="keys",
                    ),
                    args=[],
                    keywords=[],
                ),
                attr="isdisjoint",
            ),
            args=[other],
            keywords=[],
        ) if _is_literal(other):
            return name
    return ""


def class_required(text: str) -> tuple[str, str]:
    """Returns what must be of which class for a condition to hold, or two empty texts.

    >>> class_required("type(self.up) is Net")
    ('self.up', 'Net')
    """
    match parsed(text).body:
        case ast.Compare(
            left=ast.Call(func=ast.Name("type"), args=[path], keywords=[]),
            ops=[ast.Is()],
            comparators=[ast.Name(name)],
        ):
            return ast.unparse(path), name
    return "", ""


def is_about(text: str, roots: Collection[str], tuples: Collection[str] = ()) -> bool:
    """Whether all places that a condition asks begin at one of the roots."""
    return all(is_path(path, roots, tuples) for path, _ in _places(parsed(text).body))


def is_path(
    path: ast.expr, roots: Collection[str], tuples: Collection[str] = ()
) -> bool:
    """Whether a path goes over attributes, string keys and tuples from one of the roots."""
    while not isinstance(path, ast.Name):
        if isinstance(path, ast.Subscript):
            key = path.slice
            if not isinstance(key, ast.Constant):
                return False
            index = type(key.value) is int and ast.unparse(path.value) in tuples
            if not (index or type(key.value) is str):
                return False
        elif not isinstance(path, ast.Attribute):
            return False
        path = path.value
    return path.id in roots


def root_of_path(text: str) -> str:
    """Returns the name that a path over attributes and string keys begins at, or "".

    >>> root_of_path("self.up['w']"), root_of_path("x"), root_of_path("self.parts[0].w")
    ('self', '', '')
    """
    path = parsed(text).body
    if isinstance(path, ast.Name):
        return ""
    root = path
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    return root.id if isinstance(root, ast.Name) and is_path(path, [root.id]) else ""


_UNREADABLE = ast.Constant(None)
"""A place that is no path, for what cannot be learned."""


def _places(
    tree: ast.expr, fixed: Collection[str] | None = None
) -> Iterator[tuple[ast.expr, str]]:
    """Yields what a condition asks, and of which kind it must be for that to be enough."""
    match tree:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _places(value, fixed)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _places(operand, fixed)
        case ast.Compare(
            left=ast.Call(func=ast.Name("type"), args=[path], keywords=[]),
            ops=[ast.Is()],
            comparators=[ast.Name(name)],
        ) if fixed is None or name in fixed:
            yield path, "typed"
        case ast.Compare(
            left=ast.Call(
                func=ast.Name("tuple" | "len" as of), args=[path], keywords=[]
            ),
            ops=[ast.Eq()],
            comparators=[other],
        ) if _is_literal(other):
            yield path, "ordered" if of == "tuple" else "table"
        case ast.Compare(left=path, ops=[ast.Eq()], comparators=[other]) if _is_literal(
            other
        ) and isinstance(path, (ast.Attribute, ast.Subscript)):
            yield path, "constant"
        case ast.Compare(
            left=path, ops=[ast.Is() | ast.IsNot()], comparators=[other]
        ) if isinstance(path, (ast.Attribute, ast.Subscript)) and (
            isinstance(other, ast.Constant)
            or (isinstance(other, ast.Name) and (fixed is None or other.id in fixed))
        ):
            yield path, "any"
        case ast.Call(
            func=ast.Attribute(
                value=ast.Call(
                    func=ast.Attribute(value=path, attr="keys"), args=[], keywords=[]
                ),
                attr="isdisjoint",
            ),
            args=[other],
            keywords=[],
        ) if _is_literal(other) and (
            isinstance(path, ast.Attribute) and path.attr == "__dict__"
        ):
            yield path, "parent"
        case ast.Attribute() | ast.Subscript():
            yield tree, "truth"
        case _:
            yield _UNREADABLE, "any"


def _is_literal(tree: ast.expr) -> bool:
    if isinstance(tree, ast.Tuple):
        return all(map(_is_literal, tree.elts))
    return isinstance(tree, ast.Constant)
