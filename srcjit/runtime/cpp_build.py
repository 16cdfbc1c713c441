"""Runs the system's C++ compiler in the background and keeps what it made.

A library is stored under the hash of everything that it depends on: source text, headers,
flags, the compiler's version and the CPU's features. A file in the cache carries the hash of
its own content at its end, so that a damaged one is noticed and made again.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import torch

from srcjit import cache
from srcjit.diagnostics import CompilerFault
from srcjit.logs import root

T = TypeVar("T")

_HERE = Path(__file__).parent
_HEADERS = ("kernel.h", "float8.h", "tiles.h", "vector_math.h")
_SEAL = b"srcjit-sha256:"
_LOG_LINES = 12

_EXACT = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fwrapv")
"""Flags that decide what arithmetic means. Nothing of `-ffast-math`: NaN, infinities, signed
zeros and the order of operations stay as they are written."""

_LEAN = (
    "-w",
    "-pipe",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-asynchronous-unwind-tables",
    "-fvisibility=hidden",
)
"""Flags that only make compiling and loading faster."""

_STRAIGHT = ("-fno-tree-pre",)
"""Flags that keep loops free of branches. Partial redundancies of choices are removed by choosing
earlier, among bools, which gcc does not vectorize; and nothing that does not change in a loop stands
in one: the printer does that."""


class NoCompiler(RuntimeError):
    """The machine has no C++ compiler, so kernels cannot be built."""


class CppFault(CompilerFault):
    """The C++ compiler rejected a kernel, or its library cannot be loaded."""


@dataclass(frozen=True)
class Toolchain:
    """The compiler that builds kernels.

    Attributes:
        command: The program and the arguments that `$CXX` gives.
        version: First line of `--version`.
        flags: All flags but those that name files.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]


def _find_command() -> tuple[str, ...] | None:
    named = os.environ.get("CXX", "").strip()
    for name in [named] if named else ["g++", "clang++", "c++", "cc"]:
        words = shlex.split(name)
        path = shutil.which(words[0]) if words else None
        if path:
            return (path, *words[1:])
    return None


def missing_compiler() -> str:
    """Returns why no C++ compiler (`$CXX`, g++, clang++, c++ or cc) can be used, or ""."""
    try:
        toolchain()
    except NoCompiler as error:
        return str(error)
    return ""


def compiler_available() -> bool:
    """Returns whether there is a C++ compiler that builds libraries."""
    return not missing_compiler()


@functools.cache
def cpu_features() -> str:
    """Returns a text that differs between CPUs for which `-march=native` differs."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                return " ".join(sorted(line.partition(":")[2].split()))
    return platform.processor() or platform.machine()


def toolchain() -> Toolchain:
    """Finds the compiler and the flags that it understands.

    Raises:
        NoCompiler: If there is none, or it does not work.
    """
    command = _find_command()
    if command is None:
        named = os.environ.get("CXX")
        what = (
            f"$CXX names {named!r}, which is no program" if named else "no C++ compiler"
        )
        raise NoCompiler(
            f"{what}; install g++ or clang++ to run compiled kernels on the CPU"
        )
    found = _toolchain(command)
    if isinstance(found, str):
        raise NoCompiler(found)
    return found


@functools.cache
def _toolchain(command: tuple[str, ...]) -> Toolchain | str:
    """Returns the compiler, or why it cannot be used; each is asked once."""
    try:
        asked = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"the C++ compiler {command[0]} does not run: {error}"
    version = asked.stdout.strip().partition("\n")[0]
    flags, log = _known_flags(command, version)
    if log:
        line = log.strip().partition("\n")[0]
        return f"the C++ compiler {command[0]} builds no shared library: {line}"
    return Toolchain(command, version, flags)


def _candidates() -> list[tuple[str, ...]]:
    """Flag sets from best to plainest; the first that the compiler takes is used."""
    language = ("-x", "c++", "-std=c++17")
    base = (*language, "-O3", *_EXACT, *_STRAIGHT, *_LEAN, "-fPIC", "-shared")
    native = ["-march=native"]
    if "avx512f" in cpu_features().split():
        native.append("-mprefer-vector-width=512")
    return [
        (*base, *native, "-fopenmp"),
        (*base, *native),
        (*base, "-fopenmp"),
        base,
    ]


def _known_flags(command: tuple[str, ...], version: str) -> tuple[tuple[str, ...], str]:
    """The first of `_candidates` that works, or the log of the last, which does not.

    A machine's answer is remembered in a file.
    """
    log: str | None = None
    candidates = _candidates()
    words = json.dumps([command, version, cpu_features(), candidates])
    note = cache.locate("cpp", f"flags-{cache.content_name(words)}.json")
    with contextlib.suppress(ValueError):
        known = tuple(json.loads(cache.read(note) or b"[]"))
        if known in candidates:
            return known, ""
    for flags in candidates:
        with tempfile.TemporaryDirectory(prefix="srcjit-") as place:
            target = Path(place, "probe.so")
            log = _run_compiler(
                [*command, *flags, "-o", str(target), "-"], "int probe;"
            )
            if log is None:
                with contextlib.suppress(OSError):
                    cache.write(note, json.dumps(flags))
                return flags, ""
    return (), log or "no log"


def _run_compiler(command: list[str], source: str) -> str | None:
    """Returns None, or the compiler's log if it failed."""
    ran = subprocess.run(
        command,
        input=source,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if ran.returncode == 0:
        return None
    return ran.stderr or f"exit status {ran.returncode}"


# ── the cache ─────────────────────────────────────────────────────────────────────────────


def _seal(content: bytes) -> bytes:
    return content + _SEAL + hashlib.sha256(content).digest()


def intact(path: Path) -> bool:
    """Returns whether `path` is a library that this module wrote: private and whole."""
    content = cache.read(path)
    return content is not None and content == _seal(content[: -len(_SEAL) - 32])


@functools.cache
def _headers() -> bytes:
    return b"".join((_HERE / name).read_bytes() for name in _HEADERS)


_TORCH = Path(torch.__file__).parent


def _extension_flags(language: str, parallel: bool) -> tuple[str, ...]:
    """Flags for an extension module; those of C++ say which PyTorch its headers are of."""
    shared = ("-O2", "-fPIC", "-shared")
    if language == "c":
        return ("-x", "c", *shared)
    return (
        *("-x", "c++", "-std=c++20", *shared, "-w", "-DNDEBUG", "-fvisibility=hidden"),
        *(("-fopenmp",) if parallel else ()),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f'-DSRCJIT_TORCH="{torch.__version__} {torch.version.git_version}"',
    )


def _gomp() -> tuple[str, ...]:
    """Link against the OpenMP runtime that PyTorch has loaded under a name of its own.

    Two runtimes in one process are two pools of threads that fight for the cores.
    """
    here = _TORCH
    for found in sorted(
        [*here.glob("lib/libgomp-*.so*"), *here.glob("../torch.libs/libgomp-*")]
    ):
        return (str(found), "-Wl,--as-needed")
    return ()


log = root.getChild("extensions")

# ── builds ────────────────────────────────────────────────────────────────────────────────

_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def _submit(build: Build) -> Future[None]:
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(
                os.cpu_count() or 1, thread_name_prefix="srcjit-cpp"
            )
        return _pool.submit(build.run)


def _after_fork() -> None:
    """A forked child has none of its parent's threads."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Build:
    """One library: found in the cache, or being compiled in the background.

    Args:
        source: Its text.
        extension: The language of an extension module; empty for kernels.

    Attributes:
        path: Where the library is, or will be.
    """

    def __init__(self, source: str, extension: str = "") -> None:
        tools = toolchain()
        self._source = source
        flags: tuple[str, ...]
        places: tuple[str, ...]
        # Libraries to link with stand behind the source.
        self._libraries: tuple[str, ...]
        if extension:
            flags = _extension_flags(extension, "-fopenmp" in tools.flags)
            headers = b""
            suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
            places = (f"-I{sysconfig.get_paths()['include']}",)
            self._libraries = _gomp() if "-fopenmp" in flags else ()
            if extension == "c++":
                places = (*places, f"-I{_TORCH / 'include'}")
                self._libraries += (f"-L{_TORCH / 'lib'}", "-lc10")
        else:
            flags, headers, suffix = tools.flags, _headers(), ".so"
            places = (f"-I{_HERE}", "-include", "kernel.h")
            self._libraries = _gomp() if "-fopenmp" in flags else ()
        self._command = (*tools.command, *flags, *places)
        facts = "\0".join(
            (*tools.command, tools.version, cpu_features(), suffix, *flags)
        )
        key = cache.content_name(source, facts, headers)
        self.path = cache.locate("cpp", f"{key}{suffix}")
        self._process = os.getpid()
        self._future = None if intact(self.path) else _submit(self)

    def run(self, private: bool = False) -> None:
        """Compiles now.

        Args:
            private: Write it where no other process can remove it.

        Raises:
            CppFault: With the first lines of the compiler's log.
        """
        try:
            with tempfile.TemporaryDirectory(prefix="srcjit-") as place:
                made = Path(place, "kernels.so")
                command = [*self._command, "-o", str(made), "-", *self._libraries]
                log = _run_compiler(command, self._source)
                if log is None:
                    content = _seal(made.read_bytes())
                    if private:
                        name = self.path.name
                        self.path = cache.write_private("cpp", name, content)
                    else:
                        self.path = cache.write(self.path, content)
        except OSError as error:
            raise CppFault(f"a compiled kernel cannot be stored: {error}") from error
        if log is not None:
            raise CppFault(
                "the C++ compiler rejected a kernel",
                notes=tuple(log.strip().splitlines()[:_LOG_LINES]),
            )

    def is_done(self) -> bool:
        """Whether `wait` would not wait for a compiler."""
        return (
            self._future is None or self._process != os.getpid() or self._future.done()
        )

    def wait(self) -> Path:
        """Waits until the library is there and whole; returns its path."""
        if self._future is not None and self._process == os.getpid():
            self._future.result()
        if not intact(self.path):
            self.run()
        return self.path

    def load(self, loader: Callable[[str], T]) -> T:
        """Waits for the library and gives its path to `loader`; returns the result.

        Raises:
            CppFault: If it cannot be built or loaded.
        """
        with contextlib.suppress(OSError, ImportError):
            return loader(str(self.wait()))
        # Another process may have removed it in between, to make room.
        self.run(private=True)
        try:
            return loader(str(self.path))
        except (OSError, ImportError) as error:
            raise CppFault(f"a compiled kernel does not load: {error}") from error

    def library(self) -> ctypes.CDLL:
        """Waits for the library and loads it.

        Raises:
            CppFault: If it cannot be built or loaded.
        """
        return self.load(ctypes.CDLL)


# ── the launcher ──────────────────────────────────────────────────────────────────────────


@functools.cache
def start_launcher() -> Build | None:
    """Starts building the launcher; None where Python's headers are missing."""
    return start_extension("launcher")


@functools.cache
def start_extension(name: str) -> Build | None:
    """Starts building the extension `NAME.c` or `NAME.cpp`; None where headers are missing.

    One in C++ may use PyTorch's, of which those of c10 alone compile fast.
    """
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return None
    plain = _HERE / f"{name}.c"
    if plain.exists():
        return Build(_with_headers(plain.read_text()), "c")
    if not (_TORCH / "include/c10/core/TensorImpl.h").exists():
        return None
    return Build(_with_headers((_HERE / f"{name}.cpp").read_text()), "c++")


def _with_headers(text: str, seen: set[str] | None = None) -> str:
    """Puts headers of ours in the place of their names: the text alone says what is built."""
    seen = set() if seen is None else seen

    def content(found: re.Match[str]) -> str:
        if found[1] in seen:
            return ""
        seen.add(found[1])
        return _with_headers((_HERE / found[1]).read_text(), seen)

    return re.sub(r'^#include "(\w+\.h)"$', content, text, flags=re.MULTILINE)


def extension(name: str) -> ModuleType | None:
    """Waits for the extension; None if it cannot be built."""
    return None if start_extension(name) is None else _loaded(name)


@functools.cache
def _loaded(name: str) -> ModuleType | None:
    build = start_extension(name)
    assert build is not None
    try:
        return build.load(functools.partial(_module, name))
    except CppFault as problem:
        log.warning("the extension `%s` is done without: %s", name, problem)
        return None


def _module(name: str, path: str) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(f"srcjit_{name}", path)
    spec = importlib.util.spec_from_loader(f"srcjit_{name}", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@functools.cache
def launcher() -> ModuleType | None:
    """Returns the module that binds kernels to callables, or None: use ctypes."""
    build = start_launcher()
    if build is None:
        return None
    module = build.load(functools.partial(_module, "launcher"))
    module.connect(
        torch.Tensor, getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    )
    return module
