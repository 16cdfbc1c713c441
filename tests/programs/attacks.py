"""Programs written to break the compiler: each once gave a wrong answer, or nearly did."""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings

import torch

from tests.programs import Made

COUNT = 0
GLOBAL: list[int] = []
G = 1
W = torch.ones(2)


class Inner:
    k = 1


class State:
    def __init__(self):
        self.x = torch.ones(2)
        self.n = 2
        self.items = [3]
        self.t = (1, 2)
        self.inner = Inner()


def opaque(x):
    return eval("x", {"x": x})


def pair(x, y):
    return y, x


def change(st):
    exec("st.x = st.x * 0; st.n += 5; st.items = [1]; st.t = (7,)", {"st": st})
    st.inner.k = 9


def set_globals():
    exec("global G, W\nG = 100\nW = W * 50", globals())


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


def change_and_look(st, v):
    n = st.n
    change(st)
    if n > 3:
        return v + n
    return v - n


def bump():
    global COUNT
    COUNT += 1
    GLOBAL.append(COUNT)


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


def parameter_list_rebound(y):
    z = y[0]
    print("x")
    y = opaque(5)
    return z + 1, y


def two_paths_to_one_tensor(y, lst):
    y = y.sin()
    print("a")
    return y + lst[0]


def alias_of_a_loop_variable(x, y):
    x = y
    for y in opaque([y, y + 1]):
        y = y * 2
    return x + 1, y


def list_of_one_tensor(a):
    b = [a, a]
    a = a + 1
    print("hey")
    a.add_(1)
    b[0].add_(1)
    c = opaque(b)
    c.append(a)
    return a, b, c, b is c


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


def globals_bound_by_python(x):
    global G
    G = opaque(5)
    print(G)
    x = x * G
    G += opaque(1)
    for G in range(opaque(3)):
        print(G)
    x = x + G
    G = int(x.sum())
    print("z")
    return x * G, G


def global_deleted(x):
    global G, NEWG
    NEWG = x
    print("a")
    del NEWG
    try:
        NEWG
    except NameError as e:
        print(e)
    return x


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


def globals_of_nested_functions(x):
    global GV
    GV = x
    print("g")
    GV = GV + 1

    def f():
        global GV
        GV = GV * 2
        print("inner")
        return GV

    a = f()
    del GV
    return a


def list_that_grows_in_its_loop(x, xs):
    xs.append(x)
    for v in xs:
        print(len(xs))
        if len(xs) < 4:
            xs.append(v + 1)
    return xs


def attributes_changed_by_python(st):
    y = st.x
    n = st.n
    i = st.items
    t = st.t
    k = st.inner.k
    b = [y, (n, k)]
    change(st)
    return y + 1, n, i, t, k, b, st.n


def globals_changed_by_python(x):
    g = G
    w = W
    set_globals()
    return x * g, w + 1, G


def attributes_changed_in_a_loop(st, xs):
    for x in [st.x, st.inner.k]:
        xs.append(x)
        change(st)
        st.x = st.x + 1
    return xs, st.x


def attributes_changed_in_a_callee(st):
    a = st.n
    x = st.x
    r = change_and_look(st, st.x)
    return r, a, x


def counter_in_a_global(x):
    bump()
    return x, COUNT, list(GLOBAL)


def line_of_an_exception(c):
    view1 = c > 0
    view1[-1:] *= 1.5


def list_behind_an_attribute(xs, st):
    st.items = xs
    st.items.append(1)
    print(len(xs))
    st.items[0] = xs[1]
    v = st.items[0]
    st.items = None
    return v + 1, xs


def counters(xs, st):
    st.n += 1
    k = st.n
    st.n += 1
    print(k, st.n)
    st.n = k * st.n
    return xs[0] * st.n, k


def items_replaced_in_a_loop(xs, st):
    for i, x in enumerate(xs):
        st.n += i
        xs[i] = x * st.n
        print(i)
        if i > 2:
            break
    return xs


def attribute_and_item(xs, st):
    st.x = xs[0]
    xs[0] = xs[0].sin()
    print("k")
    y = st.x + xs[0]
    st.x.add_(1)
    return y, st.x


def attribute_keeps_the_old_tensor(y, st):
    st.x = y
    y = y.sin()
    print("k")
    return y + st.x


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


def tables_by_dtype_device_and_infinity(x, table):
    kept = [x * value for value in table.values()]
    return kept, x + table[x.dtype], table[x.device], table[float("inf")]


def methods_of_the_tensor_itself(x):
    y = x + 1
    text = y.__format__(""), y.__repr__(), torch.Tensor.__str__(y)
    numbers = torch.Tensor.item(y[0]), torch.Tensor.tolist(y)
    return y, text, numbers, y.__hash__() == hash(y), hasattr(y, "names")


class Loud:
    count = 0

    def __str__(self):
        self.count += 1
        return f"loud {self.count}"


def formatted_objects(x, loud):
    return x + 1, "%s" % loud, "%s-%s" % (loud, 1), "%s" % (x.shape,)  # noqa: UP031


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


def copies_of_what_is_made_anew(x, sizes, keys):
    made = copy.deepcopy(sizes), copy.deepcopy(keys)
    return x + 1, made, made[0] is sizes, made[1] is keys, iter(sizes)


def _same():
    a = torch.randn(3, 4) * 3
    return a, a


def _one():
    return (torch.ones(2),)


def _pair():
    return ([torch.randn(2), torch.randn(2)],)


def _aliased():
    y = torch.randn(3)
    return y, [y, torch.ones(3)]


def numbers_that_a_dtype_does_not_hold(x, i):
    half = x.half()
    calls = (
        lambda: half.masked_fill(half > 0, -1e9),
        lambda: torch.full((2,), 1e39),
        lambda: torch.full_like(half, 70000),
        lambda: x.clamp(max=1e39),
        lambda: x.fill_(1e300),
        lambda: (half * 1e6, x * 1e39, x.double() * 1e39, x > 1e39, 1e39 - x),
    )
    try:
        return calls[i]()
    except RuntimeError as error:
        return str(error), x + 1


def versions_of_what_is_made_in_steps(x):
    like = torch.isclose(x, x)
    padded = torch.nn.functional.pad(x[None], (1, 1), mode="circular").add_(1)
    h = torch.gru_cell(x[None], x[None], torch.ones(6, 2), torch.ones(6, 2))
    made = x * 2
    made.add_(1)
    shown = made.detach()
    shown.add_(1)
    return like, padded, h, h.detach(), shown, made.data


def writes_to_what_is_detached(x):
    y = x * 2
    y.add_(1)
    first, second, third = y.detach(), y[:1].detach(), y.data
    y.mul_(2)
    return first, second, third


class Listening:
    """Stands in for a stream, and counts what is written to it."""

    def __init__(self):
        self.heard = []

    def write(self, text):
        self.heard.append(text)

    def flush(self):
        pass


def warnings_and_prints_that_are_heard(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = len(caught)
        warnings.warn("once", stacklevel=1)
        first = [before, len(caught), [str(w.message) for w in caught]]
        warnings.warn("twice", stacklevel=1)
        y = x * len(caught)
    stream = Listening()
    with contextlib.redirect_stdout(stream):
        print("a", "b")
        y = y + len(stream.heard)
    return y, first, stream.heard


def _several():
    return ([torch.full((2,), v) for v in (-1.0, 0.0, 1.0, 2.0)],)


def _wanted():
    return (torch.ones(2, requires_grad=True),)


def _state():
    return (State(),)


def _flag(k):
    return lambda: (torch.ones(2) * (2 * k - 1), k)


ATTACKS = {
    numbers_that_a_dtype_does_not_hold: [
        lambda i=i: (torch.ones(2), i) for i in range(6)
    ],
    versions_of_what_is_made_in_steps: [_one],
    warnings_and_prints_that_are_heard: [_one],
    writes_to_what_is_detached: [_one, _wanted],
    two_names_of_one_tensor_in_try: [_same],
    closure_that_rebinds_in_with: [_same],
    break_in_with: [_several],
    continue_in_try: [_several],
    jumps_in_match: [_several],
    parameter_list_rebound: [lambda: ([torch.ones(2), 3],)],
    two_paths_to_one_tensor: [_aliased],
    alias_of_a_loop_variable: [lambda: (torch.ones(2), torch.zeros(2))],
    list_of_one_tensor: [_one],
    loops_with_else: [lambda: (torch.ones(2), 5)],
    iterator_shared_by_two: [_one],
    unbound_after_match: [_flag(0), _flag(1)],
    unbound_after_try: [_flag(0), _flag(1)],
    unbound_after_with: [_flag(0), _flag(1)],
    unbound_in_callee: [_flag(0), _flag(1)],
    unbound_after_if: [_flag(0), _flag(1)],
    bound_before_match: [_flag(0), _flag(1)],
    globals_bound_by_python: [_one],
    global_deleted: [_one],
    raises_in_a_segment: [lambda: (torch.ones(3), torch.tensor([7]))],
    effect_before_an_exception: [lambda: (torch.zeros(2, 2), [])],
    function_that_names_itself: [_one],
    jumps_of_all_kinds: [lambda: (torch.ones(2), 4)],
    long_loop: [_one],
    globals_of_nested_functions: [_one],
    list_that_grows_in_its_loop: [lambda: (torch.ones(2), [torch.ones(1)])],
    attributes_changed_by_python: [_state],
    globals_changed_by_python: [_one],
    attributes_changed_in_a_loop: [lambda: (State(), [])],
    attributes_changed_in_a_callee: [_state],
    counter_in_a_global: [_one],
    line_of_an_exception: [_one],
    list_behind_an_attribute: [lambda: (*_pair(), State())],
    counters: [lambda: (*_pair(), State())],
    items_replaced_in_a_loop: [lambda: (*_pair(), State())],
    attribute_and_item: [lambda: (*_pair(), State())],
    tables_by_dtype_device_and_infinity: [
        lambda: (
            torch.ones(2),
            {
                torch.float32: torch.ones(2),
                torch.device("cpu"): torch.zeros(2),
                (1, torch.strided): torch.ones(1),
                float("inf"): 3.0,
            },
        )
    ],
    methods_of_the_tensor_itself: [_one],
    formatted_objects: [lambda: (torch.ones(2), Loud())],
    name_of_the_function_behind_a_break: [lambda: (torch.ones(2), [])],
    copies_of_what_is_made_anew: [
        lambda: (torch.ones(2), torch.Size([1, 2]), frozenset([1]))
    ],
    attribute_keeps_the_old_tensor: [lambda: (torch.randn(2), State())],
}
"""Each program, and what makes its arguments."""


def made(name: str, number: int) -> Made:
    """Builds the arguments of a program anew, and resets the globals."""
    globals().update(COUNT=0, GLOBAL=[], G=1, W=torch.ones(2))
    function, makers = next((f, m) for f, m in ATTACKS.items() if f.__name__ == name)
    return function, makers[number](), {}
