"""`gnomon migrate`: bring the schema to this program's version."""

from __future__ import annotations

import typer

from gnomon.app import App
from gnomon.cli import options
from gnomon.cli.output import print_json, say
from gnomon.cli.running import run
from gnomon.config import Settings

EPILOG = options.examples(
    "gnomon migrate",
    "gnomon migrate --database postgresql://gnomon@localhost/gnomon",
)


def register(root: typer.Typer) -> None:
    """Add the command."""

    @root.command("migrate", epilog=EPILOG)
    def migrate(
        database: options.Database = None,
        schema: options.Schema = None,
        config: options.ConfigFile = None,
        json: options.Json = False,
    ) -> None:
        """Create the schema or bring it up to date. Safe to repeat."""
        settings = options.settings_of(config, database=database, schema=schema)
        version = run(_migrate(settings))
        if json:
            print_json({"schema_version": version, "database": settings.database.url_shown})
        else:
            say(f"{settings.database.url_shown} is at schema version {version}")


async def _migrate(settings: Settings) -> int:
    async with App.from_settings(settings) as app:
        return app.installation.schema_version
