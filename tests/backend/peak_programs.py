"""Programs whose memory is compared with eager's: in-place calls, `out=`, slices, views.

Each is called as `program(x, w, i)`: two square matrices and a column of row numbers. What is
written is either made by the program or a copy of an argument that the program makes.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

TEXTS: dict[str, str] = {
    # calls in place on a temporary
    "cumsum_": "y = x * 2; y.cumsum_(0); return y",
    "cumprod_": "y = x * 2; y.cumprod_(0); return y",
    "cumsum_ twice": "y = x * 2; y.cumsum_(0).cumsum_(1); return y",
    "cumsum_ and more": "y = x * 2; y.cumsum_(0); return y.sin() + y",
    "logcumsumexp": "y = x * 2; return torch.logcumsumexp(y, 0)",
    "add_": "y = x * 2; y.add_(w); return y",
    "chain in place": "y = x * 2; y.add_(w).mul_(3).relu_().sub_(x); return y",
    "clamp_ on a view": "y = x * 2; y[:, :64].clamp_(0, 1); return y",
    "sin_ of a view": "y = x.clone(); y[3:70].sin_(); return y",
    "fill_ of a view": "y = x.clone(); y[:, 3] = 0; return y",
    "masked_fill_": "y = x * 2; y.masked_fill_(x > 0, 0.0); return y",
    "masked_fill_ of a call": "y = x @ w; y.masked_fill_(x > 0, 0.0); return y",
    "addmm_": "y = x * 2; y.addmm_(x, w); return y",
    "baddbmm_": "y = x[None] * 2; y.baddbmm_(x[None], w[None]); return y",
    "addmv_": "y = x[0] * 2; y.addmv_(x, w[0]); return y",
    "addr_": "y = x * 2; y.addr_(x[0], w[0]); return y",
    "index_add_": "y = x * 2; y.index_add_(0, i, w); return y",
    "index_add_ of few": "y = x * 2; y.index_add_(0, i[:8], w[:8]); return y",
    "index_copy_": "y = x * 2; y.index_copy_(0, i, w); return y",
    "index_fill_": "y = x * 2; y.index_fill_(0, i, 1.0); return y",
    "index_put_": "y = x * 2; y[i] = w; return y",
    "index_put_ of few": "y = x * 2; y[i[:8]] = w[:8]; return y",
    "accumulated": "y = x * 2; y.index_put_((i,), w, accumulate=True); return y",
    "scatter_": "y = x * 2; y.scatter_(0, i[:, None].expand(-1, 128), w); return y",
    "scatter_ of few": "y = x * 2; y.scatter_(0, i[None], w); return y",
    "scatter_add_": (
        "y = x * 2; y.scatter_add_(0, i[:, None].expand(-1, 128), w); return y"
    ),
    "scatter_reduce_": (
        "y = x * 2; y.scatter_reduce_(0, i[:, None].expand(-1, 128), w, 'amax'); "
        "return y"
    ),
    "masked_scatter_": "y = x * 2; y.masked_scatter_(x > 0, w); return y",
    "sorted": "return (x * 2).sort(0)[0]",
    "sorted twice": "return (x * 2).sort(0)[0].sort(1)[0]",
    "topk": "return (x * 2).topk(8, 0)[0] + 1",
    "tril_": "y = x * 2; y.tril_(); return y",
    "fill_diagonal_": "y = x * 2; y.fill_diagonal_(0); return y",
    "copy_ into a slice": "y = x * 2; y[:, :64].copy_(w[:, :64]); return y",
    "slices": "y = torch.empty_like(x); y[:, :64] = x[:, 64:]; y[:, 64:] = 1; return y",
    "rows one by one": (
        "y = torch.empty_like(x)\n    for k in range(4): y[k * 32:][:32] = x[k] * w[:32]"
        "\n    return y"
    ),
    "diagonal": "y = x * 2; y.diagonal().add_(1); return y",
    "transposed view": "y = x * 2; y.t()[:64].mul_(2); return y",
    "windows": "y = x * 2; y.unfold(0, 4, 4).mul_(3); return y",
    # out=
    "out of a sum": "y = torch.empty_like(x); torch.add(x, w, out=y); return y",
    "out of a product": "y = torch.empty_like(x); torch.mm(x, w, out=y); return y",
    "out in a chain": (
        "y = torch.empty_like(x); torch.mm(x, w, out=y); torch.mul(y, 2, out=y); "
        "torch.cumsum(y, 0, out=y); return y"
    ),
    "out of a slice": "y = x * 2; torch.mm(x[:64], w, out=y[:64]); return y",
    "out of a sort": (
        "y, k = torch.empty_like(x), torch.empty(128, 128, dtype=torch.long); "
        "torch.sort(x, 1, out=(y, k)); return y, k"
    ),
    "out of a transposed view": (
        "y = torch.empty_like(x); torch.exp(x, out=y.t()); return y"
    ),
    # what is computed into parts (`passes.placement`)
    "costly parts": "y = x.clone(); y[:, :70].exp_(); y[:, 70:].sin_(); return y",
    "a costly part twice": "y = x.clone(); y[:, :100].sin_().cos_(); return y, y.sum(1)",
    "parts that overlap": (
        "y = x.clone(); y[:64].exp_(); z = y[32:96]; z.sin_(); return y, z @ w"
    ),
    "scans of parts": (
        "y = x.clone()\n    for k in range(4): y[k * 32:][:32] = x[k * 32:][:32].cumsum(0)"
        "\n    return y"
    ),
    "a product in place on a part": (
        "y = x * 2; y[:100].addmm_(x[:100], w); y[:, 3:].cumsum_(1); return y"
    ),
    "products into parts": (
        "y = torch.empty(256, 128); torch.mm(x, w, out=y[:128]); "
        "torch.mm(w, x, out=y[128:]); return y"
    ),
    "a product into a transposed view": (
        "y = torch.empty_like(x); torch.mm(x, w, out=y.t()); return y"
    ),
    "every other column": (
        "y = x.clone(); a, b = y[:, ::2], y[:, 1::2]; a.sub_(b.exp()); b.add_(a / 2); "
        "return y"
    ),
    # foreach and optimizers
    "foreach": "y = [x * 2, w * 2]; torch._foreach_add_(y, 1.0); return y",
    "foreach of products": (
        "y = [x @ w, w @ x]; torch._foreach_mul_(y, 2.0); "
        "torch._foreach_add_(y, y); return y"
    ),
    "momentum": (
        "p, m = x.clone(), w.clone(); m.mul_(0.9).add_(x); p.sub_(m, alpha=0.1); "
        "return p, m"
    ),
    "adam": (
        "p, m, v = x.clone(), w.clone(), w * w; m.mul_(0.9).add_(x, alpha=0.1); "
        "v.mul_(0.9).addcmul_(x, x, value=0.1); p.addcdiv_(m, v.sqrt().add_(1e-3)); "
        "return p, m, v"
    ),
    # life of temporaries
    "products added up": (
        "y = torch.zeros(128, 128)\n    for k in range(4): y += (x * k) @ w\n    return y"
    ),
    "products in a row": "return ((x @ w) * 2 @ w) * 3 @ w",
    "a sum of products": "return (x @ w) + (w @ x) + (x @ x)",
    "a late reader": "y = x.exp(); z = (x @ w) @ w; return z.sum() + y.sum()",
    "dropped": "y = x.exp() @ w; y = y.sum(); z = x.sin() @ w; return y + z.sum()",
    "views of one": "y = x * 2; return y[:64], y[64:]",
    "chunks": "a, b = (x @ w).chunk(2, 1); return a.sigmoid() * b",
    "small view of much": "return (x * 2)[:2]",
    "small view of a product": "return (x @ w)[:2]",
    "row of a scan": "return x.cumsum(0)[-1]",
    "softmax": "return (x @ w).softmax(1) @ w",
    "attention": "return ((x @ w.t()) / 8).softmax(-1) @ w",
    "expanded": "return (x[:, None, :] * w[None, :8, :]).sum(1)",
    "outer": "return (x[:, :, None] * w[:, None, :8]).sum((1, 2))",
    "cat of products": "return torch.cat([x @ w, w @ x], 1)",
    "stacked": "return torch.stack([x * 2, w * 3, x + w]).sum(0)",
    "padded": "return functional.pad(x @ w, (1, 1)) * 2",
    "rolls": "for _ in range(6): x = torch.roll(x, 1) + x\n    return x",
    "halves": (
        "for _ in range(6):\n        a, b = x[:, :64], x[:, 64:]\n"
        "        x = torch.cat([a + b, a - b], 1)\n    return x"
    ),
    "converted": "return (x.double() @ w.double()).float()",
    "half precision": "return (x.bfloat16() @ w.bfloat16()).float() + x",
    "normalized": "return functional.layer_norm(x @ w, (128,)) @ w",
    "convolution": (
        "return functional.conv1d(x[None], w[:, :, None].relu(), padding=0).relu()"
    ),
    "gathered": "return (x * 2)[i] + (x * 3)[i]",
    "embedded": "return functional.embedding(i, x * 2).sum(0)",
    "where": "return torch.where(x > 0, x @ w, w @ x)",
    "unbound": "return sum((x @ w).unbind(0))",
    "loop of scans": "for _ in range(4): x = x.cumsum(0) * 0.5\n    return x",
    "einsum": "return torch.einsum('ij,kj->ik', x * 2, w) * 2",
    "norm of a product": "y = x @ w; return y / y.norm(dim=1, keepdim=True)",
}


GIVEN: dict[str, str] = {
    # what the caller's tensors are written by
    "lifting": "s, d = x[:, ::2], x[:, 1::2]; d -= s; s += d / 2; d.mul_(0.5); return s.sum(1)",
    "lifting of rows": "s, d = x[::2], x[1::2]; d -= s; s += d / 2; return s.sum(1)",
    "scan in place": "x.cumsum_(0); return x.sum(1)",
    "scan of what was written": "x.mul_(2).cumsum_(0).cumsum_(1); return x.sum(1)",
    "written for a product": "x.mul_(2); y = x @ w; x.add_(y); return y",
    "written behind a product": "x.mul_(2); y = x @ w; x.copy_(y + 1); return y",
    "written between products": (
        "x.mul_(2); y = x @ w; x.copy_(w); x.add_(1); z = x @ w; x.copy_(z); return y"
    ),
    "swapped rows": "x[:64], x[64:] = x[64:] * 2, x[:64] * 3",
    "out of a sum": "torch.add(w, 1, out=x)",
    "out of a product": "torch.mm(w, w, out=x)",
    "out of a sort": "torch.sort(w, 1, out=(x, k)); return x.sum(1)",
    "out of a choice": "torch.where(w > 0, w, w[0], out=x); return (w @ w)[0]",
    "out through a view": "torch.exp(w, out=x.t())",
    "out of what is transposed": "torch.exp(w.t(), out=x)",
    "read elsewhere before": ("y = x.t().sigmoid(); torch.sub(x, 1, out=x); return y"),
    "two that read each other": "y = x.t() * 2; x.add_(w); w.add_(1); return y",
    "columns and rows": "y = x.t() + w; x.mul_(y.sum()); w.copy_(y)",
    "copied across": "x.copy_(w.t())",
    "copied from a product": "x.copy_((w @ w).t())",
    "written twice": "x.copy_(w); x.cumsum_(0); x.copy_(x.t() + 1)",
    "read behind a call": "y = x.cumsum(0); x.copy_(y * 2); return x.cumsum(1)",
    "what is written from is returned": ("y = x * 2; x.copy_(y.cumsum(0)); return y"),
    "what is written from is shown": (
        "y = x * 2; x.copy_(y.cumsum(0)); return y.t()[1:]"
    ),
    "each from the other": "y = x.cumsum(0); z = w.cumsum(0); x.copy_(z); w.copy_(y)",
    "each from a product": "y = x @ w; z = w @ x; x.copy_(z); w.copy_(y)",
    "old values returned": "y = x.clone(); x.cumsum_(0); return y",
    "halves": "x[:, :64].copy_(x[:, 64:]); x[:, 64:].mul_(2); x[0] = 1",
    "a costly part": "x[:, :100].exp_(); return x[0] + 0",
    "parts one by one": (
        "for j in range(4): x[j * 32:(j + 1) * 32].exp_()\n    return x[0] + 0"
    ),
    "a part beside what is read": "x[10:60].exp_(); return x[0] + 0",
    "a part of a part": "x[10:][:50].exp_(); return x[0] @ w",
    "windows": "x.unfold(1, 4, 8).mul_(3); return x[0] + 0",
    "a border": "x[0] = 1; x[-1] = w[3]; return x[1:-1] * 2",
    "columns beside what is read": "x[:, 0] = 1; x[:, 1] = 2; return x[:, 2:].sum(1)",
    "views from before": "a = x[1:]; b = a[5:]; x[0].mul_(2); return b * 2, a.sum(), x",
    "rows that move": "x[3] = x[5]; return x[7:].cumsum(0)",
    "products into parts": (
        "for j in range(4): torch.mm(w, w[:, j * 32:][:, :32], out=x[:, j * 32:][:, :32])"
    ),
    "a product on the way": "torch.mm(w, w, out=x); x.relu_(); return x.sum(1)",
    "a scan on the way": "torch.cumsum(w, 0, out=x); x.mul_(2); return x.sum(1)",
    "halves of each other": (
        "a, b = x.chunk(2, 1); a.sub_(b); b.add_(a / 2); return a.sum(1)"
    ),
}
"""Programs that write their arguments: `x` and `w`, and `k`, a matrix of whole numbers."""


def written(text: str, parameters: str = "x, w, i") -> Callable[..., Any]:
    """The function of a program's text, with source that the compiler finds."""
    scope: dict[str, Any] = {"torch": torch, "functional": functional}
    source = f"def program({parameters}):\n    {text}\n"
    name = f"<peak {len(linecache.cache)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    exec(compile(source, name, "exec"), scope)
    made: Callable[..., Any] = scope["program"]
    return made


PROGRAMS = {name: written(text) for name, text in TEXTS.items()}
WRITING_ARGUMENTS = {name: written(text, "x, w, k") for name, text in GIVEN.items()}
