"""Programs that the fuzzer has found to go wrong, made small: one of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from .running import Case, failure
from .tree import Line

FOUND = {
    "a number that is read on the way into an arm is known there alone": (
        "plain unknown",
        """
        v1 = [n, m]
        with contextlib.ExitStack():
            v1 = [i + j for i in range(2) for j in v1[:2] if i != j]
        return v1
        """,
    ),
    "the negation in an assertion is as plain as it gets": (
        "plain unknown",
        """
        keep(n)
        assert not mode == 'z', mode
        assert not (not n == m or not flag), m
        return n
        """,
    ),
    "a match that returns from a called function returns from that alone": (
        "plain symbolic",
        """
        class C1:
            def area(self, p2):
                v4 = f"{n=}"
                match st:
                    case State(count=0):
                        v4 += '.'
                        return 1
                return v4
        return C1().area(m), m
        """,
    ),
    "a list that shrinks under a zip across a break ends the loop": (
        "plain known",
        """
        for i1, i2 in zip(nums[:3], nums):
            keep(i1)
            nums.remove(i1)
        return nums
        """,
    ),
    "an iterator that crosses a break stays the iterator it is": (
        "plain known",
        """
        g1 = iter([1, 2, 3])
        for i1 in g1:
            keep(i1)
            break
        return g1, next(g1)
        """,
    ),
    "a list that a loop goes over is changed through what holds it": (
        "plain known",
        """
        box = [[1, 2, 3]]
        for i1 in box[0]:
            keep(i1)
            if len(box[0]) < 5:
                box[0].append(i1)
        return box
        """,
    ),
    "what `+=` on an attribute reads and adds is evaluated once": (
        "plain known",
        """
        st.prop += 1
        st.count += noisy(m)
        st.count += st.prop
        """,
    ),
    "an iterator that Python gets is of the class it was made of": (
        "plain known",
        """
        given = map(twice, nums), zip(nums, mode), enumerate(nums), reversed(nums)
        made = [iter((1, 2)), iter(range(2)), iter({1}), iter(scores), iter(mode), *given]
        keep(made[0])
        return made, next(made[5], 0), next(made[1])
        """,
    ),
    "what eager refuses to subtract or to write to is refused in its place": (
        "tensors known",
        """
        shared = b.expand(3, 4)
        for change in (
            lambda: 1.5 - (a > 0),
            lambda: torch.mul(shared, 2, out=shared),
            lambda: shared.copy_(b),
            lambda: c.long().mul_(float(n)),
        ):
            st.count += 1
            try:
                change()
            except RuntimeError as e1:
                st.log.append(str(e1))
        st.count = 100
        torch.mul(shared, 2, out=shared)
        """,
    ),
    "a size is compared as the float that it is compared as": (
        "tensors symbolic",
        """
        v1 = n + len(mode)
        if torch.tensor(0.5).detach() > v1:
            st.count += 1
        return torch.full((2,), 2.0) > v1, torch.tensor(3.0) * v1
        """,
    ),
    "a way of an `if` on data that only leaves the function returns None": (
        "tensors known",
        """
        def leaves(x, log):
            if x.sum() > 0:
                return
            log.append(1)
        for i1 in range(int(a.shape[0])):
            if a[0].sum() + i1 > 0:
                continue
            st.log.append(i1)
        leaves(a, st.log)
        leaves(-a, st.log)
        leaves(a.abs() + 1, st.log)
        if a.sum() > b.sum():
            return
        st.log.append(2)
        if a.sum() > c.sum():
            st.log.append(3)
            return
        st.log.append(4)
        """,
    ),
    "what a library raises has the line of the user's function that called it": (
        "tensors known",
        """
        try:
            print(st.log)
        finally:
            v1 = a.shape[0] - net(c.t())
        """,
    ),
    "a number in place of a variable keeps the parentheses that it needs": (
        "plain known",
        """
        class C1(Point):
            def area(self, p1):
                return(n), n.bit_length(), (n).real, r.real
        return C1(1, 2).area(2)
        """,
    ),
    "what compiling looked at is not kept alive by it": (
        "plain known",
        """
        def ended(k):
            try:
                yield k
            finally:
                print("ended")
        g1 = ended(m)
        with Manager('m', st):
            st.count += next(g1, m)
        """,
    ),
    "a function that what it captures, or a default, holds is there to be held": (
        "plain known",
        """
        bag, point = [], Point()
        def fn1(k=bag):
            return k, point
        bag.append(fn1)
        point.x = fn1
        v1 = opaque(m)
        def fn2():
            return v1
        v1 = fn2
        keep(v1)
        return bag[0]()[1].x is fn1, fn1()[0] is bag, v1() is fn2
        """,
    ),
    "a variable that is not bound is so under its own name": (
        "plain known",
        """
        def fn1():
            nums += [m]
        def fn2(p1):
            v1 = p1
            del p1
            return (v1, p1.real)
        for i1 in range(4):
            try:
                if i1 == 0:
                    fn1()
                elif i1 == 1:
                    fn2(m)
                elif i1 == 2:
                    while i1 < 3 and len(v2) > 2:
                        i1 += 1
                else:
                    while i1 < 5 and (i1 < 4 or len(v3) > 2):
                        i1 += 1
                        if i1 > 4:
                            v3 = nums
            except NameError as e1:
                keep((type(e1), str(e1)))
        v2 = v3 = nums
        v4 = scores
        del scores
        return v4, scores.get(1)
        """,
    ),
    "a function made in a method sees the variables around its class": (
        "plain known",
        """
        class C1(Point):
            def area(self, p1):
                def fn1(p2=p1):
                    st.count += 1
                    return p2, nums
                keep(fn1)
                return fn1, iter(list(map(fn1, [p1])))
        v1 = C1(1, 2).area(m)
        return v1[0](), next(v1[1])
        """,
    ),
    "what eager has no kernel for comes after the effects before it": (
        "tensors known",
        """
        for refused in (
            lambda: (a > 0).abs(),
            lambda: a & a,
            lambda: torch.softmax(a > 0, 0),
            lambda: torch.add(a > 0, a > 0, alpha=2.0),
            lambda: torch.argmax(a > 0),
            lambda: torch.nn.functional.gelu(a.long()),
        ):
            st.count += 1
            try:
                refused()
            except RuntimeError as e1:
                st.log.append(str(e1))
        v1 = a > 0
        st.count = 100
        v1 -= v1
        """,
    ),
    "a function that is made in a called function sees what that one closes over": (
        "plain known",
        """
        class C1:
            def area(self, p2, table=scores):
                def made(p3, d=p2, *, e=table):
                    return p2 + n + len(mode) + p3 + d + len(e)
                def gen(p4):
                    yield p4 + n
                fs = [lambda: n + p2, made, gen, lambda i: n if i < 1 else fs[0]()]
                keep(fs)
                print(made(2), list(gen(3)), [f.__name__ for f in fs])
                held = [lambda: (n, len(held))]
                keep(held[0])
                print(held[0]())
                return [f(1) for f in fs[1:]], fs
        v1 = C1().area(m)
        return list(v1[0][1]), [f(2) for f in v1[1][3:]], v1[1][0]()
        """,
    ),
    "what Python writes into an item is read from there": (
        "plain unknown",
        """
        v1 = [m, 2]
        v2 = [n]
        v1[0] //= 2
        v2[0] -= v1[0] % 2
        st.count = m
        st.count //= 2
        v3 = Point(v1[0], v2[0]), st.count
        return v1, v2, v3
        """,
    ),
    "an item that is not known may be equal to any": (
        "plain symbolic",
        """
        v1 = [n ^ 2]
        keep(v1)
        v1.extend([n ^ 0, 4])
        v2 = 0 in v1, 2 in v1, v1.count(2), v1 == [0, 2, 4], v1 != [0, 0, 4]
        v3 = (n ^ 1, [n ^ 1]) == (3, [3]), {1: n ^ 1} == {1: 3}
        v1.remove(n)
        return v1, v2, v3, v1.index(4)
        """,
    ),
    "what a native loop may leave as it is comes out of the segment before it": (
        "tensors known",
        """
        for i1 in parts[:1]:
            i1 = helper(b, n)
        for i1 in Steps(n):
            nums.append(n)
        v2 = a.sin()
        while b.sum() > n:
            n += 1
            for v2 in Steps(n):
                print(n)
        return n
        """,
    ),
    "a generator is made once, whoever asks by which variable it is reached": (
        "tensors known",
        """
        def fn1(p1, *rest, k=0):
            yield p1
            try:
                v2 = a.sin() + k
            except ValueError:
                print('never')
            yield v2
        g1 = fn1(a, n, k=1)
        g2 = [fn1(nums)]
        for i1 in range(2):
            try:
                if a[0, 0] - a[0, 0] == n - n:
                    raise ValueError('x')
            except ValueError as e1:
                nums += [next(g1, 0) is a, next(g2[0]) is nums]
                print(type(e1).__name__, e1)
        return g1, g2
        """,
    ),
    "a function finds unbound what is so, also where the program has such a variable": (
        "tensors known",
        """
        v1 = a.sin()
        x = v1
        if b.sum() > 100:
            return x
        def fn1(p1=n):
            return p1, x, v1
        fn2 = lambda: v1
        del v1
        keep([fn1, fn2])
        for f in (fn1, fn2):
            try:
                opaque(f())
            except NameError as e1:
                print(type(e1), e1)
        return x
        """,
    ),
    "a variable that a function names may be bound once it is made, or not any more": (
        "tensors known",
        """
        v1 = v2 = a.sin()
        def fn1():
            nonlocal v1
            v1 = v2 + 1
        def fn2(k=1):
            return fn2, k
        del v1
        v3 = fn2
        del fn2
        keep([fn1, v3])
        fn1()
        try:
            v3()
        except NameError as e1:
            print(type(e1), e1)
        return v1
        """,
    ),
    "a definition that Python runs makes what is called as the user calls it": (
        "tensors known",
        """
        def seen(made):
            copied = (*functools.WRAPPER_ASSIGNMENTS, '__kwdefaults__')
            @functools.wraps(made, copied)
            def wrapper(*args):
                GLOBAL.append((made.__name__, made.__qualname__))
                return made(*args)
            return wrapper
        class Base:
            def __init_subclass__(cls):
                keep((cls.__name__, cls.__qualname__))
        for i in nums[:3]:
            b[b > 0] = i
            @seen
            def made(p4, k=n):
                return c + p4.shape[0] + k + b
            @seen
            class Made(Base):
                held = i
                def area(self):
                    return self.held
            if flag:
                a = made(made(a))
            keep(Made().area.__qualname__)
        return made.__name__, Made.__qualname__
        """,
    ),
    "a number that is computed from symbols has 64 bits where an operation takes it": (
        "tensors symbolic",
        """
        v1 = a * (((3 << 65) + n) % 1000003), a * (n * n * n % 7)
        try:
            a * ((3 << 65) + n)
        except OverflowError as e1:
            print(e1)
        try:
            a * -(n * 2**63)
        except OverflowError as e1:
            print(e1)
        v4 = torch.cos(a) * (n * 2**64)
        return v1
        """,
    ),
    "a variable that another argument leads to is not written over": (
        "plain unknown",
        """
        first = last = {m % 3}
        bag = [first]
        keep(n)
        if n in nums:
            keep(n)
        try:
            pass
        except ValueError as error:
            pass
        else:
            first = {v % 3 for v in nums}
        bag[0].add(8)
        return first, last, bag
        """,
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str, tmp_path: Path) -> None:
    facts, text = FOUND[name]
    flavour, numbers = facts.split()
    lines = [line.removeprefix(" " * 8) for line in text.strip("\n").split("\n")]
    for number in (0, 1):
        case = Case(tuple(map(Line, lines[:-1])), number, flavour, numbers=numbers)
        path = tmp_path / "tests" / "programs" / "found.py"
        assert not failure(case, path)
