"""A program that is one recorded segment is replayed straight from its dispatch stub.

    def forward(self, x):
        replayed = shortcut_0(self, x)
        if replayed is not None:
            return replayed
        if guard_0(self, x):
            return forward_0(self, x)
        return specialize(self, x)(self, x)

`shortcut_0` (`runtime/shortcuts.h`) asks what the guard asks at each call (`srcjit.questions`).
Then it compares what the guard has learned of the objects below its arguments, and where all
tensors lie, in one go and launches the recording; so nothing is compared twice, and nothing
runs between the last comparison and the launch. It returns None where anything is new; then
all goes its usual way.

A program has one if its mode is `"reduce-overhead"`, all it does is to return results of one
segment, and what its guard learns leads to all inputs that are no arguments.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from srcjit.diagnostics import CompilerFault
from srcjit.logs import root as log
from srcjit.passes.program import guard_parameter
from srcjit.questions import questions
from srcjit.unchanged import Paths, Unchanged

if TYPE_CHECKING:
    from srcjit.compiler import Specialization
    from srcjit.runtime.graphs import Graphs


Shortcut = Callable[..., Any]
"""Takes one value for each parameter; returns what the program does, or None."""


def nothing_replayed(*values: Any) -> None:
    """The shortcut to a specialization that has been forgotten."""


class Shortcuts:
    """The shortcuts of one dispatcher, by the numbers of its specializations.

    Args:
        changed: Called when there is one more, or one less.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.found: dict[int, Shortcut] = {}
        self._wanted: dict[int, _Wanted] = {}
        self._changed = changed

    def watch(self, number: int, specialization: Specialization) -> None:
        """Makes a shortcut to a specialization as soon as there is a recording."""
        if specialization.options.mode != "reduce-overhead":
            return
        graphs = _only_graphs(specialization.guard.__globals__)
        if graphs is not None:
            wanted = self._wanted[number] = _Wanted(
                self, number, specialization, graphs
            )
            graphs.watchers.add(wanted)
            if graphs.recorded:
                wanted.recorded()

    def put(self, number: int, shortcut: Shortcut | None) -> None:
        """Changes the shortcut to a specialization that has not been forgotten."""
        if number in self._wanted and self.found.get(number) is not shortcut:
            self.found = {n: s for n, s in self.found.items() if n != number}
            if shortcut is not None:
                self.found[number] = shortcut
            self._changed()

    def around(
        self, number: int, tests: list[str], values: str, names: Callable[[str], str]
    ) -> tuple[list[str], dict[str, Any]]:
        """Puts the lines of a shortcut around those that try its specialization.

        Args:
            number: The specialization.
            tests: Its lines.
            values: One value for each parameter, as text.
            names: What the stub calls something.

        Returns:
            The lines, and what they name.
        """
        shortcut = self.found.get(number)
        if shortcut is None:
            return tests, {}
        replay, replayed = names(f"shortcut_{number}"), names("replayed")
        lines = [
            f"{replayed} = {replay}({values})",
            f"if {replayed} is not None:",
            f"    return {replayed}",
            *tests,
        ]
        return lines, {replay: shortcut}

    def clear(self) -> None:
        """Forgets all of them."""
        self._wanted, self.found = {}, {}


@dataclass(eq=False)
class _Wanted:
    """A specialization that has no shortcut yet, or has one."""

    shortcuts: Shortcuts
    number: int
    specialization: Specialization
    graphs: Graphs

    def recorded(self) -> None:
        """There is a recording.

        Raises:
            CompilerFault: Under `SRCJIT_RAISE=1`. Otherwise there is no shortcut: this is
                called in the middle of a call of the program's.
        """
        try:
            self.shortcuts.put(self.number, self._made())
        except Exception as problem:
            fault = CompilerFault(f"no shortcut could be made: {problem!r}")
            if os.environ.get("SRCJIT_RAISE") == "1":
                raise fault from problem
            log.warning("%s", fault, exc_info=problem)

    def _tired(self) -> None:
        self.shortcuts.put(self.number, None)

    def _made(self) -> Shortcut | None:
        from srcjit.runtime import replays

        guard = self.specialization.guard
        known = [v for v in guard.__globals__.values() if type(v) is Unchanged]
        if len(known) != 1 or self.graphs.front is None or self.graphs.copied:
            return None
        (unchanged,) = known
        program = _program(self.specialization, unchanged, self.graphs)
        if program is None:
            return None
        places, picks = program
        asked = questions(guard, self.specialization.text)
        made: Shortcut | None = replays.shortcut(
            self.graphs.front, unchanged, self._tired, asked, places, picks
        )
        return made


def _only_graphs(scope: Mapping[str, Any]) -> Graphs | None:
    from srcjit.runtime.graphs import Graphs

    found = [value for value in scope.values() if type(value) is Graphs]
    return found[0] if len(found) == 1 else None


_Places = tuple[int, tuple[int, ...], int, tuple[int, ...]]


def _program(
    specialization: Specialization, unchanged: Unchanged, graphs: Graphs
) -> tuple[_Places, tuple[int, ...] | None] | None:
    """What a program reads and returns, for `replays.shortcut`; None if it does more."""
    residual = specialization.specialized.residual
    definition = ast.parse(residual.text).body[0]
    assert isinstance(definition, ast.FunctionDef)
    found = _call_and_picks(definition.body)
    if found is None:
        return None
    call, picks = found
    scope = specialization.guard.__globals__
    match call:
        case ast.Call(func=ast.Name(name), args=arguments, keywords=[]) if (
            scope.get(name) == graphs.segment
        ):
            pass
        case _:
            return None
    parameters = [a.arg for a in _all_arguments(definition.args)]
    values = {text: n for n, text in enumerate(map(guard_parameter, parameters))}
    leaves = {text: -1 - n for n, text in enumerate(unchanged.tensors)}
    if tuple(values) != specialization.parameters:
        return None
    places = {**leaves, **{p: n for n, p in enumerate(parameters)}}
    inputs: list[int] = []
    for argument in arguments:
        for text in _texts(argument, residual.constants):
            if text not in places:
                return None
            inputs.append(places[text])
    roots = tuple(values[root] for root in unchanged.roots)
    return (len(values), roots, len(leaves), tuple(inputs)), picks


def _all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    found = [*arguments.posonlyargs, *arguments.args]
    found += [arguments.vararg] if arguments.vararg else []
    found += arguments.kwonlyargs
    return found + ([arguments.kwarg] if arguments.kwarg else [])


def _texts(argument: ast.expr, constants: Mapping[str, Any]) -> list[str]:
    """The paths that an argument of a segment stands for."""
    match argument:
        case ast.Starred(
            value=ast.BoolOp(
                values=[
                    ast.Call(func=ast.Attribute(value=ast.Name(name), attr="now")),
                    _,
                ]
            )
        ) if isinstance(constants.get(name), Paths):
            return list(constants[name].tensors)
    return [ast.unparse(argument)]


def _call_and_picks(
    body: list[ast.stmt],
) -> tuple[ast.expr, tuple[int, ...] | None] | None:
    r"""The only call of a program, and which of its results a tuple returns.

    >>> _call_and_picks(ast.parse("return segment_0(x)[0]").body)[1]
    >>> _call_and_picks(ast.parse("a, b = segment_0(x)\nreturn (b, a)").body)[1]
    (1, 0)
    """
    match body:
        case [ast.Return(value=ast.Subscript(value=call, slice=ast.Constant(value=0)))]:
            return call, None
        case [
            ast.Assign(targets=[ast.Tuple(elts=targets)], value=call),
            ast.Return(value=ast.Tuple(elts=returned)),
        ]:
            names = [ast.unparse(target) for target in targets]
            picked = [ast.unparse(value) for value in returned]
            if set(picked) <= set(names):
                return call, tuple(map(names.index, picked))
    return None
