"""Programs whose gradients are compared as well."""

from __future__ import annotations

import torch

from tests.programs import example
from tests.programs.breaks import gate, greet, sandwich
from tests.programs.specialize import Tower, poly, power_sum


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def two_outputs(x, w):
    h = torch.tanh(x @ w)
    return h, h.detach(), (h * h).sum()


def weighted(x, w):
    with torch.no_grad():
        scale = x.abs().max()
    return (x / scale) * w


TRAINING = {
    "two_outputs": lambda: (two_outputs, (leaf(4, 5), leaf(5, 3)), {}),
    "weighted": lambda: (weighted, (leaf(4, 5), leaf(5)), {}),
    "power_sum": lambda: (power_sum, (leaf(6), 3), {}),
    "poly": lambda: (poly, (leaf(6), [1.0, 2.0, 3.0]), {}),
    "greet": lambda: (greet, (leaf(6),), {}),
    "gate": lambda: (gate, (leaf(6),), {}),
    "sandwich": lambda: (sandwich, (leaf(6), []), {}),
    "tower": lambda: (Tower(8, 2), (leaf(4, 8),), {}),
    "feed_forward": lambda: (
        example("ffn_block").FeedForward(16),
        (leaf(2, 3, 16),),
        {},
    ),
}
