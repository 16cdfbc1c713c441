"""What emitted `torch.autograd.Function`s need at run time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch


def first_derivative(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a `backward` whose code cannot be differentiated again.

    `torch.autograd.function.once_differentiable` is not enough: where the tangents do not
    require grad it gives gradients that look constant, although they depend on the inputs,
    so that a gradient penalty would be lost in silence. Here every gradient that is made
    under `create_graph=True` raises as soon as something is differentiated through it.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *tangents: Any) -> Any:
        if not torch.is_grad_enabled():
            return backward(ctx, *tangents)
        with torch.no_grad():
            gradients = backward(ctx, *tangents)
        message = (
            f"{type(ctx).__name__} is compiled code for first derivatives; to differentiate "
            "its gradients again, exclude the function from compilation (srcjit.disable)"
        )
        given = gradients if isinstance(gradients, tuple) else (gradients,)
        present = [g for g in given if g is not None and g.is_floating_point()]
        failing = iter(_failing(message, present))
        return tuple(
            next(failing) if g is not None and g.is_floating_point() else g
            for g in given
        )

    return checked


_SHOWN_UNCHECKED = all(
    hasattr(torch._C._autograd.SavedTensor, name) for name in ("data", "unpack")
)
"""Whether this PyTorch shows what it has saved without checking it."""


def unpacked(ctx: Any, wanted: Sequence[bool]) -> list[torch.Tensor]:
    """Returns the saved tensors, of which only those that are wanted are checked.

    Autograd refuses a saved tensor that was written to since it was saved. Those that are
    not wanted are given as they are; where PyTorch cannot, they are checked, too.
    """
    if not _SHOWN_UNCHECKED:
        return [*ctx.saved_tensors]
    found = []
    for saved, want in zip(ctx._raw_saved_tensors, wanted, strict=True):
        # What a user's hook has packed is not checked.
        as_it_is = None if want else saved.data
        found.append(saved.unpack() if as_it_is is None else as_it_is)
    return found


def versions_of(
    tensors: Sequence[torch.Tensor], later: Sequence[int | None] | None = None
) -> list[tuple[torch.Tensor, int, torch.Size]]:
    """Returns what `refuse_written` has to know, without keeping the tensors' memory.

    Args:
        tensors: Eager's autograd has saved these.
        later: For each that the program writes to in a moment, how often that counts; these
            are kept as they are.
    """
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        # What a user's hook has packed is not checked.
        return []
    found = []
    for position, tensor in enumerate(tensors):
        more = later[position] if later else None
        version = tensor._version + (more or 0)
        shape = tensor.shape
        if more is None:
            tensor = tensor.detach()
            # NOTE: it keeps its version, which is that of what it is detached from.
            tensor.data = _nothing(tensor.dtype, tensor.device)
        found.append((tensor, version, shape))
    return found


@functools.cache
def _nothing(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device=device)


def refuse_written(
    versions: Sequence[tuple[torch.Tensor, int, torch.Size]],
    wanted: Sequence[bool] | None = None,
) -> None:
    """Refuses what eager refuses: a backward pass after a write to what it has saved.

    Args:
        versions: What `versions_of` has returned.
        wanted: Which of them eager asks for; all by default.
    """
    for position, (tensor, version, shape) in enumerate(versions):
        if tensor._version != version and (wanted is None or wanted[position]):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by "
                f"an inplace operation: [{tensor.type()} {list(shape)}] is at version "
                f"{tensor._version}; expected version {version} instead. Hint: enable "
                "anomaly detection to find the operation that failed to compute its "
                "gradient, with torch.autograd.set_detect_anomaly(True)."
            )


def _failing(message: str, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns the gradients as results of a node that raises `message`."""
    if not gradients:
        return []
    node = torch._C._functions.DelayedError(message.encode(), len(gradients))
    made = node(*[g.detach().requires_grad_() for g in gradients])
    return list(made) if isinstance(made, tuple) else [made]
