"""More programs that `bench.gpu` times: what people write that no target was set for.

    python -m bench.gpu --workloads breadth

Norms of images, losses, quantization, gathers, attention with masks, optimizers over lists,
image code, training steps: each as a user would write it, none of them looked at while
schedules were chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from bench.gpu_breadth_programs import (
    adafactor,
    alibi_attention,
    average,
    batch_norm_relu,
    causal_softmax,
    channel_stats,
    clip,
    cosine_rows,
    decode,
    depthwise_gelu,
    dequantize_int4,
    distillation,
    embed,
    expert_gate,
    extremes,
    focal_loss,
    geglu,
    group_norm_silu,
    group_norm_written,
    grouped_attention,
    huber,
    instance_norm,
    l2_normalize,
    lion,
    mandelbrot,
    masked_loss,
    message_means,
    nt_xent,
    padded_attention,
    pairwise_distances,
    quantize_int8,
    residual_norm_fp8,
    resize_normalize,
    rotary_complex,
    row_stats,
    shuffle_pixels,
    smoothed_nll,
    window_attention,
    window_partition,
)
from bench.gpu_workloads import (
    BF16,
    F32,
    Arguments,
    Workload,
    cross_entropy,
    layer_norm,
    matrix,
    randn,
    rms_norm_wide,
    several,
    swiglu,
)

# --- arguments ------------------------------------------------------------------------------


def _images(
    dtype: torch.dtype,
    *size: int,
    vectors: int = 0,
    channels_last: bool = False,
    channels: int = 0,
) -> Callable[[int, str], Arguments]:
    """Images, smaller if asked for, and some vectors over their channels."""

    def make(shrink: int, device: str) -> Arguments:
        batch, c, height, _ = size
        side = 8 if shrink > 1 else height
        x = randn(min(batch, 2) if shrink > 1 else batch, c, side, side, device=device)
        x = x.to(dtype)
        if channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        wide = channels or c
        return x, *(randn(wide, dtype=dtype, device=device) for _ in range(vectors))

    return make


def _logits(rows: int, classes: int) -> Callable[[int, str], Arguments]:
    def make(shrink: int, device: str) -> Arguments:
        target = torch.randint(0, classes // shrink, (rows // shrink,), device=device)
        return matrix(rows, classes, BF16)(shrink, device)[0], target

    return make


def _routing(tokens: int) -> Callable[[int, str], Arguments]:
    def make(shrink: int, device: str) -> Arguments:
        return (randn(max(1, tokens // shrink), 64, device=device),)

    return make


def _focal(shrink: int, device: str) -> Arguments:
    logits = randn(8192 // shrink, 8192 // shrink, device=device)
    return logits, (torch.rand_like(logits) < 0.1).float()


def _masked(shrink: int, device: str) -> Arguments:
    nll = randn(16384 // shrink, 4096 // shrink, device=device).square()
    return nll, torch.randint(0, 4096, nll.shape, device=device)


def _packed(shrink: int, device: str) -> Arguments:
    rows, columns = 8192 // shrink, 8192 // shrink
    packed = torch.randint(0, 256, (rows, columns), dtype=torch.uint8, device=device)
    return packed, randn(rows, columns // 64, dtype=BF16, device=device)


def _embed(shrink: int, device: str) -> Arguments:
    width, length = 2048 // shrink, 2048 // shrink
    tokens = torch.randint(0, 8192, (16, length), device=device)
    table = randn(8192, width, dtype=BF16, device=device)
    positions = randn(length, width, dtype=BF16, device=device)
    weight, bias = (randn(width, dtype=BF16, device=device) for _ in range(2))
    return tokens, table, positions, weight, bias


def _graph(shrink: int, device: str) -> Arguments:
    nodes, edges = 131072 // shrink, 1048576 // shrink
    source, target = (torch.randint(0, nodes, (edges,), device=device) for _ in "st")
    return randn(nodes, 128, device=device), source, target


def _heads(
    batch: int, heads: int, length: int, width: int, kv: int = 0, keys: int = 0
) -> Callable[[int, str], Arguments]:
    def make(shrink: int, device: str) -> Arguments:
        q = (batch, heads, length // shrink, width)
        other = (batch, kv or heads, (keys or length) // shrink, width)
        return tuple(randn(*s, dtype=BF16, device=device) for s in (q, other, other))

    return make


def _alibi(shrink: int, device: str) -> Arguments:
    slopes = 2.0 ** -torch.arange(1, 17, device=device).div(2)
    return *_heads(8, 16, 2048, 64)(shrink, device), slopes.to(BF16)


def _padded(shrink: int, device: str) -> Arguments:
    keys = 4096 // shrink
    lengths = torch.randint(keys // 2, keys + 1, (8,), device=device)
    return *_heads(8, 16, 1024, 64, keys=4096)(shrink, device), lengths


def _decode(shrink: int, device: str) -> Arguments:
    length = 4096 // shrink
    q, k, v = (randn(16, 16, 1, 128, dtype=BF16, device=device) for _ in range(3))
    caches = (randn(16, 16, length, 128, dtype=BF16, device=device) for _ in range(2))
    return q, k, v, *caches, torch.tensor([length - 9], device=device)


def _complex(shrink: int, device: str) -> Arguments:
    length = 4096 // shrink
    x = randn(8, length, 32, 128, dtype=BF16, device=device)
    return x, torch.rand(length, 64, device=device)


def _parameters(copies: int) -> Callable[[int, str], Arguments]:
    """The parameters of two transformer blocks, `copies` times."""
    width = 1024

    def shapes() -> Iterator[tuple[int, ...]]:
        for _ in range(2):
            yield from ((3 * width, width), (3 * width,), (width, width), (width,))
            yield from ((4 * width, width), (4 * width,), (width, 4 * width), (width,))

    def make(shrink: int, device: str) -> Arguments:
        every = [s for _ in range(copies) for s in shapes()]
        return tuple(
            randn(*(max(1, n // shrink) for n in s), device=device) for s in every
        )

    return make


def _adafactor(shrink: int, device: str) -> Arguments:
    n = 8192 // shrink
    p, grad = (randn(n, n, device=device) for _ in range(2))
    return p, grad, *(torch.rand(n, device=device) + 0.5 for _ in range(2))


def _depthwise(shrink: int, device: str) -> Arguments:
    (x,) = _images(BF16, 64, 256, 56, 56)(shrink, device)
    weight = randn(256, 1, 3, 3, dtype=BF16, device=device)
    return x, weight, randn(256, dtype=BF16, device=device)


def _photos(shrink: int, device: str) -> Arguments:
    side = 512 // shrink
    size = (256 // shrink, 3, side, side)
    images = torch.randint(0, 256, size, dtype=torch.uint8, device=device)
    return images, *(torch.rand(3, device=device) for _ in range(2))


def _windows(shrink: int, device: str) -> Arguments:
    side, channels = 64 if shrink == 1 else 16, 384 // min(shrink, 4)
    x = randn(64 if shrink == 1 else 1, side, side, channels, dtype=BF16, device=device)
    return x, *(randn(channels, dtype=BF16, device=device) for _ in range(2))


def _plane(shrink: int, device: str) -> Arguments:
    n = 8192 // shrink
    x, y = (torch.rand(n, n, device=device) * 3 - s for s in (2.0, 1.5))
    return x, y


def _with_gradient(
    make: Callable[[int, str], Arguments], like: int | None = 0
) -> Callable[[int, str], Arguments]:
    """Arguments, then the gradient of the result (which has the shape of one of them)."""

    def wider(shrink: int, device: str) -> Arguments:
        args = make(shrink, device)
        if like is None:
            return *args, torch.ones((), dtype=args[0].dtype, device=device)
        return *args, torch.randn_like(args[like])

    return wider


MULTI = 4 * 2 * 8 * 16 * 2048 * 2048 * 64 // 2
"""Operations of the two products of attention over 8 × 16 heads of 2048 × 64."""

BREADTH: dict[str, Workload] = {
    "group_norm_silu": Workload(
        group_norm_silu, _images(BF16, 32, 512, 64, 64, vectors=2)
    ),
    "group_norm_last": Workload(
        group_norm_silu,
        _images(BF16, 32, 512, 64, 64, vectors=2, channels_last=True),
    ),
    "group_norm_written": Workload(
        group_norm_written, _images(BF16, 32, 512, 64, 64, vectors=2)
    ),
    "batch_norm_relu": Workload(
        batch_norm_relu, _images(BF16, 64, 256, 56, 56, vectors=4)
    ),
    "batch_norm_last": Workload(
        batch_norm_relu,
        _images(BF16, 64, 256, 56, 56, vectors=4, channels_last=True),
    ),
    "instance_norm": Workload(
        instance_norm, _images(F32, 32, 256, 64, 64), tolerance=1e-5
    ),
    "channel_stats": Workload(
        channel_stats, _images(F32, 64, 256, 64, 64), tolerance=1e-4
    ),
    "channel_stats_last": Workload(
        channel_stats, _images(F32, 64, 256, 64, 64, channels_last=True), tolerance=1e-4
    ),
    "l2_normalize": Workload(l2_normalize, matrix(65536, 1024, BF16)),
    "row_stats": Workload(row_stats, matrix(16384, 4096, F32), tolerance=1e-4),
    "extremes": Workload(extremes, matrix(16384, 4096, F32), tolerance=1e-6),
    "smoothed_nll": Workload(smoothed_nll, _logits(8192, 32000)),
    "distillation": Workload(
        distillation, several(2, F32, 4096, 16384), tolerance=1e-4
    ),
    "focal_loss": Workload(focal_loss, _focal, tolerance=1e-5),
    "huber": Workload(huber, several(2, F32, 8192, 8192), tolerance=1e-5),
    "nt_xent": Workload(nt_xent, several(2, BF16, 4096, 256)),
    "cosine_rows": Workload(cosine_rows, several(2, BF16, 65536, 1024)),
    "pairwise_distances": Workload(
        pairwise_distances, several(2, BF16, 8192, 256), tolerance=2e-2
    ),
    "masked_loss": Workload(masked_loss, _masked, tolerance=1e-5),
    "residual_norm_fp8": Workload(
        residual_norm_fp8,
        lambda shrink, device: (
            *several(2, BF16, 16384, 4096)(shrink, device),
            randn(4096 // shrink, dtype=BF16, device=device),
        ),
        tolerance=4e-2,
    ),
    "quantize_int8": Workload(quantize_int8, matrix(16384, 8192, BF16)),
    "dequantize_int4": Workload(dequantize_int4, _packed),
    "expert_gate": Workload(expert_gate, _routing(262144), tolerance=1e-5),
    "embed": Workload(embed, _embed),
    "message_means": Workload(message_means, _graph, tolerance=1e-5),
    "causal_softmax": Workload(causal_softmax, several(1, BF16, 32, 2048, 2048)),
    "alibi_attention": Workload(alibi_attention, _alibi, operations=MULTI),
    "window_attention": Workload(
        window_attention, _heads(8, 16, 2048, 64), operations=MULTI
    ),
    "grouped_attention": Workload(
        grouped_attention, _heads(4, 32, 2048, 128, kv=8), operations=2 * MULTI
    ),
    "padded_attention": Workload(padded_attention, _padded, operations=MULTI),
    "decode": Workload(decode, _decode, mutates=(3, 4)),
    "rotary_complex": Workload(rotary_complex, _complex),
    "geglu": Workload(geglu, matrix(16384, 16384, BF16)),
    "lion": Workload(
        lion,
        _parameters(3),
        tolerance=1e-4,
        mutates=(*range(16), *range(32, 48)),
    ),
    "adafactor": Workload(adafactor, _adafactor, tolerance=1e-5, mutates=(0, 2, 3)),
    "average": Workload(
        average, _parameters(4), tolerance=1e-6, mutates=tuple(range(32))
    ),
    "clip": Workload(clip, _parameters(2), tolerance=1e-5, mutates=tuple(range(32))),
    "depthwise_gelu": Workload(depthwise_gelu, _depthwise),
    "resize_normalize": Workload(resize_normalize, _photos, tolerance=1e-5),
    "shuffle_pixels": Workload(
        shuffle_pixels, _images(BF16, 16, 256, 128, 128, vectors=1, channels=64)
    ),
    "window_partition": Workload(window_partition, _windows),
    "mandelbrot": Workload(mandelbrot, _plane, tolerance=1e-2),
    "rms_norm_step": Workload(
        rms_norm_wide, _with_gradient(matrix(16384, 4096, BF16, 1)), step=True
    ),
    "layer_norm_step": Workload(
        layer_norm, _with_gradient(matrix(16384, 4096, BF16, 2)), step=True
    ),
    "swiglu_step": Workload(
        swiglu, _with_gradient(several(2, BF16, 16384, 4096)), step=True
    ),
    "cross_entropy_step": Workload(
        cross_entropy, _with_gradient(_logits(8192, 32000), like=None), step=True
    ),
    "small_norm": Workload(rms_norm_wide, matrix(64, 1024, BF16, 1), small=True),
    "small_gate": Workload(expert_gate, _routing(256), small=True),
    "small_lion": Workload(
        lion,
        lambda shrink, device: several(24, F32, 128, 128)(1, device),
        tolerance=1e-4,
        mutates=(*range(8), *range(16, 24)),
        small=True,
    ),
}
