"""The standard library and NumPy: collections, itertools, functools, copy, numbers, text."""

from __future__ import annotations

import bisect
import collections
import contextlib
import copy
import fractions
import functools
import heapq
import io
import itertools
import json
import math
import operator
import random
import re
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest
import torch

from tests.constructs.support import Cases

cases = Cases()


def x():
    return torch.arange(6.0).reshape(2, 3)


@cases.add("defaultdict")
def _():
    groups = defaultdict(list, {"a": [1]})

    def program(x):
        made = defaultdict(list)
        made["a"].append(x)
        counts = defaultdict(int)
        for letter in "abca":
            counts[letter] += 1
        nested = defaultdict(lambda: defaultdict(float))
        nested[1][2] += 0.5
        groups["b"].append(2)
        return made["a"][0] * counts["a"], made, counts, nested, groups, counts.get("z")

    return program, (x(),)


@cases.add("ordered-dict")
def _():
    given = OrderedDict(a=1, b=2)

    def program(x):
        made = OrderedDict([("z", x), ("a", 1)])
        made.move_to_end("z")
        given.move_to_end("a")
        return made, made.popitem(last=False), given, list(reversed(made))

    return program, (x(),)


@cases.add("counter")
def _():
    def program(x):
        counter = Counter("hello")
        return x * counter["l"], counter.most_common(1), counter["q"]

    return program, (x(),)


@cases.add("deque")
def _():
    def program(x):
        queue = deque([x, x * 2], maxlen=2)
        queue.append(x + 1)
        return queue.popleft() + 1, len(queue), list(queue)

    return program, (x(),)


@cases.add("chain-map")
def _():
    def program(x):
        chained = ChainMap({"a": 5}, {"b": 1})
        return x * chained["a"], chained["b"]

    return program, (x(),)


@cases.add("subclass-of-dict-and-list")
def _():
    class Doubling(dict):
        def __missing__(self, key):
            return key * 2

    def program(x):
        made = Doubling(a=1)
        return x * made["a"], made["bb"]

    return program, (x(),)


@cases.add("itertools")
def _():
    def program(x):
        i = itertools
        return (
            list(i.accumulate([x, x + 1], torch.add)),
            list(i.chain([1], (2, 3))),
            list(i.combinations("abc", 2)),
            list(i.islice(i.count(3, 2), 4)),
            list(i.islice(i.cycle("ab"), 5)),
            list(i.dropwhile(lambda v: v < 2, [1, 2, 1])),
            list(i.filterfalse(lambda v: v % 2, range(5))),
            list(i.pairwise("abc")),
            list(i.permutations([1, 2, 3], 2)),
            list(i.product([1, 2], "ab")),
            list(i.repeat(7, 3)),
            list(i.starmap(pow, [(2, 3)])),
            list(i.takewhile(lambda v: v < 3, [1, 2, 3, 1])),
            list(i.zip_longest([1, 2], [3], fillvalue=0)),
        )

    return program, (x(),)


@cases.add("itertools-in-c")
def _():
    def program(x):
        groups = [(k, list(g)) for k, g in itertools.groupby("aab")]
        return x, groups, list(itertools.compress("abc", [1, 0, 1]))

    return program, (x(),)


@cases.add("iterator-passed-in")
def _():
    def program(x, numbers):
        return x * next(numbers), list(numbers)

    return program, (x(), iter([1, 2, 3]))


@cases.add("functools-partial")
def _():
    given = functools.partial(torch.add, alpha=2)

    def program(x):
        made = functools.partial(given, x)
        return made(x), given(x, 1), functools.partial(pow, 2)(3)

    return program, (x(),)


@cases.add("functools-reduce-and-wraps")
def _():
    def logged(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args) + 1

        return wrapper

    @logged
    def double(t):
        """Twice."""
        return t * 2

    def program(x):
        total = functools.reduce(operator.add, [x, x, x])
        return double(x) + total, double.__name__, double.__wrapped__(x)

    return program, (x(),)


@cases.add("functools-lru-cache")
def _():
    calls = []

    @functools.lru_cache(maxsize=2)
    def slow(n):
        calls.append(n)
        return n * 10

    def program(x):
        found = slow(1), slow(2), slow(1), slow(3), slow(2)
        return x * found[0], found, slow.cache_info(), calls

    return program, (x(),)


@cases.add("functools-singledispatch")
def _():
    @functools.singledispatch
    def kind(value):
        return "object"

    @kind.register
    def _(value: int):
        return "int"

    def program(x):
        return x, kind(1), kind("s"), kind(True)

    return program, (x(),)


@cases.add("functools-total-ordering")
def _():
    @functools.total_ordering
    class Size:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

    def program(x):
        return x, Size(1) <= Size(2), Size(3) >= Size(4), Size(1) > Size(0)

    return program, (x(),)


@cases.add("operator-functions")
def _():
    def program(x):
        second = operator.itemgetter(1)
        return (
            operator.matmul(x, x.T),
            second([x, x * 2]),
            operator.attrgetter("shape")(x),
            operator.methodcaller("sum", 1)(x),
            sorted([(1, "b"), (0, "c")], key=second),
        )

    return program, (x(),)


@cases.add("sorting")
def _():
    def program(x):
        pairs = [(1, "b"), (0, "a"), (1, "a")]
        down = sorted(pairs, key=lambda p: p[0], reverse=True)
        pairs.sort(key=lambda p: p[1])
        return x, pairs, down, max([3, 1], key=lambda v: -v), min([], default=4)

    return program, (x(),)


@cases.add("sorting-a-list-that-changes")
def _():
    def program(x):
        numbers = [3, 1]

        def key(v):
            numbers.append(v)
            return v

        try:
            numbers.sort(key=key)
        except ValueError as error:
            return x, str(error)

    return program, (x(),)


@cases.add("copy-of-containers")
def _():
    def program(x):
        shared = [1]
        made = copy.deepcopy([shared, shared])
        return x, made[0] is made[1], copy.copy({"a": shared})["a"] is shared

    return program, (x(),)


@cases.add("copy-of-objects")
def _():
    class Holder:
        def __init__(self):
            self.items = [1]

    def program(x):
        holder = Holder()
        return x, copy.deepcopy(holder).items is holder.items, copy.copy(holder).items

    return program, (x(),)


@cases.add("contextlib-contextmanager")
def _():
    log = []

    @contextlib.contextmanager
    def scaled(k):
        log.append("in")
        try:
            yield k * 2
        finally:
            log.append("out")

    def program(x):
        with scaled(3) as k, contextlib.nullcontext(5) as n:
            y = x * k + n
        return y, log

    return program, (x(),)


@cases.add("contextlib-managers-in-c")
def _():
    def program(x):
        with contextlib.suppress(ZeroDivisionError):
            x = x + 1
            1 / 0
        with contextlib.ExitStack() as stack:
            x = x * stack.enter_context(contextlib.nullcontext(5))
        hidden = io.StringIO()
        with contextlib.redirect_stdout(hidden):
            print("hidden")
        return x, hidden.getvalue()

    return program, (x(),)


@cases.add("numbers-of-python")
def _():
    def program(x, n=2**64):
        nan = float("nan")
        return (
            x * math.sqrt(4) + math.floor(-0.5),
            n * n // 7,
            pow(n, 3, 10**9 + 7),
            -7 // 2,
            -7 % 3,
            divmod(7.5, -2.0),
            round(2.5),
            True + True,
            0.0 * -1,
            nan == nan,
            sorted([3, 1.0, True]),
            math.comb(50, 25),
            (1 + 2j) * 3j,
        )

    return program, (x(),)


@cases.add("nan-in-containers")
def _():
    def program(x):
        nan = float("nan")
        numbers = [nan, 1.0]
        return x, nan in numbers, numbers.index(nan), [nan] == [nan], nan is nan

    return program, (x(),)


@cases.add("keys-that-are-equal")
def _():
    def program(x):
        table = {1: "a", True: "b", 1.0: "c", 0.0: "d", -0.0: "e"}  # noqa: F601
        return x, table, table[True], {2: 1} == {2.0: True}, len({1, True, 1.0})

    return program, (x(),)


@cases.add("comparison-of-sequences")
def _():
    def program(x):
        return x, [1, 2] < [1, 3], (1,) < (1, 0), [1] == (1,), "a" < "b", {1} < {1, 2}

    return program, (x(),)


@cases.add("text-and-bytes")
def _():
    def program(x):
        s = "Hello, World"
        return (
            x + len(s),
            s.lower().split(", "),
            f"{x.shape[0]:>4}|{3.14159:.2f}|{s!r}",
            "%s %d" % ("a", 1),  # noqa: UP031
            s.encode()[1:3].hex(),
            s.partition(","),
            s.translate(str.maketrans("lo", "01")),
            "-".join(["a", "b"]),
            int("ff", 16),
        )

    return program, (x(),)


@cases.add("modules-in-python")
def _():
    def program(x):
        heap = [3, 1, 2]
        heapq.heapify(heap)
        third = fractions.Fraction(1, 3)
        texts = re.sub("l+", "L", "hello"), json.dumps({"a": [1, None]})
        return x * heap[0], third + 1, texts, bisect.bisect([1, 3, 5], 3)

    return program, (x(),)


@cases.add("random-of-python")
def _():
    def program(x):
        random.seed(5)
        numbers = [1, 2, 3, 4]
        random.shuffle(numbers)
        return x * random.random() + random.randint(1, 3), numbers

    return program, (x(),)


@cases.add("numpy-scalars")
def _():
    given = np.float32(2.5)

    def program(x, n=np.int64(3)):
        kinds = [type(v).__name__ for v in (given + 1, n / 2, n == 3, given * n)]
        return x * given, n // 2, given > 1, kinds, n == 3

    return program, (x(),)


@cases.add("numpy-arrays")
def _():
    def program(x, a):
        y = torch.from_numpy(a) + x
        a[0, 0] = 9
        return y, a.sum(), a.mean(axis=0), x.numpy() * a

    return program, (x(), np.ones((2, 3)))


@cases.add("numpy-random")
def _():
    def program(x):
        np.random.seed(3)
        return x * np.random.rand(), np.random.randint(0, 10, 2)

    return program, (x(),)


@cases.add("abstract-collections")
def _():
    def program(x, items):
        kinds = collections.abc.Sequence, collections.abc.Mapping
        return x, [isinstance(items, kind) for kind in kinds]

    return program, (x(), [1])


@pytest.mark.parametrize("name", cases)
def test_construct(name: str) -> None:
    cases.check(name)
