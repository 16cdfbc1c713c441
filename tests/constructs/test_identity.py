"""Mutation and identity of objects, passed in and made, and changes while iterating."""

from __future__ import annotations

import pytest
import torch

from tests.constructs.support import Cases

cases = Cases()


def x():
    return torch.arange(6.0).reshape(2, 3)


class Node:
    def __init__(self, value=1):
        self.value = value
        self.items = []

    def method(self):
        return self.value


def opaque(value):
    return eval("value", {"value": value})


@cases.add("mutation-of-a-list")
def _():
    def program(x, items):
        items.append(x * 2)
        items.insert(0, 5)
        items += (3,)
        del items[2]
        last = items.pop()
        items[0:1] = [7, 8]
        items.reverse()
        return x, last, items, items[:] is items

    return program, (x(), [1, 2, 3])


@cases.add("mutation-of-a-dict")
def _():
    def program(x, table):
        table["n"] = x
        table.setdefault("q", []).append(1)
        table |= {"u": 1}
        gone = table.pop("b")
        view = table.items()
        table["late"] = 1
        return gone, table, len(view), list(table)

    return program, (x(), {"a": 1, "b": 2})


@cases.add("mutation-of-a-set")
def _():
    def program(x, names):
        names.add(3)
        names |= {7}
        names.discard(1)
        return x + len(names), 3 in names, sorted(names)

    return program, (x(), {1, 2})


@cases.add("mutation-of-closure-and-object")
def _():
    count = 0
    node = Node()

    def program(x):
        nonlocal count
        count += 1
        node.value += count
        node.items.append(count)
        return x * node.value, count

    return program, (x(),)


@cases.add("mutation-before-an-exception")
def _():
    def program(x, items, node):
        items.append(1)
        node.value = 3
        x.add_(1)
        raise ValueError(str(len(items)))

    return program, (x(), [], Node())


@cases.add("default-that-is-mutated")
def _():
    def program(x, seen=[]):
        seen.append(len(seen))
        return x + len(seen), seen

    return program, (x(),)


@cases.add("arguments-that-are-one-object")
def _():
    shared = [0]
    node = Node()

    def program(x, a, b, m, n):
        a.append(1)
        m.value = 5
        n.value += 1
        return x + len(b), a is b, m is n, m.value

    return program, (x(), shared, shared, node, node)


@cases.add("identity-across-a-break")
def _():
    def program(x, node):
        made, table, y = [1], {}, x * 2
        table["made"] = made
        again = opaque(made)
        again.append(2)
        opaque(y).add_(1)
        return (
            again is made,
            made,
            y,
            opaque(node) is node,
            opaque(table)["made"] is made,
        )

    return program, (x(), Node())


@cases.add("identity-in-results")
def _():
    def program(x, items):
        y = x + 1
        pair, made = (y, 1), [y]
        return y, pair, pair, made, {"a": made, "p": pair}, items, items, x, ()

    return program, (x(), [1])


@cases.add("identity-of-empty-tuples-and-none")
def _():
    def program(x, node):
        empty = ()
        made = tuple([])  # noqa: C409
        return x, empty is made, [] is [], node is None, node is not node  # noqa: F632

    return program, (x(), Node())


@cases.add("identity-of-bound-methods")
def _():
    def program(x, node):
        a, b = node.method, node.method
        return x, a == b, a is b, a.__self__ is node, a != Node().method

    return program, (x(), Node())


@cases.add("cycles-made")
def _():
    def program(x, node):
        items = [x]
        items.append(items)
        table = {}
        table["self"] = (table, items)
        node.items.append(node)
        pair = ([],)
        pair[0].append(pair)
        return items, table, node.items[0] is node, pair, pair[0][0] is pair

    return program, (x(), Node())


@cases.add("cycles-passed-in")
def _():
    items = [1]
    items.append(items)
    node = Node()
    node.items.append(node)

    def program(x, items, node):
        node.items[0].value = 7
        return x * node.value, items[1] is items, items[1][0]

    return program, (x(), items, node)


@cases.add("list-changed-while-iterating")
def _():
    def program(x, items):
        for v in items:
            x = x + v
            if len(items) < 5:
                items.append(v)
            if v == 2:
                items.remove(2)
        return x, items

    return program, (x(), [1, 2, 3])


@cases.add("dict-changed-while-iterating")
def _():
    def program(x, table):
        try:
            for key in table:
                table[key + 1] = x
        except RuntimeError as error:
            return str(error), table

    return program, (x(), {1: 2})


@cases.add("set-changed-while-iterating")
def _():
    def program(x):
        names = {1}
        try:
            for name in names:
                names.add(name + 1)
        except RuntimeError as error:
            return x, str(error)

    return program, (x(),)


@cases.add("cache-in-order")
def _():
    cache = {}

    def program(x, key):
        found = cache.pop(key) if key in cache else x * len(cache)
        cache[key] = found
        if len(cache) > 2:
            cache.pop(next(iter(cache)))
        return found, list(cache)

    return program, (x(), 1)


@cases.add("object-as-a-key")
def _():
    cache = {}

    def program(x, node):
        if node not in cache:
            cache[node] = len(cache)
        return x + cache[node]

    return program, (x(), Node())


@cases.add("vars-of-an-object")
def _():
    def program(x, node):
        table = vars(node)
        node.value = 10
        table["late"] = 5
        return x * table["value"] + node.late

    return program, (x(), Node())


@cases.add("class-of-an-object-replaced")
def _():
    class Other:
        def method(self):
            return 2

    def program(x, node):
        before = node.method()
        node.__class__ = Other
        return x * before, node.method(), type(node) is Other

    return program, (x(), Node())


@pytest.mark.parametrize("name", cases)
def test_construct(name: str) -> None:
    cases.check(name)
