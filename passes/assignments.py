"""Assignments and `del` in A-normal form: the value, then the parts of each target, in order.

a = b[f(i)] = g(x)    ->    g_x = g(x)
                            a = g_x
                            f_i = f(i)
                            b[f_i] = g_x

x[i] += f(y)          ->    x_i = x[i]
                            f_y = f(y)
                            x_i += f_y
                            x[i] = x_i
"""

from __future__ import annotations

from typing import Any

import libcst as cst

from srcjit.passes.branches import Branches
from srcjit.passes.clone import clone
from srcjit.passes.hints import hint
from srcjit.passes.operands import COMPOSITE, PLAIN, kind_of, slice_parts, space
from srcjit.passes.scopes import reads, writes


class Assignments(Branches):
    """Normalizes statements with targets; see `normalize.Normalizer` for the handlers."""

    def is_atom(self, *expressions: cst.BaseExpression | None) -> bool:
        """Whether none of the expressions has to be taken apart."""
        return all(e is None or kind_of(e) != COMPOSITE for e in expressions)

    def assignment(self, node: cst.Assign) -> bool | None:
        """`a = b[i] = f(g(x))`: the value, then the targets from left to right."""
        if len(node.targets) > 1:
            value = self.atom(node.value)
            bound = set().union(*(writes(_bound(t.target)) for t in node.targets))
            repeatable = isinstance(value, cst.Name | cst.BaseNumber | cst.SimpleString)
            if not repeatable or reads(value) & (bound | self.unstable):
                value = self.saved(value, node.value)
            for assigned in node.targets:
                one = cst.Assign([assigned], clone(value, self.origins))
                if self.assignment(one) is None:
                    self.emit(one, node)
            return True
        target: Any = node.targets[0].target
        if isinstance(target, cst.Name):
            value = self.simple(node.value)
            if value is node.value:
                return None
            self.assign(target.value, value, node)
            return True
        if isinstance(target, cst.Tuple | cst.List):
            return self._unpacking(node, target)
        return self._store(node, target)

    def _unpacking(self, node: cst.Assign, target: cst.Tuple | cst.List) -> bool | None:
        value = self.atom(node.value)
        if _only_names(target):
            if value is node.value:
                return None
            self.emit(cst.Assign(node.targets, value), node)
            return True
        # All elements are unpacked before the first is stored.
        names = []
        elements = []
        for element in target.elements:
            name = self.namer.fresh(_target_hint(element.value))
            names.append(name)
            elements.append(element.with_changes(value=cst.Name(name)))
        unpacked = cst.AssignTarget(target.with_changes(elements=elements))
        self.emit(cst.Assign([unpacked], value), node)
        stored: Any
        for stored, name in zip(target.elements, names, strict=True):
            inner = cst.Assign(
                [cst.AssignTarget(stored.value)], self.named(name, stored)
            )
            if self.assignment(inner) is None:
                self.emit(inner, stored)
        return True

    def _store(self, node: cst.Assign, target: Any) -> bool | None:
        parts = _target_parts(target)
        value, *made = self.operands([node.value, *parts])
        new = self._with_target_parts(target, made)
        if value is node.value and new is target:
            return None
        self.emit(cst.Assign([cst.AssignTarget(new)], value), node)
        return True

    def _with_target_parts(self, target: Any, parts: list[cst.BaseExpression]) -> Any:
        if isinstance(target, cst.Attribute):
            return self.changed(target, value=parts[0])
        return self.with_parts(target, parts[0], parts[1:])

    def augmented(self, node: cst.AugAssign) -> bool | None:
        """`x[i] += f(y)`: the target is evaluated once and read before the value."""
        target: Any = node.target
        if isinstance(target, cst.Name):
            return self._augmented_name(node, target)
        parts = _target_parts(target)
        simple = kind_of(node.value) == PLAIN
        if simple and self.is_atom(*parts):
            return None
        made = self.operands(parts)
        # The parts are used twice: to read and to store.
        made = [
            part if self._is_same_later(part, node.value) else self.saved(part, part)
            for part in made
        ]
        place = self._with_target_parts(target, made)
        if simple:
            self.emit(self.changed(node, target=place, semicolon=_DEFAULT), node)
            return True
        old = self.saved(place, target)
        value = self.atom(node.value)
        self.emit(cst.AugAssign(old, node.operator, value), node)
        again = clone(place, self.origins)
        self.emit(
            cst.Assign([cst.AssignTarget(again)], self.named(old.value, target)), node
        )
        return True

    def _is_same_later(
        self, part: cst.BaseExpression, value: cst.BaseExpression
    ) -> bool:
        if isinstance(part, cst.BaseNumber | cst.SimpleString):
            return True
        read = reads(part)
        return isinstance(part, cst.Name) and not read & (writes(value) | self.unstable)

    def _augmented_name(self, node: cst.AugAssign, target: cst.Name) -> bool | None:
        if self.is_atom(node.value):
            return None
        name = target.value
        if name in writes(node.value) or name in self.unstable:
            old = self.saved(target, target)
            value = self.atom(node.value)
            self.emit(cst.AugAssign(old, node.operator, value), node)
            self.assign(name, self.named(old.value, target), node)
        else:
            value = self.atom(node.value)
            self.emit(cst.AugAssign(target, node.operator, value), node)
        return True

    def annotated(self, node: cst.AnnAssign) -> bool | None:
        """`x: T = f(g(x))`; the annotation is not evaluated in a function."""
        if node.value is None:
            return None
        if not isinstance(node.target, cst.Name):
            plain = cst.Assign([cst.AssignTarget(node.target)], node.value)
            if self._store(plain, node.target) is None:
                return None
            return True
        value = self.simple(node.value)
        if value is node.value:
            return None
        self.emit(self.changed(node, value=value, semicolon=_DEFAULT), node)
        return True

    def deleted(self, node: cst.Del) -> bool | None:
        """`del x, y[f(z)]`: one after the other."""
        target: Any = node.target
        if isinstance(target, cst.Tuple | cst.List):
            if all(_is_deletable(element.value) for element in target.elements):
                return None
            for element in target.elements:
                one = cst.Del(element.value)  # type: ignore[arg-type]
                if self.deleted(one) is None:
                    self.emit(one, node)
            return True
        if _is_deletable(target):
            return None
        new = self._with_target_parts(target, self.operands(_target_parts(target)))
        if new is target:
            return None
        self.emit(cst.Del(new, whitespace_after_del=space()), node)
        return True


_DEFAULT = cst.MaybeSentinel.DEFAULT


def _bound(target: cst.CSTNode) -> cst.CSTNode:
    """Returns a statement that binds what `target` binds."""
    return cst.Assign([cst.AssignTarget(target)], cst.Ellipsis())  # type: ignore[arg-type]


def _only_names(target: cst.CSTNode) -> bool:
    if isinstance(target, cst.Tuple | cst.List):
        return all(_only_names(element.value) for element in target.elements)
    return isinstance(target, cst.Name)


def _target_hint(target: cst.BaseExpression) -> str:
    return "items" if isinstance(target, cst.Tuple | cst.List) else hint(target)


def _target_parts(target: Any) -> list[cst.BaseExpression]:
    if isinstance(target, cst.Attribute):
        return [target.value]
    return [target.value, *slice_parts(target)]


def _is_deletable(target: Any) -> bool:
    if isinstance(target, cst.Name):
        return True
    if isinstance(target, cst.Tuple | cst.List):
        return all(_is_deletable(element.value) for element in target.elements)
    return all(kind_of(part) != COMPOSITE for part in _target_parts(target))
