"""Jumps, exceptions, nested scopes, and variables that may be unbound."""

from __future__ import annotations

import contextlib
import logging

import torch


def opaque(x):
    return eval("x", {"x": x})


def pair(x, y):
    return y, x


def helper(x, k):
    try:
        print("try")
        if k == 0:
            raise ValueError("a")
        q = x + 1
    except ValueError as e:
        print("c", e)
    x = x * 2
    print("p")
    if k == 0:
        return x
    return x + q


def helper_k(x, a, *, b, **kw):
    print(a, b, kw)
    return x * a + b


def break_in_with(xs):
    out = []
    for x in xs:
        with contextlib.suppress(ValueError):
            if (x.sum() > 0).item():
                print("neg")
                break
            out.append(x * 2)
        out.append(x + 1)
    else:
        out.append(1)
    return out


def continue_in_try(xs):
    out = []
    for x in xs:
        try:
            if (x.sum() > 0).item():
                continue
            print("a")
        except ValueError:
            break
        else:
            out.append(x + 1)
        finally:
            print("fin")
        out.append(3)
    return out


def jumps_in_match(xs):
    out = []
    for x in xs:
        for y in xs:
            match int(x.sum() * y.sum()):
                case 0:
                    break
                case 1:
                    continue
                case _:
                    print("other")
            out.append(y)
        else:
            continue
        out.append(x)
    return out


def loops_with_else(x, n):
    while True:
        n -= 1
        if n < 0:
            break
        x = x + n
        if x.sum().item() > 100:
            return "big", x
        for j in range(3):
            if j == n:
                break
            print(j, n)
        else:
            print("full")
            continue
        x = x * 2
    else:
        print("never")
    return x


def iterator_shared_by_two(x):
    it = iter([1, 2, 3, 4])
    s = next(it)
    print("p", s)
    for v in it:
        s += v
        print("q", v, next(it, None))
    return x * s


def unbound_after_match(x, k):
    match opaque(k):
        case 0:
            q = x + 1
        case 1:
            pass
    print("hm")
    if k == 0:
        return q
    return x


def unbound_after_try(x, k):
    try:
        print("try")
        if k == 0:
            raise ValueError("a")
        q = x + 1
    except ValueError as e:
        print("c", e)
    x = x * 2
    print("p")
    if k == 0:
        return x
    return x + q


def unbound_after_with(x, k):
    with contextlib.suppress(ValueError):
        print("w")
        if k == 0:
            raise ValueError("a")
        q = x + 1
    x = x * 2
    print("p")
    if k == 0:
        return x
    return x + q


def unbound_in_callee(x, k):
    return helper(x + 1, k) + 1


def unbound_after_if(x, k):
    if (x.sum() > 0).item():
        q = x * 2
    print("p")
    if k == 0:
        return x
    return x + q


def bound_before_match(x, k):
    c = x
    match opaque(k):
        case 0:
            c = x + 1
        case 1:
            pass
    return c, x


def raises_in_a_segment(x, idx):
    log = []
    try:
        log.append("a")
        y = x[idx]
        log.append("b")
    except IndexError as e:
        y = x * 0
        log.append("caught")
    finally:
        log.append("f")
    return y + 1, log


def effect_before_an_exception(x, log):
    log.append(1)
    y = torch.linalg.inv(x)
    log.append(2)
    return y


def function_that_names_itself(x):
    return function_that_names_itself.__name__, helper_k(x, *[1], **{"b": 2})


def jumps_of_all_kinds(x, n):
    res = {}
    for i in range(n):
        if i in res:
            continue
        print(i)
        res[i] = x * i
        if i == 2:
            res[3] = res[2]
            continue
        try:
            if i == 1:
                raise KeyError(i)
        except KeyError:
            break
        finally:
            res["f"] = i
    else:
        res["else"] = 1
    return res


def long_loop(x):
    i = 0
    while i < 300:
        x = x * 0.99
        if x.sum().item() < 0.5:
            break
        i += 1
    return x, i


def line_of_an_exception(c):
    view1 = c > 0
    view1[-1:] *= 1.5


def two_names_of_one_tensor_in_try(a, c):
    try:
        print("t")
    except RuntimeError:
        pass
    else:
        for i in opaque([1]):
            a, u = pair(a * 1, torch.tanh(a))
    finally:
        a = c
    a.clamp_(-1, 1)


def closure_that_rebinds_in_with(a, c):
    v = a * 1
    with torch.no_grad():

        def f(p):
            nonlocal v
            v = v + 1
            c.add_(0.5)
            return p

        print("x")
        n = 0
        while n < 2 and opaque(True):
            n += 1
            a = v
            w = f(c)
    return v, a


def name_of_the_function_behind_a_break(x, names):
    import sys

    y = x + opaque(1)
    log = logging.getLogger("attacks")
    log.propagate = False
    keep = logging.Handler()
    keep.emit = lambda record: names.append((record.funcName, record.lineno))
    log.addHandler(keep)
    log.warning("here")
    try:
        log.warning("there %s", y.sum() > 0)
    finally:
        log.removeHandler(keep)
    return y, sys.exc_info()


def _same():
    a = torch.randn(3, 4) * 3
    return a, a


def _one():
    return (torch.ones(2),)


def _several():
    return ([torch.full((2,), v) for v in (-1.0, 0.0, 1.0, 2.0)],)


def _flag(k):
    return lambda: (torch.ones(2) * (2 * k - 1), k)


ATTACKS = {
    two_names_of_one_tensor_in_try: [_same],
    closure_that_rebinds_in_with: [_same],
    break_in_with: [_several],
    continue_in_try: [_several],
    jumps_in_match: [_several],
    loops_with_else: [lambda: (torch.ones(2), 5)],
    iterator_shared_by_two: [_one],
    unbound_after_match: [_flag(0), _flag(1)],
    unbound_after_try: [_flag(0), _flag(1)],
    unbound_after_with: [_flag(0), _flag(1)],
    unbound_in_callee: [_flag(0), _flag(1)],
    unbound_after_if: [_flag(0), _flag(1)],
    bound_before_match: [_flag(0), _flag(1)],
    raises_in_a_segment: [lambda: (torch.ones(3), torch.tensor([7]))],
    effect_before_an_exception: [lambda: (torch.zeros(2, 2), [])],
    function_that_names_itself: [_one],
    jumps_of_all_kinds: [lambda: (torch.ones(2), 4)],
    long_loop: [_one],
    line_of_an_exception: [_one],
    name_of_the_function_behind_a_break: [lambda: (torch.ones(2), [])],
}
"""Each program, and what makes its arguments."""
