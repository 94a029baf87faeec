"""`gnomon stage`: the stages that look after entities."""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import options
from gnomon.cli.action import Target
from gnomon.cli.entity import call
from gnomon.cli.output import from_now, print_json, print_table, say
from gnomon.model.duration import format_duration
from gnomon.model.errors import InvalidRequest

noun = typer.Typer(
    help="See the stages that look after entities; walk the base again; forget one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The stage's name.")]


@noun.command("list", epilog=options.examples("gnomon stage list", "gnomon stage list --json"))
def list_stages(
    server: options.Server = None,
    token: options.Token = None,
    database: options.Database = None,
    schema: options.Schema = None,
    config: options.ConfigFile = None,
    json: options.Json = False,
) -> None:
    """List all stages that were ever served, with what is in their queues."""
    target = Target(options.settings_of(config, database=database, schema=schema), server, token)
    found = call(target, lambda verbs: verbs.stages())
    if json:
        print_json({"stages": found})
        return
    columns = (
        "name", "revision", "last served", "waiting", "background", "sleeping", "parked",
        "debounce", "own echo",
    )  # fmt: skip
    rows = [
        (
            each.name, each.revision, from_now(each.last_seen_at), each.waiting, each.background,
            each.sleeping, each.parked, format_duration(each.debounce) if each.debounce else None,
            "yes" if each.own_echo else None,
        )
        for each in found
    ]  # fmt: skip
    print_table(columns, rows)


@noun.command("backfill", epilog=options.examples("gnomon stage backfill predict-price"))
def backfill(
    name: Name,
    server: options.Server = None,
    token: options.Token = None,
    database: options.Database = None,
    schema: options.Schema = None,
    config: options.ConfigFile = None,
) -> None:
    """Let a stage walk over all entities again, in the background."""
    target = Target(options.settings_of(config, database=database, schema=schema), server, token)
    call(target, lambda verbs: verbs.backfill(name))
    say(f"{name}: walks over all entities")


@noun.command("forget", epilog=options.examples("gnomon stage forget angle-sort --yes"))
def forget(
    name: Name,
    yes: Annotated[
        bool, typer.Option("--yes", help="Needed: its queue, timers and states are lost.")
    ] = False,
    server: options.Server = None,
    token: options.Token = None,
    database: options.Database = None,
    schema: options.Schema = None,
    config: options.ConfigFile = None,
    json: options.Json = False,
) -> None:
    """Remove all that is stored of a stage: its queue, timers and states."""
    if not yes:
        raise InvalidRequest(f"queue, timers and states of {name} would be lost: say --yes")
    target = Target(options.settings_of(config, database=database, schema=schema), server, token)
    removed = call(target, lambda verbs: verbs.forget_stage(name))
    if json:
        print_json({"removed": removed})
    else:
        say(f"{name}: forgotten, {removed} rows removed")
