"""What is written about tasks: every change of a row, on a connection that has begun to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from gnomon.contracts.clock import Clock
from gnomon.contracts.task_table import ExpiryResult, GroupWindow, PollMark, TableLock, TaskPoll
from gnomon.model.task import GroupKey, Outcome, Task
from gnomon.model.task.interval import Interval
from gnomon.model.task.repeat import Ending, next_plan, paused_plan, settle
from gnomon.model.task.text import plain_error
from gnomon.tasks.sqlite.queries import queries_for, with_columns
from gnomon.tasks.sqlite.rows import (
    InvalidColumn,
    LockRow,
    RepetitionRow,
    TaskRow,
    WindowRow,
    bytes_of,
    interval_of,
    is_expired,
    moment_of,
    shown,
    text_of,
)
from gnomon.tasks.sqlite.sandbox import TaskSandbox

EXPIRED_MAX = 1_000  # in one transaction; the owner comes again
LENGTHS_MAX = 1_000  # different texts in `active` that one call looks at; the next one goes on
GROUPS_MAX = 1_000  # in one page of a look at everything
NEWS_MAX = 10_000  # rows that one poll looks at
LOOKED_AT = 10  # times the rows that are asked for: so many due rows, expired or not
FEW_ROWS = 4_000  # due rows of a group that are sorted rather than looked for in order
GONE = "ERROR:  task not active"
NOT_REPEATED = frozenset(
    {"id", "parent", "plan", "start", "stop", "pid", "state", "error", "output", "retried"}
    | {"since"}
)


class TaskRowStore:
    """The rows of one table."""

    def __init__(self, table: str, *, clock: Clock) -> None:
        self.table = table
        self.sql = queries_for(table)
        self._clock = clock
        self._length = ""  # of `active`: where the next look for expired rows goes on

    def open(self, box: TaskSandbox) -> None:
        """What the statements need on a connection."""
        box.define("gnomon_paused", 4, _paused)

    # -- the lease --------------------------------------------------------------------------------

    def lock(self, box: TaskSandbox) -> TableLock:
        """Whose the table is."""
        for row in box.ask(self.sql["lock"], table_name=self.table):
            lock = LockRow(*row)
            if lock.lease_guid is None:
                return TableLock(beat=lock.beat)
            return TableLock(
                lease_guid=UUID(lock.lease_guid),
                owner=lock.owner,
                process=lock.process,
                beat=lock.beat,
                # A beat far in the future is old, too: the clock was set back after it.
                silent_for=abs(self._clock.now() - moment_of(lock.heartbeat_at)),
            )
        return TableLock()

    def acquire(
        self,
        box: TaskSandbox,
        lease_guid: UUID,
        owner: str,
        process: str | None,
        *,
        performed: set[tuple[int, str]],
    ) -> None:
        """The lease, and no row is with anybody but those that this process performs."""
        named = {"table_name": self.table, "lease_guid": str(lease_guid)}
        now = text_of(self._clock.now())
        box.change(self.sql["acquire"], **named, owner=owner, process=process, now=now)
        self.free(box, performed, stale=True)

    def holds(self, box: TaskSandbox, lease_guid: UUID) -> bool:
        return self.lock(box).lease_guid == lease_guid

    def beat(self, box: TaskSandbox, lease_guid: UUID) -> bool:
        named = {"table_name": self.table, "lease_guid": str(lease_guid)}
        return box.change(self.sql["beat"], **named, now=text_of(self._clock.now())) > 0

    def release(self, box: TaskSandbox, lease_guid: UUID) -> None:
        box.change(self.sql["release"], table_name=self.table, lease_guid=str(lease_guid))

    # -- looking ----------------------------------------------------------------------------------

    def poll(self, box: TaskSandbox, mark: PollMark | None, after: str | None) -> TaskPoll:
        now = self._clock.now()
        at = {"now": text_of(now)}
        [(last_id,)] = box.ask(self.sql["last_id"])
        [(following,)] = box.ask(self.sql["next_plan"], **at)
        names, rest, is_cut = self._groups(box, now, mark, after, last_id)
        return TaskPoll(
            now=now,
            groups=frozenset(GroupKey(name) for name in names),
            next_plan=None if following is None else moment_of(following),
            next_expiry=self._next_expiry(box, now),
            mark=PollMark(id=last_id, plan=now),
            is_cut=is_cut,
            rest=rest,
        )

    def _groups(
        self,
        box: TaskSandbox,
        now: datetime,
        mark: PollMark | None,
        after: str | None,
        last_id: int,
    ) -> tuple[list[str], str | None, bool]:
        """Names of groups, where the next page of them begins, and whether there were too many."""
        at = {"now": text_of(now)}
        if mark is None:
            named = {"after": None if after is None else bytes_of(after), "limit": GROUPS_MAX}
            rows = box.ask(self.sql["due_groups"], **at, **named)
            rest = rows[-1][0] if len(rows) == GROUPS_MAX else None
            return [name for name, is_due in rows if is_due], rest, False
        since = {"plan": text_of(mark.plan), "limit": NEWS_MAX}
        rows = box.ask(self.sql["new_groups"], **at, **since, id=mark.id)
        [(ripe,)] = box.ask(self.sql["ripe_count"], **at, **since)
        return [name for (name,) in rows], None, max(ripe, last_id - mark.id) >= NEWS_MAX

    def _next_expiry(self, box: TaskSandbox, now: datetime) -> datetime | None:
        lengths = box.ask(self.sql["first_to_expire"], limit=LENGTHS_MAX, after=b"")
        ends = [now] if len(lengths) == LENGTHS_MAX else []  # there may be more
        for active, plan in lengths:
            try:
                ends.append(interval_of(active).after(moment_of(plan)))
            except (InvalidColumn, OverflowError):
                continue  # said when the row is taken; and who waits so long does not expire
        return min(ends, default=None)

    def window(
        self, box: TaskSandbox, group: str, limit: int
    ) -> tuple[GroupWindow, dict[int, datetime]]:
        """The first rows, and the first times of those that wait for a `cron`. Few due rows are
        sorted here; many are read in order, past those not yet due."""
        now = self._clock.now()
        wanted = {"group": bytes_of(group), "now": text_of(now)}
        few = max(FEW_ROWS, limit)
        rows = [WindowRow(*row) for row in box.ask(self.sql["window_due"], **wanted, limit=few)]
        if has_more := len(rows) >= few:
            ordered = box.ask(self.sql["window_ordered"], **wanted, limit=LOOKED_AT * limit)
            rows = [WindowRow(*row) for row in ordered]
        firsts = {row.id: first for row in rows if (first := row.first) is not None}
        waiting = [row.waiting for row in rows if row.id not in firsts and row.is_lasting(now)]
        waiting.sort(key=lambda row: (-row.allowed_beside, row.id))
        return GroupWindow(waiting[:limit], has_more or len(waiting) > limit), firsts

    def plan_first(self, box: TaskSandbox, firsts: Mapping[int, datetime]) -> None:
        """Rows with a `cron` and no plan of their own."""
        for task_id, first in firsts.items():
            box.change(self.sql["plan_first"], id=task_id, plan=text_of(first))

    # -- taking -----------------------------------------------------------------------------------

    def take(self, box: TaskSandbox, task_id: int, *, pid: int) -> Task | None:
        """TAKE or due PLAN becomes WORK. A row that cannot be read ends at once."""
        rows = box.ask(self.sql["row"], id=task_id)
        if not rows:
            return None
        now, row = self._clock.now(), TaskRow(*rows[0])
        try:
            if not row.is_due(now):
                return None
            task = row.task(now)
        except InvalidColumn as exc:
            error = plain_error(str(exc), statement=shown(row.input))
            self._write_end(box, task_id, "FAIL", Outcome(output="", error=error), now)
            return None
        box.change(self.sql["take"], id=task_id, now=text_of(now), pid=pid)
        return task

    def mark_taken(self, box: TaskSandbox, task_ids: Sequence[int]) -> list[int]:
        now = self._clock.now()
        return [
            task_id
            for task_id in task_ids
            if self._is_lasting(box, task_id, now)
            and box.change(self.sql["mark_taken"], id=task_id, now=text_of(now))
        ]

    def _is_lasting(self, box: TaskSandbox, task_id: int, now: datetime) -> bool:
        try:
            return any(TaskRow(*row).is_due(now) for row in box.ask(self.sql["row"], id=task_id))
        except InvalidColumn:
            return True  # said when the row is taken

    def untake(self, box: TaskSandbox, task_ids: Sequence[int]) -> None:
        for task_id in task_ids:
            box.change(self.sql["untake"], id=task_id)

    def free(self, box: TaskSandbox, performed: set[tuple[int, str]], *, stale: bool) -> int:
        """WORK that is not among what is performed goes back to PLAN; if `stale`, TAKE as well."""
        lost = [
            task_id
            for task_id, state, pid, start in box.ask(self.sql["busy"])
            if (stale if state == "TAKE" else (pid, start) not in performed)
        ]
        self.untake(box, lost)
        return len(lost)

    # -- ending -----------------------------------------------------------------------------------

    def fence(self, box: TaskSandbox, task_id: int) -> tuple[str, int | None, str | None] | None:
        """The state of a row, and whose attempt it says it is; None if it is gone."""
        rows = box.ask(self.sql["repetition"], id=task_id)
        return None if not rows else RepetitionRow(*rows[0])[:3]

    @staticmethod
    def attempt(task: Task, pid: int) -> tuple[int, str]:
        """How a row says that it is this attempt's."""
        return pid, text_of(task.start)

    def end(self, box: TaskSandbox, task: Task, outcome: Outcome) -> None:
        """The outcome; the retry, or the repeat; the removal; the pauses of the group."""
        now = self._clock.now()
        self._end(box, task.id, outcome, now, statement=task.input)
        if task.max < 0:
            box.change(self.sql["pause"], group=bytes_of(task.key.group), now=text_of(now))

    def refuse(self, box: TaskSandbox, task_id: int, error: str) -> None:
        fence = self.fence(box, task_id)
        if fence is not None and fence[0] in ("TAKE", "PLAN"):
            outcome = Outcome(output="", error=error)
            self._end(box, task_id, outcome, self._clock.now(), statement="")

    def _end(
        self, box: TaskSandbox, task_id: int, outcome: Outcome, now: datetime, *, statement: str
    ) -> None:
        [row] = box.ask(self.sql["repetition"], id=task_id)
        try:
            ending = settle(RepetitionRow(*row).repetition(), outcome, now=now)
        except InvalidColumn as exc:  # the task itself wrote it
            error = outcome.error or plain_error(str(exc), statement=statement)
            outcome = Outcome(output=outcome.output or "", error=error)
            ending = Ending(state="FAIL")
        self._settle(box, task_id, ending, outcome, now)

    def _settle(
        self, box: TaskSandbox, task_id: int, ending: Ending, outcome: Outcome, now: datetime
    ) -> None:
        if ending.retry_at is not None:
            box.change(
                self.sql["plan_again"], id=task_id, plan=text_of(ending.retry_at),
                now=text_of(now), output=outcome.output, error=outcome.error,
            )  # fmt: skip
            return
        self._write_end(box, task_id, ending.state, outcome, now)
        if ending.repeat_at is not None:
            self._repeat(box, task_id, ending.repeat_at)
        if ending.is_removed:
            box.change(self.sql["remove"], id=task_id)

    def _write_end(
        self, box: TaskSandbox, task_id: int, state: str, outcome: Outcome, now: datetime
    ) -> None:
        box.change(
            self.sql["end"], id=task_id, state=state, now=text_of(now), output=outcome.output,
            error=outcome.error,
        )  # fmt: skip

    def _repeat(self, box: TaskSandbox, task_id: int, plan: datetime) -> None:
        """A copy of the row, with the columns that the table has now."""
        names = [name for (name,) in box.ask(self.sql["table_columns"], table_name=self.table)]
        copied = [name for name in names if name not in NOT_REPEATED]
        box.change(with_columns(self.sql["repeat"], copied), id=task_id, plan=text_of(plan))

    # -- expiry -----------------------------------------------------------------------------------

    def expire(self, box: TaskSandbox) -> ExpiryResult:
        """So many rows; the next call goes on with the lengths that this one has not looked at."""
        now, count = self._clock.now(), 0
        lengths = box.ask(
            self.sql["first_to_expire"], limit=LENGTHS_MAX, after=bytes_of(self._length)
        )
        is_cut = len(lengths) == LENGTHS_MAX
        self._length = lengths[-1][0] if is_cut else ""
        for active, _ in lengths:
            try:
                length = interval_of(active)
            except InvalidColumn:
                continue
            for task_id in self._expired(box, active, length, now, EXPIRED_MAX - count):
                count += self._expire(box, task_id, now)
        if count >= EXPIRED_MAX:
            self._length = ""  # some of these lengths were not looked at
        return ExpiryResult(count, has_more=is_cut or count >= EXPIRED_MAX)

    def _expired(
        self, box: TaskSandbox, active: str, length: Interval, now: datetime, limit: int
    ) -> list[int]:
        if not limit:
            return []
        rows = box.ask(self.sql["due_first"], active=active, now=text_of(now), limit=limit)
        return [task_id for task_id, plan in rows if is_expired(plan, length, now=now)]

    def _expire(self, box: TaskSandbox, task_id: int, now: datetime) -> bool:
        """Whether it is gone: what waits for the first time of its `cron` is planned for that."""
        [values] = box.ask(self.sql["repetition"], id=task_id)
        row = RepetitionRow(*values)
        if row.first is not None:
            self.plan_first(box, {task_id: row.first})
            return False
        box.change(self.sql["expire"], id=task_id, now=text_of(now), error=GONE)
        try:
            repeat_at = next_plan(row.repetition(), now=now)
        except InvalidColumn:
            return True
        if repeat_at is not None:
            self._repeat(box, task_id, repeat_at)
        return True


def _paused(plan: str, most: int, drift: int, now: str) -> str:
    """The function `gnomon_paused`: the new plan of a row whose `max` is negative."""
    pause = timedelta(milliseconds=-most)
    moment = paused_plan(moment_of(plan), pause, drift=bool(drift), now=moment_of(now))
    return text_of(moment)
