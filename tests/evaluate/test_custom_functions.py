"""Custom autograd functions: one node if they are pure, native otherwise; never run twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import srcjit
from tests.harness import check, no_faults

CALLS: list[str] = []


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k=2):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.k * x.sign().abs() * 3, None


class WithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x * y, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        gx = g * y + h if ctx.needs_input_grad[0] else None
        gy = g * x + h if ctx.needs_input_grad[1] else None
        return gx, gy


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x > 0).float()

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-1, 1)


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        CALLS.append("forward")
        return x * 2

    @staticmethod
    def backward(ctx, g):
        CALLS.append("backward")
        return g * 5


class NoisyBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        print("backward")
        return g * 5


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, g):
        return g * 7


def _leaf() -> torch.Tensor:
    return torch.linspace(-1, 2, 6).reshape(2, 3).requires_grad_()


PROGRAMS: dict[str, Any] = {
    "double": lambda x: Double.apply(x) + Double.apply(x, 5),
    "setup": lambda x: sum(WithSetup.apply(x, x.detach() * 2)),
    "both": lambda x: WithSetup.apply(x, x.sin())[1] * 2,
    "straight": lambda x: Straight.apply(x * 3) * x,
    "noisy": lambda x: Noisy.apply(x) + 1,
    "noisy_backward": lambda x: NoisyBackward.apply(x) + 1,
    "dirty": lambda x: Dirty.apply(x * 1) + 1,
}
WHOLE = ("double", "setup", "both", "straight")


@pytest.mark.parametrize("stage", ["specialize", "emit"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name: str, stage: str) -> None:
    check(
        lambda: (PROGRAMS[name], (_leaf(),), {}),
        stage=stage,
        calls=2,
        backward=True,
        fullgraph=name in WHOLE,
    )


def test_user_code_runs_as_often_as_in_eager() -> None:
    jitted = srcjit.jit(PROGRAMS["noisy"], options={"stage": "specialize"})
    CALLS.clear()
    with no_faults():
        for _ in range(2):
            jitted(_leaf()).sum().backward()
    assert CALLS == ["forward", "backward"] * 2


def test_changed_forward_is_noticed() -> None:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    jitted = srcjit.jit(lambda x: Scale.apply(x), options={"stage": "emit"})
    x = _leaf().detach()
    assert torch.equal(jitted(x), x * 2)
    Scale.forward = staticmethod(lambda ctx, x: x * 9)  # type: ignore[assignment]
    assert torch.equal(jitted(x), x * 9)


def test_checkpoint_without_gradients_is_a_call() -> None:
    from torch.utils.checkpoint import checkpoint

    def program(x):
        with torch.no_grad():
            return checkpoint(torch.sin, x, use_reentrant=False) + 1

    check(lambda: (program, (_leaf(),), {}), stage="specialize", fullgraph=True)
