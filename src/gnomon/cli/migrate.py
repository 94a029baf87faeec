"""`gnomon migrate`: bring the schema to this program's version."""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.app import App
from gnomon.cli import options
from gnomon.cli.output import print_json, say
from gnomon.cli.process import run
from gnomon.config import Settings
from gnomon.model.errors import NotSupported

EPILOG = options.examples(
    "gnomon migrate",
    "gnomon migrate --database postgresql://gnomon@localhost/gnomon",
    "gnomon migrate --database postgresql://gnomon@localhost/gnomon --grant-sql shop",
)
GrantSql = Annotated[
    list[str] | None,
    typer.Option(
        "--grant-sql", metavar="ROLE", help="Let a role use the SQL functions; repeatable."
    ),
]


def register(root: typer.Typer) -> None:
    """Add the command."""

    @root.command("migrate", epilog=EPILOG)
    def migrate(
        grant_sql: GrantSql = None,
        database: options.Database = None,
        schema: options.Schema = None,
        config: options.ConfigFile = None,
        json: options.Json = False,
    ) -> None:
        """Create the schema or bring it up to date. Safe to repeat."""
        settings = options.settings_of(config, database=database, schema=schema)
        version = run(_migrate(settings, grant_sql or []))
        if json:
            print_json({"schema_version": version, "database": settings.database.url_shown})
        else:
            say(f"{settings.database.url_shown} is at schema version {version}")


async def _migrate(settings: Settings, roles: list[str]) -> int:
    if roles and settings.database.engine == "sqlite":
        raise NotSupported("--grant-sql", engine="sqlite")
    async with App.from_settings(settings) as app:
        version = app.installation.schema_version
    if roles:
        from gnomon.stores.postgres.logins import grant_sql

        await grant_sql(settings.database.url, settings.database.schema, roles)
    return version
