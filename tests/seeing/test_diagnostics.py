"""Diagnostics print as rustc's do, and every code is explained."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from srcjit.diagnostics import (
    CODES,
    CompilerFault,
    Diagnostic,
    GraphBreak,
    GraphBreakError,
    render,
)
from srcjit.origin import Origin

SOURCE = """\
def f(h):
    print(h.mean())
\tlog(é, "漢字", h.max())
    x = foo(
        a,
    )
    foo(
        1,
        2,
        3,
        4,
        5,
        6,
    )
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


def shown(file, *span, **fields):
    fields.setdefault("hint", "move the call")
    return render(
        Diagnostic("SJ012", "call has a side effect", Origin(file, *span), **fields)
    )


def test_one_line(file):
    assert shown(file, 2, 4, 2, 19, notes=("splits `f`; live: `h`",)) == (
        "graph break[SJ012]: call has a side effect\n"
        " --> model.py:2:5\n"
        "  |\n"
        "2 |     print(h.mean())\n"
        "  |     ^^^^^^^^^^^^^^^\n"
        "  = note: splits `f`; live: `h`\n"
        "  = help: move the call"
    )


def test_tab_and_wide_characters(file):
    text = shown(file, 3, 15, 3, 22).splitlines()
    assert text[3] == '3 |     log(é, "漢字", h.max())'
    # Two columns for each of the two wide characters, four for the tab.
    assert text[4] == "  | " + " " * 20 + "^" * 7


def test_span_over_several_lines(file):
    assert shown(file, 4, 8, 6, 5).splitlines()[2:-1] == [
        "  |",
        "4 |       x = foo(",
        "  |  _________^",
        "5 | |         a,",
        "6 | |     )",
        "  | |_____^",
    ]
    assert shown(file, 4, 4, 6, 5).splitlines()[3:-1] == [
        "4 | /     x = foo(",
        "5 | |         a,",
        "6 | |     )",
        "  | |_____^",
    ]


def test_long_span_leaves_its_middle_out(file):
    assert shown(file, 7, 4, 14, 5).splitlines()[3:-1] == [
        " 7 | /     foo(",
        " 8 | |         1,",
        " 9 | |         2,",
        "...  |",
        "13 | |         6,",
        "14 | |     )",
        "   | |_____^",
    ]


def test_line_number_sets_the_width(file):
    Path(file).write_text("\n" * 122 + "x = 1\n")
    import linecache

    linecache.checkcache(file)
    assert shown(file, 123, 0, 123, 1).splitlines()[1:5] == [
        "   --> model.py:123:1",
        "    |",
        "123 | x = 1",
        "    | ^",
    ]


def test_empty_span_is_one_mark(file):
    assert shown(file, 2, 4).splitlines()[4] == "  |     ^"


def test_without_source_or_origin():
    text = shown("/no/such/file.py", 7, 0, 7, 3)
    assert text.splitlines() == [
        "graph break[SJ012]: call has a side effect",
        "  --> /no/such/file.py:7:1",
        "   = help: move the call",
    ]
    lines = render(Diagnostic("SJ031", "raise")).splitlines()
    assert lines == ["graph break[SJ031]: raise", f"   = help: {CODES['SJ031'].hint}"]


def test_hint_of_the_table():
    assert CODES["SJ101"].hint in render(Diagnostic("SJ101", "branch"))


def test_several_lines_in_a_note(file):
    lines = shown(file, 2, 4, 2, 9, notes=("one\ntwo",)).splitlines()
    assert lines[-3:-1] == ["  = note: one", "          two"]


def test_color_changes_nothing_but_the_color(file):
    diagnostic = Diagnostic("SJ012", "call", Origin(file, 2, 4, 2, 19), ("a",))
    colored = render(diagnostic, color=True)
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == render(diagnostic)


def test_exceptions_carry_the_diagnostic(file):
    error = GraphBreak("SJ101", "branch on `x`", Origin(file, 2, 4, 2, 9), ("note",))
    assert error.diagnostic.notes == ("note",)
    assert str(error) == "model.py:2:5: graph break[SJ101]: branch on `x`"
    assert pickle.loads(pickle.dumps(error)).diagnostic == error.diagnostic
    assert "model.py:2:5" in str(GraphBreakError(error.diagnostic))
    fault = CompilerFault("no rule", Origin(file, 2))
    assert str(fault) == "model.py:2:1: compiler fault[SJ900]: no rule"


@pytest.mark.parametrize("code", CODES)
def test_code_is_documented(code):
    info = CODES[code]
    assert re.fullmatch(r"SJ\d{3}", code) and info.code == code
    assert info.explanation.endswith(".")
    assert info.hint and info.hint == info.hint.rstrip(".")
    docs = (Path(__file__).parents[2] / "docs" / "breaks.md").read_text(
        encoding="utf-8"
    )
    section = docs.split(f"\n## {code}\n")
    assert len(section) == 2, f"docs/breaks.md has no section {code}"
    title = section[1].split("**")[1].lower()
    assert f"[{code}](#{code.lower()}) | {info.title}" in docs
    assert title
