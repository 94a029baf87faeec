"""Logins for SQL, both ways, as an operator makes them: `gnomon target setup`, `--grant-sql`."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from gnomon.app import App
from gnomon.clock import SystemClock
from gnomon.executors.sql import SqlExecutor, SqlTarget
from gnomon.model.errors import ConfigurationError
from gnomon.model.outcome import Failed, Outcome, Succeeded
from gnomon.model.secret import Secret
from gnomon.model.spec import Sql
from gnomon.stores.postgres.logins import scram_verifier
from tests.acceptance.test_cli import Shell
from tests.conformance.executor.suite import order_of
from tests.fixtures.postgres import PostgresSchema

pytestmark = pytest.mark.acceptance

INVALID, NOT_FOUND, NOT_SUPPORTED, CONFIGURATION = 2, 3, 9, 12  # exit codes
PASSWORD = "canary it's"
CONFIG = """
[database]
url = "{dsn}"
schema = "{schema}"

[targets.own]
kind = "sql"
place = "local"
dsn = "{login_dsn}"
search_path = "{schema}"
statement_timeout = "20s"

[targets.other]
kind = "sql"
dsn = "{login_dsn}"
inbox = "{schema}.seen"

[targets.file]
kind = "sql"
dsn = "sqlite:////var/lib/shop.db"

[targets.hooks]
kind = "rabbitmq"
url = "amqp://a:b@c.example/"
"""
DEFAULTS = """
SELECT unnest(s.setconfig) FROM pg_db_role_setting AS s JOIN pg_roles AS r ON r.oid = s.setrole
WHERE r.rolname = %s ORDER BY 1
"""


class Place(NamedTuple):
    shell: Shell
    owner: psycopg.Connection[Any]
    schema: str
    role: str
    login_dsn: str

    def asked(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self.owner.execute(query, values).fetchall()

    def tried(self, statement: str) -> str:
        """What the login is told: nothing, or a SQLSTATE."""
        with psycopg.connect(self.login_dsn, autocommit=True) as login:
            try:
                login.execute(statement.replace("{0}", self.schema))
            except psycopg.Error as exc:
                return exc.sqlstate or "?"
        return ""


@pytest.fixture
def place(tmp_path: Path, postgres_schema: PostgresSchema) -> Iterator[Place]:
    dsn, schema = postgres_schema
    role = f"sql-{uuid4().hex[:12]}"
    login_dsn = dsn.replace("postgres@", f"{role}:canary%20it%27s@")
    shell = Shell(tmp_path)
    text = CONFIG.format(dsn=dsn, schema=schema, login_dsn=login_dsn)
    (tmp_path / "gnomon.toml").write_text(text)
    asyncio.run(_install(dsn, schema))
    with psycopg.connect(dsn, autocommit=True) as owner:
        yield Place(shell, owner, schema, role, login_dsn)
        name = sql.Identifier(role)
        if owner.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).fetchone():
            owner.execute(sql.SQL("DROP OWNED BY {}").format(name))
            owner.execute(sql.SQL("DROP ROLE {}").format(name))


async def _install(dsn: str, schema: str) -> None:
    async with App(dsn, schema=schema, migrate=True):
        pass


def test_a_local_login_gets_what_it_needs_and_no_more(place: Place) -> None:
    """Bounded, and able to call two functions; again it changes nothing."""
    for _ in range(2):
        said = place.shell.run("target", "setup", "own", "--connections", "7")
        assert PASSWORD not in said.stdout + said.stderr
        assert [(False, False, False, True, False, 7)] == place.asked(
            "SELECT rolsuper, rolcreaterole, rolinherit, rolcanlogin, rolbypassrls, rolconnlimit"
            " FROM pg_roles WHERE rolname = %s",
            place.role,
        )
    assert {
        f"search_path={place.schema}, pg_temp", "statement_timeout=20000", "lock_timeout=5000",
        "idle_in_transaction_session_timeout=20000", "temp_file_limit=1GB",
        "log_parameter_max_length=0",
    } <= {value for (value,) in place.asked(DEFAULTS, place.role)}  # fmt: skip
    assert "" == place.tried("SELECT {0}.effect_done('x', gen_random_uuid(), 1)")
    stale = "SELECT {0}.finish_ok('x', gen_random_uuid(), gen_random_uuid(), 1)"
    assert "GN001" == place.tried(stale)
    named = sql.SQL("SELECT target, role FROM {}.target_login").format(sql.Identifier(place.schema))
    assert [("own", place.role)] == place.owner.execute(named).fetchall()
    for statement in (
        "SELECT * FROM {0}.scheduled_action",
        "DELETE FROM {0}.sql_success",
        "CREATE TABLE {0}.mine (n int)",
        "SELECT {0}.grant_sql(current_user)",
        "SELECT {0}.cancel('a')",
        "SET temp_file_limit = -1",
        "ALTER ROLE current_user SUPERUSER",
    ):
        assert "42501" == place.tried(statement), statement


def test_the_password_is_stored_as_the_server_would(place: Place) -> None:
    """As a verifier: the server never sees the password itself."""
    place.shell.run("target", "setup", "own")
    stored = "SELECT rolpassword FROM pg_authid WHERE rolname = %s"
    [(ours,)] = place.asked(stored, place.role)
    assert ours == scram_verifier(PASSWORD, _salt_of(ours))
    alter = sql.SQL("ALTER ROLE {} PASSWORD {}")
    place.owner.execute("SET password_encryption = 'scram-sha-256'")
    place.owner.execute(alter.format(sql.Identifier(place.role), sql.Literal(PASSWORD)))
    [(theirs,)] = place.asked(stored, place.role)
    assert theirs == scram_verifier(PASSWORD, _salt_of(theirs))
    with pytest.raises(ConfigurationError):
        scram_verifier("pässword")


def _salt_of(verifier: str) -> bytes:
    return base64.b64decode(verifier.split("$")[1].partition(":")[2])


def test_a_dry_run_prints_what_would_be_done(place: Place) -> None:
    """Without the password; what it prints is SQL, and does the same."""
    said = place.shell.run("target", "setup", "own", "--dry-run")
    assert "canary" not in said.stdout + said.stderr
    assert [] == place.asked("SELECT 1 FROM pg_roles WHERE rolname = %s", place.role)
    place.owner.execute(said.stdout.encode())
    assert "" == place.tried("SELECT {0}.effect_done('x', gen_random_uuid(), 1)")
    assert "42501" == place.tried("SELECT * FROM {0}.scheduled_action")
    assert "statement_timeout=20000" in [value for (value,) in place.asked(DEFAULTS, place.role)]


async def perform(place: Place, statement: str, **options: Any) -> Outcome:
    target = SqlTarget(name="other", dsn=Secret(place.login_dsn), **options)
    executor = SqlExecutor({"other": target}, clock=SystemClock())
    outcome = await executor.execute(order_of(Sql(target="other", statement=statement)))
    await executor.close()
    return outcome


async def test_a_remote_login_gets_its_inbox(place: Place) -> None:
    """Made by whoever may make roles there, who must be named."""
    missing = place.shell.run("target", "setup", "other", code=CONFIGURATION)
    assert "--admin" in missing.stderr
    admin = place.owner.info
    url = f"postgresql://postgres@{admin.host}:{admin.port}/{admin.dbname}"
    place.shell.run("target", "setup", "other", environ={"GNOMON_ADMIN_URL": url})
    inbox = f"{place.schema}.seen"
    assert isinstance(await perform(place, "SELECT 1", inbox=inbox), Succeeded)
    done = Succeeded(answer="done by an earlier attempt")
    assert done == await perform(place, "SELECT 1", inbox=inbox)
    assert "42501" == place.tried("DELETE FROM {0}.seen")
    assert "42501" == place.tried("SELECT {0}.effect_done('x', gen_random_uuid(), 1)")


async def test_a_temporary_file_bomb_ends_in_an_error(place: Place) -> None:
    """The limit is the role's, and only a superuser could lift it."""
    place.shell.run("target", "setup", "own", "--temp-files", "10MB")
    bomb = (
        "SELECT count(*) FROM (SELECT repeat('x', 900) || n AS x FROM generate_series(1, 1000000)"
        " AS n ORDER BY x DESC) AS s"
    )
    outcome = await perform(place, bomb, statement_timeout=timedelta(seconds=30))
    assert isinstance(outcome, Failed)
    assert "refused with SQLSTATE 53400" == outcome.error


@pytest.mark.parametrize("right", ["SUPERUSER", "CREATEROLE", "IN ROLE pg_read_all_data"])
def test_a_mighty_role_is_refused(place: Place, right: str) -> None:
    """It is not tamed, but another is asked for; nothing is changed."""
    make = sql.SQL(f"CREATE ROLE {{}} {right}")
    place.owner.execute(make.format(sql.Identifier(place.role)))
    said = place.shell.run("target", "setup", "own", code=INVALID)
    assert "choose another" in said.stderr
    assert [(False,)] == place.asked(
        "SELECT rolcanlogin FROM pg_roles WHERE rolname = %s", place.role
    )


@pytest.mark.parametrize(
    ("name", "hint"), [("missing", "missing"), ("hooks", "not sql"), ("file", "SQLite")]
)
def test_what_has_no_login_is_refused(place: Place, name: str, hint: str) -> None:
    code = NOT_FOUND if name == "missing" else CONFIGURATION
    assert hint in place.shell.run("target", "setup", name, code=code).stderr


def test_migrate_grants_the_way_in(place: Place) -> None:
    """A back end's role may schedule, cancel and look, and touch no table."""
    unknown = place.shell.run("migrate", "--grant-sql", place.role, code=INVALID)
    assert f"no role {place.role}" in unknown.stderr
    place.owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(place.role)))
    call = """SELECT {0}.schedule('python', '{"function": "f"}', id => 'a')"""
    assert "42501" == place.tried(call)
    place.shell.run("migrate", "--grant-sql", place.role)
    assert "" == place.tried(call)
    assert "" == place.tried("SELECT * FROM {0}.tasks")
    assert "" == place.tried("SELECT {0}.cancel('a')")
    assert "42501" == place.tried("SELECT * FROM {0}.scheduled_action")


def test_there_is_no_way_in_by_sql_on_sqlite(tmp_path: Path) -> None:
    """It says so instead of doing nothing."""
    shell = Shell(tmp_path)
    said = shell.run("migrate", "--grant-sql", "shop", *shell.target, code=NOT_SUPPORTED)
    assert "sqlite" in said.stderr
