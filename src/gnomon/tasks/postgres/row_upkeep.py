"""What an owner changes in rows that no session has: so many at once, and never held up by one.

A row that somebody has locked is left for later; one that the server does not let us change (a
trigger of the user's, say) costs nobody but itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from gnomon.contracts.task_table import ExpiryResult, RescueResult
from gnomon.model.task import GroupKey, RowRefused
from gnomon.model.task.text import plain_error
from gnomon.tasks.postgres.control import ControlConnection, Row, StatementRefused, rows_of
from gnomon.tasks.postgres.rows import (
    FALSE,
    TRUE,
    array_of,
    as_bytes,
    flag_of,
    is_true,
    moment_of,
    number_of,
    text_of,
    text_or_none,
)
from gnomon.tasks.postgres.table_access import TableAccess, next_cron_of
from gnomon.tasks.postgres.wire import Step

EXPIRED_MAX = 1_000  # in one transaction; the owner comes again
ASIDE_S = 60.0  # a row that could not expire is left alone so long
ASIDE_MAX = 1_000
TROUBLES_MAX = 20  # in one call: each takes several statements to find
# Through no fault of the row's: connection, transaction, resources, locks, operators.
PASSING_CLASSES = frozenset({"08", "25", "40", "53", "55", "57", "58"})


def is_of_row(sqlstate: str) -> bool:
    """Whether a refusal may be due to what is in the row, or hangs on it."""
    return sqlstate[:2] not in PASSING_CLASSES


def is_lasting(sqlstate: str) -> bool:
    """Whether a row that cannot be taken is not to be had at a second try either: also because
    its login may only read."""
    return is_of_row(sqlstate) or sqlstate[:2] == "25"


class AwaitedRow(NamedTuple):
    """A row with a `cron` that waits for its first time."""

    id: int
    first: bytes


class RowUpkeep:
    """Expires, rescues and refuses rows of one table. Errors of all: Unavailable,
    StatementRefused."""

    def __init__(self, access: TableAccess, control: ControlConnection) -> None:
        self._access = access
        self._control = control
        self._floor: bytes | None = None  # where in the index to go on, while many rows expire
        self._aside: dict[int, float] = {}  # rows that could not expire, and until when

    @property
    def floor(self) -> bytes | None:
        """Before it there is nothing but what has expired."""
        return self._floor

    async def _rows(self, name: str, *params: bytes | None) -> list[Row]:
        return await self._control.rows(self._access.statements[name], *params)

    # -- one row ----------------------------------------------------------------------------------

    async def mark_taken(self, task_ids: Sequence[int], lease_guid: UUID) -> Sequence[int]:
        try:
            rows = await self._rows("mark_taken", array_of(list(task_ids)), as_bytes(lease_guid))
        except StatementRefused as exc:
            if len(task_ids) > 1 or not is_of_row(exc.sqlstate):
                raise
            raise RowRefused(plain_error(exc.words)) from None
        return [number_of(row["id"]) for row in rows]

    async def untake(self, task_ids: Sequence[int], lease_guid: UUID) -> Sequence[int]:
        known, ids = self._access.statements, array_of(list(task_ids))
        steps: list[Step] = [
            (known["untake"], (ids, as_bytes(lease_guid))), (known["busy_of"], (ids,)),
        ]  # fmt: skip
        _, left = await self._control.together(steps)
        return [number_of(row["id"]) for row in rows_of(left)]

    async def refuse(self, task_id: int, error: str, lease_guid: UUID) -> bool:
        """Where the next repeat is what cannot be written, the row ends without one."""
        following: bytes | None = None
        for row in await self._rows("cron_of", as_bytes(task_id)):
            following = next_cron_of(text_or_none(row["cron"]), moment_of(row["after_us"]))
        fence = (as_bytes(task_id), as_bytes(error), as_bytes(lease_guid), following)
        try:
            return await self._refuse(task_id, (*fence, FALSE))
        except StatementRefused as exc:
            if not is_of_row(exc.sqlstate):
                raise
        try:
            return await self._refuse(task_id, (*fence, TRUE))
        except StatementRefused as exc:
            raise RowRefused(plain_error(exc.words)) from None

    async def _refuse(self, task_id: int, params: tuple[bytes | None, ...]) -> bool:
        known = self._access.statements
        done, left = await self._control.together(
            [(known["refuse"], params), (known["refusable"], (as_bytes(task_id),))]
        )
        return done.ntuples > 0 or left.ntuples == 0

    async def plan_first(self, rows: Sequence[AwaitedRow], lease_guid: UUID) -> None:
        """Rows with a `cron` and no plan of their own."""
        for row in rows:
            params = (as_bytes(row.id), row.first, as_bytes(lease_guid))
            try:
                await self._rows("plan_first", *params)
            except StatementRefused as exc:
                if not is_of_row(exc.sqlstate):
                    raise

    # -- expiry -----------------------------------------------------------------------------------

    async def expire(self, lease_guid: UUID) -> ExpiryResult:
        now = self._access.env.clock.monotonic()
        self._aside = {task_id: until for task_id, until in self._aside.items() if until > now}
        place = (self._floor, array_of(list(self._aside)), as_bytes(EXPIRED_MAX))
        try:
            expired = await self._rows("expire", as_bytes(lease_guid), *place)
        except StatementRefused as exc:
            if not is_of_row(exc.sqlstate):
                raise
            expired = []
        has_more = len(expired) >= EXPIRED_MAX
        self._floor = expired[0]["place"] if has_more else None
        if has_more:
            return ExpiryResult(len(expired), has_more=True)
        others = await self._expire_others(place, lease_guid)
        return ExpiryResult(len(expired) + others.count, others.has_more, others.troubles)

    async def _expire_others(
        self, place: tuple[bytes | None, ...], lease_guid: UUID
    ) -> ExpiryResult:
        """Those with a `cron`, and where one could not expire all others with it."""
        rows = await self._rows("expirable", *place)
        awaited = [
            waiting
            for row in rows
            if is_true(row["is_awaited"]) and (waiting := awaited_of(row)) is not None
        ]
        ids = {row.id for row in awaited}
        await self.plan_first(awaited, lease_guid)
        over = [row for row in rows if number_of(row["id"]) not in ids]
        expired = await self._expire(over, lease_guid)
        return ExpiryResult(expired.count, len(rows) >= EXPIRED_MAX, expired.troubles)

    async def _expire(self, rows: Sequence[Row], lease_guid: UUID) -> ExpiryResult:
        """All of them; if that cannot be, as many as can."""
        if not rows:
            return ExpiryResult(0)
        ids = array_of([number_of(row["id"]) for row in rows])
        following = b"{" + b",".join(_next_of(row) for row in rows) + b"}"
        try:
            expired = await self._rows("expire_these", as_bytes(lease_guid), ids, following)
            return ExpiryResult(len(expired))
        except StatementRefused as exc:
            if not is_of_row(exc.sqlstate):
                raise
            if len(rows) == 1:
                return self._set_aside(number_of(rows[0]["id"]), exc.words)
        half = len(rows) // 2
        first = await self._expire(rows[:half], lease_guid)
        if len(first.troubles) >= TROUBLES_MAX:
            return first
        second = await self._expire(rows[half:], lease_guid)
        return ExpiryResult(
            first.count + second.count, troubles={**first.troubles, **second.troubles}
        )

    def _set_aside(self, task_id: int, words: str) -> ExpiryResult:
        if len(self._aside) < ASIDE_MAX:
            self._aside[task_id] = self._access.env.clock.monotonic() + ASIDE_S
        return ExpiryResult(0, troubles={task_id: words})

    # -- rescue -----------------------------------------------------------------------------------

    async def rescue(self, lease_guid: UUID, *, stale: bool, remote: bool = False) -> RescueResult:
        flags = (flag_of(stale), flag_of(remote))
        try:
            count = await self._rescue(flags, lease_guid, None)
        except StatementRefused as exc:
            if not is_of_row(exc.sqlstate):
                raise
            count = await self._rescue_each(flags, lease_guid)
        held = [number_of(row["id"]) for row in await self._rows("stuck", *flags)]
        rows = await self._rows("others", array_of(self._access.pids), array_of(held))
        others = {GroupKey(text_of(row["group"])): number_of(row["count"]) for row in rows}
        return RescueResult(count, others, frozenset(held))

    async def _rescue(self, flags: tuple[bytes, bytes], lease_guid: UUID, ids: bytes | None) -> int:
        return len(await self._rows("rescue", *flags, as_bytes(lease_guid), ids))

    async def _rescue_each(self, flags: tuple[bytes, bytes], lease_guid: UUID) -> int:
        count = 0
        for row in await self._rows("stuck", *flags):
            try:
                count += await self._rescue(flags, lease_guid, array_of([number_of(row["id"])]))
            except StatementRefused as exc:
                if not is_of_row(exc.sqlstate):
                    raise
        return count


def awaited_of(row: Row) -> AwaitedRow | None:
    """A row that waits for its first time, if it has one; else its `cron` is the task's error."""
    if row["cron"] is None or row["plan_us"] is None:
        return None
    first = next_cron_of(text_of(row["cron"]), moment_of(row["plan_us"]))
    return None if first is None else AwaitedRow(number_of(row["id"]), first)


def _next_of(row: Row) -> bytes:
    """When the `cron` of an expired row has it come again, for an array."""
    following = next_cron_of(text_or_none(row["cron"]), moment_of(row["now_us"]))
    return b"NULL" if following is None else b'"' + following + b'"'
