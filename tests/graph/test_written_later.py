"""Outputs and inputs that are written to before the backward pass: eager's gradients and refusals.

Eager refuses a write to what autograd has saved and allows any other; what a compiled
segment saves may be something else, but the program must not be able to tell.
"""

from __future__ import annotations

import weakref

import pytest
import torch
import torch.nn.functional as F

from srcjit.passes.functional import functionalize

from .executor import executable, segment_of

REFUSED = "modified by an inplace operation"

OPERATORS = {
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "layer_norm of a weight": lambda x: F.layer_norm(x, (8,), x[0] * 2, x[1]),
    "layer_norm as a view": lambda x: F.layer_norm(x, (8,)).view(-1),
    "layer_norm, transposed": lambda x: F.layer_norm(x, (8,)).t(),
    "layer_norm of bfloat16": lambda x: F.layer_norm(x.bfloat16(), (8,)),
    "layer_norm of linear": lambda x: F.layer_norm(F.linear(x, x[:5].sin()), (5,)),
    "rms_norm": lambda x: F.rms_norm(x, (8,)),
    "instance_norm": lambda x: F.instance_norm(x.view(2, 3, 8)),
    "group_norm": lambda x: F.group_norm(x.view(1, 6, 8), 3),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "local_response_norm": lambda x: F.local_response_norm(x[None], 3),
    "normalize": F.normalize,
    "standardize": lambda x: (x - x.mean(-1, True)) / x.std(-1, keepdim=True),
    "softmax": lambda x: x.softmax(-1),
    "softmax of linear": lambda x: F.linear(x, x[:5].sin()).softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "exp of exp": lambda x: x.exp().exp(),
    "tanh of sin": lambda x: x.sin().tanh(),
    "sin of tanh": lambda x: x.tanh().sin(),
    "tanh times x": lambda x: x.tanh() * x,
    "sigmoid times x": lambda x: x.sigmoid() * x,
    "relu": F.relu,
    "relu of linear": lambda x: F.relu(F.linear(x, x[:5].sin())),
    "leaky_relu": F.leaky_relu,
    "hardtanh": F.hardtanh,
    "gelu": F.gelu,
    "silu": F.silu,
    "elu": F.elu,
    "softplus": F.softplus,
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "glu": F.glu,
    "prelu": lambda x: F.prelu(x, x[0, :1]),
    "threshold": lambda x: F.threshold(x, 0.1, 0.0),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp_min": lambda x: x.clamp_min(0),
    "nan_to_num": lambda x: x.nan_to_num(),
    "softmax, scaled": lambda x: x.softmax(-1) * 3,
    "quotient": lambda x: x / x.sum(-1, keepdim=True),
    "reciprocal": lambda x: (x * x + 1).reciprocal(),
    "sqrt": lambda x: (x.abs() + 1).sqrt(),
    "rsqrt": lambda x: (x * x + 1).rsqrt(),
    "square root's reciprocal": lambda x: x.abs().sqrt().reciprocal(),
    "pow": lambda x: x.abs() ** 2.5,
    "2 ** x": lambda x: 2**x,
    "x ** x": lambda x: x.abs() ** x,
    "prod": lambda x: x.prod(-1),
    "cumprod": lambda x: x.cumprod(-1),
    "cummax": lambda x: x.cummax(-1).values,
    "max": lambda x: x.max(),
    "max of rows": lambda x: x.max(-1).values,
    "amax": lambda x: x.amax(-1),
    "norm": lambda x: x.norm(dim=-1),
    "norm of order 1": lambda x: x.norm(1, dim=-1),
    "std": lambda x: x.std(-1),
    "std_mean": lambda x: torch.std_mean(x, -1)[0],
    "matrix product": lambda x: x @ x.t(),
    "exp of a product": lambda x: (x @ x.t()).exp(),
    "gather": lambda x: x.gather(-1, torch.zeros(6, 2, dtype=torch.long)),
    "embedding": lambda x: F.embedding(torch.tensor([0, 1]), x),
    "cross entropy": lambda x: F.cross_entropy(
        x, torch.arange(6), reduction="none"
    ),
    "where": lambda x: torch.where(x > 0, x, x * 2),
    "lerp": lambda x: torch.lerp(x, x * 2, x),
    "cat": lambda x: torch.cat([x, x.exp()]),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(1, 2, 3, 8)] * 3),
    "a view of exp": lambda x: x.exp().t()[1:],
}  # fmt: skip


def multiplied(tensor):
    tensor.mul_(3)


def cleared(tensor):
    with torch.no_grad():
        tensor.zero_()


def outcome(function, write, to):
    """The gradient that comes out, or the refusal."""
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
    h = x * 1
    (y,) = function(h)
    write(y if to == "output" else h)
    weight = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape)
    try:
        (y * weight).sum().backward()
    except RuntimeError as error:
        assert REFUSED in str(error)
        return REFUSED
    return x.grad


@pytest.mark.parametrize("name", OPERATORS)
def test_writes_before_the_backward_pass(name):
    def function(x):
        return (OPERATORS[name](x),)

    functional = functionalize(
        segment_of(function, (torch.randn(6, 8).requires_grad_(),))
    )
    assert not functional.torch_level, functional.reason
    compiled = executable(functional)
    for write, to in (
        (multiplied, "output"),
        (cleared, "output"),
        (multiplied, "input"),
    ):
        got, want = (outcome(f, write, to) for f in (compiled, function))
        if isinstance(want, str) or isinstance(got, str):
            assert got == want, (write, to)
            continue
        torch.testing.assert_close(
            got, want, rtol=1e-4, atol=1e-4, msg=lambda m: f"{write} {to}: {m}"
        )


def test_what_only_the_cut_would_save_is_copied():
    """Another's sum is read by the gradient of a quotient, but nobody can write to the copy."""

    def function(x):
        with torch.no_grad():
            shown = torch.exp(x).sum(-1, keepdim=True)
        total = torch.exp(x).sum(-1, keepdim=True)
        return shown, torch.exp(x) / total

    x = torch.randn(6, 8)
    functional = functionalize(segment_of(function, (x.requires_grad_(),)))
    gradients = []
    for run in (function, executable(functional)):
        leaf = x.detach().clone().requires_grad_()
        shown, y = run(leaf)
        shown.zero_()
        (y * y).sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


def compiled_of(function, *inputs):
    functional = functionalize(segment_of(function, inputs))
    assert not functional.torch_level, functional.reason
    return executable(functional)


def refuses(run):
    try:
        run()
    except RuntimeError as error:
        assert REFUSED in str(error)
        return True
    return False


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("written", range(4))
def test_only_what_goes_with_used_outputs_is_asked_for(written, used):
    def function(x, w):
        root = (x * x + 1).sqrt()
        return root, F.relu(F.hardtanh(w) * 2)

    compiled = compiled_of(function, *(torch.randn(4).requires_grad_() for _ in "xw"))

    def run(f):
        x, w = (torch.linspace(-1, 2, 4).requires_grad_() * 1 for _ in "xw")
        outputs = f(x, w)
        (*outputs, x, w)[written].mul_(2)
        return refuses(lambda: sum(outputs[u].sum() for u in used).backward())

    assert run(compiled) == run(function)


@pytest.mark.parametrize("again", [False, True])
def test_an_input_that_the_segment_writes_to(again):
    def function(x, w, buffer):
        buffer.add_(x.detach())
        buffer.mul_(2)
        return (F.hardtanh(w * buffer),)

    inputs = (torch.randn(4), torch.randn(4).requires_grad_(), torch.randn(4))
    compiled = compiled_of(function, *inputs)

    def run(f):
        x, w, buffer = (t.detach().clone() for t in inputs)
        (y,) = f(x, w.requires_grad_(), buffer)
        if again:
            f(x, w, buffer)
        return refuses(y.sum().backward)

    assert run(compiled) == run(function) == again


def test_running_statistics_may_be_written_to():
    def function(x, mean, var):
        return (F.batch_norm(x, mean, var, training=True),)

    inputs = (torch.randn(6, 3).requires_grad_(), torch.zeros(3), torch.ones(3))
    compiled = compiled_of(function, *inputs)
    (first,), (second,) = compiled(*inputs), compiled(*inputs)
    (first * second).sum().backward()


def test_versions_keep_no_memory():
    def function(x):
        return (F.relu(F.hardtanh(x)),)

    compiled = compiled_of(function, torch.randn(4).requires_grad_())
    (y,) = compiled(torch.randn(4).requires_grad_())
    memory = weakref.ref(y.untyped_storage())
    total = y.sum()
    del y
    assert memory() is None
    total.backward()


def test_what_a_hook_has_packed_is_not_checked():
    def function(x):
        return (F.relu(x),)

    compiled = compiled_of(function, torch.randn(4).requires_grad_())
    for run in (function, compiled):
        x = torch.randn(4).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda t: t):
            (y,) = run(x)
        y.mul_(2)
        y.sum().backward()
