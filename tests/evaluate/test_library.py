"""PyTorch's own modules and functions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.evaluate.support import Program, Programs, X, name_of

program = Programs()


def mod(module, *args):
    breaks = isinstance(module, nn.GaussianNLLLoss | nn.CTCLoss)
    program(*args, whole=not breaks)(module)


IMAGE = torch.randn(2, 4, 8, 8)
mod(
    nn.MultiheadAttention(8, 2, batch_first=True),
    torch.randn(2, 3, 8),
    torch.randn(2, 3, 8),
    torch.randn(2, 3, 8),
)
mod(
    nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2),
    torch.randn(2, 3, 8),
)
mod(
    nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2
    ).eval(),
    torch.randn(2, 3, 8),
)
mod(
    nn.TransformerDecoderLayer(8, 2, 16, batch_first=True),
    torch.randn(2, 3, 8),
    torch.randn(2, 3, 8),
)
mod(
    nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 2),
    torch.randn(2, 3, 8),
    torch.randn(2, 3, 8),
)
mod(
    nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
    torch.randn(2, 3, 8),
    torch.randn(2, 3, 8),
)
mod(nn.LSTM(8, 4, 2, batch_first=True, bidirectional=True), torch.randn(2, 3, 8))
mod(nn.GRU(8, 4), torch.randn(2, 3, 8))
mod(nn.RNN(8, 4), torch.randn(2, 3, 8))
mod(nn.LSTMCell(8, 4), torch.randn(2, 8))
mod(nn.GRUCell(8, 4), torch.randn(2, 8))
mod(nn.BatchNorm2d(4), IMAGE)
mod(nn.BatchNorm1d(8), X)
mod(nn.BatchNorm2d(4).eval(), IMAGE)
mod(nn.InstanceNorm2d(4, affine=True), IMAGE)
mod(nn.GroupNorm(2, 4), IMAGE)
mod(nn.LayerNorm(8), X)
mod(nn.RMSNorm(8), X)
mod(nn.LocalResponseNorm(2), IMAGE)
mod(nn.SyncBatchNorm(4).eval(), IMAGE)
for d in (nn.Dropout, nn.Dropout1d, nn.AlphaDropout, nn.FeatureAlphaDropout):
    mod(d(0.5), X)
mod(nn.Dropout2d(), IMAGE)
mod(nn.Conv1d(4, 3, 3, padding="same"), torch.randn(2, 4, 8))
mod(nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"), IMAGE)
mod(nn.Conv3d(4, 3, 3), torch.randn(1, 4, 5, 5, 5))
mod(nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), IMAGE)
mod(nn.ConvTranspose1d(4, 3, 3), torch.randn(2, 4, 8))
for p in (
    nn.MaxPool2d(2),
    nn.AvgPool2d(2),
    nn.AdaptiveAvgPool2d(1),
    nn.AdaptiveMaxPool2d((2, None)),
    nn.LPPool2d(2, 2),
    nn.FractionalMaxPool2d(2, output_size=3),
    nn.MaxPool2d(2, return_indices=True),
    nn.Upsample(scale_factor=2),
    nn.Upsample(size=(5, 5), mode="bilinear"),
    nn.PixelShuffle(2),
    nn.PixelUnshuffle(2),
    nn.ZeroPad2d(1),
    nn.ReflectionPad2d(1),
    nn.ReplicationPad2d(1),
    nn.ConstantPad2d(1, 2.0),
    nn.CircularPad2d(1),
    nn.Flatten(),
    nn.Unflatten(1, (2, 2)),
    nn.Softmax2d(),
    nn.ChannelShuffle(2),
    nn.Unfold(2),
    nn.UpsamplingNearest2d(scale_factor=2),
):
    mod(p, IMAGE)
mod(nn.MaxUnpool2d(2), *F.max_pool2d(IMAGE, 2, return_indices=True))
mod(nn.Fold((4, 5), (2, 2)), torch.randn(1, 12, 12))
for a in (
    nn.ReLU(),
    nn.ReLU6(),
    nn.ELU(),
    nn.SELU(),
    nn.CELU(),
    nn.GELU(),
    nn.GELU("tanh"),
    nn.SiLU(),
    nn.Mish(),
    nn.Softplus(),
    nn.Softsign(),
    nn.Tanh(),
    nn.Sigmoid(),
    nn.LogSigmoid(),
    nn.Hardtanh(),
    nn.Hardswish(),
    nn.Hardsigmoid(),
    nn.Hardshrink(),
    nn.Softshrink(),
    nn.Tanhshrink(),
    nn.Threshold(0.1, 2),
    nn.PReLU(),
    nn.RReLU(),
    nn.LeakyReLU(inplace=True),
    nn.GLU(),
    nn.Softmax(-1),
    nn.Softmin(-1),
    nn.LogSoftmax(-1),
    nn.Identity(),
    nn.CosineSimilarity(),
):
    mod(a, *((X, X) if isinstance(a, nn.CosineSimilarity) else (X,)))
mod(nn.Bilinear(8, 8, 3), X, X)
mod(nn.Embedding(10, 4, padding_idx=0, max_norm=1.0), torch.tensor([[1, 2]]))
mod(nn.Embedding(10, 4, padding_idx=0), torch.tensor([[1, 2]]))
mod(nn.EmbeddingBag(10, 4), torch.tensor([[1, 2]]))
mod(nn.PairwiseDistance(), X, X + 1)
LABELS = torch.tensor([0, 1, 2, 3])
for l, args in (
    (nn.MSELoss(), (X, X + 1)),
    (nn.L1Loss(reduction="none"), (X, X + 1)),
    (nn.SmoothL1Loss(), (X, X + 1)),
    (nn.HuberLoss(), (X, X + 1)),
    (nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.rand(8)), (X, LABELS)),
    (nn.NLLLoss(), (X, LABELS)),
    (nn.BCELoss(), (X.sigmoid(), X.sigmoid())),
    (nn.BCEWithLogitsLoss(pos_weight=torch.ones(8)), (X, X.sigmoid())),
    (nn.KLDivLoss(reduction="batchmean"), (X, X.softmax(-1))),
    (nn.CosineEmbeddingLoss(), (X, X + 1, torch.ones(4))),
    (nn.TripletMarginLoss(), (X, X + 1, X - 1)),
    (nn.MarginRankingLoss(), (X, X + 1, torch.ones(4, 8))),
    (nn.HingeEmbeddingLoss(), (X, torch.ones(4, 8))),
    (nn.MultiLabelSoftMarginLoss(), (X, (X > 0).float())),
    (nn.MultiMarginLoss(), (X, LABELS)),
    (nn.SoftMarginLoss(), (X, torch.ones(4, 8))),
    (nn.PoissonNLLLoss(), (X, X.abs())),
    (nn.GaussianNLLLoss(), (X, X, X.abs())),
    (
        nn.CTCLoss(),
        (
            torch.randn(5, 2, 4).log_softmax(-1),
            torch.tensor([[1, 2], [1, 3]]),
            torch.tensor([5, 5]),
            torch.tensor([2, 2]),
        ),
    ),
    (nn.TripletMarginWithDistanceLoss(), (X, X + 1, X - 1)),
):
    mod(l, *args)


@program(torch.randn(2, 2, 3, 4))
def attention(q):
    return F.scaled_dot_product_attention(
        q, q, q, is_causal=True
    ), F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(3, 3).tril().bool())


@program(X)
def linear_algebra(x):
    a = x @ x.T + torch.eye(4) * 5
    return (
        torch.linalg.inv(a),
        torch.linalg.norm(x),
        torch.linalg.cholesky(a),
        torch.linalg.solve(a, x),
        torch.linalg.svd(x, full_matrices=False).S,
        torch.linalg.eigh(a)[0],
        torch.fft.rfft(x).real,
        torch.fft.ifft(torch.fft.fft(x)).abs(),
        torch.special.erf(x),
        torch.special.expit(x),
        torch.linalg.vector_norm(x, dim=1),
        torch.linalg.det(a),
    )


@program(X)
def tensor_factories(x):
    return (
        torch.tensor([1, 2.5]),
        torch.tensor(True),
        torch.tensor([x.shape[0], 2]),
        torch.tensor((1, 2), dtype=torch.float32),
        torch.as_tensor([1, 2]),
        torch.tensor([[1], [2]]),
        torch.arange(3),
        torch.linspace(0, 1, 5),
        torch.full_like(x, 2),
        x.new_tensor([1.0, 2.0]),
        x.new_full((2,), 3),
        torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"),
        torch.block_diag(x, x),
        torch.cartesian_prod(torch.arange(2), torch.arange(2)),
        torch.broadcast_tensors(x, x[:1]),
        torch.atleast_1d(x),
        torch.chunk(x, 2),
        torch.split(x, [1, 3]),
        torch.stft.__name__,
    )


@program(X, whole=False)
def vmap_of_a_function(x):
    return torch.vmap(lambda t: t.sin())(x)


@program(X, whole=False)
def gradient_of_a_function(x):
    return torch.func.grad(lambda t: t.sin().sum())(x)


@program(X, whole=False)
def manual_seed(x):
    torch.manual_seed(3)
    return torch.rand(2) + x[0, 0]


@program(X, torch.tensor([0, 1, 2, 3]))
def functional_mix(x, y):
    return (
        F.one_hot(y, num_classes=5),
        F.cosine_similarity(x, x),
        F.pairwise_distance(x, x + 1),
        F.normalize(x, dim=0),
        F.unfold(x[None, None], 2),
        F.grid_sample(
            torch.ones(1, 1, 4, 4), torch.zeros(1, 2, 2, 2), align_corners=True
        ),
        F.affine_grid(torch.eye(2, 3)[None], (1, 1, 2, 2), align_corners=False),
        F.gumbel_softmax(x),
        x.masked_fill(x > 0, 0),
        torch.bincount.__name__,
        torch.cdist(x, x),
        torch.einsum("bi,bi->b", x, x),
        torch.tensordot(x, x, dims=([1], [1])),
        torch.triu(x),
        x.unfold(1, 2, 1),
        x.repeat_interleave(2, 0),
        x.roll(1, 0),
        x.flip(0),
        x.sort().values,
        torch.searchsorted(torch.arange(4.0), x),
        torch.bucketize(x, torch.arange(3.0)),
        torch.lerp(x, x + 1, 0.5),
        torch.addmm(x @ x.T, x, x.T),
        x.scatter_add(0, torch.zeros(4, 8, dtype=torch.long), x),
        x.gather(1, y[:, None]),
        x.index_select(0, y),
        torch.take_along_dim(x, y[:, None], 1),
        x.quantile(0.5),
        torch.logsumexp(x, 1),
        x.var_mean if False else torch.var_mean(x),
        torch.finfo(x.dtype).max,
        torch.iinfo(torch.int32).min,
    )


@program(X)
def pad_sequence(x):
    s = nn.utils.rnn.pad_sequence([x[0], x[1, :3]], batch_first=True)
    return s


@program(torch.randn(2, 3, 8), whole=False)
def packed_sequence(x):
    p = nn.utils.rnn.pack_padded_sequence(x, [3, 2], batch_first=True)
    return p.data


@program(X)
def clamps_and_casts(x):
    return (
        torch.clamp(x, min=0),
        x.clamp_(max=1),
        torch.nan_to_num(x),
        x.to(torch.bfloat16),
        x.to(x),
        x.to("cpu", torch.float64),
        x.type(torch.int32),
        x.long(),
        x.cpu(),
        x.bool(),
        x.type("torch.DoubleTensor"),
    )


@pytest.mark.parametrize("case", program, ids=name_of)
def test_like_eager(case: Program) -> None:
    case.check()
