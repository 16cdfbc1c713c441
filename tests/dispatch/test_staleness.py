"""With the real compiler: whatever changes, the result is never that of before the change."""

from __future__ import annotations

import threading
import traceback

import pytest
import torch
from torch import nn

import srcjit

STAGE = {"stage": "specialize"}
FACTOR = 2.0


@pytest.fixture(autouse=True)
def compiled(warnings):
    """Nothing is remembered from before, and nothing falls back to eager in silence."""
    srcjit.reset()
    yield
    assert not warnings


def jit(function, **options):
    return srcjit.jit(function, options={**STAGE, **options})


def specializations(jitted):
    dispatcher = jitted.__srcjit__
    assert dispatcher.disabled is None
    return len(dispatcher.specializations)


def check(jitted, function, *args):
    """Twice, so that what was compiled for these arguments is used as well."""
    for _ in range(2):
        ours, eager = jitted(*args), function(*args)
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)
        assert (ours.stride(), ours.requires_grad) == (
            eager.stride(),
            eager.requires_grad,
        )


def affine(x):
    return x * 2 + 1


def test_a_changed_dtype_shape_stride_or_requires_grad():
    jitted = jit(affine, limit=16)
    x = torch.arange(12.0).reshape(3, 4)
    for value in (
        x,
        x.double(),
        x.int(),
        x[:2],
        x.t(),
        x[:, ::2],
        x.clone().requires_grad_(),
        nn.Parameter(x),
        x.bfloat16(),
        torch.tensor(3.0),
        x[:0],
        x,
    ):
        check(jitted, affine, value)


def test_a_changed_device():
    jitted = jit(affine)
    check(jitted, affine, torch.ones(3))
    assert jitted(torch.ones(3, device="meta")).is_meta
    check(jitted, affine, torch.ones(3))


def test_a_changed_grad_mode():
    def leaf(x, w):
        return x * w

    jitted = jit(leaf)
    x, w = torch.ones(3), torch.ones(3, requires_grad=True)
    check(jitted, leaf, x, w)
    with torch.no_grad():
        check(jitted, leaf, x, w)
    with torch.inference_mode():
        assert jitted(x, w).is_inference()
    check(jitted, leaf, x, w)


def test_a_changed_autocast_or_default():
    def product(x, y):
        return x @ y + torch.ones(2)

    jitted = jit(product)
    x = torch.ones(2, 2)
    check(jitted, product, x, x)
    with torch.autocast("cpu", torch.bfloat16):
        check(jitted, product, x, x)
    torch.set_default_dtype(torch.float64)
    try:
        check(jitted, product, x, x)
    finally:
        torch.set_default_dtype(torch.float32)
    check(jitted, product, x, x)


def by_global(x):
    return x * FACTOR


def test_a_changed_global(monkeypatch):
    jitted = jit(by_global)
    x = torch.ones(3)
    check(jitted, by_global, x)
    for factor in (3.0, 4, torch.tensor(5.0), True):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        check(jitted, by_global, x)


def test_a_changed_closure_variable():
    factor = 2.0

    def scaled(x):
        return x * factor

    jitted = jit(scaled)
    x = torch.ones(3)
    check(jitted, scaled, x)
    factor = 3.0
    check(jitted, scaled, x)
    factor = torch.tensor(4.0)
    check(jitted, scaled, x)


def test_a_changed_default():
    def scaled(x, factor=2.0, *, bias=1.0):
        return x * factor + bias

    jitted = jit(scaled)
    x = torch.ones(3)
    check(jitted, scaled, x)
    scaled.__defaults__ = (3.0,)
    check(jitted, scaled, x)
    scaled.__kwdefaults__ = {"bias": 5.0}
    check(jitted, scaled, x)


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 2.0
        self.weight = nn.Parameter(torch.ones(3))
        self.inner = nn.Linear(3, 3)
        self.mode = "add"

    def forward(self, x):
        y = self.inner(x) * self.factor + self.weight
        return y.relu() if self.training else y


def test_a_changed_module():
    torch.manual_seed(0)
    module = Scale()
    jitted = jit(module)
    x = torch.randn(2, 3)

    def agree(*, dtype=torch.float32):
        check(jitted, module, x.to(dtype))

    agree()
    module.factor = 3.0
    agree()
    module.eval()
    agree()
    module.inner = nn.Linear(3, 3, bias=False)
    agree()
    with torch.no_grad():
        module.weight.fill_(7.0)
    agree()
    module.weight = nn.Parameter(torch.zeros(3))
    agree()
    module.weight.requires_grad_(False)
    agree()
    module.double()
    agree(dtype=torch.float64)
    module.inner.forward = lambda x: x + 1
    agree(dtype=torch.float64)
    module.inner.register_forward_hook(lambda m, a, out: out * 2)
    agree(dtype=torch.float64)


def test_changed_code_of_an_inlined_function(monkeypatch):
    def helper(x):
        return x + 1

    def other(x):
        return x + 2

    def caller(x):
        return helper(x) * 2

    jitted = jit(caller)
    x = torch.ones(3)
    check(jitted, caller, x)
    helper.__code__ = other.__code__
    check(jitted, caller, x)
    monkeypatch.setattr(Scale, "forward", lambda self, x: x * 5)
    module = Scale()
    wrapped = jit(module)
    check(wrapped, module, x)
    monkeypatch.setattr(Scale, "forward", lambda self, x: x * 6)
    check(wrapped, module, x)


def test_aliased_arguments():
    def update(x, y):
        x.add_(1)
        return x * y

    jitted = jit(update)
    for _ in range(2):
        a, b, c = torch.ones(3), torch.ones(3), torch.ones(3)
        assert torch.equal(jitted(a, b), torch.full((3,), 2.0))
        assert torch.equal(jitted(c, c), torch.full((3,), 4.0))
        whole = torch.ones(4)
        expected = torch.ones(4)
        assert torch.equal(
            jitted(whole[:3], whole[1:]), update(expected[:3], expected[1:])
        )


def test_a_jitted_module_in_a_jitted_function_is_inlined():
    torch.manual_seed(0)
    inner = Scale()
    jitted_inner = jit(inner)

    def outer(x):
        return jitted_inner(x) * 2

    jitted = jit(outer)
    x = torch.randn(2, 3)
    check(jitted, lambda x: inner(x) * 2, x)
    (only,) = jitted.__srcjit__.specializations
    assert len(only.specialized.segments) == 1 and not only.breaks
    inner.factor = 9.0
    check(jitted, lambda x: inner(x) * 2, x)


def test_a_users_bug_raises_eagers_exception_with_the_users_line(capfd):
    def wrong(x, y):
        z = x * 2
        return z @ y

    def failure(function):
        with pytest.raises(RuntimeError) as caught:
            function(torch.ones(2, 3), torch.ones(4, 5))
        last = traceback.extract_tb(caught.value.__traceback__)[-1]
        return str(caught.value), last.filename, last.lineno, last.name, last.line

    jitted = jit(wrong)
    for _ in range(3):
        assert failure(jitted) == failure(wrong)
    assert jitted.__srcjit__.disabled is None
    assert capfd.readouterr() == ("", "")


def test_eight_threads_with_changing_shapes():
    jitted = jit(affine, limit=64)
    wrong = []

    def work(seed):
        for call in range(300):
            x = torch.full((1 + (call + seed) % 5,), float(call))
            if not torch.equal(jitted(x), affine(x)):
                wrong.append(x)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong
    assert specializations(jitted) <= 5
