"""One attempt, from the right to execute to the result that is to be recorded.

Nothing is sent without a `BegunAttempt`, and not even with one once its time is over: the last look
at the monotonic clock is directly before the executor is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from uuid import UUID

from gnomon.contracts.env import Env
from gnomon.contracts.executor import AttemptRequest, Executor
from gnomon.contracts.observer import Observer
from gnomon.contracts.store import BegunAttempt, FinishRequest
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.ids import delivery_key
from gnomon.model.outcome import (
    Abandoned,
    Cancelled,
    Failed,
    Interrupted,
    Outcome,
    Succeeded,
    cut,
)
from gnomon.model.spec import Effect, Python, Unreadable
from gnomon.model.transition import UNDECIDABLE, Verdict, decide
from gnomon.telemetry.watchdog import Holder, watched
from gnomon.worker.gates import TargetGate

PATIENCE_S = 2.0  # so long an attempt waits before a target that is at its limit
LOST = Interrupted(reason="another worker took over", planned=True)
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
        self._send_within_s = send_within.total_seconds()

    def is_too_late(self, asked_at: float, now: float) -> bool:
        """Whether nothing may be sent any more for a begin that was asked for then."""
        return now - asked_at > self._send_within_s

    async def perform(
        self, begun: BegunAttempt, asked_at: float, guard: DeadlineGuard
    ) -> FinishRequest:
        """Execute the attempt. `asked_at`: the monotonic time at which its begin was asked for."""
        gate = self._gates.get(getattr(begun.spec.action, "target", "")) if self._gates else None
        outcome: Outcome
        with AttemptBoundary((Exception, SystemExit)) as attempt:  # some bug
            if gate is None:
                outcome = await self._outcome(begun, asked_at, guard)
            else:
                outcome = await self._outcome_within(gate, begun, asked_at, guard)
        if attempt.error is not None:
            self._observer.event("executor_raised", action=begun.id, error=repr(attempt.error))
            outcome = Failed(error=cut(f"{type(attempt.error).__name__}: {attempt.error}"))
        elapsed = timedelta(seconds=self._clock.monotonic() - asked_at)
        return finish_of(begun, outcome, ended_after=elapsed)

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
        waited_s = self._clock.monotonic() - asked_at
        if waited_s > self._send_within_s or waited_s >= timeout_s:
            return Abandoned()
        if isinstance(begun.spec.action, Unreadable):
            return Failed(error=begun.spec.action.error, retryable=False)
        executor = self._executors.get(type(begun.spec.action))
        if executor is None:
            kind = type(begun.spec.action).__name__.lower()
            return Failed(error=f"this worker has no {kind} executor")
        order = order_of(begun, self._installation, timeout_s - waited_s)
        queue = begun.spec.queue
        # It was asked for before it began: so this is a little more than the truth, never less.
        lateness_s = (begun.began_at - begun.scheduled_at).total_seconds() + waited_s
        self._observer.observe("lateness_seconds", lateness_s, queue=queue)
        guard.watch(order.timeout_s)
        started = self._clock.monotonic()
        try:
            return await executor.execute(order)
        except asyncio.CancelledError:
            if guard.has_fired():
                return guard.loss or Failed(error=f"timed out after {timeout_s:g} s")
            if guard.is_cancelled:
                raise
            return Failed(error="cancelled from within: something that it awaited was cancelled")
        finally:
            guard.rest()
            took_s = self._clock.monotonic() - started
            self._observer.observe("attempt_seconds", took_s, queue=queue)


class DeadlineGuard:
    """Cancels a slot's attempt at its deadline.

    One guard watches many attempts, one after the other, and its timer is set anew only when it
    rings: `asyncio.timeout` sets and clears one for each, which is a third of a quick attempt.
    """

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task
        self._loop = task.get_loop()
        self._deadline: float | None = None  # None: nothing to watch
        self._timer: asyncio.TimerHandle | None = None
        self._fired = False
        self.loss: Interrupted | None = None  # why, unless it is the deadline

    def watch(self, timeout_s: float) -> None:
        """An attempt starts; it may take this long."""
        self.loss = None
        self._deadline = deadline = self._loop.time() + timeout_s
        if self._timer is None or self._timer.when() > deadline:
            self._set_timer(deadline)

    def lose(self) -> None:
        """A newer attempt took this one's place: cancel it, if it is in the executor."""
        if self._deadline is not None:
            self.loss = LOST
            self._fire()

    def rest(self) -> None:
        """The attempt has ended, perhaps by swallowing this guard's cancellation."""
        self._deadline = None
        self.has_fired()

    def has_fired(self) -> bool:
        """Whether the cancellation that just arrived is this guard's; then it is taken back."""
        if not self._fired:
            return False
        self._fired = False
        return self._task.uncancel() == 0

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
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._set_timer(self._deadline)
            return
        self._fire()

    def _fire(self) -> None:
        self._deadline = None
        self._fired = True
        self._task.cancel()


def holder_of(begun: BegunAttempt) -> Holder:
    """Whom to name if this attempt holds the event loop."""
    effect = begun.spec.action
    kind = type(effect).__name__.lower()
    name = f"function {effect.function}" if isinstance(effect, Python) else kind
    return Holder(name, f"action {begun.id}, attempt {begun.status.attempts}")


def order_of(begun: BegunAttempt, installation: UUID, timeout_s: float) -> AttemptRequest:
    """What the executor is told."""
    status = begun.status
    return AttemptRequest(
        id=begun.id,
        guid=begun.guid,
        key_of=partial(
            delivery_key, installation, begun.id, begun.series or begun.guid, status.occurrence_no
        ),
        attempt_id=begun.attempt_id,
        attempt_no=status.attempts,
        occurrence_no=status.occurrence_no,
        scheduled_at=status.occurrence_at or begun.scheduled_at,
        deadline=begun.deadline,
        timeout_s=timeout_s,
        effect=begun.spec.action,
    )


def finish_of(begun: BegunAttempt, outcome: Outcome, *, ended_after: timedelta) -> FinishRequest:
    """What is to be recorded. The end is reckoned on the database's clock: begin + duration."""
    now = begun.began_at + ended_after
    verdict = decide(begun.spec, begun.status, outcome, guid=begun.guid, now=now)
    name, error, answer = _told(outcome)
    return FinishRequest(
        shard=begun.shard,
        id=begun.id,
        guid=begun.guid,
        attempt_id=begun.attempt_id,
        attempt_no=begun.status.attempts,
        occurrence_no=begun.status.occurrence_no,
        began_at=begun.began_at,
        outcome=name,
        verdict=verdict,
        error=error,
        answer=answer,
        ended_at=now,
    )


def tell_undecidable(observer: Observer, action: str, verdict: Verdict) -> None:
    """Say so, if this action ended because nobody here can say when it is due next."""
    if verdict.reason is not None and verdict.reason.startswith(UNDECIDABLE):
        observer.event("action_undecidable", action=action, reason=verdict.reason)


def _told(outcome: Outcome) -> tuple[str, str | None, str | None]:
    """The outcome's name, its error and its answer, as they are recorded."""
    match outcome:
        case Succeeded(answer=answer):
            return "succeeded", None, answer
        case Failed(error=error, answer=answer):
            return "failed", error, answer
        case Cancelled(reason=reason):
            return "cancelled", reason, None
        case Interrupted(reason=reason):
            return "interrupted", reason, None
        case Abandoned(reason=reason):
            return "abandoned", reason, None
