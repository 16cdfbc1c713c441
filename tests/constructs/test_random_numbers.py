"""The same random numbers as eager, from PyTorch's, Python's and NumPy's generators."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.constructs.support import Cases
from tests.constructs.tensors import small

cases = Cases()
others = Cases()


@cases.add("random-factories", stage="emit")
def random_factories():
    def program(x):
        return (
            torch.rand(3),
            torch.randn_like(x),
            torch.randint(0, 9, (3,)),
            torch.randperm(5),
            F.dropout(x, 0.5),
            torch.bernoulli(x / 2),
            torch.normal(0.0, 1.0, (3,)),
            x.clone().uniform_(),
            x.clone().normal_(),
            x.clone().exponential_(),
            torch.multinomial(torch.ones(4), 2),
        )

    return program, (small(),)


@cases.add("random-across-a-break", stage="emit")
def random_across_a_break():
    def program(x):
        a = torch.rand(3)
        print(a.sum().item())
        b = torch.rand(3)
        return (a, b, F.dropout(x))

    return program, (small(),)


@cases.add("random-dropout-backward", stage="emit", backward=True)
def random_dropout_backward():
    def program(x):
        return (F.dropout(x * 2, 0.3), F.dropout1d(x, 0.5), F.alpha_dropout(x, 0.2))

    return program, (small().requires_grad_(),)


@cases.add("random-generator")
def random_generator():
    gg = torch.Generator().manual_seed(5)

    def f(x, g):
        a = torch.rand(3, generator=g)
        print("k")
        return (
            a,
            torch.randn(2, generator=g),
            x.clone().uniform_(generator=g),
            g.initial_seed(),
        )

    return (f, (small(), gg))


@cases.add("random-generator-made")
def random_generator_made():
    def program(x):
        g = torch.Generator().manual_seed(3)
        return (
            torch.rand(3, generator=g),
            torch.randn(3, generator=g),
            x.clone().normal_(generator=g),
            torch.randperm(4, generator=g),
        )

    return program, (small(),)


@cases.add("random-fork")
def random_fork():
    def program(x):
        a = torch.rand(2)
        with torch.random.fork_rng():
            torch.manual_seed(7)
            b = torch.rand(2)
        return (a, b, torch.rand(2))

    return program, (small(),)


@cases.add("random-seed")
def random_seed():
    def program(x):
        torch.manual_seed(4)
        a = torch.rand(2)
        s = torch.initial_seed()
        st = torch.get_rng_state()
        b = torch.rand(2)
        torch.set_rng_state(st)
        return (a, b, torch.rand(2), s)

    return program, (small(),)


@others.add("random-python")
def random_python():
    def program(x):
        r = random.random()
        k = random.randint(0, 5)
        l = [1, 2, 3]
        random.shuffle(l)
        return (x * r + k, l, random.choice(l), random.Random(3).random())

    return program, (small(),)


@others.add("random-seeded")
def random_seeded():
    def program(x):
        random.seed(3)
        a = random.random()
        np.random.seed(2)
        b = np.random.rand()
        return (x * a * b, np.random.randint(0, 9), np.random.default_rng(3).random())

    return program, (small(),)


@cases.add("random-branch")
def random_branch():
    def program(x):
        if torch.rand(1) < 0.5:
            return x + torch.rand(1)
        return x - torch.rand(2, 1)

    return program, (small(),)


@cases.add("random-unused", stage="emit")
def random_unused():
    def program(x):
        torch.rand(5)
        return x + torch.rand(1)

    return program, (small(),)


@others.add("random-init")
def random_init():
    def program(x):
        w = torch.empty(3, 4)
        nn.init.kaiming_uniform_(w)
        nn.init.xavier_normal_(w)
        nn.init.trunc_normal_(w)
        nn.init.orthogonal_(w)
        return w

    return program, (small(),)


@others.add("random-distributions", backward=True)
def random_distributions():
    def program(x):
        d = torch.distributions.Normal(x, 1.0)
        return (
            d.rsample(),
            torch.distributions.Categorical(logits=x.detach()).sample(),
        )

    return program, (small().requires_grad_(),)


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)


@pytest.mark.parametrize("name", others)
def test_like_eager(name):
    others.check_like_eager(name)
