"""Sizes that change between calls: few specializations, and never a wrong result."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F

import srcjit

STAGES = ("specialize", "emit")


@pytest.fixture(autouse=True)
def _faults_raise(monkeypatch):
    monkeypatch.setenv("SRCJIT_RAISE", "1")


def check(fn, calls, stage, **options):
    """Compares each call with eager; returns the dispatcher."""
    jitted = srcjit.jit(fn, options={"stage": stage}, **options)
    for args in calls:
        expected = fn(*copy.deepcopy(args))
        actual = jitted(*args)
        same(actual, expected)
    assert jitted.__srcjit__.disabled is None
    return jitted.__srcjit__


def same(actual, expected):
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
        assert actual.stride() == expected.stride()
    elif isinstance(expected, (tuple, list)):
        assert type(actual) is type(expected)
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        same(list(actual.values()), list(expected.values()))
    else:
        assert type(actual) is type(expected)
        assert actual == expected


def count(dispatcher):
    return len(dispatcher.specializations)


def vectors(*lengths):
    return [(torch.randn(n),) for n in lengths]


def rows(*lengths, columns=8):
    return [(torch.randn(n, columns),) for n in lengths]


LENGTHS = (10, 20, 30, 40, 50)


# ── one function, one changed size ──────────────────────────────────────────────────


def wave(x):
    return torch.sin(x * 2) + 1


def pairs(x):
    n = x.size(0)
    return x.view(n // 2, 2).sum(1), x.reshape(2, -1), n


def shapes(x):
    b, c = x.shape
    return x.reshape(b * c).view(c, b).t(), x.shape, x.size(), x.numel(), len(x)


def heads(x):
    return x.view(*x.shape[:-1], 2, -1).transpose(0, 1).reshape(2, -1)


def widened(x):
    size = x.shape[:-1] + (3,)  # noqa: RUF005
    return torch.zeros(size) + x.sum(-1, keepdim=True)


def mean(x):
    return x.sum(0) / x.shape[0], x.shape[0] / 2, x * (1 / x.size(0))


def halves(x):
    n = x.size(0)
    return x[: n // 2], x[n // 2 :] * n, x[-1], x[:-1] - x[1:]


def filled(x):
    n = x.size(0)
    return torch.arange(n) + x[:, 0], torch.ones(n, n).tril() @ x, x.new_zeros(n + 1)


def bounded(x):
    n = min(x.size(0), 1000)
    return x[: max(n - 3, 1)] * -n, -n, n * 3 - 1, n % 2 == 5


def softmax_rows(x):
    return x.softmax(-1), F.layer_norm(x, (8,)), x.mean(0), x.var(0)


def causal(x):
    t = x.size(0)
    scores = x @ x.t() / math.sqrt(x.size(1))
    mask = torch.ones(t, t, dtype=torch.bool).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ x


def normalized(x):
    return F.batch_norm(x, None, None, training=True), x.argmax(0), x.max(), x.cumsum(0)


def joined(x):
    return torch.cat([x, x * 2]), torch.stack([x, x], 1), x.repeat(2, 1), x.expand_as(x)


def written(x):
    y = torch.empty_like(x)
    y[:] = x * 2
    y[1:-1] += 1
    x.add_(1)
    return y


EVERY = [
    wave, shapes, heads, widened, mean, halves, filled, bounded, softmax_rows, causal,
    normalized, joined, written,
]  # fmt: skip


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("fn", EVERY, ids=lambda f: f.__name__)
def test_two_specializations(fn, stage):
    assert count(check(fn, rows(*LENGTHS), stage)) == 2


@pytest.mark.parametrize("stage", ("lower", "fuse"))
def test_stages_between(stage):
    for fn in (wave, halves, causal):
        assert count(check(fn, rows(*LENGTHS), stage)) == 2


def test_wave():
    dispatcher = check(wave, vectors(*LENGTHS), "emit")
    assert count(dispatcher) == 2
    first, second = dispatcher.specializations
    assert "(10,)" in first.text
    assert "(None,)" in second.text
    assert "2 <= x.size(0)" in second.text


@pytest.mark.parametrize("stage", STAGES)
def test_views_by_computed_sizes(stage):
    dispatcher = check(pairs, vectors(*LENGTHS), stage)
    assert count(dispatcher) == 2
    assert "x_size_0 = x.size(0)" in dispatcher.specializations[1].text
    jitted = srcjit.jit(pairs, options={"stage": stage})
    for n in (10, 20):
        jitted(torch.randn(n))
    with pytest.raises(RuntimeError):
        jitted(torch.randn(21))
    same(jitted(torch.arange(22.0)), pairs(torch.arange(22.0)))


@pytest.mark.parametrize("stage", STAGES)
def test_columns(stage):
    def f(x):
        return (
            x.softmax(-1),
            F.layer_norm(x, x.shape[-1:]),
            x.sum(1),
            x.t().contiguous(),
        )

    calls = [(torch.randn(6, n),) for n in LENGTHS]
    assert count(check(f, calls, stage)) == 2


@pytest.mark.parametrize("stage", STAGES)
def test_both_sides_of_a_branch(stage):
    def f(x):
        if x.shape[0] > 16:
            return x * 2
        if x.size(0) % 4 == 0 and len(x) != 12:
            return x - 1
        return x + 1

    calls = vectors(10, 20, 30, 9, 40, 8, 12, 16, 17, 11, 50, 4)
    assert count(check(f, calls, stage)) <= 6


@pytest.mark.parametrize("stage", STAGES)
def test_a_loop_over_a_size(stage):
    def f(x):
        total = x[0] * 0
        for i in range(x.size(0)):
            total = total + x[i] * i
        return total

    assert count(check(f, rows(2, 3, 4, 2, 3, 5), stage)) == 4


@pytest.mark.parametrize("stage", STAGES)
def test_sizes_zero_and_one(stage):
    def f(x, y):
        return x + y, (x * y).sum(0), x.size(0)

    calls = [
        (torch.randn(n, 4), torch.randn(m, 4))
        for n, m in ((5, 5), (7, 7), (1, 7), (7, 1), (0, 0), (1, 1), (0, 1), (9, 9))
    ]
    check(f, calls, stage)
    jitted = srcjit.jit(f, options={"stage": stage})
    jitted(*calls[0])
    jitted(*calls[1])
    with pytest.raises(RuntimeError):
        jitted(torch.randn(6, 4), torch.randn(5, 4))


@pytest.mark.parametrize("stage", STAGES)
def test_equal_sizes_are_a_condition(stage):
    def f(x, y):
        return (x + 1) @ y, x.shape[1] == y.shape[1]

    calls = [
        (torch.randn(3, n), torch.randn(n, m))
        for n, m in ((4, 4), (5, 6), (7, 7), (8, 9), (6, 5), (2, 3))
    ]
    assert count(check(f, calls, stage)) <= 4


@pytest.mark.parametrize("stage", STAGES)
def test_strides(stage):
    def f(x):
        return x * 2, x.is_contiguous(), x.stride(), x.contiguous().view(-1)

    base = torch.randn(64, 64)
    calls = [(base[:n, :8],) for n in (5, 6, 7)]
    calls += [(base[:8, :n].t(),) for n in (5, 6, 7)]
    calls += [(base[n : 2 * n],) for n in (5, 6, 7)]
    calls += [(torch.randn(n, 8),) for n in (5, 6, 7)]
    calls += [(torch.randn(8).expand(n, 8),) for n in (5, 6, 7)]
    check(f, calls, stage)


# ── training, modules, graph breaks ─────────────────────────────────────────────────


def train(module, calls):
    results = []
    for args in calls:
        module.zero_grad()
        args = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
        y = module(*args)
        (y * torch.arange(y.size(-1))).sum().backward()
        results.append([y.detach(), *(a.grad for a in args if a.grad is not None)])
        results.append([p.grad.clone() for p in module.parameters()])
    return results


class FeedForward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.up = torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Attention(torch.nn.Module):
    def __init__(self, breaks=False):
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)
        self.out = torch.nn.Linear(8, 8)
        self.breaks = breaks

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, 2, c // 2).transpose(1, 2)
            for part in self.qkv(x).split(c, dim=-1)
        )
        if self.breaks:
            srcjit.graph_break()
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(b, t, c))


class Language(torch.nn.Module):
    def __init__(self, breaks=False):
        super().__init__()
        self.tokens = torch.nn.Embedding(11, 8)
        self.positions = torch.nn.Embedding(64, 8)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(Attention(breaks), FeedForward()) for _ in range(2)
        )
        self.head = torch.nn.Linear(8, 11, bias=False)

    def forward(self, ids):
        _, t = ids.size()
        x = self.tokens(ids) + self.positions(torch.arange(t, device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def modules(calls, make, stage, training):
    torch.manual_seed(0)
    module = make()
    jitted = srcjit.jit(copy.deepcopy(module), options={"stage": stage})
    if training:
        same(train(jitted, calls), train(module, calls))
    else:
        with torch.no_grad():
            same([jitted(*c) for c in calls], [module(*c) for c in calls])


@pytest.mark.parametrize("training", (False, True), ids=("inference", "training"))
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("breaks", (False, True), ids=("whole", "broken"))
def test_a_language_model_with_changing_lengths(stage, training, breaks, counted):
    calls = [(torch.randint(11, (3, t)),) for t in (5, 7, 9, 12)]
    modules(calls, lambda: Language(breaks), stage, training)
    assert max(counted.values()) == 2


@pytest.mark.parametrize("training", (False, True), ids=("inference", "training"))
@pytest.mark.parametrize("stage", STAGES)
def test_a_changing_batch(stage, training, counted):
    modules([(torch.randn(n, 8),) for n in (4, 6, 9, 17)], FeedForward, stage, training)
    assert max(counted.values()) == 2


@pytest.fixture
def counted(monkeypatch):
    """Specializations of each dispatcher."""
    from srcjit.dispatch import Dispatcher

    found = {}
    add = Dispatcher.add

    def adding(self, made):
        found[self] = found.get(self, 0) + 1
        add(self, made)

    monkeypatch.setattr(Dispatcher, "add", adding)
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_a_graph_break(stage, counted):
    def f(x):
        n = x.size(0)
        y = torch.sin(x) * n
        srcjit.graph_break()
        z = y.view(n, 2, -1).sum(1)
        return z + x.size(0), n // 2

    check(f, rows(*LENGTHS), stage)
    assert max(counted.values()) == 2


@pytest.mark.parametrize("stage", STAGES)
def test_printed_sizes(stage, capsys):
    def f(x):
        print(f"rows {x.size(0)}", x.shape, len(x))
        return x * 2

    check(f, rows(*LENGTHS), stage)
    said = capsys.readouterr().out.splitlines()
    assert said[::2] == said[1::2]
    assert said[0] == "rows 10 torch.Size([10, 8]) 10"


@pytest.mark.parametrize("stage", STAGES)
def test_sizes_in_plain_python(stage):
    def f(x):
        n = x.shape[0]
        table = {n: "here", "n": n}
        names = [f"row {i}" for i in range(2)] + [str(n)]
        m = n
        m += 2
        return (
            x + math.prod(x.shape),
            table[n],
            n in (10, 20),
            isinstance(n, int),
            n is None,
            names,
            divmod(n, 3),
            round(n / 3),
            int(n * 0.5),
            abs(-n),
            n**2,
            bool(n),
            float(n),
            sum(x.shape),
            m,
            [n] * 2,
            x.shape == (n, 8),
            x.size() == x.shape,
            sorted(x.shape),
        )

    check(f, rows(10, 20, 30), stage)


def test_never_and_always():
    assert count(check(wave, vectors(10, 20, 30), "specialize", dynamic=False)) == 3
    dispatcher = check(wave, vectors(10, 20, 30), "emit", dynamic=True)
    assert count(dispatcher) == 1
    x = torch.randn(10)
    srcjit.mark_dynamic(x, 0)
    jitted = srcjit.jit(wave)
    for v in (x, torch.randn(20)):
        same(jitted(v), wave(v))
    assert count(jitted.__srcjit__) == 1


def test_items_of_containers():
    def f(batch, *rest):
        return batch["x"] * 2 + batch["y"][0], rest[0].size(0) * rest[0]

    def call(n):
        return {"x": torch.randn(n), "y": [torch.randn(n)]}, torch.randn(n, 2)

    assert count(check(f, [call(n) for n in LENGTHS], "emit")) == 2


@pytest.mark.parametrize("stage", STAGES)
def test_two_sizes_that_change_one_after_the_other(stage):
    calls = [(torch.randn(n, m),) for n, m in ((4, 5), (6, 5), (6, 7), (8, 9), (3, 2))]

    def f(x):
        return x.softmax(1) @ x.t(), x.flatten()

    assert count(check(f, calls, stage)) == 3


def test_a_size_survives_its_variable():
    def f(x):
        n = x.size(0)
        x = x[:3]
        x = x + 1
        srcjit.graph_break()
        return x * n

    check(f, rows(*LENGTHS), "emit")


def equals_a_float(x, n):
    return x * 2 if torch.sym_float(n) == 2.0 else x + 1


def compared_with_a_tensor(x, n):
    y = torch.tensor(0.5).clamp(-2, 2)
    return x * n if y > n else x - n


def rounded_and_shifted(x, n):
    small = round(n / 2) > 1 and int(float(n) / 3) < 4 and (n >> 1) < 4
    return x + 1 if small and math.floor(n / 3) == 1 else x * math.ceil(n / 2)


def roots_and_tenths(x, n):
    if math.sqrt(n) > 1.3 and 0.1 * n > 0.30000000000000004 or math.log(n) > 9:
        return x + 1
    return x if torch.sym_float(x.shape[0]) / 3 > 1.5 else x - 1


@pytest.mark.parametrize(
    "fn",
    [equals_a_float, compared_with_a_tensor, rounded_and_shifted, roots_and_tenths],
)
def test_every_condition_has_a_text(fn):
    jitted = srcjit.jit(fn)
    for n in (2, 3, 4, 5, 7, 2, 8, 9, 13):
        x = torch.arange(float(n + 1))
        assert torch.equal(jitted(x, n), fn(x, n)), n


@pytest.mark.parametrize("stage", STAGES)
def test_sum_whose_sizes_turn_out_equal(stage):
    def by_broadcasting(x, y, z):
        n = x.size(0) + y.size(0)
        w = x + y
        return w * (n + z.size(0)), z.size(0) + n, n + n

    def in_shapes(x, y, z):
        both = torch.cat([x, y])
        w = x * y
        longer = torch.cat([both, z])
        return longer + 1, longer.size(0), F.pad(both, (z.size(0), 1)), w

    lengths = [(3, 3, 4), (5, 5, 6), (7, 7, 8), (9, 9, 5)]
    calls = [tuple(torch.randn(n) for n in sizes) for sizes in lengths]
    check(by_broadcasting, calls, stage)
    check(in_shapes, calls, stage)


def test_sum_of_ints_that_turns_out_to_be_a_number():
    def compared(x, a, b, c):
        n = a + b
        if n == 11:
            x = x + 1
        if a == b:
            x = x + 2
        return x * (n + c), n + b, c + n, n + n, a + n

    def looked_up(x, a, b):
        n = a + b
        return x + {9: 1, 11: 2}.get(n, 3), n + a, b + n, n + n

    x = torch.ones(2)
    numbers = [(3, 4, 5), (5, 6, 7), (6, 6, 9), (4, 4, 11), (5, 6, 7), (6, 5, 3)]
    check(compared, [(x, *given) for given in numbers], "specialize")
    check(looked_up, [(x, a, b) for a, b, _ in numbers], "specialize")
