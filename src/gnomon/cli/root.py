"""The command tree. The module of a command is loaded when it is called: `--help` needs none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from gnomon import __version__

# One module each, of the same name; the text is the first sentence of its help.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "up": "Start everything in one process: schema, worker, API.",
        "worker": "Perform actions, until SIGTERM or Ctrl-C.",
        "server": "Serve the REST API, and gRPC with --grpc-port, without a worker.",
        "tasks": "Perform the SQL of task tables, until SIGTERM or Ctrl-C.",
        "migrate": "Create the schema, or upgrade it.",
        "doctor": "Check what is stored.",
        "status": "Show how the installation is: what waits, who works, what is wrong.",
        "preview": "Show when a schedule fires next, and how changes of the clock concern it.",
        "bench": "Measure how fast actions are stored and performed.",
        "action": "Create actions, look at them, change how they go.",
        "entity": "Put, patch, look at and remove entities; see why one is where it is.",
        "stage": "Look at stages, show them all entities again, forget one.",
        "function": "Look at the functions that living programs serve.",
        "limit": "Limit queues and targets, at run time, over all workers together.",
        "target": "Prepare the databases of SQL targets.",
        "token": "Create, rotate and revoke tokens, straight at the database.",
        "audit": "Look up who changed what, straight at the database.",
        "config": "Look at the settings.",
    }
)


_VERBS_APART = {"action": ("create", "change")}  # in modules of their own


class _LateCommands(TyperGroup):
    """Knows its commands by name and text, and loads the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS:
            self.commands[args[0]] = command_named(args[0])
        return super().resolve_command(ctx, args)


root = typer.Typer(
    name="gnomon",
    cls=_LateCommands,
    help="Runs actions at their time, durably, on SQLite or PostgreSQL.",
    epilog="First steps: `gnomon up --demo`, then `gnomon action list` in another terminal.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
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
            "-V",
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Runs actions at their time, durably, on SQLite or PostgreSQL."""


def _unloaded() -> None:
    """Stands for a command until it is called."""


for _name, _text in COMMANDS.items():
    root.command(_name, help=_text)(_unloaded)


def whole_tree() -> Any:
    """The tree with every command loaded, for the pages and for whoever looks at all of it."""
    tree: Any = get_command(root)
    tree.commands = {name: command_named(name) for name in COMMANDS}
    return tree


@cache
def command_named(name: str) -> Any:
    """A command, or a noun with its verbs."""
    module = import_module(f"gnomon.cli.{name}")
    part = typer.Typer(rich_markup_mode=None)
    if hasattr(module, "noun"):
        for verb in _VERBS_APART.get(name, ()):
            apart = import_module(f"gnomon.cli.{verb}")
            apart.add_to(module.noun)
        part.add_typer(module.noun, name=name)
    else:
        part.command(name, epilog=module.EPILOG)(getattr(module, name))
        part.callback()(_unloaded)  # or a tree of one command would be that command
    made: Any = get_command(part)
    return made.commands[name]
