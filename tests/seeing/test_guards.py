"""Whatever a specialization took for granted may change: never a stale result."""

from __future__ import annotations

import types

import pytest
import torch

import srcjit

FACTOR = 2.0


def helper(x):
    return x + 1


def other_helper(x):
    return x - 1


def same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert actual.dtype == expected.dtype
    assert actual.device == expected.device
    assert actual.stride() == expected.stride()
    assert actual.requires_grad == expected.requires_grad


def agree(function, jitted, *inputs):
    """Calls both with each input, twice over, so that each specialization is met again."""
    for _ in range(2):
        for value in inputs:
            same(jitted(value), function(value))


def wave(x):
    return torch.sin(x * 2) + 1


def test_dtype():
    x = torch.linspace(-1, 1, 10)
    agree(wave, srcjit.jit(wave), x, x.double(), x.half(), x.bfloat16(), x.int())


def test_shape():
    jitted = srcjit.jit(wave)
    agree(wave, jitted, *(torch.linspace(-1, 1, n) for n in (10, 20, 30, 1, 0, 40, 50)))


def test_number_of_dimensions():
    x = torch.linspace(-1, 1, 12)
    agree(wave, srcjit.jit(wave), x, x.reshape(3, 4), x.reshape(2, 2, 3), x.sum())


def test_shape_decides():
    def f(x):
        return x.sum(0) if x.shape[0] > 3 else x * 2

    agree(f, srcjit.jit(f), *(torch.ones(n, 2) for n in (2, 3, 4, 5, 6)))


def test_stride():
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    inputs = (x, x.t().contiguous().t(), x.t(), x[:, ::2], x[:1].expand(3, 4))
    agree(wave, srcjit.jit(wave), *inputs)


def test_stride_decides():
    def f(x):
        return x.view(-1) if x.is_contiguous() else x.sum(1)

    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    agree(f, srcjit.jit(f), x, x.t())


def test_requires_grad():
    x = torch.linspace(-1, 1, 10)
    agree(wave, srcjit.jit(wave), x, x.clone().requires_grad_(), x)


def test_device():
    jitted = srcjit.jit(wave)
    x = torch.linspace(-1, 1, 10)
    same(jitted(x), wave(x))
    assert jitted(x.to("meta")).device.type == "meta"
    same(jitted(x), wave(x))


def test_grad_mode():
    jitted = srcjit.jit(wave)
    x = torch.linspace(-1, 1, 10, requires_grad=True)
    for _ in range(2):
        same(jitted(x), wave(x))
        with torch.no_grad():
            same(jitted(x), wave(x))
        with torch.inference_mode():
            assert jitted(x).is_inference()


def test_autocast():
    def f(x):
        return x @ x

    jitted = srcjit.jit(f)
    x = torch.eye(4)
    for _ in range(2):
        same(jitted(x), f(x))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            same(jitted(x), f(x))


def test_default_dtype():
    def f(x):
        return x + torch.ones(3)

    jitted = srcjit.jit(f)
    x = torch.zeros(3, dtype=torch.float16)
    same(jitted(x), f(x))
    torch.set_default_dtype(torch.float64)
    try:
        same(jitted(x), f(x))
    finally:
        torch.set_default_dtype(torch.float32)
    same(jitted(x), f(x))


def test_global(monkeypatch):
    def f(x):
        return x * FACTOR

    jitted = srcjit.jit(f)
    x = torch.ones(3)
    same(jitted(x), x * 2)
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    same(jitted(x), x * 5)
    monkeypatch.setitem(globals(), "FACTOR", torch.full((3,), 7.0))
    same(jitted(x), x * 7)


def test_global_deleted(monkeypatch):
    def f(x):
        return x * FACTOR

    jitted = srcjit.jit(f)
    jitted(torch.ones(3))
    monkeypatch.delitem(globals(), "FACTOR")
    with pytest.raises(NameError, match="FACTOR"):
        jitted(torch.ones(3))


def test_closure_value():
    scale = 2.0

    def f(x):
        return x * scale

    jitted = srcjit.jit(f)
    x = torch.ones(3)
    same(jitted(x), x * 2)
    scale = 3.0
    same(jitted(x), x * 3)
    scale = 2.0
    same(jitted(x), x * 2)


def test_closure_list():
    scales = [1.0, 2.0]

    def f(x):
        for scale in scales:
            x = x * scale
        return x

    jitted = srcjit.jit(f)
    x = torch.ones(3)
    same(jitted(x), x * 2)
    scales.append(4.0)
    same(jitted(x), x * 8)
    scales[0] = 0.5
    same(jitted(x), x * 4)


def test_default():
    def f(x, scale=2.0, *, shift=0.0):
        return x * scale + shift

    jitted = srcjit.jit(f)
    x = torch.ones(3)
    same(jitted(x), x * 2)
    f.__defaults__ = (3.0,)
    f.__kwdefaults__["shift"] = 1.0
    same(jitted(x), f(x))


def test_argument_value_and_type():
    def f(x, n):
        return x * n if isinstance(n, int) else x + n

    jitted = srcjit.jit(f)
    x = torch.ones(3)
    for _ in range(2):
        for n in (2, 3, 2.0, 3.0, True, 0, -1, 2.5, float("nan"), -0.0, 1 << 40):
            torch.testing.assert_close(jitted(x, n), f(x, n), equal_nan=True)


def test_none_and_structure():
    def f(x, extra=None):
        if extra is None:
            return x
        return x + sum(extra.values()) if isinstance(extra, dict) else x + sum(extra)

    jitted = srcjit.jit(f)
    x = torch.ones(3)
    for _ in range(2):
        for extra in (
            None,
            [x],
            [x, x],
            (x, x),
            {"a": x},
            {"b": x},
            {"a": x, "b": x},
            [],
        ):
            same(jitted(x, extra), f(x, extra))


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.factor = 2.0
        self.mode = "mul"
        self.config = types.SimpleNamespace(bias=1.0)
        self.register_buffer("offset", torch.zeros(3))

    def forward(self, x):
        h = self.linear(x)
        h = h * self.factor if self.mode == "mul" else h / self.factor
        h = h + self.config.bias + self.offset
        return h.relu() if self.training else h


def changed(module, how):
    module.eval().train()
    if how == "number":
        module.factor = 3.0
    elif how == "string":
        module.mode = "div"
    elif how == "nested":
        module.config.bias = 5.0
    elif how == "training":
        module.eval()
    elif how == "buffer":
        module.offset = torch.ones(3)
    elif how == "in place":
        module.offset.add_(4)
    elif how == "dtype":
        module.double()
    elif how == "parameter":
        module.linear.weight = torch.nn.Parameter(torch.eye(3))
    elif how == "submodule":
        module.linear = torch.nn.Linear(3, 4)
        module.offset = torch.ones(4)
    elif how == "frozen":
        module.requires_grad_(False)
    elif how == "hook":
        module.linear.register_forward_hook(lambda mod, args, out: out + 100)
    elif how == "forward":
        module.forward = types.MethodType(lambda self, x: x - self.factor, module)


@pytest.mark.parametrize(
    "how",
    [
        "number", "string", "nested", "training", "buffer", "in place", "dtype",
        "parameter", "submodule", "frozen", "hook", "forward",
    ],
)  # fmt: skip
def test_module_attribute(how):
    module = Scaled()
    jitted = srcjit.jit(module)
    x = torch.randn(2, 3)
    same(jitted(x), Scaled.forward(module, x))
    changed(module, how)
    twin = Scaled()
    changed(twin, how)
    twin.load_state_dict(module.state_dict())
    x = x.to(next(module.parameters()).dtype)
    for _ in range(2):
        same(jitted(x), twin(x))


def test_code_of_an_inlined_function(monkeypatch):
    def f(x):
        return helper(x) * 2

    jitted = srcjit.jit(f)
    x = torch.ones(3)
    same(jitted(x), f(x))
    monkeypatch.setattr(helper, "__code__", other_helper.__code__)
    same(jitted(x), x * 0)


def test_inlined_function_rebound(monkeypatch):
    def f(x):
        return helper(x) * 2

    jitted = srcjit.jit(f)
    x = torch.ones(3)
    same(jitted(x), f(x))
    monkeypatch.setitem(globals(), "helper", other_helper)
    same(jitted(x), x * 0)


def test_method_replaced(monkeypatch):
    module = Scaled()
    jitted = srcjit.jit(lambda x: module(x) + 1)
    x = torch.randn(2, 3)
    jitted(x)
    monkeypatch.setattr(Scaled, "forward", lambda self, x: x * 10)
    same(jitted(x), x * 10 + 1)


def test_aliasing_of_arguments():
    def f(x, y):
        x.add_(1)
        return x * y

    jitted = srcjit.jit(f)
    for _ in range(2):
        a, b = torch.ones(4), torch.ones(4)
        same(jitted(a, b), torch.full((4,), 2.0))
        same(jitted(a, a), torch.full((4,), 9.0))
        base = torch.ones(6)
        same(jitted(base[:4], base[2:]), f((c := torch.ones(6))[:4], c[2:]))
