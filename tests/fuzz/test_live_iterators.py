"""Iterators over a list that changes behind a break, before and after they are advanced."""

from __future__ import annotations

from pathlib import Path

import pytest

from .running import Case, failure
from .tree import Line

MAKERS = (
    "iter(nums)",
    "reversed(nums)",
    "enumerate(nums)",
    "zip(nums[:3], nums)",
    "zip(nums, 'abcdefgh')",
    "map(lambda v: v + 1, nums)",
    "filter(None, nums)",
    "(v + 1 for v in nums)",
    "itertools.chain([1], nums)",
    "itertools.chain.from_iterable((nums, [1]))",
    "itertools.islice(nums, 1, 6)",
    "itertools.accumulate(nums)",
    "itertools.pairwise(nums)",
    "itertools.starmap(pow, zip(nums, nums))",
    "itertools.takewhile(lambda v: v < 9, nums)",
    "itertools.dropwhile(lambda v: v < 1, nums)",
    "itertools.compress(nums, nums)",
    "itertools.zip_longest(nums, [1])",
    "itertools.repeat(nums, 2)",
    "scores.items()",
    "zip(scores, scores.values())",
    "reversed(scores)",
)

CHANGED = """\
nums.append(7)
scores['new'] = 1
nums[0] = 5
"""

PATTERNS = {
    "untouched": f"z1 = {{}}\nkeep(n)\n{CHANGED}return list(z1)",
    "advanced": f"z1 = iter({{}})\nnext(z1, 0)\nkeep(n)\n{CHANGED}return list(z1)",
    "at its end": f"z1 = iter({{}})\nfor i1 in range(len(nums)):\n    next(z1, 0)\n"
    f"keep(n)\n{CHANGED}return list(z1)",
    "at an end seen": f"z1 = iter({{}})\nlist(z1)\nkeep(n)\n{CHANGED}return list(z1)",
    "in a loop": "v1 = []\nfor i1 in {}:\n    keep(i1)\n    if len(nums) < 6:\n"
    "        nums.append(7)\n    v1.append(i1)\nreturn v1",
    "in a handler": "v1 = []\nfor i1 in {}:\n    try:\n        nums.append(len(nums))\n"
    "        if len(nums) < 7:\n            raise ValueError(m)\n"
    "    except ValueError as e1:\n        print(e1)\n    if len(nums) > 9:\n"
    "        break\nreturn v1",
    "no break": f"z1 = iter({{}})\nnext(z1, 0)\n{CHANGED}return list(z1)",
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_live(pattern: str, tmp_path: Path) -> None:
    path = tmp_path / "tests" / "programs" / "live.py"
    for maker in MAKERS:
        lines = PATTERNS[pattern].format(maker).split("\n")
        for number in (0, 3):
            case = Case(tuple(map(Line, lines)), number, "plain", numbers="known")
            assert not failure(case, path), maker
