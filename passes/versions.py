"""How often eager would count a write in the version of each tensor of a segment.

    y = x * 2           version 0
    y.add_(1)           version 1
    y[0].zero_()        version 2: a view counts with the tensor that it shows
    y.data.zero_()      version 2: what is detached by `.data` counts by itself
    F.one_hot(n)        version 2: PyTorch makes the result in several steps

PyTorch's functionalization counts some writes twice, so that only the fact that a version has
changed is taken from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class _Count:
    tensor: torch.Tensor
    version: int
    writes: int


class WriteCounter:
    """Counts writes while a segment is traced.

    Call `add` with each tensor as soon as it exists, and `wrote` behind each call.
    """

    def __init__(self) -> None:
        self._groups: dict[int, list[_Count]] = {}

    def add(
        self, value: Any, operands: Iterable[Any] = (), counts: Sequence[int] = ()
    ) -> None:
        """Takes notice of the tensors in what a call returned.

        Args:
            value: What it returned.
            operands: What it was given, unless its results count by themselves.
            counts: How often the call itself has written to each, where it has.
        """
        given = [*tensors(operands)]
        for place, tensor in enumerate(tensors([value])):
            group = self._groups.setdefault(_storage(tensor), [])
            if any(known.tensor is tensor for known in group):
                continue
            made = counts[place] if place < len(counts) and not group else 0
            shown = (tensor._base, *given)
            writes = next(
                (k.writes for k in group if any(k.tensor is s for s in shown)), made
            )
            group.append(_Count(tensor, tensor._version, writes))

    def wrote(self, name: str, args: Iterable[Any]) -> None:
        """Looks which of the tensors behind the arguments of a call were written to.

        Args:
            name: Of what was called.
            args: Its arguments, those by keyword too.
        """
        operands = [*tensors(args)]
        # Eager's kernels of batch norm write to the running statistics without counting.
        counts = 0 if "_norm" in name else 1
        each = name.startswith("_foreach")
        done: set[int] = set()
        for tensor in operands:
            storage = _storage(tensor)
            if storage in done:
                continue
            done.add(storage)
            times = sum(_storage(t) == storage for t in operands) if each else counts
            for known in self._groups.get(storage, ()):
                if known.version != known.tensor._version:
                    known.version = known.tensor._version
                    known.writes += times

    def writes(self, tensor: torch.Tensor) -> int:
        """Returns how many writes have been counted for a tensor."""
        group = self._groups.get(_storage(tensor), ())
        return next((known.writes for known in group if known.tensor is tensor), 0)


def counts_of(value: Any) -> tuple[int, ...]:
    """The versions of the tensors in what a call has just made; none if all are 0."""
    made = tuple(0 if t.is_inference() else t._version for t in tensors([value]))
    return made if any(made) else ()


def tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yields the tensors among the values, and in lists and tuples among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
