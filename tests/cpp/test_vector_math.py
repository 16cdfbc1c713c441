"""Accuracy of `vector_math.h` against float64, and its special values against the C library."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from srcjit.runtime import cpp_kernels
from tests.cpp.minimax import PROBLEMS, fit

# Largest errors allowed, in units of the last place of the exact result.
BOUNDS = {
    "exp": 1.0,
    "exp2": 1.0,
    "expm1": 1.6,
    "log": 1.5,
    "log2": 1.6,
    "log10": 1.8,
    "log1p": 2.0,
    "sigmoid": 2.0,
    "tanh": 1.5,
    "sin": 1.7,
    "cos": 1.7,
    "tan": 0.7,
    "atan": 0.6,
    "asin": 0.6,
    "acos": 0.6,
    "sinh": 0.6,
    "cosh": 0.6,
    "asinh": 0.6,
    "acosh": 0.6,
    "atanh": 0.6,
    "erf": 1.3,
    "erfc": 0.7,
    "erfinv": 0.7,
    "rsqrt": 1.5,
    "sqrt": 0.5,
}

SPECIAL = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 4.0, 1024.0, float("inf"), -float("inf")),
    *(
        float("nan"),
        1e-45,
        -1e-45,
        1.1754944e-38,
        -1.1754944e-38,
        3.4028235e38,
        -3.4028235e38,
    ),
    *(
        88.722,
        88.7229,
        89.0,
        -87.3,
        -87.4,
        -103.9,
        -104.0,
        127.9999,
        128.0,
        -126.0,
        -149.0,
    ),
    *(
        -150.0,
        0.99999994,
        1.0000001,
        -0.99999994,
        1e-10,
        -1e-10,
        9.0,
        9.1,
        10.0,
        -10.0,
        3.92,
    ),
    *(
        1.5707964,
        3.1415927,
        1e5,
        1e10,
        5.6e14,
        5.7e14,
        3.7e22,
        3.8e22,
        2.5e30,
        2.6e30,
        3.3e38,
    ),
]


@pytest.fixture(scope="module")
def kernels() -> Any:
    loops = "".join(
        f"void run_{name}(const float* x, float* y, long n) {{\n"
        f"    #pragma omp simd\n"
        f"    for (long i = 0; i < n; ++i) y[i] = {name}(x[i]);\n}}\n"
        for name in (*BOUNDS, "exp_of_negative")
    )
    pair = (
        "void run_{0}(const float* x, const float* y, float* z, long n) {{\n"
        "    #pragma omp simd\n"
        "    for (long i = 0; i < n; ++i) z[i] = {0}(x[i], y[i]);\n}}\n"
    )
    return cpp_kernels(loops + pair.format("pow") + pair.format("atan2"))


@pytest.fixture(scope="module")
def samples() -> torch.Tensor:
    """Every 7001st float there is, a dense set of ordinary ones, and the special ones."""
    bits = torch.arange(-(2**31), 2**31, 7001).to(torch.int32)
    dense = [torch.linspace(-a, a, 100_001) for a in (2.0, 12.0, 110.0)]
    near_one = 1 + torch.linspace(-1e-3, 1e-3, 50_001)
    return torch.cat(
        [bits.view(torch.float32), *dense, near_one, torch.tensor(SPECIAL)]
    )


def ulps(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Errors in units of the last place of the exact (float64) result; 0 where not finite."""
    rounded = exact.float()
    exponent = torch.frexp(rounded.abs().double())[1] - 24
    unit = torch.ldexp(torch.ones_like(exact), exponent.clamp(min=-149))
    error = (got.double() - exact).abs() / unit
    return torch.where(rounded.isfinite() & got.isfinite(), error, 0.0)


def check_edges(got: torch.Tensor, exact: torch.Tensor) -> None:
    """NaN, infinities and signs are those of the exact result."""
    rounded = exact.float()
    assert torch.equal(got.isnan(), rounded.isnan())
    wild = rounded.isinf() | got.isinf()
    assert torch.equal(got[wild], rounded[wild])
    ordinary = ~rounded.isnan()
    assert torch.equal(got[ordinary].signbit(), rounded[ordinary].signbit())


@pytest.mark.parametrize("name", BOUNDS)
def test_accuracy(name: str, kernels: Any, samples: torch.Tensor) -> None:
    got = torch.empty_like(samples)
    getattr(kernels, f"run_{name}")(samples, got, samples.numel())
    exact = getattr(torch, name)(samples.double())
    check_edges(got, exact)
    error = ulps(got, exact)
    worst = error.argmax()
    assert error[worst] <= BOUNDS[name], f"{error[worst]:.3f} ulp at {samples[worst]!r}"


def test_exponentials_of_distances_from_a_peak(
    kernels: Any, samples: torch.Tensor
) -> None:
    negative = samples[~(samples > 0)]
    got = torch.empty_like(negative)
    kernels.run_exp_of_negative(negative, got, negative.numel())
    exact = negative.double().exp()
    check_edges(got, exact)
    assert ulps(got, exact).max() <= BOUNDS["exp"]


@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_functions_of_two(name: str, kernels: Any) -> None:
    torch.manual_seed(0)
    special = torch.tensor([*SPECIAL, 3.0, -3.0, 2.5, -2.5, 16777216.0, 1e9, -1e9])
    x = torch.cat([special.repeat_interleave(len(special)), torch.randn(100_000) * 20])
    y = torch.cat([special.repeat(len(special)), torch.randn(100_000) * 20])
    got = torch.empty_like(x)
    getattr(kernels, f"run_{name}")(x, y, got, x.numel())
    exact = getattr(torch, name)(x.double(), y.double())
    check_edges(got, exact)
    assert ulps(got, exact).max() <= 0.7


@pytest.mark.parametrize(
    "name", ["exp: (e^r - 1 - r) / r^2", "sin: (sin r - r) / r^3, in r^2"]
)
def test_coefficients_are_the_minimax_ones(name: str) -> None:
    _, error = fit(PROBLEMS[name])
    assert error < 5e-9
