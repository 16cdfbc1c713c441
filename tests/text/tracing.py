"""Objects that log every operation, and a comparison of two texts of one function by the logs.

What an operation gives (its truth, how many items, whether it raises) depends only on how many
operations came before, so two texts that do the same in the same order see the same world.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any


class Boom(Exception):
    """Raised by some operations."""


class TooLong(BaseException):
    """Ends a program that loops for ever; nothing catches it."""


class World:
    """The log, and what chance says."""

    def __init__(self, seed: int, raising: float = 0.02, limit: int = 250) -> None:
        self.seed = seed
        self.raising = raising
        self.limit = limit
        self.log: list[str] = []
        self.turns = 0

    def over(self) -> bool:
        """Tells a loop that it has gone on for long enough."""
        self.turns += 1
        return self.turns > 20

    def chance(self) -> random.Random:
        return random.Random(self.seed * 1_000_003 + len(self.log))

    def note(self, event: str, may_raise: bool = True) -> random.Random:
        self.log.append(event)
        if len(self.log) > self.limit:
            raise TooLong
        chance = self.chance()
        if may_raise and chance.random() < self.raising:
            self.log.append("raised")
            raise Boom(f"{len(self.log)}: {event}")
        return chance


class Thing:
    """A value whose every operation is logged."""

    def __init__(self, world: World, name: str) -> None:
        self.__dict__.update(world_=world, name_=name)

    def __repr__(self) -> str:
        return self.name_

    def made_(self, event: str) -> Thing:
        self.world_.note(event)
        return Thing(self.world_, f"v{len(self.world_.log)}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.made_(f"{self!r}.{name}")

    def __setattr__(self, name: str, value: object) -> None:
        self.world_.note(f"{self!r}.{name} = {value!r}")

    def __delattr__(self, name: str) -> None:
        self.world_.note(f"del {self!r}.{name}")

    def __getitem__(self, key: object) -> Any:
        return self.made_(f"{self!r}[{key!r}]")

    def __setitem__(self, key: object, value: object) -> None:
        self.world_.note(f"{self!r}[{key!r}] = {value!r}")

    def __delitem__(self, key: object) -> None:
        self.world_.note(f"del {self!r}[{key!r}]")

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.made_(f"{self!r}(*{args!r}, **{kwargs!r})")

    def __bool__(self) -> bool:
        return self.world_.note(f"bool({self!r})").random() < 0.5

    def __iter__(self) -> Any:
        count = self.world_.note(f"iter({self!r})").choice([0, 1, 2, 2, 2, 3])
        for number in range(count):
            yield self.made_(f"next({self!r}, {number})")
        self.world_.note(f"end({self!r})", may_raise=False)

    def keys(self) -> list[str]:
        self.world_.note(f"keys({self!r})")
        return ["k1"]

    def __contains__(self, item: object) -> bool:
        return self.world_.note(f"{item!r} in {self!r}").random() < 0.5

    def __enter__(self) -> Any:
        return self.made_(f"enter({self!r})")

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        chance = self.world_.note(f"exit({self!r}, {kind and kind.__name__})")
        return kind is not TooLong and chance.random() < 0.4

    def __format__(self, spec: str) -> str:
        self.world_.note(f"format({self!r}, {spec!r})")
        return f"<{self!r}>"

    def __hash__(self) -> int:
        self.world_.note(f"hash({self!r})")
        return 1

    def __eq__(self, other: object) -> Any:
        return self.made_(f"{self!r} == {other!r}")


def _operator(method: str) -> Callable[..., Any]:
    def operate(self: Thing, *others: object) -> Any:
        return self.made_(f"{method}({self!r}, {others!r})")

    return operate


for _name in (
    "add",
    "sub",
    "mul",
    "lt",
    "le",
    "gt",
    "ge",
    "ne",
    "neg",
    "radd",
    "rsub",
    "rmul",
):
    setattr(Thing, f"__{_name}__", _operator(_name))


def _in_place(self: Thing, other: object) -> Thing:
    chance = self.world_.note(f"iadd({self!r}, {other!r})")
    return (
        self
        if chance.random() < 0.5
        else Thing(self.world_, f"v{len(self.world_.log)}")
    )


Thing.__iadd__ = _in_place  # type: ignore[attr-defined]


def outcome(
    function: Callable[..., Any] | str,
    seed: int,
    *,
    name: str = "f",
    arguments: int = 3,
    raising: float = 0.02,
    extra: dict[str, Any] | None = None,
    prepare: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[list[str], str]:
    """Runs the text of a function; returns the log and how it ended.

    Args:
        function: The text; it defines `name` with `arguments` parameters.
        seed: Decides what operations give.
        name: The function.
        arguments: How many things it takes.
        raising: How likely an operation raises.
        extra: Globals besides `g`, `h`, `k` (things), `Boom` and `over`.
        prepare: Is given the globals before the function runs.
    """
    world = World(seed, raising)
    space: dict[str, Any] = {n: Thing(world, n) for n in "ghk"}
    space |= {"Boom": Boom, "over": world.over, **(extra or {})}
    if isinstance(function, str):
        exec(compile(function, "<text>", "exec"), space)
        function = space[name]
    if prepare is not None:
        prepare(space)
    try:
        result = function(*(Thing(world, f"p{i}") for i in range(arguments)))
        end = f"returned {result!r}"
    except TooLong:
        end = "too long"
    except (Boom, NameError) as error:
        end = f"raised {type(error).__name__}: {error}"
    except Exception as error:
        end = f"raised {type(error).__name__}"
    return world.log, end
