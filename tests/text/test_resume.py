"""The rest of a program: texts, and random programs split at a random point."""

from __future__ import annotations

import doctest
import textwrap

import libcst as cst
from generate import EXAMPLES, Generator
from hypothesis import given, settings
from hypothesis import strategies as st
from tracing import outcome

from srcjit.origin import Origin, Origins
from srcjit.passes import resume
from srcjit.passes.blocks import line, statements_of, suite_of
from srcjit.passes.namer import Namer
from srcjit.passes.resume import ONCE, Block, make_resume, rest
from srcjit.passes.scopes import live_in, local_names, reads


def test_docstrings():
    assert doctest.testmod(resume).failed == 0


def block(text: str):
    return list(cst.parse_module(textwrap.dedent(text)).body)


def code(statements) -> str:
    return cst.Module(statements).code


def test_plain_rest_of_a_loop_is_plain():
    (loop,) = block("for i in x:\n    f(i)\n    g(i)\n    continue\n")
    inside = Block(loop.body.body, 1, "for", loop, "left")
    assert code(rest([inside], origins=Origins())) == (
        "g(i)\nfor i in left:\n    f(i)\n    g(i)\n    continue\n"
    )


def test_break_at_the_end_skips_the_loop():
    (loop,) = block("for i in x:\n    f(i)\n    g(i)\n    break\nelse:\n    h()\n")
    outer = Block([loop, *block("k()")], 1)
    inside = Block(loop.body.body, 1, "for", loop, "left")
    assert code(rest([outer, inside], origins=Origins())) == "g(i)\nk()\n"


def test_return_ends_everything():
    (loop,) = block("while x:\n    f()\n    return g()\n")
    outer = Block([loop, *block("k()")], 1)
    inside = Block(loop.body.body, 1, "while", loop)
    assert code(rest([outer, inside], origins=Origins())) == "return g()\n"


def test_nested_loops():
    (outer,) = block(
        "for i in x:\n    for j in y:\n        f()\n        if i: break\n    h()\n"
    )
    inner = outer.body.body[0]
    blocks = [
        Block([outer, *block("return x")], 1),
        Block(outer.body.body, 1, "for", outer, "left_i"),
        Block(inner.body.body, 1, "for", inner, "left_j"),
    ]
    assert code(rest(blocks, origins=Origins())) == textwrap.dedent("""\
        for _ in once:
            if i: break
        else:
            for j in left_j:
                f()
                if i: break
        h()
        for i in left_i:
            for j in y:
                f()
                if i: break
            h()
        return x
        """)


def test_the_loop_variable_does_not_hide_the_users():
    (loop,) = block("for i in x:\n    f()\n    if _: break\n")
    inside = Block(loop.body.body, 1, "for", loop, "left")
    made = code(rest([inside], origins=Origins(), namer=Namer()))
    assert made.startswith("for turn in once:\n")


def test_unbound_variables_stay_unbound():
    origins = Origins()
    statements = block("f(y)\nreturn z\n")
    origins.table[statements[0]] = Origin("file.py", 7)
    source = make_resume(
        "resume_7",
        statements,
        ["x"],
        {"y", "w"},
        origins,
        file="file.py",
        class_name="C",
    )
    assert (
        source.text
        == "def resume_7(x):\n    y = None\n    del y\n    f(y)\n    return z\n"
    )
    assert (source.first_line, source.file, source.class_name) == (7, "file.py", "C")
    assert origins.get(source.tree).line == 7


def test_declarations_are_kept():
    source = make_resume(
        "r", block("n = 1"), [], set(), Origins(), file="f", global_names={"n", "m"}
    )
    assert source.text == "def r():\n    global n\n    n = 1\n"


# ── Programs split at a point ───────────────────────────────────────────────────────


class Split:
    """Puts a call of the rest of the program at one statement of a function."""

    def __init__(self, tree: cst.FunctionDef, point: int) -> None:
        self.tree = tree
        self.point = point
        self.count = 0
        self.blocks: list[Block] | None = None
        self.namer = Namer(reads(tree.body) | local_names(tree) | {"f"})

    def text(self) -> str | None:
        body = self.block(statements_of(self.tree.body), [], "body", None, None)
        if self.blocks is None:
            return None
        # Bindings that have moved away leave the name local all the same.
        body.append(line(f"{' = '.join(sorted(local_names(self.tree)))} = None"))
        return cst.Module([self.tree.with_changes(body=suite_of(body))]).code

    def block(self, statements, around, kind, node, remaining):
        made = []
        for number, statement in enumerate(statements):
            if self.blocks is None:
                if self.count == self.point:
                    self.blocks = [
                        *around,
                        Block(statements, number, kind, node, remaining),
                    ]
                    return [*made, line("return go_on(locals())")]
                self.count += 1
                here = [*around, Block(statements, number + 1, kind, node, remaining)]
                made += self.statement(statement, here)
            else:
                made.append(statement)
        return made

    def statement(self, statement, here):
        if isinstance(statement, cst.If):
            body = self.block(statements_of(statement.body), here, "body", None, None)
            orelse = statement.orelse
            if isinstance(orelse, cst.Else):
                inner = self.block(statements_of(orelse.body), here, "body", None, None)
                orelse = cst.Else(suite_of(inner))
            return [statement.with_changes(body=suite_of(body), orelse=orelse)]
        if isinstance(statement, cst.For):
            left = self.namer.fresh("remaining")
            body = self.block(
                statements_of(statement.body), here, "for", statement, left
            )
            first = cst.Assign(
                [cst.AssignTarget(cst.Name(left))],
                cst.Call(cst.Name("iter_"), [cst.Arg(statement.iter)]),
            )
            loop = statement.with_changes(iter=cst.Name(left), body=suite_of(body))
            return [cst.SimpleStatementLine([first]), loop]
        if isinstance(statement, cst.While):
            body = self.block(
                statements_of(statement.body), here, "while", statement, None
            )
            return [statement.with_changes(body=suite_of(body))]
        return [statement]


def check(text: str, seed: int, _: bool = True, point: int | None = None) -> None:
    try:
        compile(text, "f", "exec")
    except SyntaxError:
        return
    (tree,) = cst.parse_module(text).body
    points = range(12) if point is None else [point]
    expected = outcome(text, seed)
    for number in points:
        split = Split(tree, number)
        new = split.text()
        if new is None:
            break
        resumed = []

        def go_on(found, split=split, resumed=resumed):
            statements = rest(split.blocks, origins=Origins(), namer=split.namer)
            names = local_names(tree) | {n for n in found if n.startswith("remaining")}
            wanted = sorted(live_in(statements) & names)
            params = [name for name in wanted if name in found]
            source = make_resume(
                "resume", statements, params, names - found.keys(), Origins(), file="f"
            )
            resumed.append(source.text)
            exec(source.text, space)
            return space["resume"](*(found[name] for name in params))

        space: dict[str, object] = {}
        extra = {ONCE: (None,), "go_on": go_on, "iter_": iter}
        got = outcome(new, seed, extra=extra, prepare=space.update)
        assert got == expected, (
            f"seed {seed} point {number}\n{text}\n{new}\n" + "".join(resumed)
        )


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 50), st.integers(0, 9))
def test_random_programs(chance, seed, point):
    check(Generator(chance, expressions=1, depth=3).function(), seed, point=point)
