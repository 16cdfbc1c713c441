"""Living beside TorchDynamo, which may be tracing the program that calls us.

While a function that `torch.compile` has made runs, TorchDynamo looks at every Python frame
that starts, srcjit's own included. It may trace the user's code, but not the dispatcher.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, TypeVar

from torch._C._dynamo import eval_frame

F = TypeVar("F", bound=Callable[..., Any])

_set_eval_frame: Callable[[Any], Any] = getattr(
    eval_frame, "set_eval_frame", lambda callback: None
)


_frame_hook: Callable[[], Any] = getattr(
    eval_frame, "get_eval_frame_callback", lambda: _set_eval_frame(None)
)


def _skip(code: CodeType) -> None:
    """Tells TorchDynamo's frame hook to leave frames of `code` alone."""
    if hasattr(eval_frame, "set_code_exec_strategy"):
        action = eval_frame._FrameAction
        strategy = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
        eval_frame.set_code_exec_strategy(code, strategy)
    elif hasattr(eval_frame, "skip_code"):  # PyTorch before 2.7
        eval_frame.skip_code(code)


def opaque(function: F) -> F:
    """Makes TorchDynamo call `function` instead of tracing it.

    NOTE: marks are only put on functions of srcjit's own. `functools.wraps` copies a
    function's attributes, so a mark on what users get would spread to their wrappers.
    """
    assert isinstance(function, FunctionType)
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    _skip(function.__code__)
    return function


def unobserved(function: F) -> F:
    """Decorates a function so that TorchDynamo sees neither it nor what it calls."""

    # The call is made here, in a frame that is skipped: in any other frame, TorchDynamo
    # puts its hook back when a call in it returns.
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = _frame_hook()
        try:
            _set_eval_frame(None)
            return function(*args, **kwargs)
        finally:
            _set_eval_frame(before)

    return opaque(call)  # type: ignore[return-value]
