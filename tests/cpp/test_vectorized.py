"""The compiler turns the loops into vector instructions: what is not, is ten times slower."""

from __future__ import annotations

import subprocess

import pytest

from srcjit.runtime import compiler_available, cpp_build
from tests.cpp.test_vector_math import BOUNDS, DOUBLE_BOUNDS

LOOPS = {
    **{name: f"y[i] = {name}(x[i]);" for name in (*BOUNDS, "floor", "round_even")},
    **{f"{n}_of_double": f"v[i] = {n}(u[i]);" for n in (*DOUBLE_BOUNDS, "sigmoid")},
    "pow": "y[i] = pow(x[i], z[i]);",
    "atan2": "y[i] = atan2(x[i], z[i]);",
    "maximum": "y[i] = maximum(x[i], z[i]);",
    "bfloat16_add": "b[i] = bfloat16((float)b[i] + x[i]);",
    "float16_add": "h[i] = float16((float)h[i] + x[i]);",
    "bfloat16_where": "b[i] = bfloat16(x[i] > 0.0f ? b[i].bits : c[i].bits);",
    "masked": "y[i] = x[i] > 0.0f ? z[i] : 0.0f;",
    "chain_of_maxima": (
        "const bool t = maximum(maximum(maximum(x[i], z[i]), y[i]), x[i] + z[i]) < 1.2f; "
        "y[i] = maximum(0.0f, x[i]) * (t ? 1.0f : 0.0f);"
    ),
    "choices_of_choices": (
        "const float s = 1.0f - z[i], e = log1p(exp(-fabs(x[i]))), p = sigmoid(x[i]); "
        "const float l = s * x[i] - (minimum(0.0f, x[i]) - e); "
        "const float q = 1.0f - (p * z[i] + (1.0f - p) * s); y[i] = l * (q * q);"
    ),
    "flag_from_outside": (
        "const float e = exp(x[i]) + erf(z[i]), t = tanh(x[i]) + exp(z[i]); "
        "h[i] = float16(erf(x[i])); b[i] = bfloat16(flag != 0 ? e : t);"
    ),
    "truncated": "y[i] = truncated<long>(x[i]);",
    "truncated_of_double": "v[i] = truncated<int>(u[i]);",
    "mask_from_memory": "y[i] = m[i] != 0 ? x[i] : z[i];",
    "mask_to_memory": "const bool t = x[i] > z[i]; m[i] = (m[i] != 0) & t;",
    "mask_as_number": "const bool t = x[i] > z[i]; y[i] = x[i] * (t ? 1.0f : 0.0f);",
}

REDUCTIONS = {
    "sum": ("double s = 0.0;", "reduction(+ : s)", "s += x[i];"),
    "max": (
        "float s = -INFINITY_F; int nan = 0;",
        "reduction(max : s) reduction(| : nan)",
        "s = x[i] > s ? x[i] : s; nan |= x[i] != x[i];",
    ),
}


def _gcc_with_wide_vectors() -> bool:
    if not compiler_available() or "avx2" not in cpp_build.cpu_features().split():
        return False
    tools = cpp_build.toolchain()
    return "g++" in tools.version or "gcc" in tools.version.lower()


@pytest.mark.skipif(not _gcc_with_wide_vectors(), reason="asks gcc about AVX vectors")
def test_every_loop_is_vectorized() -> None:
    parameters = (
        "const float* x, const float* z, float* y, bfloat16* b, const bfloat16* c, "
        "float16* h, boolean* m, const double* u, double* v, "
        "int flag, long n"
    )
    lines: list[str] = []
    expected: dict[int, str] = {}
    for name, statement in LOOPS.items():
        lines += [f"void k_{name}({parameters}) {{", "#pragma omp simd"]
        expected[len(lines) + 1] = name
        lines += [f"for (long i = 0; i < n; ++i) {{ {statement} }}", "}"]
    for name, (start, clauses, statement) in REDUCTIONS.items():
        lines += [
            f"void r_{name}({parameters}) {{ {start}",
            f"#pragma omp simd {clauses}",
        ]
        expected[len(lines) + 1] = name
        lines += [
            f"for (long i = 0; i < n; ++i) {{ {statement} }}",
            "y[0] = (float)s; }",
        ]
    tools = cpp_build.toolchain()
    flags = [f for f in tools.flags if f not in ("-shared", "-w")]
    where = [f"-I{cpp_build.__file__.rpartition('/')[0]}", "-include", "kernel.h"]
    command = [*tools.command, *flags, *where, "-fopt-info-vec", "-S", "-o", "-", "-"]
    ran = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, check=True
    )
    done = {
        int(note.split(":")[1])
        for note in ran.stderr.splitlines()
        if note.startswith("<stdin>:") and "loop vectorized" in note
    }
    assert [name for line, name in expected.items() if line not in done] == []
