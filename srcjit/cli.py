"""The command `srcjit`: see what becomes of a script's functions.

    srcjit emit script.py       the module that was emitted for each specialization
    srcjit explain script.py    segments, graph breaks, guards and recompilations
    srcjit bisect script.py     the first stage whose result differs from eager's

Standard output carries what was asked for and nothing else; what the script prints goes to
standard error. Bad input is one line there, and exit code 2. Where the script raises, what had
been compiled until then is printed, then its traceback on standard error, and exit code 1.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from srcjit import __version__
from srcjit.diagnostics import UserError
from srcjit.options import STAGES, TARGETS, forced
from srcjit.script import ScriptFailed, loaded, user_code

if TYPE_CHECKING:
    from srcjit.compiler import Specialization
    from srcjit.explain import Record


@dataclass(frozen=True)
class Request:
    """Which part of which script to run.

    Attributes:
        path: The script.
        arguments: Its `sys.argv[1:]`.
        fn: The one function to look at, or None for all.
        args: Text of the arguments to call it with, or None.
    """

    path: str
    arguments: tuple[str, ...]
    fn: str | None
    args: str | None


def _script_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
        click.argument("script"),
        click.option("--args", metavar="ARGS", help="Arguments to call it with once."),
        click.option("--fn", metavar="NAME", help="Only this function or module."),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="srcjit")
def main() -> None:
    """Compiles PyTorch functions by rewriting their source, and shows what runs."""


@main.command(short_help="Print the module emitted for each specialization.")
@_script_options
@click.option(
    "--stage",
    type=click.Choice(STAGES),
    default="emit",
    show_default=True,
    help="The stage of the pipeline to print.",
)
@click.option(
    "--backend",
    "target",
    type=click.Choice([target for target in TARGETS if target != "auto"]),
    help="The language of the kernels, whatever this machine can run.",
)
@click.option(
    "--ptx-info",
    is_flag=True,
    help="Add registers, spills and shared memory of each Triton kernel.",
)
@click.option(
    "-o", "--output", metavar="DIR", help="Write the modules to files in DIR."
)
def emit(
    script: str,
    arguments: tuple[str, ...],
    fn: str | None,
    args: str | None,
    stage: str,
    target: str | None,
    ptx_info: bool,
    output: str | None,
) -> None:
    """Runs SCRIPT and prints the module emitted for each specialization.

    SCRIPT is run as `python SCRIPT ARGUMENTS` would run it. With --fn and --args it is
    imported, and the function is called once.
    """
    with _one_line_errors():
        # What only has to be printed is not compiled for this machine first.
        ran = stage if target is None else "specialize"
        with forced(stage=ran):
            records, failure = run_script(Request(script, arguments, fn, args))
        texts = _texts(records, stage, target)
        if not texts:
            if failure is not None:
                raise failure
            raise UserError(
                f"{script}: nothing was emitted; Python runs every function"
            )
        if ptx_info:
            texts = {name: _with_ptx_info(text) for name, text in texts.items()}
        if output is None:
            _print_code(
                "\n\n".join(text.rstrip("\n") + "\n" for text in texts.values())
            )
        else:
            for path in write_files(Path(output), texts):
                click.echo(path)
        if failure is not None:
            raise failure


@main.command(short_help="Print segments, graph breaks, guards and recompilations.")
@_script_options
def explain(
    script: str, arguments: tuple[str, ...], fn: str | None, args: str | None
) -> None:
    """Runs SCRIPT and prints segments, breaks, guards and recompilations."""
    with _one_line_errors():
        from srcjit.explain import describe

        records, failure = run_script(Request(script, arguments, fn, args))
        click.echo(describe(records, color=_on_terminal()))
        if failure is not None:
            raise failure


@main.command(short_help="Name the first stage that differs from eager.")
@_script_options
def bisect(
    script: str, arguments: tuple[str, ...], fn: str | None, args: str | None
) -> None:
    """Runs SCRIPT at each stage and names the first that differs from eager.

    Exit code 1 if one does.
    """
    with _one_line_errors(raised=2):  # 1 says that a stage differs
        from srcjit.bisect import compare_stages

        same = True
        for line, agrees in compare_stages(Request(script, arguments, fn, args)):
            click.echo(line)
            same = same and agrees
    if not same:
        sys.exit(1)


# ── Running ─────────────────────────────────────────────────────────────────────────


def run_script(request: Request) -> tuple[list[Record], ScriptFailed | None]:
    """Runs what was asked for and returns what was compiled on the way.

    Returns:
        The records, and why the script did not come to its end, if it did not.

    Raises:
        UserError: One line that says what is wrong with the request.
        ScriptFailed: The script raised before anything was compiled.
    """
    from srcjit.explain import recording

    namespace: dict[str, Any] = {}
    failure: ScriptFailed | None = None
    with recording() as records, contextlib.redirect_stdout(sys.stderr):
        try:
            namespace = perform(request, lambda: bool(records))
        except ScriptFailed as error:
            failure = error
            namespace = error.namespace
    found = records.records
    if request.fn is not None and request.args is None:
        found = _only(found, qualified_names(namespace, request))
        if not found and failure is None:
            look_up(namespace, request)
    if not any(r.specializations or r.stopped for r in found):
        if failure is not None:
            raise failure
        what = f"`{request.fn}`" if request.fn else "no jitted function"
        verb = "was not called" if request.fn else "was called"
        raise UserError(
            f"{request.path}: {what} {verb}; say how to call one with --fn and --args"
        )
    return found, failure


def perform(request: Request, compiled: Callable[[], bool]) -> dict[str, Any]:
    """Runs the script, or imports it and calls its one function; returns its names.

    Args:
        request: What to run.
        compiled: Whether the script has used a jitted function; if not, its `make()` says
            what to jit and how to call it.
    """
    if request.args is not None and request.fn is None:
        raise UserError("--args says how to call a function: name it with --fn")
    as_main = request.args is None
    with loaded(request.path, request.arguments, as_main=as_main) as namespace:
        if request.args is not None:
            function = look_up(namespace, request)
            args, kwargs = evaluate_arguments(request.args, namespace)
            with user_code(request.path):
                _jitted(function)(*args, **kwargs)
        elif not compiled() and callable(namespace.get("make")):
            with user_code(request.path):
                function, args = namespace["make"]()
                _jitted(function)(*args)
        return namespace


def _jitted(function: Any) -> Any:
    """Returns `function`, jitted if the script has not done so itself."""
    import torch

    from srcjit.jit import jit
    from srcjit.module import is_jitted

    if isinstance(function, torch.nn.Module):
        return function if is_jitted(function) else jit(function)
    return function if hasattr(function, "__srcjit__") else jit(function)


def look_up(namespace: dict[str, Any], request: Request) -> Any:
    """Returns what `--fn` names.

    Raises:
        UserError: One line that says why it names nothing that can be called.
    """
    assert request.fn is not None
    first, *rest = request.fn.split(".")
    if first not in namespace:
        raise UserError(f"{request.path}: defines no `{first}`")
    value, name = namespace[first], first
    for attribute in rest:
        if not hasattr(value, attribute):
            raise UserError(f"{request.path}: `{name}` has no attribute `{attribute}`")
        value, name = getattr(value, attribute), f"{name}.{attribute}"
    if isinstance(value, type):
        raise UserError(f"{request.path}: `{name}` is a class; name an instance of it")
    if not callable(value):
        raise UserError(f"{request.path}: `{name}` cannot be called")
    return value


def evaluate_arguments(
    text: str, namespace: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Evaluates the text between the parentheses of a call.

    Args:
        text: As in `"torch.randn(4, 8), 3, reverse=True"`.
        namespace: The script's names; `torch` is there in any case.
    """
    import torch

    def call(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs

    scope = {"torch": torch, **namespace, "__call__": call}
    try:
        result: tuple[tuple[Any, ...], dict[str, Any]]
        result = eval(f"__call__({text}\n)", scope)
        return result
    except SyntaxError as error:
        raise UserError(f"--args {text!r}: syntax error: {error.msg}") from None
    except Exception as error:
        raise UserError(f"--args {text!r}: {type(error).__name__}: {error}") from None


def qualified_names(namespace: dict[str, Any], request: Request) -> set[str]:
    """Returns the qualified names of the functions that `--fn` stands for.

    It can be such a name, or what the script calls a jitted function or module.
    """
    from srcjit.control import dispatcher_of

    assert request.fn is not None
    names = {request.fn, f"{request.fn}.forward"}
    with contextlib.suppress(UserError):
        value = look_up(namespace, request)
        for function in (value, getattr(value, "forward", None)):
            dispatcher = dispatcher_of(getattr(function, "__func__", function))
            if dispatcher is not None:
                names.add(dispatcher.function.__qualname__)
    return names


def _only(records: Sequence[Record], names: set[str]) -> list[Record]:
    """Returns the records of one function and of what is left of it after its breaks."""
    from srcjit.explain import continuations

    wanted: set[int] = set()
    kept = []
    for record in records:
        own = record.dispatcher.function.__qualname__ in names
        if own or id(record.dispatcher) in wanted:
            kept.append(record)
            wanted |= {id(child) for child in continuations(record.dispatcher)}
    return kept


# ── Printing ────────────────────────────────────────────────────────────────────────


def _texts(records: Sequence[Record], stage: str, target: str | None) -> dict[str, str]:
    """Returns the text of each module by a file name that tells them apart."""
    texts: dict[str, str] = {}
    for record in records:
        for specialization in record.specializations:
            base, number = specialization.specialized.name, 0
            while (name := f"{base}_{number}.py" if number else f"{base}.py") in texts:
                number += 1
            texts[name] = _text(specialization, stage, target)
    return texts


def _text(specialization: Specialization, stage: str, target: str | None) -> str:
    if target is None:
        return specialization.text
    return specialization.stage_text(stage, target)


def _with_ptx_info(text: str) -> str:
    from srcjit.ptx_info import ptx_info
    from srcjit.runtime import triton_available

    if not triton_available():
        raise UserError("--ptx-info needs Triton, which is not installed")
    lines = ptx_info(text)
    if not lines:
        raise UserError(
            "--ptx-info: no Triton kernels here; is --backend triton missing?"
        )
    return "\n".join([text.rstrip("\n"), "", *lines]) + "\n"


def _on_terminal() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _print_code(text: str) -> None:
    if _on_terminal():
        from pygments import highlight
        from pygments.formatters import TerminalFormatter
        from pygments.lexers import PythonLexer

        text = highlight(text, PythonLexer(), TerminalFormatter())
    click.echo(text.rstrip("\n"))


def write_files(directory: Path, texts: dict[str, str]) -> list[Path]:
    """Writes files so that each of them is either whole or not there.

    Raises:
        UserError: The directory cannot be made or written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix=".srcjit-") as staging:
            for name, text in texts.items():
                Path(staging, name).write_text(text, encoding="utf-8")
            return [Path(staging, name).replace(directory / name) for name in texts]
    except OSError as error:
        raise UserError(f"{directory}: {error.strerror or error}") from None


@contextlib.contextmanager
def _one_line_errors(raised: int = 1) -> Iterator[None]:
    """Ends the command with a message to standard error, and exit code 2.

    Args:
        raised: The exit code if it is the script that raised.
    """
    try:
        yield
    except UserError as error:
        click.echo(f"srcjit: {error}", err=True)
        sys.exit(2)
    except ScriptFailed as error:
        sys.stdout.flush()
        click.echo(error.text, err=True)
        sys.exit(raised)
