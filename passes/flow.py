"""One walk over statements in the order of evaluation, which sees what happens to names.

`Walk` is what `srcjit.passes.scopes` asks: it visits every name that belongs to the scope
that the statements stand in, and keeps two sets along the paths of control: names that were
certainly written (so that a later read does not see the value from before), and names that
are certainly bound.

    if c:                     reads c
        x = 1                 written {x}, bound {x}
    else:
        del x                 reads x, which is thereby exposed; written {x}, bound {}
    y = x                     written {x, y}, bound {y}; x is not exposed here

The paths are those of the text: nothing is assumed about values, except that `while True` ends
only by `break`. An exception may leave a `try` or `with` body at any point.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field

import libcst as cst

from srcjit.nodes import parts
from srcjit.passes.names import Names, State, join


@dataclass
class Jumps:
    """States that leave a statement otherwise than through its end."""

    to_break: list[State] = field(default_factory=list)
    to_continue: list[State] = field(default_factory=list)
    to_return: list[State] = field(default_factory=list)


class Walk(Names):
    """Visits statements along every path of control; see the module's docstring."""

    def __init__(self, before: Iterable[str] = ()) -> None:
        super().__init__(before)
        self._jumps = Jumps()

    @property
    def bound_at_jumps(self) -> list[set[str]]:
        """Names that are bound where a `break` or `continue` leaves the statements."""
        states = [*self._jumps.to_break, *self._jumps.to_continue]
        return [state.bound for state in states if state.reachable]

    def _return(self, node: cst.Return) -> None:
        self._visit_some(node.value)
        self._leave(self._jumps.to_return)

    def _raise(self, node: cst.Raise) -> None:
        self._visit_some(node.exc, node.cause)
        self._leave([])

    def _break(self, node: cst.Break) -> None:
        self._leave(self._jumps.to_break)

    def _continue(self, node: cst.Continue) -> None:
        self._leave(self._jumps.to_continue)

    def _leave(self, states: list[State]) -> None:
        states.append(self._state)
        self._state = State(set(), set(), reachable=False)

    # ── Compound statements ─────────────────────────────────────────────────────────

    def _if(self, node: cst.If) -> None:
        self.visit(node.test)
        before = self._state.copy()
        self.visit(node.body)
        one, self._state = self._state, before
        self._visit_some(node.orelse)
        self._state = join([one, self._state])

    def _loop_jumps(self) -> Jumps:
        """Starts a loop; returns the jumps of what is around it."""
        outer = self._jumps
        self._jumps = Jumps(to_return=outer.to_return)
        return outer

    def _for(self, node: cst.For) -> None:
        self.visit(node.iter)
        self._state.bound -= deleted(node)
        exhausted = self._state.copy()
        outer = self._loop_jumps()
        self.target(node.target)
        self.visit(node.body)
        inner, self._jumps = self._jumps, outer
        self._state = join([exhausted, self._state, *inner.to_continue])
        self._visit_some(node.orelse)
        self._state = join([self._state, *inner.to_break])

    def _while(self, node: cst.While) -> None:
        self._state.bound -= deleted(node)
        self.visit(node.test)
        ended = self._state.copy()
        if always_true(node.test):
            ended.reachable = False
        outer = self._loop_jumps()
        self.visit(node.body)
        inner, self._jumps = self._jumps, outer
        self._state = ended
        self._visit_some(node.orelse)
        self._state = join([self._state, *inner.to_break])

    def _with(self, node: cst.With) -> None:
        for number, item in enumerate(node.items):
            self.visit(item.item)
            if number == 0:
                suppressed = self._after_exception(node)
                # What the first item's expression wrote is certain.
                suppressed.written |= self._state.written
                suppressed.bound |= self._state.bound - deleted(node)
            if item.asname is not None:
                self.target(item.asname.name)
                if number == 0 and isinstance(item.asname.name, cst.Name):
                    name = {item.asname.name.value}
                    suppressed.written |= name
                    suppressed.bound |= name - deleted(node)
        self.visit(node.body)
        self._state = join([self._state, suppressed])

    def _after_exception(self, node: cst.CSTNode) -> State:
        """The state after an exception anywhere in `node`, which starts here."""
        state = self._state.copy()
        state.bound -= deleted(node)
        return state

    def _try(self, node: cst.Try | cst.TryStar) -> None:
        outer = self._jumps
        if node.finalbody is not None:
            self._jumps = Jumps()
        raised = self._after_exception(node)
        caught = self._after_exception(node.body)
        self.visit(node.body)
        self._visit_some(node.orelse)
        ends = [self._state]
        for handler in node.handlers:
            self._state = caught.copy()
            self._visit_some(handler.type)
            if handler.name is not None and isinstance(handler.name.name, cst.Name):
                self.target(handler.name.name)
                # Python deletes it however the handler ends.
                self._state.bound.discard(handler.name.name.value)
            self.visit(handler.body)
            ends.append(self._state)
        self._state = join(ends)
        if node.finalbody is not None:
            self._finally(node.finalbody, raised, outer)

    def _finally(self, body: cst.Finally, raised: State, outer: Jumps) -> None:
        """Runs a `finally` body once for each way by which control comes to it."""
        inner, self._jumps = self._jumps, outer
        end = self._state
        for states, others in (
            (inner.to_break, outer.to_break),
            (inner.to_continue, outer.to_continue),
            (inner.to_return, outer.to_return),
            ([raised], []),
        ):
            if states:
                self._state = join(states)
                self.visit(body)
                others.append(self._state)
        self._state = end
        self.visit(body)

    def _match(self, node: cst.Match) -> None:
        self.visit(node.subject)
        ends = []
        for case in node.cases:
            before = self._state.copy()
            self.visit(case.pattern)
            if irrefutable(case.pattern):
                before.reachable = False
            if case.guard is not None:
                self.visit(case.guard)
                before = join([before, self._state])
            self.visit(case.body)
            ends.append(self._state)
            self._state = before
        self._state = join([*ends, self._state])


def always_true(test: cst.BaseExpression) -> bool:
    """Tells whether `test` is a true constant, as in `while True`."""
    if isinstance(test, cst.Integer):
        return test.evaluated_value != 0
    return isinstance(test, cst.Name) and test.value == "True"


def irrefutable(pattern: cst.MatchPattern) -> bool:
    """Tells whether a `case` pattern matches everything."""
    if isinstance(pattern, cst.MatchAs):
        return pattern.pattern is None or irrefutable(pattern.pattern)
    return isinstance(pattern, cst.MatchOr) and irrefutable(
        pattern.patterns[-1].pattern
    )


def deleted(node: cst.CSTNode) -> frozenset[str]:
    """Returns the names that `node` may unbind: by `del`, and at the end of `except … as`.

    Args:
        node: A statement, or what holds statements.
    """
    return _deleted(node) if _may_delete[type(node)] else frozenset()


class _MayDelete(dict[type, bool]):
    """Whether nodes of a class may unbind names, or hold those that may."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, (cst.Del, *_WITH_STATEMENTS))
        return self[kind]


_may_delete = _MayDelete()


@functools.lru_cache(maxsize=4096)
def _deleted(node: cst.CSTNode) -> frozenset[str]:
    # NOTE: who asks for each of many nested statements does not want the inner ones to be
    # gone over again; nodes are never changed.
    if isinstance(node, cst.Del):
        return frozenset(Walk.over(node).written)
    found: set[str] = set()
    if isinstance(node, cst.ExceptHandler | cst.ExceptStarHandler) and node.name:
        found |= Walk.over(node.name.name).read
    return frozenset(found.union(*map(deleted, parts(node))))


_WITH_STATEMENTS = (
    cst.BaseCompoundStatement,
    cst.BaseSuite,
    cst.SimpleStatementLine,
    cst.Else,
    cst.Finally,
    cst.ExceptHandler,
    cst.ExceptStarHandler,
    cst.MatchCase,
)

Walk.handlers = Names.handlers | {
    cst.Return: Walk._return,
    cst.Raise: Walk._raise,
    cst.Break: Walk._break,
    cst.Continue: Walk._continue,
    cst.If: Walk._if,
    cst.For: Walk._for,
    cst.While: Walk._while,
    cst.With: Walk._with,
    cst.Try: Walk._try,
    cst.TryStar: Walk._try,
    cst.Match: Walk._match,
}
