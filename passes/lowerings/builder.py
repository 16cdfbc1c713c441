"""What a lowering sees: the node at hand and constructors of definitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from ..definitions import (
    EXTERN,
    MAP,
    REDUCTION,
    VIEW,
    Addition,
    At,
    Definition,
    Folding,
    Number,
    Read,
)
from ..indexing import ZERO, Index, as_expr, contiguous_strides
from ..loops import FLOAT8, Const, Expr, IndexValue, ScalarArg, Value, cast

LOW_PRECISION = (torch.bfloat16, torch.float16)


class NoLoopForm(Exception):
    """The call at hand stays an ATen call; the message says why."""


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which eager computes on elements of `dtype`."""
    return torch.float32 if dtype in (*LOW_PRECISION, *FLOAT8) else dtype


def constant(value: Any, dtype: torch.dtype) -> Const:
    """A number of the program as a value.

    Raises:
        NoLoopForm: If it does not fit: eager raises or wraps, and knows which.
    """
    if isinstance(value, complex):
        raise NoLoopForm("complex number")
    if not dtype.is_floating_point and dtype is not torch.bool:
        if isinstance(value, float) and not value.is_integer():
            raise NoLoopForm(f"{value} is not an integer")
        info = torch.iinfo(dtype)
        if not info.min <= int(value) <= info.max:
            raise NoLoopForm(f"{value} does not fit {dtype}")
    return Const(value, dtype)


@dataclass
class Builder:
    """Makes definitions for one fx node.

    Attributes:
        node: The node that is being lowered.
        made: Definitions made so far, in order; `lower` collects them.
        keep_fp32: Do not round intermediates of low precision.
    """

    node: fx.Node
    made: list[Definition] = field(default_factory=list)

    @property
    def fake(self) -> Any:
        """The fake value (or values) of the node."""
        return self.node.meta["val"]

    def map(
        self,
        at: At,
        *,
        like: Any = None,
        size: tuple[Expr, ...] | None = None,
        dtype: torch.dtype | None = None,
        name: str = "",
        kind: str = MAP,
    ) -> Definition:
        """A tensor computed element by element.

        The facts that are not given are those of `like`, by default the node's own fake.
        A definition with a `size` of its own is a step inside of the node's computation.
        """
        fake = self.fake if like is None else like
        if size is None:
            size = tuple(map(as_expr, fake.size()))
            stride = tuple(map(as_expr, fake.stride()))
        else:
            stride = contiguous_strides(size)
        return self._add(
            kind,
            size,
            dtype or fake.dtype,
            fake.device,
            stride,
            name,
            at=at,
        )

    def view(
        self, source: Definition, index: Callable[[Index], Index], like: Any = None
    ) -> Definition:
        """The elements of `source` under an index map, sharing its memory."""
        return self.map(lambda read, i: read(source, index(i)), like=like, kind=VIEW)

    def reduction(
        self,
        kind: str,
        full: tuple[Expr, ...],
        reduced: tuple[bool, ...],
        value: At,
        dtype: torch.dtype,
        name: str,
    ) -> Definition:
        """Folds dimensions of a space; the result has the dimensions that are not reduced."""
        size = tuple(s for s, r in zip(full, reduced, strict=True) if not r)
        fake = self.fake[0] if isinstance(self.fake, tuple | list) else self.fake
        facts = (size, dtype, fake.device, contiguous_strides(size), name)
        if all(s == 1 for s, r in zip(full, reduced, strict=True) if r):
            # One element is its own sum, maximum, …, and the first of its kind.
            def alone(read: Read, index: Index) -> Value:
                if kind.startswith("arg"):
                    return Const(0, dtype)
                kept = iter(index)
                return value(read, tuple(ZERO if r else next(kept) for r in reduced))

            return self._add(MAP, *facts, at=alone)
        return self._add(REDUCTION, *facts, folding=Folding(kind, full, reduced, value))

    def sum_at(
        self,
        start: Definition,
        size: tuple[Expr, ...],
        value: At,
        place: Callable[[Read, Index], Index],
    ) -> Definition:
        """The node's result: `start`, to which elements are added where `place` says.

        Args:
            start: What is there before; nothing else may read it.
            size: Sizes of the space of the elements.
            value: The element at an index.
            place: The index of `start` that it is added to.
        """
        facts = (start.dtype, start.device)
        name = f"{self.node.name}_added"
        strides = contiguous_strides(size)
        addition = Addition(start, place)
        added = self._add(MAP, size, *facts, strides, name, at=value, addition=addition)
        name = self.node.name
        return self._add(EXTERN, start.size, *facts, start.stride, name, added=added)

    def _add(
        self,
        kind: str,
        size: tuple[Expr, ...],
        dtype: torch.dtype,
        device: torch.device,
        stride: tuple[Expr, ...],
        name: str,
        **rest: Any,
    ) -> Definition:
        made = Definition(
            name or self.node.name,
            kind,
            size,
            dtype,
            device,
            stride,
            self.node,
            **rest,
        )
        self.made.append(made)
        return made


def broadcast(read: Read, operand: Definition, index: Index) -> Value:
    """Reads `operand` at `index` of a tensor that it is broadcast to."""
    tail = index[len(index) - len(operand.size) :] if operand.size else ()
    return read(
        operand,
        tuple(ZERO if s == 1 else i for i, s in zip(tail, operand.size, strict=True)),
    )


def element(argument: Any, read: Read, index: Index, dtype: torch.dtype) -> Value:
    """The value of an argument (tensor or number) at `index`, converted to `dtype`."""
    if isinstance(argument, Definition):
        return cast(broadcast(read, argument, index), dtype)
    return number(argument, dtype)


def number(argument: Any, dtype: torch.dtype) -> Value:
    """A number argument as a value of `dtype`."""
    if isinstance(argument, Number):
        if argument.expr is not None:
            return cast(IndexValue(argument.expr, torch.int64), dtype)
        return cast(ScalarArg(argument.node.name, argument.dtype), dtype)
    if isinstance(argument, Definition):
        raise NoLoopForm("a tensor where a number is expected")
    return constant(argument, dtype)


def known_number(argument: Any) -> Any:
    """An argument that must be a number known now.

    Raises:
        NoLoopForm: If it is only known at run time.
    """
    if isinstance(argument, bool | int | float):
        return argument
    raise NoLoopForm("a number that is only known at run time")


def expression(argument: Any) -> Expr:
    """An integer argument as an expression over size symbols."""
    if isinstance(argument, Number):
        if argument.expr is None:
            raise NoLoopForm("an index that depends on data")
        return argument.expr
    return as_expr(argument)
