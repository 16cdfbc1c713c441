"""Resume functions: the rest of the program after a graph break, as functions.

    def gate(x):
        y, total = segment_0(x)
        if total.item() > 0:
            return resume_21_then(y)      # y = y + 1; return torch.cos(y)
        return resume_21_else(y)          # return torch.cos(y)

A resume function is ordinary source: it is specialized when it is first reached, on what
actually arrives, and can break again.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CellType
from typing import TYPE_CHECKING, Any

import libcst as cst

from srcjit.origin import Origin
from srcjit.source import FunctionSource

from ..keeping import Kept, stored
from ..namer import Namer
from ..outline import UNBOUND, Box
from ..program import Continuation, Native
from ..reachable import reaches
from ..resume import Block as Rest
from ..resume import deleted_by_name, kept_apart, make_resume, rest
from ..scopes import all_names, captured, live_in, parameter_names, reads, writes
from . import keeping, names
from .frames import Block, Frame
from .values import IteratorValue, ListValue, Scalar, TupleValue, Unknown, Value

if TYPE_CHECKING:
    from .evaluator import Evaluator

ONCE = (None,)
"""What the loop `for _ in once` goes over: one iteration."""


_UNROLLED_RESUMES = 4
"""Iterations left after a break that a resume function unrolls; a longer rest of a loop
arrives as an iterator and stays a loop, whose body is compiled once."""


def helper_names(namer: Namer) -> dict[str, Any]:
    """The compiler's objects that text rewritten with this namer names."""
    helpers = {"UNBOUND": UNBOUND, "Box": Box, "Kept": Kept, "once": ONCE}
    return {namer.fixed(name): helper for name, helper in helpers.items()}


def rest_of(ev: Evaluator, frame: Frame) -> tuple[list[Any], dict[str, Value]]:
    """What is left of a frame: its statements, and the iterators that they need by name."""
    blocks = []
    iterators: dict[str, Value] = {}
    for block in frame.blocks:
        remaining = None
        if block.kind == "for":
            assert block.iterator is not None
            remaining = ev.namer_for(frame).fresh("remaining")
            iterators[remaining] = block.iterator
        blocks.append(
            Rest(
                list(block.statements),
                block.index,
                block.kind,
                node=block.node,
                remaining=remaining,
            )
        )
    return list(
        rest(blocks, origins=frame.origins, namer=ev.namer_for(frame))
    ), iterators


def live_names(frame: Frame) -> set[str]:
    """Names that the rest of a frame may read (more than it does, never less)."""
    return set().union(*(block.live_names() for block in frame.blocks))


def live_values(ev: Evaluator, extra: Iterable[Any] = ()) -> list[Value]:
    """Values that the rest of the program may read."""
    extra = list(extra)
    found: list[Value] = []
    for frame in ev.frames:
        wanted = live_names(frame)
        if frame is ev.frames[-1] and extra:
            wanted |= live_in(extra) | captured(extra)
        found += [frame.env[name] for name in wanted if name in frame.env]
        parent = frame.parent
        while parent is not None:
            found += [parent.env[name] for name in wanted if name in parent.env]
            parent = parent.parent
        found += [b.iterator for b in frame.blocks if b.iterator is not None]
    return found


def resume_here(ev: Evaluator, kind: str = "") -> None:
    """Hands the rest of the program to a resume function and ends the residual program."""
    residual = ev.residual
    residual.close_segment([*live_values(ev), *ev.effect_values])
    residual.flush_effects()
    keeping.settle(ev)
    if _plain_return(ev):
        ev.finished = True
        return
    inner: tuple[str, list[str], list[str], Continuation] | None = None
    for frame in reversed(ev.frames):
        inner = _continuation(ev, frame, inner, kind)
    assert inner is not None
    name, _, args, continuation = inner
    ev.continuations.append(continuation)
    residual.emit(f"return {name}({', '.join(args)})")
    ev.finished = True


def call_rest(ev: Evaluator, frame: Frame, statement: Any, note: str = "") -> None:
    """Calls the rest of an inlined callee, from `statement` on, as a function of its own.

    For a native statement with a `return` in it: what it returns is the callee's result.
    """
    frame.blocks.append(Block([statement]))
    residual = ev.residual
    residual.close_segment([*live_values(ev), *ev.effect_values])
    residual.flush_effects()
    residual.settle(live_values(ev))
    name, _, args, continuation = _continuation(ev, frame, None, "")
    ev.continuations.append(continuation)
    variable = residual.fresh("result")
    residual.emit(f"{variable} = {name}({', '.join(args)})", note=note)
    ev.frames.pop()
    assert frame.on_return is not None
    frame.on_return(Unknown(variable))


def _plain_return(ev: Evaluator) -> bool:
    """The rest is `return` of names: no function is needed."""
    if len(ev.frames) != 1:
        return False
    frame = ev.frames[0]
    left = [
        s for block in reversed(frame.blocks) for s in block.statements[block.index :]
    ]
    if any(block.kind != "body" for block in frame.blocks):
        return False
    if not left:
        _return_none(ev)
        return True
    first = left[0]
    if not isinstance(first, cst.SimpleStatementLine) or len(first.body) != 1:
        return False
    small = first.body[0]
    if not isinstance(small, cst.Return):
        return False
    parts = _names_of(small.value)
    if parts is None or any(
        name not in frame.locals or name not in frame.env for name in parts
    ):
        return False
    if any(frame.env[name].name in ev.residual.maybe_unbound for name in parts):
        return False
    texts = {name: ev.residual.reify(frame.env[name]) for name in parts}
    if small.value is None:
        _return_none(ev)
        return True
    origin = frame.origins.get(first)
    if isinstance(small.value, cst.Name):
        ev.residual.emit(f"return {texts[small.value.value]}", origin)
    else:
        items = [texts[name] for name in parts]
        comma = "," if len(items) == 1 else ""
        ev.residual.emit(f"return {', '.join(items)}{comma}", origin)
    return True


def _return_none(ev: Evaluator) -> None:
    """A program that ends returns None by itself; the way of an `if` has to say so."""
    if ev.residual.is_indented:
        ev.residual.emit("return")


def _names_of(value: cst.BaseExpression | None) -> list[str] | None:
    if value is None:
        return []
    if isinstance(value, cst.Name):
        return [value.value]
    if isinstance(value, cst.Tuple) and all(
        isinstance(e, cst.Element) and isinstance(e.value, cst.Name)
        for e in value.elements
    ):
        return [e.value.value for e in value.elements]  # type: ignore[attr-defined]
    return None


def _continuation(
    ev: Evaluator,
    frame: Frame,
    inner: tuple[str, list[str], list[str], Continuation] | None,
    kind: str,
) -> tuple[str, list[str], list[str], Continuation]:
    """The rest of one frame as a function; `inner` is the rest of what it called."""
    from .split import mentions

    statements, iterators = rest_of(ev, frame)
    prefix: list[Any] = []
    params: list[str] = []
    args: list[str] = []
    extra_names: dict[str, Any] = compiler_objects(ev, frame)
    if inner is not None:
        callee_name, callee_params, callee_args, callee = inner
        fresh = [ev.namer_for(frame).fresh(p) for p in callee_params]
        params += fresh
        args += callee_args
        prefix = [_call_statement(ev, frame, callee_name, fresh)]
        extra_names[callee_name] = callee
    if frame.keeper is not None:
        names_kept = dict.fromkeys(frame.kept, frame.keeper)
        statements = stored(statements, names_kept, frame.origins)
    live = live_in([*prefix, *statements]) | captured(statements)
    prefix = [*keeping.waiting(ev, frame, live), *prefix]
    wanted = live_in([*prefix, *statements]) | captured(statements)
    original = parameter_names(frame.source.tree.params)
    ordered = sorted(
        wanted, key=lambda n: (n not in original, _position(original, n), n)
    )
    place = _place(frame, statements)
    # NOTE: a loop that breaks in each iteration would cost a function for each of them.
    again = place in ev.resumed
    unbound = set()
    missing: dict[str, CellType] = {}
    maybe_unbound = set()
    dynamic: set[str] = set()
    if inner is not None:
        dynamic |= {p for p, q in zip(params, inner[1]) if q in inner[3].dynamic}
    for name in ordered:
        value = iterators.get(name)
        if value is None:
            owner = frame if name in frame.locals else names.owner_of(frame, name)
            if owner is None:
                continue
            value = owner.env.get(name)
            if value is None:
                if owner is frame:
                    unbound.add(name)
                else:
                    missing[name] = CellType()
                continue
        params.append(name)
        if name in iterators and not is_visible(ev, value):
            args.append(_iterations(ev, value, 0 if again else _UNROLLED_RESUMES))
        else:
            args.append(ev.residual.reify(ev.look(value)))
        if args[-1] in ev.residual.maybe_unbound:
            maybe_unbound.add(name)
        if isinstance(value, Scalar) and not (
            ev.needed is not None and mentions(ev.needed.text, value.text)
        ):
            dynamic.add(name)
    line = frame.source.first_line if place is None else place.line
    label = f"resume_{line}"
    if kind and frame is ev.frames[-1]:
        label = f"{label}_{kind}"
    if frame is not ev.frames[0]:
        label = f"{frame.source.name}_{label}"
    name = ev.namer_for(frame).fresh(label)
    _share_nonlocals(frame)
    apart = kept_apart(params, statements, ev.namer_for(frame))
    boxed = (apart.keys() & deleted_by_name(statements)) - dynamic
    args = [f"[{a}]" if p in boxed else a for p, a in zip(params, args, strict=True)]
    cells = {**user_cells(ev, frame, statements), **missing}
    source = make_resume(
        name,
        [*prefix, *statements],
        params,
        unbound,
        frame.origins,
        file=frame.source.file,
        class_name=frame.source.class_name,
        scope=frame.source.scope or frame.source.qualname,
        freevars=tuple(cells),
        global_names=frame.globals_declared,
        nonlocal_names=frame.nonlocals_declared,
        maybe_unbound=maybe_unbound,
        unbound_value=ev.namer_for(frame).fixed("UNBOUND"),
        apart=apart,
        boxed=boxed,
    )
    params = [apart.get(p, p) for p in params]
    dynamic = {apart.get(p, p) for p in dynamic}
    continuation = Continuation(
        name,
        source,
        frame.scope.globals,
        cells,
        names=extra_names,
        dynamic=frozenset(dynamic),
        resumed=ev.resumed | _broken_at(frame, place),
        called=frame is not ev.frames[0],
        kept=keeping.held(ev, frame),
        unseen=keeping.unseen(ev, frame) & {*params},
        goes_on=ev.hints.goes_on and frame is ev.frames[0],
    )
    return name, params, args, continuation


def _broken_at(frame: Frame, place: Origin | None) -> set[Origin]:
    """Where a frame broke, and the tests of the `while` loops that it broke in."""
    loops = [b.node for b in frame.blocks if isinstance(b.node, cst.While)]
    found = [place, *(frame.origins.get(loop.test) for loop in loops)]
    return {origin for origin in found if origin is not None}


def _share_nonlocals(frame: Frame) -> None:
    """Starts again if a nested function that is split binds variables of one around it."""
    from .functions import share_variables

    for name in sorted(frame.nonlocals_declared):
        owner = names.owner_of(frame, name)
        if owner is not None:
            share_variables(owner, {name})


def compiler_objects(ev: Evaluator, frame: Frame) -> dict[str, Any]:
    """Objects of the compiler that text of this frame may name."""
    scope = frame.scope
    own = {n: scope.cells[n].cell_contents for n in scope.compiler_names}
    return {**helper_names(ev.namer_for(frame)), **own}


def add_native(
    ev: Evaluator,
    frame: Frame,
    name: str,
    tree: cst.FunctionDef,
    cells: dict[str, CellType],
) -> None:
    """Adds a function that Python runs with a frame's globals, and these closure cells."""
    source = FunctionSource.from_tree(
        name,
        tree,
        frame.origins,
        file=frame.source.file,
        class_name=frame.source.class_name,
        scope=frame.source.scope or frame.source.qualname,
    )
    names = frozenset(all_names(frame.source.tree)) - frame.scope.compiler_names
    ev.natives.append(Native(name, source, frame.scope.globals, cells, names))


def user_cells(ev: Evaluator, frame: Frame, statements: Any) -> dict[str, Any]:
    """The closure cells that are the user's, for text of a frame's function.

    NOTE: the text gets the very cells. So they are guarded, unless they belong to the function
    that is specialized, which brings its own: another closure of the same code has others.
    """
    scope = frame.scope
    cells = {
        n: cell for n, cell in scope.cells.items() if n not in scope.compiler_names
    }
    if scope is not ev.activations[0].scope:
        used = reads(statements) | writes(statements) | captured(statements)
        for name in sorted(used & cells.keys()):
            source = scope.cell_sources.get(name)
            if source is not None:
                path = source.guard.removesuffix(".cell_contents")
                bound = ev.guards.bind(cells[name], f"{name}_cell")
                ev.guards.add(f"{path} is {bound}", f"shares `{name}`")
    return cells


def _iterations(ev: Evaluator, value: Value, unrolled: int) -> str:
    """The expression that hands on an iterator that only a loop has.

    Args:
        ev: The evaluator.
        value: The iterator.
        unrolled: How many iterations a function that gets it may unroll.
    """
    if isinstance(value, IteratorValue) and not value.generator:
        left = value.items
        if isinstance(left, ListValue):
            if is_visible(ev, left):
                return ev.residual.reify(value)
            left = ev.list_items(left)
        if len(left) - value.position > unrolled:
            return (
                f"iter({ev.residual.reify(TupleValue(list(left[value.position :])))})"
            )
        # Nothing else can see this iterator or change what it goes over.
        return ev.residual.reify(TupleValue(list(left[value.position :])))
    return ev.residual.reify(value)


def is_visible(ev: Evaluator, value: Value) -> bool:
    """Whether the program can still see a list that a loop goes over, or its iterator."""
    if getattr(value, "source", None) is not None:
        return True
    if getattr(value, "name", None) is not None:
        return True
    held = [v for frame in ev.frames for v in frame.env.values()]
    return reaches(ev, [*held, *ev.effect_values], value)


def _position(names_in_order: list[str], name: str) -> int:
    return names_in_order.index(name) if name in names_in_order else 0


def _call_statement(ev: Evaluator, frame: Frame, callee: str, args: list[str]) -> Any:
    """The caller's call statement with the rest of the callee in the callee's place."""
    caller_statement = _pending_call(ev, frame)
    call = cst.parse_expression(f"{callee}({', '.join(args)})")
    small = caller_statement.body[0]
    statement = caller_statement.with_changes(
        body=[small.with_changes(value=call)], leading_lines=()
    )
    frame.origins.inherit(statement, caller_statement)
    return statement


def _pending_call(ev: Evaluator, frame: Frame) -> cst.SimpleStatementLine:
    index = ev.frames.index(frame)
    pending = ev.frames[index + 1].call
    assert pending is not None
    return pending


def _place(frame: Frame, statements: list[Any]) -> Origin | None:
    """Where the rest of a program begins."""
    origins = (frame.origins.get(statement) for statement in statements)
    return next((origin for origin in origins if origin is not None), None)
