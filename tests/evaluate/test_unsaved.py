"""What is read from a list before it is written to: found once, in loops of any length."""

from __future__ import annotations

import cProfile
import pstats

import pytest
import torch

import srcjit


class Item:
    def __init__(self, scale):
        self.scale = scale


def unread(x, todo):
    done = []
    while todo:
        item = todo.pop()
        x = x + 1
        done.append(item)
    return x, done


def read(x, todo):
    done = []
    while todo:
        item = todo.pop()
        x = x * item.scale
        done.append(item)
    return x, done


def read_from_both_ends(x, todo):
    while len(todo) > 1:
        x = x * todo.pop().scale + todo.pop(0).scale
    return x, todo


def calls(function, count):
    """How many calls it takes to compile `function`, whose loop has `count` rounds."""
    srcjit.reset()
    jitted = srcjit.jit(function)
    todo = [Item(i % 3) for i in range(count)]
    profile = cProfile.Profile()
    result = profile.runcall(jitted, torch.ones(2), list(todo))
    want = function(torch.ones(2), list(todo))
    assert torch.equal(result[0], want[0]) and result[1] == want[1]
    return pstats.Stats(profile).total_calls


@pytest.mark.parametrize("function", [unread, read, read_from_both_ends])
def test_the_work_grows_with_the_loop(function):
    calls(function, 2)
    fixed, short, long = (calls(function, n) for n in (2, 20, 60))
    assert long - fixed < 4 * (short - fixed)
