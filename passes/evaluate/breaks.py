"""How evaluation says that it cannot go on, and what the splitter needs to know about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import libcst as cst

from srcjit.diagnostics import GraphBreak
from srcjit.origin import Origin

if TYPE_CHECKING:
    from .values import Scalar


class Break(GraphBreak):
    """A graph break with the facts that decide how to go on.

    Attributes:
        harmless: Running the statement natively changes no object that evaluation tracks, at
            least as long as a function says so.
        result: Type of the number that the statement's call returns, if it is known.
        needs_unknown: The statement uses a variable whose value only the running program knows;
            the rest of the program must become a resume function that starts with it.
        needs_known: A run-time number that must be known here.
        node: The smallest expression that broke.
    """

    def __init__(
        self,
        code: str,
        message: str,
        origin: Origin | None = None,
        *,
        notes: tuple[str, ...] = (),
        hint: str = "",
        harmless: bool | Callable[[], bool] = False,
        result: type | None = None,
        needs_unknown: bool = False,
        needs_known: Scalar | None = None,
        node: cst.CSTNode | None = None,
    ) -> None:
        super().__init__(code, message, origin, notes, hint)
        self.harmless = harmless
        self.result = result
        self.needs_unknown = needs_unknown
        self.needs_known = needs_known
        self.node = node
        self.inlined = False
        """Whether it broke inside an inlined callee of the statement."""
        self.deferred: cst.GeneratorExp | None = None
        """The generator expression of the statement whose items broke, if one did."""


class Respecialize(Exception):
    """Evaluation must start again with the number behind `source_text` known."""

    def __init__(self, source_text: str) -> None:
        super().__init__(source_text)
        self.source_text = source_text


class LeaveGenerator(Exception):
    """Evaluation must start again with the generators made at `site` being Python's own.

    Python has to have an object for a generator that evaluation has run in part, or whose
    items depend on when they are computed.
    """

    def __init__(self, site: Origin | None) -> None:
        super().__init__(site)
        self.site = site


Place = tuple[str, int, str]
"""A function by its file, first line and qualified name."""


class ShareVariables(Exception):
    """Evaluation must start again with variables of the function at `place` kept in lists.

    A nested function shares them, and the pieces of a function that is split must, too.
    """

    def __init__(self, place: Place, names: frozenset[str]) -> None:
        super().__init__(place, names)
        self.place = place
        self.names = names


class FixSizes(Exception):
    """Evaluation must start again without symbolic sizes: PyTorch cannot do with them."""


def unknown_operand(what: str) -> Break:
    """The break for an operation on a value that only the running program knows."""
    return Break("SJ020", f"{what} a value that is not known", needs_unknown=True)


def raising(error: Exception) -> Break:
    """The break at an operation that raises: the statement runs natively and does so."""
    return Break("SJ030", f"raises {type(error).__name__}: {error}")
