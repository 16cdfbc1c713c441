"""The statement lists of compound statements."""

from __future__ import annotations

from typing import Any

import libcst as cst


def body_of(node: Any) -> Any:
    """The statements of a compound statement's suite, one small statement each."""
    body = node.body
    if isinstance(body, (cst.IndentedBlock, cst.SimpleStatementSuite)):
        return body.body
    return body
