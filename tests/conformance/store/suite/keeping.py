"""Part of the suite: the history of attempts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from gnomon.contracts.store import HistoryRow, Store
from gnomon.model.history import BEGUN, PLACES
from tests.conformance.store.suite.given import HOUR, Given

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
ONE, OTHER = UUID(int=1), UUID(int=2)
LIMIT = 1_000


def counted(at: datetime, count: int, queue: str = "") -> HistoryRow:
    return HistoryRow(at=at, queue=queue, counts=[count, *[0] * (PLACES - 1)])


async def history(store: Store, queue: str = "") -> Mapping[tuple[datetime, timedelta], list[int]]:
    """What began, by time and span: one number for each row."""
    now = await store.installation.now()
    rows = await store.reports.list_history(
        queue, since=now - 40 * DAY, until=now + DAY, limit=LIMIT
    )
    found: dict[tuple[datetime, timedelta], list[int]] = {}
    for row in rows:
        found.setdefault((row.at, row.span), []).append(row.counts[BEGUN])
    return found


async def minute_ago(given: Given, ago: timedelta) -> datetime:
    return (await given.now() - ago).replace(second=0, microsecond=0)


class TestHistory:
    """`record_minute`, `list_history`, `thin_history`."""

    async def test_workers_count_apart(self, store: Store, given: Given) -> None:
        """And by queue; the numbers come back as they were."""
        at = await minute_ago(given, MINUTE)
        await store.reports.record_minute(ONE, [counted(at, 1), counted(at, 3, "mail")])
        await store.reports.record_minute(OTHER, [counted(at, 5)])
        assert [1, 5] == sorted((await history(store))[at, MINUTE])
        assert {(at, MINUTE): [3]} == await history(store, "mail")
        assert {} == await history(store, "other")

    async def test_who_repeats_himself_changes_nothing(self, store: Store, given: Given) -> None:
        """The answer of the first time was lost."""
        at = await minute_ago(given, MINUTE)
        for _ in range(2):
            await store.reports.record_minute(ONE, [counted(at, 1)])
        assert {(at, MINUTE): [1]} == await history(store)

    async def test_a_range_has_a_beginning_and_an_end(self, store: Store, given: Given) -> None:
        """And not more rows than wanted, the oldest first."""
        at = await minute_ago(given, HOUR)
        for number in range(5):
            await store.reports.record_minute(ONE, [counted(at + number * MINUTE, number)])
        rows = await store.reports.list_history(
            "", since=at + MINUTE, until=at + 4 * MINUTE, limit=2
        )
        assert [1, 2] == [row.counts[BEGUN] for row in rows]

    async def test_rows_of_workers_are_put_together_after_a_while(
        self, store: Store, given: Given
    ) -> None:
        """Not those of a minute ago: their worker may say them again."""
        old, new = await minute_ago(given, HOUR), await minute_ago(given, MINUTE)
        for worker in (ONE, OTHER):
            await store.reports.record_minute(worker, [counted(old, 2), counted(new, 1)])
        assert 2 == await store.reports.thin_history(ONE, limit=LIMIT)
        assert {(old, MINUTE): [4], (new, MINUTE): [1, 1]} == await history(store)
        assert 0 == await store.reports.thin_history(OTHER, limit=LIMIT)

    async def test_who_comes_late_is_added(self, store: Store, given: Given) -> None:
        """Whoever puts the rows together then."""
        at = await minute_ago(given, HOUR)
        await store.reports.record_minute(ONE, [counted(at, 1)])
        await store.reports.thin_history(ONE, limit=LIMIT)
        for thinner in (ONE, OTHER):
            await store.reports.record_minute(OTHER, [counted(at, 10)])
            await store.reports.thin_history(thinner, limit=LIMIT)
        assert 21 == sum((await history(store))[at, MINUTE])

    async def test_minutes_become_hours(self, store: Store, given: Given) -> None:
        """Two days after."""
        at = (await minute_ago(given, 3 * DAY)).replace(minute=0)
        minutes = [counted(at + number * MINUTE, 1) for number in (0, 1, 59, 60)]
        await store.reports.record_minute(ONE, minutes)
        gone = await store.reports.thin_history(OTHER, limit=LIMIT)
        assert 8 == gone
        assert {(at, HOUR): [3], (at + HOUR, HOUR): [1]} == await history(store)

    async def test_what_is_too_old_goes(self, store: Store, given: Given) -> None:
        """By whatever steps."""
        at = await minute_ago(given, 31 * DAY)
        await store.reports.record_minute(ONE, [counted(at, 1)])
        await store.reports.thin_history(ONE, limit=LIMIT)
        assert {} == await history(store)

    async def test_no_more_goes_at_once_than_may(self, store: Store, given: Given) -> None:
        """And nothing is lost by it."""
        at = await minute_ago(given, 2 * HOUR)
        rows = [counted(at + number * MINUTE, 1) for number in range(10)]
        await store.reports.record_minute(ONE, rows)
        await store.reports.record_minute(OTHER, rows)
        while await store.reports.thin_history(ONE, limit=3):
            pass
        assert {(row.at, MINUTE): [2] for row in rows} == await history(store)

    async def test_a_spoilt_row_hides_nothing(self, store: Store, given: Given) -> None:
        """A hand may have written into the table."""
        at = await minute_ago(given, HOUR)
        await store.reports.record_minute(ONE, [counted(at, 1)])
        await given.execute_raw("UPDATE history SET counts = 'x'")
        await store.reports.record_minute(OTHER, [counted(at, 1)])
        assert [0, 1] == sorted((await history(store))[at, MINUTE])
        assert 2 == await store.reports.thin_history(ONE, limit=LIMIT)
        assert {(at, MINUTE): [1]} == await history(store)
