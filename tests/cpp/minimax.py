"""Computes the polynomials of `srcjit/runtime/vector_math.h` (run it to print them).

Each is the minimax polynomial of a function on an interval under a weight (here 1 over the
function, so that the *relative* error is bounded), found by Remez' second algorithm: solve
for the coefficients whose weighted error alternates on n + 2 points, move the points to the
extrema of that error, repeat (E. Remez, 1934; W. Fraser, "A survey of methods of computing
minimax and near-minimax polynomial approximations", JACM 12, 1965). Coefficients are then
rounded to float32 one at a time from the lowest power, and those above are fitted again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath
import numpy
from mpmath import mpf

mpmath.mp.dps = 40

Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Problem:
    """`sum(c[k] * x**powers[k])` approximates `function` on `[low, high]`.

    The error is multiplied by `weight` (1: absolute error). `double` keeps 53 bits.
    """

    function: Function
    weight: Function
    low: float
    high: float
    powers: tuple[int, ...]
    double: bool = False


def fit(
    problem: Problem, fixed: Sequence[mpf] = (), rounds: int = 12, grid: int = 600
) -> tuple[list[mpf], mpf]:
    """Returns the coefficients that follow `fixed`, and the largest weighted error."""
    free = problem.powers[len(fixed) :]
    low, high = mpf(problem.low), mpf(problem.high)

    def target(x: mpf) -> mpf:
        known = sum(c * x**p for c, p in zip(fixed, problem.powers, strict=False))
        return problem.function(x) - known

    count = len(free) + 1
    angles = [mpmath.cos(mpmath.pi * i / grid) for i in range(grid, -1, -1)]
    xs = [(low + high) / 2 + (high - low) / 2 * a for a in angles]
    # At 0 a weight that is relative to a zero of the function has no value.
    xs = [x for x in xs if abs(x) > 1e-9]
    wanted = [target(x) for x in xs]
    weights = [problem.weight(x) for x in xs]
    picks = [round(i * (len(xs) - 1) / (count - 1)) for i in range(count)]
    coefficients: list[mpf] = []
    worst = mpf(0)
    for _ in range(rounds):
        system = mpmath.matrix(count, count)
        right = mpmath.matrix(count, 1)
        for row, at in enumerate(picks):
            for column, power in enumerate(free):
                system[row, column] = xs[at] ** power
            system[row, count - 1] = (-1) ** row / weights[at]
            right[row] = wanted[at]
        solved = mpmath.lu_solve(system, right)
        coefficients = [solved[i] for i in range(count - 1)]
        errors = [
            (sum(c * x**p for c, p in zip(coefficients, free, strict=True)) - t) * w
            for x, t, w in zip(xs, wanted, weights, strict=True)
        ]
        worst = max(abs(e) for e in errors)
        moved = _extrema(errors, count)
        if moved == picks or len(moved) < count:
            break
        picks = moved
    return coefficients, worst


def _extrema(errors: list[mpf], count: int) -> list[int]:
    """The places of `count` extrema of alternating sign that hold the largest error."""
    runs: list[int] = []
    for i, error in enumerate(errors):
        if runs and (error > 0) == (errors[runs[-1]] > 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs


def polynomial(problem: Problem) -> tuple[list[float], float]:
    """Returns coefficients rounded to their format, and the error before rounding."""
    fixed: list[mpf] = []
    _, error = fit(problem)
    while len(fixed) < len(problem.powers):
        found, _ = fit(problem, fixed)
        lowest = (
            float(found[0]) if problem.double else float(numpy.float32(float(found[0])))
        )
        fixed.append(mpf(lowest))
    return [float(c) for c in fixed], float(error)


def powers(low: int, high: int, step: int = 1) -> tuple[int, ...]:
    """`low, low + step, …, high`."""
    return tuple(range(low, high + 1, step))


def over(function: Function) -> Function:
    """The weight that bounds the error relative to `function`."""
    return lambda x: 1 / abs(function(x))


_HALF_LN2 = 0.34658
_QUARTER_PI = 0.7855


def _scaled_erfc(x: mpf) -> mpf:
    return mpmath.erfc(x) * mpmath.exp(x * x)


def _erfinv_at(w: mpf) -> mpf:
    # Solved in the complement, which keeps its digits where x is next to 1.
    x = mpmath.sqrt(-mpmath.expm1(-w))
    return mpmath.erfinv(x) / x


PROBLEMS: dict[str, Problem] = {
    "exp: (e^r - 1 - r) / r^2": Problem(
        lambda r: (mpmath.expm1(r) - r) / r**2,
        lambda r: r**2 / mpmath.exp(r),
        -_HALF_LN2,
        _HALF_LN2,
        powers(0, 4),
    ),
    "expm1: (e^r - 1 - r) / r^2": Problem(
        lambda r: (mpmath.expm1(r) - r) / r**2,
        lambda r: abs(r**2 / mpmath.expm1(r)),
        -_HALF_LN2,
        _HALF_LN2,
        powers(0, 5),
    ),
    "exp2: (2^r - 1) / r": Problem(
        lambda r: mpmath.expm1(r * mpmath.ln2) / r,
        lambda r: abs(r) / mpf(2) ** r,
        -0.5002,
        0.5002,
        powers(0, 6),
    ),
    "log: (log(1 + f) - f + f^2 / 2) / f^3": Problem(
        lambda f: (mpmath.log1p(f) - f + f * f / 2) / f**3,
        lambda f: abs(f**3 / mpmath.log1p(f)),
        -0.3334,
        0.3334,
        powers(0, 7),
    ),
    "sin: (sin r - r) / r^3, in r^2": Problem(
        lambda r: (mpmath.sin(r) - r) / r**3,
        lambda r: abs(r**3 / mpmath.sin(r)),
        1e-3,
        _QUARTER_PI,
        powers(0, 4, 2),
    ),
    "cos: (cos r - 1 + r^2 / 2) / r^4, in r^2": Problem(
        lambda r: (mpmath.cos(r) - 1 + r * r / 2) / r**4,
        lambda r: r**4 / mpmath.cos(r),
        1e-2,
        _QUARTER_PI,
        powers(0, 4, 2),
    ),
    "erf near 0: (erf x - x) / x, in x^2": Problem(
        lambda x: (mpmath.erf(x) - x) / x,
        lambda x: abs(x / mpmath.erf(x)),
        1e-3,
        0.922,
        powers(0, 12, 2),
    ),
    "erf far from 0: log erfc x": Problem(
        lambda x: mpmath.log(mpmath.erfc(x)),
        lambda x: mpmath.erfc(x) / mpmath.erf(x),
        0.92,
        3.93,
        powers(0, 8),
    ),
    "tanh near 0: (tanh x - x) / x^3, in x^2": Problem(
        lambda x: (mpmath.tanh(x) - x) / x**3,
        lambda x: x**3 / mpmath.tanh(x),
        1e-2,
        0.625,
        powers(0, 8, 2),
    ),
    "erfc in double: erfc(x) exp(x^2) / t at x = 2 / t - 2": Problem(
        lambda t: _scaled_erfc(2 / t - 2) / t,
        lambda t: t / _scaled_erfc(2 / t - 2),
        0.1639,
        1.0,
        powers(0, 11),
        double=True,
    ),
    "erfinv in double, |x| < 0.9966: erfinv(x) / x at w = -log(1 - x^2)": Problem(
        lambda w: _erfinv_at(w),
        lambda w: 1 / _erfinv_at(w),
        1e-6,
        5.0,
        powers(0, 10),
        double=True,
    ),
    "erfinv in double, else: erfinv(x) / x at s = sqrt(w)": Problem(
        lambda s: _erfinv_at(s * s),
        lambda s: 1 / _erfinv_at(s * s),
        2.236,
        4.08,
        powers(0, 11),
        double=True,
    ),
    "log2 in double: (log2(1 + f)) / f": Problem(
        lambda f: mpmath.log1p(f) / mpmath.ln2 / f,
        lambda f: abs(f),
        -0.2930,
        0.4143,
        powers(0, 11),
        double=True,
    ),
    "exp2 in double: 2^r": Problem(
        lambda r: mpf(2) ** r,
        lambda r: mpf(2) ** -r,
        -0.5002,
        0.5002,
        powers(0, 6),
        double=True,
    ),
    "exp of double: (e^r - 1 - r - r^2 / 2) / r^3": Problem(
        lambda r: (mpmath.expm1(r) - r - r * r / 2) / r**3,
        lambda r: abs(r**3 / mpmath.expm1(r)),
        -_HALF_LN2,
        _HALF_LN2,
        powers(0, 9),
        double=True,
    ),
    "log of double: (2 atanh s - 2 s) / s^3, in s^2": Problem(
        lambda s: (2 * mpmath.atanh(s) - 2 * s) / s**3,
        lambda s: s**3 / mpmath.atanh(s),
        1e-3,
        0.1717,
        powers(0, 12, 2),
        double=True,
    ),
    "atan in double: atan(x) / x, in x^2": Problem(
        lambda x: mpmath.atan(x) / x,
        lambda x: x / mpmath.atan(x),
        1e-3,
        1.0,
        powers(0, 20, 2),
        double=True,
    ),
}


def main() -> None:
    """Prints the coefficients of every polynomial."""
    for name, problem in PROBLEMS.items():
        coefficients, error = polynomial(problem)
        print(f"{name} on [{problem.low:g}, {problem.high:g}], error {error:.1e}")
        for c in coefficients:
            print("    ", repr(c) if problem.double else f"{c:.9g}f")


if __name__ == "__main__":
    main()
