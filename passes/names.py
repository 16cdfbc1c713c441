"""What happens to names in expressions, nested scopes and simple statements.

`Names` visits every name that belongs to the scope that a piece of text stands in, in the
order of evaluation. Names that a nested function, a class body or a comprehension binds for
itself are not among them; names that those take from around them are.

    y = [x * k for x in xs]          reads xs and k, then writes y
    f = lambda a: a + b              captures b (which may be read later), then writes f

`srcjit.passes.flow` adds the paths of control through compound statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import libcst as cst

from srcjit.nodes import parts

SomeNames = TypeVar("SomeNames", bound="Names")

CONSTANTS = frozenset({"True", "False", "None", "__debug__"})
"""Constants that libcst holds as names."""

Comprehension = cst.ListComp | cst.SetComp | cst.DictComp | cst.GeneratorExp


@dataclass
class State:
    """What is certain about names at one point of the program."""

    written: set[str]
    bound: set[str]
    reachable: bool = True

    def copy(self) -> State:
        """Returns a state that may be changed apart from this one."""
        return State(set(self.written), set(self.bound), self.reachable)


def join(states: Iterable[State]) -> State:
    """Returns what is certain where several paths meet."""
    live = [state for state in states if state.reachable]
    if not live:
        return State(set(), set(), reachable=False)
    return State(
        set.intersection(*(state.written for state in live)),
        set.intersection(*(state.bound for state in live)),
    )


class Names:
    """Visits statements or an expression; see the module's docstring.

    Attributes:
        occurrences: The `Name` and `ImportAlias` nodes that mean a name of the scope.
        binding: Those that bind or delete it.
        nested: Those that stand in a nested function.
        read: Names that may be read.
        written: Names that may be bound or deleted.
        exposed: Names that may be read before they are certainly written.
        captured: Names that nested functions may read later.
        rebound_by_closures: Names that nested functions may bind.
        declared_global: Names in `global` statements.
        declared_nonlocal: Names in `nonlocal` statements.
        direct: Names that are read where they stand rather than by a nested function.
        handlers: The method that visits a node, by type; the default visits its parts.
    """

    handlers: ClassVar[dict[type, Callable[[Any, Any], None]]] = {}

    def __init__(self, before: Iterable[str] = ()) -> None:
        self.occurrences: dict[cst.CSTNode, str] = {}
        self.binding: set[cst.CSTNode] = set()
        self.nested: set[cst.CSTNode] = set()
        self.read: set[str] = set()
        self.direct: set[str] = set()
        self.written: set[str] = set()
        self.exposed: set[str] = set()
        self.captured: set[str] = set()
        self.rebound_by_closures: set[str] = set()
        self.declared_global: set[str] = set()
        self.declared_nonlocal: set[str] = set()
        self._state: State = State(set(), set(before))
        self._hidden: list[set[str]] = []
        self._in_class = False
        self._deferred = 0  # generator expressions around

    @classmethod
    def over(
        cls: type[SomeNames],
        piece: cst.CSTNode | Sequence[cst.CSTNode],
        before: Iterable[str] = (),
    ) -> SomeNames:
        """Walks over one node or a list of statements."""
        walk = cls(before)
        for node in (piece,) if isinstance(piece, cst.CSTNode) else piece:
            walk.visit(node)
        return walk

    @property
    def reachable(self) -> bool:
        """Control may reach the end."""
        return self._state.reachable

    @property
    def bound(self) -> set[str]:
        """Names that are certainly bound at the end."""
        return self._state.bound

    @property
    def certain(self) -> set[str]:
        """Names that are certainly written or deleted at the end."""
        return self._state.written

    # ── Events ──────────────────────────────────────────────────────────────────────

    def _is_hidden(self, name: str) -> bool:
        return any(name in names for names in self._hidden)

    def _on_read(self, node: cst.CSTNode, name: str) -> None:
        if self._is_hidden(name):
            return
        self.occurrences[node] = name
        self.direct.add(name)
        if self._deferred:
            self.captured.add(name)
        self._expose(name)

    def _expose(self, name: str) -> None:
        self.read.add(name)
        if self._state.reachable and name not in self._state.written:
            self.exposed.add(name)

    def _on_write(self, node: cst.CSTNode, name: str, hideable: bool = True) -> None:
        if hideable and self._is_hidden(name):
            return
        self.occurrences[node] = name
        self.binding.add(node)
        self.written.add(name)
        self._state.written.add(name)
        self._state.bound.add(name)
        if self._deferred:
            self.rebound_by_closures.add(name)

    def _on_delete(self, node: cst.CSTNode, name: str) -> None:
        self._on_read(node, name)
        self._on_write(node, name)
        self._state.bound.discard(name)

    def _on_capture(
        self, inner: Names, names: set[str], nodes: Iterable[cst.CSTNode]
    ) -> None:
        """Notes that nested functions, seen by `inner`, share `names` where `nodes` are."""
        names = {name for name in names if not self._is_hidden(name)}
        for node in nodes:
            name = inner.occurrences[node]
            if name in names:
                self.occurrences[node] = name
                self.nested.add(node)
                if node in inner.binding:
                    self.binding.add(node)
        for name in names:
            self._expose(name)
        self.captured |= names
        self.rebound_by_closures |= inner.rebound_by_closures & names
        self.rebound_by_closures |= inner.written & inner.declared_nonlocal & names

    # ── Visiting ────────────────────────────────────────────────────────────────────

    def visit(self, node: cst.CSTNode) -> None:
        """Visits one node; by default its parts in the order of the text."""
        handler = self.handlers.get(type(node))
        if handler is not None:
            handler(self, node)
            return
        for part in parts(node):
            self.visit(part)

    def _visit_some(self, *nodes: cst.CSTNode | None) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _maybe(self, *nodes: cst.CSTNode | None) -> None:
        """Visits what may be skipped."""
        before = self._state.copy()
        self._visit_some(*nodes)
        self._state = join([before, self._state])

    def target(self, node: cst.CSTNode) -> None:
        """Visits the target of an assignment."""
        if isinstance(node, cst.Name):
            self._on_write(node, node.value)
        elif isinstance(node, cst.Tuple | cst.List):
            for element in node.elements:
                self.target(element.value)
        elif isinstance(node, cst.StarredElement):
            self.target(node.value)
        else:
            self.visit(node)

    # ── Expressions ─────────────────────────────────────────────────────────────────

    def _name(self, node: cst.Name) -> None:
        if node.value not in CONSTANTS:
            self._on_read(node, node.value)

    def _attribute(self, node: cst.Attribute) -> None:
        self.visit(node.value)

    def _named(self, node: cst.NamedExpr) -> None:
        self.visit(node.value)
        assert isinstance(node.target, cst.Name)
        # A comprehension's `:=` binds in the function around it.
        self._on_write(node.target, node.target.value, hideable=False)

    def _call(self, node: cst.Call) -> None:
        self.visit(node.func)
        # `f(k=a(), *b())` evaluates `b()` first.
        keywords = [arg for arg in node.args if arg.keyword or arg.star == "**"]
        for arg in (*(a for a in node.args if a not in keywords), *keywords):
            self.visit(arg.value)

    def _arg(self, node: cst.Arg) -> None:
        self.visit(node.value)

    def _boolean(self, node: cst.BooleanOperation) -> None:
        self.visit(node.left)
        self._maybe(node.right)

    def _comparison(self, node: cst.Comparison) -> None:
        self.visit(node.left)
        first, *others = node.comparisons
        self.visit(first.comparator)
        if others:
            self._maybe(*(other.comparator for other in others))

    def _conditional(self, node: cst.IfExp) -> None:
        self.visit(node.test)
        before = self._state.copy()
        self.visit(node.body)
        one, self._state = self._state, before
        self.visit(node.orelse)
        self._state = join([one, self._state])

    def _comprehension(self, node: Comprehension) -> None:
        self.visit(node.for_in.iter)
        before = self._state.copy()
        self._deferred += isinstance(node, cst.GeneratorExp)
        targets: set[str] = set()
        clauses = [node.for_in]
        while clauses[-1].inner_for_in is not None:
            clauses.append(clauses[-1].inner_for_in)
        for clause in clauses:
            inner = type(self)()
            inner.target(clause.target)
            targets |= inner.written
        self._hidden.append(targets)
        for clause in clauses:
            if clause is not node.for_in:
                self.visit(clause.iter)
            self.target(clause.target)
            for condition in clause.ifs:
                self.visit(condition.test)
        if isinstance(node, cst.DictComp):
            self._visit_some(node.key, node.value)
        else:
            self.visit(node.elt)
        self._hidden.pop()
        self._deferred -= isinstance(node, cst.GeneratorExp)
        self._state = join([before, self._state])

    # ── Nested scopes ───────────────────────────────────────────────────────────────

    def _made_parameters(self, node: cst.Parameters) -> None:
        """Visits what is evaluated when the function is made: defaults and annotations."""
        parameters = _parameters(node)
        self._visit_some(*(parameter.default for parameter in parameters))
        self._visit_some(*(parameter.annotation for parameter in parameters))

    def _nested(self, parameters: cst.Parameters, body: cst.CSTNode) -> None:
        inner = self.over(body)
        own = inner.written | {p.name.value for p in _parameters(parameters)}
        own -= inner.declared_nonlocal
        free = (inner.read | inner.declared_nonlocal) - own - inner.declared_global
        self._on_capture(inner, free, inner.occurrences)

    def _lambda(self, node: cst.Lambda) -> None:
        self._made_parameters(node.params)
        self._nested(node.params, node.body)

    def _function(self, node: cst.FunctionDef) -> None:
        for decorator in node.decorators:
            self.visit(decorator.decorator)
        self._hidden.append(_type_names(node.type_parameters))
        self._visit_some(node.type_parameters)
        self._made_parameters(node.params)
        self._visit_some(node.returns)
        self._nested(node.params, node.body)
        self._hidden.pop()
        self._on_write(node.name, node.name.value)

    def _class(self, node: cst.ClassDef) -> None:
        for decorator in node.decorators:
            self.visit(decorator.decorator)
        self._hidden.append(_type_names(node.type_parameters))
        self._visit_some(node.type_parameters)
        for arg in (*node.bases, *node.keywords):
            self.visit(arg.value)
        inner = type(self)()
        inner._in_class = True
        inner.visit(node.body)
        own = inner.written - inner.declared_nonlocal
        # Functions in a class body do not see its names.
        now = inner.direct - own - inner.declared_global
        later = (inner.captured | inner.declared_nonlocal) - inner.declared_global
        for found, name in inner.occurrences.items():
            if name in now:
                self._on_read(found, name)
        self._on_capture(inner, later, inner.nested)
        self._hidden.pop()
        self._on_write(node.name, node.name.value)

    # ── Simple statements ───────────────────────────────────────────────────────────

    def _assign(self, node: cst.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.target(target.target)

    def _augmented(self, node: cst.AugAssign) -> None:
        self.visit(node.target)
        self.visit(node.value)
        if isinstance(node.target, cst.Name):
            self._on_write(node.target, node.target.value)

    def _annotated(self, node: cst.AnnAssign) -> None:
        # A function never evaluates the annotations of its variables.
        self._visit_some(node.value)
        if self._in_class:
            self.visit(node.annotation)
        if node.value is not None or not isinstance(node.target, cst.Name):
            self.target(node.target)
        elif not self._is_hidden(node.target.value):
            # `x: int` makes `x` local and does nothing else.
            self.occurrences[node.target] = node.target.value
            self.written.add(node.target.value)

    def _delete(self, node: cst.Del) -> None:
        self._delete_target(node.target)

    def _delete_target(self, target: cst.CSTNode) -> None:
        if isinstance(target, cst.Name):
            self._on_delete(target, target.value)
        elif isinstance(target, cst.Tuple | cst.List):
            for element in target.elements:
                self._delete_target(element.value)
        else:
            self.visit(target)

    def _import(self, node: cst.Import | cst.ImportFrom) -> None:
        if isinstance(node.names, cst.ImportStar):
            return
        for alias in node.names:
            bound: cst.CSTNode = alias.asname.name if alias.asname else alias.name
            while isinstance(bound, cst.Attribute):
                bound = bound.value
            assert isinstance(bound, cst.Name)
            self._on_write(alias, bound.value)

    def _global(self, node: cst.Global) -> None:
        self.declared_global |= {item.name.value for item in node.names}

    def _nonlocal(self, node: cst.Nonlocal) -> None:
        self.declared_nonlocal |= {item.name.value for item in node.names}
        for item in node.names:
            self.occurrences[item.name] = item.name.value
            self.binding.add(item.name)

    def _type_alias(self, node: cst.TypeAlias) -> None:
        self._hidden.append(_type_names(node.type_parameters))
        self._deferred += 1
        self._visit_some(node.type_parameters, node.value)
        self._deferred -= 1
        self._hidden.pop()
        self._on_write(node.name, node.name.value)

    def _assert(self, node: cst.Assert) -> None:
        self.visit(node.test)
        after = self._state.copy()
        self._visit_some(node.msg)
        self._state = after

    # ── Patterns and type parameters ──────────────────────────────────────────────

    def _match_as(self, node: cst.MatchAs) -> None:
        self._visit_some(node.pattern)
        if node.name is not None:
            self.target(node.name)

    def _match_star(self, node: cst.MatchStar) -> None:
        if node.name is not None:
            self.target(node.name)

    def _match_mapping(self, node: cst.MatchMapping) -> None:
        self._visit_some(*node.elements)
        if node.rest is not None:
            self.target(node.rest)

    def _match_keyword(self, node: cst.MatchKeywordElement) -> None:
        self.visit(node.pattern)

    def _type_variable(self, node: cst.TypeVar) -> None:
        self._visit_some(node.bound)

    def _nothing(self, node: cst.CSTNode) -> None:
        pass


def _parameters(node: cst.Parameters) -> list[cst.Param]:
    every: list[object] = [*node.posonly_params, *node.params, node.star_arg]
    every += [*node.kwonly_params, node.star_kwarg]
    return [parameter for parameter in every if isinstance(parameter, cst.Param)]


def _type_names(parameters: cst.TypeParameters | None) -> set[str]:
    return {p.param.name.value for p in parameters.params} if parameters else set()


Names.handlers = {
    cst.Name: Names._name,
    cst.Attribute: Names._attribute,
    cst.NamedExpr: Names._named,
    cst.Call: Names._call,
    cst.Arg: Names._arg,
    cst.BooleanOperation: Names._boolean,
    cst.Comparison: Names._comparison,
    cst.IfExp: Names._conditional,
    cst.ListComp: Names._comprehension,
    cst.SetComp: Names._comprehension,
    cst.DictComp: Names._comprehension,
    cst.GeneratorExp: Names._comprehension,
    cst.Lambda: Names._lambda,
    cst.FunctionDef: Names._function,
    cst.ClassDef: Names._class,
    cst.Assign: Names._assign,
    cst.AugAssign: Names._augmented,
    cst.AnnAssign: Names._annotated,
    cst.Del: Names._delete,
    cst.Import: Names._import,
    cst.ImportFrom: Names._import,
    cst.Global: Names._global,
    cst.Nonlocal: Names._nonlocal,
    cst.TypeAlias: Names._type_alias,
    cst.Assert: Names._assert,
    cst.MatchAs: Names._match_as,
    cst.MatchStar: Names._match_star,
    cst.MatchMapping: Names._match_mapping,
    cst.MatchKeywordElement: Names._match_keyword,
    cst.TypeVar: Names._type_variable,
    cst.TypeVarTuple: Names._nothing,
    cst.ParamSpec: Names._nothing,
}
