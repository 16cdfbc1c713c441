"""A module whose functions make functions, for programs of another module."""

from __future__ import annotations

from collections.abc import Callable

FACTOR = 5


def scaled_by(k: int) -> Callable[[int], int]:
    def inner(x: int, most: list[int] = [k]) -> int:  # noqa: B006
        return min(x * FACTOR + k, inner.limit) + len(most)

    inner.limit = 100  # type: ignore[attr-defined]
    return inner
