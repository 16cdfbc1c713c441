"""Measures how far each function of a kernel is off, beside eager's own error.

    python -m bench.accuracy              the table, as Markdown
    python -m bench.accuracy --write      into docs/accuracy.md

Functions of float32 are compared with PyTorch's in float64; those of float64 with NumPy's in
80 bits where there is one. Errors are in units in the last place of the exact result; where a
result or the exact value is not finite, both must be the same, and so must the signs of zeros.
The arguments are every 4001st float32 there is, dense ranges around 0 and 1, and special values.
With a GPU, the Triton kernels and eager's own on it are measured, too.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from srcjit import jit

NAMES = (
    "exp exp2 expm1 log log2 log10 log1p sigmoid tanh sin cos tan asin acos atan sinh cosh "
    "asinh acosh atanh erf erfc erfinv lgamma sqrt rsqrt"
).split()

BY_NUMPY = {
    **{n: getattr(np, n) for n in "exp exp2 expm1 log log2 log10 log1p".split()},
    **{n: getattr(np, n) for n in "tanh sin cos tan sinh cosh sqrt".split()},
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
"""References of 80 bits for functions of float64."""

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    float("inf"),
    -float("inf"),
    float("nan"),
    1e-45,
    -1e-45,
]


def samples(dtype: torch.dtype) -> torch.Tensor:
    """Arguments of all magnitudes."""
    bits = torch.arange(-(2**31), 2**31, 4001).to(torch.int32)
    every = bits.view(torch.float32).double()
    dense = [
        torch.linspace(-a, a, 60_001, dtype=torch.float64) for a in (2, 12, 110, 710)
    ]
    near_one = 1 + torch.linspace(-1e-3, 1e-3, 50_001, dtype=torch.float64)
    special = torch.tensor(SPECIAL, dtype=torch.float64)
    return torch.cat([every, *dense, near_one, special]).to(dtype)


def all_at_once(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What is compiled: one kernel with every function in it."""
    return (
        torch.exp(x), torch.exp2(x), torch.expm1(x), torch.log(x), torch.log2(x),
        torch.log10(x), torch.log1p(x), torch.sigmoid(x), torch.tanh(x), torch.sin(x),
        torch.cos(x), torch.tan(x), torch.asin(x), torch.acos(x), torch.atan(x),
        torch.sinh(x), torch.cosh(x), torch.asinh(x), torch.acosh(x), torch.atanh(x),
        torch.erf(x), torch.erfc(x), torch.erfinv(x), torch.lgamma(x), torch.sqrt(x),
        torch.rsqrt(x),
    )  # fmt: skip


def ulps(got: torch.Tensor, exact: np.ndarray[Any, Any]) -> tuple[float, int]:
    """The largest error in units in the last place, and how many special values differ."""
    mine = got.cpu().numpy()
    with np.errstate(all="ignore"):
        rounded = exact.astype(mine.dtype)
        finite = np.isfinite(rounded) & np.isfinite(mine)
        unit = np.spacing(np.abs(rounded[finite])).astype(exact.dtype)
        error = np.abs(mine[finite].astype(exact.dtype) - exact[finite]) / unit
    both = np.isnan(mine) & np.isnan(rounded)
    wrong = ~finite & (mine != rounded) & ~both
    zero = finite & (rounded == 0) & (exact == 0)
    wrong |= zero & (np.signbit(mine) != np.signbit(rounded))
    return float(error.max(initial=0)), int(wrong.sum())


def reference(name: str, x: torch.Tensor) -> np.ndarray[Any, Any] | None:
    """The exact results, to more bits than `x` has; None where nobody computes them."""
    if x.dtype is torch.float32:
        wide: np.ndarray[Any, Any] = getattr(torch, name)(x.double()).numpy()
        return wide
    if name not in BY_NUMPY:
        return None
    with np.errstate(all="ignore"):
        made: np.ndarray[Any, Any] = BY_NUMPY[name](x.numpy().astype(np.longdouble))
    return made


def column(run: Callable[[torch.Tensor], Any], x: torch.Tensor) -> dict[str, str]:
    """Texts of the largest errors by function."""
    found = {}
    for name, got in zip(NAMES, run(x), strict=True):
        exact = reference(name, x.cpu())
        if exact is None:
            found[name] = "–"
            continue
        error, wrong = ulps(got, exact)
        found[name] = f"{error:.2f}" if error < 1e4 else f"{error:.0e}"
        if wrong:
            found[name] += f" ({wrong} special values differ)"
    return found


def table() -> str:
    """The whole table as Markdown."""
    heads, columns = [], []
    for dtype in (torch.float32, torch.float64):
        x, kind = samples(dtype), str(dtype).removeprefix("torch.")
        heads += [f"C++ {kind}", f"eager {kind}"]
        columns += [column(jit(all_at_once), x), column(all_at_once, x)]
        if torch.cuda.is_available():
            heads += [f"Triton {kind}", f"eager on CUDA {kind}"]
            x = x.cuda()
            columns += [column(jit(all_at_once), x), column(all_at_once, x)]
    rows = ["| function | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for name in NAMES:
        rows.append(f"| `{name}` | " + " | ".join(c[name] for c in columns) + " |")
    return "\n".join(rows)


HEAD = """# Accuracy

Largest errors in units in the last place (0.5 is a correctly rounded result), as
`python -m bench.accuracy --write` measures them on {machine}, PyTorch {torch}. The arguments are
every 4001st float32, dense ranges around 0 and 1, and special values; results that are not
finite, and signs of zeros, are the exact ones unless the table says otherwise. float32 is
compared with PyTorch's functions in float64, float64 with NumPy's in 80 bits (–: there is none).
A sigmoid of float64 below −709 is 0, as eager's, where the exact value is a denormal number;
`lgamma` of float32 is off by more than 2 at some negative arguments, where its terms cancel.

"""


def main() -> None:
    """Prints or writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into docs/accuracy.md")
    made = table()
    print(made)
    if parser.parse_args().write:
        head = HEAD.format(machine=platform.machine(), torch=torch.__version__)
        (Path(__file__).parents[1] / "docs" / "accuracy.md").write_text(
            f"{head}{made}\n"
        )


if __name__ == "__main__":
    main()
