r"""A-normal form: one operation a statement, in Python's own order of evaluation.

>>> from srcjit.origin import Origins
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
from srcjit.passes.branches import Arm, Branches
from srcjit.passes.clone import clone
from srcjit.passes.hints import hint
from srcjit.passes.namer import Namer
from srcjit.passes.operands import (
    COMPOSITE,
    PLAIN,
    Statement,
    kind_of,
    slice_parts,
    space,
)
from srcjit.passes.scopes import reads, writes


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


class Normalizer(Branches):
    """Normalizes statements.

    A handler returns None if there is nothing to do; otherwise it emits all of the statement.
    """

    def _is_atom(self, *expressions: cst.BaseExpression | None) -> bool:
        return all(e is None or kind_of(e) != COMPOSITE for e in expressions)

    # ── Simple statements ───────────────────────────────────────────────────────────

    def expression(self, node: cst.Expr) -> bool | None:
        """`f(g(x))`."""
        if self._is_atom(node.value):
            return None
        value = self.simple(node.value)
        if value is node.value:
            return None
        if kind_of(value) != PLAIN:
            self.emit(self.changed(node, value=value, semicolon=_DEFAULT), node)
        return True

    def assignment(self, node: cst.Assign) -> bool | None:
        """`a = b[i] = f(g(x))`: the value, then the targets from left to right."""
        if len(node.targets) > 1:
            value = self.atom(node.value)
            bound = set().union(*(writes(_bound(t.target)) for t in node.targets))
            repeatable = isinstance(value, cst.Name | cst.BaseNumber | cst.SimpleString)
            if not repeatable or reads(value) & (bound | self.unstable):
                value = self.saved(value, node.value)
            for assigned in node.targets:
                one = cst.Assign([assigned], clone(value, self.origins))
                if self.assignment(one) is None:
                    self.emit(one, node)
            return True
        target: Any = node.targets[0].target
        if isinstance(target, cst.Name):
            value = self.simple(node.value)
            if value is node.value:
                return None
            self.assign(target.value, value, node)
            return True
        if isinstance(target, cst.Tuple | cst.List):
            return self._unpacking(node, target)
        return self._store(node, target)

    def _unpacking(self, node: cst.Assign, target: cst.Tuple | cst.List) -> bool | None:
        value = self.atom(node.value)
        if _only_names(target):
            if value is node.value:
                return None
            self.emit(cst.Assign(node.targets, value), node)
            return True
        # All elements are unpacked before the first is stored.
        names = []
        elements = []
        for element in target.elements:
            name = self.namer.fresh(_target_hint(element.value))
            names.append(name)
            elements.append(element.with_changes(value=cst.Name(name)))
        unpacked = cst.AssignTarget(target.with_changes(elements=elements))
        self.emit(cst.Assign([unpacked], value), node)
        stored: Any
        for stored, name in zip(target.elements, names, strict=True):
            inner = cst.Assign(
                [cst.AssignTarget(stored.value)], self.named(name, stored)
            )
            if self.assignment(inner) is None:
                self.emit(inner, stored)
        return True

    def _store(self, node: cst.Assign, target: Any) -> bool | None:
        parts = _target_parts(target)
        value, *made = self.operands([node.value, *parts])
        new = self._with_target_parts(target, made)
        if value is node.value and new is target:
            return None
        self.emit(cst.Assign([cst.AssignTarget(new)], value), node)
        return True

    def _with_target_parts(self, target: Any, parts: list[cst.BaseExpression]) -> Any:
        if isinstance(target, cst.Attribute):
            return self.changed(target, value=parts[0])
        return self.with_parts(target, parts[0], parts[1:])

    def augmented(self, node: cst.AugAssign) -> bool | None:
        """`x[i] += f(y)`: the target is evaluated once and read before the value."""
        target: Any = node.target
        if isinstance(target, cst.Name):
            return self._augmented_name(node, target)
        parts = _target_parts(target)
        simple = kind_of(node.value) == PLAIN
        if simple and self._is_atom(*parts):
            return None
        made = self.operands(parts)
        # The parts are used twice: to read and to store.
        made = [
            part if self._is_same_later(part, node.value) else self.saved(part, part)
            for part in made
        ]
        place = self._with_target_parts(target, made)
        if simple:
            self.emit(self.changed(node, target=place, semicolon=_DEFAULT), node)
            return True
        old = self.saved(place, target)
        value = self.atom(node.value)
        self.emit(cst.AugAssign(old, node.operator, value), node)
        again = clone(place, self.origins)
        self.emit(
            cst.Assign([cst.AssignTarget(again)], self.named(old.value, target)), node
        )
        return True

    def _is_same_later(
        self, part: cst.BaseExpression, value: cst.BaseExpression
    ) -> bool:
        if isinstance(part, cst.BaseNumber | cst.SimpleString):
            return True
        read = reads(part)
        return isinstance(part, cst.Name) and not read & (writes(value) | self.unstable)

    def _augmented_name(self, node: cst.AugAssign, target: cst.Name) -> bool | None:
        if self._is_atom(node.value):
            return None
        name = target.value
        if name in writes(node.value) or name in self.unstable:
            old = self.saved(target, target)
            value = self.atom(node.value)
            self.emit(cst.AugAssign(old, node.operator, value), node)
            self.assign(name, self.named(old.value, target), node)
        else:
            value = self.atom(node.value)
            self.emit(cst.AugAssign(target, node.operator, value), node)
        return True

    def annotated(self, node: cst.AnnAssign) -> bool | None:
        """`x: T = f(g(x))`; the annotation is not evaluated in a function."""
        if node.value is None:
            return None
        if not isinstance(node.target, cst.Name):
            plain = cst.Assign([cst.AssignTarget(node.target)], node.value)
            if self._store(plain, node.target) is None:
                return None
            return True
        value = self.simple(node.value)
        if value is node.value:
            return None
        self.emit(self.changed(node, value=value, semicolon=_DEFAULT), node)
        return True

    def returned(self, node: cst.Return) -> bool | None:
        """`return f(x)`."""
        if node.value is None or self._is_atom(node.value):
            return None
        value = self.atom(node.value)
        self.emit(cst.Return(value, whitespace_after_return=space()), node)
        return True

    def raised(self, node: cst.Raise) -> bool | None:
        """`raise f(x) from g(y)`."""
        parts = [part for part in (node.exc, node.cause and node.cause.item) if part]
        if self._is_atom(*parts):
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
        if self._is_atom(test) or not __debug__:
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

    def deleted(self, node: cst.Del) -> bool | None:
        """`del x, y[f(z)]`: one after the other."""
        target: Any = node.target
        if isinstance(target, cst.Tuple | cst.List):
            if all(_is_deletable(element.value) for element in target.elements):
                return None
            for element in target.elements:
                one = cst.Del(element.value)  # type: ignore[arg-type]
                if self.deleted(one) is None:
                    self.emit(one, node)
            return True
        if _is_deletable(target):
            return None
        new = self._with_target_parts(target, self.operands(_target_parts(target)))
        if new is target:
            return None
        self.emit(cst.Del(new, whitespace_after_del=space()), node)
        return True

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
        if self._is_atom(node.iter):
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
        if self._is_atom(node.subject):
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


def _bound(target: cst.CSTNode) -> cst.CSTNode:
    """Returns a statement that binds what `target` binds."""
    return cst.Assign([cst.AssignTarget(target)], cst.Ellipsis())  # type: ignore[arg-type]


def _only_names(target: cst.CSTNode) -> bool:
    if isinstance(target, cst.Tuple | cst.List):
        return all(_only_names(element.value) for element in target.elements)
    return isinstance(target, cst.Name)


def _target_hint(target: cst.BaseExpression) -> str:
    return "items" if isinstance(target, cst.Tuple | cst.List) else hint(target)


def _target_parts(target: Any) -> list[cst.BaseExpression]:
    if isinstance(target, cst.Attribute):
        return [target.value]
    return [target.value, *slice_parts(target)]


def _is_deletable(target: Any) -> bool:
    if isinstance(target, cst.Name):
        return True
    if isinstance(target, cst.Tuple | cst.List):
        return all(_is_deletable(element.value) for element in target.elements)
    return all(kind_of(part) != COMPOSITE for part in _target_parts(target))


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
