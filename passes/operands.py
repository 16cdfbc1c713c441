"""Takes an expression apart: every operation but the last becomes a statement of its own.

    f(x, g(y)[0])    ->    g_y = g(y)
                           g_y_0 = g_y[0]
                           and what is left of it: f(x, g_y_0)

The order is Python's own. Operands are sorted into three kinds:

- *plain*: constants, names, tuple and list displays of such. They stay where they are, except
  for a name that a later operand binds anew.
- *dotted*: `a.b.c`, and displays that hold one. Reading an attribute may run code, so it may
  stay only where no operation is taken out behind it.
- *composite*: everything else. It is taken out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

import libcst as cst

from srcjit.origin import Origins
from srcjit.passes.clone import on_one_line
from srcjit.passes.hints import hint
from srcjit.passes.namer import Namer
from srcjit.passes.scopes import reads, writes

PLAIN, DOTTED, COMPOSITE = range(3)

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement


def space(word: str = " ") -> cst.SimpleWhitespace:
    """Returns white space."""
    return cst.SimpleWhitespace(word)


def bare(expression: Any) -> Any:
    """Returns `expression` without parentheses around it, where they can go."""
    if isinstance(expression, cst.BaseExpression) and getattr(expression, "lpar", None):
        if isinstance(expression, cst.GeneratorExp | cst.Yield | cst.NamedExpr):
            return expression
        if isinstance(expression, cst.Tuple) and not expression.elements:
            return expression
        return expression.with_changes(lpar=(), rpar=())
    return expression


def closed(expression: cst.BaseExpression) -> cst.BaseExpression:
    """Returns `expression` as it can be a part of any other."""
    if isinstance(expression, cst.Name) or expression.lpar:
        return expression
    return expression.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def kind_of(expression: cst.CSTNode) -> int:
    """Sorts an expression into plain, dotted and composite."""
    if isinstance(
        expression, cst.Name | cst.BaseNumber | cst.SimpleString | cst.Ellipsis
    ):
        return PLAIN
    if isinstance(expression, cst.Attribute):
        return DOTTED if kind_of_root(expression.value) else COMPOSITE
    if isinstance(expression, cst.UnaryOperation):
        number = isinstance(expression.expression, cst.BaseNumber)
        return (
            PLAIN
            if number and not isinstance(expression.operator, cst.Not)
            else COMPOSITE
        )
    if isinstance(expression, cst.Tuple | cst.List):
        if any(isinstance(e, cst.StarredElement) for e in expression.elements):
            return COMPOSITE
        return max((kind_of(e.value) for e in expression.elements), default=PLAIN)
    if isinstance(expression, cst.Dict):
        return _kind_of_dict(expression)
    if isinstance(expression, cst.ConcatenatedString):
        return max(kind_of(expression.left), kind_of(expression.right))
    if isinstance(expression, cst.Lambda):
        defaults = (p.default for p in lambda_parameters(expression) if p.default)
        return max((kind_of(default) for default in defaults), default=PLAIN)
    return COMPOSITE


def kind_of_root(expression: cst.CSTNode) -> bool:
    """Tells whether `expression` is a name or the like, or attributes of one."""
    while isinstance(expression, cst.Attribute):
        expression = expression.value
    return kind_of(expression) == PLAIN


def lambda_parameters(node: cst.Lambda) -> list[cst.Param]:
    """Returns the parameters that may have defaults."""
    given = node.params
    return [*given.posonly_params, *given.params, *given.kwonly_params]


def _kind_of_dict(expression: cst.Dict) -> int:
    kind = PLAIN
    for element in expression.elements:
        # Other keys than constants run a `__hash__`.
        if not isinstance(element, cst.DictElement) or not isinstance(
            element.key, cst.BaseNumber | cst.SimpleString
        ):
            return COMPOSITE
        kind = max(kind, kind_of(element.value))
    return kind


class Operands:
    """Emits the statements that compute the operands of expressions.

    Attributes:
        out: The statements so far.
        namer: Makes the names of intermediate values.
        origins: Takes the origins of what is made.
        local: Names that are local to the function; None if that is not known.
        unstable: Names whose reading may fail, or which calls may bind anew.
        stable: Tells that a dotted name may as well be read later.
        handlers: The method that takes an expression apart, by type.
    """

    handlers: ClassVar[dict[type, Callable[[Any, Any], Any]]] = {}

    def __init__(
        self,
        namer: Namer,
        origins: Origins,
        local: Collection[str] | None = None,
        unstable: Collection[str] = (),
        stable: Callable[[cst.BaseExpression], bool] | None = None,
        whole: cst.GeneratorExp | None = None,
    ) -> None:
        self.out: list[Statement] = []
        self.namer = namer
        self.origins = origins
        self.local = local
        self.unstable = frozenset(unstable)
        self.stable = stable
        self.whole = whole

    # ── Emitting ────────────────────────────────────────────────────────────────────

    def emit(self, statement: cst.CSTNode, user: cst.CSTNode) -> None:
        """Adds a statement that stands for the node `user` of the program."""
        if isinstance(statement, cst.BaseSmallStatement):
            statement = cst.SimpleStatementLine([statement])
        self.origins.inherit(statement, user)
        self.out.append(statement)  # type: ignore[arg-type]

    def assign(self, name: str, value: cst.BaseExpression, user: cst.CSTNode) -> None:
        """Emits `name = value`."""
        value = on_one_line(bare(value), self.origins)
        if isinstance(value, cst.GeneratorExp) and not value.lpar:
            value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        target = cst.AssignTarget(cst.Name(name))
        self.emit(cst.Assign([target], value), user)

    def block(self, run: Callable[[], None], user: cst.CSTNode) -> cst.IndentedBlock:
        """Returns what `run` emits as a block."""
        outer, self.out = self.out, []
        run()
        made, self.out = self.out, outer
        body = cst.IndentedBlock(made or [cst.SimpleStatementLine([cst.Pass()])])
        self.origins.inherit(body, user)
        return body

    def named(self, name: str, user: cst.CSTNode) -> cst.Name:
        """Returns a use of a variable."""
        node = cst.Name(name)
        self.origins.inherit(node, user)
        return node

    def saved(self, value: cst.BaseExpression, user: cst.CSTNode) -> cst.Name:
        """Emits an assignment of `value` to a new variable; returns a use of that."""
        name = self.namer.fresh(hint(value))
        self.assign(name, value, user)
        return self.named(name, user)

    # ── Operands ────────────────────────────────────────────────────────────────────

    def atom(self, expression: cst.BaseExpression) -> cst.BaseExpression:
        """Takes a composite expression out; returns the variable that holds its value."""
        if kind_of(expression) != COMPOSITE:
            return expression
        value = self.simple(expression)
        if kind_of(value) == PLAIN:
            return value
        return self.saved(value, expression)

    def operands(
        self,
        parts: Sequence[cst.BaseExpression],
        stars: Sequence[str] = (),
        called: bool = False,
    ) -> list[cst.BaseExpression]:
        """Takes composite operands out, and with them whatever must be read before them.

        Args:
            parts: Operands in the order of evaluation.
            stars: `*`, `**` or nothing for each. What is unpacked is so at once: before the
                next operand is evaluated.
            called: The first operand is what is called.
        """
        kinds = [kind_of(part) for part in parts]
        last = max((i for i, kind in enumerate(kinds) if kind == COMPOSITE), default=-1)
        made: list[cst.BaseExpression] = []
        for number, part in enumerate(parts):
            later = parts[number + 1 : last + 1]
            if number > last:
                made.append(part)
            elif stars and stars[number] and later:
                value = self.atom(part)
                element: Any = cst.StarredElement(value)
                unpacked: cst.BaseExpression = cst.List([element])
                if stars[number] == "**":
                    unpacked = cst.Dict([cst.StarredDictElement(value)])
                made.append(self.saved(unpacked, part))
            elif kinds[number] == COMPOSITE:
                made.append(self._kept(self.atom(part), part, later))
            elif kinds[number] == DOTTED and not self._may_wait(
                part, called and not number
            ):
                made.append(self.saved(part, part))
            else:
                made.append(self._kept(part, part, later))
        return made

    def _kept(
        self,
        value: cst.BaseExpression,
        user: cst.CSTNode,
        later: Sequence[cst.BaseExpression],
    ) -> cst.BaseExpression:
        """Saves a plain `value` if what is evaluated later may bind a name that it reads."""
        if not later or isinstance(value, cst.BaseNumber | cst.SimpleString):
            return value
        read = reads(value)
        if isinstance(value, cst.Lambda):  # its body is read when it is called
            defaults = [p.default for p in lambda_parameters(value) if p.default]
            read = set().union(*map(reads, defaults))
        if read & self.unstable or any(read & writes(part) for part in later):
            return self.saved(value, user)
        return value

    def _may_wait(self, dotted: cst.BaseExpression, called: bool) -> bool:
        """Tells whether a dotted name may be read after the operands behind it."""
        if self.stable is not None:
            return self.stable(dotted)
        if not called or self.local is None:
            return False
        # What a module's function is called by: `torch.sin(f(x))`.
        return not reads(dotted) & set(self.local)

    # ── Expressions that become one operation ───────────────────────────────────────

    def simple(self, expression: cst.BaseExpression) -> cst.BaseExpression:
        """Takes the operands of `expression` out; returns the one operation that is left.

        Returns:
            `expression` itself if there is nothing to take out.
        """
        handler = self.handlers.get(type(expression))
        if handler is None or kind_of(expression) == PLAIN:
            return expression
        made: cst.BaseExpression = handler(self, expression)
        if made is not expression:
            self.origins.inherit(made, expression)
        return made

    def _attribute(self, node: cst.Attribute) -> cst.BaseExpression:
        value = self.atom(node.value)
        return node if value is node.value else node.with_changes(value=value)

    def _binary(self, node: cst.BinaryOperation) -> cst.BaseExpression:
        left, right = self.operands([node.left, node.right])
        return self.changed(node, left=left, right=right)  # type: ignore[no-any-return]

    def _unary(self, node: cst.UnaryOperation) -> cst.BaseExpression:
        value = self.atom(node.expression)
        if value is node.expression:
            return node
        sign = node.operator
        if isinstance(sign, cst.Not):
            sign = cst.Not(space())
        return node.with_changes(operator=sign, expression=value)

    def _comparison(self, node: cst.Comparison) -> cst.BaseExpression:
        target = node.comparisons[0]
        left, right = self.operands([node.left, target.comparator])
        if left is node.left and right is target.comparator:
            return node
        return compared(left, target.operator, right)

    def _call(self, node: cst.Call) -> cst.BaseExpression:
        called = node.func
        # A method is looked up before the arguments are evaluated.
        if isinstance(called, cst.Attribute) and kind_of(called) == COMPOSITE:
            value = self._kept(
                self.atom(called.value), called, [a.value for a in node.args]
            )
            called = self.changed(called, value=value)
        positional = [a for a in node.args if a.keyword is None and a.star != "**"]
        keywords = [a for a in node.args if a.keyword is not None or a.star == "**"]
        ordered = [*positional, *keywords]
        if self.whole and [arg.value for arg in node.args] == [self.whole]:
            func, iterable = self.operands([called, self.whole.for_in.iter], (), True)
            value = self._over(self.whole, iterable)
            args = [self.changed(node.args[0], value=value)]
            return self.changed(node, func=func, args=args)  # type: ignore[no-any-return]
        stars = ["", *(arg.star for arg in ordered)]
        if len(positional) == 1:
            stars[1] = ""  # `f(*a, k=b)` unpacks `a` last
        func, *values = self.operands(
            [called, *(a.value for a in ordered)], stars, True
        )
        new = dict(zip(ordered, values, strict=True))
        args = [self.changed(arg, value=new[arg]) for arg in node.args]
        return self.changed(node, func=func, args=args)  # type: ignore[no-any-return]

    def changed(self, node: Any, **changes: Any) -> Any:
        """Returns `node` with changes, or itself if they change nothing."""
        for name, new in changes.items():
            old = getattr(node, name)
            same = (
                len(old) == len(new) and all(map(operator.is_, old, new))
                if isinstance(new, list)
                else old is new
            )
            if not same:
                made = node.with_changes(**changes)
                self.origins.inherit(made, node)
                return made
        return node

    def _subscript(self, node: cst.Subscript) -> cst.BaseExpression:
        value, *parts = self.operands([node.value, *slice_parts(node)])
        return self.with_parts(node, value, parts)

    def with_parts(
        self,
        node: cst.Subscript,
        value: cst.BaseExpression,
        parts: list[cst.BaseExpression],
    ) -> cst.Subscript:
        """Returns `node` with another value and other `slice_parts`."""
        rest = iter(parts)
        elements = []
        for element in node.slice:
            here = element.slice
            if isinstance(here, cst.Index):
                made = self.changed(here, value=next(rest))
            else:
                ends = {
                    n: next(rest) for n in _SLICE_ENDS if getattr(here, n) is not None
                }
                made = self.changed(here, **ends)
            elements.append(self.changed(element, slice=made))
        return self.changed(node, value=value, slice=elements)  # type: ignore[no-any-return]

    def _display(self, node: cst.Tuple | cst.List | cst.Set) -> cst.BaseExpression:
        values = [element.value for element in node.elements]
        stars = [
            "*" if isinstance(element, cst.StarredElement) else ""
            for element in node.elements
        ]
        values = self.operands(values, stars)
        elements = [
            self.changed(element, value=value)
            for element, value in zip(node.elements, values, strict=True)
        ]
        return self.changed(node, elements=elements)  # type: ignore[no-any-return]

    def _dict(self, node: cst.Dict) -> cst.BaseExpression:
        parts: list[cst.BaseExpression] = []
        stars: list[str] = []
        for element in node.elements:
            if isinstance(element, cst.DictElement):
                parts.append(element.key)
                stars.append("")
            parts.append(element.value)
            stars.append("" if isinstance(element, cst.DictElement) else "**")
        values = iter(self.operands(parts, stars))
        elements = []
        for element in node.elements:
            if isinstance(element, cst.DictElement):
                made = self.changed(element, key=next(values), value=next(values))
            else:
                made = self.changed(element, value=next(values))
            elements.append(made)
        return self.changed(node, elements=elements)  # type: ignore[no-any-return]

    def _comprehension(self, node: Any) -> cst.BaseExpression:
        return self._over(node, self.atom(node.for_in.iter))

    def _over(self, node: Any, iterable: cst.BaseExpression) -> cst.BaseExpression:
        """Returns a comprehension over another first iterable."""
        first = node.for_in
        if iterable is first.iter:
            return node  # type: ignore[no-any-return]
        changed = first.with_changes(iter=iterable, whitespace_after_in=space())
        made = node.with_changes(for_in=changed)
        self.origins.inherit(made, node)
        return made  # type: ignore[no-any-return]

    def _named_expression(self, node: cst.NamedExpr) -> cst.BaseExpression:
        assert isinstance(node.target, cst.Name)
        name = node.target.value
        self.assign(name, self.simple(node.value), node)
        return self.named(name, node)

    def _await(self, node: cst.Await) -> cst.BaseExpression:
        value = self.atom(node.expression)
        if value is node.expression:
            return node
        return node.with_changes(expression=value, whitespace_after_await=space())

    def _yield(self, node: cst.Yield) -> cst.BaseExpression:
        given = node.value
        if given is None:
            return node
        inner = given.item if isinstance(given, cst.From) else given
        value = self.atom(inner)
        if value is inner:
            return node
        made: Any = value
        if isinstance(given, cst.From):
            made = given.with_changes(item=value, whitespace_after_from=space())
        return node.with_changes(value=made, whitespace_after_yield=space())


_SLICE_ENDS = ("lower", "upper", "step")


def slice_parts(node: cst.Subscript) -> list[cst.BaseExpression]:
    """Returns the expressions between the brackets in the order of evaluation."""
    parts: list[cst.BaseExpression] = []
    for element in node.slice:
        here = element.slice
        if isinstance(here, cst.Index):
            parts.append(here.value)
        else:
            ends = (getattr(here, name) for name in _SLICE_ENDS)
            parts += [end for end in ends if end is not None]
    return parts


def compared(
    left: cst.BaseExpression, operator: cst.BaseCompOp, right: cst.BaseExpression
) -> cst.Comparison:
    """Returns the comparison of two operands."""
    spaces = {
        name: space()
        for name in ("whitespace_before", "whitespace_after", "whitespace_between")
        if hasattr(operator, name)
    }
    return cst.Comparison(
        left, [cst.ComparisonTarget(operator.with_changes(**spaces), right)]
    )


Operands.handlers = {
    cst.Attribute: Operands._attribute,
    cst.BinaryOperation: Operands._binary,
    cst.UnaryOperation: Operands._unary,
    cst.Comparison: Operands._comparison,
    cst.Call: Operands._call,
    cst.Subscript: Operands._subscript,
    cst.Tuple: Operands._display,
    cst.List: Operands._display,
    cst.Set: Operands._display,
    cst.Dict: Operands._dict,
    cst.ListComp: Operands._comprehension,
    cst.SetComp: Operands._comprehension,
    cst.DictComp: Operands._comprehension,
    cst.GeneratorExp: Operands._comprehension,
    cst.NamedExpr: Operands._named_expression,
    cst.Await: Operands._await,
    cst.Yield: Operands._yield,
}
