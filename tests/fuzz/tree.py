"""The statements of a random program, as a tree from which parts can be taken away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A simple statement."""

    text: str

    def render(self, indent: int) -> Iterator[str]:
        """Yields the lines of the statement."""
        yield "    " * indent + self.text


@dataclass(frozen=True)
class Compound:
    """A compound statement: a header and a body for each of its clauses.

    Decorators are lines of the header.
    """

    clauses: tuple[tuple[str, tuple[Statement, ...]], ...]

    def render(self, indent: int) -> Iterator[str]:
        """Yields the lines of the statement."""
        for header, body in self.clauses:
            for part in header.split("\n"):
                yield "    " * indent + part
            if not body:
                yield "    " * (indent + 1) + "pass"
            for statement in body:
                yield from statement.render(indent + 1)


Statement = Line | Compound
Body = tuple[Statement, ...]


def size_of(body: Body) -> int:
    """Returns the number of statements in a statement list, inner ones counted."""
    return sum(
        1 + sum(size_of(inner) for _, inner in getattr(statement, "clauses", ()))
        for statement in body
    )


def text_of(body: Body, indent: int = 0) -> str:
    """Returns the text of a statement list."""
    return "\n".join(line for s in body for line in s.render(indent)) + "\n"


def smaller(body: Body) -> Iterator[Body]:
    """Yields statement lists with something taken away, large cuts first."""
    size = len(body) // 2
    while size > 1:
        for start in range(0, len(body), size):
            yield body[:start] + body[start + size :]
        size //= 2
    for index, statement in enumerate(body):
        before, after = body[:index], body[index + 1 :]
        yield before + after
        if isinstance(statement, Line):
            continue
        for _, inner in statement.clauses:
            yield before + inner + after
        if len(statement.clauses) > 1:
            for number in range(len(statement.clauses)):
                left = statement.clauses[:number] + statement.clauses[number + 1 :]
                yield (*before, Compound(left), *after)
        for number, (header, inner) in enumerate(statement.clauses):
            for less in smaller(inner):
                clauses = list(statement.clauses)
                clauses[number] = (header, less)
                yield (*before, Compound(tuple(clauses)), *after)
