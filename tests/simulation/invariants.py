"""The rules that every call is held against, at the moment the store performs it.

A small model of the truth is kept beside the store: which generation of an action is current,
which attempt of it runs, who holds which shard. It is fed by what the store says it did, in the
order it did it, so whatever contradicts it is wrong, not late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from gnomon.contracts.store import (
    ActionDraft,
    ArrivalResult,
    BeginRequest,
    BeginResult,
    BegunAttempt,
    ChangeResult,
    ConfirmResult,
    FinishRequest,
    HeartbeatResult,
    HeldShard,
    PauseEnds,
    Recorded,
    SettleRequest,
)
from gnomon.model.action import Action, State
from gnomon.model.errors import GnomonError
from gnomon.model.spec import Spec
from gnomon.model.transition import Verdict
from gnomon.testing.faulty import Arguments, FaultyStore
from gnomon.worker.attempt import ENDED_BEFORE
from tests.simulation.history import History

PAUSES_LOOKED_FOR = timedelta(seconds=1)  # workers look for what ends about twice a second
BUGS = ("bug", "internal", "schema_mismatch", "identity_mismatch", "not_supported")


@dataclass(slots=True)
class Generation:
    """One guid of one action, as it must be."""

    id: str
    guid: UUID
    series: UUID  # the guid that it had before it was paused, resumed or run now
    shard: int
    spec: Spec
    keeps: bool  # finished ones stay visible
    due_at: datetime | None
    ready_at: datetime  # when it could be begun: due, and known to be so
    occurrence_no: int
    first_occurrence_no: int
    attempts: int = 0
    succeeded: int = 0
    failed: int = 0
    attempt_id: UUID | None = None  # the latest begun
    began_at: datetime | None = None
    running: bool = False
    swept: bool = False
    begun_occurrences: set[int] = field(default_factory=set)
    passed_occurrences: set[int] = field(default_factory=set)  # expired or missed
    succeeded_occurrences: set[int] = field(default_factory=set)
    paused_until: datetime | None = None  # when it is to go on by itself
    need: str = ""  # of its row: whoever has it not did hand it back
    told: str = ""  # who recorded the last result, and so knows when it is due
    end: str | None = None  # how it ended: a state, or `superseded`

    def __str__(self) -> str:
        return f"{self.id}/{str(self.guid)[-6:]}"


class Rules:
    """The model and the rules on calls."""

    def __init__(
        self,
        history: History,
        now: Callable[[], datetime],
        shard_count: int,
        second: Callable[[], float],
    ) -> None:
        self.history = history
        self._second = second  # the true time, whatever the database's clock says
        self._now = self.now = now
        self.generations: dict[UUID, Generation] = {}
        self.current: dict[str, Generation] = {}
        self.attempts: dict[UUID, BegunAttempt] = {}
        self.applied: set[UUID] = set()
        self.late: set[UUID] = set()
        self.swept: set[UUID] = set()
        self._first_of_occurrence: set[UUID] = set()  # attempts
        self.unconfirmed: set[UUID] = set()  # armed: no right to execute yet
        self.forgotten: set[UUID] = set()  # begun, and the worker does not know
        self.leases: dict[int, UUID | None] = dict.fromkeys(range(shard_count))
        self._beat_at: dict[int, datetime] = {}
        self._beat_s: dict[int, float] = {}
        self.began_s: dict[UUID, float] = {}  # by attempt
        self.lateness_max = timedelta.max  # bounded where nothing goes wrong
        self.is_calm = False  # nobody is cut off from the store
        self.recorded_within = timedelta.max  # likewise: from the answer to its record
        self.answered_at: dict[UUID, datetime] = {}  # when the worker got it, by attempt
        self.asked: set[UUID] = set()  # attempts that a user asked to end
        self.was_held: Callable[[str, datetime], bool] = lambda *_: False  # by a user, lately
        self.is_settled: Callable[[SettleRequest], bool] = lambda _: True  # asks the tables
        self.refused_queues: frozenset[str] = frozenset()
        self.was_sent: Callable[[UUID, UUID], bool] = lambda *_: True  # asks the receiver
        self.is_in_hand: Callable[[str, UUID, UUID], bool] = lambda *_: False  # asks the receiver

    def performed(self, store: FaultyStore, verb: str, arguments: Arguments, result: Any) -> None:
        """Hold one call of one process against the rules."""
        if isinstance(result, Exception):
            if not isinstance(result, GnomonError) or result.code in BUGS:
                self.history.violate("store_raised", verb, repr(result))
            return
        rule: Callable[[str, Arguments, Any], None] | None = getattr(self, f"on_{verb}", None)
        if rule is not None:
            rule(store.name, arguments, result)

    def clock_was_set(self, by: timedelta, *, noticed_within: timedelta) -> None:
        """Tell the past as the clock would have shown it; workers learn of it soon."""
        now = self._now()
        self.answered_at = {attempt: at + by for attempt, at in self.answered_at.items()}
        for made in self.current.values():
            due_at = made.due_at or made.paused_until or now
            known_at = made.ready_at + by if made.ready_at > due_at else due_at
            made.ready_at = max(known_at, due_at, now + noticed_within)

    def running_first(self) -> list[str]:
        """All ids, those with an attempt under way before the others."""
        return sorted(self.current, key=lambda id: (not self.current[id].running, id))

    def _check(self, condition: object, rule: str, *details: object) -> None:
        if not condition:
            self.history.violate(rule, *details)

    # -- users' changes ---------------------------------------------------------------------------

    def on_create(self, who: str, arguments: Arguments, result: list[ChangeResult | None]) -> None:
        for draft, changed in zip(arguments.args[0], result, strict=True):
            self._created(who, draft, changed)

    def _created(self, who: str, draft: ActionDraft, changed: ChangeResult | None) -> None:
        live = self.current.get(draft.id)
        if changed is None:
            self._check(live and live.guid != draft.guid, "create_refused", draft.id)
        elif changed.repeated:
            self._repeated(draft)
        else:
            self._check(live is None, "create_over_live", draft.id, live)
            self._check(draft.guid not in self.generations, "guid_twice", draft.id, draft.guid)
            self._begin_generation(who, "created", changed.action, draft)

    def on_replace(self, who: str, arguments: Arguments, changed: ChangeResult) -> None:
        draft: ActionDraft = arguments.args[0]
        if changed.repeated:
            self._repeated(draft)
            return
        self._superseded(who, draft.id, arguments, changed)
        self._begin_generation(who, "replaced", changed.action, draft)

    def _repeated(self, draft: ActionDraft) -> None:
        self.history.reach("keyed repeat")
        self._check(draft.keyed and draft.guid in self.generations, "repeat_of_nothing", draft.id)

    def on_delete(self, who: str, arguments: Arguments, changed: ChangeResult) -> None:
        self._superseded(who, arguments.args[0], arguments, changed)
        self.history.note(who, "deleted", arguments.args[0])
        flight = changed.in_flight
        wanted = bool(arguments.named.get("running")) and flight is not None
        self._check(changed.asked == wanted, "asked", arguments.args[0])
        if changed.asked and flight is not None:
            self.asked.add(flight.attempt_id)

    def on_pause(self, who: str, arguments: Arguments, changed: ChangeResult) -> None:
        self._kept(who, "paused", arguments, changed)
        status = changed.action.status
        self._check(status.state is State.PAUSED, "paused", changed.action.meta.id)

    def on_resume(self, who: str, arguments: Arguments, changed: ChangeResult) -> None:
        self._kept(who, "resumed", arguments, changed)

    def on_end_pauses(self, who: str, arguments: Arguments, result: PauseEnds) -> None:
        """A pause ends at its time, not before, by who may, and as a resume would have it."""
        leases = {held.shard: held.lease_guid for held in arguments.args[0]}
        is_helper = arguments.named.get("silent") is not None
        for action in result.actions:
            before = self.current.get(action.meta.id)
            until = None if before is None else before.paused_until
            if before is None or until is None:
                self.history.violate("ended_no_pause", who, action.meta.id)
                continue
            self._check(until <= self._now(), "pause_ended_early", who, before, until)
            is_owner = self.leases[before.shard] == leases[before.shard]
            self._check(is_owner or is_helper, "ended_without_lease", who, before)
            lateness = self._now() - before.ready_at
            is_excused = is_helper or lateness - PAUSES_LOOKED_FOR <= self.lateness_max
            self._check(is_excused, "pause_ended_late", who, before, lateness)
            self._kept(who, "pause ended", arguments, ChangeResult(action=action))
            self.history.reach("pause ended")
            self.history.reach("pause ended by a helper", is_helper)

    def on_run_now(self, who: str, arguments: Arguments, changed: ChangeResult) -> None:
        self._kept(who, "run now", arguments, changed)

    def _kept(self, who: str, what: str, arguments: Arguments, changed: ChangeResult) -> None:
        """A new generation of the same spec that keeps its counters."""
        before = self.current.get(changed.action.meta.id)
        if before is not None and before.guid == changed.action.meta.guid:
            return  # it was so already
        self._superseded(who, changed.action.meta.id, arguments, changed)
        self._begin_generation(who, what, changed.action, None, before)
        if before is not None:
            after = self.current[before.id]
            counted = (before.succeeded, before.failed)
            self._check(counted == (after.succeeded, after.failed), "counters_kept", after)

    def _superseded(self, who: str, id: str, arguments: Arguments, changed: ChangeResult) -> None:
        """The current generation ends by a user's change; the answer names its attempt."""
        before = self.current.pop(id, None)
        wanted = arguments.named.get("if_match")
        if wanted is not None:
            self._check(before and before.guid == wanted, "if_match", id, before, wanted)
        flight = changed.in_flight
        if before is None or not before.running:
            self._check(flight is None, "in_flight_of_nothing", id)
        else:
            named = flight is not None and flight.attempt_id == before.attempt_id
            self._check(named, "in_flight_not_named", id)
            self.history.reach("change during an attempt")
        if before is not None:
            before.end = "superseded"

    def _begin_generation(
        self,
        who: str,
        what: str,
        action: Action,
        draft: ActionDraft | None,
        before: Generation | None = None,
    ) -> None:
        status, meta = action.status, action.meta
        retention = action.spec.retention
        made = Generation(
            id=meta.id,
            guid=meta.guid,
            series=meta.guid if before is None else before.series,
            shard=meta.shard,
            spec=action.spec,
            keeps=retention is None or retention > timedelta(0),
            due_at=status.scheduled_at,
            ready_at=max(status.scheduled_at or status.paused_until or self._now(), self._now()),
            occurrence_no=status.occurrence_no,
            first_occurrence_no=status.occurrence_no,
            attempts=status.attempts,
            succeeded=status.succeeded,
            failed=status.failed,
            paused_until=status.paused_until,
        )
        self.history.note(who, what, made, status.scheduled_at)
        self.generations[made.guid] = self.current[made.id] = made
        self._check(meta.updated_at == self._now(), "worker_clock", made, meta.updated_at)
        if draft is not None:
            self._check(made.due_at == draft.scheduled_at, "due_as_asked", made, made.due_at)
            self._check(0 == made.attempts, "counters_zeroed", made)

    # -- leases -----------------------------------------------------------------------------------

    def on_acquire(self, who: str, arguments: Arguments, taken: Sequence[HeldShard]) -> None:
        for held in taken:
            self._taken(who, held, arguments.named["lease_for"])

    def _taken(self, who: str, held: HeldShard, lease_for: timedelta) -> None:
        shard, lease = held.shard, held.lease_guid
        before = self.leases[shard]
        if before is not None and before != lease:
            silent_for = self._now() - self._beat_at[shard]
            silent_s = self._second() - self._beat_s[shard]
            self._check(silent_for >= lease_for, "stolen_alive", who, shard)
            # Not by a clock that was set, either: the thief has watched it for all that time.
            self._check(silent_s >= lease_for.total_seconds(), "stolen_alive", who, shard)
            self._check(not self.is_calm, "stolen_from_the_living", who, shard)
            self.history.reach("steal")
        self.leases[shard] = lease
        self._beaten(shard)
        self.history.note(who, "acquired", shard)

    def on_heartbeat(self, who: str, arguments: Arguments, pulse: HeartbeatResult) -> None:
        mine = frozenset(
            held.shard
            for held in arguments.named["holdings"]
            if self.leases[held.shard] == held.lease_guid
        )
        self._check(mine == pulse.held, "held_by_another", who, sorted(pulse.held), sorted(mine))
        for shard in mine:
            self._beaten(shard)

    def _beaten(self, shard: int) -> None:
        self._beat_at[shard], self._beat_s[shard] = self._now(), self._second()

    def on_release(self, who: str, arguments: Arguments, _: None) -> None:
        for held in arguments.args[0]:
            if self.leases[held.shard] == held.lease_guid:
                self.leases[held.shard] = None
                self.history.note(who, "released", held.shard)

    # -- attempts ---------------------------------------------------------------------------------

    def on_begin(self, who: str, arguments: Arguments, result: BeginResult) -> None:
        demands = {demand.lane: demand for demand in arguments.args[0]}
        until = arguments.named.get("until")
        for begun in result.begun:
            self._begun(who, demands[begun.lane], begun, until)
        self.history.reach("armed", until is not None and bool(result.begun))

    def on_confirm(self, who: str, arguments: Arguments, result: ConfirmResult) -> None:
        """What may be performed from now on is current, its own, and due."""
        now = self._now()
        for begun in arguments.args[0]:
            made = self.generations[begun.guid]
            is_current = self.current.get(begun.id) is made
            is_its = made.running and made.attempt_id == begun.attempt_id
            if begun.attempt_id in result.gone:
                self._check(not (is_current and is_its), "disarmed_for_nothing", who, made)
                self.history.reach("armed and changed", not is_current)
            elif begun.attempt_id in (*result.early, *result.expired):
                continue
            else:
                self._check(is_current, "stale_begin", who, made)
                self._check(is_its, "begun_while_running", who, made)
                self._check(begun.began_at <= now, "early", who, made, begun.began_at)
                expiry = begun.status.expires_at
                self._check(expiry is None or expiry > now, "begun_expired", made, expiry)
                lateness = now - made.ready_at
                is_excused = self.was_held(made.id, made.ready_at) or lateness <= self.lateness_max
                self._check(is_excused, "late", who, made, lateness)
                self.unconfirmed.discard(begun.attempt_id)
                self.began_s[begun.attempt_id] = self._second()
                self.history.reach("armed and confirmed")

    def on_move_and_begin(self, who: str, arguments: Arguments, result: ArrivalResult) -> None:
        leases = {held.shard: held.lease_guid for held in arguments.args[0]}
        for begun in result.begun:
            self._check("" == begun.need, "arrived_with_a_need", who, begun.id)
            demand = BeginRequest(lane=begun.lane, lease_guid=leases[begun.shard], limit=1)
            self._begun(who, demand, begun)
        self.history.reach("begun on arrival", bool(result.begun))

    def _begun(
        self, who: str, demand: BeginRequest, begun: BegunAttempt, until: datetime | None = None
    ) -> None:
        made = self.generations.get(begun.guid)
        if made is None:
            self.history.violate("phantom", who, begun.id, begun.guid)
            return
        status = begun.status
        self.history.note(
            who, "begun", made, f"no {status.attempts}", f"occurrence {status.occurrence_no}"
        )
        self._check(self.current.get(begun.id) is made, "stale_begin", who, made)
        is_ahead = until is not None and begun.scheduled_at > self._now()
        began_at = begun.scheduled_at if is_ahead else self._now()
        self._check(begun.began_at == began_at, "worker_clock", made, begun.began_at)
        self._check(not is_ahead or demand.lease_guid, "armed_without_lease", who, made)
        if until is not None:
            latest = max(until, self._now())
            self._check(begun.scheduled_at <= latest, "armed_too_early", who, made)
            self.unconfirmed.add(begun.attempt_id)
        self._check(begun.scheduled_at <= begun.began_at, "early", who, made, begun.scheduled_at)
        self._check(begun.scheduled_at == made.due_at, "not_due", who, made, begun.scheduled_at)
        self._check(not made.running, "begun_while_running", who, made)
        self._check(status.attempts == made.attempts + 1, "attempt_gap", made, status.attempts)
        self._check(begun.attempt_id not in self.attempts, "attempt_begun_twice", made)
        number = status.occurrence_no
        self._check(number == made.occurrence_no, "wrong_occurrence", made, number)
        self._check(number not in made.succeeded_occurrences, "done_and_begun", made, number)
        expiry = status.expires_at
        self._check(expiry is None or expiry > begun.began_at, "begun_expired", made, expiry)
        self._check_lease(who, demand, begun)
        lateness = begun.began_at - made.ready_at
        is_news = made.told not in ("", who)  # a former owner's result: found by looking
        # Guests look about once a second.
        is_slow = is_news or begun.need or demand.is_guest
        is_excused = is_slow or self.was_held(made.id, made.ready_at)
        self._check(is_excused or lateness <= self.lateness_max, "late", who, made, lateness)
        made.attempts, made.attempt_id, made.began_at = (
            status.attempts,
            begun.attempt_id,
            begun.began_at,
        )
        made.running, made.swept = True, False
        if number not in made.begun_occurrences:
            made.begun_occurrences.add(number)
            self._first_of_occurrence.add(begun.attempt_id)
        self._check(begun.need == made.need, "another_need", who, made, begun.need)
        self.attempts[begun.attempt_id] = begun
        self.began_s[begun.attempt_id] = self._second()

    def _check_lease(self, who: str, demand: BeginRequest, begun: BegunAttempt) -> None:
        holder = self.leases[begun.shard]
        if demand.lease_guid is not None:
            self._check(holder == demand.lease_guid, "begun_without_lease", who, begun.id)
            return
        if demand.is_guest:
            is_asked = begun.need or begun.spec.queue in self.refused_queues
            self._check(is_asked, "guest_for_nothing", who, begun.id)
            self.history.reach("guest begin")
            self.history.reach("guest begin for a queue", not begun.need)
            return
        self.history.reach("helper begin")
        overdue = begun.began_at - begun.scheduled_at > timedelta(seconds=1)
        self._check(overdue, "helped_too_early", who, begun.id)

    def forget(self, begun: Sequence[BegunAttempt]) -> None:
        """The answer that would have said what was begun got lost."""
        self.forgotten.update(one.attempt_id for one in begun)

    def on_find_begun(self, who: str, arguments: Arguments, result: list[BegunAttempt]) -> None:
        for begun in result:
            made = self.generations[begun.guid]
            self._check(begun.attempt_id == made.attempt_id, "recalled_another", who, made)
            self.forgotten.discard(begun.attempt_id)
            self.history.reach("recall")
            self.history.note(who, "recalled", made)

    def on_extend(self, who: str, arguments: Arguments, result: set[UUID]) -> None:
        for begun in arguments.args[0]:
            made = self.generations[begun.guid]
            is_current = (
                self.current.get(begun.id) is made
                and made.attempt_id == begun.attempt_id
                and made.running
            )
            self._check(is_current == (begun.attempt_id in result), "extended", who, made)
            self.history.reach("extended", is_current)

    def on_finish(self, who: str, arguments: Arguments, result: list[Recorded]) -> None:
        for finish, recorded in zip(arguments.args[0], result, strict=True):
            self._finished(who, finish, recorded)

    def _finished(self, who: str, finish: FinishRequest, recorded: Recorded) -> None:
        made = self.generations[finish.guid]
        self.history.note(
            who, "finish", made, f"no {finish.attempt_no}", finish.outcome, recorded.value
        )
        is_mine = (
            self.current.get(finish.id) is made
            and made.attempt_id == finish.attempt_id
            and (made.running or (made.swept and finish.outcome != "unserved"))
        )
        is_unmade = finish.error == ENDED_BEFORE.reason
        is_answer = finish.outcome in ("succeeded", "failed", "cancelled") and not is_unmade
        is_sent = self.was_sent(finish.guid, finish.attempt_id)
        self._check(is_sent or not is_answer, "answer_of_nobody", who, made, finish.error)
        match recorded:
            case Recorded.APPLIED:
                self._check(is_mine, "foreign_finish", who, made, finish.attempt_no)
                made.told = who
                self._check_recorded_soon(who, made, finish)
                self._apply(made, finish)
            case Recorded.REPEATED:
                known = finish.attempt_id in self.applied or finish.attempt_id in self.late
                # It was not made, or not to its end: somebody else has said as much already.
                is_broken = finish.outcome in ("interrupted", "unserved")
                is_said = is_broken and finish.attempt_id in self.swept
                self._check(known or is_said, "repeat_of_nothing", who, made)
                self.history.reach("repeated result")
            case Recorded.LATE:
                self._check(not is_mine, "valid_result_refused", who, made, finish.attempt_no)
                self.late.add(finish.attempt_id)
                self.history.reach("late result")
            case Recorded.HELD:
                self._check(is_mine, "held_for_nothing", who, made, finish.attempt_no)
                self.history.reach("held result")

    def _check_recorded_soon(self, who: str, made: Generation, finish: FinishRequest) -> None:
        """Whoever holds whatever: the results of others are written."""
        answered_at = self.answered_at.get(finish.attempt_id, self._now())
        if not self.was_held(made.id, answered_at):
            took = self._now() - answered_at
            self._check(took <= self.recorded_within, "recorded_late", who, made, took)

    def _apply(self, made: Generation, finish: FinishRequest) -> None:
        self._check(finish.attempt_id not in self.applied, "applied_twice", made)
        self.applied.add(finish.attempt_id)
        self.history.reach("swept take-back", made.swept)
        self.history.reach(f"outcome {finish.outcome}")
        made.running = made.swept = False
        if finish.outcome == "unserved":
            self._take_back(made, finish)
        made.succeeded += finish.verdict.succeeded
        made.failed += finish.verdict.failed
        if finish.outcome in ("succeeded", "cancelled"):
            made.succeeded_occurrences.add(finish.occurrence_no)
        self._follow(made, finish.verdict, finish.occurrence_no)

    def _take_back(self, made: Generation, finish: FinishRequest) -> None:
        """The attempt was not made; the row has a need from now on, and who does not serve that
        leaves it alone."""
        self._check("" == made.need, "handed_back_twice", made, finish.need)
        made.need = finish.need
        made.attempts -= 1
        if finish.attempt_id in self._first_of_occurrence:
            made.begun_occurrences.discard(finish.occurrence_no)

    def on_settle(self, who: str, arguments: Arguments, result: int) -> None:
        if not result:  # two may come to the same verdict, and its row then looks as both wanted
            return
        for settle in arguments.args[0]:
            if self.is_settled(settle):
                self._settled(who, settle)

    def _settled(self, who: str, settle: SettleRequest) -> None:
        lapsed, made = settle.lapsed, self.generations[settle.lapsed.guid]
        number = lapsed.status.occurrence_no
        self.history.note(who, "settled", made, f"running {lapsed.running}", settle.verdict.state)
        self._check(lapsed.running == made.running, "settled_another", who, made)
        if lapsed.running:
            assert lapsed.attempt is not None
            is_its = lapsed.attempt.attempt_id == made.attempt_id
            self._check(is_its, "settled_another", who, made)
            is_own = self.is_in_hand(who, made.guid, lapsed.attempt.attempt_id)
            self._check(not is_own, "settled_own", who, made)
            made.running, made.swept = False, True
            self.swept.add(lapsed.attempt.attempt_id)
            self.history.reach("swept")
        else:
            made.passed_occurrences.add(number)
            self.history.reach("missed")
        self._follow(made, settle.verdict, number)

    def _follow(self, made: Generation, verdict: Verdict, number: int) -> None:
        """What the verdict says is what is so from now on."""
        if verdict.state.is_terminal:
            made.end = verdict.state.value
            made.running = False
            made.due_at = None
            self.current.pop(made.id, None)
            self.history.reach(f"ended {verdict.state}")
            return
        step = verdict.occurrence_no - number
        self._check(step in (0, 1), "occurrence_jumped", made, number, verdict.occurrence_no)
        made.occurrence_no, made.due_at = verdict.occurrence_no, verdict.scheduled_at
        now = self._now()
        made.ready_at = max(verdict.scheduled_at or now, now)
        is_past = verdict.scheduled_at is not None and verdict.scheduled_at < now
        self.history.reach("catch-up", step == 1 and is_past)

    def on_purge(self, who: str, arguments: Arguments, result: int) -> None:
        self.history.reach("purge", result > 0)
