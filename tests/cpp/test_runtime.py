"""The compiler's driver: cache, faults, missing compilers, calls."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from srcjit.runtime import cpp, cpp_build
from srcjit.runtime.cpp import CppFault, NoCompiler, cpp_kernels, empty

TWICE = """
void twice(const float* x, float* y, long n) {
    for (long i = 0; i < n; ++i) y[i] = x[i] * 2.0f;
}
"""


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SRCJIT_CACHE_DIR", str(tmp_path))
    return tmp_path / "cpp"


def libraries(directory: Path) -> list[Path]:
    return sorted(p for p in directory.glob("*.so") if "cpython" not in p.name)


def run_twice(kernels: cpp.CppKernels) -> None:
    x, y = torch.randn(5), torch.empty(5)
    kernels.twice(x, y, 5)
    assert torch.equal(y, x * 2)


def test_compiled_once(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_twice(cpp_kernels(TWICE))
    assert len(libraries(own_cache)) == 1
    run_twice(cpp_kernels(TWICE + "\n// another text"))
    assert len(libraries(own_cache)) == 2

    def no_compiler_now(*_: object) -> str:
        raise AssertionError("compiled again")

    monkeypatch.setattr(cpp_build, "_run_compiler", no_compiler_now)
    run_twice(cpp_kernels(TWICE))
    assert not [p for p in own_cache.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign"])
def test_a_damaged_library_is_made_again(damage: str, own_cache: Path) -> None:
    cpp_kernels(TWICE).twice
    (path,) = libraries(own_cache)
    content = path.read_bytes()
    broken = {
        "cut": content[:-100],
        "flip": content[:500] + bytes([content[500] ^ 255]) + content[501:],
        "empty": b"",
        "foreign": b"\x7fELF not ours",
    }[damage]
    path.unlink()
    path.write_bytes(broken)
    path.chmod(0o600)
    run_twice(cpp_kernels(TWICE))
    assert path.read_bytes() == content or cpp_build.intact(path)


def test_a_library_that_others_can_write_is_not_trusted(own_cache: Path) -> None:
    cpp_kernels(TWICE).twice
    (path,) = libraries(own_cache)
    path.chmod(0o666)
    assert not cpp_build.intact(path)
    run_twice(cpp_kernels(TWICE))
    assert cpp_build.intact(path)


def test_errors_of_the_compiler_are_shown() -> None:
    kernels = cpp_kernels("void bad(float* y) {\n    y[0] = nonsense(1.0f);\n}\n")
    with pytest.raises(CppFault) as caught:
        kernels.bad(torch.empty(1))
    notes = "\n".join(caught.value.diagnostic.notes)
    assert "nonsense" in notes and "kernels:2" in notes


def test_parameters_that_cannot_be_passed() -> None:
    with pytest.raises(CppFault, match="std::vector"):
        cpp_kernels("void k(std::vector<int> v) {\n}\n")


def test_calls_are_checked() -> None:
    kernels = cpp_kernels(TWICE)
    x, y = torch.randn(4), torch.empty(4)
    with pytest.raises(TypeError, match=r"kernel twice: x must be .*float32.*float64"):
        kernels.twice(x.double(), y, 4)
    with pytest.raises(TypeError, match="x must be a CPU tensor"):
        kernels.twice(torch.empty(4, device="meta"), y, 4)
    with pytest.raises(TypeError, match="takes 3 positional arguments, got 2"):
        kernels.twice(x, y)
    with pytest.raises(TypeError):
        kernels.twice(x, y, n=4)
    with pytest.raises(TypeError):
        kernels.twice(x, y, 4.5)
    with pytest.raises(TypeError, match="x must be"):
        kernels.twice([1.0], y, 4)
    with pytest.raises(OverflowError):
        kernels.twice(x, y, 2**70)
    with pytest.raises(AttributeError, match="no kernel 'thrice'"):
        kernels.thrice


def test_views_parameters_and_gradients_are_passed_by_address() -> None:
    kernels = cpp_kernels(TWICE)
    base, y = torch.randn(10), torch.zeros(10)
    kernels.twice(base[3:], y[5:], 4)
    assert torch.equal(y[5:9], base[3:7] * 2) and not y[:5].any()
    parameter = torch.nn.Parameter(torch.ones(3))
    kernels.twice(parameter, y, 3)
    assert y[:3].tolist() == [2.0, 2.0, 2.0]


def test_all_parameter_types() -> None:
    text = """
    void mix(const bool* a, const unsigned char* b, const signed char* c,
                        const short* d, const int* e, const long* f, const float16* g,
                        const bfloat16* h, const double* i, float* out, double s, float t,
                        int u, bool v) {
        out[0] = a[0] + b[0] + c[0] + d[0] + e[0] + f[0] + (float)g[0] + (float)h[0] + i[0];
        out[1] = s + t + u + v;
    }
    """
    names = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float64".split()
    given = [torch.ones(1, dtype=getattr(torch, n)) for n in names]
    out = torch.empty(2)
    cpp_kernels(text).mix(*given, out, 0.5, 2, 3, True)
    assert out.tolist() == [9.0, 6.5]


def test_without_python_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp_build, "launcher", lambda: None)
    kernels = cpp_kernels(TWICE)
    run_twice(kernels)
    x, y = torch.randn(4), torch.empty(4)
    with pytest.raises(TypeError, match=r"kernel twice: x must be .*float32.*float64"):
        kernels.twice(x.double(), y, 4)
    with pytest.raises(TypeError, match="takes 3"):
        kernels.twice(x, y)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert not cpp.compiler_available()
    with pytest.raises(NoCompiler, match="/nowhere/g"):
        cpp_kernels(TWICE)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "/nowhere")
    assert not cpp.compiler_available()
    with pytest.raises(NoCompiler, match=r"install g\+\+ or clang\+\+"):
        cpp_kernels(TWICE)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("exit 1", "does not run"),
        ('test "$1" = --version || { echo no ld >&2; exit 1; }', "library: no ld"),
    ],
)
def test_broken_compiler(
    text: str, what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_text(f"#!/bin/sh\n{text}\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    assert not cpp.compiler_available()
    assert what in cpp.missing_compiler()
    with pytest.raises(NoCompiler, match=what):
        cpp_kernels(TWICE)


def test_a_compiler_without_openmp(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "plain-g++"
    fake.write_text(
        "#!/bin/sh\n"
        'for a in "$@"; do case "$a" in -fopenmp|-march=*) echo "no $a" >&2; exit 1;; esac; done\n'
        'exec g++ "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    tools = cpp_build.toolchain()
    assert "-fopenmp" not in tools.flags and "-march=native" not in tools.flags
    run_twice(cpp_kernels(TWICE))
    cpp_build._toolchain.cache_clear()
    assert cpp_build.toolchain() == tools  # remembered in a file


def test_builds_run_at_the_same_time() -> None:
    texts = [f"// {n} {time.time_ns()}\n" + TWICE for n in range(4)]
    units = [cpp_kernels(t) for t in texts]
    assert all(u._builds[0][1]._future is not None for u in units)
    for unit in units:
        run_twice(unit)


def test_a_forked_child_compiles_for_itself(own_cache: Path) -> None:
    script = f"""
    import os, torch
    from srcjit.runtime.cpp import cpp_kernels
    text = {TWICE!r}
    before = cpp_kernels(text)
    child = os.fork()
    if child == 0:
        x, y = torch.ones(3), torch.empty(3)
        before.twice(x, y, 3)
        cpp_kernels(text + "// in the child").twice(x, y, 3)
        os._exit(0 if y.tolist() == [2.0] * 3 else 1)
    _, status = os.waitpid(child, 0)
    raise SystemExit(os.waitstatus_to_exitcode(status))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], timeout=60, check=False
    )
    assert done.returncode == 0


def test_large_outputs_are_right() -> None:
    """The launcher gives the GIL away for long work."""
    x, y = torch.randn(3_000_000), torch.empty(3_000_000)
    cpp_kernels(TWICE).twice(x, y, x.numel())
    assert torch.equal(y, x * 2)


def test_empty() -> None:
    made = empty((3, 4), (1, 3), torch.float64)
    assert (
        made.stride() == (1, 3)
        and made.dtype is torch.float64
        and made.device.type == "cpu"
    )
    assert empty((2,), (1,), torch.int32, "meta").device.type == "meta"


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs a quiet core")
def test_a_call_costs_little() -> None:
    text = "void add(const float* x, const float* w, float* y) { y[0] = x[0] + w[0]; }"
    add = cpp_kernels(text).add
    x, w, y = torch.ones(1), torch.ones(1), torch.empty(1)
    best = min(_seconds(add, x, w, y) for _ in range(20))
    # Measured: 0.16 us; the bound leaves room for a busy machine.
    assert best < 1e-6


def _seconds(call: object, *args: torch.Tensor, count: int = 2000) -> float:
    assert callable(call)
    start = time.perf_counter()
    for _ in range(count):
        call(*args)
    return (time.perf_counter() - start) / count


def test_a_long_unit_is_compiled_in_parts() -> None:
    kernel = "void add_%d(float* x) {\n" + "    x[0] += 1.0f;\n" * 600 + "}\n\n"
    kernels = cpp_kernels("".join(kernel % k for k in range(5)))
    assert len(kernels._builds) == 3
    x = torch.zeros(1)
    for k in range(5):
        getattr(kernels, f"add_{k}")(x)
    assert x.item() == 3000.0


def test_a_long_unit_with_helpers_stays_whole() -> None:
    helper = "static float one() { return 1.0f; }\n"
    kernel = "void add_%d(float* x) {\n" + "    x[0] += one();\n" * 600 + "}\n"
    kernels = cpp_kernels(helper + "".join(kernel % k for k in range(3)))
    assert len(kernels._builds) == 1
    x = torch.zeros(1)
    kernels.add_2(x)
    assert x.item() == 600.0
