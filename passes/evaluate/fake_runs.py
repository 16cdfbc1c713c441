"""Operations run on fake tensors by PyTorch itself, and what their failures mean.

x.view(3, -1)          the fake result: shape, dtype, strides; and facts about the run
x @ y                  of shapes that do not fit: SJ030, eager raises, too
x.nonzero()            SJ104: the shape depends on data
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from srcjit.diagnostics import GraphBreak

from .. import warned
from ..python_rules import python_rules
from . import writes
from .breaks import Break, FixSizes
from .raising import Facts, Witness, eager_raises, is_quiet

if TYPE_CHECKING:
    from .evaluator import Evaluator


def run(
    ev: Evaluator, kind: str, target: Any, args: list[Any], kwargs: dict[str, Any]
) -> tuple[Any, Facts]:
    """Runs one operation on fakes; returns its result and the facts about the run.

    Raises:
        GraphBreak: SJ030 when eager would raise, SJ103 to SJ105 when fakes cannot run it.
    """
    name = (
        target if isinstance(target, str) else getattr(target, "__name__", str(target))
    )
    if (reason := eager_raises(name, args, kwargs.get("out"))) is not None:
        raise Break("SJ030", f"`{name}` raises RuntimeError: {reason}")
    _refuse_powers(name, args)
    try:
        targets = writes.written(name, args, kwargs)
        writes.check(name, targets, args, kwargs)
        before = writes.layouts(targets)
        with (
            warned.noted() as warnings,
            ev.fake_mode,
            _rules(ev, [*args, *kwargs.values()]),
        ):
            if is_quiet(target, [*args, *kwargs.values()]):
                facts = Facts()
                result = _called(kind, target, args, kwargs)
            else:
                with Witness() as witness:
                    result = _called(kind, target, args, kwargs)
                facts = witness.facts(target)
        writes.refuse_changes(ev, name, before)
        if warnings:
            what = f".{args[1]}" if target is getattr else name
            first = re.split(r"\n|\. |\.$| \(Triggered", warnings[0].strip())[0]
            raise Break("SJ032", f"`{what}` warns: {first}")
        _refuse_layouts(name, result)
        return result, facts
    except GraphBreak:
        raise
    except DataDependentOutputException as error:
        raise Break("SJ103", f"`{name}` reads the value of a tensor") from error
    except DynamicOutputShapeException as error:
        raise Break(
            "SJ104", f"the shape of `{name}`'s result depends on data"
        ) from error
    except Exception as error:
        if _sized(ev, [*args, *kwargs.values()]):
            raise FixSizes(f"`{name}`: {error}") from error
        raise _failure(name, error) from error


def _failure(name: str, error: Exception) -> Break:
    """Says what an exception of an operation on fakes means for the program."""
    if isinstance(error, GuardOnDataDependentSymNode):
        return Break("SJ020", f"`{name}` decides on a run-time number")
    if isinstance(error, UnsupportedFakeTensorException | UnsupportedOperatorException):
        return Break("SJ105", f"fake tensors cannot run `{name}`")
    first = str(error).splitlines()[0] if str(error) else ""
    return Break("SJ030", f"`{name}` raises {type(error).__name__}: {first}")


def _rules(
    ev: Evaluator, operands: list[Any]
) -> contextlib.AbstractContextManager[Any]:
    """PyTorch's rules for symbolic sizes; its own in C++ make numbers of some."""
    if _sized(ev, operands):
        return python_rules()
    return contextlib.nullcontext()


def _sized(ev: Evaluator, operands: Any) -> bool:
    if not ev.sizes.places:
        return False
    if isinstance(operands, torch.Tensor):
        return any(
            isinstance(n, torch.SymInt) for n in (*operands.size(), *operands.stride())
        )
    if isinstance(operands, (list, tuple)):
        return any(_sized(ev, o) for o in operands)
    if isinstance(operands, dict):
        return _sized(ev, list(operands.values()))
    if isinstance(operands, slice):
        return _sized(ev, [operands.start, operands.stop, operands.step])
    return isinstance(operands, torch.SymInt | torch.SymFloat)


def _called(kind: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if kind == "call_method":
        return getattr(args[0], target)(*args[1:], **kwargs)
    return target(*args, **kwargs)


def _refuse_layouts(name: str, result: Any) -> None:
    """Breaks if an operation makes a tensor that no segment can hold."""
    if isinstance(result, torch.Tensor):
        if result.layout is not torch.strided:
            raise Break("SJ105", f"`{name}` makes a tensor of {result.layout}")
    elif isinstance(result, (tuple, list)):
        for item in result:
            _refuse_layouts(name, item)


def _refuse_powers(name: str, args: Any) -> None:
    """Breaks at a power of bools, which eager leaves bools and fakes make int64."""
    if name.strip("_") not in ("pow", "rpow", "ipow"):
        return
    dtypes = {a.dtype if isinstance(a, torch.Tensor) else type(a) for a in args}
    if torch.bool in dtypes and dtypes <= {torch.bool, bool}:
        raise Break("SJ105", f"fake tensors give `{name}` of bools another dtype")
