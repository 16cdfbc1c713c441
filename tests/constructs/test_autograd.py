"""Gradients computed, read, hooked and differentiated inside a compiled function."""

from __future__ import annotations

import pytest
import torch

from tests.constructs.support import Cases
from tests.constructs.tensors import ramp, small

cases = Cases()
others = Cases()


class Sq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (g * 2 * x * ctx.k + 100, None)


class Multi(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        i = x > 0
        ctx.mark_non_differentiable(i)
        ctx.save_for_backward(x, y)
        return (x * y, i)

    @staticmethod
    def backward(ctx, g, gi):
        x, y = ctx.saved_tensors
        if g is None:
            return (None, None)
        return (g * y, g * x if ctx.needs_input_grad[1] else None)


class Pr(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print("fw")
        return x * 2

    @staticmethod
    def backward(ctx, g):
        print("bw")
        return g * 3


class New(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inp, out):
        ctx.save_for_backward(out)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


def cube(t):
    return (t**3).sum()


@cases.add("backward-inside")
def backward_inside():
    def program(x):
        (x * x).sum().backward()
        return x.grad

    return program, (ramp().requires_grad_(),)


@cases.add("autograd-grad-inside")
def autograd_grad_inside():
    def program(x):
        y = (x * x * x).sum()
        (g,) = torch.autograd.grad(y, x)
        return g * 2

    return program, (ramp().requires_grad_(),)


@others.add("grad-read-and-written")
def grad_read_and_written():
    def program(x):
        if x.grad is None:
            x.grad = torch.ones_like(x)
        else:
            x.grad += 1
        return x.grad * 2

    return program, (ramp().requires_grad_(),)


@cases.add("grad-set-to-none")
def grad_set_to_none():
    def program(x):
        (x * 2).sum().backward()
        g = x.grad.clone()
        x.grad = None
        return (g, x.grad is None)

    return program, (ramp().requires_grad_(),)


@cases.add("requires-grad-inside")
def requires_grad_inside():
    def program(x):
        y = x.clone().requires_grad_()
        z = (y * y).sum()
        z.backward()
        return y.grad

    return program, (ramp(),)


@cases.add("requires-grad-attribute")
def requires_grad_attribute():
    def program(x):
        x.requires_grad = True
        y = x * 2
        return (y, y.requires_grad)

    return program, (ramp(),)


@cases.add("tensor-hook")
def tensor_hook():
    def program(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        z = y.sin()
        z.sum().backward()
        return z

    return program, (ramp().requires_grad_(),)


@cases.add("tensor-hook-removed")
def tensor_hook_removed():
    def program(x):
        seen = []
        h = x.register_hook(lambda g: seen.append(g.sum().item()))
        (x * x).sum().backward()
        h.remove()
        return seen

    return program, (ramp().requires_grad_(),)


@cases.add("retain-grad")
def retain_grad():
    def program(x):
        y = x * 2
        y.retain_grad()
        (y * y).sum().backward()
        return y.grad

    return program, (ramp().requires_grad_(),)


@cases.add("custom-function", stage="emit", backward=True)
def custom_function():
    def program(x):
        return (Sq.apply(x, 3.0), New.apply(x))

    return program, (small().requires_grad_(),)


@cases.add("custom-function-several", stage="emit", backward=True)
def custom_function_several():
    def program(x):
        return Multi.apply(x, x.detach() + 1)

    return program, (small().requires_grad_(),)


@cases.add("custom-function-effects", backward=True)
def custom_function_effects():
    def program(x):
        return Pr.apply(x)

    return program, (small().requires_grad_(),)


@cases.add("functional-hvp")
def functional_hvp():
    def program(x):
        return (
            torch.autograd.functional.hvp(cube, x, torch.ones_like(x)),
            torch.autograd.functional.jacobian(torch.sin, x[0].detach()),
        )

    return program, (small().requires_grad_(),)


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)


@pytest.mark.parametrize("name", others)
def test_like_eager(name):
    others.check_like_eager(name)
