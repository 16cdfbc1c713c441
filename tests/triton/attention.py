"""Attention in Triton's interpreter: `python -m tests.triton.attention` prints a JSON line each.

Each case is a function of plain PyTorch. The compiled segment must be one streaming kernel (or
say why not), be NaN where eager is, and be no farther from float64 than eager.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import traceback
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

import torch
import torch.nn.functional as F

INF = float("inf")


def scaled(q, k):
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


def plain(q, k, v):
    return torch.softmax(scaled(q, k), -1) @ v


def functional(q, k, v):
    return torch.matmul(F.softmax(scaled(q, k), dim=-1, dtype=torch.float32).to(v), v)


def einsum(q, k, v):
    s = torch.einsum("bhid,bhjd->bhij", q, k) * 0.2
    return torch.einsum("bhij,bhjd->bhid", s.softmax(-1), v)


def written_out(q, k, v):
    s = scaled(q, k)
    e = torch.exp(s - s.max(-1, keepdim=True).values)
    return (e / e.sum(-1, keepdim=True)) @ v


def soft_cap(q, k, v):
    return torch.softmax(torch.tanh(scaled(q, k) / 30.0) * 30.0, -1) @ v


def causal(q, k, v):
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    return torch.softmax(scaled(q, k).masked_fill(~seen, -INF), -1) @ v


def causal_number(q, k, v):
    seen = torch.tril(torch.ones(q.shape[-2], k.shape[-2]))
    return torch.softmax(scaled(q, k).masked_fill(seen == 0, -INF), -1) @ v


def causal_added(q, k, v):
    bias = torch.full((q.shape[-2], k.shape[-2]), -INF).triu(1)
    return torch.softmax(scaled(q, k) + bias.to(q.dtype), -1) @ v


def causal_last(q, k, v):
    """The last query sees the last key: rows and columns differ in number."""
    m, n = q.shape[-2], k.shape[-2]
    seen = torch.arange(n) <= torch.arange(m)[:, None] + (n - m)
    return torch.softmax(torch.where(seen, scaled(q, k), -INF).float(), -1).to(v) @ v


def window(q, k, v):
    at = torch.arange(q.shape[-2])
    back = at[:, None] - at
    near = (back >= 0) & (back < 20)
    return torch.softmax(scaled(q, k).masked_fill(~near, -INF), -1) @ v


def nowhere(q, k, v):
    """The first rows see nothing at all."""
    at = torch.arange(q.shape[-2])
    seen = at[:, None] >= at + 70
    return torch.softmax(scaled(q, k).masked_fill(~seen, -INF), -1) @ v


def alibi(q, k, v):
    heads, n = q.shape[1], q.shape[2]
    at = torch.arange(n)
    slopes = torch.tensor([2.0**-h for h in range(1, heads + 1)])
    bias = slopes[:, None, None] * (at[None, :] - at[:, None]).abs().neg()
    return torch.softmax(scaled(q, k) + bias.to(q.dtype), -1) @ v


def biased(q, k, v, bias):
    return torch.softmax(scaled(q, k) + bias, -1) @ v


def chosen(q, k, v, keep):
    return torch.softmax(torch.where(keep, scaled(q, k), -1e9), -1) @ v


def repeated(q, k, v):
    k, v = (t.repeat_interleave(2, 1) for t in (k, v))
    return plain(q, k, v)


def expanded(q, k, v):
    b, h, n, d = k.shape
    k, v = (t[:, :, None].expand(b, h, 2, n, d).reshape(b, 2 * h, n, d) for t in (k, v))
    return plain(q, k, v)


def one_head(q, k, v):
    return torch.softmax(q @ k.t() * 0.25, -1) @ v


def rotated(q, k, v):
    """What queries and keys are computed by is memory first."""
    return plain(q * 2.0, k.flip(-1), v)


def two_layers(q, k, v):
    return plain(plain(q, k, v), k, v)


def followed(q, k, v):
    b, h, m, d = q.shape
    return plain(q, k, v).transpose(1, 2).reshape(b, m, h * d) * 2.0


def with_bias_inside(q, k, v, bias):
    scores = torch.baddbmm(bias, q, k.transpose(1, 2), beta=0.5, alpha=0.25)
    return scores.softmax(-1) @ v


def bounded(q, k, v, mask):
    s = scaled(q, k) + mask
    s = torch.maximum(s, torch.tensor(torch.finfo(s.dtype).min))
    return F.softmax(s, dim=-1, dtype=torch.float32).to(q.dtype) @ v


def lengths(q, k, v, length):
    seen = torch.arange(k.shape[-2]) < length[:, None]
    s = scaled(q, k).masked_fill(~seen[:, None, None], -INF)
    return s.softmax(-1) @ v


def relative(q, k, v, table):
    """Positions relative to each other look up a bias."""
    at = torch.arange(q.shape[-2])
    distance = (at[None] - at[:, None]).clamp(-3, 4) + 3
    bias = F.embedding(distance, table).permute(2, 0, 1)
    return (scaled(q, k) + bias).softmax(-1) @ v


def then_written_to(q, k, v):
    """Eager reads queries before they change."""
    out = plain(q, k, v)
    q.add_(1)
    return out * 2


STEPS: tuple[Callable[..., torch.Tensor], ...] = (
    lambda s, i, j, b, h: s * 0.7,
    lambda s, i, j, b, h: s / 3,
    lambda s, i, j, b, h: s + b,
    lambda s, i, j, b, h: s - b[..., :1],
    lambda s, i, j, b, h: s * h,
    lambda s, i, j, b, h: torch.tanh(s / 4) * 4,
    lambda s, i, j, b, h: s.clamp(-3, 2),
    lambda s, i, j, b, h: F.relu(s) - 0.1 * F.relu(-s),
    lambda s, i, j, b, h: s.masked_fill(j > i, -INF),
    lambda s, i, j, b, h: torch.where((j - i).abs() < 30, s, -INF),
    lambda s, i, j, b, h: torch.where(b > 0.5, -1e4, s),
    lambda s, i, j, b, h: s.masked_fill((i // 7) != (j // 7), -INF),
    lambda s, i, j, b, h: (s.float() + 0.01 * (j - i)).to(s.dtype),
    lambda s, i, j, b, h: s.float().sin().to(s.dtype),
    lambda s, i, j, b, h: s.abs() ** 0.5,
)
"""Steps of score functions; `i` and `j` are positions, `b` is a bias, `h` one of a head."""


def composed(seed: int) -> Callable[..., torch.Tensor]:
    """Attention whose score function is some of `STEPS`."""
    chosen = random.Random(seed).sample(STEPS, 4)

    def attend(q, k, v, b, h):
        s = q @ k.transpose(-2, -1)
        i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
        for step in chosen:
            s = step(s, i, j, b, h)
        return s.softmax(-1) @ v

    return attend


def randn(*size: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(size).to(dtype)


def qkv(
    m: int = 33, n: int | None = None, d: int = 16, **rest: Any
) -> list[torch.Tensor]:
    n = m if n is None else n
    return [randn(1, 2, x, d, **rest) for x in (m, n, n)]


def with_special(which: int, at: tuple[int, ...], value: float) -> list[torch.Tensor]:
    """One infinite or NaN element; 150 columns are three blocks."""
    made = qkv(70, 150)
    made[which][at] = value
    return made


def shifted(q, k, v):
    """Heads from the middle of a dimension, rows from the second on."""
    return plain(q[:, 1:], k[:, 1:], v[:, 1:, :, 3:])


HALF = torch.float16
CASES: dict[str, tuple[Callable[..., Any], Callable[[], list[torch.Tensor]]]] = {
    "plain": (plain, qkv),
    "plain f16": (plain, lambda: qkv(dtype=HALF)),
    "whole blocks": (plain, lambda: qkv(64, 128)),
    "several blocks": (plain, lambda: qkv(70, 150)),
    "head 32": (plain, lambda: qkv(17, d=32)),
    "head 40": (soft_cap, lambda: qkv(20, d=40)),
    "head 64": (plain, lambda: qkv(20, d=64)),
    "head 128": (plain, lambda: qkv(20, d=128)),
    "head 256": (plain, lambda: qkv(20, d=256)),
    "value head differs": (
        plain,
        lambda: [randn(1, 2, 20, 16), randn(1, 2, 30, 16), randn(1, 2, 30, 24)],
    ),
    "functional": (functional, qkv),
    "einsum": (einsum, qkv),
    "written out": (written_out, lambda: qkv(70, 150)),
    "written out f16": (written_out, lambda: qkv(dtype=HALF)),
    "soft cap": (soft_cap, lambda: qkv(70, 150)),
    "causal": (causal, lambda: qkv(150)),
    "causal f16": (causal, lambda: qkv(150, dtype=HALF)),
    "causal number": (causal_number, lambda: qkv(150)),
    "causal added": (causal_added, lambda: qkv(150)),
    "causal more rows": (causal, lambda: qkv(150, 80)),
    "causal more columns": (causal, lambda: qkv(70, 150)),
    "causal last": (causal_last, lambda: qkv(70, 200)),
    "window": (window, lambda: qkv(200)),
    "nowhere": (nowhere, lambda: qkv(150)),
    "alibi": (alibi, lambda: qkv(70)),
    "bias": (biased, lambda: [*qkv(), randn(1, 2, 33, 33)]),
    "bias of a row": (biased, lambda: [*qkv(), randn(2, 33, 1)]),
    "padding": (
        biased,
        lambda: [
            *qkv(20, 150),
            torch.where(torch.arange(150) < 60, 0, -INF).bfloat16(),
        ],
    ),
    "padding on the left": (
        biased,
        lambda: [
            *qkv(20, 150),
            torch.where(torch.arange(150) > 90, 0, -INF).bfloat16(),
        ],
    ),
    "all hidden": (
        biased,
        lambda: [
            *qkv(),
            torch.where(torch.arange(33)[:, None] < 5, -INF, 0).bfloat16(),
        ],
    ),
    "least numbers": (
        biased,
        lambda: [
            *qkv(20, 150),
            torch.full((20, 150), torch.finfo(torch.bfloat16).min).bfloat16(),
        ],
    ),
    "bias inside": (
        with_bias_inside,
        lambda: [randn(3, 33, 16) for _ in "qkv"] + [randn(3, 1, 33)],
    ),
    "bounded": (bounded, lambda: [*qkv(), randn(1, 1, 33, 33)]),
    "lengths": (
        lengths,
        lambda: [*(randn(2, 2, 33, 16) for _ in "qkv"), torch.tensor([7, 33])],
    ),
    "relative": (relative, lambda: [*qkv(), randn(8, 2)]),
    "choice": (chosen, lambda: [*qkv(), torch.rand(2, 33, 33) > 0.5]),
    "grouped by repeat": (
        repeated,
        lambda: [randn(2, 4, 20, 16), *(randn(2, 2, 20, 16) for _ in "kv")],
    ),
    "grouped by expand": (
        expanded,
        lambda: [randn(2, 4, 20, 16), *(randn(2, 2, 20, 16) for _ in "kv")],
    ),
    "one head": (one_head, lambda: [randn(40, 16), randn(50, 16), randn(50, 16)]),
    "three dimensions": (plain, lambda: [randn(3, 20, 16) for _ in "qkv"]),
    "five dimensions": (plain, lambda: [randn(2, 1, 2, 20, 16) for _ in "qkv"]),
    "transposed": (
        followed,
        lambda: [randn(2, 20, 3, 16).transpose(1, 2) for _ in "qkv"],
    ),
    "columns first": (plain, lambda: [randn(1, 2, 16, 20).mT for _ in "qkv"]),
    "slices": (shifted, lambda: [randn(1, 3, 20, 24) for _ in "qkv"]),
    "computed": (rotated, qkv),
    "two layers": (two_layers, qkv),
    "query inf": (plain, lambda: with_special(0, (0, 1, 5, 3), INF)),
    "query nan": (soft_cap, lambda: with_special(0, (0, 1, 5, 3), math.nan)),
    "key inf": (plain, lambda: with_special(1, (0, 0, 100, 3), -INF)),
    "key nan": (causal, lambda: with_special(1, (0, 0, 100, 3), math.nan)),
    "key nan hidden": (causal, lambda: with_special(1, (0, 0, 149, 3), math.nan)),
    "key nan with added mask": (
        causal_added,
        lambda: with_special(1, (0, 0, 100, 3), math.nan),
    ),
    "value inf": (plain, lambda: with_special(2, (0, 0, 100, 3), INF)),
    "value nan hidden": (causal, lambda: with_special(2, (0, 0, 149, 3), math.nan)),
    "value inf in no window": (
        window,
        lambda: [
            *qkv(200)[:2],
            with_special(2, (0, 0, 100, 3), INF)[2].repeat(1, 1, 2, 1)[:, :, :200],
        ],
    ),
    "written to later": (
        then_written_to,
        lambda: [randn(1, 20, 2, 16).transpose(1, 2) for _ in "qkv"],
    ),
    **{
        f"composed {seed}": (
            composed(seed),
            lambda: [
                *qkv(70, 90),
                randn(2, 70, 90),
                randn(1, 2, 1, 1),
            ],
        )
        for seed in range(12)
    },
    "large scores": (plain, lambda: [100 * t for t in qkv(40)]),
    "overflow f16": (plain, lambda: [200 * t for t in qkv(40, dtype=HALF)]),
}
"""Name -> a function and what makes its arguments."""

SIZES_VARY: dict[str, Callable[..., Any]] = {
    "sizes vary": plain,
    "sizes vary, causal": causal,
    "sizes vary, alibi": alibi,
}
"""Functions that are called for several lengths, of which one kernel takes all but the first."""


def distance(result: torch.Tensor, reference: torch.Tensor) -> float:
    """||result - reference|| / ||reference|| over what is finite in the reference."""
    finite = torch.isfinite(reference) & torch.isfinite(result)
    difference = (result.double() - reference)[finite].norm()
    return float(difference / reference[finite].norm().clamp_min(1e-30))


def run_case(name: str) -> dict[str, Any]:
    """Compiles and calls one case; `problems` says what is wrong."""
    from tests.backend.support import clones, compiled

    function, make = CASES[name]
    torch.manual_seed(0)
    args = make()
    kernel = compiled(function, *clones(tuple(args)), target="triton")
    (got,) = kernel(*clones(tuple(args)))
    return report(name, function, args, got, kernel.text)


def run_varying(name: str) -> dict[str, Any]:
    """Calls one case with several lengths; the report is of the last."""
    import srcjit
    from srcjit.explain import recording

    function = SIZES_VARY[name]
    with recording() as records:
        jitted = srcjit.jit(function, options={"target": "triton"})
        for length in (33, 70, 150):
            args = qkv(length)
            got = jitted(*args)
    (record,) = records.records
    text = record.specializations[-1].stage_text("emit")
    made = report(name, function, args, got, text)
    if len(record.specializations) != 2:
        made["problems"].append(f"{len(record.specializations)} specializations")
    return made


def run_mended(name: str) -> dict[str, Any]:
    """Rows of which every score is -inf become NaN; other rows of zeros stay."""
    from srcjit.runtime.triton_attention import laid_out, mend

    length, width = 1100, 40
    size = (2, length, 2, width) if "transposed" in name else (2, 2, length, width)
    q, k, made = (randn(*size).abs() for _ in range(3))
    if "transposed" in name:
        q, k, made = (t.transpose(1, 2) for t in (q, k, made))
    expected = made.clone()
    for row in ((0, 1, 5), (1, 1, 70), (1, 0, length - 1)):
        q[row], made[row], expected[row] = -INF, 0.0, math.nan
    made[1, 0, 3] = expected[1, 0, 3] = 0.0
    made[0, 0, 9, 0] = expected[0, 0, 9, 0] = 0.0
    # Of this one, only the first scores are -inf.
    k[0, 0, :70] = -INF
    made[0, 0, 1030] = expected[0, 0, 1030] = 0.0
    mend(made, q, k, 0.125)
    got = laid_out(made)
    same = torch.equal(got.nan_to_num(9.0), expected.nan_to_num(9.0))
    problems = [] if same and got.is_contiguous() else ["rows differ"]
    return {"name": name, "problems": problems, "text": "", "errors": (0.0, 0.0)}


MENDED = ("mended", "mended, transposed")


def run_rounded(name: str) -> dict[str, Any]:
    """float32 is streamed while the user lets it be rounded, and only then."""
    import srcjit
    from srcjit.explain import recording

    function, args = ROUNDED[name]
    streamed = []
    with recording() as records:
        jitted = srcjit.jit(function, options={"target": "triton"})
        for precision in ("high", "highest", "high", "highest"):
            torch.set_float32_matmul_precision(precision)
            for _ in range(3):
                got = jitted(*args())
            if precision == "high":
                rounded = got
    (record,) = records.records
    texts = [s.stage_text("emit") for s in record.specializations]
    streamed = ["tl.dot" in text for text in texts]
    made = report(name, function, args(), rounded, texts[0])
    ours, eagers = made["errors"]
    # The CPU's eager does not round its operands to TF32; rounded, they are 2^-12 off.
    made["problems"] = [p for p in made["problems"] if not p.startswith("error ")]
    if not ours <= eagers + 2**-10:
        made["problems"].append(f"error {ours:.3e}")
    made["errors"] = (0.0, 0.0)
    if streamed != [True, False]:
        made["problems"].append(f"streamed: {streamed}")
    return made


ROUNDED = {
    "float32": (plain, lambda: qkv_alike(70, 150)),
    "float32, soft cap": (soft_cap, lambda: qkv_alike(33, d=40)),
    "float32, causal": (causal, lambda: qkv_alike(70)),
    "float32, NaN": (soft_cap, lambda: qkv_alike(20, value=math.nan)),
    "float32, infinite": (soft_cap, lambda: qkv_alike(20, value=INF)),
}


def qkv_alike(
    m: int, n: int | None = None, d: int = 16, value: float | None = None
) -> list[torch.Tensor]:
    """The same float32 numbers each time."""
    torch.manual_seed(0)
    made = qkv(m, n, d, dtype=torch.float32)
    if value is not None:
        made[2][0, 1, 3, 5] = value
    return made


def report(
    name: str,
    function: Callable[..., Any],
    args: list[torch.Tensor],
    got: torch.Tensor,
    text: str,
) -> dict[str, Any]:
    """Compares a result with eager and with float64."""
    eager = function(*(a.clone() for a in args))
    exact = function(*(a.double() if a.is_floating_point() else a for a in args))
    problems = []
    if got.dtype is not eager.dtype or got.size() != eager.size():
        problems.append(f"{got.dtype} {got.size()} is not {eager.dtype} {eager.size()}")
    if got.stride() != eager.stride():
        problems.append(f"strides {got.stride()} are not {eager.stride()}")
    if "tl.dot" not in text or "mm(" in text:
        problems.append("it was not streamed")
    if not torch.equal(got.isnan(), eager.isnan()):
        problems.append(f"{got.isnan().sum()} NaN, eager has {eager.isnan().sum()}")
    errors = distance(got, exact), distance(eager, exact)
    if not errors[0] <= 1.1 * errors[1] + 1e-6:
        problems.append(f"error {errors[0]:.3e}, eager's is {errors[1]:.3e}")
    return {"name": name, "problems": problems, "text": text, "errors": errors}


def main(names: list[str]) -> None:
    """Runs the named cases, or all."""
    torch.set_num_threads(1)
    for name in names or [*CASES, *SIZES_VARY, *MENDED, *ROUNDED]:
        run = run_varying if name in SIZES_VARY else run_case
        run = run_mended if name in MENDED else run
        run = run_rounded if name in ROUNDED else run
        try:
            made = run(name)
        except Exception:
            made = {"name": name, "problems": [traceback.format_exc()], "text": ""}
        print(json.dumps(made), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
