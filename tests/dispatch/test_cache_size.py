"""The cache directory: how large it may get, and what happens where nothing can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
import torch

import srcjit
from srcjit import cache, control, eviction
from srcjit.runtime import cpp_build
from srcjit.runtime.cpp import cpp_kernels

KERNEL = """\
void add_{0}(const float* x, float* y, long n) {{
    for (long i = 0; i < n; ++i) y[i] = x[i] + {0}.0f;
}}
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("SRCJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_overflows", {})
    return tmp_path / "cache"


def run_kernel(number):
    x, y = torch.ones(4), torch.empty(4)
    getattr(cpp_kernels(KERNEL.format(number)), f"add_{number}")(x, y, 4)
    assert torch.equal(y, x + number)


def age(path, seconds):
    when = time.time() - seconds
    os.utime(path, (when, when))


def fill(count, size=1000):
    paths = [
        cache.store_text("modules", "f", f"#{i}".ljust(size, "x")) for i in range(count)
    ]
    for position, path in enumerate(paths):
        age(path, 1000 - position)
    return paths


# ── How large it may get ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "setting, size",
    [
        ("", 1 << 30),
        ("0", None),
        ("4096", 4096),
        ("4k", 4096),
        ("1.5 MiB", 3 << 19),
        ("2GB", 2 << 30),
    ],
)
def test_the_limit_is_read_as_people_write_sizes(setting, size, monkeypatch):
    monkeypatch.setenv("SRCJIT_CACHE_SIZE", setting)
    assert eviction.limit() == size


def test_a_limit_that_is_no_size_is_told_once(monkeypatch, warnings):
    monkeypatch.setenv("SRCJIT_CACHE_SIZE", "plenty")
    assert eviction.limit() == eviction.limit() == eviction.DEFAULT
    assert len(warnings) == 1 and "plenty" in warnings[0]


def test_what_was_not_used_for_longest_goes_first(directory):
    paths = fill(10)
    cache.read(paths[0])
    assert eviction.evict(directory, 6000) == 5000
    assert [p.exists() for p in paths] == [True] + [False] * 5 + [True] * 4
    assert eviction.evict(directory, 6000) == 0


def test_a_file_stored_again_counts_as_used(directory):
    paths = fill(3)
    assert cache.store_text("modules", "f", "#0".ljust(1000, "x")) == paths[0]
    eviction.evict(directory, 2000)
    assert [p.exists() for p in paths] == [True, False, False]


def test_only_files_of_the_cache_are_removed(directory, tmp_path):
    (old,) = fill(1)
    mine = directory / "modules" / "model.py"
    mine.write_text("x" * 5000)
    outside = tmp_path / old.name
    outside.write_text("x" * 5000)
    link = directory / "modules" / ("g" + old.name)
    link.symlink_to(outside)
    age(mine, 9999)
    assert eviction.evict(directory, 10) == 1000
    assert mine.exists() and link.exists() and outside.exists() and not old.exists()


def test_a_file_being_written_stays_unless_it_was_abandoned(directory):
    fill(1)
    folder = directory / "modules"
    names = [f".f-{cache.content_name(n)}-abc.py" for n in "ab"]
    for name in names:
        (folder / name).write_text("x" * 1000)
    age(folder / names[0], 9999)
    eviction.evict(directory, 10)
    assert [p.name for p in folder.iterdir()] == [names[1]]


def test_one_process_at_a_time_removes(directory):
    fill(3)
    with eviction._alone(directory) as alone:
        assert alone and eviction.evict(directory, 10) == 0
    assert eviction.evict(directory, 10) == 3000


def test_writing_makes_room(directory, monkeypatch):
    monkeypatch.setenv("SRCJIT_CACHE_SIZE", "16000")
    for number in range(60):
        cache.store_text("modules", "f", f"#{number}".ljust(1000, "x"))
        sizes = [p.stat().st_size for p in (directory / "modules").iterdir()]
        assert sum(sizes) <= 17000


def test_a_library_that_vanishes_before_it_is_loaded_is_made_again(
    directory, monkeypatch
):
    wait = cpp_build.Build.wait

    def vanishes(build):
        path = wait(build)
        path.unlink()
        return path

    monkeypatch.setattr(cpp_build.Build, "wait", vanishes)
    run_kernel(1)


def test_processes_that_remove_each_others_files(directory):
    """Two processes with room for hardly one library compute what they should."""
    program = textwrap.dedent(
        """
        import sys, torch
        from srcjit.runtime.cpp import cpp_kernels
        x, y = torch.ones(4), torch.empty(4)
        for i in range(2):
            text = sys.argv[1].format(i)
            getattr(cpp_kernels(text), f"add_{i}")(x, y, 4)
            assert torch.equal(y, x + i), y
        """
    )
    environment = {**os.environ, "SRCJIT_CACHE_SIZE": "20k"}
    command = [sys.executable, "-c", program, KERNEL]
    running = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0 and not errors, errors
    left = [p for kind in eviction.KINDS for p in (directory / kind).glob("*")]
    assert sum(p.stat().st_size for p in left) <= 40 << 10


# ── Where nothing can be written ────────────────────────────────────────────────────


def full(monkeypatch, directory, code=28):
    """Makes every write below `directory` fail, as on a full or read-only disk."""
    writing = cache.writing

    def fails(path):
        if directory in path.parents:
            raise OSError(code, os.strerror(code))
        return writing(path)

    monkeypatch.setattr(cache, "writing", fails)


@pytest.mark.parametrize("code", [28, 30], ids=["full", "read-only"])
def test_compiled_code_runs_where_nothing_can_be_written(
    directory, monkeypatch, warnings, code
):
    full(monkeypatch, directory, code)

    def user(x, by):
        return torch.sin(x) * by

    x = torch.randn(33)
    for by in (2.0, 3.0):
        control.reset()
        jitted = srcjit.jit(user)
        torch.testing.assert_close(jitted(x, by), user(x, by))
        assert jitted.__srcjit__.specializations[0].kernels == 1
    assert len(warnings) == 1 and "cannot write to cache directory" in warnings[0]
    assert not any(p.is_file() for p in directory.rglob("*"))


def test_what_a_read_only_directory_holds_is_used(directory, monkeypatch, warnings):
    run_kernel(1)
    full(monkeypatch, directory, 30)

    def no_compiler_now(*args):
        raise AssertionError("compiled although it was there")

    with monkeypatch.context() as patch:
        patch.setattr(cpp_build, "_run_compiler", no_compiler_now)
        run_kernel(1)
    assert not warnings
    run_kernel(2)
    run_kernel(3)
    assert len(warnings) == 1
    monkeypatch.setattr(cpp_build, "_run_compiler", no_compiler_now)
    run_kernel(2)


@pytest.mark.skipif(getattr(os, "getuid", lambda: 1)() != 0, reason="needs root")
def test_a_directory_without_write_permission(monkeypatch):
    """A user who may not write runs from what is there, and says nothing."""
    directory = Path(
        tempfile.mkdtemp(prefix="srcjit-test-")
    )  # pytest's are root's alone
    monkeypatch.setenv("SRCJIT_CACHE_DIR", str(directory))
    cpp_build._toolchain.cache_clear()  # its flags are to be in this directory, too
    run_kernel(1)
    program = textwrap.dedent(
        """
        import os, sys
        import torch, srcjit.runtime.cpp_build as build
        from srcjit.runtime.cpp import cpp_kernels
        gomp = build._gomp()
        build._gomp = lambda: gomp
        build._headers()  # this Python may be out of that user's sight
        build.start_launcher = lambda: None
        build._run_compiler = None
        os.setuid(65534)
        x, y = torch.ones(4), torch.empty(4)
        cpp_kernels(sys.argv[1].format(1)).add_1(x, y, 4)
        assert torch.equal(y, x + 1)
        """
    )
    for path in [directory, *directory.rglob("*")]:
        os.chown(path, 65534, 65534)
        path.chmod(path.stat().st_mode & ~0o222)
    command = [sys.executable, "-c", program, KERNEL]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    shutil.rmtree(directory)
    assert ran.returncode == 0 and not ran.stderr, ran.stderr


# ── Whom it trusts ──────────────────────────────────────────────────────────────────


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners")
def test_a_subdirectory_that_others_can_write_is_not_used(directory, warnings):
    path = cache.store_text("modules", "f", "x = 1\n")
    path.parent.chmod(0o777)
    other = cache.store_text("modules", "f", "x = 1\n")
    assert directory not in other.parents and other.read_text() == "x = 1\n"
    assert cache.store_text("modules", "f", "x = 2\n").parent == other.parent
    assert len(warnings) == 1 and "can be written by other users" in warnings[0]
    path.parent.chmod(0o700)


@pytest.mark.skipif(getattr(os, "getuid", lambda: 1)() != 0, reason="needs root")
def test_a_file_of_another_user_is_not_used(directory, warnings):
    path = cache.store_text("modules", "f", "x = 1\n")
    os.chown(path, 65534, 65534)
    assert not cache.trusted(path) and cache.read(path) is None
    assert len(warnings) == 1 and "belongs to another user" in warnings[0]


def test_what_is_no_file_is_not_read(directory):
    fifo = cache.directory("modules") / "f-0.py"
    os.mkfifo(fifo, 0o600)
    assert cache.read(fifo) is None
    assert cache.read(cache.directory("modules")) is None
