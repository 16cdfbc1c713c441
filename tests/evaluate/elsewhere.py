"""A module whose functions make functions, for programs of another module."""

from __future__ import annotations

from collections.abc import Callable

FACTOR = 5


def scaled_by(k: int) -> Callable[[int], int]:
    def inner(x: int, most: list[int] = [k]) -> int:  # noqa: B006
        return min(x * FACTOR + k, inner.limit) + len(most)

    inner.limit = 100  # type: ignore[attr-defined]
    return inner


class Box:
    def __init__(self, content: object) -> None:
        self.content = content


UNBOUND, boxed_code = 11, 12


def boxed(x: object, once: int) -> object:
    for i in range(2):
        try:
            box = Box(eval("i"))
            if eval("i") > once:
                break
        except ValueError as error:
            print(error)
        print(i, box.content, once, UNBOUND)
    else:
        y = Box(i)
    return eval("x"), box.content, y.content, once, UNBOUND, boxed_code
