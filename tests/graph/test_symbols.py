"""Run-time numbers and symbolic sizes in segments."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from srcjit.passes.functional import Functional, functionalize
from srcjit.passes.program import Segment

from .executor import executable


def segment(build, inputs, grad=False):
    """`build(call, method, *placeholders)` returns the outputs' nodes."""
    graph = fx.Graph()
    nodes = [graph.placeholder(f"p{i}") for i in range(len(inputs))]
    graph.output(
        build(
            lambda f, *a, **k: graph.call_function(f, a, k),
            lambda f, *a, **k: graph.call_method(f, a, k),
            *nodes,
        )
    )
    module = fx.GraphModule(torch.nn.Module(), graph)
    return Segment("segment_0", module, tuple(inputs), (), grad)


@pytest.fixture
def mode():
    return FakeTensorMode(shape_env=ShapeEnv())


def unbacked(mode, kind):
    env = mode.shape_env
    with env.ignore_fresh_unbacked_symbols():
        make = {int: env.create_unbacked_symint, float: env.create_unbacked_symfloat}
        return make[kind]()


def functional(made: Functional):
    assert not made.torch_level, made.reason
    return executable(made)


def test_numbers_are_inputs(mode):
    x = torch.randn(3, 4)
    alpha, count = unbacked(mode, float), unbacked(mode, int)
    fake = mode.from_tensor(x, static_shapes=True)

    def build(call, method, x, a, k):
        return (
            call(torch.add, call(operator.mul, x, a), k),
            call(operator.truediv, x, a),
            k,
        )

    run = functional(functionalize(segment(build, [fake, alpha, count])))
    got = run(x, 2.5, 3)
    torch.testing.assert_close(got[0], x * 2.5 + 3)
    torch.testing.assert_close(got[1], x / 2.5)
    assert got[2] == 3


def test_a_plain_number_is_no_run_time_number(mode):
    fake = mode.from_tensor(torch.randn(3), static_shapes=True)
    made = functionalize(segment(lambda c, m, x, a: (c(torch.mul, x, a),), [fake, 2.0]))
    assert made.torch_level and "symbol" in made.reason


def test_a_decision_on_a_number_stays_at_torch_level(mode):
    fake = mode.from_tensor(torch.randn(3), static_shapes=True)
    number = unbacked(mode, int)
    made = functionalize(
        segment(lambda c, m, x, k: (c(torch.chunk, x, k),), [fake, number])
    )
    assert made.torch_level


def test_symbolic_sizes(mode):
    def build(call, method, x):
        flat = method("reshape", method("t", x), -1)
        soft = call(torch.softmax, x, dim=-1)
        return (flat, soft, call(F.layer_norm, soft, (6,)), method("size", x, 0))

    run = functional(functionalize(segment(build, [symbolic(mode, (5, 6), {0})])))
    for rows in (5, 9):
        x = torch.randn(rows, 6)
        got = run(x)
        torch.testing.assert_close(got[0], x.t().reshape(-1))
        torch.testing.assert_close(got[1], x.softmax(-1))
        torch.testing.assert_close(got[2], F.layer_norm(x.softmax(-1), (6,)))
        assert got[3] == rows


def symbolic(mode, size, dynamic):
    from torch.fx.experimental.symbolic_shapes import (
        DimDynamic,
        StatelessSymbolicContext,
    )

    x = torch.randn(*size)
    kinds = [
        DimDynamic.DYNAMIC if d in dynamic else DimDynamic.STATIC
        for d in range(len(size))
    ]
    context = StatelessSymbolicContext(dynamic_sizes=kinds)
    return mode.from_tensor(x, symbolic_context=context)


def test_training_with_a_symbolic_batch(mode):
    x = symbolic(mode, (5, 6), {0})
    w = mode.from_tensor(torch.randn(3, 6), static_shapes=True).requires_grad_()

    def build(call, method, x, w):
        h = call(F.gelu, call(F.linear, x, w))
        return (call(F.layer_norm, h, (3,)),)

    made = functionalize(segment(build, [x, w], grad=True))
    run = functional(made)
    assert made.backward is not None
    for rows in (5, 8):
        data = torch.randn(rows, 6)
        ours = torch.randn(3, 6).requires_grad_()
        theirs = ours.detach().clone().requires_grad_()
        want = F.layer_norm(F.gelu(F.linear(data, theirs)), (3,))
        got = run(data, ours)[0]
        torch.testing.assert_close(got, want)
        tangent = torch.randn_like(want)
        got.backward(tangent)
        want.backward(tangent)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1, 2)])
def test_tangents_of_a_symbolic_size_may_be_absent(mode, used):
    x = symbolic(mode, (5, 6), {0, 1}).requires_grad_()
    y = symbolic(mode, (5, 6), {0, 1}).requires_grad_()

    def build(call, method, x, y):
        both = call(torch.cat, (x, y))
        z = call(torch.exp, call(torch.sub, method("mean", both, 0), x))
        parts = call(torch.softmax, both, 0)
        return z, method("sum", call(torch.mul, both, parts), 1), method("sqrt", parts)

    made = functionalize(segment(build, [x, y], grad=True))
    run = functional(made)
    assert made.backward is not None
    for size in ((5, 6), (3, 8)):
        data = [torch.randn(size) for _ in range(2)]
        ours = [d.clone().requires_grad_() for d in data]
        theirs = [d.clone().requires_grad_() for d in data]
        both = torch.cat(theirs)
        parts = torch.softmax(both, 0)
        wanted = (both.mean(0) - theirs[0]).exp(), (both * parts).sum(1), parts.sqrt()
        got = run(*ours)
        for results in got, wanted:
            sum(results[n].square().sum() for n in used).backward()
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.grad, other.grad)
