"""Finds attention in a lowered graph, proves that it may be streamed, and takes it out.

Before (definitions):

    bmm[z, i, j]   = aten.bmm.default(q, k_t)               extern
    score[z, i, j] = mul(tanh(div(bmm[z, i, j], 240)), 30)  map
    peak[z, i]     = max(score[z, i, j] over j)             reduction
    total[z, i]    = sum(exp(score[z, i, j] - peak[z, i]) over j)
    p[z, i, j]     = div(exp(score[z, i, j] - peak[z, i]), total[z, i])
    out            = aten.bmm.default(p, v)                 extern

After: `out` is an `Attention` (`passes.attention_form`) that reads q, k, v and what else the
score function reads; `bmm` is gone.

The proof goes by values. The weights, as a function of (z, i, j) with everything inlined down
to memory, must be `exp(s - m) / t`; `m` must be the maximum, and `t` the sum, over all j and
nothing else, of the same `s` and the same exponential (values are hash-consed: the same is one
object); `s` must read one product, at its own point only; and nothing else may want product,
scores or weights. How softmax and the products were spelled does not matter, nor do views,
copies and broadcasts between them. `why_not` says what is missing.

Rounding: the score function rounds where eager rounds, the product included. What lies between
score and result (the difference, the exponential, its sum, the quotient) eager rounds in a
softmax of its own kernel once, and in one that is spelled out after each step; here it stays
in float32, but for the weights, which are rounded to the type of the product that takes them,
before they are divided by their sum instead of afterwards. The error against exact arithmetic
is no larger than eager's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import fx

from .attention_form import Attention
from .attention_proof import LANGUAGES, PRODUCTS, Found, Proof
from .attention_reader import Illegal, SymbolicHead
from .definitions import EXTERN, Definition, Lowered
from .loops import (
    Label,
)

__all__ = ["Found", "labelled", "stream", "why_not"]


def stream(
    lowered: Lowered, *, keep_fp32: bool = False, target: str = "triton"
) -> Lowered:
    """Returns the graph with each attention that may be streamed as one `streams` entry.

    Notes say why the others stay as they are. `target` is the kernel language; with `auto`
    it is that of the device.
    """
    streams: dict[fx.Node, Found] = {}
    reasons: dict[fx.Node, str] = {}
    for d in lowered.definitions:
        if d.kind != EXTERN or d.node.target not in PRODUCTS:
            continue
        try:
            kind = target if target != "auto" else LANGUAGES.get(d.device.type, "")
            found = Proof(lowered, d, keep_fp32, kind).run()
        except Illegal as why:
            reasons[d.node] = str(why)
            continue
        if found is not None:
            streams[d.node] = found
    notes = tuple(f"{n.name} is not streamed: {why}" for n, why in reasons.items())
    gone = {f.product for f in streams.values()}
    return replace(
        lowered,
        definitions=tuple(d for d in lowered.definitions if d not in gone),
        notes=(*lowered.notes, *notes),
        streams=streams,
        reasons=reasons,
    )


def fix_heads(lowered: Lowered, *, keep_fp32: bool, target: str) -> bool:
    """Makes plain numbers of symbolic head sizes that keep an attention from being streamed.

    A kernel that streams holds whole heads, so their size decides its form. That it is the one
    at hand becomes a condition of the specialization; other sizes stay symbols.

    Returns:
        Whether there were any: then the graph is to be lowered anew.
    """
    fixed = False
    for d in lowered.definitions:
        if d.kind != EXTERN or d.node.target not in PRODUCTS:
            continue
        kind = target if target != "auto" else LANGUAGES.get(d.device.type, "")
        try:
            Proof(lowered, d, keep_fp32, kind).run()
        except SymbolicHead as why:
            for size in why.sizes:
                if isinstance(size, torch.SymInt) and size.node.has_hint():
                    int(size)  # PyTorch notes the condition
                    fixed = True
        except Illegal:
            continue
    return fixed


def rounds_float32(found: Found) -> bool:
    """Whether an attention is streamed only as long as float32 may be rounded to TF32."""
    return found.library is None and found.attention.value.dtype is torch.float32


def why_not(node: fx.Node, lowered: Lowered, target: str = "triton") -> str | None:
    """Why the product `node` is not the end of an attention that may be streamed, or None."""
    value = lowered.values[node]
    if not isinstance(value, Definition) or node.target not in PRODUCTS:
        return "it is not a matrix product"
    try:
        found = Proof(lowered, value, False, target).run()
    except Illegal as why:
        return str(why)
    return None if found else "its left operand is not a softmax"


def labelled(found: Found, comments: Mapping[fx.Node, str]) -> Attention:
    """The attention with the user's lines in it."""

    def label(d: Definition) -> Label:
        return Label(d.name, comments.get(d.node, ""))

    return replace(
        found.attention,
        labels={v: label(d) for v, d in found.makers.items()},
        product_label=label(found.product),
        result_label=label(found.result),
    )
