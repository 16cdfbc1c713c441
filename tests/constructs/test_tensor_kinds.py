"""Subclasses, modes, transforms, and tensors that are not dense."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.constructs.support import Cases
from tests.constructs.tensors import small

cases = Cases()
others = Cases()


class Sub(torch.Tensor):
    pass


class Duck:
    def __init__(self, v):
        self.v = v

    @classmethod
    def __torch_function__(cls, f, types, args=(), kw=None):
        args = [a.v if isinstance(a, Duck) else a for a in args]
        return Duck(f(*args, **kw or {}))


class TM(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.n = []

    def __torch_function__(self, f, t, a=(), k=None):
        self.n.append(getattr(f, "__name__", "?"))
        return f(*a, **k or {})


class DM(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.n = []

    def __torch_dispatch__(self, f, t, a=(), k=None):
        self.n.append(str(f))
        return f(*a, **k or {})


def cube(t):
    return (t**3).sum()


@cases.add("subclass-argument")
def subclass_argument():
    def f(x):
        return (x * 2 + 1, type(x * 2).__name__)

    return (f, (small().as_subclass(Sub),))


@cases.add("subclass-made")
def subclass_made():
    def f(x):
        y = x.as_subclass(Sub)
        z = y * 2
        return (type(z).__name__, z.as_subclass(torch.Tensor) + x)

    return (f, (small(),))


@cases.add("subclass-attribute")
def subclass_attribute():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(small())
            self.sub = small().as_subclass(Sub)

        def forward(self, x):
            return (x * self.w, (x * self.sub).as_subclass(torch.Tensor))

    return (M(), (small(),))


@cases.add("torch-function-object")
def torch_function_object():
    def f(x):
        d = Duck(x)
        e = torch.add(d, 1)
        return (e.v, type(torch.sin(e)).__name__)

    return (f, (small(),))


@cases.add("function-mode-inside")
def function_mode_inside():
    def program(x):
        with TM() as m:
            y = x * 2 + 1
        return (y, m.n)

    return program, (small(),)


@others.add("dispatch-mode-inside")
def dispatch_mode_inside():
    def program(x):
        with DM() as m:
            y = x * 2 + 1
        return (y, m.n)

    return program, (small(),)


@others.add("modes-around")
def modes_around():
    def inner(x):
        return (x * 2).sin()

    import srcjit

    j = srcjit.jit(inner)

    def f(x):
        out = []
        for M in (TM, DM):
            j(x)
            with M() as m:
                y = j(x)
            out.append(m.n)
        return (out, y)

    return (f, (small(),))


@cases.add("func-grad")
def func_grad():
    def program(x):
        gf = torch.func.grad(cube)
        return (
            gf(x),
            torch.func.grad(lambda t: gf(t).sum())(x),
            torch.func.grad_and_value(cube)(x),
        )

    return program, (small(),)


@cases.add("func-vmap")
def func_vmap():
    def program(x):
        return (
            torch.vmap(lambda r: (r * 2).sum())(x),
            torch.func.vmap(torch.dot)(x, x),
        )

    return program, (small(),)


@cases.add("func-jvp")
def func_jvp():
    def program(x):
        return (
            torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),)),
            torch.func.vjp(torch.sin, x)[0],
            torch.func.jacrev(torch.sin)(x[0]),
            torch.func.hessian(cube)(x[0]),
        )

    return program, (small(),)


@others.add("func-functional-call")
def func_functional_call():
    m = nn.Linear(4, 4)

    def f(x):
        p = dict(m.named_parameters())

        def loss(p, x):
            return torch.func.functional_call(m, p, (x,)).pow(2).sum()

        return torch.func.grad(loss)(p, x)

    return (f, (small(),))


@cases.add("func-of-a-jitted-function")
def func_of_a_jitted_function():
    import srcjit

    j = srcjit.jit(lambda t: (t * t).sin().sum())

    def f(x):
        return (torch.func.grad(j)(x), torch.vmap(j)(x), torch.func.jvp(j, (x,), (x,)))

    return (f, (small(),))


@cases.add("sparse-made")
def sparse_made():
    def program(x):
        s = x.to_sparse()
        y = torch.sparse.mm(s, x.t())
        c = x.to_sparse_csr()
        return (y, c @ x.t(), s.to_dense() * 2, s.is_sparse)

    return program, (small(),)


@cases.add("sparse-argument")
def sparse_argument():
    def f(self, x):
        return (self @ x.t(), (self * 2).to_dense())

    return (f, (small().to_sparse(), small()))


@others.add("nested-tensor")
def nested_tensor():
    def program(x):
        n = torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged)
        return (n.is_nested, [t * 2 for t in n.unbind()])

    return program, (small(),)


@cases.add("quantized-tensor")
def quantized_tensor():
    def program(x):
        q = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
        return (q.dequantize() * 2, q.int_repr())

    return program, (small(),)


@cases.add("meta-made")
def meta_made():
    def program(x):
        y = torch.empty(3, 4, device="meta")
        z = y @ y.t()
        return (z.shape, z.device.type, x.to("meta").sum(0).shape)

    return program, (small(),)


@cases.add("meta-argument")
def meta_argument():
    def f(x):
        return ((x * 2).sum(0), x.shape)

    return (f, (torch.empty(3, 4, device="meta"),))


@cases.add("conjugated-argument")
def conjugated_argument():
    def f(x):
        return (x * 2, x.is_conj())

    return (f, (torch.ones(2, 3, dtype=torch.complex64).conj(),))


@cases.add("torchscript-callee")
def torchscript_callee():
    s = torch.jit.script(nn.Linear(4, 4))
    t = torch.jit.trace(lambda a: a * 2, small())

    def f(x):
        return s(x * 1) + t(x)

    return (f, (small(),))


@cases.add("torch-compile-callee")
def torch_compile_callee():
    c = torch.compile(lambda a: a * 2, backend="eager")

    def f(x):
        return c(x * 1) + 1

    return (f, (small(),))


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)


@pytest.mark.parametrize("name", others)
def test_like_eager(name):
    others.check_like_eager(name)
