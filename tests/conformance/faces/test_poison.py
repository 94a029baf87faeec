"""One bad row costs itself alone, at every face.

Each poison is what a hand, a bug or a newer release may leave in a table, beside a good row. Either
the table refuses it; or every verb of every face answers for the bad row with a clear error or with
something marked, answers for the good one as ever, and can take the bad one away.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import psycopg

from gnomon.clock import SystemEntropy
from gnomon.contracts.store.register import StageDeclaration
from gnomon.gateways.auth import issue
from gnomon.model.limits import Limit, LimitKind
from gnomon.model.spec import Mock, Once, Spec
from gnomon.model.stage.graph import Reach
from gnomon.scheduler import Request
from tests.conformance.faces.conftest import Place
from tests.conformance.faces.faces import KIND, Cli, Face, Refusal

BAD, GOOD = "bad", "good"
BAD_KEY = f"{KIND}/{BAD}"
LARGE = 3 << 20
FAR = timedelta(days=36_500)


class Poison(NamedTuple):
    """A change of a row, in the words of each engine; None: what it does not have."""

    what: str
    sqlite: str | None
    postgres: str | None


def both(what: str, change: str) -> Poison:
    return Poison(what, change, change)


def times(*columns: str) -> list[Poison]:
    """Moments that no calendar of Python has."""
    return [
        poison
        for column in columns
        for poison in (
            Poison(f"{column} beyond all", f"{column} = 9000000000000000000", None),
            Poison(f"{column} before all", f"{column} = -9000000000000000000", None),
            Poison(f"{column} that is none", f"{column} = 'soon'", None),
            Poison(f"{column} never", None, f"{column} = 'infinity'"),
            Poison(f"{column} in the year 20000", None, f"{column} = '20000-01-01Z'"),
            Poison(f"{column} before Christ", None, f"{column} = '0044-03-15Z BC'"),
        )
    ]


SPECS = [
    both("no JSON", "spec = '{'"),
    both("no spec", "spec = '[1, 2]'"),
    both("an effect of tomorrow", """spec = '{"action": {"type": "teleport"}}'"""),
    both(
        "a zone that no host knows",
        """spec = '{"action": {"type": "mock"}, "policy": {"type": "cron","""
        """ "expression": "* * * * *", "timezone": "Mars/Olympus"}}'""",
    ),
    both("megabytes", f'spec = \'{{"action": {{"type": "mock"}}, "x": "{"x" * LARGE}"}}\''),
    both(
        "megabytes that can be read",
        f'spec = \'{{"action": {{"type": "mock", "answer": "{"x" * LARGE}"}}}}\'',
    ),
    both("a last attempt that is none", "last_attempt = '{'"),
    both("a queue that is none", "queue = ''"),
    Poison("a guid that is none", "guid = x'00'", None),
]
ACTIONS = [*SPECS, *times("created_at", "scheduled_at", "occurrence_at", "expires_at")]
FINISHED = [*SPECS, *times("created_at", "finished_at", "occurrence_at")]
ATTEMPTS = [
    both("an outcome of tomorrow", "outcome = 'teleported'"),
    both("megabytes", f"error = '{'x' * LARGE}'"),
    both("a negative number", "attempt_no = -1"),
    Poison("an id that is none", "attempt_id = x'00'", None),
    *times("began_at", "ended_at"),
]
ENTITIES = [
    both("no JSON", "doc = '{'"),
    both("a list", "doc = '[]'"),
    both("a surrogate", """doc = '{"a": "\\ud800"}'"""),
    both("too deep", f"doc = '{'[' * 5000}'"),
    both("megabytes", f'doc = \'{{"a": "{"x" * LARGE}"}}\''),
    Poison("bytes", "doc = x'7bff'", None),
    Poison("a version of nobody", "version = -1", None),
    *times("changed_at"),
]
CHANGES = [
    both("paths that are none", "paths = '{'"),
    both("paths of another type", "paths = '[1]'"),
    Poison("a root that is none", "root = x'00'", None),
    *times("at"),
]
STATES = [
    Poison("no JSON", "body = x'7b'", r"body = '\x7b'"),
    both("a type of tomorrow", "type = 'x.Y'"),
    Poison("no text", "body = x'ff'", r"body = '\xff'"),
]
PARKED = [
    Poison("reasons that are none", "reasons = '{'", "reasons = '{NULL}'"),
    both("a lane of tomorrow", "lane = 7"),
    Poison("a root that is none", "root = x'00'", None),
    both("megabytes", f"error = '{'x' * LARGE}'"),
    both("a negative number", "attempts = -1"),
    *times("first_at", "timer_at"),
]
STAGES = [
    both("a watch that is none", "watch = '{'"),
    both("writes of another type", "writes = '[1]'"),
    Poison("a debounce that is none", "debounce = 'x'", "debounce = '-1 day'"),
    Poison("a debounce beyond all", "debounce = 9e18", "debounce = '290000 years'"),
    both("a revision of nobody", "revision = -1"),
    *times("first_seen_at", "last_seen_at"),
]
LIMITS = [
    Poison("no number", "parallel = 'x'", "rate = 'NaN'"),
    Poison("no number", "rate = 'x'", "rate = 'infinity'"),
    both("less than nothing", "parallel = -1"),
    both("a negative rate", "rate = -1"),
    both("a burst of nothing", "burst = 0"),
    both("no limit at all", "parallel = NULL, rate = NULL"),
]
TOKENS = [
    Poison("scopes that are none", "scopes = '{'", "scopes = '{NULL}'"),
    Poison("scopes of another type", "scopes = '[1]'", "scopes = '{}'"),
    Poison("scopes of tomorrow", """scopes = '["fly"]'""", "scopes = '{fly}'"),
    Poison("a rate that is none", "rate = 'x'", "rate = 'NaN'"),
    both("a negative rate", "rate = -1"),
    Poison("an id that is none", "token_id = x'00'", None),
    *times("created_at", "expires_at", "revoked_at"),
]
AUDIT = [
    Poison("a guid that is none", "guid = x'00'", None),
    both("a verb of tomorrow", "verb = 'teleport'"),
    both("megabytes", f"actor = '{'x' * LARGE}'"),
    both("a negative number", "count = -1"),
    *times("at"),
]


class Table:
    """Spoils the bad row of a table, one way after the other, and mends it in between."""

    def __init__(self, place: Place, table: str, key: str, value: str = BAD) -> None:
        self._place = place
        self._table = table
        self._where = f"{key} = '{value}'"

    def spoilt(self, poisons: Sequence[Poison]) -> Iterator[str]:
        """What is wrong now; what the table itself refuses is left out."""
        for poison in poisons:
            change = poison.sqlite if self._place.is_sqlite else poison.postgres
            if change is None:
                continue
            try:
                self._place.execute(f"UPDATE {self._table} SET {change} WHERE {self._where}")
            except (sqlite3.IntegrityError, psycopg.Error):
                continue
            yield poison.what


async def answered(face: Face, verb: str, *names: str) -> Any:
    """What a face answers; a refusal is one of the answers, if it says why."""
    try:
        return await face.call(verb, *names)
    except Refusal as refusal:
        if not str(refusal):
            raise AssertionError(f"{verb} {names}: refused without a word") from refusal
        return refusal


async def for_each(
    poisons: Iterator[str], failures: list[str], check: Callable[[], Any], renew: Callable[[], Any]
) -> None:
    """Check with each poison in turn; what failed is told with the poison's name."""
    await renew()
    for what in poisons:
        try:
            await check()
        except Exception as exc:
            failures.append(f"{what}: {type(exc).__name__}: {str(exc)[:300]}")
        await renew()
    assert not failures, "\n".join(failures)


# -- actions --------------------------------------------------------------------------------------


async def test_actions(place: Place, face: Face) -> None:
    """Listed, shown, changed and taken away."""
    scheduler = place.app.scheduler
    start = await place.app.store.installation.now() + FAR

    async def renew() -> None:
        for name in (BAD, GOOD):
            spec = Spec(action=Mock(), policy=Once(), start_at=start)
            await scheduler.replace(Request(id=name, spec=spec))

    async def check() -> None:
        listed = await face.call("list_actions")
        assert {BAD, GOOD} <= set(listed)
        for verb in ("get_action", "attempts", "pause", "resume", "run_now"):
            await answered(face, verb, BAD)
            await face.call(verb, GOOD)
        await face.call("replace_action", BAD)
        await face.call("delete_action", BAD)
        await face.call("delete_action", GOOD)
        await face.call("doctor")

    bad = Table(place, "scheduled_action", "id")
    await for_each(bad.spoilt(ACTIONS), [], check, renew)


async def test_what_cannot_be_read_can_be_deleted_as_it_is(place: Place, face: Face) -> None:
    """Without a replacement first."""
    scheduler = place.app.scheduler

    async def renew() -> None:
        start = await place.app.store.installation.now() + FAR
        await scheduler.replace(Request(id=BAD, spec=Spec(action=Mock(), start_at=start)))

    async def check() -> None:
        await face.call("delete_action", BAD)

    bad = Table(place, "scheduled_action", "id")
    await for_each(bad.spoilt(ACTIONS), [], check, renew)


async def test_finished_actions(place: Place, face: Face) -> None:
    """Listed and shown, and their ids can be used again."""
    scheduler = place.app.scheduler

    async def renew() -> None:
        start = await place.app.store.installation.now() + FAR
        place.execute("DELETE FROM finished_action")
        for name in (BAD, GOOD):
            await scheduler.replace(Request(id=name, spec=Spec(action=Mock(), start_at=start)))
            await scheduler.delete(name)

    async def check() -> None:
        assert {BAD, GOOD} <= set(await face.call("list_actions"))
        for verb in ("get_action", "attempts"):
            await answered(face, verb, BAD)
            await face.call(verb, GOOD)
        await face.call("replace_action", BAD)
        await face.call("doctor")

    bad = Table(place, "finished_action", "id")
    await for_each(bad.spoilt(FINISHED), [], check, renew)


async def test_attempts(place: Place, face: Face) -> None:
    """The good ones are shown beside the bad one of the same action."""
    scheduler = place.app.scheduler
    start = await place.app.store.installation.now() + FAR
    await scheduler.create(Request(id=BAD, spec=Spec(action=Mock(), start_at=start)))
    guid = SystemEntropy().guid()

    async def renew() -> None:
        place.execute("DELETE FROM attempt_log")
        for number, owner in enumerate((BAD, GOOD), 1):
            place.execute(_attempt(place, number, owner, guid.hex))

    async def check() -> None:
        listed = await face.call("attempts", BAD)
        assert 2 >= len(listed) >= 1
        await face.call("list_actions")
        await face.call("doctor")

    bad = Table(place, "attempt_log", "owner")
    await for_each(bad.spoilt(ATTEMPTS), [], check, renew)


def _attempt(place: Place, number: int, owner: str, guid: str) -> str:
    at = str(1_790_000_000_000_000 + number) if place.is_sqlite else "now()"
    id = f"x'{guid[:-2]}0{number}'" if place.is_sqlite else f"'{guid[:-2]}0{number}'"
    return (
        "INSERT INTO attempt_log (shard_id, id, guid, attempt_id, attempt_no, occurrence_no,"
        " began_at, ended_at, outcome, owner)"
        f" SELECT shard_id, id, {id}, {id}, {number}, 1, {at}, {at}, 'failed', '{owner}'"
        f" FROM scheduled_action WHERE id = '{BAD}'"
    )


# -- entities -------------------------------------------------------------------------------------


async def renew_entities(place: Place) -> None:
    """A good one and a bad one, each with a state and parked."""
    entities = place.app.entities
    for name in (BAD, GOOD):
        await entities.put(KIND, name, {"a": 1})
        await entities.put(KIND, name, {"a": 2})


async def test_entities(place: Place, face: Face) -> None:
    """Listed, shown, explained, changed and taken away."""

    async def renew() -> None:
        await renew_entities(place)

    async def check() -> None:
        assert {BAD, GOOD} == set(await face.call("list_entities"))
        for verb in ("get_entity", "explain", "patch_entity"):
            await answered(face, verb, BAD)
            await face.call(verb, GOOD)
        await face.call("put_entity", BAD)
        await face.call("delete_entity", BAD)
        await face.call("doctor")

    await for_each(Table(place, "entity", "entity_key", BAD_KEY).spoilt(ENTITIES), [], check, renew)


async def test_entities_are_deleted_as_they_are(place: Place, face: Face) -> None:
    """Without being put whole first."""

    async def renew() -> None:
        await renew_entities(place)

    async def check() -> None:
        await face.call("delete_entity", BAD)
        assert {GOOD} == set(await face.call("list_entities"))

    await for_each(Table(place, "entity", "entity_key", BAD_KEY).spoilt(ENTITIES), [], check, renew)


async def test_changes(place: Place, face: Face) -> None:
    """An entity with a note that cannot be read is explained without it, or with a clear word."""

    async def renew() -> None:
        await renew_entities(place)

    async def check() -> None:
        for name in (BAD, GOOD):
            assert await face.call("explain", name)
        await face.call("put_entity", BAD)
        await face.call("delete_entity", BAD)

    await for_each(
        Table(place, "entity_change", "entity_key", BAD_KEY).spoilt(CHANGES), [], check, renew
    )


async def test_states(place: Place, face: Face) -> None:
    """A state that cannot be read is shown as bytes, or with a clear word."""

    async def renew() -> None:
        await renew_entities(place)
        place.execute("DELETE FROM stage_state")
        for name in (BAD, GOOD):
            body = "x'7b7d'" if place.is_sqlite else r"'\x7b7d'"
            place.execute(
                "INSERT INTO stage_state (shard_id, entity_key, stage, version, revision, body)"
                f" SELECT shard_id, entity_key, 'count', 1, 1, {body} FROM entity"
                f" WHERE entity_key = '{KIND}/{name}'"
            )

    async def check() -> None:
        await answered(face, "state", BAD, "count")
        await face.call("state", GOOD, "count")
        await face.call("delete_entity", BAD)

    await for_each(
        Table(place, "stage_state", "entity_key", BAD_KEY).spoilt(STATES), [], check, renew
    )


async def test_parked(place: Place, face: Face) -> None:
    """Listed, explained, released."""

    async def renew() -> None:
        await renew_entities(place)
        place.execute("DELETE FROM stage_queue")
        root, at, reasons = (
            (f"x'{'00' * 16}'", "1790000000000000", "'[]'")
            if place.is_sqlite
            else (f"'{'00' * 16}'", "now()", "'{}'")
        )
        place.execute(
            "INSERT INTO stage_queue (shard_id, entity_key, stage, lane, status, first_at, seq,"
            " attempts, depth, root, reasons)"
            f" SELECT shard_id, entity_key, 'count', 0, 'quarantined', {at}, 1, 1, 1, {root},"
            f" {reasons} FROM entity"
        )

    async def check() -> None:
        assert {BAD, GOOD} == set(await face.call("parked"))
        for name in (BAD, GOOD):
            assert await face.call("explain", name)
        await face.call("stages")
        await face.call("release", GOOD)
        await face.call("release", BAD)
        await face.call("delete_entity", BAD)

    await for_each(
        Table(place, "stage_queue", "entity_key", BAD_KEY).spoilt(PARKED), [], check, renew
    )


async def test_stages(place: Place, face: Face) -> None:
    """Listed, forgotten; and whoever serves others goes on."""
    register = place.app.store.register

    async def renew() -> None:
        place.execute("DELETE FROM stage")
        await register.declare(
            [
                StageDeclaration(name=name, revision=1, reach=Reach(KIND, (), ()))
                for name in (BAD, GOOD)
            ]
        )

    async def check() -> None:
        assert {BAD, GOOD} == set(await face.call("stages"))
        seen = await register.attend(
            SystemEntropy().guid(), serves=[GOOD], holdings=[], alive_for=timedelta(seconds=5)
        )
        assert {BAD, GOOD} == {record.name for record in seen.register}
        await face.call("doctor")
        await face.call("forget_stage", BAD)

    await for_each(Table(place, "stage", "name").spoilt(STAGES), [], check, renew)


# -- what operators keep --------------------------------------------------------------------------


async def test_limits(place: Place, face: Face) -> None:
    """Listed, set anew, dropped."""

    async def renew() -> None:
        for name in (BAD, GOOD):
            limit = Limit(kind=LimitKind.QUEUE, name=name, parallel=2, rate=5.0, burst=3)
            await place.app.scheduler.set_limit(limit)

    async def check() -> None:
        assert {BAD, GOOD} == set(await face.call("limits"))
        await face.call("set_limit", BAD)
        await face.call("drop_limit", BAD)

    await for_each(Table(place, "work_limit", "name").spoilt(LIMITS), [], check, renew)


async def test_a_spoilt_limit_is_dropped_as_it_is(place: Place, face: Face) -> None:
    """Without being set anew."""

    async def renew() -> None:
        limit = Limit(kind=LimitKind.QUEUE, name=BAD, parallel=2, rate=5.0, burst=3)
        await place.app.scheduler.set_limit(limit)

    async def check() -> None:
        await face.call("drop_limit", BAD)

    await for_each(Table(place, "work_limit", "name").spoilt(LIMITS), [], check, renew)


async def test_tokens(place: Place) -> None:
    """Listed and revoked; the good one lets its bearer in."""
    face = Cli(place.options)
    tokens = place.app.store.tokens

    async def renew() -> None:
        place.execute("DELETE FROM token")
        for name in (BAD, GOOD):
            texts[name], draft = issue(name, ("read",), entropy=SystemEntropy())
            drafts[name] = draft
            await tokens.create(draft)

    async def check() -> None:
        assert {BAD, GOOD} == set(await face.call("tokens"))
        found = await tokens.find(drafts[GOOD].digest)
        assert found is not None
        bad = await tokens.find(drafts[BAD].digest)
        assert bad is None or bad.name == BAD
        await face.call("revoke", BAD)
        assert await tokens.find(drafts[BAD].digest) is None

    texts: dict[str, str] = {}
    drafts: dict[str, Any] = {}
    await for_each(Table(place, "token", "name").spoilt(TOKENS), [], check, renew)


async def test_audit(place: Place) -> None:
    """All entries are listed."""
    face = Cli(place.options)
    tokens = place.app.store.tokens

    async def renew() -> None:
        place.execute("DELETE FROM audit")
        for name in (BAD, GOOD):
            await tokens.write_audit(actor="x", verb="create", id=name, guid=SystemEntropy().guid())

    async def check() -> None:
        assert {BAD, GOOD} == set(await face.call("audit"))

    await for_each(Table(place, "audit", "id").spoilt(AUDIT), [], check, renew)
