"""Workers are killed while SQL actions are under way in the installation's own database."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from gnomon.model.spec import Sql
from tests.fault.stage import (
    Stage,
    all_actions,
    all_attempts,
    all_done,
    counted,
    create_all,
    request,
    stop_all,
)

ACTION_COUNT = 1_000
KILLED_ATTEMPTS_MIN = 50
KILLS_MAX = 15
EFFECT = "INSERT INTO effect SELECT $1 FROM pg_sleep(0.05)"
GRANTS = (
    "CREATE ROLE {1} LOGIN",
    "GRANT USAGE ON SCHEMA {0} TO {1}",
    "GRANT EXECUTE ON FUNCTION {0}.finish_ok, {0}.effect_done TO {1}",
    "CREATE TABLE {0}.effect (n int)",
    "GRANT INSERT ON {0}.effect TO {1}",
)


@pytest.fixture
def login(postgres_stage: Stage) -> Iterator[str]:
    name = f"sql_{uuid.uuid4().hex[:12]}"
    yield name
    with psycopg.connect(postgres_stage.url, autocommit=True) as owner:
        owner.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
        owner.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_effects_are_committed_once_under_kills(postgres_stage: Stage, login: str) -> None:
    """However many attempts were killed, each action's row is there exactly once."""
    stage, chooser = postgres_stage, random.Random()
    dsn = stage.url.replace("postgres@", f"{login}@")
    names = (sql.Identifier(stage.schema), sql.Identifier(login))
    async with stage.app() as app:
        with psycopg.connect(stage.url, autocommit=True) as owner:
            for text in GRANTS:
                owner.execute(sql.SQL(text).format(*names))
            wanted = [
                request(f"a-{n}", Sql(target="own", statement=EFFECT, parameters=[n]))
                for n in range(ACTION_COUNT)
            ]
            await create_all(app, wanted)
            running = sql.SQL(
                "SELECT count(*) FROM {0}.processing_queue WHERE running AND owner LIKE %s"
            )
            killed = kills = 0
            worker = await stage.worker("--sql-dsn", dsn, "--concurrency", "15")
            while killed < KILLED_ATTEMPTS_MIN + 10 and kills < KILLS_MAX:
                await asyncio.sleep(0.4 + chooser.random() * 0.3)
                worker.kill()
                row = owner.execute(running.format(*names), (f"%/{worker.process_id}",)).fetchone()
                assert row is not None
                killed, kills = killed + int(row[0]), kills + 1
                worker = await stage.worker("--sql-dsn", dsn, "--concurrency", "15")
            assert (await counted(app)).total() == ACTION_COUNT
            await all_done(app, ACTION_COUNT, timeout_s=60.0)
            assert [0] == await stop_all(worker)
            found = owner.execute(
                sql.SQL("SELECT count(*), count(DISTINCT n) FROM {0}.effect").format(*names)
            ).fetchone()
        actions = await all_actions(app)
        interrupted = sum(action.status.interrupted for action in actions.values())
        logs = await all_attempts(app, sorted(actions))
        seen = sum("earlier" in (one.answer or "") for log in logs.values() for one in log)
        print(f"\n  {kills} kills, {interrupted} attempts cut short, {seen} found done")
        assert (ACTION_COUNT, ACTION_COUNT) == found
        assert interrupted >= KILLED_ATTEMPTS_MIN, "too few kills hit an attempt"
        assert [] == list(await app.store.installation.doctor())
