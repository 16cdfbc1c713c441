"""The front end of these tests stands in for the real one."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from srcjit import control

from . import front_end as stand_in


@pytest.fixture
def front_end(monkeypatch: pytest.MonkeyPatch) -> stand_in.FrontEnd:
    control.reset()
    made = stand_in.FrontEnd()
    pipeline = ModuleType("srcjit.passes.pipeline")
    pipeline.specialize = made.specialize
    emit = ModuleType("srcjit.passes.emit")
    emit.emit_module = made.emit_module
    monkeypatch.setitem(sys.modules, pipeline.__name__, pipeline)
    monkeypatch.setitem(sys.modules, emit.__name__, emit)
    return made


@pytest.fixture(autouse=True)
def usual_stance() -> Iterator[None]:
    yield
    control.set_stance("default")


class Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """The warnings that the user would see."""
    handler = Warnings()
    logger = logging.getLogger("srcjit")
    logger.addHandler(handler)
    yield handler.texts
    logger.removeHandler(handler)
