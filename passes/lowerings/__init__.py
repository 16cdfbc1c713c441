"""Loop forms of ATen operators, one family a module.

`TABLE` maps the name of an operator (`"aten.add"`, or one overload: `"aten.max.dim"`) to a
function `(builder, *arguments)` that returns a definition or a tuple of them, or raises
`NoLoopForm`. What is not in the table stays an ATen call.
"""

from . import (
    activations,
    creation,
    division,
    gathers,
    interpolation,
    logic,
    pointwise,
    reductions,
    scatters,
    views,
)
from .builder import Builder, NoLoopForm

TABLE = {
    **pointwise.TABLE,
    **division.TABLE,
    **logic.TABLE,
    **activations.TABLE,
    **views.TABLE,
    **creation.TABLE,
    **gathers.TABLE,
    **interpolation.TABLE,
    **reductions.TABLE,
    **scatters.TABLE,
}

__all__ = ["TABLE", "Builder", "NoLoopForm"]
