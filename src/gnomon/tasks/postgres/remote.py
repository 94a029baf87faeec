"""A session on another server: performs there, and records here."""

from __future__ import annotations

from uuid import UUID

from gnomon.contracts.task_table import TaskFinishResult
from gnomon.model.errors import Unavailable
from gnomon.model.task import GroupKey, Outcome, RowRefused, SessionLost, Task
from gnomon.model.task.text import ErrorFields, plain_error
from gnomon.tasks.postgres.control import NO_PARAMS, StatementRefused
from gnomon.tasks.postgres.execution import error_of, outcome_of, perform_input
from gnomon.tasks.postgres.row_upkeep import is_lasting
from gnomon.tasks.postgres.rows import as_bytes, taken_from
from gnomon.tasks.postgres.session import cron_problem, end_transaction, lost_error
from gnomon.tasks.postgres.table_access import (
    AttemptEnd,
    CurrentTask,
    FinishOutcome,
    NextTask,
    TableAccess,
)
from gnomon.tasks.postgres.wire import Wire, WireLost, is_error


class RemoteSession:
    """One connection to where a group's `remote` leads."""

    def __init__(self, access: TableAccess, wire: Wire, key: GroupKey) -> None:
        self._access = access
        self._wire = wire
        self._key = key
        self._current = CurrentTask(access.env.clock)

    @property
    def pid(self) -> int:
        return self._wire.pid

    async def take(self, task_id: int, *, lease_guid: UUID) -> Task | None:
        if not self._wire.is_open:
            raise SessionLost(plain_error("the session has ended"))
        step = self._access.take_step(NextTask(task_id, self.pid, lease_guid), alone=True)
        try:
            results = await self._access.insist([step])
        except StatementRefused as exc:
            if is_lasting(exc.sqlstate):
                raise RowRefused(plain_error(exc.words)) from None
            raise SessionLost(plain_error(exc.words)) from None
        except Unavailable as exc:
            raise SessionLost(plain_error(str(exc))) from None
        return self._current.note(taken_from(results[0], task_id))

    async def perform(self, task: Task) -> Outcome:
        """Whatever becomes of the connection is the task's own end: its server is not ours."""
        taken = self._current.of(task)
        problem = cron_problem(taken)
        if problem is not None:
            return Outcome("", problem)
        try:
            await self._tell(task)
            ended = await perform_input(
                self._wire, taken, shares=False, bytes_max=self._access.result_bytes_max
            )
            if ended.is_farewell:
                self._wire.close()
            if self._wire.is_open:
                error = await end_transaction(self._wire, keeps=ended.error is None)
                if error is not None and ended.error is None:
                    ended = ended._replace(error=error)
        except WireLost as exc:
            self._wire.close()
            return Outcome("", lost_error(taken, str(exc)))
        return outcome_of(taken, ended)

    async def _tell(self, task: Task) -> None:
        """What the task can ask about itself."""
        name = self._access.application_name(self._key.group)
        params = (as_bytes(task.id), as_bytes(self._key.group), as_bytes(name))
        await self._wire.pipeline([(self._access.statements["set_id"], params)])

    async def finish(
        self, task: Task, outcome: Outcome, *, then: int | None = None, lease_guid: UUID
    ) -> TaskFinishResult:
        taken = self._current.of(task)
        following = None
        if await self._reset(task) and then is not None:
            following = NextTask(then, self.pid, lease_guid)
        end = AttemptEnd(taken, outcome, self.pid, self._current.now(task), shares=False)
        try:
            recorded = await self._access.finish_apart(end, following)
        except StatementRefused as exc:
            recorded = await self._finish_refused(end, exc)
        except Unavailable as exc:
            raise SessionLost(plain_error(str(exc))) from None
        return TaskFinishResult(recorded.is_recorded, self._current.note(recorded.next))

    async def _finish_refused(self, end: AttemptEnd, refused: StatementRefused) -> FinishOutcome:
        """The end could not be written as it was: then the reason is the end, without a repeat,
        which may be what cannot be written."""
        fields = ErrorFields(message=refused.words, sqlstate=refused.sqlstate)
        outcome = Outcome("", error_of(end.taken, fields))
        end = end._replace(outcome=outcome, is_last=True)
        try:
            return await self._access.finish_apart(end, None)
        except (Unavailable, StatementRefused) as exc:
            raise SessionLost(plain_error(str(exc))) from None

    async def _reset(self, task: Task) -> bool:
        """Remove what the task left behind; whether the session can be used again."""
        if not self._wire.is_open:
            return False
        if task.save:
            return True
        try:
            (result,) = await self._wire.pipeline([(self._access.statements["discard"], NO_PARAMS)])
        except WireLost:
            return False
        self._wire.forget_prepared()
        if is_error(result):
            self._wire.close()
        return self._wire.is_open

    async def cancel(self) -> None:
        await self._wire.cancel()

    async def close(self) -> None:
        self._wire.close()
