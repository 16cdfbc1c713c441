"""Which names of a function a piece of its text reads, binds and captures, and renaming.

A name "of the function" is one of the scope that the piece of text stands in: names bound by
a nested function, a class body or a comprehension are not among them, names that those take
from around them are. Whether such a name is a local or a global is known only where the whole
function is: see `local_names`.

>>> block = cst.parse_module('''
... y = [x * k for x in xs]
... if y:
...     z = lambda k: k + w
... ''').body
>>> sorted(reads(block)), sorted(writes(block)), sorted(captured(block))
(['k', 'w', 'xs', 'y'], ['y', 'z'], ['w'])
>>> sorted(live_in(block)), sorted(definitely_bound(block))
(['k', 'w', 'xs'], ['y'])
>>> print(
...     cst.Module([rename(block[0], {"x": "X", "k": "K", "y": "Y"}, Origins())]).code
... )
Y = [x * K for x in xs]
<BLANKLINE>
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from srcjit.nodes import parts, subtree
from srcjit.origin import Origins
from srcjit.passes.clone import clone
from srcjit.passes.flow import Walk

Piece = cst.CSTNode | Sequence[cst.CSTNode]
"""One node or a list of statements."""


@dataclass(frozen=True)
class Uses:
    """What one statement, or other piece of text, does with names.

    Attributes:
        read: Names that it may read.
        written: Names that it may bind or delete.
        exposed: Names that it may read before it has certainly written them.
        captured: Names that nested functions may read later.
        certain: Names that are written at its end.
        ends: Control may reach its end.
        declared_global: Names in `global` statements.
        declared_nonlocal: Names in `nonlocal` statements.
    """

    read: frozenset[str]
    written: frozenset[str]
    exposed: frozenset[str]
    captured: frozenset[str]
    certain: frozenset[str]
    ends: bool
    declared_global: frozenset[str]
    declared_nonlocal: frozenset[str]

    @classmethod
    def of(cls, piece: cst.CSTNode) -> Uses:
        """Looks at one piece of text; `live_before` puts those of several together."""
        return _uses(piece)


@functools.lru_cache(maxsize=4096)
def _uses(piece: cst.CSTNode) -> Uses:
    # NOTE: the passes ask for the same statements over and over; nodes are never changed.
    walk = Walk.over(piece)
    return Uses(
        frozenset(walk.read),
        frozenset(walk.written),
        frozenset(walk.exposed),
        frozenset(walk.captured),
        frozenset(walk.certain),
        walk.reachable,
        frozenset(walk.declared_global),
        frozenset(walk.declared_nonlocal),
    )


def _all_uses(piece: Piece) -> list[Uses]:
    return [_uses(p) for p in ((piece,) if isinstance(piece, cst.CSTNode) else piece)]


def _union(sets: Iterable[frozenset[str]]) -> set[str]:
    return set().union(*sets)


def reads(piece: Piece) -> set[str]:
    """Returns the names that `piece` may read (`del x` and `x += 1` read `x`)."""
    uses = _all_uses(piece)
    return _union(u.read for u in uses) - _union(u.declared_global for u in uses)


def writes(piece: Piece) -> set[str]:
    """Returns the names that `piece` may bind or unbind, without global and nonlocal ones."""
    uses = _all_uses(piece)
    declared_names = _union(u.declared_global | u.declared_nonlocal for u in uses)
    return _union(u.written for u in uses) - declared_names


def live_in(statements: Piece) -> set[str]:
    """Returns the names that may be read before they are certainly written (or deleted)."""
    uses = _all_uses(statements)
    return _live(uses) - _union(u.declared_global for u in uses)


def _live(uses: Sequence[Uses]) -> set[str]:
    live: set[str] = set()
    for use in reversed(uses):
        live = {*use.exposed, *(live - use.certain if use.ends else ())}
    return live


def live_before(uses: Sequence[Uses]) -> set[str]:
    """Returns the names that statements may read before they write them, or may capture.

    It is `live_in(statements) | captured(statements)` for statements that were looked at once.
    """
    hidden = _union(u.declared_global for u in uses)
    return (_live(uses) | _union(u.captured for u in uses)) - hidden


def definitely_bound(statements: Piece, before: Iterable[str] = ()) -> set[str]:
    """Returns the names that are bound whenever `statements` end normally.

    Args:
        statements: The statements.
        before: Names that are bound when they start.

    Returns:
        Some of `before` and of `writes(statements)`; all of them if the end is never reached.
    """
    walk = Walk.over(statements, before)
    if not walk.reachable:
        return writes(statements) | set(before)
    return walk.bound - walk.declared_global - walk.declared_nonlocal


def ends(statements: Piece) -> bool:
    """Tells whether control may reach the end of `statements`."""
    return all(use.ends for use in _all_uses(statements))


def captured(piece: Piece) -> set[str]:
    """Returns the names that nested functions and generator expressions may read later."""
    uses = _all_uses(piece)
    return _union(u.captured for u in uses) - _union(u.declared_global for u in uses)


def declared(piece: Piece) -> tuple[set[str], set[str]]:
    """Returns the names that `piece` declares global, and those it declares nonlocal."""
    uses = _all_uses(piece)
    return (
        _union(u.declared_global for u in uses),
        _union(u.declared_nonlocal for u in uses),
    )


def parameter_names(parameters: cst.Parameters) -> list[str]:
    """Returns the names of all parameters, in the order of the text."""
    found = [*parameters.posonly_params, *parameters.params]
    if isinstance(parameters.star_arg, cst.Param):
        found.append(parameters.star_arg)
    found += parameters.kwonly_params
    if parameters.star_kwarg is not None:
        found.append(parameters.star_kwarg)
    return [parameter.name.value for parameter in found]


def local_names(function: cst.FunctionDef) -> set[str]:
    """Returns the names that are local to `function`: parameters and what its body binds."""
    return writes(function.body) | set(parameter_names(function.params))


def all_names(function: cst.FunctionDef) -> set[str]:
    """Returns the names of a function's text: its variables, and those it sees around it."""
    found = local_names(function) | reads(function.body) | captured(function.body)
    return found.union(*declared(function.body))


@functools.lru_cache(maxsize=4096)
def inner_names(piece: cst.CSTNode) -> frozenset[str]:
    """Returns the names that scopes inside of `piece` bind for themselves.

    A variable of the function that got such a name would be hidden in that scope.
    """
    found: set[str] = set()
    for part in subtree(piece):
        match part:
            case cst.FunctionDef():
                found |= local_names(part)
            case cst.Lambda():
                found |= {*parameter_names(part.params), *writes(part.body)}
            case cst.ClassDef():
                found |= writes(part.body)
            case cst.CompFor():
                target: Any = part.target
                found |= writes(cst.Assign([cst.AssignTarget(target)], cst.Ellipsis()))
    return frozenset(found)


def rebound_after_capture(function: cst.FunctionDef) -> set[str]:
    """Returns the locals that a nested function shares and that may be bound after it is made.

    Such a variable cannot be handed to another function by value: the nested function would
    keep the old one. A nested function that is defined once and refers to itself is no such
    case.
    """
    walk = Walk.over(function.body)
    if not walk.captured:
        return set()
    found = walk.captured & walk.rebound_by_closures
    _find_rebound(function.body.body, set(), found)
    return found & local_names(function)


def _find_rebound(
    statements: Sequence[cst.CSTNode], later: set[str], found: set[str]
) -> None:
    """Adds captured names of `statements` that they, or those after, may bind afterwards.

    Args:
        statements: Statements of one block.
        later: Names that are written after them.
        found: Takes the names.
    """
    later = set(later)
    for statement in reversed(statements):
        walk = Walk.over(statement)
        own = set(walk.written)
        if isinstance(statement, cst.FunctionDef) and not statement.decorators:
            own.clear()
        if walk.captured:
            blocks = _blocks(statement)
            loops = isinstance(statement, cst.For | cst.While)
            branches = isinstance(statement, cst.If | cst.Match)
            for number, block in enumerate(blocks):
                after = set(later)
                if loops:
                    after |= own
                elif not branches:  # try, with: the blocks may follow each other
                    for following in blocks[number + 1 :]:
                        after |= Walk.over(following).written
                _find_rebound(block, after, found)
            header = walk.captured if not blocks else _header_captures(statement)
            found |= header & (later | own)
        later |= walk.written


def _blocks(statement: cst.CSTNode) -> list[Sequence[cst.CSTNode]]:
    """Returns the statement lists of a compound statement in the order of the text."""
    if isinstance(statement, cst.FunctionDef | cst.ClassDef):
        return []
    blocks: list[Sequence[cst.CSTNode]] = []
    for part in parts(statement):
        if isinstance(part, cst.BaseSuite):
            blocks.append(part.body)
        elif isinstance(
            part,
            cst.Else
            | cst.Finally
            | cst.If
            | cst.ExceptHandler
            | cst.ExceptStarHandler
            | cst.MatchCase,
        ):
            blocks += _blocks(part)
    return blocks


def _header_captures(statement: cst.CSTNode) -> set[str]:
    """Returns what the expressions of a compound statement capture, without its blocks."""
    found: set[str] = set()
    pending = parts(statement)
    while pending:
        part = pending.pop()
        if isinstance(part, cst.BaseExpression | cst.WithItem | cst.MatchPattern):
            found |= Walk.over(part).captured
        elif not isinstance(part, cst.BaseSuite):
            pending += parts(part)
    return found


# ── Renaming ────────────────────────────────────────────────────────────────────────


def rename(
    node: cst.CSTNode, mapping: Mapping[str, str], origins: Origins
) -> cst.CSTNode:
    """Returns a copy of `node` in which names of the function are called otherwise.

    Scopes inside that bind such a name are left alone, and so are attributes and the names of
    keyword arguments. Names that `node` declares global keep their name.

    Args:
        node: A statement or an expression.
        mapping: New names by old ones.
        origins: Takes the origins of the copies.
    """
    walk = Walk.over(node)
    replacements: dict[cst.CSTNode, cst.CSTNode | Sequence[cst.CSTNode]] = {}
    for found, name in walk.occurrences.items():
        if name not in mapping or name in walk.declared_global:
            continue
        if isinstance(found, cst.ImportAlias):
            replacements[found] = _renamed_alias(found, mapping[name])
        else:
            replacements[found] = _place_name(found, mapping[name])
    keep_debug_text(node, replacements)
    return clone(node, origins, replacements)


def substitute(
    node: cst.CSTNode, mapping: Mapping[str, cst.BaseExpression], origins: Origins
) -> cst.CSTNode:
    """Returns a copy of `node` in which names that it reads are replaced by expressions.

    Args:
        node: A statement or an expression. It must not bind or delete the names.
        mapping: Expressions by name. Each use is a copy of its own.
        origins: Takes the origins of the copies.
    """
    walk = Walk.over(node)
    owners = {part.value for part in subtree(node) if isinstance(part, cst.Attribute)}
    replacements: dict[cst.CSTNode, cst.CSTNode | Sequence[cst.CSTNode]] = {}
    for found, name in walk.occurrences.items():
        if name not in mapping or name in walk.declared_global:
            continue
        if not isinstance(found, cst.Name) or found in walk.binding:
            raise ValueError(f"cannot substitute {name!r}, which is bound here")
        expression = clone(mapping[name], origins)
        closed = isinstance(expression, cst.Name | cst.Attribute | cst.BaseNumber)
        if isinstance(expression, cst.Integer) and found in owners:
            closed = False  # `0.real` would be a number and a name
        if found.lpar:
            # They may be what keeps it apart from a keyword: `return(n)`.
            expression = expression.with_changes(lpar=found.lpar, rpar=found.rpar)
        elif not closed and not expression.lpar:
            expression = expression.with_changes(
                lpar=[cst.LeftParen()], rpar=[cst.RightParen()]
            )
        origins.inherit(expression, found)
        replacements[found] = expression
    keep_debug_text(node, replacements)
    return clone(node, origins, replacements)


def _place_name(old: cst.CSTNode, name: str) -> cst.Name:
    assert isinstance(old, cst.Name)
    return cst.Name(name, lpar=old.lpar, rpar=old.rpar)


def _renamed_alias(alias: cst.ImportAlias, name: str) -> Sequence[cst.CSTNode]:
    """`import a` as `b` is `import a as b`; `import a.b` binds `a`, so it takes two aliases."""
    asname = cst.AsName(
        cst.Name(name), cst.SimpleWhitespace(" "), cst.SimpleWhitespace(" ")
    )
    if alias.asname is not None or isinstance(alias.name, cst.Name):
        return [alias.with_changes(asname=asname)]
    first: cst.BaseExpression = alias.name
    while isinstance(first, cst.Attribute):
        first = first.value
    assert isinstance(first, cst.Name)
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    return [
        alias.with_changes(asname=asname, comma=comma),
        cst.ImportAlias(
            cst.Name(first.value), asname.with_deep_changes(asname.name, value=name)
        ).with_changes(comma=alias.comma),
    ]


def keep_debug_text(
    node: cst.CSTNode,
    replacements: dict[cst.CSTNode, cst.CSTNode | Sequence[cst.CSTNode]],
) -> None:
    """Makes `f"{x=}"` print `x=` also when `x` is replaced."""
    if not replacements:
        return
    for here in subtree(node):
        if isinstance(here, cst.FormattedString):
            for part in here.parts:
                if isinstance(part, cst.FormattedStringExpression) and part.equal:
                    spelled = _spell_debug_text(part, here, replacements)
                    if spelled is not None:
                        replacements[part] = spelled


def _spell_debug_text(
    part: cst.FormattedStringExpression,
    string: cst.FormattedString,
    replacements: dict[cst.CSTNode, cst.CSTNode | Sequence[cst.CSTNode]],
) -> Sequence[cst.CSTNode] | None:
    walk = Walk.over(part)
    if not any(name in replacements for name in walk.occurrences):
        return None
    expression = clone(part.expression, Origins(), replacements)
    return spelled_debug_text(part, string, expression)


def spelled_debug_text(
    part: cst.FormattedStringExpression,
    string: cst.FormattedString,
    expression: cst.BaseExpression,
) -> list[cst.BaseFormattedStringContent]:
    """Returns what prints the same as `part`, a `{x=}` of `string`, but computes `expression`."""
    module = cst.Module([])
    assert part.equal is not None
    text = "".join(
        module.code_for_node(piece)
        for piece in (part.whitespace_before_expression, part.expression, part.equal)
    )
    text = text.replace("{", "{{").replace("}", "}}")
    if "r" not in string.prefix.lower():
        text = text.replace("\\", "\\\\").replace(
            string.quote[0], f"\\{string.quote[0]}"
        )
    conversion = part.conversion or (None if part.format_spec else "r")
    brace = module.code_for_node(expression).startswith("{")
    changed = part.with_changes(
        whitespace_before_expression=cst.SimpleWhitespace(" " if brace else ""),
        expression=expression,
        equal=None,
        conversion=conversion,
        whitespace_after_expression=cst.SimpleWhitespace(""),
    )
    return [cst.FormattedStringText(text), changed]
