"""`gnomon stage`: the stages that look after entities."""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import options
from gnomon.cli.output import from_now, print_json, print_table
from gnomon.model.duration import format_duration
from gnomon.model.errors import InvalidRequest

noun = options.noun("Look at stages, show them all entities again, forget one.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The stage's name.")]


@noun.command("list", epilog=options.examples("gnomon stage list", "gnomon stage list --json"))
@options.on_server
def list_stages(
    shared: options.ServerOptions,
) -> None:
    """List all stages that were ever served, with what is in their queues."""
    stages = shared.call_entities(lambda verbs: verbs.stages())
    if shared.json:
        print_json({"stages": stages})
        return
    columns = (
        "name", "kind", "revision", "last served", "waiting", "background", "sleeping", "parked",
        "debounce", "own echo",
    )  # fmt: skip
    rows = [
        (
            stage.name, stage.kind, stage.revision, from_now(stage.last_seen_at), stage.waiting,
            stage.background, stage.sleeping, stage.parked,
            format_duration(stage.debounce) if stage.debounce else None,
            "yes" if stage.own_echo else None,
        )
        for stage in stages
    ]  # fmt: skip
    print_table(columns, rows)


@noun.command("backfill", epilog=options.examples("gnomon stage backfill predict-price"))
@options.on_server
def backfill(
    shared: options.ServerOptions,
    name: Name,
) -> None:
    """Show a stage every entity of its kind once more, in the background."""
    shared.call_entities(lambda verbs: verbs.backfill_stage(name))
    shared.tell({"stage": name}, f"{name}: walks over all entities of its kind")


@noun.command("forget", epilog=options.examples("gnomon stage forget angle-sort --yes"))
@options.on_server
def forget(
    shared: options.ServerOptions,
    name: Name,
    yes: Annotated[
        bool, typer.Option("--yes", help="Required, because its queue, timers and states are lost.")
    ] = False,
) -> None:
    """Remove all that is stored of a stage: its queue, timers and states."""
    if not yes:
        raise InvalidRequest(f"queue, timers and states of {name} would be lost: say --yes")
    removed = shared.call_entities(lambda verbs: verbs.forget_stage(name))
    shared.tell({"removed": removed}, f"{name}: forgotten, {removed} rows removed")
