"""The blocking app: from any thread and process, and in transactions of synchronous connections."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm

import gnomon
from gnomon.app import App, sqlite_path
from gnomon.blocking_app import BlockingApp
from gnomon.scheduler import Scheduler
from gnomon.testing import ActionBench

LATER = {"in_": "1h"}


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[gnomon.App]:
    if request.param == "sqlite":
        made = gnomon.App(f"sqlite:///{tmp_path}/gnomon.db")
    else:
        schema = request.getfixturevalue("postgres_schema")
        made = gnomon.App(schema.dsn, schema=schema.schema, migrate=True)
    made.blocking.open()
    yield made
    made.blocking.close()


# -- verbs ----------------------------------------------------------------------------------------


def test_every_verb_waits_for_its_answer(app: gnomon.App) -> None:
    """The same verbs, types and errors as in a coroutine."""

    @app.action(queue="mail")
    def note(ctx: gnomon.Attempt, name: str) -> None: ...

    blocking = app.blocking
    action = blocking.schedule(note("ann"), in_="1h", id="a", retry=3)
    assert ("mail", 3) == (action.spec.queue, action.spec.retry.max)
    assert "a" == blocking.get("a").meta.id
    with pytest.raises(gnomon.AlreadyExists):
        blocking.schedule(note("ann"), id="a")
    assert action.meta.guid == blocking.schedule(note("bob"), id="a", if_exists="keep").meta.guid
    with pytest.raises(TypeError, match="did you mean 'in_'"):
        blocking.schedule(note("ann"), delay="5m")  # type: ignore[call-arg]
    requests = [blocking.request(note(name), id=name, **LATER) for name in ("b", "c")]  # type: ignore[arg-type]
    answers = blocking.schedule_many(requests)
    assert ["b", "c"] == [answer.action.meta.id for answer in answers]  # type: ignore[union-attr]
    page = blocking.list(gnomon.Selection(queue="mail"))
    assert ["a", "b", "c"] == [action.meta.id for action in page.actions]
    assert gnomon.State.PAUSED == blocking.pause("a").action.status.state
    assert gnomon.State.ACTIVE == blocking.resume("a").action.status.state
    assert blocking.run_now("b").action.status.scheduled_at is not None
    assert "c" == blocking.replace(blocking.request(note("c"), id="c")).action.meta.id
    assert gnomon.State.CANCELLED == blocking.delete("c").action.status.state
    assert gnomon.State.ACTIVE == blocking.retry("c").action.status.state
    assert [] == list(blocking.attempts("a"))
    blocking.cancel("c")
    with pytest.raises(gnomon.NoResult):
        blocking.result("c", timeout=1)
    assert [gnomon.State.CANCELLED] == [action.status.state for action in blocking.watch("c")]
    with pytest.raises(gnomon.NoResult, match="'c' is cancelled"):
        blocking.result("c")
    with pytest.raises(TimeoutError):
        blocking.result("a", timeout=0.01)
    with pytest.raises(gnomon.NotFound):
        blocking.get("nobody")


def test_no_verb_is_missing() -> None:
    """What the scheduler can do, the blocking app can; only names of the app differ."""
    # schedule, schedule_many; and what is for gateways only
    named_otherwise = {"create", "put", "create_many", "step", "count_step"}
    verbs = {
        name for name, _ in inspect.getmembers(Scheduler, inspect.isfunction) if name[0] != "_"
    }
    assert verbs - named_otherwise <= {name for name in vars(BlockingApp) if name[0] != "_"}


def test_threads_share_it(app: gnomon.App) -> None:
    """One loop for all of them; it opens once, whoever comes first."""
    app.blocking.close()
    with ThreadPoolExecutor(16) as threads:
        list(
            threads.map(
                lambda number: app.blocking.schedule(gnomon.Mock(), id=f"a{number}", in_="1h"),
                range(64),
            )
        )
        names = [thread.name for thread in threading.enumerate()]
        assert 1 == names.count("gnomon-app")
    assert 64 == len(app.blocking.list(gnomon.Selection()).actions)


def test_closing_ends_everything_and_the_next_verb_opens_anew(app: gnomon.App) -> None:
    before = {thread for thread in threading.enumerate() if thread.name != "gnomon-app"}
    app.blocking.schedule(gnomon.Mock(), id="a", in_="1h")
    app.blocking.close()
    app.blocking.close()
    assert not app.blocking.is_open
    assert not [thread for thread in threading.enumerate() if thread.name == "gnomon-app"]
    with app.blocking as blocking:
        assert "a" == blocking.get("a").meta.id
    assert not app.blocking.is_open
    assert before >= {thread for thread in threading.enumerate() if thread.name == "gnomon-app"}


def test_who_waits_when_it_is_closed_is_told(app: gnomon.App) -> None:
    """Nobody hangs: a watch would go on for an hour."""
    app.blocking.schedule(gnomon.Mock(), id="a", in_="1h")
    watched, told = app.blocking.watch("a"), threading.Event()
    next(watched)

    def follow() -> None:
        with pytest.raises(gnomon.InvalidRequest, match="closed meanwhile"):
            next(watched)
        told.set()

    thread = threading.Thread(target=follow)
    thread.start()
    app.blocking.close()
    thread.join(60)
    assert told.is_set()


async def test_in_a_coroutine_it_is_refused(app: gnomon.App) -> None:
    """It would stop the event loop until the database answers."""
    with pytest.raises(gnomon.InvalidRequest, match=r"write `await app\.schedule"):
        app.blocking.get("a")
    with pytest.raises(gnomon.NotFound):
        await asyncio.to_thread(app.blocking.get, "a")


async def test_both_ways_side_by_side(app: gnomon.App) -> None:
    """The same app may be open in an event loop and be used by plain functions."""

    @app.action
    def note(ctx: gnomon.Attempt) -> None:
        app.blocking.schedule(gnomon.Mock(), id="by-a-plain-function", in_="1h")

    async with app:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(app.work(stop))
            await app.schedule(note(), id="n")
            async for action in app.scheduler.watch("n"):
                assert "dead" != action.status.state
            stop.set()
        assert "by-a-plain-function" == (await app.scheduler.get("by-a-plain-function")).meta.id


def test_a_database_that_is_not_there_is_told() -> None:
    app = gnomon.App("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(gnomon.StoreUnavailable):
        app.blocking.get("a")
    assert not app.blocking.is_open


def test_a_bench_is_what_it_reaches() -> None:
    app = gnomon.App("postgresql://nobody@127.0.0.1:1/none")

    @app.action
    def note(ctx: gnomon.Attempt, left: int) -> None:
        if left:
            app.blocking.schedule(note(left - 1), in_="1h", connection=SimpleNamespace())

    with ActionBench(app) as bench:
        app.blocking.schedule(note(2))
        assert 3 == asyncio.run(bench.advance(hours=2))
        with pytest.raises(gnomon.InvalidRequest, match="on a bench already"):
            ActionBench(app)
    assert not app.blocking.is_open
    with gnomon.App("sqlite:///:memory:").blocking as open_one:
        assert open_one.is_open


# -- processes ------------------------------------------------------------------------------------

FORKING = """
import os, sys
import gnomon

app = gnomon.App(sys.argv[1], schema=sys.argv[2] or None, migrate=True)
app.blocking.schedule(gnomon.Mock(), id="parent", in_="1h")
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        assert not app.blocking.is_open
        app.blocking.schedule(gnomon.Mock(), id=f"child-{number}", in_="1h")
        app.blocking.get("parent")
        sys.exit(0)  # at exit it closes what is its own
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
app.blocking.schedule(gnomon.Mock(), id="parent-again", in_="1h")
print(codes, [action.meta.id for action in app.blocking.list(gnomon.Selection()).actions])
"""


def test_a_server_that_forks_connects_in_each_child(app: gnomon.App) -> None:
    """Neither disturbs the other's connections; each process ends by itself."""
    database = app.settings.database
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKING, database.url, database.schema or ""],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    expected = ["child-0", "child-1", "child-2", "parent", "parent-again"]
    assert (f"[0, 0, 0] {expected}\n", "") == (done.stdout, done.stderr)


# -- the caller's transaction ---------------------------------------------------------------------


class Caller:
    """A synchronous connection in a transaction, and how its owner ends it."""

    def __init__(self, connection: Any, execute: Callable[[str], Any], raw: Any = None) -> None:
        self.connection = connection
        self.execute = execute
        self.commit = (raw or connection).commit
        self.roll_back = (raw or connection).rollback


@contextmanager
def driver(app: gnomon.App) -> Iterator[Caller]:
    if app.settings.database.engine == "sqlite":
        connection: Any = sqlite3.connect(sqlite_path(app.settings.database.url))
    else:
        connection = psycopg.connect(app.settings.database.url)
    yield Caller(connection, connection.execute)
    connection.close()


def engine_of(app: gnomon.App) -> sqlalchemy.Engine:
    url = app.settings.database.url
    return sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


@contextmanager
def sqlalchemy_connection(app: gnomon.App) -> Iterator[Caller]:
    engine = engine_of(app)
    with engine.connect() as connection:
        yield Caller(connection, connection.exec_driver_sql)
    engine.dispose()


@contextmanager
def session(app: gnomon.App) -> Iterator[Caller]:
    engine = engine_of(app)
    with orm.Session(engine) as opened:
        yield Caller(opened, lambda sql: opened.execute(sqlalchemy.text(sql)))
    engine.dispose()


@contextmanager
def scoped_session(app: gnomon.App) -> Iterator[Caller]:
    """What Flask-SQLAlchemy calls `db.session`."""
    engine = engine_of(app)
    opened = orm.scoped_session(orm.sessionmaker(engine))
    yield Caller(opened, lambda sql: opened.execute(sqlalchemy.text(sql)))
    opened.remove()
    engine.dispose()


CALLERS: dict[str, Callable[[gnomon.App], AbstractContextManager[Caller]]] = {
    "driver": driver,
    "sqlalchemy": sqlalchemy_connection,
    "session": session,
    "scoped-session": scoped_session,
}


@pytest.fixture(params=sorted(CALLERS))
def caller(request: pytest.FixtureRequest, app: gnomon.App) -> Iterator[Caller]:
    """In a transaction that has written something already."""
    with CALLERS[request.param](app) as opened:
        opened.execute("CREATE TABLE orders (id integer)")
        opened.commit()
        opened.execute("INSERT INTO orders VALUES (1)")
        yield opened
        opened.roll_back()
        opened.execute("DROP TABLE orders")
        opened.commit()


def orders(caller: Caller) -> int:
    rows = caller.execute("SELECT count(*) FROM orders").fetchall()
    return int(rows[0][0])


def test_what_is_committed_exists(app: gnomon.App, caller: Caller) -> None:
    blocking = app.blocking
    blocking.close()  # it is the caller's transaction in which it connects
    stored = blocking.schedule(gnomon.Mock(), id="a", in_="1h", connection=caller.connection)
    with pytest.raises(gnomon.NotFound):
        blocking.get("a")
    caller.commit()
    assert stored == blocking.get("a")
    assert 1 == orders(caller)


def test_what_is_rolled_back_never_was(app: gnomon.App, caller: Caller) -> None:
    app.blocking.schedule(gnomon.Mock(), id="a", connection=caller.connection)
    caller.roll_back()
    with pytest.raises(gnomon.NotFound):
        app.blocking.get("a")
    assert 0 == orders(caller)


def test_an_error_does_not_spoil_the_transaction(app: gnomon.App, caller: Caller) -> None:
    """What was refused is not stored; what came before and after is."""
    blocking, connection = app.blocking, caller.connection
    blocking.schedule(gnomon.Mock(), id="a", in_="1h", connection=connection)
    with pytest.raises(gnomon.AlreadyExists):
        blocking.schedule(gnomon.Mock(), id="a", connection=connection)
    with pytest.raises(gnomon.InvalidSpec):
        blocking.schedule(gnomon.Mock(), at="tomorrow", connection=connection)
    with pytest.raises(gnomon.NotFound):
        blocking.cancel("nobody", connection=connection)
    caller.execute("INSERT INTO orders VALUES (2)")
    blocking.schedule(gnomon.Mock(), id="b", in_="1h", connection=connection)
    caller.commit()
    page = blocking.list(gnomon.Selection())
    assert ["a", "b"] == [action.meta.id for action in page.actions]
    assert 2 == orders(caller)


def test_replacing_and_cancelling_join_too(app: gnomon.App, caller: Caller) -> None:
    blocking, connection = app.blocking, caller.connection
    caller.commit()
    for id in ("a", "b"):
        blocking.schedule(gnomon.Mock(), id=id, in_="1h")
    caller.execute("INSERT INTO orders VALUES (2)")
    blocking.schedule(gnomon.Mock(), id="a", in_="2h", if_exists="replace", connection=connection)
    blocking.cancel("b", connection=connection)
    caller.roll_back()
    assert gnomon.State.ACTIVE == blocking.get("b").status.state
    blocking.cancel("b", connection=connection)
    caller.commit()
    assert gnomon.State.CANCELLED == blocking.get("b").status.state


# -- wrong connections ----------------------------------------------------------------------------


def refused(app: gnomon.App, connection: object) -> str:
    with pytest.raises(gnomon.GnomonError) as caught:
        app.blocking.schedule(gnomon.Mock(), id="a", connection=connection)
    with pytest.raises(gnomon.NotFound):
        app.blocking.get("a")
    return str(caught.value)


def test_a_connection_that_commits_by_itself_is_refused(app: gnomon.App) -> None:
    with sqlalchemy_connection(app) as opened:
        autocommit = opened.connection.execution_options(isolation_level="AUTOCOMMIT")
        assert "begin a transaction first" in refused(app, autocommit)
    with driver(app) as opened:
        if isinstance(opened.connection, sqlite3.Connection):
            opened.connection.isolation_level = None
        else:
            opened.connection.autocommit = True
        assert "begin a transaction first" in refused(app, opened.connection)


def test_a_closed_connection_is_refused(app: gnomon.App) -> None:
    with driver(app) as opened:
        opened.connection.close()
        assert "closed" in refused(app, opened.connection)
    with sqlalchemy_connection(app) as opened:
        opened.connection.close()
        assert "closed" in refused(app, opened.connection)


def test_a_connection_to_another_database_is_refused(
    app: gnomon.App, tmp_path: Path, postgres_schema: Any
) -> None:
    """Of the same engine or not; and the transaction is as good as it was."""
    with sqlite3.connect(tmp_path / "other.db") as other:
        assert "does not support joining" in refused(app, other)
    other.close()
    with psycopg.connect(postgres_schema.dsn, dbname="template1") as elsewhere:
        elsewhere.execute("CREATE TEMPORARY TABLE mine (id integer)")
        assert "does not support joining" in refused(app, elsewhere)
        assert [] == elsewhere.execute("SELECT * FROM mine").fetchall()


def test_another_installation_in_the_same_database_is_none_of_ours(
    installed_schema: Any, postgres_schema: Any
) -> None:
    """Another schema of the same server: its connection leads to both, so it is taken."""
    with gnomon.App(
        postgres_schema.dsn, schema=postgres_schema.schema, migrate=True
    ).blocking as blocking:
        with psycopg.connect(installed_schema.dsn) as connection:
            blocking.schedule(gnomon.Mock(), id="a", in_="1h", connection=connection)
        assert "a" == blocking.get("a").meta.id


def test_a_failed_transaction_is_told_apart(postgres_schema: Any) -> None:
    dsn, schema = postgres_schema
    with (
        gnomon.App(dsn, schema=schema, migrate=True).blocking as blocking,
        psycopg.connect(dsn) as connection,
    ):
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM nothing")
        with pytest.raises(gnomon.InvalidRequest, match="failed before: roll it back"):
            blocking.schedule(gnomon.Mock(), connection=connection)


async def test_a_connection_for_coroutines_is_refused(
    app: gnomon.App, postgres_schema: Any
) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_schema.dsn) as connection:
        told = await asyncio.to_thread(refused, app, connection)
    assert "this one is for coroutines" in told


@pytest.mark.parametrize("connection", [object(), "postgresql://localhost/shop"])
def test_what_is_no_connection_is_refused(app: gnomon.App, connection: object) -> None:
    assert "does not support joining" in refused(app, connection)


def test_a_twin_serves_nothing_of_its_own() -> None:
    """It shares what was declared, also later, and has no stages to work on."""
    app = App("sqlite:///:memory:")
    app.blocking.open()

    @app.action
    def late(ctx: gnomon.Attempt) -> None: ...

    assert "late" == app.blocking.schedule(late(), in_="1h").spec.action.function  # type: ignore[union-attr]
    app.blocking.close()
