"""What cannot be traced is run by Python, in order, and nothing more than that.

python examples/breaks.py
srcjit explain examples/breaks.py       where each function splits, and why
"""

import torch

import srcjit


@srcjit.jit
def clipped_step(weight, grad, limit, log):
    """A number is read from a tensor and kept in a list; a branch depends on it."""
    norm = grad.square().sum().sqrt()
    log.append(norm.item())
    if norm > limit:
        grad = grad * (limit / (norm + 1e-6))
    return weight - 0.1 * grad


@srcjit.jit
def square_root(x, tolerance):
    """Newton's method: the loop stays a loop, and each iteration runs compiled code."""
    guess = torch.ones_like(x)
    steps = 0
    while (guess * guess - x).abs().max() > tolerance:
        guess = (guess + x / guess) / 2
        steps += 1
    return guess, steps


@srcjit.jit
def scaled_by_file(x, path):
    """`try` and `with` are Python's; the tensor operations around them are compiled."""
    y = x.exp()
    try:
        with open(path) as file:
            y = y * float(file.read())
    except FileNotFoundError:
        print("no file, no scale")
    return torch.log1p(y)


def main():
    torch.manual_seed(0)
    weight, log = torch.zeros(1000), []
    for _ in range(3):
        weight = clipped_step(weight, torch.randn(1000), 10.0, log)
    print("norms:", [round(norm, 3) for norm in log])

    x = torch.rand(100) * 50 + 1
    root, steps = square_root(x, 1e-4)
    torch.testing.assert_close(root, x.sqrt(), rtol=1e-4, atol=1e-4)
    print("square_root:", steps, "steps, the same as torch.sqrt")

    y = scaled_by_file(x / 50, "/no/such/file")
    torch.testing.assert_close(y, torch.log1p(torch.exp(x / 50)))
    print("scaled_by_file: the same as eager PyTorch")


if __name__ == "__main__":
    main()
