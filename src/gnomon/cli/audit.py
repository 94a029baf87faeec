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

noun = typer.Typer(
    help="Look up who changed what, straight at the database.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


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
        str | None, typer.Option("--actor", help="Of this token's name, or `local`.")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="Of this id or name.")] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="Older than this.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.")] = 100,
) -> None:
    """List changes, newest first. A bulk is one entry with its count."""
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidRequest(f"--limit: must be between 1 and {LIMIT_MAX}")
    selection = AuditSelection(
        actor=actor, id=id, before=None if before is None else moment_of(before, "--before")
    )
    entries = shared.work(lambda app: app.store.tokens.list_audit(selection, limit=limit))
    if shared.json:
        print_json({"entries": entries})
    else:
        rows = [(item.at, item.actor, item.verb, item.id, item.count) for item in entries]
        print_table(("at", "actor", "verb", "id", "count"), rows)
