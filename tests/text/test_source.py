"""Finding the source of functions, and proving that it is what runs."""

from __future__ import annotations

import doctest
import functools
import gc
import importlib.util
import linecache
import sys
import textwrap
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import libcst as cst
import pytest

import srcjit.source
from srcjit import shared
from srcjit.lines import register_lines
from srcjit.source import FunctionSource, SourceUnavailable, find_source

HERE = Path(__file__).read_text().splitlines()


def text_at(source: FunctionSource, node: cst.CSTNode) -> str:
    """The piece of the user's file that the origin of `node` names."""
    origin = source.origins.get(node)
    assert origin is not None
    lines = linecache.getlines(origin.file)[origin.line - 1 : origin.end_line]
    lines[-1] = lines[-1][: origin.end_column]
    lines[0] = lines[0][origin.column :]
    return "".join(lines)


def every_node(source: FunctionSource) -> list[cst.CSTNode]:
    found: list[cst.CSTNode] = []
    pending: list[cst.CSTNode] = [source.tree]
    while pending:
        node = pending.pop()
        found.append(node)
        pending += node.children
    return found


def load(path: Path, text: str) -> ModuleType:
    path.write_text(textwrap.dedent(text))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keep(function):
    return function


def wrapped(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


@keep
@functools.partial(
    keep,
)
def plain(
    x,
    y=2,
):
    """Docstring."""
    text = """one
  two
three"""
    return x + y, text  # sum


def test_plain_function_and_origins():
    source = find_source(plain)
    assert source.name == "plain" and source.qualname == "plain"
    assert source.text.startswith("def plain(\n    x,\n    y=2,\n):\n")
    assert HERE[source.first_line - 1] == "def plain("
    assert source.class_name is None and not source.uses_frames
    module = cst.Module([])
    checked = 0
    for node in every_node(source):
        if isinstance(node, cst.BaseExpression) and not isinstance(node, cst.Tuple):
            assert text_at(source, node) == module.code_for_node(node)
            checked += 1
        if isinstance(node, cst.BaseSmallStatement):
            assert text_at(source, node) == module.code_for_node(node)
    assert checked > 8
    assert find_source(plain) is source
    assert source.sha256 == find_source(plain).sha256 and len(source.sha256) == 64


def test_strings_that_span_lines_are_not_dedented():
    def inner():
        return """a
        b
    c"""

    source = find_source(inner)
    space: dict[str, FunctionType] = {}
    exec(source.text, space)
    assert space["inner"]() == inner() == "a\n        b\n    c"
    assert source.qualname.endswith("<locals>.inner")


class Outer:
    def method(self):
        return self.__secret

    class Inner:
        async def method(self):
            return 1

        def generate(self):
            yield 1

    def parent(self):
        return super().__init__()


def test_methods():
    assert find_source(Outer.method).class_name == "Outer"
    inner = find_source(Outer.Inner.method)
    assert (inner.class_name, inner.is_async, inner.is_generator) == (
        "Inner",
        True,
        False,
    )
    assert find_source(Outer.Inner.generate).is_generator
    parent = find_source(Outer.parent)
    assert "__class__" in parent.freevars
    assert parent.text.endswith("return super(__class__, self).__init__()\n")
    call = parent.tree.body.body[0].body[0].value.func.value
    assert text_at(parent, call) == "super()"


def test_decorated_function_is_found_behind_its_wrapper():
    @wrapped
    def target(a):
        return a * 2

    source = find_source(target.__wrapped__)
    assert source.name == "target" and source.tree.decorators == ()
    assert find_source(target).name == "call"


def test_lambdas_on_one_line():
    a, b, c = lambda x: x + 1, lambda x: x + 2, lambda x: x + 1
    ends = []
    for function, expected in ((a, "x + 1"), (b, "x + 2"), (c, "x + 1")):
        source = find_source(function)
        returned = source.tree.body.body[0].body[0]
        assert text_at(source, returned.value) == expected
        assert source.name.isidentifier() and source.qualname.endswith("<lambda>")
        ends.append(source.origins.get(returned.value).column)
        space: dict[str, FunctionType] = {}
        exec(source.text, space)
        assert space[source.name](5) == function(5)
    if sys.version_info >= (3, 11):
        assert ends[0] < ends[1] < ends[2]


def test_lambda_over_lines_with_wide_characters():
    é = "é"
    _, f = 0, (lambda x, *rest, k=é, **more: (x
            + 1,  # comment
        rest, k, more))  # fmt: skip
    g = [lambda
        x: x
        * 2]  # fmt: skip
    for function in (f, g[0]):
        source = find_source(function)
        space = {"é": é}
        exec(source.text, space)
        assert space[source.name](3) == function(3)
        returned = source.tree.body.body[0].body[0].value
        assert text_at(source, returned).startswith(("x", "(x"))


def test_closure():
    n = 3

    def inner(x):
        nonlocal n
        n += x
        return n

    assert find_source(inner).freevars == ("n",)


def test_frames():
    def uses_locals():
        return locals()

    def uses_getframe():
        return sys._getframe()

    def uses_vars(o):
        return vars()

    def innocent(o):
        return vars(o), o.eval(), o.stack(1)

    assert find_source(uses_locals).uses_frames
    assert find_source(uses_getframe).uses_frames
    assert find_source(uses_vars).uses_frames
    assert not find_source(innocent).uses_frames


def test_asserts_that_pytest_rewrote():
    def checked(x):
        assert x > 0, "positive"
        return x

    assert "assert x > 0" in find_source(checked).text


def test_edited_file(tmp_path):
    path = tmp_path / "edited.py"
    module = load(path, "def f(x):\n    return x + 1\n\ndef g(x):\n    return x\n")
    assert find_source(module.g).name == "g"
    path.write_text("def f(x):\n    return x + 2\n\ndef g(x):\n    return x\n  \n")
    with pytest.raises(SourceUnavailable, match="edited"):
        find_source(module.f)
    path.write_text("def f(x:\n")
    with pytest.raises(SourceUnavailable, match="parse"):
        find_source(module.f)


@pytest.mark.parametrize(
    "old, new", [("0.0", "-0.0"), ("1", "True"), ("(1,)", "(1.0,)")]
)
def test_edited_constants(tmp_path, old, new):
    path = tmp_path / "constants.py"
    module = load(path, f"def f():\n    return {old}\n")
    path.write_text(f"def f():\n    return {new}\n\n")
    with pytest.raises(SourceUnavailable):
        find_source(module.f)


def test_equal_code_in_two_files(tmp_path):
    text = "import math\ndef f(x):\n    return math.sin(x)\n"
    one, two = load(tmp_path / "one.py", text), load(tmp_path / "two.py", text)
    assert find_source(one.f).file.endswith("one.py")
    assert find_source(two.f).file.endswith("two.py")


def test_future_import_and_tabs(tmp_path):
    module = load(
        tmp_path / "tabs.py",
        "from __future__ import annotations\nclass C:\n\tdef f(self, x: Missing):\n\t\treturn x\n",
    )
    source = find_source(module.C.f)
    assert source.text == "def f(self, x: Missing):\n    return x\n"


def test_no_source():
    space: dict[str, FunctionType] = {}
    exec("def made(x): return x", space)
    with pytest.raises(SourceUnavailable, match="no source text"):
        find_source(space["made"])


def test_notebook_cell():
    name = "<ipython-input-1-abc>"
    text = "%".join(["k = 7\n"]) + "def cell(x):\n    return x + k\n"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, FunctionType] = {}
    exec(compile(text, name, "exec"), space)
    source = find_source(space["cell"])
    assert source.first_line == 2 and source.file == name


def test_doctest():
    seen = []
    example = """
    >>> def shown(x):
    ...     return x + 1
    >>> look(shown)
    'shown'
    """

    def look(function):
        seen.append(find_source(function))
        return seen[-1].name

    test = doctest.DocTestParser().get_doctest(example, {"look": look}, "t", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
    assert seen[0].text == "def shown(x):\n    return x + 1\n"


def test_from_tree():
    source = find_source(plain)
    tree = source.tree.with_changes(name=cst.Name("resume_1"))
    made = FunctionSource.from_tree("resume_1", tree, source.origins, file="f.py")
    assert made.name == made.qualname == "resume_1"
    assert made.first_line == source.first_line + 4
    assert made.text.startswith("def resume_1(")


@pytest.mark.parametrize(
    ("module", "table"), [(shared, "_table"), (srcjit.source, "_sources")]
)
def test_code_may_outlive_the_compilers_variables(module, table, monkeypatch):
    """As it does when Python exits: then a weak reference calls back."""
    scope: dict[str, Any] = {}
    exec("def made(): pass", scope)
    if module is shared:
        shared._entry(scope["made"].__code__)
    else:
        file = "<made for a test>"
        register_lines(file, "def made(): pass\n")
        exec(compile("def made(): pass\n", file, "exec"), scope)
        find_source(scope["made"])
    failures: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    monkeypatch.setattr(module, table, None)
    scope.clear()
    gc.collect()
    assert not failures
