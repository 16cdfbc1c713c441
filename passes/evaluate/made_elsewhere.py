"""Functions made in an inlined function, which see its module's globals and its cells.

def scaling(x):                          def native(x):
    return lambda y: x * y + BIAS            def lambda_(y):
                                                 return x * y + BIAS
f = scaling(2)                               return lambda_
keep(f)                    becomes       lambda_ = native(2)
                                         keep(lambda_)

The one that makes it runs with those globals and cells; the residual program has others.
So it is where the function names a variable that is not bound and that the residual
program has: in that cell is nothing.
"""

from __future__ import annotations

from types import CellType
from typing import TYPE_CHECKING

import libcst as cst

from ..blocks import line
from ..resume import function_of
from .nested_functions import free_names, unbound_names
from .resuming import add_native, user_cells
from .values import FunctionValue

if TYPE_CHECKING:
    from ..reify import Reifier


def make_elsewhere(
    residual: Reifier,
    function: FunctionValue,
    statement: cst.FunctionDef,
    mapping: dict[str, str],
    named: list[str],
) -> None:
    """Emits the call of a function that makes `function`.

    Args:
        residual: The program.
        function: What is made.
        statement: Its definition, with the variables of the program.
        mapping: What the program calls the variables that it closes over.
        named: Lines that give it its names.
    """
    ev, frame = residual.ev, function.frame
    name, values = statement.name.value, statement.params
    names = {mapping.get(free, free) for free in free_names(function)} - {name}
    for param in [*values.posonly_params, *values.params, *values.kwonly_params]:
        if param.default is not None:
            given = residual.fresh("default")
            residual.emit(f"{given} = {cst.Module([]).code_for_node(param.default)}")
            changed = param.with_changes(default=cst.Name(given))
            made = statement.deep_replace(param, changed)
            assert isinstance(made, cst.FunctionDef)
            statement = made
            names.add(given)
    params = sorted(names)
    user_cells(ev, frame, [statement])  # guards them
    unbound = unbound_names(function) - {name, *names}
    cells = {**frame.scope.cells, **{missing: CellType() for missing in unbound}}
    maker = ev.namer.fresh(f"make_{name}")
    behind = [line(text) for text in (*named, f"return {name}")]
    tree = function_of(maker, params, [statement, *behind])
    frame.origins.inherit(tree, function.node)
    add_native(ev, frame, maker, tree, cells)
    origin = ev.origin_of(frame, function.node)
    residual.emit(f"{name} = {maker}({', '.join(params)})", origin)
