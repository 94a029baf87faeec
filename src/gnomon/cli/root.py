"""The command tree."""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon import __version__
from gnomon.cli import (
    action,
    audit,
    bench,
    config,
    create,
    doctor,
    entity,
    limit,
    migrate,
    server,
    stage,
    target,
    tasks,
    token,
    up,
    worker,
)

root = typer.Typer(
    name="gnomon",
    help="Runs actions at their time, durably, on SQLite or PostgreSQL.",
    epilog="First steps: `gnomon up --demo`, then `gnomon action list` in another terminal.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(value: bool) -> None:
    if value:
        print(f"gnomon {__version__}")
        raise typer.Exit


@root.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Runs actions at their time, durably, on SQLite or PostgreSQL."""


for module in (up, worker, server, tasks, migrate, doctor, bench):
    name = module.__name__.rpartition(".")[2]
    root.command(name, epilog=module.EPILOG)(getattr(module, name))
action.noun.command("create", epilog=create.EPILOG)(create.create)
for module in (action, entity, stage, limit, target, token, audit, config):
    root.add_typer(module.noun, name=module.__name__.rpartition(".")[2])
