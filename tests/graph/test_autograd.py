"""Training: gradients, saved tensors and what requires grad are eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from srcjit.passes.functional import (
    SavedInput,
    Value,
    ViewOfInput,
    ViewOfOutput,
    functionalize,
)

from .executor import autocast_region, check, copied, executable, segment_of


def make(*size, dtype=torch.float32, grad=True, seed=0):
    torch.manual_seed(sum(size) + seed)
    return torch.randn(*size).to(dtype).requires_grad_(grad)


def mlp(x, w1, b1, w2, b2):
    h = F.gelu(F.linear(x, w1, b1))
    return (F.linear(h, w2, b2),)


def test_mlp():
    made = check(mlp, make(5, 4, grad=False), make(8, 4), make(8), make(3, 8), make(3))
    assert made.backward.gradients[0] is None
    assert all(g is not None for g in made.backward.gradients[1:])


def test_layer_norm_and_dropout():
    def function(x, g, b):
        h = F.layer_norm(x, (8,), g, b)
        return (F.dropout(F.relu(h), 0.3, True) + x,)

    check(function, make(5, 8), make(8), make(8, seed=1))


def test_embedding_and_cross_entropy():
    def function(t, y, e, w):
        h = F.embedding(t, e)
        return (F.cross_entropy(F.linear(h, w), y), h)

    t, y = torch.tensor([1, 3, 1, 0]), torch.tensor([0, 2, -100, 4])
    check(function, t, y, make(5, 6), make(5, 6, seed=2))
    check(function, t, y, make(5, 6), make(5, 6, seed=2), use=lambda o: [o[0]])


def test_tied_weights_and_double_use():
    def function(t, e):
        h = F.embedding(t, e)
        return (F.linear(h * h + h, e),)

    check(function, torch.tensor([1, 3, 1, 0]), make(5, 6))


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_trains_running_statistics(affine):
    def function(x, mean, var, w, b):
        return (F.batch_norm(x, mean, var, w, b, True, 0.1, 1e-5),)

    x = make(6, 3, 2, 2)
    w, b = (make(3), make(3, seed=1)) if affine else (None, None)
    made = check(function, x, torch.zeros(3), torch.ones(3), w, b)
    assert [m.input for m in made.mutations] == [1, 2]


def test_counter_and_buffer():
    def function(x, seen, total):
        seen += 1
        total.add_(x.detach().sum())
        return (x * seen, total)

    check(function, make(4), torch.tensor(0), torch.tensor(0.0))


def test_bf16_norms():
    def function(x, w):
        return (F.rms_norm(x, (8,), w), x.softmax(-1), F.silu(x) * x)

    check(function, make(5, 8, dtype=torch.bfloat16), make(8, dtype=torch.bfloat16))


def test_losses():
    def function(x, y):
        return (
            F.mse_loss(x, y),
            F.smooth_l1_loss(x, y),
            F.binary_cross_entropy_with_logits(x, y.sigmoid()),
            F.huber_loss(x, y),
            F.l1_loss(x, y),
            F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        )

    check(function, make(4, 5), make(4, 5, seed=3))


def test_activations():
    def function(x):
        acts = [
            F.relu, F.gelu, F.silu, F.elu, F.leaky_relu, F.hardswish, F.hardsigmoid,
            F.hardtanh, F.mish, F.softplus, F.logsigmoid, torch.tanh, torch.sigmoid,
            F.selu, F.celu, F.softsign, F.tanhshrink, F.relu6, torch.sin, torch.exp,
        ]  # fmt: skip
        return tuple(a(x) for a in acts)

    check(function, make(4, 5))


def test_attention():
    def function(x, w):
        q, k, v = F.linear(x, w).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (h.transpose(1, 2).reshape(2, 5, 8),)

    check(function, make(2, 5, 8), make(24, 8))


def test_convolution():
    def function(x, w, b):
        return (F.max_pool2d(F.relu(F.conv2d(x, w, b, padding=1)), 2).flatten(1),)

    check(function, make(2, 3, 8, 8), make(4, 3, 3, 3), make(4))


def test_views_of_inputs():
    def function(x):
        return (x.t(), x[1:], x * 2, x)

    made = check(function, make(4, 5))
    kinds = [type(p) for p in made.outputs]
    assert kinds[:3] == [ViewOfInput, ViewOfInput, Value]


def test_views_of_outputs():
    def function(x):
        z = x * 2
        return (z.t(), z, z[0], (x + 1).view(-1))

    made = check(function, make(4, 5))
    kinds = [type(p) for p in made.outputs]
    assert kinds == [ViewOfOutput, Value, ViewOfOutput, ViewOfOutput]


def test_view_outputs_can_be_written_afterwards():
    def function(x):
        z = x * 2
        return (z.t(), z)

    x = make(4, 5)
    compiled = executable(functionalize(segment_of(function, (x,))))
    results = []
    for run in (function, compiled):
        (leaf,) = copied([x])
        view, whole = run(leaf)
        view.mul_(3)
        whole.sum().backward()
        results.append(leaf.grad)
    assert torch.equal(*results)


def test_no_grad_region_and_detach():
    def function(x, w):
        with torch.no_grad():
            scale = (x * w).abs().max()
            frozen = x.t()
        y = x * scale + w.detach()
        return (y, scale, frozen, (y * 2).detach(), w.detach())

    check(function, make(4, 4), make(4, 4, seed=1))


def test_integer_and_boolean_outputs():
    def function(x):
        values, places = x.max(-1)
        return (values, places, x > 0, x.argmax(0), 3)

    check(function, make(4, 5))


def test_unused_and_partly_used():
    def function(x, w, u):
        return (x * w, torch.log(w - w), x + 1)

    check(function, make(4), make(4, seed=1), make(4, seed=2), use=lambda o: [o[0]])
    check(function, make(4), make(4, seed=1), make(4, seed=2), use=lambda o: [o[2]])
    check(
        function, make(4), make(4, seed=1), make(4, seed=2), use=lambda o: [o[0], o[2]]
    )


def test_fresh_values_written_in_place():
    def function(x, y):
        h = x * 2
        h.add_(y)
        h[0] = y[1]
        v = h.view(-1)
        v[::2] *= 3
        return (h, h.sum())

    check(function, make(4, 4), make(4, 4, seed=1))


def test_tangents_of_any_layout():
    def function(x, w):
        return ((x * w).t() * 2, torch.sin(x))

    x, w = make(4, 6), make(4, 6, seed=1)
    compiled = executable(functionalize(segment_of(function, (x, w))))
    grads = []
    for run in (function, compiled):
        a, b = copied([x, w])
        y, z = run(a, b)
        (
            y.sum() + (z.t().contiguous() * torch.arange(24.0).view(6, 4)).sum()
        ).backward()
        grads.append((a.grad, b.grad))
    for got, want in zip(*grads):
        torch.testing.assert_close(got, want)


def test_autocast_region():
    def function(x, w):
        h, y = autocast_region(lambda: (x @ w, (x @ w).softmax(-1)))
        return (h, y, x @ w)

    made = check(function, make(4, 4), make(4, 4, seed=1))
    assert not made.autocast


def test_under_autocast():
    def function(x, w):
        return (x @ w, (x * 2).sum())

    x, w = make(4, 4), make(4, 4, seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        made = check(function, x, w)
    assert made.autocast


def test_saves_what_eager_saves_or_less():
    def function(x):
        return (torch.sin(torch.exp(x + 1) * 2) / 3,)

    made = check(function, make(100))
    assert len(made.backward.saved) == 1


def test_an_input_may_be_written_if_eager_allows_it():
    def function(x):
        return (torch.exp(x + 1),)

    x = make(8)
    made = functionalize(segment_of(function, (x,)))
    assert SavedInput(0) not in made.backward.saved
    compiled = executable(made)
    (leaf,) = copied([x])
    h = leaf * 1
    y = compiled(h)[0]
    h.mul_(5)
    y.sum().backward()
    torch.testing.assert_close(leaf.grad, torch.exp(x.detach() + 1))


def test_write_to_a_saved_input_raises_as_in_eager():
    def function(x, w):
        return (x * w,)

    compiled = executable(functionalize(segment_of(function, (make(4), make(4)))))
    for run in (function, compiled):
        a, b = make(4) * 1, make(4, seed=1)
        y = run(a, b)[0]
        a.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_second_derivative_raises():
    def function(x):
        return (x * x * x,)

    compiled = executable(functionalize(segment_of(function, (make(4),))))
    x = make(4)
    (g,) = torch.autograd.grad(compiled(x)[0].sum(), x, create_graph=True)
    torch.testing.assert_close(g, 3 * x * x)
    with pytest.raises(RuntimeError, match="first derivatives"):
        g.sum().backward()


def writes_leaf(x, w):
    h = w * 1
    x.add_(h)
    return (x * 2,)


def saved_then_written(x, w):
    h = torch.exp(x)
    h.add_(1)
    return (h,)


@pytest.mark.parametrize("function", [writes_leaf, saved_then_written])
def test_left_at_torch_level(function):
    inputs = (make(4, grad=function is saved_then_written), make(4, seed=1))
    made = functionalize(segment_of(function, inputs))
    assert made.torch_level, made


def test_writes_under_no_grad_to_parameters():
    def function(w, g):
        w.sub_(g, alpha=0.1)
        return ()

    check(function, make(4), make(4, seed=1, grad=False), grad=False)


def test_gradient_of_a_transposed_parameter():
    def function(x, w):
        return (x @ w.t() @ w,)

    check(function, make(4, 6), make(6, 5).detach().t().requires_grad_())


def test_random_order_with_gradients():
    def function(x):
        a = F.dropout(x, 0.5, True)
        noise = torch.randn_like(x)
        return (F.dropout(a * noise, 0.2, True) + a,)

    made = check(function, make(16))
    nodes = made.backward.graph.graph_module.graph.nodes
    assert not any(
        "bernoulli" in str(n.target) for n in nodes if n.op == "call_function"
    )


def test_absent_tangents_with_infinite_derivatives():
    def function(x, w):
        root = torch.sqrt(x)
        return (root * w, x * w, torch.cat([root, w]), (x + w).sum())

    x, w = torch.zeros(4).requires_grad_(), make(4)
    for chosen in ([1], [3], [1, 3], [1, 2], [0, 3]):
        check(function, x, w, use=lambda o, c=chosen: [o[i] for i in c])


def test_absent_text_says_when_it_cannot_be_written():
    big = torch.arange(100.0)

    def function(x):
        return (x * torch.tensor(big.tolist()), x * 2)

    assert functionalize(segment_of(function, (make(100),))).torch_level
