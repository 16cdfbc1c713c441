"""A chain of element-by-element operations becomes one kernel.

python examples/pointwise.py
srcjit emit examples/pointwise.py
srcjit emit examples/pointwise.py --backend triton     (no GPU needed to read it)
"""

import torch

import srcjit


@srcjit.jit
def mish_gate(x, gate, *, temperature: float = 1.0):
    """Ten operations: eager PyTorch writes and reads memory for each of them."""
    softplus = torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0)
    mish = x * torch.tanh(softplus)
    return mish * torch.sigmoid(gate / temperature) + 0.1 * x


@srcjit.jit
def softmax_with_bias(scores, bias):
    """A reduction over each row with its prologue, in one pass over memory."""
    scores = scores + bias
    scores = scores - scores.amax(-1, keepdim=True)
    weights = scores.exp()
    return weights / weights.sum(-1, keepdim=True)


def main():
    torch.manual_seed(0)
    x, gate = torch.randn(2, 256, 512).unbind(0)

    y = mish_gate(x, gate, temperature=0.5)
    expected = torch.nn.functional.mish(x) * torch.sigmoid(gate / 0.5) + 0.1 * x
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    print("mish_gate: the same as eager PyTorch on", tuple(y.shape))

    weights = softmax_with_bias(x, gate[0])
    torch.testing.assert_close(weights, torch.softmax(x + gate[0], -1))
    print("softmax_with_bias: rows sum to", weights.sum(-1).mean().item())


if __name__ == "__main__":
    main()
