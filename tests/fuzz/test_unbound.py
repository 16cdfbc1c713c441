"""Every way in which a name can be unbound raises eager's exception, in eager's words."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from . import running
from .running import Case
from .tree import Line

UNBOUND = {
    "never assigned": """
        print(v1)
        v1 = 1
        """,
    "assigned on another path": """
        if opaque(n) < 0:
            v1 = 1
        print(opaque(n))
        return v1 + n
        """,
    "assigned on the other path of a known condition": """
        if n > 100:
            v1 = 1
        print(opaque(n))
        return v1 + n
        """,
    "deleted": """
        v1 = n
        del v1
        print(opaque(n))
        return v1 + 1
        """,
    "deleted twice": """
        v1 = opaque(n)
        del v1
        keep(n)
        del v1
        """,
    "deleted on an unknown path": """
        v1 = n
        if opaque(n) > 2:
            del v1
        keep(n)
        return v1 + 1
        """,
    "assigned to itself": """
        keep(n)
        v1 += 1
        """,
    "assigned to itself by a walrus": """
        keep(n)
        return (v1 := v1 + opaque(n))
        """,
    "cleared behind a handler": """
        try:
            raise KeyError(opaque(n))
        except KeyError as v1:
            print(v1)
        return v1
        """,
    "cleared behind a handler that did not run": """
        v1 = n
        try:
            keep(v1)
        except KeyError as v1:
            print(v1)
        try:
            raise KeyError(opaque(n))
        except KeyError as v1:
            pass
        print(n)
        return opaque(v1)
        """,
    "deleted in a handler": """
        try:
            raise KeyError(opaque(n))
        except KeyError as v1:
            del v1
            keep(n)
            print(v1)
        """,
    "deleted in a loop": """
        v1 = n
        for i1 in range(3):
            keep(v1)
            del v1
        """,
    "deleted in an unknown loop": """
        v1 = n
        i2 = opaque(n)
        while i2 > 0:
            i2 -= 1
            keep(v1)
            del v1
        """,
    "a loop over nothing": """
        for i1 in nums[:0]:
            keep(i1)
        keep(n)
        return i1
        """,
    "an unknown loop over nothing": """
        for i1 in opaque(nums[:0]):
            keep(i1)
        return i1 + n
        """,
    "in the test of a loop": """
        while v1 < 1 and v1 < opaque(v1):
            v1 += 1
        """,
    "in the test of a loop, a call alone": """
        while opaque(v1) < 1:
            v1 = 1
        """,
    "in the second part of the test of a loop": """
        while opaque(n) > n and opaque(v1):
            v1 = 1
        """,
    "in the test of a loop, bound in its body": """
        i1 = 0
        while i1 < opaque(1) and (i1 < 1 or v1 < opaque(3)):
            i1 += 1
            v1 = opaque(i1)
            keep(v1)
        return v1
        """,
    "in the test of a loop, in a comprehension": """
        i1 = 0
        while i1 < 3 and any(opaque(v) > 0 for v in v1):
            i1 += 1
            v1 = nums
        """,
    "in the test of a loop, in a lambda": """
        i1 = 0
        while i1 < 3 and opaque(identity(lambda: v1)()):
            i1 += 1
            v1 = nums
        """,
    "in the test of a loop, in an inner comprehension": """
        i1 = 0
        while opaque(i1) < 6 and [v + v1 for v in nums]:
            i1 += 1
            keep(i1)
            v1 = 1
        return v1
        """,
    "in the iterable of a loop": """
        for i1 in opaque(v1):
            v1 = keep(i1)
        """,
    "in the else of a loop": """
        for i1 in range(opaque(n) % 3):
            keep(i1)
            if i1 > 5:
                v1 = 3
        else:
            keep(n)
            print(v1)
        """,
    "in the else of an unknown loop": """
        i1 = opaque(n)
        while i1 > 0:
            i1 -= 1
            keep(i1)
            if i1 > 500:
                v1 = 3
        else:
            keep(n)
            print(v1)
        """,
    "in a with": """
        with Manager(mode, st):
            keep(n)
            print(v1)
            v1 = 1
        """,
    "in a with of a generator": """
        with manager(st):
            v1 = keep(v1)
        """,
    "in the item of a with": """
        with Manager(v1, st) as v1:
            keep(n)
        """,
    "behind a with that swallowed": """
        with Swallow():
            keep(n)
            if n < 1000:
                raise ValueError(opaque(n))
            v1 = 2
        return v1
        """,
    "in a finally": """
        try:
            keep(n)
            if opaque(n) > -1000:
                raise ValueError(mode)
            v1 = 3
        finally:
            keep(n)
            print(v1)
        """,
    "in an else of a try": """
        try:
            keep(n)
        except KeyError:
            v1 = 2
        else:
            keep(v1)
        """,
    "in the type of a handler": """
        try:
            keep(n)
            raise ValueError(opaque(n))
        except v1:
            v1 = 2
        """,
    "in a match": """
        match opaque(v1):
            case 1:
                v1 = 2
        """,
    "in the guard of a match": """
        match opaque(n):
            case v2 if opaque(v1) > v2:
                v1 = 2
        """,
    "bound by a case that does not match": """
        match [opaque(n)]:
            case [v1, v2]:
                keep(v1)
        keep(n)
        return v1
        """,
    "in a called function": """
        def fn1(k):
            keep(k)
            print(v1)
            v1 = k
        fn1(n)
        """,
    "in a loop of a called function": """
        def fn1(k):
            while i1 < k and opaque(i1) < k:
                i1 += 1
        fn1(n)
        """,
    "in a method": """
        class C1:
            def area(self, k):
                while i1 < 3 and any(v > 0 for v in v2):
                    i1 += 1
                    v2 = nums
        return C1().area(n)
        """,
    "a variable of the function around": """
        def fn1(k):
            keep(k)
            return v1 + k
        if n > 1000:
            v1 = 2
        return fn1(n)
        """,
    "a variable of the function around, deleted": """
        v1 = n
        def fn1(k):
            return v1 + opaque(k)
        keep(fn1(n))
        del v1
        return fn1(n)
        """,
    "a variable of the function around, rebound by the inner one": """
        def fn1(k):
            nonlocal v1
            v1 = v1 + k
            return v1
        v1 = n
        del v1
        keep(n)
        return fn1(n)
        """,
    "a variable of the function around, deleted by the inner one": """
        v1 = n
        def fn1():
            nonlocal v1
            keep(v1)
            del v1
        fn1()
        keep(n)
        return v1
        """,
    "a variable of the function around, deleted twice by the inner one": """
        v1 = n
        def fn1():
            nonlocal v1
            del v1
        fn1()
        keep(n)
        fn1()
        """,
    "a variable of the function around, in a loop's test": """
        def fn1(k):
            i1 = 0
            while opaque(i1) < k and opaque(v1) < 10:
                i1 += 1
            return i1
        if n > 1000:
            v1 = 2
        return fn1(n)
        """,
    "a variable of the function around, before another name": """
        v1 = n
        def fn1(k=-1):
            nonlocal v1
            v1 = v1 + k
            return v1
        del v1
        nums.append(opaque(n))
        v2 = fn1(n)
        return g8
        """,
    "in a lambda": """
        v2 = lambda k: v1 + k
        keep(n)
        if n > 1000:
            v1 = 1
        return v2(n)
        """,
    "in the iterable of a comprehension": """
        keep(n)
        return [v for v in v1]
        v1 = 2
        """,
    "in the body of a comprehension": """
        keep(n)
        v2 = [v + v1 for v in nums]
        v1 = 2
        """,
    "in the condition of a comprehension with calls": """
        keep(n)
        v2 = {v: opaque(v) for v in [1, *nums] if opaque(v1) > v}
        v1 = 2
        """,
    "in a generator expression": """
        keep(n)
        v2 = sum(opaque(v) + v1 for v in [n, *nums])
        v1 = 2
        """,
    "in a generator": """
        def fn1(k):
            for i1 in range(k % 3 + 1):
                yield i1 + v1
            v1 = 3
        keep(n)
        return list(fn1(n))
        """,
    "in the body of a class": """
        class C1:
            keep(n)
            size = v1
            v1 = size
        v1 = 2
        """,
    "in the body of a class, of the class": """
        class C1:
            size = 3
            keep(size)
            del size
            area = size
        return C1
        """,
    "in an argument behind a call": """
        return variadic(opaque(n), *[opaque(n)], k=v1)
        v1 = 1
        """,
    "in a target": """
        v1[opaque(n)] = keep(n)
        v1 = []
        """,
    "in the attribute of a target": """
        v1.rate += opaque(n)
        v1 = st
        """,
    "in a formatted string": """
        v2 = f"{opaque(n)} {v1!r}"
        v1 = 3
        """,
    "in a chain of comparisons": """
        v2 = n < opaque(n) < v1 < opaque(v1)
        v1 = 3
        """,
    "in a default": """
        def fn1(k=v1):
            return opaque(k)
        v1 = 3
        return fn1()
        """,
    "in a decorator": """
        @v1
        def fn1(k):
            return opaque(k)
        v1 = 3
        """,
    "in an assertion's message": """
        keep(n)
        assert opaque(n) < -1000, v1
        v1 = 3
        """,
    "in what is raised": """
        keep(n)
        raise ValueError(opaque(n)) from v1
        v1 = 3
        """,
    "in what is unpacked": """
        v1, v2 = opaque(n), v1
        """,
    "in what is unpacked, the second target": """
        v1, nums[v2] = opaque(n), n
        v2 = 1
        """,
    "a global that is not there": """
        keep(n)
        return g8 + opaque(n)
        """,
    "a global that is not there, in a test": """
        i1 = 0
        while opaque(i1) < g8:
            i1 += 1
        """,
    "a global that is deleted": """
        global g9
        g9 = opaque(n)
        keep(g9)
        del g9
        keep(n)
        return g9
        """,
    "a global that is deleted twice": """
        global g9
        g9 = opaque(n)
        del g9
        keep(n)
        del g9
        """,
    "a global that is assigned on another path": """
        global g9
        if opaque(n) > 1000:
            g9 = 1
        return g9
        """,
    "a global with the name of a built-in function": """
        global sum
        keep(n)
        del sum
        """,
    "a built-in function that is a local": """
        keep(n)
        print(sum)
        sum = opaque(n)
        """,
    "bound again after a break": """
        v1 = n
        del v1
        keep(n)
        v1 = opaque(n)
        keep(v1)
        del v1
        keep(n)
        return v1
        """,
    "bound in a loop that is left": """
        for i1 in range(3):
            keep(i1)
            if opaque(i1) >= 0:
                break
            v1 = i1
        keep(n)
        return v1
        """,
    "deleted before it goes on": """
        for v1 in range(3):
            keep(v1)
            del v1
            if n > -1000:
                continue
        keep(n)
        return v1
        """,
    "an argument that another one holds": """
        held = [nums]
        keep(held)
        for v1 in range(2):
            try:
                try:
                    if v1 == 0:
                        del nums
                    1 // ((n + v1) % 2)
                except ZeroDivisionError:
                    raise ValueError(repr(nums)) from None
            except (NameError, ValueError) as e2:
                print(repr(e2))
        """,
    "an argument that a handler binds": """
        try:
            keep(n)
            1 // 0
        except ZeroDivisionError as nums:
            print(repr(nums))
        for v1 in range(2):
            keep(v1)
            try:
                print(nums)
            except NameError as e2:
                print(repr(e2))
        """,
    "read by eval": """
        keep(n)
        if n > 1000:
            v1 = 2
        return eval("v1")
        """,
}


def _lines(text: str) -> list[str]:
    return textwrap.dedent(text).strip("\n").split("\n")


@pytest.mark.parametrize("name", UNBOUND)
def test_unbound(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = running.calls
    monkeypatch.setattr(running, "calls", lambda *given: list(every(*given))[:2])
    lines = _lines(UNBOUND[name])
    caught = [
        "try:",
        *("    " + line for line in lines),
        "except Exception as e1:",
        "    print(type(e1), e1, type(e1.__context__), e1.__cause__)",
        "    st.log.append(str(e1))",
    ]
    path = tmp_path / "tests" / "programs" / "unbound.py"
    for numbers in ("known", "unknown"):
        for body in (lines, caught):
            case = Case(tuple(map(Line, body)), 0, "plain", numbers=numbers)
            assert not running.failure(case, path)
