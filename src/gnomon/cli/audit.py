"""`gnomon audit`: who changed what."""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import options
from gnomon.cli.output import print_json, print_table
from gnomon.contracts.store import AuditSelection
from gnomon.model.errors import InvalidRequest
from gnomon.scheduler.options import moment_of

LIMIT_MAX = 10_000

noun = options.noun("Look up who changed what, straight at the database.")


@noun.command(
    "list",
    epilog=options.examples(
        "gnomon audit list --actor shop",
        "gnomon audit list --id invoice-7 --json",
        "gnomon audit list --before 2030-01-01T00:00:00Z --limit 1000",
    ),
)
@options.on_database
def list_entries(
    shared: options.DatabaseOptions,
    actor: Annotated[
        str | None,
        typer.Option(
            "--actor", metavar="NAME", help="Changes by this token; `local`: without one."
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Changes of this action, entity or limit."),
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="Changes before this time.")
    ] = None,
    limit: options.Limit = 100,
) -> None:
    """List changes, newest first. Many actions created in one call are one entry."""
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidRequest(f"--limit: must be between 1 and {LIMIT_MAX}")
    selection = AuditSelection(
        actor=actor, id=id, before=None if before is None else moment_of(before, "--before")
    )
    entries = shared.work(lambda app: app.store.tokens.list_audit(selection, limit=limit))
    if shared.json:
        print_json({"entries": entries})
    else:
        rows = [
            (item.at, item.actor, item.face, item.verb, item.id, item.count) for item in entries
        ]
        print_table(("at", "actor", "face", "verb", "id", "count"), rows)
