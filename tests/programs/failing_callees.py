"""Functions of another file, one of which raises when it runs."""

from __future__ import annotations


def outer(x, i, log):
    log.append("outer")
    return inner(x, i, log) * 2


def inner(x, i, log):
    log.append("inner")
    y = x + 1
    z = y[i]
    log.append(z)
    return z[i]
