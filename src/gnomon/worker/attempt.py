"""One attempt, from the right to execute to the result that is to be recorded.

Nothing is sent without a `BegunAttempt`, and not even with one once its time is over: the last look
at the monotonic clock is directly before the executor is called.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from uuid import UUID

import msgspec

from gnomon.contracts.env import Env
from gnomon.contracts.executor import ASKED_TO_END, AttemptError, AttemptRequest, Executor
from gnomon.contracts.observer import Observer
from gnomon.contracts.store import BegunAttempt, FinishRequest, SettleRequest
from gnomon.contracts.traces import Tracing
from gnomon.model.action import State
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.ids import delivery_key
from gnomon.model.need import need_of
from gnomon.model.outcome import (
    Abandoned,
    Cancelled,
    Failed,
    Interrupted,
    Outcome,
    Succeeded,
    Unserved,
    cut,
)
from gnomon.model.spec import Effect, Python, Unreadable
from gnomon.model.transition import UNDECIDABLE, Verdict, decide
from gnomon.telemetry.watchdog import Holder, watched
from gnomon.worker.gates import TargetGate

PATIENCE_S = 2.0  # so long an attempt waits before a target that is at its limit
LOST = Interrupted(reason="another worker took over", planned=True)
ENDED = Cancelled(reason="cancelled while it was under way")
ENDED_BEFORE = Cancelled(reason="cancelled before it was performed")
NO_GATES: Mapping[str, TargetGate] = MappingProxyType({})


class AttemptRunner:
    """Turns a begun attempt into a result. Never raises but for cancellation."""

    def __init__(
        self,
        executors: Mapping[type[Effect], Executor],
        *,
        installation: UUID,
        env: Env,
        send_within: timedelta,
        gates: Mapping[str, TargetGate] = NO_GATES,
    ) -> None:
        self._gates = gates  # of targets that have a limit
        self._executors = executors
        self._installation = installation
        self._clock = env.clock
        self._observer = env.observer
        self._redaction = env.redaction
        self._send_within_s = send_within.total_seconds()
        self._tracing = env.tracing

    def is_too_late(self, asked_at: float, now: float) -> bool:
        """Whether nothing may be sent any more for a begin that was asked for then."""
        return now - asked_at > self._send_within_s

    async def perform(
        self, begun: BegunAttempt, asked_at: float, guard: DeadlineGuard
    ) -> FinishRequest:
        """Execute the attempt. `asked_at`: the monotonic time at which its begin was asked for."""
        gate = self._gates.get(getattr(begun.spec.action, "target", "")) if self._gates else None
        outcome: Outcome
        with guard.boundary as attempt:  # some bug
            if gate is None:
                outcome = await self._outcome(begun, asked_at, guard)
            else:
                outcome = await self._outcome_within(gate, begun, asked_at, guard)
        bug: BaseException | None = None
        if attempt.error is not None:
            bug = attempt.release()
            told = self._redaction.hide_in_text(repr(bug), begun.spec.action)
            self._observer.event("executor_raised", action=begun.id, error=told)
            outcome = Failed(error=cut(f"{type(bug).__name__}: {bug}"))
        if not guard.was_called:
            guard.note_uncalled(begun, asked_at, self._clock.monotonic())
        elapsed_s = guard.ended_at - asked_at
        finish = finish_of(begun, outcome, ended_after=timedelta(0, elapsed_s))
        if isinstance(outcome, Failed):
            raised = bug or guard.take_error()
            self._tell_failure(begun, finish, took_s=elapsed_s, raised=raised)
        return finish

    def _tell_failure(
        self,
        begun: BegunAttempt,
        finish: FinishRequest,
        *,
        took_s: float,
        raised: BaseException | None,
    ) -> None:
        """Into the log goes nothing that is hidden; nor a traceback that holds it."""
        effect, error = begun.spec.action, finish.error
        if self._redaction:
            shown = msgspec.structs.replace(
                finish, error=error and self._redaction.hide_in_text(error, effect)
            )
            trace = "".join(traceback.format_exception(raised)) if raised is not None else ""
            if self._redaction.hide_in_text(trace, effect) != trace:
                raised = None
            finish = shown
        tell_failure(self._observer, begun, finish, took_s=took_s, raised=raised)

    async def _outcome_within(
        self, gate: TargetGate, begun: BegunAttempt, asked_at: float, guard: DeadlineGuard
    ) -> Outcome:
        """Wait for the target's limit, well within the time in which one may dare to send."""
        left_s = asked_at + self._send_within_s / 2 - self._clock.monotonic()
        patience_s = min(PATIENCE_S, left_s, begun.spec.timeout.total_seconds() / 4)
        pause = await gate.enter(begun.spec.queue, patience_s)
        if pause is not None:
            name = gate.limit.name
            self._observer.count("limit_handed_back", name=name)
            return Abandoned(reason=f"the target {name} is at its limit", retry_after=pause)
        try:
            return await self._outcome(begun, asked_at, guard)
        finally:
            gate.leave()

    @watched(lambda names: holder_of(names["begun"]))
    async def _outcome(self, begun: BegunAttempt, asked_at: float, guard: DeadlineGuard) -> Outcome:
        """Call the executor, unless it is too late for that, and at most for the attempt's
        timeout."""
        timeout_s = begun.spec.timeout.total_seconds()
        now = self._clock.monotonic()
        waited_s = now - asked_at
        if (loss := guard.loss()) is not None:  # while it waited for its target
            return ENDED_BEFORE if loss is ENDED else loss
        if waited_s > self._send_within_s or waited_s >= timeout_s:
            return Abandoned()
        effect = begun.spec.action
        executor = self._executors.get(type(effect))
        if executor is None:
            if isinstance(effect, Unreadable):
                return Failed(error=effect.error, retryable=False)
            return Unserved(need_of(effect))
        order = order_of(begun, self._installation, timeout_s - waited_s, guard.is_ending)
        late_s = lateness_of(begun, waited_s)
        self._observer.observe("lateness_seconds", late_s, queue=begun.spec.queue)
        guard.watch(order.timeout_s, order.raised, called_at=now, late_s=late_s)
        try:
            if self._tracing is None:
                return await executor.execute(order)
            return await _traced(self._tracing, executor, order, begun, late_s)
        except asyncio.CancelledError:
            if guard.has_fired():
                return guard.loss() or Failed(error=f"timed out after {timeout_s:g} s")
            if guard.is_cancelled:
                raise
            return Failed(error="cancelled from within: something that it awaited was cancelled")
        finally:
            ended_at = self._clock.monotonic()
            guard.rest(ended_at)
            self._observer.observe("attempt_seconds", ended_at - now, queue=begun.spec.queue)


async def _traced(
    tracing: Tracing,
    executor: Executor,
    order: AttemptRequest,
    begun: BegunAttempt,
    lateness_s: float,
) -> Outcome:
    """Execute it in a span, of which its receiver is told."""
    kind = type(order.effect).__name__.lower()
    with tracing.trace_attempt(begun, kind=kind, lateness_s=lateness_s) as traced:
        outcome = await executor.execute(msgspec.structs.replace(order, carrier=traced.carrier))
        name, error, *_ = _told(outcome)
        traced.finish(name, error)
        return outcome


class DeadlineGuard:
    """Cancels a slot's attempt at its deadline.

    One guard watches many attempts, one after the other, and its timer is set anew only when it
    rings: `asyncio.timeout` sets and clears one for each, which is a third of a quick attempt.
    It knows when the last one was called and ended, by the monotonic clock, and how late it was.
    """

    was_called = False  # whether its executor was
    called_at = ended_at = late_s = 0.0

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task
        self.is_ending = task.cancelling  # whether the attempt was asked to end
        self.boundary = AttemptBoundary[BaseException]((Exception, SystemExit))  # of each attempt
        self._now = task.get_loop().time
        self._call_at = task.get_loop().call_at
        self._deadline: float | None = None  # None: nothing to watch
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf  # as it was set: a loop may round what a timer says of itself
        self._fired = 0  # how often, and not taken back yet
        self._loss: Interrupted | Cancelled | None = None
        self._raised: AttemptError | None = None
        self._error: BaseException | None = None

    def watch(
        self, timeout_s: float, raised: AttemptError | None, *, called_at: float, late_s: float
    ) -> None:
        """An executor is called; it may take this long. `raised`: where its error is put."""
        self.was_called = True
        self.called_at = called_at
        self.late_s = late_s
        self._raised = raised
        self._deadline = deadline = self._now() + timeout_s
        if self._rings_at > deadline:
            self._set_timer(deadline)

    def note_uncalled(self, begun: BegunAttempt, asked_at: float, now: float) -> None:
        """The attempt ended without its executor: it was late until now, and took no time."""
        self.late_s = lateness_of(begun, now - asked_at)
        self.called_at = self.ended_at = now

    def loss(self) -> Interrupted | Cancelled | None:
        """Why the attempt is to end, unless it is the deadline."""
        return self._loss

    def lose(self) -> None:
        """A newer attempt took this one's place: cancel it, or never let it into its executor."""
        self._loss = LOST
        if self._deadline is not None:
            self._deadline = None
            self._fire(LOST.reason)

    def end(self) -> None:
        """Its action was cancelled: ask it to end. Who does not is cancelled at its deadline."""
        if self._loss is None:
            self._loss = ENDED
            if self._deadline is not None:
                self._fire(ASKED_TO_END)

    def rest(self, ended_at: float) -> None:
        """The attempt has ended, perhaps by swallowing this guard's cancellation."""
        self.ended_at = ended_at
        self._deadline = None
        if self._fired:
            self.has_fired()
        raised, self._raised = self._raised, None
        if raised is not None:
            self._error = raised.take()

    def has_fired(self) -> bool:
        """Whether the cancellation that just arrived is this guard's; then it is taken back."""
        if not self._fired:
            return False
        fired, self._fired = self._fired, 0
        return min(self._task.uncancel() for _ in range(fired)) == 0

    def take_error(self) -> BaseException | None:
        """What the attempt raised, if it did; kept here no longer."""
        error, self._error = self._error, None
        return error

    def clear(self) -> None:
        """The next attempt has not lost anything, nor was it called."""
        self._loss = None
        self.was_called = False

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody else cancelled the slot: the shutdown, and nobody besides."""
        return self._task.cancelling() > 0

    def close(self) -> None:
        """The slot ends."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._call_at(when, self._ring)
        self._rings_at = when

    def _ring(self) -> None:
        self._timer = None
        self._rings_at = math.inf
        if self._deadline is None:
            return
        if self._now() < self._deadline:
            self._set_timer(self._deadline)
            return
        self._deadline = None
        self._fire("timed out")

    def _fire(self, reason: str) -> None:
        self._fired += 1
        self._task.cancel(reason)


def holder_of(begun: BegunAttempt) -> Holder:
    """Whom to name if this attempt holds the event loop."""
    name = effect_text(begun.spec.action)
    return Holder(name, f"action {begun.id}, attempt {begun.status.attempts}")


def effect_text(effect: Effect) -> str:
    """`function welcome`, `http`: what people call it."""
    kind = type(effect).__name__.lower()
    return f"function {effect.function}" if isinstance(effect, Python) else kind


def lateness_of(begun: BegunAttempt, waited_s: float) -> float:
    """How late an attempt is that was asked for so long ago. It was asked for before it began: so
    this is a little more than the truth, never less."""
    return (begun.began_at - begun.scheduled_at + begun.waited).total_seconds() + waited_s


def order_of(
    begun: BegunAttempt, installation: UUID, timeout_s: float, is_ending: Callable[[], object]
) -> AttemptRequest:
    """What the executor is told."""
    status = begun.status
    return AttemptRequest(  # by place: by names takes three times as long
        begun.id,
        begun.guid,
        partial(
            delivery_key, installation, begun.id, begun.series or begun.guid, status.occurrence_no
        ),
        begun.attempt_id,
        status.attempts,
        status.occurrence_no,
        status.occurrence_at or begun.scheduled_at,
        begun.deadline,
        timeout_s,
        begun.spec.action,
        is_ending,
    )


def finish_of(begun: BegunAttempt, outcome: Outcome, *, ended_after: timedelta) -> FinishRequest:
    """What is to be recorded. The end is reckoned on the database's clock: begin + duration."""
    now = begun.began_at + begun.waited + ended_after
    verdict = decide(begun.spec, begun.status, outcome, guid=begun.guid, now=now)
    name, error, answer, need = _told(outcome)
    return FinishRequest(  # by place: by names takes half as long again
        begun.shard,
        begun.id,
        begun.guid,
        begun.attempt_id,
        begun.status.attempts,
        begun.status.occurrence_no,
        begun.began_at,
        name,
        verdict,
        error,
        answer,
        now,
        need,
    )


def tell_failure(
    observer: Observer,
    begun: BegunAttempt,
    finish: FinishRequest,
    *,
    took_s: float,
    raised: BaseException | None,
) -> None:
    """An attempt failed; if it was the last one, its action is dead."""
    verdict = finish.verdict
    observer.event(
        "action_dead" if verdict.state is State.DEAD else "attempt_failed",
        effect=holder_of(begun).name,
        action=begun.id,
        attempt_no=begun.status.attempts,
        queue=begun.spec.queue,
        took_s=round(took_s, 3),
        error=finish.error,
        next_at=None if verdict.scheduled_at is None else verdict.scheduled_at.isoformat(),
        exc_info=raised,
    )


def tell_settled(observer: Observer, settle: SettleRequest) -> None:
    """Say so, if a row that nobody finished is dead, or will never be due again."""
    lapsed, verdict = settle.lapsed, settle.verdict
    tell_undecidable(observer, lapsed.id, verdict)
    if verdict.state is State.DEAD:
        observer.event(
            "action_dead",
            effect=effect_text(lapsed.spec.action),
            action=lapsed.id,
            attempt_no=lapsed.status.attempts,
            queue=lapsed.spec.queue,
            error=verdict.reason or settle.reason,
        )


def tell_undecidable(observer: Observer, action: str, verdict: Verdict) -> None:
    """Say so, if this action ended because nobody here can say when it is due next."""
    if verdict.reason is not None and verdict.reason.startswith(UNDECIDABLE):
        observer.event("action_undecidable", action=action, reason=verdict.reason)


def _told(outcome: Outcome) -> tuple[str, str | None, str | None, str]:
    """The outcome's name, its error, its answer and its need, as they are recorded."""
    if type(outcome) is Succeeded:  # the commonest, at a third of a pattern's price
        return "succeeded", None, outcome.answer, ""
    match outcome:
        case Failed(error=error, answer=answer):
            return "failed", error, answer, ""
        case Cancelled(reason=reason):
            return "cancelled", reason, None, ""
        case Interrupted(reason=reason):
            return "interrupted", reason, None, ""
        case Abandoned(reason=reason):
            return "abandoned", reason, None, ""
        case Unserved(need=need):
            return "unserved", None, None, need
        case _:
            raise AssertionError(f"no outcome: {outcome}")
