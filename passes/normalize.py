r"""A-normal form: one operation a statement, in Python's own order of evaluation.

>>> from srcjit.origin import Origins
>>> from srcjit.passes.namer import Namer
>>> from srcjit.passes.scopes import reads, writes
>>> def show(text, **how):
...     statement = cst.parse_statement(text)
...     taken = Namer(reads(statement) | writes(statement))
...     print(cst.Module(normalize(statement, taken, Origins(), **how)).code, end="")
>>> show("log.append(float(w.sum()))\n")
log_append = log.append
w_sum = w.sum()
float_w_sum = float(w_sum)
log_append(float_w_sum)
>>> show("if x.max() > 0 and ready: go()\n")
x_max = x.max()
x_max_gt_0 = x_max > 0
if x_max_gt_0:
    if ready: go()
>>> show("x[i] += f(y)\n")
x_i = x[i]
f_y = f(y)
x_i += f_y
x[i] = x_i
>>> show("return torch.cat([a, f(b)])\n", local={"a", "b"})
f_b = f(b)
cat_value = torch.cat([a, f_b])
return cat_value

A statement that breaks is normalized, so that only the operation which broke is left to
Python and all the others are still traced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import libcst as cst

from srcjit.origin import Origins
from srcjit.passes.assignments import Assignments
from srcjit.passes.branches import Arm
from srcjit.passes.namer import Namer
from srcjit.passes.operands import (
    COMPOSITE,
    PLAIN,
    Statement,
    kind_of,
    space,
)


def normalize(
    statement: Statement,
    namer: Namer,
    origins: Origins,
    *,
    local: Collection[str] | None = None,
    unstable: Collection[str] = (),
    stable: Callable[[cst.BaseExpression], bool] | None = None,
    whole: cst.GeneratorExp | None = None,
) -> list[Statement]:
    """Puts one statement into A-normal form.

    Of a compound statement only the header is (the test, the iterable, the items of a `with`);
    its blocks are left as they are. Comprehensions, lambdas and nested definitions are one
    operation each.

    Args:
        statement: A statement of a function.
        namer: Makes the names of intermediate values; it knows the names of the function.
        origins: Takes the origins of what is made.
        local: Names that are local to the function, if that is known. What is called by a
            dotted name whose root is not local, as `torch.sin` is, may stay in place.
        unstable: Names whose reading may fail, or which what is called may bind anew: they
            are read where Python reads them. Other names may be read a little later.
        stable: Tells of a dotted name that reading it later in the statement is no
            difference. It replaces the rule for `local`.
        whole: A generator expression that stays where it is if it is all that a call is
            given: its items cannot be computed ahead of the call.

    Returns:
        Statements that do the same. If `statement` is in normal form already, it is the only
        one, and the same object.
    """
    if isinstance(statement, cst.SimpleStatementLine):
        return _normalize_line(
            statement,
            lambda: Normalizer(namer, origins, local, unstable, stable, whole),
        )
    handler = _COMPOUND.get(type(statement))
    if handler is None:
        return [statement]
    normalizer = Normalizer(namer, origins, local, unstable, stable, whole)
    if handler(normalizer, statement) is None:
        return [statement]
    return _with_comments(normalizer.out, statement, origins)


def _normalize_line(
    line: cst.SimpleStatementLine, make: Callable[[], Normalizer]
) -> list[Statement]:
    made: list[Statement] = []
    changed = False
    for small in line.body:
        normalizer = make()
        handler = _SIMPLE.get(type(small))
        if handler is not None and handler(normalizer, small) is not None:
            changed = True
            made += normalizer.out
        else:
            alone = cst.SimpleStatementLine(
                [small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]
            )
            made.append(normalizer.origins.inherit(alone, small))  # type: ignore[arg-type]
    if not changed:
        return [line]
    made = _with_comments(made, line, normalizer.origins)
    if isinstance(made[-1], cst.SimpleStatementLine):
        made[-1] = normalizer.changed(
            made[-1], trailing_whitespace=line.trailing_whitespace
        )
    return made


def _with_comments(
    made: list[Statement], user: Any, origins: Origins
) -> list[Statement]:
    """Gives the first statement the comments that stand before the user's."""
    if user.leading_lines and made:
        first = made[0].with_changes(leading_lines=user.leading_lines)
        origins.inherit(first, made[0])
        made[0] = first
    return made


class Normalizer(Assignments):
    """Normalizes statements.

    A handler returns None if there is nothing to do; otherwise it emits all of the statement.
    """

    # ── Simple statements ───────────────────────────────────────────────────────────

    def expression(self, node: cst.Expr) -> bool | None:
        """`f(g(x))`."""
        if self.is_atom(node.value):
            return None
        value = self.simple(node.value)
        if value is node.value:
            return None
        if kind_of(value) != PLAIN:
            self.emit(self.changed(node, value=value, semicolon=_DEFAULT), node)
        return True

    def returned(self, node: cst.Return) -> bool | None:
        """`return f(x)`."""
        if node.value is None or self.is_atom(node.value):
            return None
        value = self.atom(node.value)
        self.emit(cst.Return(value, whitespace_after_return=space()), node)
        return True

    def raised(self, node: cst.Raise) -> bool | None:
        """`raise f(x) from g(y)`.

        What is raised has no variable: the frame of one that had would hold the exception
        that holds the frame, and all its variables would wait for the garbage collector.
        """
        if isinstance(node.exc, cst.Call) and (
            node.cause is None or self.is_atom(node.cause.item)
        ):
            value = self.simple(node.exc)
            if value is node.exc:
                return None
            self.emit(node.with_changes(exc=value, semicolon=_DEFAULT), node)
            return True
        parts = [part for part in (node.exc, node.cause and node.cause.item) if part]
        if self.is_atom(*parts):
            return None
        exc, *cause = self.operands(parts)
        origin = cst.From(cause[0], space(), space()) if cause else None
        self.emit(cst.Raise(exc, origin, whitespace_after_raise=space()), node)
        return True

    def asserted(self, node: cst.Assert) -> bool | None:
        """`assert f(x), message`: the message is evaluated only when the test fails."""
        test = node.test
        while isinstance(test, cst.UnaryOperation) and isinstance(
            test.operator, cst.Not
        ):
            test = test.expression
        if self.is_atom(test) or not __debug__:
            return None
        test = self._test(node.test, node)
        changes = {
            "test": test,
            "whitespace_after_assert": space(),
            "semicolon": _DEFAULT,
        }
        self.emit(node.with_changes(**changes), node)
        return True

    def _test(self, test: cst.BaseExpression, user: cst.CSTNode) -> cst.BaseExpression:
        """Returns a plain operand, or `not` of one, with the truth of `test`."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            inner = self._test(test.expression, user)
            return cst.UnaryOperation(cst.Not(space()), inner)
        compound = isinstance(test, cst.BooleanOperation | cst.IfExp)
        if compound or (isinstance(test, cst.Comparison) and len(test.comparisons) > 1):
            return self._flag(test, user)
        return self.atom(test)

    # ── Headers of compound statements ──────────────────────────────────────────────

    def conditional(self, node: cst.If) -> bool | None:
        """`if f(x): …`."""
        if _is_plain_test(node.test):
            return None
        orelse = node.orelse
        other = None
        if orelse is not None:
            suite = orelse.body if isinstance(orelse, cst.Else) else None
            other = Arm(
                lambda: self.out.append(orelse),  # type: ignore[arg-type]
                suite=suite,
                orelse=orelse,
            )
        self.branch(node.test, Arm(_nothing, suite=node.body), other, node)
        return True

    def while_loop(self, node: cst.While) -> bool | None:
        """`while f(x): …` becomes `while True: …; if not t: break`."""
        if _is_plain_test(node.test):
            return None
        finished = self.namer.fresh("finished") if node.orelse is not None else None

        def leave() -> None:
            if finished is not None:
                self.assign(finished, cst.Name("True"), node)
            self.emit(cst.Break(), node)

        def run() -> None:
            test = self._test(node.test, node)
            self._leaf(test, None, Arm(leave), node)

        header = self.block(run, node.test)
        if isinstance(node.body, cst.IndentedBlock):
            block = node.body.with_changes(body=[*header.body, *node.body.body])
        else:
            simple = cst.SimpleStatementLine(node.body.body)  # type: ignore[arg-type]
            self.origins.inherit(simple, node.body)
            block = cst.IndentedBlock([*header.body, simple])
        if finished is not None:
            self.assign(finished, cst.Name("False"), node)
        self.emit(cst.While(cst.Name("True"), block), node)
        if finished is not None:
            assert node.orelse is not None
            self.emit(cst.If(cst.Name(finished), node.orelse.body), node.orelse)
        return True

    def for_loop(self, node: cst.For) -> bool | None:
        """`for i in f(x): …`."""
        if self.is_atom(node.iter):
            return None
        iterable = self.atom(node.iter)
        changes = {
            "iter": iterable,
            "whitespace_after_in": space(),
            "leading_lines": (),
        }
        self.emit(node.with_changes(**changes), node)
        return True

    def with_block(self, node: cst.With) -> bool | None:
        """`with f(g(x)) as y, h(y): …`: one `with` for each item that is taken apart."""
        if all(_is_simple_item(item.item) for item in node.items):
            return None
        first, *others = node.items
        value = self.simple(first.item)
        item = cst.WithItem(value, first.asname)
        self.origins.inherit(item, first)
        body: cst.BaseSuite = node.body
        if others:
            inner = node.with_changes(items=others, leading_lines=(), lpar=_DEFAULT)
            inner = inner.with_changes(rpar=_DEFAULT)
            self.origins.inherit(inner, node)

            def run() -> None:
                if self.with_block(inner) is None:
                    self.out.append(inner)

            body = self.block(run, node)
        self.emit(cst.With([item], body, asynchronous=node.asynchronous), node)
        return True

    def match_block(self, node: cst.Match) -> bool | None:
        """`match f(x): …`."""
        if self.is_atom(node.subject):
            return None
        subject = self.atom(node.subject)
        changes = {
            "subject": subject,
            "whitespace_after_match": space(),
            "leading_lines": (),
        }
        self.emit(node.with_changes(**changes), node)
        return True


_DEFAULT = cst.MaybeSentinel.DEFAULT


def _nothing() -> None:
    pass


def _is_plain_test(test: cst.BaseExpression) -> bool:
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test = test.expression
    return kind_of(test) != COMPOSITE


def _is_simple_item(item: cst.BaseExpression) -> bool:
    """Tells whether the item of a `with` is one operation."""
    if kind_of(item) != COMPOSITE:
        return True
    if not isinstance(item, cst.Call):
        return False
    parts = [item.func, *(arg.value for arg in item.args)]
    return all(kind_of(part) != COMPOSITE for part in parts)


_SIMPLE: dict[type, Callable[[Normalizer, Any], bool | None]] = {
    cst.Expr: Normalizer.expression,
    cst.Assign: Normalizer.assignment,
    cst.AugAssign: Normalizer.augmented,
    cst.AnnAssign: Normalizer.annotated,
    cst.Return: Normalizer.returned,
    cst.Raise: Normalizer.raised,
    cst.Assert: Normalizer.asserted,
    cst.Del: Normalizer.deleted,
}

_COMPOUND: dict[type, Callable[[Normalizer, Any], bool | None]] = {
    cst.If: Normalizer.conditional,
    cst.While: Normalizer.while_loop,
    cst.For: Normalizer.for_loop,
    cst.With: Normalizer.with_block,
    cst.Match: Normalizer.match_block,
}
