"""What an operation writes to, and which writes are left to Python.

    torch.sin(x, out=y)     # y had another size: PyTorch resizes it
    x[1:] = x[:-1]          # eager refuses: what is written and what is read overlap
    x.expand(2, 3).zero_()  # elements share one place in memory

A segment writes into the memory that its inputs have when it is called, and reads all of its
operands before it writes. Where that is not what eager does, the statement is Python's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .breaks import Break

if TYPE_CHECKING:
    from .evaluator import Evaluator

Layout = tuple[Any, ...]

_BY_OPERATOR = frozenset(
    "iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift".split()
)
_STORES = ("setitem", "__setitem__")
_OVERLAP_WORK = 10_000
"""How long NumPy looks for an element that two strided views share."""


def writes_to_first(name: str) -> bool:
    """True if a function, method or operator of that name may write to its first operand."""
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name in _BY_OPERATOR or name in _STORES


def written(name: str, args: list[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Returns the fakes that the operation `name` writes to.

    Args:
        name: Of the function, method or operator.
        args: Operands; `setitem` writes to a part of the first.
        kwargs: Operands by keyword.
    """
    found = [*_tensors(kwargs["out"])] if kwargs.get("out") is not None else []
    if name in _STORES:
        found += _part(args[0], args[1])
    elif writes_to_first(name) or kwargs.get("inplace") is True:
        found += _tensors(args[:1])
    return found


_WITH_STATISTICS = frozenset(
    "batch_norm instance_norm native_batch_norm _native_batch_norm_legit".split()
)
"""What writes to running statistics among its operands, one after the other."""


def _part(tensor: Any, index: Any) -> Iterator[torch.Tensor]:
    """The view of a tensor that an assignment to `tensor[index]` writes to."""
    if not isinstance(tensor, torch.Tensor):
        return
    parts = index if isinstance(index, tuple) else (index,)
    if all(type(p) in (int, slice, type(None), type(Ellipsis)) for p in parts):
        yield tensor[index]
    else:
        yield tensor


def _tensors(operands: Any) -> Iterator[torch.Tensor]:
    if isinstance(operands, torch.Tensor):
        yield operands
    elif isinstance(operands, (list, tuple)):
        for operand in operands:
            yield from _tensors(operand)


def check(
    name: str, targets: list[torch.Tensor], args: list[Any], kwargs: dict[str, Any]
) -> None:
    """Breaks where the order in which memory is read and written matters.

    Args:
        name: Of the operation.
        targets: What it writes to.
        args: Its operands.
        kwargs: Its operands by keyword.

    Raises:
        Break: SJ030, since eager refuses most of these.
    """
    if not targets and name not in _WITH_STATISTICS:
        return
    operands = args[2:] if name in _STORES else args
    read = [*_tensors([*operands, *kwargs.values()])]
    if name in _WITH_STATISTICS:
        for first, second in itertools.combinations(read, 2):
            if _same_storage(first, second):
                raise Break(
                    "SJ030",
                    f"`{name}` updates statistics that share memory",
                    hint="give each of the statistics a tensor of its own",
                )
    for target in targets:
        if _overlaps_itself(target):
            raise Break(
                "SJ030",
                f"`{name}` writes to a tensor whose elements share places in memory",
                hint="write to a copy of the tensor, made by `clone`",
            )
        for other in read:
            if other is not target and _overlap_in_part(target, other):
                raise Break(
                    "SJ030",
                    f"what `{name}` writes and what it reads overlap in part",
                    hint="read a copy of the tensor, made by `clone`",
                )


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements may share one place; never for strides that nest."""
    dims = [
        (stride, size)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if not (isinstance(size, int) and size <= 1)
    ]
    if any(isinstance(stride, int) and stride == 0 for stride, _ in dims):
        return True
    if any(not isinstance(n, int) for dim in dims for n in dim):
        return False  # symbolic sizes are those of plain layouts
    reach = 0
    for stride, size in sorted(dims):
        if stride <= reach:
            return tensor.numel() > 0
        reach += stride * (size - 1)
    return False


def _same_storage(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


def _overlap_in_part(target: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two views of one storage may share some of their elements but not all."""
    if not _same_storage(target, other):
        return False
    if _place(target) == _place(other) and target.dtype is other.dtype:
        return False
    views = [_as_array(tensor) for tensor in (target, other)]
    if None in views:
        return True
    a, b = (np.asarray(view) for view in views)
    try:
        return bool(np.shares_memory(a, b, max_work=_OVERLAP_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _place(tensor: torch.Tensor) -> Layout:
    return (tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))


class _Memory:
    """Where a tensor would lie if its storage began at a fixed address; never read."""

    def __init__(self, tensor: torch.Tensor) -> None:
        width = tensor.element_size()
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{width}",
            "shape": tuple(tensor.shape),
            "strides": tuple(s * width for s in tensor.stride()),
            "data": (4096 + tensor.storage_offset() * width, False),
        }


def _as_array(tensor: torch.Tensor) -> _Memory | None:
    numbers = (tensor.storage_offset(), *tensor.shape, *tensor.stride())
    return _Memory(tensor) if all(isinstance(n, int) for n in numbers) else None


# ── size, strides and memory ────────────────────────────────────────────────────────


def layouts(targets: list[torch.Tensor]) -> list[tuple[torch.Tensor, Layout]]:
    """Returns the fakes and how each of them lies in memory."""
    return [(tensor, _layout(tensor)) for tensor in targets]


def _layout(tensor: torch.Tensor) -> Layout:
    storage = tensor.untyped_storage()
    return (*_place(tensor), storage._cdata, storage.nbytes())


def refuse_changes(
    ev: Evaluator, name: str, before: list[tuple[torch.Tensor, Layout]]
) -> None:
    """Breaks if the operation `name` gave a tensor another size, strides or memory.

    Raises:
        Break: SJ015; rolling back makes the fakes what they were before.
    """
    changed = [(t, layout) for t, layout in before if _layout(t) != layout]
    for tensor, layout in changed:
        ev.journal.record(_restorer(ev, tensor, layout))
    if changed:
        raise Break("SJ015", f"`{name}` changes the size or the memory of a tensor")


def _restorer(
    ev: Evaluator, tensor: torch.Tensor, layout: Layout
) -> Callable[[], None]:
    offset, size, stride, _, bytes_before = layout

    def restore() -> None:
        with ev.fake_mode, torch.no_grad():
            storage = tensor.untyped_storage()
            tensor.set_(storage, offset, size, stride)
            storage.resize_(bytes_before)

    return restore
