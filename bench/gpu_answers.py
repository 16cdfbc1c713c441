"""What the workloads of `bench.gpu` answer, and how far that is from float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.gpu_workloads import F32, Arguments, Function, Workload


@dataclass(frozen=True)
class Errors:
    """How far results are from float64.

    Attributes:
        relative: The largest ||out - ref|| / ||ref||.
        ulps: The largest distance of an element, in units in the last place of the larger of
            itself and the root mean square of all.
    """

    relative: float
    ulps: float


def errors(results: Sequence[Tensor], references: Sequence[Tensor]) -> Errors:
    """The worst errors of several results; NaN never passes."""
    relative = ulps = 0.0
    for out, reference in zip(results, references, strict=True):
        wide = out.double()
        reference = reference.double()
        if not out.dtype.is_floating_point:
            # What is rounded may be one off.
            off = float(((wide - reference).abs() > 1).double().mean())
            relative = max(relative, off)
            continue
        size = reference.norm().clamp_min(1e-300)
        distance = float((wide - reference).norm() / size)
        relative = max(relative, distance) if distance == distance else float("nan")
        unit = torch.finfo(out.dtype).eps
        scale = reference.abs().clamp_min(float(size) / reference.numel() ** 0.5)
        exponent = torch.frexp(scale).exponent
        step = torch.ldexp(torch.full_like(scale, unit / 2), exponent)
        ulps = max(ulps, float(((wide - reference).abs() / step).max()))
        del wide, scale, exponent, step
    return Errors(relative, ulps)


def outcomes(
    workload: Workload, function: Function, args: Arguments
) -> tuple[Tensor, ...]:
    """What a call computes: its result, and the arguments that it changes."""
    own = tuple(a.clone() if n in workload.mutates else a for n, a in enumerate(args))
    result = function(*own)
    changed = tuple(own[n] for n in workload.mutates)
    if isinstance(result, tuple):
        return (*result, *changed)
    return (result, *changed) if isinstance(result, Tensor) else changed


def stepped(function: Function) -> Function:
    """A function of its arguments and its result's gradient that gives all gradients."""

    def step(*args: Tensor) -> tuple[Tensor, ...]:
        *given, gradient = args
        with torch.enable_grad():
            leaves = [a.detach().requires_grad_(a.is_floating_point()) for a in given]
            result = function(*leaves)
            wanted = [a for a in leaves if a.requires_grad]
            return (result.detach(), *torch.autograd.grad(result, wanted, gradient))

    return step


def references(workload: Workload, args: Arguments) -> tuple[Tensor, ...]:
    """The outcomes in float64."""
    wide = tuple(a.double() if a.is_floating_point() else a for a in args)
    function = stepped(workload.function) if workload.step else workload.function
    return outcomes(workload, function, wide)


def poison(like: Sequence[Tensor], dtype: torch.dtype) -> None:
    """Leaves NaN in the memory that the next tensors of these sizes will get."""
    nan = float("nan")
    held = [torch.full_like(t, nan, dtype=dtype) for t in like for _ in range(3)]
    del held


def checked(
    workload: Workload, call: Function, args: Arguments, wanted: Sequence[Tensor]
) -> Errors:
    """Calls once and compares.

    Raises:
        AssertionError: If the result is further off than the workload allows.
    """
    poison(wanted, args[0].dtype if args[0].is_floating_point() else F32)
    found = errors(outcomes(workload, call, args), wanted)
    if not found.relative <= workload.tolerance:
        raise AssertionError(
            f"relative error {found.relative:.2e} > {workload.tolerance:.0e}"
        )
    return found
