"""`docs/constructs.md` and the cases of this folder name each other."""

from __future__ import annotations

import re
from collections import Counter

from srcjit.diagnostics import CODES
from tests.constructs.support import all_cases, rows


def test_every_row_has_a_case_and_every_case_a_row() -> None:
    shown = Counter(row.case for row in rows())
    tested = Counter(name for name, _ in all_cases())
    assert sorted(shown) == sorted(tested)
    assert not [name for name, times in (shown + tested).items() if times > 2]


def test_every_status_is_one_that_the_table_explains() -> None:
    for row in rows():
        assert re.fullmatch(r"evaluated|(break|native)( SJ\d+)+", row.status), row
        assert set(re.findall(r"SJ\d+", row.status)) <= set(CODES), row
        assert row.status == "evaluated" or row.why, f"why is missing: {row}"
