"""A segment as torch-level Python: what the stage `specialize` runs.

def segment_0(x, w):
    y = torch.sin(x)  # 20: y = torch.sin(x) * w
    z = y * w
    return (z,)

Where that is what runs, values are dropped when nothing reads them any more (`del y`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from .program import Segment, SegmentCode
from .spelling import Unspeakable, needed_imports, spell, spell_call


class _Writer:
    def __init__(
        self, segment: Segment, comments: Mapping[str, str], dropping: bool
    ) -> None:
        self.segment, self.comments = segment, comments
        self.dropping = dropping
        self.module = segment.graph_module
        self.bindings: dict[str, Any] = {}

    def write(self) -> SegmentCode:
        lines: list[str] = []
        parameters: list[str] = []
        said = ""
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                parameters.append(node.name)
            elif node.op == "get_attr":
                lines.append(f"{node.name} = {self._attribute(node)}")
            elif node.op == "output":
                lines.append(f"return {self._results(node.args[0])}")
            else:
                line = f"{node.name} = {self._call(node)}"
                comment = self.comments.get(node.name, "")
                if comment and comment != said:
                    line += f"  # {comment}"
                    said = comment
                lines.append(line)
                if self.dropping:
                    lines.extend(self._dropped(node))
        header = f"def {self.segment.name}({', '.join(parameters)}):"
        lines = self._restoring_modes(lines)
        text = "\n".join([header, *("    " + line for line in lines)]) + "\n"
        return SegmentCode(
            self.segment.name,
            text,
            imports=needed_imports(text),
            bindings=self.bindings,
        )

    def _dropped(self, node: fx.Node) -> list[str]:
        """Drops the tensors that only a call and those before it use."""
        made = (n for n in (*node.all_input_nodes, node) if n.op.startswith("call_"))
        names = [n.name for n in made if max((*n.users, n)) is node and _is_tensor(n)]
        return [f"del {', '.join(names)}"] if names else []

    def _restoring_modes(self, lines: list[str]) -> list[str]:
        """Makes an operation that raises between two changes of a mode leave it as it was."""
        names = {getattr(n.target, "__name__", "") for n in self.module.graph.nodes}
        if not names & {"_set_grad_enabled", "_enter_autocast"}:
            return lines
        body: list[str] = []
        for line in lines:
            body.append(f"    {line}")
            if "_enter_autocast(" in line:
                body.append(f"    entered.append({line.partition(' = ')[0]})")
            elif "_exit_autocast(" in line:
                body.append("    entered.pop()")
        return [
            "grad_enabled, entered = torch.is_grad_enabled(), []",
            "try:",
            *body,
            "except BaseException:",
            "    torch._C._set_grad_enabled(grad_enabled)",
            "    for context in reversed(entered):",
            "        torch.amp.autocast_mode._exit_autocast(context)",
            "    raise",
        ]

    def _results(self, value: Any) -> str:
        items = value if isinstance(value, tuple | list) else (value,)
        texts = [self._spell(v) for v in items]
        return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"

    def _spell(self, value: Any) -> str:
        try:
            return spell(value, lambda n: n.name)
        except Unspeakable:
            return self._bind(value)

    def _bind(self, value: Any, stem: str = "object") -> str:
        for name, bound in self.bindings.items():
            if bound is value:
                return name
        name = f"{self.segment.name}_{stem}_{len(self.bindings)}"
        self.bindings[name] = value
        return name

    def _attribute(self, node: fx.Node) -> str:
        found: Any = self.module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        return self._bind(
            found, "constant" if isinstance(found, torch.Tensor) else "object"
        )

    def _call(self, node: fx.Node) -> str:
        if node.op == "call_module":
            function = self._attribute(node)
            return self._call_text(node, function)
        try:
            return spell_call(node, lambda n: n.name)
        except Unspeakable:
            if node.op == "call_method":
                arguments = [self._spell(a) for a in node.args[1:]]
                arguments += [f"{k}={self._spell(v)}" for k, v in node.kwargs.items()]
                return (
                    f"{self._spell(node.args[0])}.{node.target}({', '.join(arguments)})"
                )
            return self._call_text(node, self._function(node.target))

    def _function(self, target: Any) -> str:
        try:
            return spell(target, lambda n: n.name)
        except Unspeakable:
            return self._bind(
                target, getattr(target, "__name__", "function").strip("<>")
            )

    def _call_text(self, node: fx.Node, function: str) -> str:
        arguments = [self._spell(a) for a in node.args]
        arguments += [f"{k}={self._spell(v)}" for k, v in node.kwargs.items()]
        return f"{function}({', '.join(arguments)})"


def _is_tensor(node: fx.Node) -> bool:
    value = getattr(node.meta.get("value"), "fake", node.meta.get("val"))
    return isinstance(value, torch.Tensor)


def torch_text(
    segment: Segment, comments: Mapping[str, str], *, dropping: bool = False
) -> SegmentCode:
    """Returns the torch-level program of a segment; it always exists.

    Args:
        segment: The segment.
        comments: User lines for the calls.
        dropping: Drop tensors when nothing reads them any more.
    """
    return _Writer(segment, comments, dropping).write()
