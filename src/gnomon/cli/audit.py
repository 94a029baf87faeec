"""`gnomon audit`: who changed what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from gnomon.cli import options
from gnomon.cli.connection import open_database
from gnomon.cli.output import print_json, print_table
from gnomon.cli.process import run
from gnomon.config import Settings
from gnomon.contracts.store import AuditEntry, AuditSelection
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
def list_entries(
    actor: Annotated[
        str | None, typer.Option("--actor", help="Of this token's name, or `local`.")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="Of this id or name.")] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="Older than this.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.")] = 100,
    database: options.Database = None,
    schema: options.Schema = None,
    config: options.ConfigFile = None,
    json: options.Json = False,
) -> None:
    """List changes, newest first. A bulk is one entry with its count."""
    settings = options.settings_of(config, database=database, schema=schema)
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidRequest(f"--limit: must be between 1 and {LIMIT_MAX}")
    selection = AuditSelection(
        actor=actor, id=id, before=None if before is None else moment_of(before, "--before")
    )
    entries = run(_look(settings, selection, limit))
    if json:
        print_json({"entries": entries})
    else:
        rows = [(item.at, item.actor, item.verb, item.id, item.count) for item in entries]
        print_table(("at", "actor", "verb", "id", "count"), rows)


async def _look(settings: Settings, selection: AuditSelection, limit: int) -> Sequence[AuditEntry]:
    async with open_database(settings) as app:
        return await app.store.tokens.list_audit(selection, limit=limit)
