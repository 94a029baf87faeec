"""Commits that somebody is in the way of: what one statement compares, another may be writing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.store import HeldShard, Store
from gnomon.contracts.store.entities import EntityWrite, StateWrite
from gnomon.contracts.store.queues import (
    ClaimedEntity,
    Commit,
    CommitKind,
    Enqueue,
    Routing,
    RowStatus,
    StageLane,
)
from gnomon.stores.postgres import open_postgres
from tests.fixtures.postgres import PostgresSchema
from tests.integration.postgres.conftest import SHARD_COUNT

SHARD = 1
NAME = "ad"
STAGE = "photos"
DOC = '{"price": 1}'
OTHER_DOC = '{"price": 2}'
HOUR = timedelta(hours=1)
POLLS_MAX = 2_000


# Plain: who waits is seen in the locks of one machine.
pytestmark = [pytest.mark.usefixtures("waiting_verbs"), pytest.mark.plain]


class Situation:
    """An entity that waits in a stage's queue, and a second connection to be in the way."""

    def __init__(self, store: Store, other: asyncpg.Connection[Any]) -> None:
        self.entities = store.entities
        self.queues = store.queues
        self.other = other
        self.lease = SystemEntropy().token()
        self.root = SystemEntropy().token()
        self.holding = HeldShard(shard=SHARD, lease_guid=self.lease)

    async def prepare(self) -> None:
        await self.other.execute(
            "UPDATE shard_lock SET lease_guid = $1 WHERE shard_id = $2", self.lease, SHARD
        )
        await self.write(None, DOC)
        (fed,) = await self.queues.changed_entities([self.holding], limit=1, skip=())
        offer = Enqueue(stage=STAGE, reason="change", root=self.root)
        answer = Routing(
            entity_key=NAME, shard=SHARD, lease_guid=self.lease, seq=fed.seq, epoch=1, version=1,
            enqueues=(offer,),
        )  # fmt: skip
        assert None not in await self.queues.route([answer])

    async def write(self, base: tuple[int, int] | None, doc: str | None) -> None:
        change = EntityWrite(
            key=NAME, shard=SHARD, doc=doc, base=base, paths=("price",), author="user",
            root=self.root,
        )  # fmt: skip
        assert [None] != list(await self.entities.write([change]))

    async def claim(self) -> ClaimedEntity:
        peeked = await self.queues.lane_head(
            [self.holding], STAGE, StageLane.MAIN, limit=1, skip=()
        )
        return peeked.claims[0]

    async def commit(self, claim: ClaimedEntity, **fields: Any) -> CommitKind:
        values: dict[str, Any] = {"doc": OTHER_DOC, "state_version": 0} | fields
        commit = Commit(
            shard=SHARD, lease_guid=self.lease, entity_key=NAME, stage=STAGE, seq=claim.row.seq,
            epoch=claim.entity.epoch, version=claim.entity.version, paths=("price",),
            root=claim.row.root, depth=1, **values,
        )  # fmt: skip
        return (await self.queues.commit([commit]))[0].kind

    async def committed(self, claim: ClaimedEntity, **fields: Any) -> CommitKind:
        """The same, as soon as nobody holds the entity."""
        while (kind := await self.commit(claim, **fields)) is CommitKind.HELD:
            await asyncio.sleep(0)
        return kind

    async def after(self, claim: ClaimedEntity, *statements: str, **fields: Any) -> CommitKind:
        """A commit that finds the entity held by these statements, and what comes of it after."""
        async with self.other.transaction():
            for statement in statements:
                await self.other.execute(statement)
            assert CommitKind.HELD is await self.commit(claim, **fields)
        return await self.commit(claim, **fields)

    async def behind(self, blocked: Awaitable[Any], *statements: str) -> Any:
        """What comes of a call that has to wait for these statements and their commit."""
        async with self.other.transaction():
            for statement in statements:
                await self.other.execute(statement)
            waiting = asyncio.ensure_future(blocked)
            for _ in range(POLLS_MAX):
                if waiting.done() or await self.other.fetchval(
                    "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"
                    " AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
                ):
                    break
                await asyncio.sleep(0.005)
            assert not waiting.done(), "nothing was in the way"
        return await waiting

    async def row(self) -> Any:
        (row,) = await self.queues.rows(NAME, shard=SHARD)
        return row


@pytest.fixture(params=[True, False], ids=["many-shards", "one-shard"])
async def store(
    request: pytest.FixtureRequest, installed_schema: PostgresSchema
) -> AsyncIterator[Store]:
    """Commits in one statement, and always under locks."""
    dsn, schema = installed_schema
    opened = await open_postgres(
        dsn, schema=schema, clock=SystemClock(), entropy=SystemEntropy(), many_shards=request.param
    )
    await opened.installation.migrate(shard_count=SHARD_COUNT)
    yield opened
    await opened.close()


@pytest.fixture
async def situation(store: Store, installed_schema: PostgresSchema) -> AsyncIterator[Situation]:
    other: asyncpg.Connection[Any] = await asyncpg.connect(
        installed_schema.dsn, server_settings={"search_path": installed_schema.schema}
    )
    made = Situation(store, other)
    await made.prepare()
    yield made
    await other.close()


LOCK = "SELECT FROM entity FOR UPDATE"
CHANGE = "UPDATE entity SET version = 2, saves = saves + 1"
READY = "UPDATE stage_queue SET seq = seq + 1, reasons = reasons || 'edit'::text"


async def test_a_change_in_the_way_moves_the_entity(situation: Situation) -> None:
    """The commit is made again after it, and then knows of it."""
    claim = await situation.claim()

    kind = await situation.after(claim, CHANGE)

    assert CommitKind.MOVED is kind
    assert claim.row == await situation.row()


async def test_a_delete_in_the_way_leaves_nothing(situation: Situation) -> None:
    """No row is left, nor made anew."""
    claim = await situation.claim()
    gone = "UPDATE entity SET version = 2, saves = saves + 1, doc = NULL"
    removed = "DELETE FROM stage_queue"

    kind = await situation.after(claim, gone, removed, wake=claim.now + HOUR)

    assert CommitKind.GONE is kind
    assert [] == list(await situation.queues.rows(NAME, shard=SHARD))


async def test_a_state_in_the_way_moves_the_state(situation: Situation) -> None:
    """Though there was none when the commit looked for it."""
    claim = await situation.claim()
    state = "INSERT INTO stage_state VALUES (1, 1, 1, 'ad', 'photos', NULL, '1')"

    kind = await situation.after(claim, "UPDATE entity SET saves = saves + 1", state)

    assert CommitKind.STATE_MOVED is kind
    entity = await situation.entities.get(NAME, shard=SHARD)
    assert entity == claim.entity


async def test_a_swap_of_the_state_shows_on_the_entity(situation: Situation) -> None:
    """That is what the commit of the test above relies on."""
    before = await situation.other.fetchval("SELECT saves FROM entity")
    await situation.entities.swap_state(
        NAME, STAGE, shard=SHARD, epoch=1, version=0, enqueue=None,
        state=StateWrite(body=b"1", revision=1),
    )  # fmt: skip

    assert before + 1 == await situation.other.fetchval("SELECT saves FROM entity")


async def test_a_lock_alone_changes_nothing(situation: Situation) -> None:
    """After it: saved, and the row is gone."""
    claim = await situation.claim()

    assert CommitKind.SAVED is await situation.after(claim, LOCK)
    assert [] == list(await situation.queues.rows(NAME, shard=SHARD))


@pytest.mark.parametrize("doc", [OTHER_DOC, None])
@pytest.mark.parametrize("wakes", [True, False])
async def test_an_offer_in_the_way_keeps_the_row_and_the_timer_is_set(
    situation: Situation, doc: str | None, *, wakes: bool
) -> None:
    """Whether the document changes or not: the wake-up stays, and so does what the run said."""
    claim = await situation.claim()
    wake: datetime | None = claim.now + HOUR if wakes else None
    await situation.other.execute(
        "UPDATE stage_queue SET attempts = 3, timer_at = $1", claim.now + 2 * HOUR
    )

    kind = await situation.behind(situation.commit(claim, doc=doc, wake=wake), READY)

    row = await situation.row()
    assert CommitKind.SAVED is kind
    assert (RowStatus.READY, claim.row.seq + 1, 0) == (row.status, row.seq, row.attempts)
    assert (wake, ("change", "edit")) == (row.timer_at, row.reasons)


async def test_a_timer_that_is_being_written_does_not_hold_up_the_others(
    situation: Situation,
) -> None:
    """`fire` leaves it for the next time."""
    await situation.other.execute(
        "UPDATE stage_queue SET timer_at = statement_timestamp() - interval '1 hour'"
    )
    async with situation.other.transaction():
        await situation.other.execute(READY)
        assert 0 == await situation.queues.fire_timers([situation.holding], limit=9)

    assert 1 == await situation.queues.fire_timers([situation.holding], limit=9)


async def test_one_of_two_that_create_the_same_entity_is_told_so(situation: Situation) -> None:
    """Who comes second has no base: None, and nothing is written twice."""
    change = EntityWrite(
        key="new", shard=SHARD, doc=DOC, base=None, paths=(), author="user", root=situation.root
    )
    insert = "INSERT INTO entity VALUES (statement_timestamp(), 1, 1, 1, 1, false, 'new', '{}')"

    answers = await situation.behind(situation.entities.write([change]), insert)

    assert [None] == list(answers)
    assert 0 == await situation.other.fetchval("SELECT count(*) FROM changed_entity")


async def test_commits_and_changes_at_once_lose_nothing(situation: Situation) -> None:
    """However they meet: every version is noted once, and no wake-up goes with an older run."""

    async def change_often() -> int:
        changed = 0
        for _ in range(40):
            entity = await situation.entities.get(NAME, shard=SHARD)
            assert entity is not None
            offer = Enqueue(stage=STAGE, reason="edit", root=situation.root)
            state = StateWrite(body=b"1", revision=1)
            change = EntityWrite(
                key=NAME, shard=SHARD, doc=DOC, base=(entity.epoch, entity.version), paths=(),
                author="user", root=situation.root,
            )  # fmt: skip
            if (await situation.entities.write([change]))[0] is not None:
                changed += 1
            _, found = await situation.entities.state(NAME, STAGE, shard=SHARD)
            await situation.entities.swap_state(
                NAME, STAGE, shard=SHARD, epoch=1, version=found.version if found else 0,
                state=state, enqueue=offer,
            )  # fmt: skip
        return changed

    async def commit_often() -> tuple[int, int]:
        saved = seen = 0
        for _ in range(80):
            claim = await situation.queues.claim(situation.holding, NAME, STAGE)
            if claim is None:
                continue
            state = claim.states.get(STAGE)
            version = state.version if state else 0
            if CommitKind.SAVED is await situation.committed(claim, state_version=version):
                saved, seen = saved + 1, version
        return saved, seen

    changed, (saved, seen) = await asyncio.gather(change_often(), commit_often())

    entity = await situation.entities.get(NAME, shard=SHARD)
    assert entity is not None
    assert 1 + changed + saved == entity.version
    notes = await situation.entities.changes(NAME, shard=SHARD, limit=1_000)
    assert list(range(entity.version, 0, -1)) == [note.version for note in notes]
    _, state = await situation.entities.state(NAME, STAGE, shard=SHARD)
    assert state is not None
    if not await situation.queues.rows(NAME, shard=SHARD):
        assert seen == state.version
