"""Short-circuit operators, conditional expressions and f-strings as statements.

    v = a and f(b) or c    ->    value = a
                                 test = False
                                 if value:
                                     value = f(b)
                                     if value:
                                         test = True
                                 if not test:
                                     value = c
                                 v = value

    if a and f(b): s()     ->    if a:
                                     f_b = f(b)
                                     if f_b:
                                         s()

The truth of each operand is asked for exactly as often as this version of Python does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from srcjit.passes.clone import clone, on_one_line
from srcjit.passes.hints import hint
from srcjit.passes.operands import (
    COMPOSITE,
    DOTTED,
    PLAIN,
    Operands,
    bare,
    compared,
    kind_of,
    space,
)
from srcjit.passes.scopes import reads, spelled_debug_text, writes


@dataclass
class Arm:
    """What an `if` does on one side.

    Attributes:
        run: Emits the statements.
        small: It may be written twice.
        suite: A block that can be used as it is.
        orelse: An `else` or `elif` that can be used as it is.
    """

    run: Callable[[], None]
    small: bool = False
    suite: cst.BaseSuite | None = None
    orelse: cst.If | cst.Else | None = None


class _Falsy:
    """Counts how often it is asked for its truth."""

    asked = 0

    def __bool__(self) -> bool:
        self.asked += 1
        return False


def _asks_once() -> bool:
    operand = _Falsy()
    _ = (operand and operand) and operand
    return operand.asked == 1


REMEMBERS_TRUTH = _asks_once()
"""Whether `(a and b) and c` asks a false `a` once. Python 3.12 and 3.13 ask for the truth of the
value `a and b` again."""


def is_one_chain(node: cst.BooleanOperation, part: cst.BaseExpression) -> bool:
    """Tells whether `part`, an operand of `node`, belongs to the same `a and b and …`."""
    return (
        isinstance(part, cst.BooleanOperation)
        and part is node.left
        and not part.lpar
        and type(part.operator) is type(node.operator)
    )


def _chain_operands(node: cst.BooleanOperation) -> list[cst.BaseExpression]:
    """Returns the operands of a chain of `and` (or of `or`)."""
    made: list[cst.BaseExpression] = []
    for part in (node.left, node.right):
        nested = isinstance(part, cst.BooleanOperation) and (
            is_one_chain(node, part)
            or (REMEMBERS_TRUTH and type(part.operator) is type(node.operator))
        )
        made += _chain_operands(part) if nested else [part]  # type: ignore[arg-type]
    return made


class Branches(Operands):
    """`Operands` for what is evaluated only under a condition."""

    # ── Conditions ──────────────────────────────────────────────────────────────────

    def branch(
        self,
        test: cst.BaseExpression,
        then: Arm | None,
        orelse: Arm | None,
        user: cst.CSTNode,
    ) -> None:
        """Emits an `if` on `test`, which asks for the truth of its parts as Python does.

        Args:
            test: The condition.
            then: What to do if it is true; None for nothing.
            orelse: What to do if it is false; None for nothing.
            user: The statement or expression that this is for.
        """
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            self.branch(test.expression, orelse, then, user)
        elif isinstance(test, cst.BooleanOperation):
            self._branch_boolean(test, then, orelse, user)
        elif isinstance(test, cst.Comparison) and len(test.comparisons) > 1:
            self._branch_chain(test, then, orelse, user)
        elif isinstance(test, cst.IfExp):
            flag = self._flag(test, user)
            self._leaf(flag, then, orelse, user)
        else:
            self._leaf(self.atom(test), then, orelse, user)

    def _leaf(
        self,
        test: cst.BaseExpression,
        then: Arm | None,
        orelse: Arm | None,
        user: cst.CSTNode,
    ) -> None:
        if then is None:
            if orelse is None:
                self.emit(cst.If(test, cst.IndentedBlock([_pass()])), user)
                return
            then, orelse = Arm(orelse.run, orelse.small, orelse.suite), None
            test = cst.UnaryOperation(cst.Not(space()), test)
        body = then.suite or self.block(then.run, user)
        other = None
        if orelse is not None:
            other = orelse.orelse or cst.Else(
                orelse.suite or self.block(orelse.run, user)
            )
        test = on_one_line(
            test if isinstance(test, cst.Tuple) else bare(test), self.origins
        )
        self.emit(cst.If(test, body, other), user)

    def _setter(self, flag: str, user: cst.CSTNode) -> Arm:
        return Arm(lambda: self.assign(flag, cst.Name("True"), user), small=True)

    def _flag(self, test: cst.BaseExpression, user: cst.CSTNode) -> cst.Name:
        """Emits statements that leave the truth of `test` in a new variable."""
        flag = self.namer.fresh("test")
        self.assign(flag, cst.Name("False"), user)
        setter = self._setter(flag, user)
        if isinstance(test, cst.IfExp):
            self.branch(
                test.test,
                Arm(lambda: self.branch(test.body, setter, None, user)),
                Arm(lambda: self.branch(test.orelse, setter, None, user)),
                user,
            )
        else:
            self.branch(test, setter, None, user)
        return self.named(flag, user)

    def _branch_boolean(
        self,
        test: cst.BooleanOperation,
        then: Arm | None,
        orelse: Arm | None,
        user: cst.CSTNode,
    ) -> None:
        both = isinstance(test.operator, cst.And)
        # `a and b` runs `orelse` from two places, `a or b` runs `then` from two.
        twice = orelse if both else then
        if twice is not None and not twice.small:
            self._leaf(self._flag(test, user), then, orelse, user)
            return
        inner = Arm(lambda: self.branch(test.right, then, orelse, user))
        if both:
            self.branch(test.left, inner, orelse, user)
        else:
            self.branch(test.left, then, inner, user)

    def _branch_chain(
        self,
        test: cst.Comparison,
        then: Arm | None,
        orelse: Arm | None,
        user: cst.CSTNode,
    ) -> None:
        """Branches on `a < b < c`, where `c` is evaluated only if `a < b`."""
        if orelse is not None and not orelse.small:
            self._leaf(self._flag(test, user), then, orelse, user)
            return
        left, first, rest = self._chain_start(test)
        value = self.saved(compared(left, test.comparisons[0].operator, first), test)
        if rest is not None:
            after, inner = rest, then
            then = Arm(lambda: self.branch(after, inner, orelse, user))
        self._leaf(value, then, orelse, user)

    # ── Values ──────────────────────────────────────────────────────────────────────

    def _chain_value(self, name: str, node: cst.Comparison) -> None:
        """Emits `name = a < b < c`, where `c` is evaluated only if `a < b`."""
        left, first, rest = self._chain_start(node)
        self.assign(name, compared(left, node.comparisons[0].operator, first), node)
        if rest is not None:
            again = self._chain_value
            block = self.block(lambda: again(name, rest), node)
            self.emit(cst.If(cst.Name(name), block), node)

    def _chain_start(
        self, node: cst.Comparison
    ) -> tuple[cst.BaseExpression, cst.BaseExpression, cst.Comparison | None]:
        """Evaluates the first two operands; returns them and the rest of the chain."""
        target, *others = node.comparisons
        left, first = self.operands([node.left, target.comparator])
        if not others:
            return left, first, None
        made = kind_of(first) != PLAIN or isinstance(
            first, cst.Tuple | cst.List | cst.Dict
        )
        if made or any(
            reads(first) & (writes(later.comparator) | self.unstable)
            for later in others
        ):
            # It is used twice but evaluated once, and behind what is left of it.
            if kind_of(left) == DOTTED or reads(left) & self.unstable:
                left = self.saved(left, node)
            first = self.saved(first, target.comparator)
        again = clone(first, self.origins)
        rest = cst.Comparison(again, others)
        self.origins.inherit(rest, node)
        return left, first, rest

    def _comparison(self, node: cst.Comparison) -> cst.BaseExpression:
        if len(node.comparisons) == 1:
            return super()._comparison(node)
        name = self.namer.fresh(hint(node))
        self._chain_value(name, node)
        return self.named(name, node)

    def _conditional(self, node: cst.IfExp) -> cst.BaseExpression:
        name = self.namer.fresh(hint(node))
        self.into(name, node)
        return self.named(name, node)

    def _boolean(self, node: cst.BooleanOperation) -> cst.BaseExpression:
        name = self.namer.fresh(hint(node))
        self.into(name, node)
        return self.named(name, node)

    def into(self, name: str, expression: cst.BaseExpression) -> None:
        """Emits the assignment of the value of `expression` to `name`.

        NOTE: for `and` and `or`, `name` holds intermediate values, too, so it must be one that
        nobody else sees.
        """
        if isinstance(expression, cst.IfExp):
            self.branch(
                expression.test,
                Arm(lambda: self.into(name, expression.body)),
                Arm(lambda: self.into(name, expression.orelse)),
                expression,
            )
        elif isinstance(expression, cst.BooleanOperation):
            kind = type(expression.operator)
            parts = _chain_operands(expression)
            self._boolean_into(name, kind, parts, expression, None)
        else:
            self.assign(name, self.simple(expression), expression)

    def _boolean_into(
        self,
        name: str,
        kind: type[cst.BaseBooleanOp],
        parts: Sequence[cst.BaseExpression],
        user: cst.CSTNode,
        truth: str | None,
    ) -> None:
        """Emits `name = a and b and …`, and `truth = bool(name)` if that is asked for."""
        first, *others = parts
        known = truth if not others else None
        if others and isinstance(first, cst.BooleanOperation) and REMEMBERS_TRUTH:
            known = truth or self.namer.fresh("test")
        if known is not None:
            self._value_and_truth(name, first, known, user)
        else:
            self.into(name, first)
        if not others:
            return
        both = kind is cst.And
        if truth is not None and known is None:
            self.assign(truth, cst.Name("False" if both else "True"), user)
        rest = Arm(lambda: self._boolean_into(name, kind, others, user, truth))
        test = cst.Name(known or name)
        self._leaf(test, rest if both else None, None if both else rest, user)

    def _value_and_truth(
        self, name: str, expression: cst.BaseExpression, truth: str, user: cst.CSTNode
    ) -> None:
        if isinstance(expression, cst.BooleanOperation):
            kind = type(expression.operator)
            parts = _chain_operands(expression)
            self._boolean_into(name, kind, parts, user, truth)
            return
        self.into(name, expression)
        self.assign(truth, cst.Name("False"), user)
        self._leaf(cst.Name(name), self._setter(truth, user), None, user)

    # ── f-strings ───────────────────────────────────────────────────────────────────

    def _formatted(self, node: Any) -> cst.BaseExpression:
        """Takes the values of an f-string out.

        Each is formatted before the next is evaluated, so what stands before an operation
        that is taken out is formatted apart.
        """
        parts = list(_format_parts(node))
        last = max(
            (
                i
                for i, (part, _) in enumerate(parts)
                if _kind_of_part(part) == COMPOSITE
            ),
            default=-1,
        )
        if last < 0:
            return node  # type: ignore[no-any-return]
        new: dict[cst.CSTNode, Any] = {}
        for number, (part, string) in enumerate(parts[: last + 1]):
            made = self._format_part(part, string)
            if number < last:
                alone = cst.FormattedString(made, string.start, string.end)
                made = [cst.FormattedStringExpression(self.saved(alone, part))]
            if made != [part]:
                new[part] = made
        return clone(node, self.origins, new)  # type: ignore[no-any-return]

    def _format_part(
        self, part: cst.FormattedStringExpression, string: cst.FormattedString
    ) -> list[cst.BaseFormattedStringContent]:
        inner = [p for p in part.format_spec or () if isinstance(p, _FORMATTED)]
        values = self.operands([part.expression, *(p.expression for p in inner)])
        value, *specs = values
        if all(map(lambda a, b: a is b.expression, values, [part, *inner])):
            return [part]
        new: dict[cst.CSTNode, Any] = {
            p.expression: v for p, v in zip(inner, specs, strict=True)
        }
        spec = part.format_spec
        if spec is not None:
            spec = [clone(p, self.origins, new) for p in spec]
        if part.equal is not None and value is not part.expression:
            text, changed = spelled_debug_text(part, string, value)
            return [text, changed.with_changes(format_spec=spec)]
        brace = isinstance(value, cst.Dict)
        before = space(" " if brace else "")
        return [
            part.with_changes(
                expression=value, format_spec=spec, whitespace_before_expression=before
            )
        ]


_FORMATTED = cst.FormattedStringExpression


def _format_parts(
    node: cst.CSTNode,
) -> list[tuple[cst.FormattedStringExpression, cst.FormattedString]]:
    if isinstance(node, cst.ConcatenatedString):
        return [*_format_parts(node.left), *_format_parts(node.right)]
    if isinstance(node, cst.FormattedString):
        return [(part, node) for part in node.parts if isinstance(part, _FORMATTED)]
    return []


def _kind_of_part(part: cst.FormattedStringExpression) -> int:
    inner = [p.expression for p in part.format_spec or () if isinstance(p, _FORMATTED)]
    return max(map(kind_of, [part.expression, *inner]))


def _pass() -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([cst.Pass()])


Branches.handlers = Operands.handlers | {
    cst.Comparison: Branches._comparison,
    cst.IfExp: Branches._conditional,
    cst.BooleanOperation: Branches._boolean,
    cst.FormattedString: Branches._formatted,
    cst.ConcatenatedString: Branches._formatted,
}
