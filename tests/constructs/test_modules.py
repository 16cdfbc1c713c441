"""`nn.Module`: hooks, parametrizations, containers, state that forward changes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import torch.nn.utils.parametrize as P
from torch import nn

from tests.constructs.support import Cases
from tests.constructs.tensors import small

cases = Cases()
others = Cases()


class Lin(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.log = []

    def forward(self, x, k=1):
        return self.l(x) * k


@cases.add("hook-forward")
def hook_forward():
    m = Lin()
    m.l.register_forward_hook(lambda mod, i, o: o * 2)
    return (m, (small(),))


@cases.add("hook-pre-with-kwargs")
def hook_pre_with_kwargs():
    m = Lin()
    m.register_forward_pre_hook(
        lambda mod, a, k: ((a[0] + 1,), {"k": k.get("k", 1) * 3}), with_kwargs=True
    )
    return (m, (small(),), {"k": 2})


@cases.add("hook-forward-with-kwargs")
def hook_forward_with_kwargs():
    m = Lin()
    m.register_forward_hook(lambda mod, a, k, o: o * k["k"], with_kwargs=True)
    return (m, (small(),), {"k": 2})


@cases.add("hook-with-effects")
def hook_with_effects():
    m = Lin()

    def h(mod, i, o):
        m.log.append(float(o.sum()))

    m.l.register_forward_hook(h)
    return (m, (small(),))


@cases.add("hook-order")
def hook_order():
    m = Lin()
    m.l.register_forward_hook(lambda a, b, o: o + 1)
    m.l.register_forward_hook(lambda a, b, o: o * 2, prepend=True)
    return (m, (small(),))


@cases.add("hook-always-called")
def hook_always_called():
    m = Lin()

    class E(Lin):
        def forward(self, x):
            raise ValueError("boom")

    m = E()
    m.register_forward_hook(lambda mod, i, o: mod.log.append(1), always_call=True)
    return (m, (small(),))


@cases.add("hook-backward", backward=True)
def hook_backward():
    m = Lin()
    m.l.register_full_backward_hook(
        lambda mod, gi, go: (gi[0] * 2 if gi[0] is not None else None,)
    )
    return (m, (small().requires_grad_(),))


@cases.add("hook-backward-pre", backward=True)
def hook_backward_pre():
    m = Lin()
    m.l.register_full_backward_pre_hook(lambda mod, go: (go[0] * 3,))
    return (m, (small().requires_grad_(),))


@cases.add("hook-global")
def hook_global():
    m = Lin()

    def f(x):
        h = nn.modules.module.register_module_forward_hook(lambda a, b, o: o + 1)
        try:
            y = m(x)
        finally:
            h.remove()
        return (y, m(x))

    return (f, (small(),))


@cases.add("parametrization")
def parametrization():
    class Sym(nn.Module):
        def forward(self, W):
            return W.triu() + W.triu(1).mT

    m = Lin()
    P.register_parametrization(m.l, "weight", Sym())
    return (m, (small(),))


@cases.add("parametrization-weight-norm", backward=True)
def parametrization_weight_norm():
    m = Lin()
    m.l = nn.utils.parametrizations.weight_norm(m.l)
    return (m, (small(),))


@cases.add("parametrization-spectral-norm", backward=True)
def parametrization_spectral_norm():
    m = Lin()
    m.l = nn.utils.parametrizations.spectral_norm(m.l)
    return (m, (small(),))


@others.add("parametrization-cached")
def parametrization_cached():
    m = Lin()
    m.l = nn.utils.parametrizations.weight_norm(m.l)

    def f(x):
        with P.cached():
            return m(x) + m(x)

    return (f, (small(),))


@others.add("module-lazy")
def module_lazy():
    m = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2))
    return (m, (small(),))


@cases.add("module-tied-weights", backward=True)
def module_tied_weights():
    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    return (W(), (small(),))


@cases.add("module-containers", backward=True)
def module_containers():
    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.ml = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
            self.md = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Identity()})
            self.pl = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(2)])
            self.pd = nn.ParameterDict({"q": nn.Parameter(torch.ones(4))})
            self.plain = [nn.Linear(4, 4)]
            self.pdict = {"z": nn.Linear(4, 4)}

        def forward(self, x):
            for i, l in enumerate(self.ml):
                x = l(x) + i
            for k, v in self.md.items():
                x = v(x)
            for p in self.pl:
                x = x * p
            x = x + self.pd["q"]
            x = self.plain[0](x) + self.pdict["z"](x)
            x = self.ml[-1](x) + self.ml[1:][0](x)
            return x + len(self.ml) + len(self.md) + ("a" in self.md)

    return (W(), (small(),))


@cases.add("buffer-reassigned")
def buffer_reassigned():
    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.zeros(4))
            self.n = 0

        def forward(self, x):
            self.b = self.b * 0.5 + x.mean(0)
            self.n += 1
            return x - self.b

    return (W(), (small(),))


@cases.add("buffer-written", stage="emit")
def buffer_written():
    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.zeros(4))
            self.register_buffer("c", torch.tensor(0))

        def forward(self, x):
            self.b.mul_(0.5).add_(x.mean(0))
            self.c += 1
            return x - self.b / self.c

    return (W(), (small(),))


@others.add("module-registers")
def module_registers():
    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 0

        def forward(self, x):
            if not hasattr(self, "w"):
                self.register_parameter("w", nn.Parameter(torch.ones(4)))
                self.register_buffer("bb", torch.ones(4) * 2, persistent=False)
                self.add_module("lin", nn.Identity())
            return self.lin(x * self.w + self.bb)

    return (W(), (small(),))


@cases.add("parameter-assigned")
def parameter_assigned():
    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(4))

        def forward(self, x):
            y = x * self.w
            self.w = nn.Parameter(self.w.detach() * 2)
            return y * self.w

    return (W(), (small(),))


@cases.add("submodule-assigned")
def submodule_assigned():
    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Identity()

        def forward(self, x):
            y = self.l(x)
            self.l = nn.ReLU() if isinstance(self.l, nn.Identity) else nn.Tanh()
            return (y, self.l(x))

    return (W(), (small(),))


@cases.add("module-super-forward")
def module_super_forward():
    class A(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)

        def forward(self, x):
            return self.l(x)

    class B(A):
        def forward(self, x):
            return super().forward(x) + super().forward(x)

    class C(B):
        def forward(self, x, *a):
            return B.forward(self, x) * 2

    return (C(), (small(),))


@cases.add("module-long-sequential")
def module_long_sequential():
    return (
        nn.Sequential(*[nn.Identity() for _ in range(300)], nn.Linear(4, 4)),
        (small(),),
    )


@cases.add("module-train-toggled")
def module_train_toggled():
    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.d = nn.Dropout(0.5)
            self.n = 0
            self.bn = nn.BatchNorm1d(4)

        def forward(self, x):
            y = self.bn(self.d(x))
            self.n += 1
            self.train(self.n % 2 == 0)
            return y

    return (W(), (small(),))


@cases.add("module-iteration")
def module_iteration():
    m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))

    def f(x):
        s = x.sum()
        for n, p in m.named_parameters():
            s = s + p.sum() * len(n)
        for b in m.buffers():
            s = s + b
        for c in m.children():
            s = s + 1
        for mm in m.modules():
            s = s + (1 if isinstance(mm, nn.Linear) else 0)
        return (s, sum(p.numel() for p in m.parameters()))

    return (f, (small(),))


@cases.add("module-apply")
def module_apply():
    m = nn.Sequential(nn.Linear(4, 4))

    def f(x):
        m.apply(lambda c: nn.init.ones_(c.weight) if isinstance(c, nn.Linear) else None)
        return m(x)

    return (f, (small(),))


@cases.add("module-to")
def module_to():
    m = nn.Linear(4, 4)

    def f(x):
        m.double()
        y = m(x.double())
        m.float()
        return y

    return (f, (small(),))


@others.add("module-state-dict")
def module_state_dict():
    m = nn.Linear(4, 4)

    def f(x):
        sd = m.state_dict()
        m.load_state_dict({k: v * 2 for k, v in sd.items()})
        return (m(x), list(sd))

    return (f, (small(),))


@others.add("optimizer-step")
def optimizer_step():
    m = nn.Linear(4, 4)
    o = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)

    def f(x):
        o.zero_grad()
        l = m(x).pow(2).mean()
        l.backward()
        o.step()
        return l

    return (f, (small(),))


@cases.add("module-getattr")
def module_getattr():
    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)

        def __getattr__(self, n):
            if n == "foo":
                return 3
            return super().__getattr__(n)

        def forward(self, x):
            return self.l(x) * self.foo

    return (W(), (small(),))


@cases.add("module-call-overridden")
def module_call_overridden():
    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)

        def __call__(self, x):
            return super().__call__(x) + 1

        def forward(self, x):
            return self.l(x)

    return (W(), (small(),))


@cases.add("module-forward-on-instance")
def module_forward_on_instance():
    m = nn.Linear(4, 4)
    m.forward = lambda x: x * 2

    def f(x):
        return m(x)

    return (f, (small(),))


@cases.add("module-batch-norm", stage="emit", backward=True)
def module_batch_norm():
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    return (m, (small(),))


@cases.add("module-counter")
def module_counter():
    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = 0
            self.cache = {}
            self.hist = []

        def forward(self, x):
            self.steps += 1
            self.cache[self.steps] = x
            self.hist.append(self.steps)
            return x * self.steps

    return (W(), (small(),))


@cases.add("module-property")
def module_property():
    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)
            self._k = 2

        @property
        def k(self):
            return self._k

        @k.setter
        def k(self, v):
            self._k = v

        @property
        def w2(self):
            return self.l.weight * 2

        def forward(self, x):
            self.k = self.k + 1
            return F.linear(x, self.w2) * self.k

    return (W(), (small(),))


@cases.add("module-dict-shadow")
def module_dict_shadow():
    class W(nn.Module):
        scale = 3

        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)

        def forward(self, x):
            y = self.l(x) * self.scale
            self.__dict__["scale"] = self.scale + 1
            return y

    return (W(), (small(),))


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)


@pytest.mark.parametrize("name", others)
def test_like_eager(name):
    others.check_like_eager(name)
