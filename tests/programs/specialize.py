"""Programs whose Python part is known when they are called: unrolled, folded, inlined."""

from __future__ import annotations

import torch

from tests.programs import case, example


def power_sum(x, n):
    acc = torch.zeros_like(x)
    for i in range(n):
        acc = acc + x**i
    return acc


def wave(x):
    return torch.sin(x * 2) + 1


def scaled(x, factor):
    return (x * factor).relu()


def poly(x, coeffs, *, reverse=False, **opts):
    cs = [c for c in (reversed(coeffs) if reverse else coeffs) if c is not None]
    if not cs:
        return x

    def horner(acc, c):
        return acc * x + c

    acc = torch.full_like(x, cs[0])
    for c in cs[1:]:
        if (limit := opts.get("limit")) is not None and c > limit:
            break
        acc = horner(acc, c)
    else:
        acc = acc + opts.get("bias", 0)
    return acc


class Tower(torch.nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU())
            for _ in range(depth)
        )
        self.norm = torch.nn.LayerNorm(width)
        self.drop = torch.nn.Dropout(0.1)
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        for i, layer in enumerate(self.layers):
            x = x + layer(x) if i % 2 else layer(x)
        if self.training:
            self.seen += 1
        return self.drop(self.norm(x))


def x8():
    return torch.linspace(-1, 2, 8)


@case
def power_sum_():
    return power_sum, (x8(), 4)


@case
def power_sum_zero():
    return power_sum, (x8(), 0)


@case
def wave_():
    return wave, (torch.linspace(-1, 1, 30),)


@case
def wave_transposed():
    return wave, (torch.linspace(-1, 1, 30).reshape(5, 6).t(),)


@case
def wave_empty():
    return wave, (torch.empty(0, 3),)


@case
def wave_integer():
    return wave, (torch.arange(5),)


@case
def scaled_():
    return scaled, (x8(), -1.5)


@case
def scaled_bfloat16():
    return scaled, (torch.linspace(-1, 2, 37).bfloat16(), 0.3)


@case
def poly_():
    return poly, (x8(), [1.0, None, 2.0, -3.0]), {"bias": 0.5}


@case
def poly_limit():
    return poly, (x8(), (1.0, 2.0, 9.0)), {"reverse": True, "limit": 1.5}


@case
def poly_empty():
    return poly, (x8(), [None])


@case
def tower_train():
    return Tower(16, 3), (torch.randn(4, 16),)


@case
def tower_eval():
    return Tower(16, 3).eval(), (torch.randn(4, 16),)


@case
def feed_forward():
    module = example("ffn_block").FeedForward(32)
    return module, (torch.randn(2, 3, 32),)


@case
def feed_forward_bfloat16():
    module = example("ffn_block").FeedForward(32).bfloat16()
    return module, (torch.randn(2, 3, 32).bfloat16(),)
