"""Makes names that nothing else has.

>>> namer = Namer({"x", "y_sum"})
>>> namer.fresh("x"), namer.fresh("y_sum"), namer.fresh("y_sum"), namer.fresh("mean")
('x_1', 'y_sum_1', 'y_sum_2', 'mean')
>>> namer.fresh("class"), namer.fresh("2 x.y")
('class_', '_2_x_y')
>>> text = namer.beside({"sin"})
>>> text.fresh("sin"), namer.fresh("sin"), text.fresh("cos"), namer.fresh("cos")
('sin_1', 'sin', 'cos', 'cos_1')
>>> text.fixed("sin"), text.fixed("sin"), namer.fixed("y_sum"), namer.fixed("Box")
('sin_', 'sin_', 'y_sum_', 'Box')
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable

_AVOIDED = frozenset(dir(builtins)) | {"match", "case", "type", "_", ""}


class Namer:
    """Gives out fresh names; the same requests in the same order give the same names.

    Names of builtins and keywords are never given out.

    Args:
        taken: Names that are in use.
        own: Those of them that are the compiler's; the others are the user's.
    """

    def __init__(self, taken: Iterable[str] = (), own: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._users = self._taken - set(own)
        self._next: dict[str, int] = {}
        self._beside: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def take(self, names: Iterable[str]) -> None:
        """Marks more names as being in use."""
        self._taken.update(names)

    def beside(self, names: Iterable[str], own: Iterable[str] = ()) -> Namer:
        """Returns a namer for a text with these names; this one may go on to give them out.

        What either of the two gives out is in use for both.
        """
        made = Namer()
        made._taken, made._next = self._taken, self._next
        made._beside = frozenset(names)
        made._users = self._users | (made._beside - set(own))
        return made

    def fixed(self, name: str) -> str:
        """Returns what the text calls an object of the compiler's, each time the same.

        It is `name`, or that with `_` behind it where the user has such a name.
        """
        while name in self._users:
            name += "_"
        self._taken.add(name)
        return name

    def fresh(self, hint: str) -> str:
        """Returns `hint`, or `hint_1`, `hint_2`, …: the first that is not in use.

        Args:
            hint: What the name should say. It is made an identifier if it is none.
        """
        hint = identifier(hint)
        name = hint
        number = self._next.get(hint, 1)
        while name in self._taken or name in self._beside or name in _AVOIDED:
            name = f"{hint}_{number}"
            number += 1
        self._next[hint] = number
        self._taken.add(name)
        return name


def identifier(hint: str) -> str:
    """Makes an identifier of any text."""
    name = re.sub(r"\W+", "_", hint).strip("_")
    if not name:
        return "value"
    if name[0].isdigit():
        name = "_" + name
    return name + "_" if keyword.iskeyword(name) else name
