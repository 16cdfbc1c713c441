"""What the compiler for GPUs made of the kernels in an emitted module.

    # sm_90: sin_mul_sum: 24 registers, 0 bytes spilled, 128 bytes shared, 4 warps, 16-byte accesses

No GPU is needed: the kernels are compiled for one that need not be there.
"""

from __future__ import annotations

import ast
from typing import Any


def ptx_info(text: str, target: str = "sm_90") -> list[str]:
    """One comment line for each kernel that a module's `precompile` calls name.

    Args:
        text: The text of an emitted module.
        target: Compute capability.
    """
    from srcjit.runtime.triton_compile import cross_compile

    tree = ast.parse(text)
    kernels = _kernels_alone(text, tree)
    lines = []
    for name, signature, constants in _jobs(tree):
        made = cross_compile(kernels, signature, constants, name=name, target=target)
        lines.append(
            f"# {target}: {name}: {made.registers} registers, {made.spills} bytes spilled, "
            f"{made.shared} bytes shared, {made.num_warps} warps, "
            f"{made.widest_access}-byte accesses"
        )
    return lines


def _jobs(tree: ast.Module) -> list[tuple[str, str, dict[str, Any]]]:
    """Arguments of the `precompile` calls: name, signature and constants of each kernel."""
    jobs = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="precompile"), args=[ast.List(elts=listed)]):
                for job in listed:
                    assert isinstance(job, ast.Tuple)
                    kernel, signature, constants = job.elts
                    assert isinstance(kernel, ast.Name)
                    jobs.append(
                        (
                            kernel.id,
                            ast.literal_eval(signature),
                            ast.literal_eval(constants),
                        )
                    )
    return jobs


def _kernels_alone(text: str, tree: ast.Module) -> str:
    """The module's imports and kernels, without what runs when it is loaded."""
    kept = []
    for node in tree.body:
        decorated = isinstance(node, ast.FunctionDef) and any(
            ast.unparse(d).startswith("triton.jit") for d in node.decorator_list
        )
        if isinstance(node, ast.Import | ast.ImportFrom) or decorated:
            first = node.lineno
            if isinstance(node, ast.FunctionDef):
                first = min(d.lineno for d in node.decorator_list)
            kept.append("\n".join(text.splitlines()[first - 1 : node.end_lineno]))
    return "\n\n".join(kept) + "\n"
