"""`gnomon migrate`: bring the schema to this program's version."""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.app import App
from gnomon.cli import options
from gnomon.cli.place import say_installation
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


@options.on_database
def migrate(
    shared: options.DatabaseOptions,
    grant_sql: GrantSql = None,
) -> None:
    """Create the schema, or upgrade it. Safe to repeat."""
    url = shared.settings.database.url_shown
    version, placement = run(_migrate(shared.settings, grant_sql or []))
    told = {"schema_version": version, "database": url}
    text = f"{url} is at schema version {version}"
    if placement is not None:
        told["placement"] = placement
        text += f"\n{placement}"
    shared.tell(told, text)


async def _migrate(settings: Settings, roles: list[str]) -> tuple[int, str | None]:
    if roles and settings.database.engine == "sqlite":
        raise NotSupported("--grant-sql", engine="sqlite")
    say_installation(settings)
    async with App(settings=settings, migrate=True) as app:
        version = app.installation.schema_version
        placement = await app.store.installation.placement()
    if roles:
        from gnomon.stores.postgres.logins import grant_sql

        await grant_sql(settings.database.url, settings.database.schema, roles)
    return version, placement
