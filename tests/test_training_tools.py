"""What people put around a model in training: hooks on saved tensors, checkpointing."""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint

import srcjit


def block(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * 2).exp()


def test_checkpoint_of_a_jitted_function() -> None:
    """The first forward compiles and the recomputation does not; both save the same."""
    jitted = srcjit.jit(block)
    x = torch.linspace(-1, 1, 8, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    for _ in range(2):
        checkpoint(block, x, use_reentrant=False).sum().backward()
        checkpoint(jitted, y, use_reentrant=False).sum().backward()
    torch.testing.assert_close(y.grad, x.grad)
    assert len(jitted.__srcjit__.specializations) == 1


def test_hooks_on_saved_tensors_see_no_fakes() -> None:
    seen: list[type] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(type(tensor))
        return tensor

    jitted = srcjit.jit(block)
    x = torch.linspace(-1, 1, 8, requires_grad=True)
    counts = []
    for _ in range(2):
        seen.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            jitted(x)
        assert set(seen) == {torch.Tensor}
        counts.append(len(seen))
    assert counts[0] == counts[1]
