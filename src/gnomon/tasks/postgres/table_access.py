"""What the table and its sessions share: where it is, its statements, its own connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from gnomon.contracts.clock import Clock
from gnomon.contracts.env import Env
from gnomon.model.errors import InvalidSpec, Unavailable
from gnomon.model.secret import Secret
from gnomon.model.task import Outcome, Task
from gnomon.model.task.conf import TaskEntry
from gnomon.model.task.repeat import next_cron, read_cron
from gnomon.queries import quoted
from gnomon.tasks.postgres.conninfo import read_dsn
from gnomon.tasks.postgres.control import (
    BEGIN,
    COMMIT,
    NO_PARAMS,
    ControlConnection,
    StatementRefused,
)
from gnomon.tasks.postgres.group_forecast import ForeseenTask, GroupForecast
from gnomon.tasks.postgres.queries import TableNames, statements
from gnomon.tasks.postgres.rows import (
    NUL,
    YES,
    TakenTask,
    as_bytes,
    flag_of,
    int_bytes,
    is_large,
    long_bytes,
    pause,
    taken_from,
)
from gnomon.tasks.postgres.wire import Result, Statement, Step, Wire

TAKEN_OVER = "taken over, now with "
TAKEN_OVER_STATE = "22P02"
OPTION_BYTES_MAX = 256  # a longer group is set by a statement: the first message is short
OF_EVERY_TASK = ("begin", "constraints", "take", "finish", "commit", "reset", "reset_role")
# What a task can ask for, and so can what it inserts. `group` and `id` are its own.
DEFAULTS = {
    "active": "1 hour", "count": "0", "delete": "on", "delimiter": "\t", "drift": "off",
    "escape": "", "header": "on", "live": "0 sec", "max": "0", "null": "\\N",
    "plan": "statement_timestamp()", "quote": "", "repeat": "0 sec", "save": "off",
    "string": "on", "timeout": "0 sec",
}  # fmt: skip
LOOKS_MAX = 100
LOOK_CHARS_MAX = 1_000
LOCK_MS = 50
QUESTION_MS = 5_000
LOCKED_STATE = "55P03"
LOCKED_FIRST_S, LOCKED_MAX_S = 0.05, 1.0
TERMINATE_TRIES_MAX = 3
TERMINATE_WITHIN_S = 2.0
# Whatever the statistics say, a table of any size is read by its indexes, and in their order.
PLANNER = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off -c jit=off"
# However the login's tasks begin, what we write about them is written.
WRITING = "-c default_transaction_read_only=off"


class FinishOutcome(NamedTuple):
    """What a finish came to."""

    is_recorded: bool
    next: TakenTask | None


NOT_RECORDED = FinishOutcome(is_recorded=False, next=None)


class AttemptEnd(NamedTuple):
    """How an attempt ended, on which backend, and when by the database's clock."""

    taken: TakenTask
    outcome: Outcome
    pid: int
    now: datetime
    shares: bool  # the input is in the transaction that records it
    is_last: bool = False  # no repeat follows: it could not be written

    @property
    def is_plain(self) -> bool:
        """Nothing but a result to be written: no error, and no pause."""
        return self.outcome.error is None and self.taken.task.max >= 0

    @property
    def fence(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Whose the row must still be, and whether the input's own transaction is at stake."""
        task = self.taken.task
        start = task.start.isoformat(" ").encode()
        return b"%d" % task.id, b"%d" % self.pid, start, flag_of(self.shares)

    @property
    def next_cron(self) -> bytes | None:
        """When its cron has the task come again."""
        cron = self.taken.cron
        return None if cron is None else next_cron_of(cron, max(self.taken.task.plan, self.now))


class NextTask(NamedTuple):
    """A row that is to be taken, and by whom."""

    id: int
    pid: int
    lease_guid: UUID
    name: bytes | None = None  # of a session that takes it for itself, and is to be known by that
    foreseen: ForeseenTask | None = None  # as it was seen, where its input goes along

    @property
    def params(self) -> tuple[bytes | None, bytes | None, bytes | None, bytes | None]:
        return b"%d" % self.id, b"%d" % self.pid, self.lease_guid.hex.encode(), self.name


NOTHING = (None, None, None, None)


class TableAccess:
    """One task table, as its login sees it."""

    def __init__(self, dsn: Secret, entry: TaskEntry, *, env: Env, result_bytes_max: int) -> None:
        self.entry = entry
        self.env = env
        self.result_bytes_max = result_bytes_max
        self._dsn = dsn
        self.pids: set[int] = set()  # of our own sessions
        self._configured: frozenset[str] = frozenset()  # names that role or database set
        self.foreseen = GroupForecast()
        self.looks: dict[bytes, Task] = {}  # one of each kind, by its columns' look
        self.suspects: set[int] = set()  # rows with which the end of another could not be written
        self.names = TableNames(entry.schema, entry.table, f"{quoted(entry.schema)}.state")
        self.statements: Mapping[str, Statement] = statements(self.names)
        # For ends of tasks that have no session here.
        self.results = ControlConnection(self.results_options, clock=env.clock)

    # -- connecting -------------------------------------------------------------------------------

    def options(self) -> dict[str, str]:
        """How the table's login connects."""
        options = {
            **read_dsn(self._dsn.reveal()),
            "dbname": self.entry.data,
            "user": self.entry.user,
        }
        if self.entry.password is not None:
            options["password"] = self.entry.password.reveal()
        options["client_encoding"] = "UTF8"
        options.setdefault("gssencmode", "disable")  # asking for it costs a round trip
        return options

    def control_options(self) -> dict[str, str]:
        """The same for statements of ours."""
        options = self.options()
        options["application_name"] = f"gnomon tasks {self.entry.schema}.{self.entry.table}"
        options["options"] = _joined(options.get("options"), PLANNER, WRITING)
        return options

    def results_options(self) -> dict[str, str]:
        """The same for what many tasks share: none of them waits long for a row's lock."""
        options = self.control_options()
        options["options"] = _joined(options["options"], f"-c lock_timeout={LOCK_MS}")
        return options

    def rows_options(self) -> dict[str, str]:
        """The same for what people ask: no question of theirs keeps the others waiting long."""
        options = self.results_options()
        options["options"] = _joined(options["options"], f"-c statement_timeout={QUESTION_MS}")
        return options

    def session_options(self, group: str | None) -> dict[str, str]:
        """The same for tasks: the server ends a task whose client is gone."""
        options = self.options()
        options["application_name"] = self.application_name(group or "")
        options["options"] = _joined(
            options.get("options"),
            "-c client_connection_check_interval=1000",
            self._default_options(),
            self.task_options(group),
        )
        return options

    def _default_options(self) -> str:
        """The original's settings with their values, where neither role nor database has them."""
        return " ".join(
            f"-c pg_task.{name}={_option(value)}"
            for name, value in DEFAULTS.items()
            if f"pg_task.{name}" not in self._configured
        )

    def learn(self, settings: Iterable[bytes]) -> None:
        """What role and database set, as `name=value`."""
        self._configured = frozenset(
            entry.partition(b"=")[0].decode("utf-8", "replace") for entry in settings
        )

    def task_options(self, group: str | None) -> str:
        """What a task can ask about itself, for a connection's beginning."""
        parts = [
            f"-c pg_task.schema={_option(self.entry.schema)}",
            f"-c pg_task.table={_option(self.entry.table)}",
        ]
        if group is not None and len(group.encode("utf-8", "replace")) <= OPTION_BYTES_MAX:
            parts.append(f"-c pg_task.group={_option(group)}")
        return " ".join(parts)

    def application_name(self, group: str) -> str:
        """Under which a task is seen in the server's list of activities; as long as it may be."""
        name = f"pg_task {self.entry.schema} {self.entry.table} {group}".rstrip()
        return name.encode()[:63].decode("utf-8", "ignore")

    # -- statements -------------------------------------------------------------------------------

    def know(self, state_type: str) -> None:
        """Note of what type the column `state` is."""
        self.names = self.names._replace(state_type=state_type)
        self.statements = statements(self.names)

    def take_step(self, following: NextTask, *, alone: bool) -> Step:
        """Take a task; `alone` in a transaction of its own."""
        return self.statements["take"], (*following.params, flag_of(alone))

    async def finish_steps(self, end: AttemptEnd, following: NextTask | None) -> list[Step]:
        """Record how a task ended, and take the one that follows; `recorded_by` reads it."""
        outcome, known = end.outcome, self.statements
        is_long = is_large(outcome.output) or is_large(outcome.error)
        if is_long:
            await pause()
        output = None if outcome.output is None else as_bytes(outcome.output)
        steps: list[Step]
        if following is not None and following.foreseen is not None:
            steps = [(known["finish_ahead"], _ahead_params(end, following, output))]
        elif end.is_plain:
            then, _, lease, name = following.params if following else NOTHING
            fence = (*end.fence[:2], lease, name, then, *end.fence[2:])
            steps = [(known["finish"], (*fence, output, end.next_cron))]
        else:
            task_id, pid, start, shares = end.fence
            error = None if outcome.error is None else as_bytes(outcome.error)
            failed = (task_id, pid, error, output, end.next_cron, start, shares)
            steps = [(known["finish_otherwise"], (*failed, flag_of(end.is_last)))]
            if following is not None:
                steps.append(self.take_step(following, alone=False))
        if outcome.output is None and outcome.error is None:
            steps.append((known["remove"], end.fence[:3]))
        if is_long:
            await pause()
        return steps

    def learn_look(self, taken: TakenTask | None) -> None:
        """Note what a task is like: of others that look the same the columns need not be read."""
        if taken is None or taken.look in self.looks or len(taken.task.null) > LOOK_CHARS_MAX:
            return
        if len(self.looks) >= LOOKS_MAX:
            self.looks.clear()
        self.looks[taken.look] = taken.task

    async def finish_apart(self, end: AttemptEnd, following: NextTask | None) -> FinishOutcome:
        """Record what its session cannot record itself. Errors: Unavailable, StatementRefused."""
        steps = await self.finish_steps(end, following)
        try:
            results = await self.insist([(BEGIN, NO_PARAMS), *steps, (COMMIT, NO_PARAMS)])
        except StatementRefused as exc:
            if is_taken_over(exc.sqlstate, exc.words):
                return NOT_RECORDED
            raise
        return recorded_by(results[1:], end, following)

    async def insist(self, steps: Sequence[Step]) -> list[Result]:
        """Statements on the connection that all remote tasks share: a row that somebody has locked
        is tried again, and does not keep the others waiting.

        Errors: Unavailable, StatementRefused.
        """
        wait_s = LOCKED_FIRST_S
        while True:
            try:
                return await self.results.together(steps)
            except StatementRefused as exc:
                if exc.sqlstate != LOCKED_STATE:
                    raise
            await asyncio.sleep(wait_s)
            wait_s = min(LOCKED_MAX_S, wait_s * 2)

    async def terminate(self, pid: int) -> None:
        """End a backend that does not listen. Never raises; a server that is slow to answer is
        asked again, for nobody else ends the backend."""
        for _ in range(TERMINATE_TRIES_MAX):
            with suppress(Unavailable, StatementRefused, TimeoutError):
                async with asyncio.timeout(TERMINATE_WITHIN_S):
                    await self.results.rows(self.statements["terminate"], as_bytes(pid))
                    return


def _ahead_params(
    end: AttemptEnd, following: NextTask, output: bytes | None
) -> tuple[bytes | None, ...]:
    """The parameters of `finish_ahead`, in their `FORMATS`."""
    taken, foreseen = end.taken, following.foreseen
    assert foreseen is not None
    return (
        long_bytes(taken.task.id), int_bytes(end.pid), following.lease_guid.bytes, following.name,
        long_bytes(following.id), taken.start, YES if end.shares else NUL,
        output, end.next_cron, foreseen.version, foreseen.expiry_s,
    )  # fmt: skip


def recorded_by(
    results: Sequence[Result], end: AttemptEnd, following: NextTask | None
) -> FinishOutcome:
    """What became of `finish_steps`."""
    if not end.is_plain:
        taken = None if following is None else taken_from(results[1], following.id)
        return FinishOutcome(results[0].ntuples > 0, taken)
    taken = None if following is None else taken_from(results[0], following.id)
    return FinishOutcome(results[0].ntuples > (taken is not None), taken)


def is_taken_over(sqlstate: str, words: str) -> bool:
    """Whether `finish` met a row that is another attempt's."""
    return sqlstate == TAKEN_OVER_STATE and TAKEN_OVER in words


def next_cron_of(cron: str | None, after: datetime) -> bytes | None:
    """When a cron has its task come again; never, if it cannot be read."""
    try:
        known = read_cron(cron)
    except InvalidSpec:
        return None
    moment = None if known is None else next_cron(known, after=after)
    return None if moment is None else as_bytes(moment.isoformat(" "))


class CurrentTask:
    """The task that a session has taken and not ended, and since when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._taken: TakenTask | None = None
        self._taken_at = 0.0

    def note(self, taken: TakenTask | None) -> Task | None:
        """The session has another one now, or none."""
        self._taken = taken
        self._taken_at = self._clock.monotonic()
        return None if taken is None else taken.task

    def of(self, task: Task) -> TakenTask:
        """What the session knows of the task, which is the one that it has."""
        assert self._taken is not None
        assert self._taken.task.id == task.id
        return self._taken

    def now(self, task: Task) -> datetime:
        """The database's present, where the task has a `cron`, which needs it: reckoned from the
        moment at which it was taken."""
        if self._taken is None or self._taken.cron is None:
            return task.start
        return task.start + timedelta(seconds=self._clock.monotonic() - self._taken_at)


def _joined(*options: str | None) -> str:
    return " ".join(option for option in options if option)


def _option(value: str) -> str:
    """A value within `options`, where blanks divide."""
    return "".join("\\" + char if char == "\\" or char.isspace() else char for char in value)


async def warm(wire: Wire, known: Mapping[str, Statement]) -> None:
    """Prepare what every session needs. Errors: WireLost."""
    await wire.prepare([known[name] for name in OF_EVERY_TASK])
