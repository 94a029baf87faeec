"""A row that somebody's open transaction holds costs those who ask for it, at every face.

Whoever reads is answered at once. Whoever wants to write the row is told, while it is still held,
that it cannot be done at the moment. Whoever writes another row comes before all of these, however
many they are; in SQLite a transaction that writes holds the whole file, so there he is told, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from gnomon.model.spec import Mock, Spec
from gnomon.scheduler import Request
from gnomon.stores.postgres import connection as postgres
from gnomon.stores.sqlite import connection as sqlite
from tests.conformance.faces.conftest import Place
from tests.conformance.faces.faces import KIND, Cli, Face, NotNow

HELD, FREE = "held", "free"
FAR = timedelta(days=36_500)
CALLERS = 6  # at each verb: together more than there are connections for them


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Less patience than usual, for the sake of the test's time, where one verb comes after the
    other; elsewhere nearly all of it: others have to be quicker than they, on any machine."""
    is_alone = "cli" in request.node.callspec.params.values()
    patience_s = 0.2 if is_alone else 4.5
    monkeypatch.setattr(postgres, "HELD_MS_MAX", int(patience_s * 1000))
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", patience_s)


class Callers:
    """Those who want to write what is held, all at once; at the command line one after another."""

    def __init__(self, face: Face, verbs: Sequence[str]) -> None:
        self._face = face
        self._verbs = verbs
        self._is_apart = isinstance(face, Cli)
        self._calls: list[asyncio.Future[Any]] = []

    def start(self) -> None:
        for verb in () if self._is_apart else [*self._verbs] * CALLERS:
            self._calls.append(asyncio.ensure_future(self._face.call(verb, HELD)))

    async def after(self, call: Awaitable[Any]) -> None:
        """Somebody else comes before them."""
        other = asyncio.ensure_future(call)
        await asyncio.wait([other, *self._calls], return_when=asyncio.FIRST_COMPLETED)
        assert other.done(), "those who wait for the held row were first"
        await other

    async def told(self) -> None:
        """Each of them was told why."""
        for verb in self._verbs if self._is_apart else ():
            self._calls.append(asyncio.ensure_future(self._face.call(verb, HELD)))
            await asyncio.wait(self._calls[-1:])
        for answer in await asyncio.gather(*self._calls, return_exceptions=True):
            assert answer is None or isinstance(answer, NotNow), answer
            assert answer is None or "safe to repeat" in str(answer)


async def held(
    place: Place, face: Face, row: str, listing: str, reads: Sequence[str], writes: Sequence[str]
) -> None:
    """All of it, for one kind of row."""
    with place.hold(row):
        callers = Callers(face, writes)
        callers.start()
        await callers.after(listed(face, listing))
        for verb in reads:
            for name in (HELD, FREE):
                await callers.after(face.call(verb, name))
        for verb in writes if not place.is_sqlite else ():
            await callers.after(face.call(verb, FREE))
        await callers.told()


async def listed(face: Face, verb: str) -> None:
    assert {HELD, FREE} <= set(await face.call(verb))


async def test_actions(place: Place, face: Face) -> None:
    start = await place.app.store.installation.now() + FAR
    for name in (HELD, FREE):
        request = Request(id=name, spec=Spec(action=Mock(), start_at=start))
        await place.app.scheduler.create(request)
    await held(
        place,
        face,
        f"SELECT FROM scheduled_action WHERE id = '{HELD}'",
        "list_actions",
        ["get_action", "attempts"],
        ["pause", "resume", "run_now", "replace_action", "delete_action"],
    )


async def test_entities(place: Place, face: Face) -> None:
    for name in (HELD, FREE):
        await place.app.entities.put(KIND, name, {"a": 1})
    await held(
        place,
        face,
        f"SELECT FROM entity WHERE entity_key = '{KIND}/{HELD}'",
        "list_entities",
        ["get_entity", "explain"],
        ["put_entity", "patch_entity", "release", "delete_entity"],
    )
