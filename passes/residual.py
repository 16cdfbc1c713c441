"""Writes the residual program: what is left to run after specialization.

    def f(x):
        x = segment_0(x)[0]
        print("hello")
        return segment_1(x)[0]

A value is *reified* when the running program needs it: it gets a Python expression, and a
variable of its own where identity matters.
"""

from __future__ import annotations

import io
import itertools
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from srcjit.origin import Origin, Origins
from srcjit.unchanged import Paths, root_of_path

from . import closing
from .evaluate import keeping
from .evaluate.sources import Argument
from .evaluate.values import (
    FunctionValue,
    Scalar,
    TensorValue,
    Unknown,
    Value,
)
from .program import Residual, Segment
from .reachable import captured_by, parts_of, roots, tensors_in, used_once
from .reify import Reifier
from .stepwise import Place, called_from, must_run

if TYPE_CHECKING:
    from .evaluate.evaluator import Evaluator


MANY_PATHS = 8
"""Inputs of a segment in a row that are worth being read at once."""


class ResidualBuilder(Reifier):
    """The lines of one residual program, and the values that live in its variables."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.ev = evaluator
        self.lines: list[tuple[str, Origin | None, str]] = []
        self.constants: dict[str, Any] = {}
        self._constant_names: dict[int, str] = {}
        self._indent = 1
        self._inline: set[int] = set()
        self._building: list[Value] = []
        self.slots: dict[str, Value] = {}
        self._last_call = ("", "", 0, -1)
        self.untouched = True
        """Whether the lines so far only read."""
        self.original: str | None = None
        """The name of the user's function, if the program may run it."""
        self.saved: set[str] = set()
        """Variables that hold what somebody may read behind a write to where it was."""
        self.keepers: set[str] = set()
        """Variables that hold a `Kept`."""
        self.maybe_unbound: set[str] = set()
        """Variables that hold `UNBOUND` where the user's are not bound."""

    # ── lines ─────────────────────────────────────────────────────────────────────

    def emit(self, text: str, origin: Origin | None = None, note: str = "") -> None:
        """Adds one line (or several) at the current indentation; `note` explains the first."""
        origin = origin or self.ev.statement_origin()
        self._add(text.strip("\n"), lambda number: origin, note)

    def _add(
        self, text: str, origin_of: Callable[[int], Origin | None], note: str
    ) -> None:
        """Adds the lines of a text; lines inside of a string stay as they are."""
        self.untouched = False
        pad = "    " * self._indent
        inside = lines_inside_strings(text)
        for number, line in enumerate(text.split("\n"), 1):
            if number not in inside:
                line = pad + line if line.strip() else ""
            self.lines.append((line, origin_of(number), note))
            note = ""

    def emit_tracked(self, text: str) -> None:
        """Adds a line while a statement is evaluated; undone when the statement breaks.

        It may read, and nothing else.
        """
        count, untouched = len(self.lines), self.untouched
        self.emit(text)
        self.untouched = untouched
        self.ev.journal.record(lambda: self.lines.__delitem__(slice(count, None)))

    def emit_statement(
        self,
        statement: cst.CSTNode,
        origin: Origin | None,
        note: str = "",
        origins: Origins | None = None,
    ) -> None:
        """Adds a native statement; `origins` has the lines of its parts."""
        text = cst.Module([]).code_for_node(statement)
        if origins is None or origin is None or "\n" not in text.strip("\n"):
            self.emit(text, origin, note)
            return
        blank = len(text) - len(text.lstrip("\n"))
        found = line_origins(statement, origins)
        last = origin

        def origin_of(number: int) -> Origin:
            nonlocal last
            inner = found.get(number + blank)
            # What has no line of its own has the whole statement's.
            if inner is not None and inner != origin and inner.file == last.file:
                last = inner
            return last

        self._add(text.strip("\n"), origin_of, note)

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Lines added inside belong to the compound statement above."""
        self._indent += 1
        try:
            yield
        finally:
            self._indent -= 1

    @property
    def is_indented(self) -> bool:
        """Whether a line that is added now belongs to a compound statement."""
        return self._indent > 1

    def fresh(self, hint: str) -> str:
        """Returns an unused variable name."""
        return self.ev.namer.fresh(hint if hint.isidentifier() else "value")

    def constant_name(self, obj: Any, hint: str) -> str:
        """Returns the name by which the text sees an object that it cannot spell."""
        name = self._constant_names.get(id(obj))
        if name is None:
            name = self.fresh(hint)
            self._constant_names[id(obj)] = name
            self.constants[name] = obj
        return name

    # ── segments ──────────────────────────────────────────────────────────────────

    def close_segment(self, live: Iterable[Value]) -> None:
        """Ends the open segment and emits its call; live tensors become variables."""
        ev = self.ev
        builder = ev.builder
        outputs: dict[int, TensorValue] = {}
        reachable: set[int] = set()
        for value in live:
            for tensor in tensors_in(ev, value):
                reachable.add(id(tensor))
                if tensor.node is not None and tensor.node.op != "placeholder":
                    outputs.setdefault(id(tensor), tensor)
        for value in ev.overlay.values():
            reachable |= {id(tensor) for tensor in tensors_in(ev, value)}
        order = {node: index for index, node in enumerate(builder.graph.nodes)}
        produced = sorted(outputs.values(), key=lambda value: order[value.node])
        name = builder.name
        if builder.operations and (produced or any(map(must_run, order))):
            closing.close(self, builder, produced, reachable)
            if builder.mutates:
                _require_distinct(ev, builder.inputs)
            name = ev.next_segment()
        for value in builder.touched:
            value.node = None  # type: ignore[attr-defined]
        ev.builder = type(builder)(ev, name)

    def call_segment(
        self, segment: Segment, inputs: list[Value], names: list[str], place: Place
    ) -> None:
        """Emits the call of a segment; `names` take its results.

        Args:
            segment: What is called.
            inputs: The values of its inputs.
            names: A variable for each of its outputs.
            place: The line of the program, and those of the user's functions inside it.
        """
        origin, inside = place
        args = self._read_at_once([self.reify(value) for value in inputs])
        function = segment.name
        if inside:
            # Lines of functions that were inlined, so that tracebacks show them.
            args.insert(0, function)
            function = self.constant_name(called_from(inside), "called_from")
        call = self._call(function, args)
        if not names:
            self.emit(call, origin)
        elif len(names) == 1:
            start = len(self.lines)
            self.emit(f"{names[0]} = {call}[0]", origin)
            self._last_call = (names[0], f"{call}[0]", start, len(self.lines))
        else:
            self.emit(f"{', '.join(names)} = {call}", origin)

    def _read_at_once(self, args: list[str]) -> list[str]:
        """Puts paths that follow each other, if they are many, into one read of all."""
        made: list[str] = []
        for root, group in itertools.groupby(args, key=root_of_path):
            paths = list(group)
            if root and len(paths) >= MANY_PATHS:
                name = self.constant_name(Paths(root, *paths), "paths")
                made.append(f"*({name}.now({root}) or {name}.read({root}))")
            else:
                made += paths
        return made

    def _call(self, name: str, args: list[str]) -> str:
        """A call, on several lines where it is long."""
        text = f"{name}({', '.join(args)})"
        if len(text) < 72:
            return text
        lines = "".join(f"    {arg},\n" for arg in args)
        return f"{name}(\n{lines})"

    def names_for(self, produced: list[TensorValue], reachable: set[int]) -> list[str]:
        """Names for the results of a segment; a variable whose tensor is dead is used again."""
        names: list[str] = []
        for value in produced:
            hint = _hint(value)
            dead = hint not in names and self._is_dead(hint, reachable)
            name = hint if dead else self.variable(hint)
            if dead:
                self.overwritten(hint)
            self.slots[name] = value
            names.append(name)
        return names

    def _is_dead(self, name: str, reachable: set[int]) -> bool:
        holder = self.slots.get(name)
        if holder is None and name in self.ev.arguments:
            holder, _ = self.ev.memo.get(id(self.ev.arguments[name]), (None, None))
        return isinstance(holder, TensorValue) and id(holder) not in reachable

    def overwritten(self, variable: str) -> None:
        """Notes that a variable has got another value.

        A tensor that was reached by it may be reached by another path later on.
        """
        self.maybe_unbound.discard(variable)
        for value, _ in self.ev.memo.values():
            if isinstance(value, TensorValue) and variable in roots(self.ev, [value]):
                self.ev.journal.set_attr(value, "lost", True)

    def variable(self, name: str) -> str:
        """Returns a variable for what the user calls `name`: that name, unless it is in use."""
        if name in self.ev.own_locals:
            self.ev.own_locals.discard(name)
            return name
        return self.fresh(name)

    def settle(self, values: Iterable[Value]) -> None:
        """Holds what values are reached by in variables, before Python runs unknown code.

        That code may write to the objects which the paths lead through.
        """
        seen: set[int] = set()
        stack = [self.ev.look(value) for value in values]
        while stack:
            value = stack.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            source = getattr(value, "source", None)
            if isinstance(value, (Scalar, Unknown)) or value.name is not None:
                continue
            if isinstance(source, Argument):
                continue
            if source is not None:
                name = self.fresh(source.hint)
                self.emit(f"{name} = {source.residual}")
                self.ev.journal.set_attr(value, "name", name)
            elif isinstance(value, FunctionValue):
                stack += [self.ev.look(v) for v in captured_by(self.ev, value)]
            else:
                stack += [self.ev.look(v) for v in parts_of(value)]

    def flush_effects(self) -> None:
        """Replays the scheduled effects in program order."""
        effects = self.ev.effects
        self.drop_effects(len(effects))
        for effect in effects:
            effect.action()

    def drop_effects(self, count: int) -> None:
        """Forgets the first effects, which have been replayed."""
        for effect in self.ev.effects[:count]:
            keeping.seen(self.ev, effect.values)
        left = self.ev.effects[count:]
        self.ev.effects = left
        self.ev.effect_values = [value for effect in left for value in effect.values]

    # ── the end ───────────────────────────────────────────────────────────────────

    def finish(self, value: Value) -> None:
        """Emits what is left and `return value`."""
        self.close_segment([value, *self.ev.effect_values])
        self.flush_effects()
        if self.ev.hints.goes_on:
            keeping.settle(self.ev)
        self._inline = used_once(self.ev, value)
        text = self.reify(value)
        self._inline = set()
        if text == "None" and self.lines:
            return
        name, call, start, end = self._last_call
        if name == text and end == len(self.lines):
            # The variable would live for one line only.
            origin = self.lines[start][1]
            del self.lines[start:]
            self.emit(f"return {call}", origin)
            return
        self.emit(f"return {text}")

    def result(self, name: str, parameters: str) -> Residual:
        """Returns the program as one definition."""
        self._forget_unread()
        head = f"def {name}({parameters}):"
        self.lines[:0] = [
            (f"    {line}", None, "")
            for line in self.ev.sizes.prologue("\n".join(t for t, _, _ in self.lines))
        ]
        lines = [head, *(text for text, _, _ in self.lines)]
        if not self.lines:
            lines.append("    pass")
        origins = {i + 2: o for i, (_, o, _) in enumerate(self.lines) if o is not None}
        notes = {i + 2: note for i, (_, _, note) in enumerate(self.lines) if note}
        return Residual(
            "\n".join(lines) + "\n",
            origins,
            dict(self.constants),
            frozenset(self.keepers),
            notes,
        )

    def _forget_unread(self) -> None:
        """Drops variables that were saved for a reader who has not come.

        They would keep alive what the program lets go of there.
        """
        texts = [text.strip() for text, _, _ in self.lines]
        used = Counter(word for text in texts for word in re.findall(r"\w+", text))
        unread = {name for name in self.saved if used[name] == 1}
        self.lines = [
            entry
            for entry, text in zip(self.lines, texts, strict=True)
            if text.partition(" = ")[0] not in unread
        ]


def lines_inside_strings(text: str) -> set[int]:
    """Lines of a text that begin inside of a string."""
    found: set[int] = set()
    if "\n" not in text or not any(mark in text for mark in ('"""', "'''", "\\\n")):
        return found
    for token in tokenize.generate_tokens(io.StringIO(text + "\n").readline):
        name = tokenize.tok_name[token.type]
        if name == "STRING" or name.startswith("FSTRING"):
            found.update(range(token.start[0] + 1, token.end[0] + 1))
    return found


def line_origins(statement: cst.CSTNode, origins: Origins) -> dict[int, Origin]:
    """Where each line of a statement's text comes from."""
    module = MetadataWrapper(cst.Module([statement]), unsafe_skip_copy=True)  # type: ignore[list-item]
    found: dict[int, Origin] = {}
    for node, place in module.resolve(PositionProvider).items():
        origin = origins.get(node)
        line = place.start.line
        # A block starts where its first statement does, but may stand for what is around.
        if origin is not None and not isinstance(node, cst.BaseSuite):
            known = found.get(line)
            if known is None or origin.line < known.line:
                found[line] = origin
    return found


def _require_distinct(ev: Evaluator, inputs: list[Value]) -> None:
    """Inputs of a segment that writes to one must not share memory, unless they do now.

    An input that was made in the residual program can be a view of a tensor that existed
    before the call: then that tensor must not share memory with the others.
    """
    tensors = [v for v in inputs if isinstance(v, TensorValue)]
    storages = [_storage(v) for v in tensors]
    before: dict[int, TensorValue] = {}
    for value, _ in ev.memo.values():
        if isinstance(value, TensorValue) and value.source is not None:
            known = before.setdefault(_storage(value), value)
            if value.fake.numel() > known.fake.numel():
                before[_storage(value)] = value
    sources = []
    for value, storage in zip(tensors, storages):
        if storages.count(storage) == 1:
            owner = value if value.source is not None else before.get(storage)
            if owner is not None and owner.source is not None:
                sources.append(owner.source)
    ev.guards.add_distinct(sources)


def _storage(value: TensorValue) -> int:
    return int(value.fake.untyped_storage()._cdata)


def _hint(value: TensorValue) -> str:
    name = value.node.name if value.node is not None else "value"
    base = name.rstrip("0123456789").rstrip("_")
    return base or name
