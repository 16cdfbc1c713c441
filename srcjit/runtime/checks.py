"""Checks that eager's kernels make of what tensors hold, as operations of a graph.

A kernel cannot raise. Where a loop form takes the place of a call that would have, one of these
stands before it and gives the kernel values that it may use as they are.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import torch

_library = torch.library.Library("srcjit", "FRAGMENT")
_library.define("checked_classes(Tensor classes, SymInt count) -> Tensor")
_library.define("checked_targets(Tensor target, SymInt classes, int ignored) -> Tensor")


def checked_targets(target: torch.Tensor, classes: int, ignored: int) -> torch.Tensor:
    """Returns the targets of a loss, 0 where they are to be ignored.

    Raises:
        IndexError: For a target that is no class, in the words of `nll_loss`.
    """
    chosen = torch.where(target != ignored, target, 0)
    if chosen.numel():
        low, high = torch.aminmax(chosen)
        if low < 0 or high >= classes:
            wrong = chosen[(chosen < 0) | (chosen >= classes)]
            raise IndexError(f"Target {int(wrong[0])} is out of bounds.")
    return chosen


def checked_classes(classes: torch.Tensor, count: int) -> torch.Tensor:
    """Returns a copy of the classes.

    Raises:
        RuntimeError: For one that is negative, or not below `count`, in the words of `one_hot`.
    """
    if classes.numel():
        low, high = torch.aminmax(classes)
        if low < 0:
            raise RuntimeError("Class values must be non-negative.")
        if high >= count:
            raise RuntimeError("Class values must be smaller than num_classes.")
    return classes.clone(memory_format=torch.contiguous_format)


def _fake_classes(classes: torch.Tensor, count: int) -> torch.Tensor:
    return torch.empty_like(classes, memory_format=torch.contiguous_format)


def _fake_targets(target: torch.Tensor, classes: int, ignored: int) -> torch.Tensor:
    return torch.empty_like(target, memory_format=torch.contiguous_format)


_library.impl("checked_targets", checked_targets, "CPU")
_library.impl("checked_targets", _fake_targets, "Meta")

_library.impl("checked_classes", checked_classes, "CPU")
_library.impl("checked_classes", _fake_classes, "Meta")

CHECKED_CLASSES = torch.ops.srcjit.checked_classes.default
CHECKED = torch.ops.srcjit.checked_targets.default
"""The operations."""
