"""A training loop: the forward pass is compiled with its gradient.

python examples/training.py
"""

import torch

import srcjit


class Classifier(torch.nn.Module):
    """Two layers, dropout, and a counter that costs no recompilation."""

    def __init__(self, inputs: int, classes: int):
        super().__init__()
        self.hidden = torch.nn.Linear(inputs, 64)
        self.norm = torch.nn.LayerNorm(64)
        self.head = torch.nn.Linear(64, classes)
        self.batches = 0

    def forward(self, x):
        self.batches += 1
        h = torch.nn.functional.gelu(self.norm(self.hidden(x)))
        return self.head(h)


def train(model, module, steps=30):
    """Trains `module` by calling `model`, which is the module or its jitted form."""
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        x = torch.randn(32, 8, generator=generator)
        target = (x.sum(1) > 0).long()
        loss = torch.nn.functional.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    module = Classifier(8, 2)
    twin = Classifier(8, 2)
    twin.load_state_dict(module.state_dict())

    losses = train(srcjit.jit(module), module)
    expected = train(twin, twin)
    difference = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} in {module.batches} batches")
    print(f"largest difference to eager PyTorch: {difference:.1e}")
    assert difference < 1e-3


if __name__ == "__main__":
    main()
