"""Recording results: fenced by the attempt id, whoever holds the shard now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias
from uuid import UUID

from gnomon.contracts.store import FinishRequest, Recorded
from gnomon.model.action import State
from gnomon.model.errors import StoreUnavailable
from gnomon.stores._attempts import UNSERVED, finished_attempt
from gnomon.stores.postgres.connection import Database, Row, Session, read_now
from gnomon.stores.postgres.in_place import move_begun
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.results import (
    ResultRow,
    continue_actions,
    end_actions,
    hold,
    log_attempts,
)
from gnomon.stores.postgres.rows import encode_attempt
from gnomon.stores.postgres.several import at_once

_RecordedById: TypeAlias = dict[UUID, Recorded]
_Part: TypeAlias = tuple[list[FinishRequest], Only]  # and the last arguments of its statements

HELD_FOR = timedelta(seconds=30)  # several times the recorder's longest pause


async def finish_all(
    database: Database, finishes: Sequence[FinishRequest], owner: str
) -> list[Recorded]:
    """Record results, in one transaction or one a shard. Where a shard's node is away its results
    are held, and the others need not wait for it. Errors: StoreUnavailable, if none was recorded.
    """

    async def record_part(part: _Part) -> _RecordedById:
        chosen, only = part
        unique = {finish.attempt_id: finish for finish in chosen}
        recorded: _RecordedById = {}
        if not only and all(one.attempt_no == 1 and is_plain(one) for one in chosen):
            for batch in one_per_guid(unique.values()):
                recorded |= await AttemptFinisher(database, owner, only).record_at_once(batch)
            if len(recorded) == len(unique):
                return recorded
        left = [one for one in unique.values() if one.attempt_id not in recorded]
        async with database.transaction("finish") as session:
            finisher = AttemptFinisher(session, owner, only)
            for batch in one_per_guid(left):
                recorded |= await finisher.record(batch)
        return recorded

    parts = list(database.split(finishes, lambda finish: finish.shard))
    answers = await at_once(parts, record_part)
    failures = [answer for answer in answers if isinstance(answer, StoreUnavailable)]
    if failures and len(failures) == len(answers):
        raise failures[0]
    recorded: _RecordedById = {}
    for (chosen, _), answer in zip(parts, answers, strict=True):
        recorded |= (
            dict.fromkeys((one.attempt_id for one in chosen), Recorded.HELD)
            if isinstance(answer, StoreUnavailable)
            else answer
        )
    return in_order(finishes, recorded)


def one_per_guid(finishes: Iterable[FinishRequest]) -> Iterator[list[FinishRequest]]:
    """Batches sorted by guid. Two results of one generation, the older of which must be late, go
    into different ones: the arrays of a statement have one place per guid."""
    left = list(finishes)
    while left:
        unique: dict[UUID, FinishRequest] = {}
        others = [one for one in left if unique.setdefault(one.guid, one) is not one]
        yield [unique[guid] for guid in sorted(unique)]
        left = others


def in_order(finishes: Sequence[FinishRequest], recorded: dict[UUID, Recorded]) -> list[Recorded]:
    """One answer per result; a result that was given twice is a repeat of itself."""
    if len(recorded) == len(finishes):
        return [recorded[one.attempt_id] for one in finishes]
    answers = []
    for one in finishes:
        answers.append(recorded[one.attempt_id])
        if recorded[one.attempt_id] is Recorded.APPLIED:
            recorded[one.attempt_id] = Recorded.REPEATED
    return answers


def is_plain(one: FinishRequest) -> bool:
    """A success that ends its action with nothing to tell but an answer: no counters to mend."""
    verdict = one.verdict
    return (
        verdict.state is State.DONE
        and one.outcome == "succeeded"
        and one.error is None
        and verdict.reason is None
        and verdict.succeeded == 1
        and not (
            verdict.failed
            or verdict.interrupted
            or verdict.consecutive_failures
            or verdict.consecutive_interruptions
            or verdict.occurrence_failures
        )
    )


class AttemptFinisher:
    """Records results in one transaction, each by the statement that fits it."""

    def __init__(self, session: Session, owner: str, shards: Only) -> None:
        self._session = session
        self._owner = owner
        self._shards = shards  # not empty: one shard only, by statements that Citus can run
        self._now: datetime | None = None

    async def record_at_once(self, finishes: Sequence[FinishRequest]) -> _RecordedById:
        """Record first attempts of plain success, by one statement that is the whole transaction:
        two journeys to the server less. Only what was applied; the rest needs `record`."""
        applied = await self._finish_plain(finishes, swept_too=False)
        return dict.fromkeys(applied, Recorded.APPLIED)

    async def record(self, finishes: Sequence[FinishRequest]) -> _RecordedById:
        """Record results, of no two the same generation; by attempt id, what became of each."""
        plain: list[FinishRequest] = []
        ending: list[FinishRequest] = []
        continuing: list[FinishRequest] = []
        unserved: list[FinishRequest] = []
        for one in finishes:
            if one.outcome == UNSERVED:
                unserved.append(one)
            elif not one.verdict.state.is_terminal:
                continuing.append(one)
            elif is_plain(one):
                plain.append(one)
            else:
                ending.append(one)
        applied = await self._finish_plain(plain) if plain else set()
        others = [one.guid for one in (*ending, *continuing, *unserved)]
        await move_begun(self._session, others, self._shards)
        if self._shards:  # there one statement locks what ends and takes its row: see `finish_end`
            others = [one.guid for one in (*continuing, *unserved)]
        free = await hold(self._session, others, self._shards)
        if not self._shards:
            ending = [one for one in ending if one.guid in free]
        continuing = [one for one in continuing if one.guid in free]
        if ending:
            take = "finish_end" if self._shards else "finish_take"
            applied |= await self._finish_ending(ending, take)
        if continuing:
            applied |= await self._finish_continuing(continuing)
        recorded = await self._hand_back([one for one in unserved if one.guid in free])
        recorded |= dict.fromkeys(applied, Recorded.APPLIED)
        refused = [one for one in finishes if one.attempt_id not in recorded]
        if refused:
            recorded |= await self._refused(refused)
        return recorded

    async def _finish_plain(
        self, finishes: Sequence[FinishRequest], *, swept_too: bool = True
    ) -> set[UUID]:
        """Record plain successes, each with the end of its action, in one statement; what was
        applied. `swept_too`: also of attempts that were counted as interrupted."""
        if self._shards:  # where an INSERT stands alone, there is no such statement
            return await self._finish_ending(finishes, "finish_end_plain")
        told: Sequence[str | None] = []  # as good as nothing for each, and spares sending it
        if any(one.answer is not None for one in finishes):
            now = await self._read_now()
            told = [self._told(one, now) for one in finishes]
        (answer,) = await self._session.fetch("finish_plain", *_keys(finishes), told, swept_too)
        is_all = answer["recorded_count"] == len(finishes)
        applied = {one.attempt_id for one in finishes} if is_all else set(answer["recorded"] or ())
        swept = set(answer["swept"] or ())
        # The first attempt of a one-shot is told by its finished row; the log is for the others.
        logged = [
            one
            for one in finishes
            if (one.attempt_no > 1 or one.attempt_id in swept) and one.attempt_id in applied
        ]
        if logged:
            now = await self._read_now()
            results = [self._result(one, now) for one in logged]
            await log_attempts(self._session, results, now, self._shards)
        return applied

    def _told(self, one: FinishRequest, now: datetime) -> str | None:
        """The attempt as JSON, if its finished row does not say it all."""
        if one.answer is None:
            return None
        return encode_attempt(finished_attempt(one, self._owner, now))

    async def _finish_ending(self, finishes: Sequence[FinishRequest], take: str) -> set[UUID]:
        """Record results that end their actions: the queue row goes, and the action moves to the
        finished ones; what was applied."""
        rows = await self._session.fetch(take, *_keys(finishes), *self._shards)
        if self._shards and rows:
            self._now = self._now or rows[0]["now"]
        results, now = await self._accepted(finishes, _swept_by_attempt(rows))
        await end_actions(self._session, results, now, self._shards)
        logged = [result for result in results if not _is_told_by_its_row(result)]
        await log_attempts(self._session, logged, now, self._shards)
        return _attempt_ids(results)

    async def _finish_continuing(self, finishes: Sequence[FinishRequest]) -> set[UUID]:
        """Record results after which the action goes on, with a retry or its next occurrence: the
        queue row stays and is due then; what was applied."""
        times = [one.verdict.scheduled_at for one in finishes]
        rows = await self._session.fetch("finish_keep", *_keys(finishes), times, *self._shards)
        swept = [row["guid"] for row in rows if row["swept"]]
        if swept:
            await self._session.fetch("finish_clear_swept", swept, *self._shards)
        results, now = await self._accepted(finishes, _swept_by_attempt(rows))
        await continue_actions(self._session, results, self._shards)
        await log_attempts(self._session, results, now, self._shards)
        return _attempt_ids(results)

    async def _hand_back(self, finishes: Sequence[FinishRequest]) -> dict[UUID, Recorded]:
        """Take back the begin of attempts that are not served here; what became of each. One that
        was swept stays an interruption: whoever has a row of it, nothing is left to be tried."""
        if not finishes:
            return {}
        times = [one.verdict.scheduled_at for one in finishes]
        needs = [one.need for one in finishes]
        rows = await self._session.fetch(
            "finish_hand_back", *_keys(finishes), times, needs, *self._shards
        )
        taken_back = {row["attempt_id"] for row in rows}
        left = [one for one in finishes if one.attempt_id not in taken_back]
        recorded = await self._fenced_off(left) if left else {}
        return recorded | dict.fromkeys(taken_back, Recorded.APPLIED)

    async def _refused(self, finishes: Sequence[FinishRequest]) -> dict[UUID, Recorded]:
        """What became of the results that were not applied: somebody holds the action, or the fence
        refused them."""
        await move_begun(self._session, [one.guid for one in finishes], self._shards)
        rows = await self._session.fetch("finish_held", *_keys(finishes), HELD_FOR, *self._shards)
        held = {row["attempt_id"] for row in rows}
        left = [one for one in finishes if one.attempt_id not in held]
        recorded = await self._fenced_off(left) if left else {}
        return recorded | dict.fromkeys(held, Recorded.HELD)

    async def _fenced_off(self, finishes: Sequence[FinishRequest]) -> dict[UUID, Recorded]:
        """What became of results whose attempt the row does not carry: recorded before, or too
        late. The late ones are written into the attempt log, and nowhere else."""
        rows = await self._session.fetch(
            "finish_recorded",
            *_keys(finishes),
            [one.began_at for one in finishes],
            [one.outcome for one in finishes],
            [one.shard for one in finishes],
            [one.id for one in finishes],
            *self._shards,
        )
        repeated = {row["attempt_id"] for row in rows}
        late = [one for one in finishes if one.attempt_id not in repeated]
        if late:
            now = await self._read_now()
            results = [
                self._result(one, now, outcome=f"late_{one.outcome}")
                for one in late
                if one.outcome != UNSERVED  # which was no attempt
            ]
            await log_attempts(self._session, results, now, self._shards)
            await self._session.fetch(
                "finish_delete_stale", [one.guid for one in late], *self._shards
            )
            shards = [one.shard for one in late]
            drop = "finish_drop_begun" if self._shards else "finish_delete_begun"
            await self._session.fetch(drop, shards, *_keys(late), *self._shards)
        return {
            one.attempt_id: Recorded.REPEATED if one.attempt_id in repeated else Recorded.LATE
            for one in finishes
        }

    async def _accepted(
        self, finishes: Sequence[FinishRequest], swept: dict[UUID, bool]
    ) -> tuple[list[ResultRow], datetime]:
        """The results whose attempt passed the fence, as rows to write, and the database's present.
        `swept`: those attempts, and whether each was counted as interrupted before."""
        now = await self._read_now()
        results = [
            self._result(one, now, taken_back=int(swept[one.attempt_id]))
            for one in finishes
            if one.attempt_id in swept
        ]
        return results, now

    async def _read_now(self) -> datetime:
        """The database's present, the same for all results of this transaction."""
        if self._now is None:
            self._now = await read_now(self._session)
        return self._now

    def _result(
        self, one: FinishRequest, now: datetime, *, taken_back: int = 0, outcome: str | None = None
    ) -> ResultRow:
        """A result as a row to write. `taken_back`: interruptions that were counted for this
        attempt before it was known how it ended."""
        attempt = finished_attempt(one, self._owner, now, outcome=outcome)
        return ResultRow(
            one.shard, one.id, one.guid, one.verdict, attempt, is_final=True, taken_back=taken_back
        )


def _is_told_by_its_row(result: ResultRow) -> bool:
    """The first attempt of a one-shot succeeded: its finished row says it all."""
    attempt, verdict = result.attempt, result.verdict
    return (
        attempt is not None
        and attempt.attempt_no == 1
        and attempt.outcome == "succeeded"
        and verdict.state is State.DONE
        and verdict.reason is None
        and not result.taken_back
    )


def _keys(finishes: Sequence[FinishRequest]) -> tuple[list[object], ...]:
    """Guids and attempt ids as arrays: the fence of every statement here."""
    return (
        [one.guid for one in finishes],
        [one.attempt_id for one in finishes],
    )


def _swept_by_attempt(rows: Iterable[Row]) -> dict[UUID, bool]:
    """The attempts that passed the fence, and whether each was swept before."""
    return {row["attempt_id"]: row["swept"] for row in rows}


def _attempt_ids(results: Sequence[ResultRow]) -> set[UUID]:
    """Whose results these are."""
    return {result.attempt.attempt_id for result in results if result.attempt is not None}
