"""Accuracy of `vector_math.h`, and its special values against the C library.

Functions of float32 are compared with PyTorch's of float64, those of float64 with NumPy's of
80 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
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

DOUBLE_BOUNDS = {
    "exp": 0.9,
    "expm1": 1.6,
    "log": 0.9,
    "log1p": 1.5,
    "tanh": 1.7,
}
"""The same of functions of float64."""

DOUBLE_SPECIAL = [
    *(5e-324, -5e-324, 2.2250738585072014e-308, 2.2e-308, 1.7976931348623157e308),
    *(709.782712893384, 709.7827128933841, 710.0, -708.4, -745.13, -745.14, -746.0),
    *(0.9999999999999999, 1.0000000000000002, -0.9999999999999999, 21.9, 22.1, 1e300),
]

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
def double_kernels() -> Any:
    return cpp_kernels(
        "".join(
            f"void run_{name}(const double* x, double* y, long n) {{\n"
            f"    #pragma omp simd\n"
            f"    for (long i = 0; i < n; ++i) y[i] = {name}(x[i]);\n}}\n"
            for name in DOUBLE_BOUNDS
        )
    )


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


@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="NumPy has no longer floats here"
)
@pytest.mark.parametrize("name", DOUBLE_BOUNDS)
def test_accuracy_of_double(name: str, double_kernels: Any) -> None:
    torch.manual_seed(0)
    x = torch.cat(
        [
            torch.randint(-(2**63), 2**63 - 1, (200_000,)).view(torch.float64),
            *(torch.linspace(-a, a, 100_001).double() for a in (0.4, 2, 25, 750)),
            1 + torch.linspace(-1e-3, 1e-3, 50_001, dtype=torch.float64),
            torch.tensor([*SPECIAL, *DOUBLE_SPECIAL], dtype=torch.float64),
        ]
    )
    y = torch.empty_like(x)
    getattr(double_kernels, f"run_{name}")(x, y, x.numel())
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.numpy().astype(np.longdouble))
        rounded, got = exact.astype(np.float64), y.numpy()
        error = np.abs(got - exact) / np.spacing(np.abs(rounded))
    ordinary = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~ordinary], rounded[~ordinary])
    np.testing.assert_array_equal(
        np.signbit(got[~np.isnan(rounded)]), np.signbit(rounded[~np.isnan(rounded)])
    )
    worst = np.argmax(np.where(ordinary, error, 0))
    assert error[worst] <= DOUBLE_BOUNDS[name], f"{error[worst]} ulp at {x[worst]!r}"


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
    ("name", "limit"),
    [
        ("exp: (e^r - 1 - r) / r^2", 5e-9),
        ("sin: (sin r - r) / r^3, in r^2", 5e-9),
        ("exp of double: (e^r - 1 - r - r^2 / 2) / r^3", 5e-18),
        ("log of double: (2 atanh s - 2 s) / s^3, in s^2", 5e-18),
    ],
)
def test_coefficients_are_the_minimax_ones(name: str, limit: float) -> None:
    _, error = fit(PROBLEMS[name])
    assert error < limit
