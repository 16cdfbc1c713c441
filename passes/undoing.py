"""What happens when a segment fails of which the program has done nothing yet: eager.

    log.append(1)                failure = None
    try:                         try:
        y = x * 2       becomes      y = segment_0(x)[0]
    finally:                     except Exception as error:
        log.append(2)                failure = error.with_traceback(None)
    return y                     if failure is not None:
                                     result = original(x, log)
                                     report(failure)
                                     return result
                                 log.append(1)
                                 log.append(2)
                                 return y

Any operation may find no memory. Where the program would see at which one, because a
`finally` or a manager's `__exit__` runs then, or an effect has come before, Python runs the
function from its start, and fails where it fails. That is exact as long as the call has done
nothing that can be seen: no line ran before, and the segment neither writes to its inputs nor
draws random numbers.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from .evaluate.evaluator import Evaluator

log = logging.getLogger("srcjit")


def emit(ev: Evaluator, failure: str) -> None:
    """Adds the lines behind a segment for which the variable `failure` says why it failed."""
    residual = ev.residual
    original = residual.original = residual.constant_name(ev.function, "original")
    report_name = residual.constant_name(report, "report")
    result = residual.fresh("result")
    residual.emit(f"if {failure} is not None:")
    with residual.indented():
        residual.emit(f"{result} = {original}({arguments(ev.source.tree.params)})")
        residual.emit(f"{report_name}({failure})")
        residual.emit(f"return {result}")


def arguments(params: cst.Parameters) -> str:
    """The text that hands a function's parameters on to one of the same signature."""
    parts = [p.name.value for p in (*params.posonly_params, *params.params)]
    if isinstance(params.star_arg, cst.Param):
        parts.append(f"*{params.star_arg.name.value}")
    parts += [f"{p.name.value}={p.name.value}" for p in params.kwonly_params]
    if params.star_kwarg is not None:
        parts.append(f"**{params.star_kwarg.name.value}")
    return ", ".join(parts)


def report(failure: Exception) -> None:
    """Tells that compiled code has failed where Python has not."""
    if os.environ.get("SRCJIT_RAISE") == "1":
        raise failure
    log.warning(
        "a segment failed, and Python ran the function instead: %s: %s",
        type(failure).__name__,
        str(failure).partition("\n")[0],
    )
