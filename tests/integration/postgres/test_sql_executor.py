"""SQL actions in the installation's own database: once, and no way out of the login."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import psycopg
import pytest
from psycopg import sql

from gnomon.clock import SystemClock
from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.store import Store
from gnomon.executors.sql import SqlExecutor, SqlTarget
from gnomon.model.ids import shard_of
from gnomon.model.outcome import Failed, Interrupted, Outcome, Succeeded
from gnomon.model.secret import Secret
from gnomon.model.spec import Sql
from tests.conformance.executor.suite import order_of
from tests.fixtures.installed import InstalledSchema
from tests.fixtures.postgres import ExternalPostgres, PostgresSchema, PostgresServer
from tests.integration.postgres.conftest import SHARD_COUNT, Drafter

LOGIN = "CREATE ROLE {} LOGIN CONNECTION LIMIT 20"
TRIES_MAX = 10
GRANTS = (
    "GRANT USAGE ON SCHEMA {0} TO {1}",
    "GRANT EXECUTE ON FUNCTION {0}.finish_ok, {0}.effect_done TO {1}",
    "INSERT INTO {0}.target_login VALUES ('own', {2})",
    "CREATE TABLE {0}.effect (n int)",
    "GRANT INSERT, SELECT ON {0}.effect TO {1}",
)
ATTEMPT_BEGUN = """
INSERT INTO {0}.processing_queue
    (guid, scheduled_at, attempt_id, began_at, deadline_at, shard_id, attempts, priority, running,
     swept, queue)
VALUES (%s, now(), %s, now(), now() + interval '1 minute', %s, 1, 5, true, false, 'default')
"""


class Own(NamedTuple):
    """The own database, seen by its owner and by a target's executor."""

    owner: psycopg.Connection[Any]
    executor: SqlExecutor
    order: AttemptRequest
    login: str
    schema: str

    async def perform(self, statement: str, *, attempt_id: uuid.UUID | None = None) -> Outcome:
        order = msgspec.structs.replace(
            self.order,
            effect=Sql(target="own", statement=statement),
            attempt_id=attempt_id or self.order.attempt_id,
        )
        return await self.executor.execute(order)

    async def perform_at_last(self, statement: str) -> Outcome:
        """As a worker does: what took more than its second, on a busy machine, is tried again."""
        for _ in range(TRIES_MAX - 1):
            outcome = await self.perform(statement)
            if not (isinstance(outcome, Failed) and outcome.retryable):
                return outcome
        return await self.perform(statement)

    def at_its_next_occurrence(self) -> Own:
        text = sql.SQL("UPDATE {}.scheduled_action SET occurrence_no = occurrence_no + 1")
        self.owner.execute(text.format(sql.Identifier(self.schema)))
        later = msgspec.structs.replace(self.order, occurrence_no=self.order.occurrence_no + 1)
        return self._replace(order=later)

    def count(self, table: str) -> int:
        query = sql.SQL("SELECT count(*) FROM {}.{}")
        found = query.format(sql.Identifier(self.schema), sql.Identifier(table))
        row = self.owner.execute(found).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture(scope="module")
def login(postgres: PostgresServer | ExternalPostgres) -> Iterator[str]:
    name = f"sql_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres.dsn, autocommit=True) as owner:
        owner.execute(sql.SQL(LOGIN).format(sql.Identifier(name)))
        yield name
        owner.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
        owner.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.fixture(scope="module")
def installation(
    postgres: PostgresServer | ExternalPostgres, login: str
) -> Iterator[InstalledSchema]:
    """With all that the login may do; no statement of these tests may change any of it."""

    def grant(schema: str) -> None:
        names = (sql.Identifier(schema), sql.Identifier(login), sql.Literal(login))
        with psycopg.connect(postgres.dsn, autocommit=True) as owner:
            for text in GRANTS:
                owner.execute(sql.SQL(text).format(*names))

    found = InstalledSchema(postgres.dsn, grant)
    yield found
    found.close()


@pytest.fixture
def installed_schema(installation: InstalledSchema, login: str) -> Iterator[PostgresSchema]:
    before = installation.ready()
    yield before
    installation.empty()
    assert before == installation.ready(), "the login changed more than rows"
    with psycopg.connect(before.dsn, autocommit=True) as owner:
        owner.execute(sql.SQL("ALTER ROLE {} RESET ALL").format(sql.Identifier(login)))


@pytest.fixture
async def own(
    installed_schema: PostgresSchema, store: Store, login: str, draft: Drafter
) -> AsyncIterator[Own]:
    """An action with an attempt under way."""
    dsn, schema = installed_schema
    target = SqlTarget(
        name="own",
        place="local",
        dsn=Secret(dsn.replace("postgres@", f"{login}@")),
        search_path=schema,
        statement_timeout=timedelta(seconds=1),
    )
    executor = SqlExecutor({"own": target}, clock=SystemClock(), database_url=dsn, schema=schema)
    plain, effect = draft("greet-ann"), Sql(target="own", statement="SELECT 1")
    spec = msgspec.structs.replace(plain.spec, action=effect)
    made = msgspec.structs.replace(plain, spec=spec)
    await store.actions.create([made], actor="test")
    order = msgspec.structs.replace(order_of(effect), guid=made.guid, attempt_id=uuid.uuid4())
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(
            sql.SQL(ATTEMPT_BEGUN).format(sql.Identifier(schema)),
            (made.guid, order.attempt_id, shard_of("greet-ann", SHARD_COUNT)),
        )
        yield Own(owner, executor, order, login, schema)
    await executor.close()


async def test_an_effect_is_committed_once(own: Own) -> None:
    """Another attempt of the occurrence sees that it is done; the next occurrence is another."""
    insert = "INSERT INTO effect VALUES (1)"
    assert Succeeded(answer="INSERT 0 1") == await own.perform(insert)
    assert Succeeded(answer="done by an earlier attempt") == await own.perform(insert)
    assert (1, 1) == (own.count("effect"), own.count("sql_success"))
    later = own.at_its_next_occurrence()
    assert Succeeded(answer="INSERT 0 1") == await later.perform(insert)
    assert (2, 1) == (own.count("effect"), own.count("sql_success"))


async def test_an_effect_stays_done_over_pause_and_resume(own: Own, store: Store) -> None:
    """A new generation of the same series; the note is not purged either. A replacement is new."""
    insert = "INSERT INTO effect VALUES (1)"
    await own.perform(insert)
    guid = uuid.uuid4()
    await store.actions.pause("greet-ann", uuid.uuid4(), if_match=None)
    await store.actions.resume(
        "greet-ann", guid, decide=lambda _, now: (now, now, None), if_match=None
    )
    await store.installation.purge(limit=100)
    later = own._replace(order=msgspec.structs.replace(own.order, guid=guid))
    assert Succeeded(answer="done by an earlier attempt") == await later.perform(insert)
    assert (1, 1) == (own.count("effect"), own.count("sql_success"))


async def test_a_stale_attempt_takes_its_effect_with_it(own: Own) -> None:
    """Whose attempt id is not the row's any more cannot commit."""
    outcome = await own.perform("INSERT INTO effect VALUES (1)", attempt_id=uuid.uuid4())
    assert Interrupted(reason="another attempt has begun meanwhile") == outcome
    assert (0, 0) == (own.count("effect"), own.count("sql_success"))


@pytest.mark.parametrize(
    ("target", "occurrence_no", "state"),
    [("other", 1, "42501"), (None, 1, "42501"), ("own", 2, "GN001"), ("own", 0, "GN001")],
)
async def test_an_effect_of_another_target_cannot_be_noted_as_done(
    own: Own, target: str | None, occurrence_no: int, state: str
) -> None:
    """Not by who knows the attempt, for anybody who may read can; not ahead of its occurrence; and
    the row is not held by the try."""
    schema = sql.Identifier(own.schema)
    own.owner.execute(
        sql.SQL("UPDATE {}.target_login SET target = %s").format(schema), (target or "",)
    )
    if target is None:
        own.owner.execute(sql.SQL("DELETE FROM {}.target_login").format(schema))
    dsn = own.owner.info.dsn.replace("user=postgres", f"user={own.login}")
    finish = sql.SQL("SELECT {}.finish_ok(%s, %s, %s, %s)").format(schema)
    shard = sql.Literal(shard_of("greet-ann", SHARD_COUNT))
    text = sql.SQL("SELECT 1 FROM {}.processing_queue WHERE shard_id = {} FOR UPDATE NOWAIT")
    look = text.format(schema, shard)
    with psycopg.connect(dsn) as stranger:
        with pytest.raises(psycopg.Error) as caught, stranger.transaction():
            stranger.execute(
                finish, (own.order.id, own.order.guid, own.order.attempt_id, occurrence_no)
            )
        assert state == caught.value.sqlstate
        assert 0 == own.count("sql_success")
        with own.owner.transaction():
            assert (1,) == own.owner.execute(look).fetchone()


async def test_a_failed_statement_leaves_no_note(own: Own) -> None:
    """So that it is tried again."""
    assert isinstance(await own.perform("SELECT 1/0"), Failed)
    assert 0 == own.count("sql_success")


async def test_an_effect_that_cannot_be_committed_leaves_no_note(own: Own) -> None:
    """Both are there or neither; on Citus, too, where the note may be another node's row."""
    schema = sql.Identifier(own.schema)
    insert = sql.SQL("INSERT INTO {0}.effect SELECT count(*) FROM {0}.effect").format(schema)
    finish = sql.SQL("SELECT {}.finish_ok(%s, %s, %s, %s)").format(schema)
    order, dsn = own.order, own.owner.info.dsn
    with psycopg.connect(dsn.replace("user=postgres", f"user={own.login}")) as attempt:
        attempt.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        attempt.execute(insert)
        attempt.execute(finish, (order.id, order.guid, order.attempt_id, order.occurrence_no))
        with psycopg.connect(dsn) as other:
            other.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            other.execute(insert)
        with pytest.raises(psycopg.errors.SerializationFailure):
            attempt.commit()
    assert (1, 0) == (own.count("effect"), own.count("sql_success"))


async def test_notes_of_actions_that_are_gone_are_purged(own: Own, store: Store) -> None:
    """And those of living ones stay."""
    await own.perform("INSERT INTO effect VALUES (1)")
    await store.installation.purge(limit=100)
    assert 1 == own.count("sql_success")
    own.owner.execute(sql.SQL("DELETE FROM {}.scheduled_action").format(sql.Identifier(own.schema)))
    await store.installation.purge(limit=100)
    assert 0 == own.count("sql_success")


# With these and the next ones, the list "SQL tasks" of the security rules is whole; the temporary
# file bomb is in tests/acceptance/test_sql_logins.py, where the login has its limit.
REFUSED = [
    "SET ROLE postgres",
    "SET SESSION AUTHORIZATION postgres",
    "SELECT set_config('role', 'postgres', false)",
    "INSERT INTO effect VALUES (1); COMMIT; BEGIN",
    "INSERT INTO effect VALUES (1); SELECT 1",
    "DO $$ BEGIN INSERT INTO effect VALUES (1); COMMIT; END $$",
    "COMMIT",
    "COMMIT AND CHAIN",
    "ROLLBACK",
    "ROLLBACK AND CHAIN",
    "PREPARE TRANSACTION 'x'",
    "SELECT set_config('statement_timeout', '0', false), pg_sleep(1e6)",
    "SELECT pg_sleep(1e6)",
    "SELECT count(*) FROM generate_series(1, 1e12)",
    "SELECT repeat('x', 1000) FROM generate_series(1, 100000)",
    "SELECT repeat('x', 100000000)",
    "COPY effect TO PROGRAM 'id'",
    "COPY effect FROM PROGRAM 'id'",
    "COPY effect TO '/tmp/x'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_export(1, '/tmp/x')",
    "CREATE EXTENSION dblink",
    "CREATE EXTENSION postgres_fdw",
    "CREATE EXTENSION plpython3u",
    "CREATE FOREIGN DATA WRAPPER w",
    "CREATE SERVER s FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1')",
    "SELECT dblink('host=127.0.0.1', 'SELECT 1')",
    "CREATE LANGUAGE plpython3u",
    "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE plpython3u AS 'return 1'",
    "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE internal AS 'pg_sleep'",
    "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE c AS 'x', 'y'",
    "ALTER SYSTEM SET fsync = off",
    "ALTER ROLE current_user SUPERUSER",
    "ALTER ROLE current_user CREATEROLE",
    "ALTER ROLE current_user CONNECTION LIMIT -1",
    "ALTER ROLE current_user SET temp_file_limit = -1",
    "SET temp_file_limit = -1",
    "GRANT postgres TO current_user",
    "CREATE ROLE mine",
    "SELECT * FROM scheduled_action",
    "UPDATE processing_queue SET running = false",
    "DELETE FROM sql_success",
    "TRUNCATE shard_lock",
    "LOCK TABLE processing_queue IN ACCESS EXCLUSIVE MODE",
    "DROP FUNCTION finish_ok",
    "CREATE FUNCTION finish_ok() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "SELECT finish_ok('x', gen_random_uuid(), gen_random_uuid(), 1)",
    "SELECT cancel('greet-ann')",
    "SELECT schedule('python', '{}')",
    "SELECT grant_sql(current_user)",
    "LOCK TABLE scheduled_action",
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres'",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres'",
    "DO $$ BEGIN RAISE EXCEPTION '%', repeat('x', 1000000); END $$",
]


@pytest.mark.parametrize("statement", REFUSED)
async def test_escapes_end_in_an_error(own: Own, statement: str) -> None:
    """Nothing is committed, nothing is noted, and the text of the error is short."""
    outcome = await own.perform(statement)
    assert isinstance(outcome, Failed | Interrupted), outcome
    assert len(str(outcome)) < 3_000
    assert (0, 0) == (own.count("effect"), own.count("sql_success"))
    assert (0,) == own.owner.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone()
    is_super = own.owner.execute(
        "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = %s", (own.login,)
    ).fetchone()
    assert (False,) == is_super
    assert isinstance(await own.perform_at_last("INSERT INTO effect VALUES (1)"), Succeeded)


@pytest.mark.plain  # Citus has advisory locks of its own, and refuses some of these
@pytest.mark.parametrize(
    "statement",
    [
        "RESET ROLE",
        "SELECT set_config('role', 'none', false)",
        "SET statement_timeout = 0",
        "SET search_path = pg_temp",
        "CREATE TEMP TABLE sql_success (guid uuid, at text, occurrence_no text, shard_id text)",
        "CREATE TYPE pg_temp.uuid AS (a int)",
        "LISTEN gnomon",
        "SELECT pg_advisory_lock(1)",
        "ALTER ROLE current_user SET statement_timeout = 0",
        "ALTER ROLE current_user SET search_path = pg_temp",
        "SELECT set_config('search_path', 'pg_temp', false)",
        "CREATE FUNCTION pg_temp.finish_ok(text, uuid, uuid, int8) RETURNS void LANGUAGE sql AS ''",
        "CREATE FUNCTION pg_temp.pg_current_xact_id() RETURNS text LANGUAGE sql AS 'SELECT null'",
        "CREATE FUNCTION pg_temp.text(uuid) RETURNS text LANGUAGE sql AS 'SELECT null'",
        "SELECT lo_create(0)",
    ],
)
async def test_what_a_statement_sets_ends_with_it(own: Own, statement: str) -> None:
    """It may be done, and means nothing to the note of it nor to anybody else."""
    assert isinstance(await own.perform(statement), Succeeded)
    assert 1 == own.count("sql_success")
    await own.executor.close()
    locks = own.owner.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
    assert (0,) == locks.fetchone()
    later = own.at_its_next_occurrence()
    said = await later.perform(
        "SELECT current_user AS a, current_setting('search_path') AS b,"
        " current_setting('statement_timeout') AS c"
    )
    expected = f'[{{"a":"{own.login}","b":"{own.schema}, pg_temp","c":"1s"}}]'
    assert Succeeded(answer=expected) == said
