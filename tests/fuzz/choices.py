"""What every part of the generator shares: choices at random, and which names hold what."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from .tree import Body

Makers = Sequence[Callable[[], str]]

PREFIXES = {
    "tlist": "ts",
    "nlist": "ns",
    "tdict": "td",
    "pdict": "pd",
    "pset": "se",
    "gen": "g",
    "point": "pt",
}
"""How new variables are called, by kind; `v` otherwise."""


class Choices:
    """One random program in the making.

    Args:
        source: A seed, or what makes the choices; the same choices give the same program.
        size: About how many statements the program has.
    """

    parameters: ClassVar[dict[str, str]] = {}
    """Parameters of every program, and what they hold."""

    kinds: ClassVar[tuple[str, ...]] = ()
    """Kinds of values that assignments are made of."""

    operand: ClassVar[str] = "int"
    """The kind of value that nested functions take and return."""

    def __init__(self, source: int | random.Random, size: int = 14) -> None:
        self.random = random.Random(source) if isinstance(source, int) else source
        self.size = size
        self.env: dict[str, str] = dict(self.parameters)
        self.count = 0
        self.left = size
        self.loops = 0
        self.in_function = 0
        self.in_generator = 0
        self.in_handler = 0
        self.maybe_unbound: list[str] = []
        self.protected: set[str] = set()

    def chance(self, probability: float) -> bool:
        """Tosses a coin."""
        return self.random.random() < probability

    def one_of(self, *choices: str) -> str:
        """Picks one of several texts."""
        return self.random.choice(choices)

    def made(self, makers: Makers) -> str:
        """Picks one of several texts and makes only that one."""
        text = self.random.choice(makers)()
        if " for " in text:  # a comprehension's iterable may not bind names by `:=`
            text = re.sub(r"\(w\d+ := ", "(", text)
        return text

    def fresh(self, prefix: str) -> str:
        """Returns a new variable name."""
        self.count += 1
        return f"{prefix}{self.count}"

    def variable(self, *kinds: str) -> str | None:
        """Picks a bound variable of one of the kinds."""
        names = [name for name, kind in self.env.items() if kind in kinds]
        return self.random.choice(names) if names else None

    def assignable(self, *kinds: str) -> str | None:
        """Picks a variable of one of the kinds that may be bound anew."""
        names = [
            name
            for name, kind in self.env.items()
            if kind in kinds and name not in self.protected
        ]
        return self.random.choice(names) if names else None

    def target(self, kind: str) -> str:
        """Picks a variable to assign a value of `kind` to: an old or a new one."""
        old = self.assignable(kind)
        if old and self.chance(0.55):
            return old
        return self.fresh(PREFIXES.get(kind, "v"))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is bound inside may be unbound outside."""
        before = dict(self.env)
        try:
            yield
        finally:
            self.maybe_unbound += [n for n in self.env if n not in before]
            gone = set(before) - set(self.env)
            self.env = {n: k for n, k in before.items() if n not in gone}

    @contextmanager
    def function(
        self, names: dict[str, str], generator: bool = False
    ) -> Iterator[None]:
        """Inside is the body of a nested function, which must not bind what is around it."""
        before = (
            self.env,
            self.protected,
            self.loops,
            self.in_handler,
            self.in_generator,
        )
        self.protected = self.protected | set(self.env)
        self.env = {**self.env, **names}
        self.loops = self.in_handler = 0
        self.in_generator = int(generator)
        self.in_function += 1
        unbound, self.maybe_unbound = self.maybe_unbound, []
        try:
            yield
        finally:
            self.in_function -= 1
            self.maybe_unbound = unbound
            self.env, self.protected, self.loops, self.in_handler, self.in_generator = (
                before
            )

    # ── what the parts of the generator ask of one another ────────────────────────

    def body(self, most: int, least: int = 1) -> Body:
        """Returns a few statements."""
        raise NotImplementedError

    def block(self, most: int = 3) -> Body:
        """Returns the body of a compound statement."""
        with self.scope():
            return self.body(most)

    def value(self, kind: str) -> str:
        """Returns an expression for a value of `kind`."""
        raise NotImplementedError

    def iterables(self, item: str) -> dict[str, tuple[str, dict[str, str]]]:
        """Returns what a loop can go over: its target, and what its names hold."""
        raise NotImplementedError

    def managers(self) -> list[str]:
        """Returns context managers."""
        raise NotImplementedError
