"""The feed-forward sub-layer of a transformer: y = x + W2 gelu(W1 rmsnorm(x)).

    python examples/ffn_block.py          compares with eager PyTorch and times both
    srcjit emit examples/ffn_block.py     prints the program that runs instead

Nothing in it breaks the graph. The two matrix products stay library calls; RMSNorm becomes
one kernel, the tanh form of GELU another, and the residual sum joins the second product.
"""

import math
import statistics
import time

import torch

import srcjit


class FeedForward(torch.nn.Module):
    """Feed-forward block with RMSNorm in front and a residual connection around it."""

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.scale = torch.nn.Parameter(torch.ones(width))
        self.up = torch.nn.Linear(width, 4 * width, bias=False)
        self.down = torch.nn.Linear(4 * width, width, bias=False)

    def norm(self, x):
        mean_square = x.square().mean(-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * self.scale

    def forward(self, x):
        h = self.up(self.norm(x))
        inner = math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)
        h = 0.5 * h * (1 + torch.tanh(inner))
        return x + self.down(h)


def make():
    """Returns the module and arguments to call it with."""
    torch.manual_seed(0)
    return FeedForward(256), (torch.randn(4, 64, 256),)


def milliseconds(call, *args):
    """Returns the median time of 20 calls."""
    times = []
    for _ in range(20):
        start = time.perf_counter()
        call(*args)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


if __name__ == "__main__":
    module, args = make()
    jitted = srcjit.jit(module)
    with torch.no_grad():
        torch.testing.assert_close(jitted(*args), module(*args))
        print("the same result as eager PyTorch")
        print(f"eager  {milliseconds(module, *args):.2f} ms")
        print(f"srcjit {milliseconds(jitted, *args):.2f} ms")
