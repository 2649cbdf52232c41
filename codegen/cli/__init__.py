"""The command line. ``main`` is the entry point; each group of commands has a module and imports what it needs when
it runs.

Exit status: 0 checked and right, 1 wrong, a race or a deadlock, 2 refused input. Errors are one clear message on
standard error, and with --json also an object on standard output.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from . import (
    bench_commands,
    cache_commands,
    check_commands,
    draw_commands,
    gemm_commands,
    ladder_commands,
    layout_commands,
    machine_commands,
    tune_commands,
)
from .output import bare_negative

app = typer.Typer(
    name="stridewright",
    help="Layouts of numbers for tensor cores, and the kernels that follow from them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from stridewright import __version__

        typer.echo(f"stridewright {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Layouts of numbers for tensor cores, and the kernels that follow from them."""


gemm_commands.register(app)
layout_commands.register(app)
draw_commands.register(app)
machine_commands.register(app)
tune_commands.register(app)
ladder_commands.register(app)
cache_commands.register(app)
bench_commands.register(app)
check_commands.register(app)


def main() -> None:
    """Run the command line; the process ends with the exit status described above."""
    # A negative size would be read as an option, and the message would speak of options.
    complaint = bare_negative(sys.argv[1:])
    if complaint:
        typer.echo(f"error: {complaint}", err=True)
        raise SystemExit(2)
    app()
