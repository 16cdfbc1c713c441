"""What a program hands to a `Kept`, so that its variables live until the call is over.

    with manager:                         with manager:
        lock = acquire()        ->            lock = acquire()
        kept.lock = lock                      kept.lock = lock
        y = x * 2                             print("goes on")
        kept.y = y                            return segment_0(x)[0]
        print("goes on")
        return y + 1

A tensor that only segments get to see does not exist as an object, and a number has no
identity: nothing is stored for them. So stores are noted where they stand in the text, and
come when Python is about to see the object.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import libcst as cst
import torch

from srcjit.nodes import subtree

from ..blocks import line
from ..keeping import Kept, kept_in, store_of, store_text, worth_keeping
from ..kinds import is_a
from ..reachable import parts_of, tensors_in
from ..unseen import Unseen
from . import resuming
from .frames import Frame
from .values import (
    Known,
    ListValue,
    Scalar,
    TensorValue,
    Unknown,
    Value,
    constant,
    is_constant,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .evaluator import Evaluator

_FIXED = (ModuleType, FunctionType, BuiltinFunctionType, type)
"""What nobody expects to go away."""


@dataclass(frozen=True)
class Keeping:
    """A statement whose blocks store what would die with them.

    Attributes:
        statement: The statement.
        names: The variables that are stored.
        keeper: The variable of what they are stored to; None where there are none.
    """

    statement: Any
    names: frozenset[str] = frozenset()
    keeper: str | None = None


def plan(ev: Evaluator, frame: Frame, statement: Any) -> Keeping:
    """Decides what of a loop, `with` or `try` has to be kept."""
    unseen = Unseen(
        lambda name: _is_data(frame, name),
        lambda name: _is_torch(frame, name),
        lambda name: _is_builtin(frame, name),
    )
    names = worth_keeping(statement, resuming.live_names(frame), unseen) & frame.locals
    names -= _stored_in(frame)
    if not names:
        return Keeping(statement)
    keeper = frame.keeper or ev.namer_for(frame).fresh("kept")
    made = kept_in(statement, dict.fromkeys(names, keeper), frame.origins)
    return Keeping(made, frozenset(names), keeper)


def begin(ev: Evaluator, frame: Frame, kept: Keeping) -> None:
    """Emits what makes the keeper of a statement."""
    if kept.keeper is None:
        return
    frame.kept |= kept.names
    if frame.keeper is not None:
        return
    frame.keeper = kept.keeper
    frame.locals.add(kept.keeper)
    if frame is ev.frames[0]:
        ev.own_locals.add(kept.keeper)
    helper = ev.namer_for(frame).fixed(Kept.__name__)
    ev.residual.constants[helper] = Kept
    variable = ev.residual.variable(kept.keeper)
    ev.residual.emit(f"{variable} = {helper}()")
    ev.residual.keepers.add(variable)
    ev.journal.set_item(frame.env, kept.keeper, Unknown(variable))


def _stored_in(frame: Frame) -> set[str]:
    """Variables that the text of a frame's function has stores for."""
    found: set[str] = set()
    for node in subtree(frame.source.tree):
        store = store_of(node) if isinstance(node, cst.Assign) else None
        if store is not None and _is_keeper(frame, store[0]):
            found.add(store[1])
    return found


def _is_keeper(frame: Frame, name: str) -> bool:
    return type(getattr(frame.env.get(name), "obj", None)) is Kept


def note(ev: Evaluator, frame: Frame, node: cst.Assign) -> bool:
    """Notes a store to a keeper; returns False for any other statement."""
    store = store_of(node)
    if store is None:
        return False
    keeper, name = store
    if not _is_keeper(frame, keeper):
        return False
    assert isinstance(node.value, cst.Name)
    value = frame.env.get(name) if node.value.value == name else None
    key = frame, name
    ev.journal.set_item(ev.to_keep, key, (keeper, value or constant(None)))
    if ev.kept.get(key):
        # What is held goes here, between the other things that the program does.
        ev.journal.set_attr(ev, "removes", True)
        ev.effect(lambda: _settle(ev, key))
    return True


def note_next(ev: Evaluator, frame: Frame) -> None:
    """Executes the stores that stand right behind a statement that Python has run."""
    while frame.blocks:
        block = frame.blocks[-1]
        if block.index >= len(block.statements):
            if block.kind != "body" or block.ended is not None or len(frame.blocks) < 2:
                break
            frame.blocks.pop()
            continue
        statement = block.statements[block.index]
        small = statement.body[0] if store_of(statement) else None  # type: ignore[union-attr]
        if small is None or not note(ev, frame, small):
            break
        block.index += 1
    settle(ev)


def seen(ev: Evaluator, values: Iterable[Value]) -> None:
    """Notes that Python gets to see values."""
    for value in values:
        for tensor in tensors_in(ev, value):
            ev.seen[id(tensor)] = tensor


def settle(ev: Evaluator) -> None:
    """Emits the stores of what is an object by now, and of what takes the place of one."""
    for key in list(ev.to_keep):
        _settle(ev, key)


def _settle(ev: Evaluator, key: tuple[Frame, str]) -> None:
    """Does the same for one variable."""
    if key not in ev.to_keep:
        return
    keeper, value = ev.to_keep[key]
    text = _text(ev, value)
    holder = ev.residual.reify(ev.look(key[0].env[keeper]))
    held = ev.kept.get(key, "an object" if _is_none(value) else None)
    # One text may name one object after the other, but not parts of what is still there.
    once = text is not None and not text.startswith("(")
    if once or text != held:
        ev.residual.emit(store_text(holder, key[1], text or "None"))
        ev.residual.keepers.add(holder)
        ev.journal.set_item(ev.kept, key, text)
    if once or _is_fixed(value):
        ev.journal.delete_item(ev.to_keep, key)


def waiting(ev: Evaluator, frame: Frame, live: set[str]) -> list[Any]:
    """Returns the stores that the rest of a frame has to begin with: of what it may show."""
    return [
        line(store_text(keeper, name, name))
        for (owner, name), (keeper, value) in ev.to_keep.items()
        if owner is frame and name in live and frame.env.get(name) is value
    ]


def unseen(ev: Evaluator, frame: Frame) -> frozenset[str]:
    """Returns the variables of a frame that hold tensors which Python has not seen."""
    return frozenset(name for name, value in frame.env.items() if _is_unseen(ev, value))


def held(ev: Evaluator, frame: Frame) -> frozenset[str]:
    """Returns the variables of a frame whose keeper may hold an object."""
    stored = {
        name for (owner, name), text in ev.kept.items() if owner is frame and text
    }
    return frozenset(stored | frame.kept)


def _text(ev: Evaluator, value: Value) -> str | None:
    """How the program reaches an object that a variable keeps alive; None if it is none."""
    text = _path(ev, value)
    if text is not None or _is_fixed(value) or isinstance(value, TensorValue):
        return text
    # It does not exist, but what it holds may.
    found: dict[str, None] = {}
    stack, looked = [value], set()
    while stack:
        for part in parts_of(stack.pop()):
            if id(part) not in looked:
                looked.add(id(part))
                path = _path(ev, part)
                if path is None:
                    stack.append(part)
                else:
                    found[path] = None
    return f"({', '.join(found)},)" if found else None


def _path(ev: Evaluator, value: Value) -> str | None:
    """How the program reaches an object that exists; None if it does not."""
    source = getattr(value, "source", None)
    if _is_fixed(value) or _is_unseen(ev, value):
        return None
    match value:
        case Unknown():
            return value.name
        case TensorValue() | Known():
            return ev.residual.reify(value)
    return value.name or (None if source is None else str(source.residual))


def _is_fixed(value: Value) -> bool:
    """Whether a value has no identity, or is there in any case."""
    if isinstance(value, Scalar):
        return True
    if not hasattr(value, "obj") or isinstance(value, ListValue):
        return False
    if getattr(value, "source", None) is None:
        return True
    return is_constant(value.obj) or is_a(value.obj, _FIXED)


def _is_unseen(ev: Evaluator, value: Value) -> bool:
    """Whether a value is a tensor that only segments have seen."""
    source = getattr(value, "source", None)
    if source is not None:
        return source.residual in ev.hints.unseen and id(value) not in ev.seen
    return isinstance(value, TensorValue) and id(value) not in ev.seen


def _is_none(value: Value) -> bool:
    return isinstance(value, Known) and value.obj is None


def _is_data(frame: Frame, name: str) -> bool:
    value = frame.env.get(name)
    if isinstance(value, TensorValue | Scalar):
        return True
    obj = getattr(value, "obj", None)
    return value is not None and (is_a(obj, torch.Tensor) or is_constant(obj))


def _is_torch(frame: Frame, name: str) -> bool:
    found = None if name in frame.locals else frame.scope.globals.get(name)
    return is_a(found, ModuleType) and str(found.__name__).partition(".")[0] == "torch"


def _is_builtin(frame: Frame, name: str) -> bool:
    return name not in frame.locals and name not in frame.scope.globals
