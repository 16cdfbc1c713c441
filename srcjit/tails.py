r"""The rest of a program is called by the dispatch stub, not by the program that is over.

    def gate(x):                                def gate(x):
        y, total = segment_0(x)                     y, total = segment_0(x)
        if total.item() > 0:          runs as       if total.item() > 0:
            return resume_21_then(y)                    return (resume_21_then, y)
        return resume_21_else(y)                    return (resume_21_else, y)

and the stub of `gate` does the rest:

        go, given_0 = gate_0(x)
        return go(given_0)

So one frame of the user's function is live at a time, as in eager: `warnings.warn` and
`logging` with a `stacklevel`, debuggers and whatever else counts frames find the caller where
it is. The text keeps the plain call; it is rewritten where it is loaded.

A variable lives until the call of its function ends. What Python got to see of the program
and the rest has no use for is handed to the stub, which holds it until then:

    >>> text = '''def f(x):
    ...     lock = acquire()
    ...     y = segment_0(x)[0]
    ...     return resume_3(y)
    ... '''
    >>> tree = ast.parse(text).body[0]
    >>> rewrite(tree, {"resume_3"}, {"segment_0"}, Helpers(tree))
    Tail(count=1, holds=True)
    >>> print(ast.unparse(tree))
    def f(x):
        lock = acquire()
        y = segment_0(x)[0]
        return (resume_3, y, (lock,))
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tail:
    """How the programs of one specialization say what is to be called next.

    Attributes:
        count: Number of arguments, or None if they are in a tuple.
        holds: Whether there is one more item, to be held until the call is over.
    """

    count: int | None
    holds: bool

    def lines(self, call: str, names: Callable[[str], str]) -> list[str]:
        """Returns lines that make the call `call` and what it asks for, and return."""
        go, held = names("go"), [names("held")] if self.holds else []
        if self.count is None:
            given = [names("given")]
            handed = f"*{given[0]}"
        else:
            given = [names(f"given_{number}") for number in range(self.count)]
            handed = ", ".join(given)
        targets = ", ".join([go, *given, *held])
        comma = "" if given or held else ","
        return [f"{targets}{comma} = {call}", f"return {go}({handed})"]

    def answer(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what runs a function in the place of such a program."""
        given = [()] if self.count is None else [None] * self.count
        rest = [*given, *([None] if self.holds else [])]

        def run(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            value = function(*args, **kwargs)
            return (lambda *_: value, *rest)

        return run


def given_back(value: Any) -> Any:
    """What is called next where a program returns a value."""
    return value


def without(variables: dict[str, Any], *names: str) -> dict[str, Any]:
    """Returns variables of a program, all but some."""
    return {name: value for name, value in variables.items() if name not in names}


class Helpers:
    """The objects that a rewritten program names besides, by names that are not in it.

    Args:
        program: The program.
        taken: More names that mean something else.
    """

    def __init__(self, program: ast.FunctionDef, taken: Collection[str] = ()) -> None:
        self.names: dict[str, Any] = {}
        self._taken = {*taken}
        for node in ast.walk(program):
            for field_name in ("id", "arg", "name", "asname", "attr"):
                self._taken.add(str(getattr(node, field_name, "")))

    def __call__(self, helper: Callable[..., Any]) -> ast.Name:
        """Returns what names a helper."""
        name = self.fresh(helper.__name__)
        self.names[name] = helper
        return ast.Name(name, ast.Load())

    def fresh(self, name: str) -> str:
        """Returns a name that means nothing in the program."""
        while name in self._taken:
            name += "_"
        return name


def rewrite(
    program: ast.FunctionDef,
    continuations: Collection[str],
    segments: Collection[str],
    helpers: Helpers,
    keepers: Collection[str] = (),
) -> Tail | None:
    """Makes a residual program return what is to be called next instead of calling it.

    Args:
        program: The program; it is changed.
        continuations: What the functions are called that do the rest.
        segments: What the segments are called.
        helpers: Takes what the program names besides.
        keepers: Variables that hold a `Kept`; see `srcjit.passes.keeping`.

    Returns:
        What the caller has to do then, or None if nothing was changed.
    """
    if any(
        isinstance(node, ast.Yield | ast.YieldFrom | ast.Await)
        for node in _own(program)
    ):
        return None
    found = _Program(program, {*continuations}, {*segments}, helpers, {*keepers})
    if not found.tails:
        return None
    plain = [r for r in found.returns if r not in found.tails]
    if not _ends(program.body):
        last = ast.copy_location(ast.Return(None), program.body[-1])
        program.body.append(last)
        plain.append(last)
    counts = {len(call.args) for call in map(_call, found.tails)}
    count = counts.pop() if len(counts) == 1 and not plain else None
    holds = any(found.held(tail) for tail in found.tails)
    for node in [*found.tails, *plain]:
        if node in found.tails:
            call = _call(node)
            function, given, held = call.func, call.args, found.held(node)
        else:
            function = helpers(given_back)
            given = [node.value or ast.Constant(None)]
            held = None
        items = given if count is not None else [ast.Tuple(given, ast.Load())]
        if holds:
            items = [*items, held or ast.Constant(None)]
        _replace(node, ast.Tuple([function, *items], ast.Load()))
    return Tail(count, holds)


def _call(node: ast.Return) -> ast.Call:
    assert isinstance(node.value, ast.Call)
    return node.value


def _replace(node: ast.Return, value: ast.expr) -> None:
    place = node.value or node
    for part in ast.walk(value):
        if isinstance(part, ast.expr) and not hasattr(part, "lineno"):
            ast.copy_location(part, place)
    node.value = value


def merge_in_handlers(
    program: ast.FunctionDef,
    continuations: Collection[str],
    helpers: Helpers,
    merged: Callable[..., Any],
) -> None:
    """Has exceptions look as in eager where an `except` of the program finds them.

    Args:
        program: The program; it is changed.
        continuations: What the functions are called that are parts of the user's.
        helpers: Takes what the program names besides.
        merged: Leaves out of a traceback what shows one function twice.
    """
    for node in [*_own(program)]:
        if not isinstance(node, ast.Try):
            continue
        called = {part.id for part in _names_in(node.body)}
        if not called & set(continuations):
            continue
        for handler in node.handlers:
            if handler.name is None:
                handler.name = helpers.fresh("error")
                if handler.type is None:
                    handler.type = helpers(BaseException)
            error = handler.name
            merges = helpers(merged).id
            line = f"{error}.__traceback__ = {merges}({error}.__traceback__)"
            first = ast.parse(line).body[0]
            for part in (first, *ast.walk(first), handler.type):
                if isinstance(part, ast.expr | ast.stmt):
                    if part is not handler.type or not hasattr(part, "lineno"):
                        ast.copy_location(part, handler)
            handler.body.insert(0, first)


def _names_in(body: list[ast.stmt]) -> Iterator[ast.Name]:
    for statement in body:
        yield from (n for n in ast.walk(statement) if isinstance(n, ast.Name))


@dataclass(eq=False)
class _Program:
    """The returns of a program, and which variables are bound at each."""

    program: ast.FunctionDef
    continuations: set[str]
    segments: set[str]
    helpers: Helpers
    keepers: set[str]
    tails: list[ast.Return] = field(default_factory=list)
    returns: list[ast.Return] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._bound: dict[ast.Return, tuple[set[str], set[str]]] = {}
        self._tensors: set[str] = set()
        """Variables that have only ever held results of segments."""
        self._numbers: set[str] = set()
        """Variables that have only ever held numbers."""
        self._seen: set[str] = set()
        self._kept: set[str] = set()
        """Variables that have something else to keep their objects."""
        own = list(_own(self.program))
        self.returns = [node for node in own if isinstance(node, ast.Return)]
        others: set[str] = set()
        for node in own:
            if isinstance(node, ast.Assign):
                names = _stored_by(node)
                if self._is_segment(node.value):
                    self._tensors |= names
                elif _is_number(node.value):
                    self._numbers |= names
                else:
                    others |= names
            elif isinstance(node, ast.stmt) and not isinstance(node, ast.Return):
                others |= _stored_by(node)
        self._numbers -= others | self._tensors
        self._tensors -= others
        self._walk(self.program.body, set(), set(), top=True)
        for node in self.program.body:
            self._look(node)
        self._seen -= self._numbers | self._kept

    def held(self, node: ast.Return) -> ast.expr | None:
        """The item that holds what the program must not drop yet at a tail call."""
        bound, maybe = self._bound[node]
        handed = {
            part.id
            for argument in _call(node).args
            for part in ast.walk(argument)
            if isinstance(part, ast.Name)
        }
        if (maybe & self._seen) - handed:
            found: ast.expr = ast.Call(self.helpers(locals), [], [])
            # The rest drops what it is given in a list.
            lists = [a for a in _call(node).args if isinstance(a, ast.List)]
            gone = [n.id for a in lists for n in ast.walk(a) if isinstance(n, ast.Name)]
            if gone:
                dropped = (ast.Constant(name) for name in gone)
                found = ast.Call(self.helpers(without), [found, *dropped], [])
            return found
        names = sorted((bound & self._seen) - handed)
        if not names:
            return None
        return ast.Tuple([ast.Name(name, ast.Load()) for name in names], ast.Load())

    def _is_segment(self, value: ast.expr) -> bool:
        """`segment_0(...)`, `segment_0(...)[0]`, `called_from(segment_0, ...)`."""
        if isinstance(value, ast.Subscript):
            value = value.value
        if not isinstance(value, ast.Call):
            return False
        parts = [value.func, *value.args[:1]]
        return any(isinstance(p, ast.Name) and p.id in self.segments for p in parts)

    def _is_tail(self, node: ast.Return) -> bool:
        match node.value:
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                starred = any(isinstance(argument, ast.Starred) for argument in args)
                return name in self.continuations and not starred
        return False

    def _walk(
        self, body: list[ast.stmt], bound: set[str], maybe: set[str], top: bool
    ) -> None:
        """Finds what is bound, and what may be, at each tail call; changes the sets."""
        for node in body:
            match node:
                case ast.Return() if top and self._is_tail(node):
                    self.tails.append(node)
                    self._bound[node] = set(bound), set(maybe)
                case ast.If():
                    ways = []
                    for arm in (node.body, node.orelse):
                        inside = set(bound), set(maybe)
                        self._walk(arm, *inside, top)
                        if not _ends(arm):
                            ways.append(inside)
                    if ways:
                        both = set.intersection(*(one for one, _ in ways))
                        either = set().union(*(one | two for one, two in ways))
                        bound &= both
                        bound |= both
                        maybe |= either
                        maybe -= bound
                case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                    bound |= _stored_by(node)
                    maybe -= bound
                case ast.Delete():
                    gone = {t.id for t in node.targets if isinstance(t, ast.Name)}
                    bound -= gone
                    maybe -= gone
                case _:
                    maybe |= _stored_by(node) - bound
                    if any(isinstance(part, ast.Delete) for part in _own(node)):
                        maybe |= bound
                        bound.clear()

    def _look(self, node: ast.AST) -> None:
        """Notes the variables that something else than a segment gets to see."""
        match node:
            case ast.Return() if node in self.tails:
                return
            case ast.Assign(value=value) if self._is_segment(value):
                return
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id=keeper))],
                value=ast.Name(id=name),
            ) if keeper in self.keepers:
                self._kept.add(name)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="item"), args=[]
            ) if name in self._tensors:
                return
            case ast.If(test=ast.Name(id=name)) if name in self._tensors:
                for inside in [*node.body, *node.orelse]:
                    self._look(inside)
                return
            case ast.stmt() if not isinstance(node, ast.Assign | ast.If):
                self._seen |= _stored_by(node)
            case ast.Name(id=name):
                self._seen.add(name)
        for child in ast.iter_child_nodes(node):
            self._look(child)


def _is_number(value: ast.expr) -> bool:
    """`y.item()` of a tensor, `len(...)` and the like."""
    match value:
        case ast.Call(func=ast.Attribute(attr="item"), args=[]):
            return True
        case ast.Call(func=ast.Name(id="len" | "int" | "float" | "bool")):
            return True
    return False


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yields what is below a node, without what other functions and classes do."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _SCOPES):
            yield from _own(child)


_SCOPES = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
"""What has variables of its own."""


def _stored_by(node: ast.stmt) -> set[str]:
    """Names that a statement binds, those of an `import`, a `def` and so on included."""
    found: set[str] = set()
    parts: list[ast.AST] = [node, *_own(node)]
    for part in parts:
        match part:
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(part.name)
            case ast.alias(name=name, asname=given):
                found.add(given or name.partition(".")[0])
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                found.add(name)
            case ast.MatchMapping(rest=str(name)):
                found.add(name)
    return found


def _ends(body: list[ast.stmt]) -> bool:
    """Whether nothing behind these statements is reached."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    return isinstance(last, ast.Return | ast.Raise)
