"""A session on the table's own server: takes, performs and records on one connection.

One round trip a task, where the next input is foreseen: the end of a task, the commit, the next
task and its input. Else two: the input; then its end and the next task. Whatever a task leaves
behind in its session is removed in between, unless it says `save`; our own statements stay prepared
as long as nothing can have disturbed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from gnomon.contracts.task_table import TaskFinishResult
from gnomon.model.errors import InvalidSpec, Unavailable
from gnomon.model.task import GroupKey, Outcome, RowRefused, SessionLost, Task
from gnomon.model.task.repeat import read_cron
from gnomon.model.task.text import ErrorFields, error_text, plain_error
from gnomon.tasks.postgres.control import (
    COMMIT,
    NO_PARAMS,
    PLANS_FOR_S,
    ROLLBACK,
    StatementRefused,
    rows_of,
)
from gnomon.tasks.postgres.execution import (
    CHUNK_ROWS,
    InputResult,
    error_of,
    outcome_of,
    perform_input,
    shared_input_steps,
)
from gnomon.tasks.postgres.group_forecast import ForeseenTask
from gnomon.tasks.postgres.row_upkeep import is_lasting, is_of_row
from gnomon.tasks.postgres.rows import (
    TakenTask,
    as_bytes,
    is_large,
    is_true,
    pause,
    taken_as_foreseen,
    taken_from,
    text_of,
)
from gnomon.tasks.postgres.statement import shares_transaction
from gnomon.tasks.postgres.table_access import (
    NOT_RECORDED,
    AttemptEnd,
    CurrentTask,
    FinishOutcome,
    NextTask,
    TableAccess,
    is_taken_over,
    recorded_by,
)
from gnomon.tasks.postgres.wire import (
    Result,
    Status,
    Step,
    TransactionStatus,
    Wire,
    WireLost,
    error_fields,
    is_error,
)

CLEAN = ("reset", "reset_role")  # what a task has set in its session
OWN = ("own_role", "own_path")  # for one transaction, whatever the session has
LOGIN = "session_authorization"
READ_ONLY_STATE = "25006"
# Through nobody's fault: the same end may be recorded at a second try.
PASSING_STATES = frozenset({"40001", "40P01", "55P03", "57014"})
SUSPECTS_MAX = 1_000


class LocalSession:
    """One connection of the table's login."""

    def __init__(self, access: TableAccess, wire: Wire, key: GroupKey) -> None:
        self._access = access
        self._wire = wire
        self._pid = wire.pid
        self._login = wire.parameter(LOGIN)
        self._key = key
        self._name = access.application_name(key.group).encode()
        self._clock = access.env.clock
        self._current = CurrentTask(access.env.clock)
        self._planned_at = self._clock.monotonic()
        self._is_light = True  # the input was one that leaves our prepared statements alone
        self._is_saved = False  # it has settings of a task that saved them
        self._is_performing = False
        self._is_untidy = False  # a task has ended on it, and what it left behind is still there
        self._is_ahead = False  # the input of the task that was taken is on its way already
        # What tidies up behind a task before it is committed: what it has set, and a look at what
        # else it may have left.
        look = (access.statements["look_behind"], (self._login.encode(),))
        self._behind = [*self._named(["reset"]), look, *self._named(["reset_role", "unlisten"])]
        self._between = self._named(["commit_and_begin", "discard_sequences"])
        access.pids.add(self._pid)

    @property
    def pid(self) -> int:
        return self._pid

    # -- take -------------------------------------------------------------------------------------

    async def take(self, task_id: int, *, lease_guid: UUID) -> Task | None:
        if self._is_untidy:
            await self._discard()
            self._is_untidy = False
        following = self._following(task_id, lease_guid)
        step = self._access.take_step(following, alone=True)
        before = ["begin", *OWN] if self._is_saved else []
        after = ["commit"] if self._is_saved else []
        results = await self._pipeline([*self._named(before), step, *self._named(after)])
        failed = _first_error(results)
        if failed is not None:
            raise self._not_taken(error_fields(failed))
        taken = taken_from(results[len(before)], task_id)
        self._access.learn_look(taken)
        return self._current.note(taken)

    def _not_taken(self, fields: ErrorFields) -> Exception:
        """The error to raise if the server refused a take: RowRefused, if it would refuse this row
        again; else the session is lost."""
        broken = self._broken(error_text(fields))
        return RowRefused(str(broken)) if is_lasting(fields.sqlstate) else broken

    # -- perform ----------------------------------------------------------------------------------

    async def perform(self, task: Task) -> Outcome:
        taken = self._current.of(task)
        problem = cron_problem(taken)
        if problem is not None:
            return Outcome("", problem)
        if is_large(task.input):
            await pause()
        wire = self._wire
        is_sent, self._is_ahead = self._is_ahead, False
        shares = is_sent or self._shares(task.input)
        self._is_performing = True
        try:
            ended = await perform_input(
                wire,
                taken,
                shares=shares,
                bytes_max=self._access.result_bytes_max,
                is_sent=is_sent,
            )
            if ended.is_farewell:
                assert ended.error is not None
                raise self._broken(error_of(taken, ended.error))
            error = await self._end_transaction(ended, shares=shares)
        except WireLost as exc:
            raise self._broken(lost_error(taken, str(exc))) from None
        self._is_performing = not wire.is_open
        self._is_light = shares and wire.is_open and wire.parameter(LOGIN) == self._login
        if error is not None and ended.error is None:
            ended = ended._replace(error=error)
        return outcome_of(taken, ended)

    def _shares(self, task_input: str) -> bool:
        """Whether an input may be performed in one transaction with the writing of its end."""
        plain_strings = self._wire.parameter("standard_conforming_strings") != "off"
        return shares_transaction(task_input, plain_strings=plain_strings)

    async def _end_transaction(self, ended: InputResult, *, shares: bool) -> ErrorFields | None:
        """Commit or roll back what an input left open; what shares its transaction with its end and
        went well stays open for that. The commit's error, if it has one."""
        if not self._wire.is_open or (shares and ended.error is None):
            return None
        return await end_transaction(self._wire, keeps=ended.error is None)

    # -- finish -----------------------------------------------------------------------------------

    async def finish(
        self, task: Task, outcome: Outcome, *, then: int | None = None, lease_guid: UUID
    ) -> TaskFinishResult:
        taken = self._current.of(task)
        if not self._wire.is_open:
            return await self._finish_apart(taken, outcome)
        is_in_transaction = self._wire.transaction == TransactionStatus.INTRANS
        end = AttemptEnd(taken, outcome, self._pid, self._current.now(task), is_in_transaction)
        if then is None or then in self._access.suspects:
            following = None
        else:
            following = self._following(then, lease_guid, self._foreseen(end, then))
        if following is None or following.foreseen is None:
            recorded = await self._record(end, following)
        else:
            recorded = await self._record_ahead(end, following)
        if isinstance(recorded, ErrorFields):
            recorded = await self._record_again(end, recorded, following)
        elif following is not None and following.foreseen is not None and recorded.next is None:
            changed = await self._take_changed(following)
            return TaskFinishResult(recorded.is_recorded, changed)
        return TaskFinishResult(recorded.is_recorded, self._current.note(recorded.next))

    async def _take_changed(self, following: NextTask) -> Task | None:
        """Take a row by itself that is not as it was foreseen: perhaps it may still be had. Errors:
        SessionLost."""
        try:
            return await self.take(following.id, lease_guid=following.lease_guid)
        except RowRefused as exc:
            raise SessionLost(str(exc)) from None

    def _following(
        self, task_id: int, lease_guid: UUID, foreseen: ForeseenTask | None = None
    ) -> NextTask:
        """The row that this session is to take next."""
        return NextTask(task_id, self._pid, lease_guid, self._name, foreseen)

    def _foreseen(self, end: AttemptEnd, then: int) -> ForeseenTask | None:
        """The task that follows, if its input may be sent along before the server has said that the
        row is ours."""
        foreseen = self._access.foreseen.take(self._key, then)
        if foreseen is None or not (end.is_plain and end.shares and self._is_light):
            return None
        if end.taken.task.save or self._is_time_to_plan():
            return None
        if foreseen.look not in self._access.looks or not self._shares(text_of(foreseen.input)):
            return None
        return foreseen

    async def _record_ahead(
        self, end: AttemptEnd, following: NextTask
    ) -> FinishOutcome | ErrorFields:
        """As `_record`, and the next task's input goes in the same round trip."""
        known, behind = self._access.statements, self._behind
        before = [] if self._wire.is_held else behind
        finish_at = self._wire.unread_count + len(before)
        assert following.foreseen is not None
        like = self._access.looks[following.foreseen.look]
        steps = [
            *before,
            *await self._access.finish_steps(end, following),
            *self._between,
            (known["go_ahead"], (b"%d" % following.id,)),
        ]
        results = await self._send_ahead(steps, following, [] if like.save else behind)
        failed = None if self._is_ahead else _first_error(results)
        if failed is not None and failed is not results[-1]:
            return await self._after_refusal(error_fields(failed))
        self._is_saved = False
        recorded = _recorded_ahead(results[finish_at], end, following, like)
        if failed is not None:  # recorded and taken, but the input was not to be performed yet
            await self._pipeline(self._named(["rollback"]))
            await self._discard(recorded.next)
        return recorded

    async def _send_ahead(
        self, steps: list[Step], following: NextTask, behind: list[Step]
    ) -> list[Result]:
        """Send these statements, the next input behind them, and what is to be done when it went
        well (`behind`), for which nobody waits. The results of the first come while the input is
        performed already; if one of them failed, it is not performed."""
        assert following.foreseen is not None
        wire, sent = self._wire, following.foreseen.input
        count = wire.unread_count + len(steps)
        parts = [steps, shared_input_steps(sent)]
        if behind:
            parts.append(behind)
        try:
            await wire.send_pipeline(*parts, is_held=bool(behind))
            results = await wire.results(count)
            self._is_ahead = self._is_performing = results[-1].status == Status.TUPLES_OK
            if self._is_ahead:
                wire.chunked(CHUNK_ROWS)  # now: when its first row is there, it is too late
            else:
                await wire.synced()
        except WireLost as exc:
            raise self._broken(plain_error("!PQconsumeInput", str(exc))) from None
        return results

    async def _record(
        self, end: AttemptEnd, following: NextTask | None
    ) -> FinishOutcome | ErrorFields:
        """Write how a task ended and take the one that follows; the server's error, if it refused
        that."""
        task = end.taken.task
        is_another = end.shares and not self._is_light  # it is in a transaction of another login's
        if not self._is_light and not is_another:
            await self._clear(task)
        before = [] if self._wire.is_held else self._steps_before(task, shares=end.shares)
        if is_another:
            before = [*self._named(["reset_login"]), *before]
        finish_at = self._wire.unread_count + len(before)
        steps = [*before, *await self._access.finish_steps(end, following)]
        commit_at = finish_at + len(steps) - len(before)
        steps += self._steps_after(task, is_last=following is None)
        results = await self._pipeline(steps)
        failed = _first_error(results)
        if failed is not None:
            return await self._after_refusal(error_fields(failed))
        self._is_saved = task.save
        recorded = recorded_by(results[finish_at:], end, following)
        self._access.learn_look(recorded.next)
        has_looked = following is not None and not task.save
        is_dirty = has_looked and _is_dirty(results[commit_at + 1])
        if is_dirty or (is_another and not task.save):
            await self._discard(recorded.next)
        return recorded

    async def _clear(self, task: Task) -> None:
        """Make the session fit for our statements after an input that may have done anything to
        it."""
        if task.save:
            self._wire.forget_prepared()
        else:
            await self._discard()

    def _steps_before(self, task: Task, *, shares: bool) -> list[Step]:
        """What comes before the end is written: the task's settings go, or, if it keeps them
        (`save`), ours count for one transaction."""
        names = ["rollback"] if self._wire.transaction == TransactionStatus.INERROR else []
        if task.save:
            names += OWN if shares else ["begin", *OWN]
        else:
            names += CLEAN if shares else [*CLEAN, "begin"]
        return self._named(names)

    def _steps_after(self, task: Task, *, is_last: bool) -> list[Step]:
        """The commit, and what tidies up behind the task. Where no task follows, the session is
        likely to end: it is tidied up if one does."""
        self._is_untidy = is_last and not task.save
        names = ["commit"] if is_last or task.save else ["commit", "tidy", "discard_sequences"]
        if self._is_time_to_plan():
            self._planned_at = self._clock.monotonic()
            names.append("discard_plans")
        return self._named(names)

    def _is_time_to_plan(self) -> bool:
        """Whether the server's plans for our statements are so old that the table may have outgrown
        them."""
        return self._clock.monotonic() - self._planned_at > PLANS_FOR_S

    def _named(self, names: Sequence[str]) -> list[Step]:
        """Statements without parameters, as steps of a pipeline."""
        return [(self._access.statements[name], NO_PARAMS) for name in names]

    async def _after_refusal(self, fields: ErrorFields) -> FinishOutcome | ErrorFields:
        """Roll back after the server refused to record an end; its error, or that the row is
        another attempt's by now."""
        if self._wire.transaction != TransactionStatus.IDLE:
            await self._pipeline([(self._access.statements["rollback"], NO_PARAMS)])
        if is_taken_over(fields.sqlstate, fields.message):
            await self._discard()
            return NOT_RECORDED
        return fields

    async def _record_again(
        self, end: AttemptEnd, fields: ErrorFields, following: NextTask | None
    ) -> FinishOutcome:
        """The end could not be recorded, and what shared its transaction is undone with it: then
        the reason is the end. An input that could not write has lost nothing."""
        taken, outcome = end.taken, end.outcome
        is_undone = self._is_light and outcome.error is None
        if following is not None and is_of_row(fields.sqlstate):
            self._suspect(following.id)
            if is_undone:  # perhaps through the other row's fault: it is performed anew, alone
                raise self._broken(error_of(taken, fields))
            following = None
        if following is not None:
            following = following._replace(foreseen=None)
        is_same = fields.sqlstate == READ_ONLY_STATE or (
            not is_undone and fields.sqlstate in PASSING_STATES
        )
        await self._discard()
        self._is_light = True
        again = outcome if is_same else Outcome("", error_of(taken, fields))
        end = end._replace(outcome=again, shares=False)
        recorded = await self._record(end, following)
        if isinstance(recorded, ErrorFields):
            recorded = await self._record_last(end, recorded)
        return recorded

    async def _record_last(self, end: AttemptEnd, fields: ErrorFields) -> FinishOutcome:
        """Record an end without the next repeat: perhaps that is what cannot be written."""
        outcome = Outcome("", error_of(end.taken, fields))
        if self._wire.transaction != TransactionStatus.IDLE:
            await self._pipeline(self._named(["rollback"]))
        recorded = await self._record(end._replace(outcome=outcome, is_last=True), None)
        if isinstance(recorded, ErrorFields):
            raise self._broken(error_of(end.taken, recorded))
        return recorded

    def _suspect(self, task_id: int) -> None:
        """Note a row that may have spoilt the record of the one before it: it is not taken together
        with another's end again."""
        suspects = self._access.suspects
        if len(suspects) >= SUSPECTS_MAX:
            suspects.clear()
        suspects.add(task_id)

    async def _finish_apart(self, taken: TakenTask, outcome: Outcome) -> TaskFinishResult:
        """Record an end over another connection, for this session's is gone."""
        if self._is_performing:
            await self._access.terminate(self._pid)
        end = AttemptEnd(taken, outcome, self._pid, self._current.now(taken.task), shares=False)
        try:
            recorded = await self._access.finish_apart(end, None)
        except (Unavailable, StatementRefused) as exc:
            raise self._broken(plain_error(str(exc))) from None
        self._current.note(None)
        return TaskFinishResult(recorded.is_recorded, None)

    async def _discard(self, following: TakenTask | None = None) -> None:
        """Remove all that a session can have, our prepared statements too; then tell it again of
        the task that it has taken (`following`)."""
        known = self._access.statements
        (result,) = await self._pipeline([(known["discard"], NO_PARAMS)])
        if is_error(result):
            raise self._broken(error_text(error_fields(result)))
        self._wire.forget_prepared()
        if following is not None:
            task = following.task
            params = (as_bytes(task.id), as_bytes(task.key.group), self._name)
            await self._pipeline([(known["set_id"], params)])

    # -- ending it --------------------------------------------------------------------------------

    async def cancel(self) -> None:
        await self._wire.cancel()

    async def close(self) -> None:
        if self._is_performing:
            await self._access.terminate(self._pid)
        self._wire.close()
        self._access.pids.discard(self._pid)

    # -- parts ------------------------------------------------------------------------------------

    async def _pipeline(self, steps: list[Step]) -> list[Result]:
        """Perform these in one round trip. Errors: SessionLost."""
        if not self._wire.is_open:
            raise SessionLost(plain_error("the session has ended"))
        try:
            return await self._wire.pipeline(steps)
        except WireLost as exc:
            raise self._broken(plain_error("!PQconsumeInput", str(exc))) from None

    def _broken(self, words: str) -> SessionLost:
        """Close the connection; the error to raise for it."""
        self._is_performing = False
        self._wire.close()
        return SessionLost(words)


def _recorded_ahead(
    result: Result, end: AttemptEnd, following: NextTask, like: Task
) -> FinishOutcome:
    """What became of `finish_ahead`."""
    assert following.foreseen is not None
    taken = taken_as_foreseen(result, following.id, following.foreseen, like=like, before=end.taken)
    return FinishOutcome(result.ntuples > (taken is not None), taken)


def _first_error(results: Sequence[Result]) -> Result | None:
    """The first result that is an error."""
    return next((result for result in results if is_error(result)), None)


def _is_dirty(result: Result) -> bool:
    """Whether a task has left something behind in its session, as the statement `tidy` says."""
    return any(is_true(row["is_dirty"]) for row in rows_of(result))


def cron_problem(taken: TakenTask) -> str | None:
    """The error of a task whose `cron` cannot be read: known before it is performed."""
    try:
        read_cron(taken.cron)
    except InvalidSpec as exc:
        return plain_error(f"cron {exc.problem}", f"cron is {taken.cron}.")
    return None


def lost_error(taken: TakenTask, words: str) -> str:
    """The error of a task whose connection broke, in the original's words."""
    return error_of(taken, ErrorFields(message="!PQconsumeInput", detail=words))


async def end_transaction(wire: Wire, *, keeps: bool = True) -> ErrorFields | None:
    """What an input leaves open is committed, as the original does, or undone after an error.

    The error of that commit, if it has one. Errors: WireLost.
    """
    if wire.transaction == TransactionStatus.IDLE:
        return None
    keeps = keeps and wire.transaction == TransactionStatus.INTRANS
    await wire.send((COMMIT if keeps else ROLLBACK).sql)
    failed: ErrorFields | None = None
    while (result := await wire.next_result()) is not None:
        if failed is None and is_error(result):
            failed = error_fields(result)
    return failed
