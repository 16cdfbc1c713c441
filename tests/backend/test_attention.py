"""Which attention may be streamed: the proof, reason by reason, and what is left in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

import srcjit
from srcjit.passes.attention import fix_heads, stream, why_not
from srcjit.passes.attention_form import Visible, visible
from srcjit.passes.definitions import Lowered
from srcjit.passes.functional import functionalize
from srcjit.passes.loops import Const, IndexValue, cast, op, symbol
from srcjit.passes.lower import lower
from tests.backend.support import compiled, segment_of

INF = float("inf")


def qkv(m: int = 20, n: int = 30, d: int = 16, dtype: torch.dtype = torch.bfloat16):
    return [torch.randn(2, 3, x, d).to(dtype) for x in (m, n, n)]


def lowered(function: Callable[..., Any], *args: Any, **rest: Any) -> Lowered:
    functional = functionalize(segment_of(function, *args, **rest))
    assert functional.forward is not None
    return lower(functional.forward)


def last_product(graph: Lowered) -> fx.Node:
    products = (torch.ops.aten.bmm.default, torch.ops.aten.mm.default)
    return [n for n in graph.values if n.target in products][-1]


def scores(q, k):
    return q @ k.transpose(-2, -1) * 0.25


def plain(q, k, v):
    return scores(q, k).softmax(-1) @ v


def scores_returned(q, k, v):
    s = scores(q, k)
    return s.softmax(-1) @ v, s


def weights_returned(q, k, v):
    p = scores(q, k).softmax(-1)
    return p @ v, p


def weights_summed(q, k, v):
    p = scores(q, k).softmax(-1)
    return p @ v, p.sum(-2)


def scores_sorted(q, k, v):
    s = scores(q, k)
    return s.softmax(-1) @ v, s.sort(-1).values


def over_rows(q, k, v):
    return scores(q, k).softmax(-2) @ v


def over_heads(q, k, v):
    return scores(q, k).softmax(1) @ v


def kept_dropout(q, k, v):
    return F.dropout(scores(q, k).softmax(-1), 0.5) @ v


def masked_weights(q, k, v):
    p = scores(q, k).softmax(-1)
    return torch.where(p > 0.01, p, 0.0) @ v


def unshifted(q, k, v):
    e = scores(q, k).exp()
    return (e / e.sum(-1, keepdim=True)) @ v


def another_maximum(q, k, v):
    s = scores(q, k)
    e = (s - (s * 2).amax(-1, keepdim=True)).exp()
    return (e / e.sum(-1, keepdim=True)) @ v


def another_sum(q, k, v):
    s = scores(q, k)
    e = (s - s.amax(-1, keepdim=True)).exp()
    return (e / (e * 2).sum(-1, keepdim=True)) @ v


def least_for_maximum(q, k, v):
    s = scores(q, k)
    e = (s - s.amin(-1, keepdim=True)).exp()
    return (e / e.sum(-1, keepdim=True)) @ v


def no_product(q, k, v):
    return q.softmax(-1) @ v[..., : q.shape[-1], :]


def other_heads(q, k, v):
    return scores(q, k).flip(1).softmax(-1) @ v


def of_itself_turned(q, k, v):
    s = scores(q, k)
    return (s + s.transpose(-1, -2)).softmax(-1) @ v


def long_function(q, k, v):
    s = scores(q, k)
    for n in range(40):
        s = s + torch.sin(s * n)
    return s.softmax(-1) @ v


def float64(q, k, v):
    return plain(q.double(), k.double(), v.double())


def _half_sum(q, k, v):
    s = scores(q, k)
    e = (s - s.amax(-1, keepdim=True)).exp()
    return (e / e.sum(-1, keepdim=True)) @ v


REASONS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], str]] = {
    "scores are a result": (scores_returned, qkv(), "used elsewhere"),
    "weights are a result": (weights_returned, qkv(), "used elsewhere"),
    "weights are summed": (weights_summed, qkv(), "used elsewhere"),
    "scores are sorted": (scores_sorted, qkv(), "used elsewhere"),
    "softmax over rows": (over_rows, qkv(), "another dimension"),
    "softmax over heads": (over_heads, qkv(), "another dimension"),
    "weights are changed": (masked_weights, qkv(), "changed behind the softmax"),
    "not shifted": (unshifted, qkv(), "not shifted"),
    "another maximum": (another_maximum, qkv(), "its maximum is not that"),
    "another sum": (another_sum, qkv(), "its sum is not that"),
    "the least": (least_for_maximum, qkv(), "its maximum is a min"),
    "no product": (no_product, qkv(), "its left operand is not a softmax"),
    "other heads": (other_heads, qkv(), "another place of their product"),
    "turned": (of_itself_turned, qkv(20, 20), "at another point"),
    "long": (long_function, qkv(), "longer than the products"),
    "float32": (plain, qkv(dtype=torch.float32), "are float32"),
    "float64": (float64, qkv(), "are float64"),
    "large heads": (plain, qkv(d=512), "512 elements"),
    "few rows": (plain, qkv(4), "4 rows do not fill"),
    "sum in f16": (_half_sum, qkv(20, 70_000, dtype=torch.float16), "overflow float16"),
}


@pytest.mark.parametrize("name", REASONS)
def test_reason(name: str) -> None:
    function, args, reason = REASONS[name]
    graph = lowered(function, *args)
    said = why_not(last_product(graph), graph)
    assert said is not None and reason in said
    streamed = stream(graph)
    assert not streamed.streams
    if function is not no_product:
        assert any(reason in note for note in streamed.notes)


def test_gradients_need_the_weights() -> None:
    args = [t.requires_grad_() for t in qkv()]
    functional = functionalize(segment_of(plain, *args))
    assert functional.forward is not None and functional.backward is not None
    for graph in (functional.forward, functional.backward.graph):
        assert not stream(lower(graph)).streams


def test_dropout_is_left_alone() -> None:
    graph = lowered(kept_dropout, *qkv())
    assert not stream(graph).streams


def test_an_unknown_head_size() -> None:
    graph = lowered(plain, *qkv(), dynamic=True)
    assert "only known at run time" in (why_not(last_product(graph), graph) or "")
    assert fix_heads(graph, keep_fp32=False, target="triton")
    assert not fix_heads(lowered(plain, *qkv()), keep_fp32=False, target="triton")


def test_the_head_size_becomes_a_condition() -> None:
    attend = srcjit.jit(
        plain, dynamic=True, options={"stage": "fuse", "target": "triton"}
    )
    counts = []
    for rows, head in ((48, 16), (80, 16), (48, 32)):
        args = [torch.randn(2, 3, rows, head).bfloat16() for _ in range(3)]
        torch.testing.assert_close(attend(*args), plain(*args), rtol=2e-2, atol=2e-2)
        counts.append(len(attend.__srcjit__.specializations))
    assert counts == [1, 1, 2]
    (first, _) = attend.__srcjit__.specializations
    assert "size(3) != 16" in first.text


def test_other_products_are_not_candidates() -> None:
    graph = lowered(lambda q, k: torch.relu(scores(q, k)), *qkv()[:2])
    assert why_not(last_product(graph), graph) == "its left operand is not a softmax"
    assert not stream(graph).reasons


def test_what_is_read() -> None:
    """Copies and views between are read through; what is computed is memory first."""
    q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in qkv())
    graph = stream(lowered(plain, q, k, v))
    ((_, found),) = graph.streams.items()
    assert [d.name for d in found.operands] == ["q", "k", "v"]
    assert found.product not in graph.definitions
    graph = stream(lowered(lambda q, k, v: plain(q + 1, k, v), q, k, v))
    ((_, found),) = graph.streams.items()
    assert [d.name for d in found.operands][1:] == ["k", "v"]
    assert found.operands[0].computed


def test_a_dear_bias_is_computed_once() -> None:
    def biased(q, k, v, b):
        return (scores(q, k) + b.exp()).softmax(-1) @ v

    graph = stream(lowered(biased, *qkv(), torch.randn(20, 30).bfloat16()))
    ((_, found),) = graph.streams.items()
    assert [d.name for d in found.operands][-1].startswith("exp")


def test_keep_fp32_drops_roundings() -> None:
    for keep, count in ((False, 2), (True, 0)):
        graph = stream(
            lowered(lambda q, k, v: (scores(q, k) * 3).softmax(-1) @ v, *qkv()),
            keep_fp32=keep,
        )
        ((_, found),) = graph.streams.items()
        assert str(found.attention.score).count("bfloat16") == count


def _seen(mask: Callable[[int, int], torch.Tensor]) -> Visible:
    def masked(q, k, v):
        hidden = ~mask(q.shape[-2], k.shape[-2])
        return scores(q, k).masked_fill(hidden, -INF).softmax(-1) @ v

    graph = stream(lowered(masked, *qkv()))
    ((_, found),) = graph.streams.items()
    a = found.attention
    return visible(a.score, a.rows.symbol, a.columns.symbol)


def test_what_a_row_sees() -> None:
    i = symbol("i")

    def at(m: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.arange(m)[:, None], torch.arange(n)[None, :]

    def causal(m: int, n: int) -> torch.Tensor:
        return torch.ones(m, n).tril(3).bool()

    def flipped(m: int, n: int) -> torch.Tensor:
        return torch.ones(m, n, dtype=torch.bool).triu(1).logical_not()

    def window(m: int, n: int) -> torch.Tensor:
        r, c = at(m, n)
        return (c <= r + 2) & (r - c < 5)

    def either(m: int, n: int) -> torch.Tensor:
        r, c = at(m, n)
        return (c <= r) | (c < 4)

    assert _seen(causal) == Visible((), (i + 3,))
    assert _seen(flipped) == Visible((), (i,))
    assert _seen(window) == Visible((i - 4,), (i + 2,))
    assert _seen(either) == Visible()


def test_a_mask_whose_numbers_a_cast_makes_equal_hides_nothing() -> None:
    i, j = symbol("i"), symbol("j")
    right = op("gt", IndexValue(j), IndexValue(i))
    wide = op("where", right, Const(256, torch.int64), Const(0, torch.int64))
    hidden = op("ne", cast(wide, torch.int8), Const(0, torch.int8))
    one = Const(1.0, torch.float32)
    score = op("where", hidden, Const(-INF, torch.float32), one)
    assert visible(score, i, j) == Visible()


def test_a_mask_that_is_added_hides_nothing() -> None:
    def added(q, k, v):
        mask = torch.full((20, 30), -INF, dtype=q.dtype).triu(1)
        return (scores(q, k) + mask).softmax(-1) @ v

    graph = stream(lowered(added, *qkv()))
    ((_, found),) = graph.streams.items()
    a = found.attention
    assert visible(a.score, a.rows.symbol, a.columns.symbol) == Visible()


# ── one call of a library ─────────────────────────────────────────────────────────────────


def scaled(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) / 8.0, -1) @ v


def heads(transposed: bool, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(0)
    if transposed:
        return [torch.randn(2, 128, 4, 64).to(dtype).transpose(1, 2) for _ in "qkv"]
    return [torch.randn(2, 4, 128, 64).to(dtype) for _ in "qkv"]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_library_call_on_a_cpu(transposed: bool, dtype: torch.dtype) -> None:
    args = heads(transposed, dtype)
    run = compiled(scaled, *args)
    assert "attend_cpu(" in run.text and "bmm(" not in run.text
    (got,), expected = run(*args), scaled(*args)
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got, expected)
    assert got._base is None


@pytest.mark.parametrize("value", [float("nan"), INF, -INF])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("positive", [False, True])
def test_a_library_call_gives_nan_where_eager_does(
    value: float, which: int, positive: bool
) -> None:
    """With positive numbers a row of infinite queries has only infinite scores."""
    args = heads(False)
    if positive:
        args[:2] = [t.abs() for t in args[:2]]
    run = compiled(scaled, *args)
    args[which][0, 1, 5] = value
    for place in ((0, 1, 5), (1, 2, 7, 3)):
        args[which][place] = value
        (got,), expected = run(*args), scaled(*args)
        assert torch.equal(got.isnan(), expected.isnan())
        assert torch.equal(got.isinf(), expected.isinf())


LIBRARY_REASONS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], str]] = {
    "soft cap": (
        lambda q, k, v: torch.softmax(torch.tanh(scores(q, k)), -1) @ v,
        heads(False),
        "does more than scale",
    ),
    "bfloat16": (scaled, heads(False, torch.bfloat16), "rounds bfloat16"),
    "small": (scaled, qkv(20, 30, dtype=torch.float32), "does not pay for 3600 scores"),
    "value heads": (
        scaled,
        [*heads(False)[:2], heads(False)[2][..., :32]],
        "takes its shape",
    ),
    "grouped": (
        lambda q, k, v: scaled(
            q, k[:, :2].repeat_interleave(2, 1), v[:, :2].repeat_interleave(2, 1)
        ),
        heads(False),
        "evenly spaced",
    ),
    "columns first": (
        scaled,
        [t.mT.contiguous().mT for t in heads(False)],
        "evenly spaced",
    ),
}


@pytest.mark.parametrize("name", LIBRARY_REASONS)
def test_why_no_library_call(name: str) -> None:
    function, args, reason = LIBRARY_REASONS[name]
    graph = lowered(function, *args)
    said = why_not(last_product(graph), graph, "cpp")
    assert said is not None and reason in said
    assert f"apart: {said}" in compiled(function, *args).text


def test_sizes_that_vary() -> None:
    jitted = srcjit.jit(scaled)
    for length in (100, 150, 200, 1):
        args = [t.repeat(1, 1, 2, 1)[:, :, :length] for t in heads(False)]
        torch.testing.assert_close(jitted(*args), scaled(*args))
