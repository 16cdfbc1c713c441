"""How often each place of a user's function is compiled, in all that became of the function.

A resume function that is compiled again for other arguments has resume functions of its own,
so what stands behind n breaks would have up to `limit ** n` specializations, though no
function has more than `limit`. One `Family` counts for a function and all that it becomes.
"""

from __future__ import annotations

from collections import Counter

from srcjit.source import FunctionSource

COPIES = 8
"""How many times `options.limit` what begins at one line may be compiled."""


class Family:
    """Counts the specializations of what begins at each line of a user's function.

    Attributes:
        function: The user's function, by its qualified name.
    """

    def __init__(self, function: str) -> None:
        self.function = function
        self._counts: Counter[tuple[str, int]] = Counter()
        self._told: set[tuple[str, int]] = set()

    def count(self, source: FunctionSource) -> None:
        """Notes that a resume function or an outlined body is being compiled."""
        self._counts[_place(source)] += 1

    def is_full(self, source: FunctionSource, limit: int) -> bool:
        """Whether a resume function or an outlined body has to run natively."""
        return self._counts[_place(source)] >= COPIES * limit

    def tell(self, source: FunctionSource) -> bool:
        """Whether the user has not been told about this place; from now on, he has."""
        new = _place(source) not in self._told
        self._told.add(_place(source))
        return new

    def clear(self) -> None:
        """Starts to count anew."""
        self._counts.clear()
        self._told.clear()


def _place(source: FunctionSource) -> tuple[str, int]:
    return source.file, source.first_line
