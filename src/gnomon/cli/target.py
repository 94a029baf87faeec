"""`gnomon target`: prepare what targets need at the other side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote

import typer

from gnomon.cli import options
from gnomon.cli.output import print_json, say
from gnomon.cli.process import run
from gnomon.config import Settings
from gnomon.config.targets import build_targets
from gnomon.model.errors import ConfigurationError, NotFound
from gnomon.model.secret import Secret

if TYPE_CHECKING:  # the driver is loaded when it is needed: most commands do not
    from gnomon.executors.sql import SqlTarget
    from gnomon.stores.postgres.logins import LoginPlan

noun = options.noun("Prepare the databases of SQL targets.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A target of kind sql.")]
Admin = Annotated[
    str | None,
    typer.Option(
        "--admin", metavar="URL", envvar="GNOMON_ADMIN_URL", show_envvar=False,
        help="A login that may create roles there. Better set GNOMON_ADMIN_URL.",
    ),
]  # fmt: skip
Connections = Annotated[
    int | None,
    typer.Option(
        "--connections",
        metavar="N",
        min=1,
        help="At most this many; by default twice its in_flight_max.",
    ),
]
TempFiles = Annotated[
    str,
    typer.Option(
        "--temp-files", metavar="SIZE", help="At most this much of temporary files per session."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the SQL and change nothing.")]


@noun.command(
    "setup",
    epilog=options.examples(
        "gnomon target setup reports --dry-run",
        "gnomon target setup reports --database postgresql://postgres@db/gnomon",
        "GNOMON_ADMIN_URL=postgresql://postgres@other/shop gnomon target setup warehouse",
    ),
)
@options.on_database
def setup(
    shared: options.DatabaseOptions,
    name: Name,
    admin: Admin = None,
    connections: Connections = None,
    temp_files: TempFiles = "1GB",
    dry_run: DryRun = False,
) -> None:
    """Create the login of a SQL target, with its limits, its inbox and what it may call."""
    from gnomon.stores.postgres.logins import login_script, set_up_login

    settings = shared.settings
    target = _target(settings, name)
    plan = _plan(settings, target, connections or 2 * target.in_flight_max, temp_files)
    if dry_run:
        _show(login_script(plan), as_json=shared.json)
        return
    if admin is None and target.place == "remote":
        raise ConfigurationError("--admin", "is needed: the target is not the own database")
    _show(run(set_up_login(admin or settings.database.url, plan)), as_json=shared.json)
    say(f"the login {plan.role} of {name} is ready; grant it what its statements are about")


def _target(settings: Settings, name: str) -> SqlTarget:
    from gnomon.executors.sql import SqlTarget, check_own

    table = settings.targets.get(name)
    if table is None:
        raise NotFound("target", name)
    if table.kind != "sql":
        raise ConfigurationError(f"targets.{name}.kind", "is not sql: there is nothing to set up")
    target = build_targets({name: table}, settings.secrets).of(SqlTarget)[name]
    if target.is_sqlite:
        raise ConfigurationError(f"targets.{name}.dsn", "is a SQLite file, which has no logins")
    check_own(target, settings.database.url)
    return target


def _plan(settings: Settings, target: SqlTarget, connections: int, temp_files: str) -> LoginPlan:
    from gnomon.stores.postgres.logins import LoginPlan

    parts = target.parts
    password = parts.password
    return LoginPlan(
        target=target.name,
        role=unquote(parts.username or ""),
        password=None if password is None else Secret(unquote(password)),
        database=unquote(parts.path.strip("/")),
        search_path=target.search_path,
        statement_timeout=target.statement_timeout,
        lock_timeout=target.lock_timeout,
        connections_max=connections,
        temp_files=temp_files,
        schema=settings.database.schema if target.place == "local" else None,
        inbox=target.inbox,
    )


def _show(statements: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"statements": statements})
    else:
        print("\n".join(statements))
