"""Recursive computations of any depth.

What 5,000 operations in a row compute is asked for from the last one, and each asks for the one
before it: deeper than Python's stack. Before, with `compute` the function that asks:

    value(5000) → compute(5000) → value(4999) → compute(4999) → …            RecursionError

After, with `value = Deep(compute)`:

    value(5000) → compute(5000) → … → value(4980)                            put off
    value(4980) → compute(4980) → … → value(4960)                            put off
    …
    value(20) → … → value(0), then 40, 60, … again, each of which finds what it asks for

So a computation may be begun more than once: it must have no effects.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LEVELS = 20
"""How deep computations nest before one is put off; each level is some six calls of Python."""


class _PutOff(Exception):
    """Something has to be computed first, by itself."""

    def __init__(self, owner: object, key: Any) -> None:
        super().__init__(key)
        self.owner, self.key = owner, key


class Deep(Generic[K, V]):
    """A function that remembers its values, and may ask for them at any depth.

    Attributes:
        done: What has been computed.
    """

    def __init__(self, compute: Callable[[K], V]) -> None:
        self.compute = compute
        self.done: dict[K, V] = {}
        self._failed: dict[K, Exception] = {}
        self._level = 0

    def __call__(self, key: K) -> V:
        """The value of `key`; raises what computing it raises."""
        if key in self.done:
            return self.done[key]
        if key in self._failed:
            raise self._failed[key]
        if self._level == 0:
            return self._from_the_ground(key)
        if self._level >= LEVELS:
            raise _PutOff(self, key)
        return self._evaluate(key)

    def _evaluate(self, key: K) -> V:
        self._level += 1
        try:
            value = self.done[key] = self.compute(key)
        finally:
            self._level -= 1
        return value

    def _from_the_ground(self, key: K) -> V:
        waiting = [key]
        while True:
            key = waiting[-1]
            try:
                self._evaluate(key)
            except _PutOff as put_off:
                if put_off.owner is not self:
                    raise
                waiting.append(put_off.key)
                continue
            except Exception as error:
                # Whoever asked for it may know what to do.
                if len(waiting) == 1:
                    raise
                self._failed[key] = error
            waiting.pop()
            if not waiting:
                return self.done[key]
