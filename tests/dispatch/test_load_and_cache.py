"""Emitted modules: where their functions' names and lines come from, and their files."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import traceback
from pathlib import Path
from types import CellType

import libcst as cst
import pytest
import torch

import srcjit
from srcjit import cache
from srcjit.compiler import _foreign_code
from srcjit.continuations import make_stub
from srcjit.diagnostics import CompilerFault
from srcjit.load import function_from_source, load_module
from srcjit.options import Options
from srcjit.origin import Origin, Origins
from srcjit.passes.program import Continuation
from srcjit.source import FunctionSource, find_source

from .front_end import FrontEnd, traced

OFFSET = 10


def make(step):
    def user(x, by):
        x = x + OFFSET

        y = x // by
        return y + step

    return user


TEXT = """
import torch

def guard(x, by):
    return cells["step"].cell_contents == wanted and user_globals["OFFSET"] == 10


def segment_0(x):
    return x + __file__.count(".py")


def user(x, by):
    x = x + OFFSET  # {0}: x = x + OFFSET
    y = segment_0(x) // by  # {2}: y = x // by
    z = x // by  # {2}: y = x // by
    return y + step + constant + "# 1: no comment".count("1")  # {3}: return y + step
"""


def load(function, **changes):
    first = function.__code__.co_firstlineno + 1
    text = TEXT.format(*range(first, first + 4))
    path = cache.store_text("modules", "user", text)
    return load_module(
        text,
        path,
        guard="guard",
        residual="user",
        function=function,
        segments=["segment_0"],
        names={"constant": 100},
        guard_bindings={"wanted": 3},
        **changes,
    )


def last_frame(function, *args):
    try:
        function(*args)
    except ZeroDivisionError as error:
        return traceback.extract_tb(error.__traceback__)[-1]


def test_a_residual_program_lives_in_the_users_module():
    function = make(3)
    loaded = load(function)
    assert loaded.run.__globals__ is globals()
    assert loaded.run.__qualname__ == function.__qualname__
    assert loaded.guard(1, 2) and not load(make(4)).guard(1, 2)
    assert loaded.run(6, 2) == (6 + OFFSET + 1) // 2 + 3 + 100 + 1
    # The cell itself, not what it held.
    function.__closure__[0].cell_contents = 4
    assert loaded.run(6, 2) == (6 + OFFSET + 1) // 2 + 4 + 100 + 1
    assert not loaded.guard(6, 2)
    assert "segment_0" not in globals() and "constant" not in globals()


def test_tracebacks_show_the_users_lines():
    function = make(3)
    ours, eager = last_frame(load(function).run, 1, 0), last_frame(function, 1, 0)
    assert (ours.filename, ours.lineno, ours.name, ours.line) == (
        eager.filename,
        eager.lineno,
        eager.name,
        eager.line,
    )
    # The text differs from the user's there, so no columns are claimed.
    assert getattr(ours, "colno", None) is None


def test_tracebacks_can_show_the_emitted_lines():
    loaded = load(make(3), emitted_lines=True)
    frame = last_frame(loaded.run, 1, 0)
    assert frame.filename == str(loaded.path)
    assert frame.line.startswith("y = segment_0(x) // by")


def test_an_undefined_name_is_a_fault():
    function = make(3)
    with pytest.raises(CompilerFault, match="defines no `other`"):
        load_module(
            TEXT, Path("x.py"), guard="guard", residual="other", function=function
        )


def test_functions_written_by_passes_keep_lines_classes_and_cells():
    class Base:
        def name(self):
            return "base"

    class Thing(Base):
        def name(self):
            value = self.__secret
            return super().name() + value

        __secret = "!"

    source = find_source(Thing.name)
    function = Thing.name
    cells = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
    made = function_from_source(source, globals(), cells)
    assert made(Thing()) == "base!"
    try:
        made(Base())
    except AttributeError as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
    assert frame.line == "value = self.__secret"
    assert "_Thing__secret" in made.__code__.co_names


def test_a_continuation_is_built_and_compiled_when_reached(front_end: FrontEnd):
    tree = cst.parse_statement(
        "def resume_7(y):\n    y = y + k\n    return y // zero\n"
    )
    origins = Origins()
    for statement, line in zip(tree.body.body, (7, 9), strict=True):
        origins.table[statement] = Origin("model.py", line)
    source = FunctionSource.from_tree(
        "resume_7", tree, origins, file="model.py", freevars=("k",)
    )
    cells = {"k": CellType(5)}
    stub = make_stub(Continuation("resume_7", source, {"zero": 2}, cells), Options())
    assert not hasattr(stub, "__srcjit__")
    assert stub(1) == 3 and stub(y=1) == 3
    assert front_end.compiled == ["resume_7"]
    assert len(stub.__srcjit__.specializations) == 1
    stub.__globals__["native"].__globals__["zero"] = 0
    frame = last_frame(stub, 1)
    assert (frame.filename, frame.lineno, frame.name) == ("model.py", 9, "resume_7")


def test_foreign_backends_run_segments():
    def chain(x, y):
        return torch.sin(x) + y

    x, y = torch.ones(3), torch.ones(3)
    given = []

    def backend(gm, example_inputs):
        given.append((gm, example_inputs))
        return gm.forward

    for one in (backend, "eager"):
        code = _foreign_code(traced(chain, x, y), one)
        scope = dict(code.bindings)
        exec(code.function, scope)
        (out,) = scope["segment_0"](x, y)
        assert torch.equal(out, chain(x, y))
        assert "def segment_0(x, y):" in code.function
    assert given[0][1] == [x, y]


# ── The cache ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("SRCJIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_files_are_private_and_named_by_content(directory):
    path = cache.store_text("modules", "<lambda> at 3", "x = 1\n")
    assert path.parent == directory / "modules"
    assert path.name.startswith("lambda_at_3-") and path.suffix == ".py"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.stat()
    assert cache.store_text("modules", "<lambda> at 3", "x = 1\n") == path
    assert path.stat().st_ino == before.st_ino
    assert cache.store_text("modules", "<lambda> at 3", "x = 2\n") != path
    assert cache.content_name("ab", "c") != cache.content_name("a", "bc")


def test_a_damaged_file_is_reported_and_written_anew(directory, warnings):
    path = cache.store_text("modules", "f", "x = 1\n")
    path.write_text("x = ")
    digest = cache.content_name("x = 1\n")
    assert cache.read(path, digest) is None
    assert cache.read(path, digest) is None
    assert cache.store_text("modules", "f", "x = 1\n") == path
    assert path.read_text() == "x = 1\n"
    assert len(warnings) == 1 and "damaged or edited" in warnings[0]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners")
def test_what_others_could_have_written_is_not_run(directory, warnings, monkeypatch):
    path = cache.store_text("modules", "f", "x = 1\n")
    path.chmod(0o666)
    assert not cache.trusted(path) and cache.read(path) is None
    assert "can be written by other users" in warnings[0]
    path.chmod(0o600)
    assert cache.read(path) == b"x = 1\n"
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    other = cache.store_text("modules", "g", "y = 1\n")
    assert directory not in other.parents
    assert "belongs to another user" in warnings[1]


def test_a_directory_that_cannot_be_made_is_replaced(tmp_path, monkeypatch, warnings):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SRCJIT_CACHE_DIR", str(tmp_path / "file"))
    path = cache.store_text("modules", "f", "x = 1\n")
    assert path.read_text() == "x = 1\n"
    assert cache.store_text("modules", "f", "x = 1\n") == path
    assert len(warnings) == 1


def test_a_failed_write_leaves_nothing_behind(directory):
    target = cache.directory("kernels") / "k.so"
    with pytest.raises(KeyboardInterrupt), cache.writing(target) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert not list(target.parent.iterdir())
    with cache.writing(target) as temporary:
        temporary.write_text("whole")
    assert target.read_text() == "whole" and len(list(target.parent.iterdir())) == 1


def test_a_full_disk_still_runs_the_program(front_end, monkeypatch, warnings):
    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "write", fail)
    assert srcjit.jit(lambda x: x + 41)(1) == 42
    assert "No space left" in warnings[0]


def test_a_temporary_cache_goes_with_its_process(tmp_path):
    (tmp_path / "file").touch()
    program = "import srcjit.cache; print(srcjit.cache.directory('modules'))"
    made = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "SRCJIT_CACHE_DIR": str(tmp_path / "file" / "cache")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert "for this process" in made.stderr
    assert not Path(made.stdout.strip()).parent.exists()
