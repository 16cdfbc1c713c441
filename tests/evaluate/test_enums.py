"""Members of enums in every kind of expression."""

from __future__ import annotations

import enum

import pytest

from tests.evaluate.support import X
from tests.harness import check


class Color(enum.Enum):
    A = "a"
    B = "b"


class Number(enum.IntEnum):
    P = 1
    Q = 2


class Text(str, enum.Enum):
    U = "u"


def _programs(x, e, f):
    return [
        lambda: e == Color.A,
        lambda: e in (Color.A, Color.B),
        lambda: {Color.A: 1}[e],
        lambda: Text.U == "u",
        lambda: f == 2,
        lambda: Color["B"].value,
        lambda: Color("a") is Color.A,
        lambda: f + 1,
        lambda: Color["B"] is Color.B,
        lambda: f > 1,
        lambda: f is Number.Q,
        lambda: e != Color.B,
        lambda: Text.U + "x",
        lambda: f"{Text.U}",
        lambda: f"{f}",
        lambda: str(e),
        lambda: x * f,
        lambda: [1, 2, 3][f],
        lambda: range(f),
        lambda: isinstance(f, int),
        lambda: x.sum(f - 1),
        lambda: Text.U in ("u",),
        lambda: {"u": 1}[Text.U],
        lambda: e.name,
        lambda: len(Color),
        lambda: Color.__members__.keys(),
        lambda: e in Color,
        lambda: Text.U.upper(),
        lambda: int(f),
        lambda: bool(f),
        lambda: Number(2),
        lambda: Text("u"),
    ]


COUNT = len(_programs(X, Color.A, Number.Q))


@pytest.mark.parametrize("index", range(COUNT))
def test_member(index: int) -> None:
    def program(x, e, f, index):
        return _programs(x, e, f)[index]()

    check(
        lambda: (program, (X.clone(), Color.A, Number.Q, index), {}),
        stage="specialize",
        calls=2,
    )
