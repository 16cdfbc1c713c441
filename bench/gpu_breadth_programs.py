"""The programs of `bench.gpu_breadth`: plain PyTorch, as a user would write it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# --- norms ----------------------------------------------------------------------------------


def group_norm_silu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.silu(F.group_norm(x, 32, weight, bias))


def group_norm_written(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    batch = x.shape[0]
    groups = x.reshape(batch, 32, -1).float()
    mean = groups.mean(-1, keepdim=True)
    var = groups.var(-1, keepdim=True, unbiased=False)
    normed = ((groups - mean) * torch.rsqrt(var + 1e-5)).view_as(x)
    return (normed * weight[:, None, None] + bias[:, None, None]).to(x.dtype)


def batch_norm_relu(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    return F.relu(F.batch_norm(x, mean, var.abs(), weight, bias, training=False))


def instance_norm(x: Tensor) -> Tensor:
    return F.leaky_relu(F.instance_norm(x), 0.2)


def channel_stats(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean((0, 2, 3)), x.var((0, 2, 3))


def l2_normalize(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


def row_stats(x: Tensor) -> tuple[Tensor, ...]:
    mean = x.mean(-1)
    centred = x - mean[:, None]
    var = centred.square().mean(-1)
    skew = centred.pow(3).mean(-1) / var**1.5
    return mean, var, skew, x.amin(-1), x.amax(-1)


def extremes(x: Tensor) -> tuple[Tensor, ...]:
    highest, at = x.max(-1)
    return highest, at, x.argmin(-1)


# --- losses ---------------------------------------------------------------------------------


def smoothed_nll(logits: Tensor, target: Tensor) -> Tensor:
    logp = F.log_softmax(logits.float(), dim=-1)
    nll = -logp.gather(-1, target[:, None]).squeeze(-1)
    smooth = -logp.mean(-1)
    return (0.9 * nll + 0.1 * smooth).mean()


def distillation(student: Tensor, teacher: Tensor) -> Tensor:
    p = F.log_softmax(student / 2.0, dim=-1)
    q = F.log_softmax(teacher / 2.0, dim=-1)
    return F.kl_div(p, q, reduction="batchmean", log_target=True) * 4.0


def focal_loss(logits: Tensor, labels: Tensor) -> Tensor:
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    p_t = p * labels + (1 - p) * (1 - labels)
    alpha = 0.25 * labels + 0.75 * (1 - labels)
    return (alpha * (1 - p_t) ** 2 * ce).mean()


def huber(x: Tensor, y: Tensor) -> Tensor:
    return F.huber_loss(x, y, delta=0.5)


def nt_xent(first: Tensor, second: Tensor) -> Tensor:
    z = F.normalize(torch.cat([first, second]), dim=-1)
    n = z.shape[0]
    similar = z @ z.t() / 0.1
    similar = similar.masked_fill(
        torch.eye(n, dtype=torch.bool, device=z.device), float("-inf")
    )
    positive = torch.arange(n, device=z.device).roll(n // 2)
    return F.cross_entropy(similar, positive)


def cosine_rows(x: Tensor, y: Tensor) -> Tensor:
    return F.cosine_similarity(x, y, dim=-1)


def pairwise_distances(x: Tensor, y: Tensor) -> Tensor:
    square = x.square().sum(-1)[:, None] + y.square().sum(-1)[None, :]
    return (square - 2 * x @ y.t()).clamp_min(0).sqrt()


def masked_loss(nll: Tensor, tokens: Tensor) -> Tensor:
    ended = tokens == 7
    keep = (ended.cumsum(-1) - ended.long()) == 0
    return (nll * keep).sum() / keep.sum()


# --- quantization ---------------------------------------------------------------------------


def residual_norm_fp8(
    x: Tensor, residual: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    h = x + residual
    wide = h.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5) * scale
    step = normed.abs().amax(-1, keepdim=True).clamp_min(1e-6) / 448.0
    return (normed / step).to(torch.float8_e4m3fn), step, h


def quantize_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.float().abs().amax(-1, keepdim=True) / 127.0
    return torch.round(x / scale).clamp(-128, 127).to(torch.int8), scale


def dequantize_int4(packed: Tensor, scale: Tensor) -> Tensor:
    low, high = packed & 15, packed >> 4
    values = torch.stack((low, high), -1).reshape(packed.shape[0], -1)
    groups = values.reshape(packed.shape[0], -1, 128).to(scale.dtype) - 8
    return (groups * scale[..., None]).reshape(packed.shape[0], -1)


# --- tokens and graphs ----------------------------------------------------------------------


def expert_gate(logits: Tensor) -> tuple[Tensor, Tensor]:
    weights, experts = torch.topk(torch.softmax(logits, -1), 2, dim=-1)
    return weights / weights.sum(-1, keepdim=True), experts


def embed(
    tokens: Tensor, table: Tensor, positions: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    h = F.embedding(tokens, table) + positions[: tokens.shape[1]]
    return F.layer_norm(h, (h.shape[-1],), weight, bias)


def message_means(x: Tensor, source: Tensor, target: Tensor) -> Tensor:
    total = torch.zeros_like(x).index_add_(0, target, x[source])
    degree = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
    degree = degree.scatter_add(0, target, torch.ones_like(target, dtype=x.dtype))
    return total / degree.clamp_min(1)[:, None]


# --- attention ------------------------------------------------------------------------------


def causal_softmax(scores: Tensor) -> Tensor:
    n = scores.shape[-1]
    future = torch.ones(n, n, dtype=torch.bool, device=scores.device).triu(1)
    return torch.softmax(scores.masked_fill(future, float("-inf")), -1)


def alibi_attention(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Tensor:
    n = q.shape[-2]
    at = torch.arange(n, device=q.device)
    distance = at[None, :] - at[:, None]
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    scores = scores + slopes[:, None, None] * distance
    scores = scores.masked_fill(distance > 0, float("-inf"))
    return torch.softmax(scores, -1) @ v


def window_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n = q.shape[-2]
    at = torch.arange(n, device=q.device)
    distance = at[:, None] - at[None, :]
    near = (distance >= 0) & (distance < 256)
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    return torch.softmax(scores.masked_fill(~near, float("-inf")), -1) @ v


def grouped_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    repeats = q.shape[1] // k.shape[1]
    k = k.repeat_interleave(repeats, dim=1)
    v = v.repeat_interleave(repeats, dim=1)
    n = q.shape[-2]
    mask = torch.full((n, n), float("-inf"), device=q.device).triu(1)
    scores = torch.matmul(q, k.transpose(2, 3)) / q.shape[-1] ** 0.5 + mask
    return torch.matmul(F.softmax(scores.float(), dim=-1).type_as(q), v)


def padded_attention(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    padding = torch.arange(k.shape[-2], device=q.device)[None, :] >= lengths[:, None]
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(padding[:, None, None, :], float("-inf"))
    return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), v)


def decode(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, at: Tensor
) -> Tensor:
    keys.index_copy_(2, at, k)
    values.index_copy_(2, at, v)
    scores = q @ keys.transpose(-2, -1) / q.shape[-1] ** 0.5
    seen = torch.arange(keys.shape[2], device=q.device) <= at
    return torch.softmax(scores.masked_fill(~seen, float("-inf")), -1) @ values


def rotary_complex(x: Tensor, angles: Tensor) -> Tensor:
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[None, :, None]).flatten(3).type_as(x)


def geglu(x: Tensor) -> Tensor:
    up, gate = x.chunk(2, dim=-1)
    return up * F.gelu(gate)


# --- optimizers -----------------------------------------------------------------------------


def lion(*tensors: Tensor) -> None:
    n = len(tensors) // 3
    for p, grad, m in zip(
        tensors[:n], tensors[n : 2 * n], tensors[2 * n :], strict=True
    ):
        update = (m * 0.9 + grad * 0.1).sign()
        p.mul_(1 - 1e-4 * 0.1).add_(update, alpha=-1e-4)
        m.mul_(0.99).add_(grad, alpha=0.01)


def adafactor(p: Tensor, grad: Tensor, rows: Tensor, columns: Tensor) -> None:
    square = grad.square() + 1e-30
    rows.lerp_(square.mean(-1), 0.1)
    columns.lerp_(square.mean(-2), 0.1)
    r = (rows / rows.mean()).rsqrt()[:, None]
    update = grad * r * columns.rsqrt()[None, :]
    update = update / (update.square().mean().sqrt()).clamp_min(1.0)
    p.sub_(1e-3 * update)


def average(*tensors: Tensor) -> None:
    n = len(tensors) // 2
    for mean, p in zip(tensors[:n], tensors[n:], strict=True):
        mean.lerp_(p, 1e-3)


def clip(*grads: Tensor) -> Tensor:
    norms = torch.stack([g.square().sum() for g in grads])
    total = norms.sum().sqrt()
    factor = (1.0 / (total + 1e-6)).clamp_max(1.0)
    for g in grads:
        g.mul_(factor)
    return total


# --- images ---------------------------------------------------------------------------------


def depthwise_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(F.conv2d(x, weight, bias, padding=1, groups=x.shape[1]))


def resize_normalize(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    x = images.to(mean.dtype) / 255
    size = (images.shape[-2] // 2, images.shape[-1] // 2)
    x = F.interpolate(x, size=size, mode="bilinear", align_corners=False)
    return (x - mean[:, None, None]) / std.abs().clamp_min(0.1)[:, None, None]


def shuffle_pixels(x: Tensor, bias: Tensor) -> Tensor:
    return F.silu(F.pixel_shuffle(x, 2) + bias[:, None, None])


def window_partition(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    batch, height, width, channels = x.shape
    x = F.layer_norm(x, (channels,), weight, bias)
    x = torch.roll(x, (-4, -4), dims=(1, 2))
    x = x.view(batch, height // 8, 8, width // 8, 8, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, channels)


def mandelbrot(x: Tensor, y: Tensor) -> Tensor:
    a, b = torch.zeros_like(x), torch.zeros_like(y)
    steps = torch.zeros_like(x)
    for _ in range(16):
        a, b = a * a - b * b + x, 2 * a * b + y
        inside = a * a + b * b < 4
        steps = steps + inside.to(x.dtype)
        a, b = torch.where(inside, a, 2.0), torch.where(inside, b, 0.0)
    return steps
