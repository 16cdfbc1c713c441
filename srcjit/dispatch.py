"""Dispatch: from a call to the specialization that fits it.

A jitted function *is* its dispatch stub: a plain Python function with the user's signature,
whose code object is replaced whenever a specialization is added:

    def wave(x):
        if guard_0(x):
            return wave_0(x)
        if guard_1(x):
            return wave_1(x)
        return specialize(x)(x)

So CPython binds the arguments, a hit costs one guard and one call, and nothing is locked.
On a miss, `specialize` compiles under a lock (and never runs the user's function under it),
adds the specialization, writes the stub anew, and returns what to call.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any, TypeVar

from srcjit import collector, control, interrupts, ready, shared
from srcjit.compiler import Specialization, compile_specialization
from srcjit.continuations import make_stub
from srcjit.diagnostics import (
    CompilerFault,
    Diagnostic,
    GraphBreak,
    GraphBreakError,
    render,
)
from srcjit.dynamo import unobserved
from srcjit.facts import foreign_state
from srcjit.family import COPIES, Family
from srcjit.lines import not_counted, register_lines
from srcjit.load import closure_cells
from srcjit.logs import held, logger, warn_once
from srcjit.logs import root as log
from srcjit.misses import miss_of, nearest_miss
from srcjit.options import Options
from srcjit.origin import Origin
from srcjit.passes.program import Hints, guard_parameter
from srcjit.shortcut import Shortcuts, nothing_replayed
from srcjit.signature import Signature
from srcjit.source import FunctionSource, SourceUnavailable, find_source
from srcjit.stub import (
    StubNames,
    dress,
    empty_stub,
    identifier,
    stub_defaults,
    stub_globals,
)
from srcjit.tracebacks import merged, unseen

RAISE = "SRCJIT_RAISE"
"""Environment variable: if 1, a compiler fault is raised instead of run natively."""

T = TypeVar("T")

_stub_numbers = itertools.count()


class Dispatcher:
    """The specializations of one function and the stub that chooses between them.

    Attributes:
        function: The user's function (or a continuation's).
        options: What it was jitted with.
        stub: What the user calls.
        stub_text: The stub as text.
        disabled: Why nothing more is compiled, or None.
    """

    def __init__(
        self,
        function: FunctionType,
        options: Options,
        *,
        source: FunctionSource | None = None,
        stub: FunctionType | None = None,
        hints: Hints | None = None,
        family: Family | None = None,
    ) -> None:
        self.function = function
        self.options = options
        self._continues = family is not None
        self._family = family or Family(function.__qualname__)
        self.signature = Signature.of(function)
        self.disabled: str | None = None
        self.first_hints = hints or Hints()
        self.hints = self.first_hints
        self.lock = threading.RLock()
        self.stub_text = ""
        self._source = source
        self._name = identifier(function.__name__)
        self._names = StubNames(self.signature.parameters)
        self._numbered: dict[int, Specialization] = {}
        self._next_number = 0
        self._shortcuts = Shortcuts(self.regenerate)
        self._defaults = stub_defaults(function, self.signature)
        self._writing = threading.Lock()
        self._written: dict[str, CodeType] = {}
        self._outdated = True
        weakref.finalize(self, _forget_lines, self._written)
        if stub is None:
            stub = FunctionType(empty_stub.__code__, stub_globals())
            dress(stub, function, self._defaults)
        self.stub = stub
        self._globals = stub.__globals__
        self._globals[self._names("specialize")] = self.specialize
        self._globals[self._names("native")] = function
        self.regenerate()
        stub.__srcjit__ = self  # type: ignore[attr-defined]
        control.register(self)

    @property
    def specializations(self) -> list[Specialization]:
        """All specializations, in the order in which the stub tries them."""
        return list(self._numbered.values())

    # ── Missing ─────────────────────────────────────────────────────────────────────

    @unobserved
    def specialize(self, *values: Any) -> Callable[..., Any]:
        """Returns what to run for a call that no specialization's guard has accepted.

        Args:
            *values: One value for each parameter, `*args` as a tuple and so on.

        Returns:
            A specialization that fits after all, a new one, or the user's function.
        """
        # A miss inside the compiler would compile what is being compiled; and a thread
        # that compiles holds a lock that another dispatcher's lock must not wait for.
        if control.eager() or control.is_compiling() or foreign_state() is not None:
            return self.function
        if self.disabled:
            return self._existing(values) or self.function
        # Signals wait, and what is logged meanwhile reaches the program's handlers when no
        # lock is held.
        with interrupts.later(), held():
            self._attempt(ready.load_compiler)
            made = None
            hold = collector.Hold()
            try:
                with self.lock:
                    found = self._existing(values)
                    if found is None:
                        made = self._attempt(lambda: self._shared(values))
                        if made is None and self._may_compile(values):
                            made = self._attempt(lambda: self._compile(values))
                        if made is not None:
                            self.add(made)
                            found = made.entry
                    elif self._outdated:
                        self.regenerate()
            finally:
                hold.release(made is not None)
        return found or self.function

    def _shared(self, values: tuple[Any, ...]) -> Specialization | None:
        """Returns what another function with this code has had compiled, if it fits."""
        # Who watches wants to see everything compiled.
        if control.observers or len(self._numbered) >= self.options.limit:
            return None
        return shared.find(self.function, self.options, values)

    def _may_compile(self, values: tuple[Any, ...]) -> bool:
        """False if the function runs natively for want of a specialization that fits."""
        if self.disabled is not None:  # by another thread, meanwhile
            return False
        if self._continues and self._too_many_copies():
            return False
        if not self._numbered:
            return True
        what = self._attempt(lambda: self._learn(values))
        if what is None or not control.may_recompile(self.function.__qualname__, what):
            return False
        if len(self._numbered) < self.options.limit:
            return True
        self.disabled = f"{self.options.limit} specializations"
        self.regenerate()
        warn_once(
            (_place(self.function), self.function.__qualname__, self.options.limit),
            "%s: `%s` has reached its limit of %d specializations; calls that need "
            "another one run natively. What keeps failing: %s",
            _place(self.function),
            self.function.__qualname__,
            self.options.limit,
            what,
        )
        return False

    def _too_many_copies(self) -> bool:
        """Whether this part of the user's function has been compiled often enough.

        If so, it runs natively from now on, and the user is told once.
        """
        if not self._family.is_full(self.source, self.options.limit):
            return False
        most = COPIES * self.options.limit
        self.disabled = f"{most} specializations of what begins here"
        self.regenerate()
        if self._family.tell(self.source):
            log.warning(
                "%s: `%s` begins here and has been compiled %d times, each for something "
                "else that came before it; calls that need another one run natively",
                _place(self.function),
                self.function.__qualname__,
                most,
            )
        return True

    def _learn(self, values: tuple[Any, ...]) -> str:
        """Notes and returns why the nearest specialization does not fit."""
        arguments, names = self._for_guards(values), self._guard_names()
        number, miss = nearest_miss(self._numbered, arguments, names)
        self.hints, what = miss.teach(self.hints), miss.description
        logger("recompiles").info(
            "%s: `%s` fits no specialization; nearest is %d, which needs %s",
            _place(self.function),
            self.function.__qualname__,
            number,
            what,
        )
        control.notify("recompiles", self, what)
        return what

    def _existing(self, values: tuple[Any, ...]) -> Callable[..., Any] | None:
        """Looks again: another thread may have compiled it, or a fast check be outdated."""
        for specialization in self.specializations:
            if specialization.guard(*values):
                return specialization.entry
        for specialization in self.specializations:
            specialization.state.refresh()
            if specialization.guard(*values):
                return specialization.entry
        return None

    def _compile(self, values: tuple[Any, ...]) -> Specialization:
        # NOTE: nothing here is a generator's context manager: an exception that comes from
        # outside (a signal's handler) must not leave the lock taken.
        with control.compile_lock:
            try:
                control.compiling.active = True
                return self._compile_alone(values)
            finally:
                control.compiling.active = False

    def _compile_alone(self, values: tuple[Any, ...]) -> Specialization:
        arguments = self._by_name(values)
        if self._continues:
            self._family.count(self.source)
        stubs = functools.partial(make_stub, family=self._family)
        made = compile_specialization(
            self.function, self.source, arguments, self.options, self.hints, stubs
        )
        if made.specialized.settle is not None and not made.guard(*values):
            problem = self._unfit(made, arguments)
            if os.environ.get(RAISE) == "1":
                raise problem
            log.info("compiled again, for fixed sizes: %s", problem)
            hints = replace(self.hints, fixed=True)
            made = compile_specialization(
                self.function, self.source, arguments, self.options, hints, stubs
            )
        if not made.guard(*values):
            raise self._unfit(made, self._for_guards(values))
        shared.share(self.function, made)
        return made

    def _attempt(self, work: Callable[[], T]) -> T | None:
        """Runs a part of the compiler; where it fails, Python runs the function.

        Returns:
            What `work` returns, or None if it failed and the user has been told.
        """
        try:
            return work()
        except GraphBreakError:
            raise
        except GraphBreak as problem:
            self._stop(problem.diagnostic, problem)
        except SourceUnavailable as problem:
            message = f"`{self.function.__qualname__}` has no source: {problem}"
            origin = definition_line(self.function)
            self._stop(Diagnostic("SJ001", message, origin), problem)
        except Exception as problem:
            if os.environ.get(RAISE) == "1":
                raise
            diagnostic = getattr(problem, "diagnostic", None)
            if isinstance(problem, RecursionError):
                diagnostic = Diagnostic(
                    "SJ040",
                    f"`{self.function.__qualname__}` nests deeper than Python's stack is",
                    hint="compute it in several statements, or raise the recursion limit",
                )
            elif not isinstance(diagnostic, Diagnostic):
                message = f"{type(problem).__name__}: {_first_line(problem)}"
                diagnostic = Diagnostic("SJ900", message)
            self._stop(diagnostic, problem)
        return None

    def _unfit(self, made: Specialization, arguments: dict[str, Any]) -> CompilerFault:
        """Explains a specialization whose guard refuses what it was compiled for."""
        miss = miss_of(made, arguments, self._guard_names())
        return CompilerFault(f"the new specialization does not fit: {miss.description}")

    @property
    def source(self) -> FunctionSource:
        """The definition of the function.

        Raises:
            SourceUnavailable: It has none.
        """
        if self._source is None:
            self._source = find_source(self.function)
        return self._source

    def _stop(self, diagnostic: Diagnostic, problem: Exception) -> None:
        """Lets Python run the function from now on, and says why, once."""
        whole = f"Python runs `{self._family.function}` as a whole"
        if self._continues:
            whole = f"Python runs what stands here of `{self._family.function}`"
        diagnostic = replace(
            diagnostic,
            origin=diagnostic.origin or definition_line(self.function),
            notes=(*diagnostic.notes, whole),
        )
        if self.options.fullgraph and diagnostic.severity == "graph break":
            raise GraphBreakError(diagnostic) from None
        self.disabled = str(diagnostic)
        self.regenerate()
        control.notify("stopped", self, diagnostic)
        text = render(diagnostic)
        warn_once(text, "%s", text)
        log.debug("srcjit stopped at", exc_info=problem)

    def _by_name(self, values: tuple[Any, ...]) -> dict[str, Any]:
        names = self.signature.as_written(self.source.class_name)
        return dict(zip(names, values, strict=True))

    def _for_guards(self, values: tuple[Any, ...]) -> dict[str, Any]:
        """The arguments under the names that guards have for them."""
        return {guard_parameter(n): v for n, v in self._by_name(values).items()}

    def _guard_names(self) -> dict[str, Any]:
        return {
            "user_globals": self.function.__globals__,
            "cells": closure_cells(self.function),
        }

    # ── The stub ────────────────────────────────────────────────────────────────────

    def add(self, specialization: Specialization) -> None:
        """Adds a specialization behind the others and puts it into service."""
        with self.lock:
            # NOTE: a number is never used twice, because another thread may be in an old
            # stub, between a guard and the program that belongs to it.
            self._outdated = True
            self._numbered[self._next_number] = specialization
            self._shortcuts.watch(self._next_number, specialization)
            self._next_number += 1
            self.regenerate()
        control.notify("specialized", self, specialization)

    def reset(self) -> None:
        """Forgets all specializations, and why compiling was stopped."""
        with self.lock:
            # Another thread may still be in an old stub: its names stay, and mean Python.
            for number, made in self._numbered.items():
                self._globals[self._names(f"guard_{number}")] = _refuse
                shortcut = self._names(f"shortcut_{number}")
                if shortcut in self._globals:
                    self._globals[shortcut] = nothing_replayed
                run = made.tail.answer(self.function) if made.tail else self.function
                self._globals[self._names(f"{self._name}_{number}")] = run
            self._numbered.clear()
            self._shortcuts.clear()
            self._family.clear()
            self.disabled = None
            self.hints = self.first_hints
            with self._writing:
                _forget_lines(self._written)
                self._written.clear()
            self.regenerate()

    def renew_locks(self) -> None:
        """Makes new locks in a forked child: another thread may have held the old ones."""
        self.lock = threading.RLock()
        self._writing = threading.Lock()

    def regenerate(self) -> None:
        """Writes the stub for the present specializations and puts it into service."""
        # The stance may change in any thread while another compiles and holds `lock`.
        self._outdated = True
        with self._writing:
            self.stub_text = self._stub_text()
            code = self._written.get(self.stub_text)
            if code is None:
                code = self._written[self.stub_text] = self._stub_code()
            self.stub.__code__ = code
            self._outdated = False

    def _stub_text(self) -> str:
        """The text of the stub; what it names is put into its globals."""
        signature, names = self.signature, self._names
        lines = []
        for name, place in signature.defaults:
            default = names(f"default_{name}")
            self._globals[default] = self._defaults[name]
            lines.append(f"if {name} is {default}:")
            lines.append(f"    {name} = {names('native')}.{place}")
        if control.tap is not None:
            tap, dispatcher = names("tap"), names("dispatcher")
            self._globals |= {tap: control.tap, dispatcher: self}
            call = ", ".join(filter(None, (dispatcher, signature.call)))
            lines.append(f"if {tap}.listening:")
            lines.append(f"    return {tap}.call({call})")
        flat = ", ".join(signature.parameters)
        tried = list(self._numbered.items()) if not control.eager() else []
        for number, specialization in tried:
            guard, run = names(f"guard_{number}"), names(f"{self._name}_{number}")
            self._globals[guard] = specialization.guard
            self._globals[run] = specialization.run
            call, tail = f"{run}({signature.call})", specialization.tail
            then = tail.lines(call, names) if tail else [f"return {call}"]
            tests = [f"if {guard}({flat}):", *(f"    {line}" for line in then)]
            tests, used = self._shortcuts.around(number, tests, flat, names)
            self._globals |= used
            lines += tests
        if self.disabled and not control.eager():
            lines.append(f"return {names('native')}({signature.call})")
        else:
            lines.append(f"return {names('specialize')}({flat})({signature.call})")
        merges = None
        if any(specialization.nests for _, specialization in tried):
            merges = names("merged")
            self._globals[merges] = merged
        lines = unseen(lines, names("error"), merges)
        head = f"def {self._name}({signature.definition}):"
        return "\n    ".join([head, *lines]) + "\n"

    def _stub_code(self) -> CodeType:
        # A call may still be in the old stub, so its lines stay what they are.
        number = next(_stub_numbers)
        file = not_counted(f"dispatch stub {number} of {self.function.__qualname__}")
        register_lines(file, self.stub_text)
        scope: dict[str, Any] = {"DEFAULT": None}
        exec(compile(self.stub_text, file, "exec"), scope)
        code: CodeType = scope[self._name].__code__
        return code


def definition_line(function: FunctionType) -> Origin:
    """Returns where a function begins: the first line of its definition."""
    code = function.__code__
    line = code.co_firstlineno
    text = linecache.getline(code.co_filename, line).rstrip()
    column = len(text) - len(text.lstrip())
    return Origin(
        code.co_filename, line, column, line, len(text), function.__qualname__
    )


def _place(function: FunctionType) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def _forget_lines(written: dict[str, CodeType]) -> None:
    for code in list(written.values()):
        linecache.cache.pop(code.co_filename, None)


def _refuse(*values: Any) -> bool:
    """Guard of a specialization that has been forgotten."""
    return False


def _first_line(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines()
    return lines[0] if lines else ""
