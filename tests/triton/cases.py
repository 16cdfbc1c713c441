"""Kernels for the Triton printer: those that all printers share, and more."""

from __future__ import annotations

from collections.abc import Callable

from tests.backend.examples import CASES as SHARED
from tests.backend.examples import Case

CASES: dict[str, Callable[[], Case]] = dict(SHARED)
