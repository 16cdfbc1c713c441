"""Functionalization: effects, aliasing, constants and random streams are eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from srcjit.passes.functional import (
    Mutation,
    SameAsInput,
    SameAsOutput,
    Value,
    ViewOfInput,
    ViewOfOutput,
    functionalize,
)

from .executor import check, segment_of


def make(*size, dtype=torch.float32, grad=False):
    torch.manual_seed(sum(size) + 1)
    return torch.randn(*size).to(dtype).requires_grad_(grad)


def add_in_place(x, y):
    x.add_(1)
    return (x * y,)


def write_item(x, y):
    x[0] = y[1]
    return (x + y,)


def write_slice(x, y):
    x[:, 1:3] = 2.0
    return (x.sum(0),)


def write_mask(x, y):
    x[y > 0] = 0.0
    return (x,)


def write_view(x, y):
    v = x.t()
    v.mul_(y.t())
    return (x + 1, v)


def write_out(x, y):
    torch.add(x, y, out=x)
    return (x,)


def write_both(x, y):
    x.add_(y)
    y.mul_(x)
    return (x - y,)


def swap(x, y):
    z = x.clone()
    x.copy_(y)
    y.copy_(z)
    return ()


def write_fresh(x, y):
    z = x * 2
    z.add_(y)
    z[0].zero_()
    return (z,)


def write_fresh_through_view(x, y):
    z = x.clone()
    z.t().add_(y.t())
    return (z,)


def relu_in_place(x, y):
    h = x + y
    return (F.relu(h, inplace=True), h)


def give_input_back(x, y):
    return (x, y, x)


def give_input_views(x, y):
    return (x.t(), x[1], y.view(-1), y.unsqueeze(0).transpose(1, 2))


def give_mutated_view(x, y):
    x.add_(y)
    return (x.t(), x[:, 1:3])


def give_output_views(x, y):
    z = x * y
    return (z, z.t(), z[0])


def give_pieces(x, y):
    z = x + y
    a, b = z.chunk(2, 1)[0], z.chunk(2, 1)[1]
    return (a, b)


def give_same_twice(x, y):
    z = x + y
    return (z, z, z.t(), z)


def give_equal_twice(x, y):
    return (x + y, x + y)


def give_expanded(x, y):
    return ((x[0] * 2).expand(3, 4),)


def give_strided(x, y):
    return ((x + y).t(), (x + y)[:, 1:])


def give_detached(x, y):
    z = x * y
    return (z.detach(), z, x.detach())


def give_clone(x, y):
    return (x.clone(), x.contiguous(), x.t().contiguous(), x.t().clone())


def give_unchanged(x, y):
    return (F.dropout(x, 0.5, False), x.to(torch.float32), x.reshape(4, 4))


def literals(x, y):
    return (x + torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.zeros(2, 3), torch.arange(5))


def constant_written(x, y):
    t = torch.tensor([1.0, 2.0, 3.0, 4.0])
    t.add_(1)
    return (x * t,)


def python_values(x, y):
    return (3, None, 2.5, x.shape[0], x + 1)


def shapes(x, y):
    return (
        torch.cat([x, y], 1),
        torch.stack([x, y]),
        x.repeat(2, 2),
        torch.tril(x),
        x.roll(1, 0),
        F.pad(x, (1, 1)),
    )


def random_values(x, y):
    return (
        F.dropout(x, 0.5, True),
        torch.rand_like(y),
        torch.randn(3),
        torch.bernoulli(torch.sigmoid(x)),
        torch.randint(0, 9, (4,)),
        x.clone().uniform_(),
    )


def random_dead(x, y):
    torch.rand(3)
    F.dropout(x, 0.3, True)
    return (torch.rand(2),)


def softmaxes(x, y):
    return (
        x.softmax(-1),
        y.log_softmax(0),
        F.layer_norm(x, (4,)),
        F.gelu(y),
        x.mean(0),
        x.var(1),
        y.std(),
    )


def strange_strides(x, y):
    a = x.t() * 1
    a.add_(y)
    return (a, x.t().softmax(1), F.layer_norm(y.t(), (4,)), x.t().mean(0))


CASES = [
    add_in_place,
    write_item,
    write_slice,
    write_mask,
    write_view,
    write_out,
    write_both,
    swap,
    write_fresh,
    write_fresh_through_view,
    relu_in_place,
    give_input_back,
    give_input_views,
    give_mutated_view,
    give_output_views,
    give_pieces,
    give_same_twice,
    give_equal_twice,
    give_expanded,
    give_strided,
    give_detached,
    give_clone,
    give_unchanged,
    literals,
    constant_written,
    python_values,
    shapes,
    random_values,
    random_dead,
    softmaxes,
    strange_strides,
]


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "offset"])
def test_like_eager_without_grad(function, layout):
    x, y = make(4, 4), make(4, 4)
    if layout == "transposed":
        x = x.t()
    if layout == "offset":
        x = make(6, 6)[1:5, 1:5]
    if layout == "transposed" and function in (random_values, random_dead):
        pytest.skip("see test_random_fill_of_strange_layouts_stays_at_torch_level")
    check(function, x, y, grad=False, views=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(
    "function", [add_in_place, softmaxes, give_output_views], ids=lambda f: f.__name__
)
def test_like_eager_in_other_dtypes(function, dtype):
    check(
        function,
        make(4, 4, dtype=dtype),
        make(4, 4, dtype=dtype),
        grad=False,
        views=False,
    )


def plans(function, *inputs, grad=False):
    functional = functionalize(segment_of(function, inputs, grad))
    assert not functional.torch_level, functional.reason
    return functional


def test_plans():
    x, y = make(4, 4), make(4, 4)
    assert plans(give_input_back, x, y).outputs == tuple(map(SameAsInput, (0, 1, 0)))
    made = plans(give_mutated_view, x, y)
    assert made.mutations == (Mutation(0, 0),)
    assert [p.view.expression for p in made.outputs] == ["{base}.t()", "{base}[:, 1:3]"]
    assert all(isinstance(p, ViewOfInput) for p in made.outputs)
    made = plans(give_same_twice, x, y)
    kinds = [Value, SameAsOutput, ViewOfOutput, SameAsOutput]
    assert [type(p) for p in made.outputs] == kinds
    assert [p.view.expression for p in plans(give_pieces, x, y).outputs] == [
        "{base}.chunk(2, 1)[0]",
        "{base}.chunk(2, 1)[1]",
    ]


def test_nothing_dead_and_nothing_twice():
    def function(x, y):
        torch.exp(x) + 3
        return (torch.sin(x) + torch.sin(x),)

    made = plans(function, make(4), make(4)).forward
    calls = [n.target for n in made.graph_module.graph.nodes if n.op == "call_function"]
    aten = torch.ops.aten
    assert calls == [aten.sin.default, aten.add.Tensor]


def test_names_and_origins_of_nodes():
    def function(x, y):
        return (torch.sin(x) * y,)

    made = plans(function, make(4), make(4)).forward
    nodes = {n.name: n for n in made.graph_module.graph.nodes}
    assert [n.name for n in made.placeholders] == ["x", "y"]
    assert nodes["mul"].meta["segment_node"] == "mul"
    assert nodes["sin"].meta["segment_node"] == "sin"


def test_constants_are_named():
    made = plans(literals, make(4, 4), make(4, 4)).forward
    assert [t.tolist() for t in made.constants.values()] == [[1.0, 2.0, 3.0, 4.0]]


def in_place_transpose(x, y):
    x.t_()
    return (x + y,)


def resized(x, y):
    x.resize_(2, 2)
    return (x,)


def set_to(x, y):
    x.set_(y)
    return (x,)


def becomes_leaf(x, y):
    return ((x * 1).requires_grad_(),)


def leaves_grad_mode(x, y):
    torch._C._set_grad_enabled(True)
    return (x + 1,)


@pytest.mark.parametrize(
    "function",
    [
        in_place_transpose,
        resized,
        set_to,
        becomes_leaf,
        leaves_grad_mode,
    ],
    ids=lambda f: f.__name__,
)
def test_left_at_torch_level(function):
    made = functionalize(segment_of(function, (make(4, 4), make(4, 4)), False))
    assert made.torch_level and made.reason


def test_writes_to_inputs_that_share_memory_stay_at_torch_level():
    base = make(4, 4)
    segment = segment_of(add_in_place, (base, base.t()), False)
    assert "shares memory" in functionalize(segment).reason
    check(give_output_views, base, base.t(), grad=False, views=False)


def test_random_fill_of_strange_layouts_stays_at_torch_level():
    def drop(x):
        return (F.dropout(x, 0.5, True),)

    def fill(x):
        return (x.clone().uniform_(), torch.rand_like(x), torch.bernoulli(x.sigmoid()))

    assert functionalize(segment_of(drop, (make(4, 6).t(),), False)).torch_level
    check(fill, make(4, 6).t(), grad=False, views=False)


def test_state_is_restored():
    grad = torch.is_grad_enabled()
    functionalize(segment_of(leaves_grad_mode, (make(2), make(2)), False))
    assert torch.is_grad_enabled() is grad
    assert not torch._C._dispatch_tls_is_dispatch_key_included("Functionalize")


def test_one_hot_is_functional_although_it_looks_at_its_classes():
    def function(x, w):
        return (F.one_hot(x.argmin(1), 6).float() * w,)

    found = functionalize(segment_of(function, (torch.randn(3, 6), torch.ones(6))))
    assert not found.torch_level, found.reason
