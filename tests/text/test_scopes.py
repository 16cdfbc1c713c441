"""Names that a piece of a function reads, binds and captures; renaming."""

from __future__ import annotations

import doctest
import inspect
import symtable
import sys
import textwrap
from pathlib import Path

import libcst as cst
import pytest
from libcst import matchers

from srcjit.origin import Origin, Origins
from srcjit.passes import clone as clone_module
from srcjit.passes import scopes
from srcjit.passes.clone import clone


def block(text: str):
    return cst.parse_module(textwrap.dedent(text)).body


def function(text: str) -> cst.FunctionDef:
    (node,) = block(text)
    return node


def names(text: str) -> set[str]:
    return set(text.split())


@pytest.mark.parametrize("module", [scopes, clone_module])
def test_docstrings(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    "text, read, written",
    [
        ("x = y", "y", "x"),
        ("x.a = y[i]", "x y i", ""),
        ("x[i] = j", "x i j", ""),
        ("x += y", "x y", "x"),
        ("x[i] += y", "x y i", ""),
        ("(a, [b, *c]), d.e = v", "v d", "a b c"),
        ("x: int = y", "y", "x"),
        ("x: Missing", "", "x"),
        ("f(a, k=b, *c, **d)", "f a b c d", ""),
        ("del x, y.z, w[i]", "x y w i", "x"),
        ("import a.b, c as d", "", "a d"),
        ("from a import b, c as d", "", "b d"),
        ("y = [x for x in x]", "x", "y"),
        ("y = [a for x in b for a in x]", "b", "y"),
        ("y = [x for a in b for x in a + x]", "b", "y"),
        ("y = {k: v + w for k, v in d if (q := k)}", "d w", "y q"),
        ("y = (x for x in (z for z in zs))", "zs", "y"),
        ("f = lambda a, b=c, *d: a + e", "c e", "f"),
        ("def f(a: A, b=B) -> R:\n    x = a + k\n    return x", "A B R k", "f"),
        ("def f():\n    global g\n    g = 1", "", "f"),
        ("def f():\n    nonlocal n\n    n = 1", "n", "f"),
        ("def f():\n    def g():\n        nonlocal n\n        n = 1", "n", "f"),
        ("class C(B, m=M):\n    a = x\n    b = a\n    def f(s):\n        return a + y", "B M x a y", "C"),
        ("class C:\n    a = 1\n    b = a", "", "C"),
        ("global x\nx = 1", "", ""),
        ("nonlocal x\nx = y", "y", ""),
        ("for i, j in z:\n    k = i", "z i", "i j k"),
        ("with a as b, c as (d, e.f):\n    pass", "a c e", "b d"),
        ("try:\n    a\nexcept E as e:\n    b = e\nfinally:\n    c", "a E e c", "e b"),
        ("match s:\n    case {'k': a, **r} | [b, *t] if g: u = a\n    case P(x=c) as d: pass", "s g a P", "a r b t u c d"),
        ("x = y if (z := w) else z", "y w z", "x z"),
        ("f'{x!r:{w}} {y=}'", "x w y", ""),
        ("a.b.c(d.e)", "a d", ""),
        ("@dec(z)\ndef f(): pass", "dec z", "f"),
    ],
)  # fmt: skip
def test_reads_and_writes(text, read, written):
    assert scopes.reads(block(text)) == names(read)
    assert scopes.writes(block(text)) == names(written)


@pytest.mark.parametrize(
    "text, live, bound",
    [
        ("x = 1\ny = x", "", "x y"),
        ("if c:\n    x = 1\ny = x", "c x", "y"),
        ("if c:\n    x = 1\nelse:\n    x = 2\ny = x", "c", "x y"),
        ("if c:\n    return 1\nelse:\n    x = 2\ny = x", "c", "x y"),
        ("for i in z:\n    x = i\ny = x", "z x", "y"),
        ("for i in z:\n    a = b\n    b = a", "z b", ""),
        ("for i in z:\n    if i: break\nelse:\n    x = 1\ny = x", "z x", "y"),
        ("for i in z:\n    if i:\n        x = 2\n        break\nelse:\n    x = 1\ny = x", "z", "x y"),
        ("while True:\n    x = f()\n    if x:\n        break\ny = x", "f", "x y"),
        ("while c:\n    x = 1\ny = x", "c x", "y"),
        ("while (x := f()):\n    pass\ny = x", "f", "x y"),
        ("try:\n    x = f()\nexcept E:\n    pass\ny = x", "f E x", "y"),
        ("try:\n    x = f()\nexcept E:\n    x = 0\ny = x", "f E", "x y"),
        ("try:\n    x = f()\nexcept E:\n    raise\ny = x", "f E", "x y"),
        ("try:\n    x = f()\nfinally:\n    g(x)\ny = x", "f g x", "x y"),
        ("try:\n    return f()\nfinally:\n    y = 1", "f", "y"),
        ("try:\n    x = f()\nexcept E as e:\n    x = e\nelse:\n    z = 1", "f E", "x"),
        ("with m as x:\n    y = x\nz = y", "m y", "x z"),
        ("del x\nx = 1\ndel x", "x", ""),
        ("x = 1\ndel x\ny = x", "", "y"),
        ("a and (b := a)\nc = b", "a b", "c"),
        ("a or b(x := 1)", "a b", ""),
        ("y = a < (b := c) < (d := e)", "a c e", "y b"),
        ("x = (y if y else (z := 1))", "y", "x"),
        ("f(k=(a := 1), *a)", "f a", "a"),
        ("x += 1", "x", "x"),
        ("x[i] = (i := 2)", "x", "i"),
        ("def f():\n    return x\nx = 1", "x", "f x"),
        ("match s:\n    case 1: x = 1\n    case _: x = 2\ny = x", "s", "x y"),
        ("match s:\n    case 1: x = 1\n    case [x]: pass\ny = x", "s x", "y"),
        ("assert a, (m := b)\nc = m", "a b m", "c"),
        ("for i in z:\n    try:\n        x = 1\n        continue\n    finally:\n        w = x\n", "z x", ""),
        ("while True:\n    try:\n        break\n    finally:\n        q = 1\ny = q", "", "q y"),
        ("return x\ny = z", "x", "y"),
    ],
)  # fmt: skip
def test_liveness(text, live, bound):
    assert scopes.live_in(block(text)) == names(live)
    assert scopes.definitely_bound(block(text)) == names(bound)


def test_definitely_bound_before():
    assert scopes.definitely_bound(block("if c:\n    del x"), {"x", "c"}) == {"c"}
    assert scopes.definitely_bound(block("x = 1"), {"c"}) == {"c", "x"}
    assert not scopes.ends(block("if c:\n    return\nelse:\n    raise E"))
    assert scopes.ends(block("if c:\n    return"))


@pytest.mark.parametrize(
    "text, rebound",
    [
        ("x = 1\ng = lambda: x\nreturn g", ""),
        ("x = 1\ng = lambda: x\nx = 2\nreturn g", "x"),
        ("for x in z:\n    g = lambda: x", "x"),
        ("x = 1\ndef g():\n    nonlocal x\n    x = 2", "x"),
        ("def g():\n    return g()", ""),
        ("def g():\n    return h()\ndef h():\n    return g()", "h"),
        ("g = lambda: g()", "g"),
        ("for i in z:\n    def g():\n        return g()", "g"),
        ("x = 1\nif x:\n    g = lambda: x\nelse:\n    x = 2", ""),
        ("try:\n    g = (x for y in z)\nfinally:\n    x = 2", "x"),
        ("g = (x for x in y)\nx = 2", ""),
        ("y = [lambda: x for x in z]\nx = 1", ""),
        ("while c(lambda: x):\n    x = 1", "x"),
        ("y = [x for x in z if x + w]\nw = 1", ""),
    ],
)  # fmt: skip
def test_rebound_after_capture(text, rebound):
    made = function("def f(z):\n" + textwrap.indent(text, "    "))
    assert scopes.rebound_after_capture(made) == names(rebound)


@pytest.mark.parametrize(
    "text, renamed",
    [
        ("x = f(x, x=x).x", "X = f(X, x=X).x"),
        ("x += x", "X += X"),
        ("y = [x for x in x]", "Y = [x for x in X]"),
        ("y = [x for z in x if (y := z)]", "Y = [X for z in X if (Y := z)]"),
        ("def x(x, y=x):\n    return x + y + z", "def X(x, y=X):\n    return x + y + Z"),
        ("def f():\n    nonlocal x\n    x = z", "def f():\n    nonlocal X\n    X = Z"),
        ("def f():\n    global x\n    x = z", "def f():\n    global x\n    x = Z"),
        ("def f():\n    x = 1\n    return lambda: x + y", "def f():\n    x = 1\n    return lambda: x + Y"),
        ("class C:\n    x = 1\n    y = x\n    def f(s):\n        return x", "class C:\n    x = 1\n    y = x\n    def f(s):\n        return X"),
        ("import x", "import x as X"),
        ("import x.q, y", "import x.q as X, x as X, y as Y"),
        ("from x import x", "from x import x as X"),
        ("from x import q as x", "from x import q as X"),
        ("try:\n    pass\nexcept x as y:\n    y", "try:\n    pass\nexcept X as Y:\n    Y"),
        ("match x:\n    case {'x': y, **z}: pass\n    case x.y(x=z): pass", "match X:\n    case {'x': Y, **Z}: pass\n    case X.y(x=Z): pass"),
        ("f'{x} {y!s:>{z}}'", "f'{X} {Y!s:>{Z}}'"),
        ("f'{x=} { y + 1 = :>5} {x=!s}'", "f'x={X!r}  y + 1 = {Y + 1:>5} x={X!s}'"),
        ("global x\nx = y", "global x\nx = Y"),
        ("for x in y:\n    pass\nelse:\n    z", "for X in Y:\n    pass\nelse:\n    Z"),
        ("with x as (y, z.y): pass", "with X as (Y, Z.y): pass"),
        ("del x, y.x", "del X, Y.x"),
        ("x: y = z", "X: y = Z"),
        ("(x)", "(X)"),
    ],
)  # fmt: skip
def test_rename(text, renamed):
    mapping = {"x": "X", "y": "Y", "z": "Z"}
    wrapped = function("def outer():\n" + textwrap.indent(text, "    "))
    body = scopes.rename(wrapped.body, mapping, Origins())
    assert textwrap.dedent(cst.Module(body.body).code) == renamed + "\n"


def test_rename_keeps_debug_text():
    statement = block("s = f'{d[\"a\"]=} {{}} {n = }'")[0]
    renamed = scopes.rename(statement, {"d": "e", "n": "m"}, Origins())
    space = {"d": {"a": 1}, "e": {"a": 1}, "n": 2, "m": 2}
    exec(cst.Module([statement]).code, space)
    expected = space["s"]
    exec(cst.Module([renamed]).code, space)
    assert space["s"] == expected


def test_rename_does_not_touch_the_original_and_keeps_origins():
    statement = block("x = f(x)")[0]
    origins = Origins()
    place = Origin("f.py", 3)
    origins.table[statement.body[0].value.args[0].value] = place
    renamed = scopes.rename(statement, {"x": "y"}, origins)
    assert cst.Module([statement]).code == "x = f(x)\n"
    assert origins.get(renamed.body[0].value.args[0].value) == place
    assert renamed.body[0].value is not statement.body[0].value


def test_substitute():
    statement = block("y = x.a + f(x, x=x)")[0]
    made = scopes.substitute(statement, {"x": cst.parse_expression("a + b")}, Origins())
    assert cst.Module([made]).code == "y = (a + b).a + f((a + b), x=(a + b))\n"
    made = scopes.substitute(
        statement, {"x": cst.parse_expression("self.p")}, Origins()
    )
    assert cst.Module([made]).code == "y = self.p.a + f(self.p, x=self.p)\n"
    statement = block("return(x), x.real, (x).real, x[0], -x")[0]
    made = scopes.substitute(statement, {"x": cst.Integer("0")}, Origins())
    assert cst.Module([made]).code == "return(0), (0).real, (0).real, 0[0], -0\n"
    statement = block("y = x")[0]
    with pytest.raises(ValueError, match="bound"):
        scopes.substitute(statement, {"y": cst.Name("z")}, Origins())


def test_clone_is_equal_and_apart():
    for node in cst.parse_module(Path(scopes.__file__).read_text()).body:
        copy = clone(node, Origins())
        assert copy.deep_equals(node) and copy is not node


# ── CPython's own symbol table as the oracle ────────────────────────────────────────

STANDARD = [inspect, textwrap, doctest, symtable]


@pytest.mark.parametrize("module", STANDARD, ids=lambda m: m.__name__)
def test_against_symtable(module):
    text = Path(module.__file__).read_text()
    checked = _check(cst.parse_module(text).body, symtable.symtable(text, "f", "exec"))
    assert checked > 10


def _check(statements, table) -> int:
    """Compares every function with the symbol table; returns how many there were."""
    checked = 0
    by_name = {}
    for child in table.get_children():
        by_name.setdefault(child.get_name(), []).append(child)
    for node in _definitions(statements):
        found = by_name.get(node.name.value)
        if found is None or len(found) != 1:
            continue
        if isinstance(node, cst.FunctionDef):
            expected = {
                s.get_name()
                for s in found[0].get_symbols()
                if s.is_local() or s.is_parameter()
            }
            # From Python 3.12 on, the variables of comprehensions are the function's.
            inlined = {
                name.value
                for clause in matchers.findall(node, matchers.CompFor())
                for name in matchers.findall(clause.target, matchers.Name())
                if sys.version_info >= (3, 12)
            }
            got = scopes.local_names(node)
            assert expected - inlined <= got <= expected, node.name.value
            free = {
                s.get_name()
                for s in found[0].get_symbols()
                if s.is_free() or s.is_global()
            }
            got = scopes.reads(node.body) - scopes.local_names(node)
            declared = scopes.declared(node.body)[0]
            assert free - declared - {"__class__"} <= got | declared, node.name.value
            checked += 1
        checked += _check(node.body.body, found[0])
    return checked


def _definitions(statements):
    pending = list(statements)
    while pending:
        node = pending.pop()
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            yield node
        elif isinstance(node, cst.BaseCompoundStatement | cst.BaseSuite | cst.Else):
            pending += node.children
