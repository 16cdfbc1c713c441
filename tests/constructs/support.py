"""The cases of `docs/constructs.md`: one program for each construct of Python.

    cases = Cases()

    @cases.add("match-class-pattern")
    def match_class_pattern():
        def program(x, point): ...
        return program, (torch.ones(3), Point(1, 2))

    @pytest.mark.parametrize("name", cases)
    def test_construct(name):
        cases.check(name)

`check` compares the program with eager, three calls at stage "specialize", and what the
compiler made of it with the row of the table: a status that is not true any more fails.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from srcjit.explain import Recording, recording
from tests.harness import Made, check

TABLE = Path(__file__).parents[2] / "docs" / "constructs.md"

EVALUATED, BREAK, NATIVE = "evaluated", "break", "native"

_ROW = re.compile(
    r"^\| (?P<construct>.+?) \| (?P<status>[^|]+?) \|(?P<why>[^|]*)\|"
    r" `(?P<case>[\w-]+)` \|$"
)


@dataclass(frozen=True)
class Row:
    """One row of the table: what the documentation claims about a construct."""

    construct: str
    status: str
    why: str
    case: str


def rows() -> list[Row]:
    """The rows of `docs/constructs.md`, in order."""
    found = []
    for line in TABLE.read_text().splitlines():
        if line.startswith("| ") and not line.startswith("| construct |"):
            # A `|` inside the construct is written `\|`.
            match = _ROW.match(line.replace(r"\|", "\0"))
            assert match, f"not a row of the table: {line}"
            parts = {
                k: v.strip().replace("\0", "|") for k, v in match.groupdict().items()
            }
            found.append(Row(**parts))
    return found


@dataclass(frozen=True)
class Case:
    """A program, and the options that it is checked with."""

    make: Callable[[], Made]
    since: tuple[int, int]
    options: dict[str, Any]


class Cases(dict[str, Case]):
    """The cases of one test module, by name."""

    def add(
        self, name: str, *, since: tuple[int, int] = (3, 10), **options: Any
    ) -> Callable[[Callable[[], tuple[Any, ...]]], None]:
        """Decorates a factory that returns (function, args) or (function, args, kwargs).

        Args:
            name: The name in the last column of the table.
            since: The first version of Python that has the construct.
            options: Further arguments of `tests.harness.check`.
        """
        assert name not in self

        def register(make: Callable[[], tuple[Any, ...]]) -> None:
            def made() -> Made:
                function, args, *rest = make()
                return function, args, (rest[0] if rest else {})

            self[name] = Case(made, since, options)

        return register

    def check_like_eager(self, name: str) -> None:
        """Asserts that a case, which mixes constructs and has no row, behaves as in eager."""
        case = self[name]
        check(case.make, **{"stage": "specialize", **case.options})

    def check(self, name: str) -> None:
        """Asserts that a case behaves as in eager, and that its status is the table's."""
        case = self[name]
        if sys.version_info < case.since:
            pytest.skip(f"needs Python {'.'.join(map(str, case.since))}")
        warned: list[str] = []
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]
        log = logging.getLogger("srcjit")
        log.addHandler(handler)
        try:
            with recording() as records:
                check(case.make, **{"stage": "specialize", **case.options})
        finally:
            log.removeHandler(handler)
        claimed = {row.case: row.status for row in rows()}
        measured = status(records, warned)
        assert claimed.get(name) == measured, (
            f"docs/constructs.md, `{name}`: {measured}"
        )


def status(records: Recording, warned: list[str]) -> str:
    """What became of a program, as the table spells it.

    `evaluated` means that no statement was left to Python; `break` that some were, and all
    the rest was compiled; `native` that Python ran a whole function.
    """
    refused = re.findall(r"graph break\[(SJ\d+)\]", "\n".join(warned))
    stopped = {r.stopped.code for r in records.records if r.stopped is not None}
    if not records:
        stopped |= set(refused)
    if stopped:
        return f"{NATIVE} {' '.join(sorted(stopped))}"
    codes = {d.code for record in records.records for d in record.breaks}
    made = [s.specialized for r in records.records for s in r.specializations]
    if codes:
        return f"{BREAK} {' '.join(sorted(codes))}"
    assert not any(one.continuations or one.natives for one in made)
    return EVALUATED


def written(text: str) -> Any:
    """The function `program` of a text in a newer Python, which has a file of its own."""
    body = textwrap.dedent(text)
    name = f"written_{hashlib.sha256(body.encode()).hexdigest()[:12]}"
    file = Path(tempfile.gettempdir()) / f"{name}.py"
    file.write_text("import torch\n\n" + body)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.program


def all_cases() -> Iterator[tuple[str, str]]:
    """Names of all cases, with the module that each is in."""
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.constructs.{file.stem}")
        for name in getattr(module, "cases", ()):
            yield name, file.stem
