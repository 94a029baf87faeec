"""Events in the standard logging tree: what a user reads, and how much of it."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from gnomon.telemetry.events import KINDS_MAX, LINES_MAX, EventLog
from tests.unit.worker.surroundings import HandClock

MINUTE_S = 60.0


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def log(clock: HandClock, caplog: pytest.LogCaptureFixture) -> EventLog:
    caplog.set_level(logging.INFO, "gnomon")
    return EventLog(clock)


def fail(log: EventLog, function: str = "welcome", error: Exception | None = None) -> None:
    log.event(
        "attempt_failed", effect=f"function {function}", action="a1", attempt_no=2, queue="mail",
        took_s=0.25, error="ValueError: no", exc_info=error,
    )  # fmt: skip


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.__dict__["event"] for record in caplog.records]


def test_a_failed_attempt_is_a_warning_with_all_that_helps(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    """In the message, as fields, and with the exception itself for Sentry and its kin."""
    error = ValueError("no")
    fail(log, error=error)
    (record,) = caplog.records
    assert ("gnomon.actions", "WARNING") == (record.name, record.levelname)
    assert record.getMessage() == (
        "attempt_failed effect='function welcome' action=a1 attempt_no=2 queue=mail took_s=0.25 "
        "error='ValueError: no'"
    )
    assert "attempt_failed%s" == record.msg
    assert "a1" == record.__dict__["fields"]["action"]
    assert record.exc_info is not None
    assert error is record.exc_info[1]


def test_nothing_is_logged_that_nobody_wants(caplog: pytest.LogCaptureFixture) -> None:
    """A library leaves the level to the application: by default ordinary events are not seen."""
    log = EventLog(HandClock())
    log.event("settled", found=1)
    fail(log)
    assert ["attempt_failed"] == events(caplog)


def test_a_storm_is_a_few_lines_and_a_number(
    log: EventLog, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Each function has its own; what was left out is told when its minute is over."""
    for _ in range(10_000):
        fail(log, "broken")
    fail(log, "rare")
    assert LINES_MAX + 1 == len(caplog.records)

    clock.seconds += MINUTE_S
    log.gauge("event_loop_lag_seconds", 0.0)  # a worker does all the time

    told = caplog.records[-1]
    assert "lines_left_out" == told.__dict__["event"]
    assert f"count={10_000 - LINES_MAX}" in told.getMessage()
    assert "of='function broken'" in told.getMessage()
    fail(log, "broken")
    assert "attempt_failed" == events(caplog)[-1]


def test_names_of_users_do_not_grow_the_limit_for_ever(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond a number they are limited together."""
    for number in range(KINDS_MAX + 5 * LINES_MAX):
        fail(log, f"function-{number}")
    assert KINDS_MAX + LINES_MAX == len(caplog.records)


def test_an_outage_is_a_line_at_its_start_one_a_minute_and_one_at_its_end(
    log: EventLog, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    """However many loops fail how often."""
    for _ in range(600):  # ten minutes, a second each
        for loop in ("pump", "unserved", "leases"):
            log.event("round_failed", loop=loop, error="poll: PostgreSQL did not do it")
        log.event("finish_failed", count=3, error="finish: PostgreSQL did not do it")
        log.event("heartbeat_failed", error="heartbeat: PostgreSQL did not do it")
        log.gauge("event_loop_lag_seconds", 0.0)
        clock.seconds += 1.0
    log.event("heartbeat_resumed")
    log.event("round_failed", loop="pump", error="a straggler")

    assert {"store_away": 10, "store_back": 1} == dict(Counter(events(caplog)))
    first, *_, last = caplog.records
    assert "poll: PostgreSQL did not do it" in first.getMessage()
    assert ("store_back for_s=600.0 failures=3000", "WARNING") == (
        last.getMessage(), last.levelname,
    )  # fmt: skip


def test_an_outage_between_two_heartbeats_ends_when_nothing_fails_any_more(
    log: EventLog, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    """No heartbeat failed, so none says that it is over."""
    log.event("round_failed", loop="pump", error="away")
    clock.seconds += 2.0
    log.event("round_failed", loop="pump", error="away")
    clock.seconds += 30.0
    log.gauge("event_loop_lag_seconds", 0.0)
    assert ["store_away", "store_back"] == events(caplog)
    assert "for_s=2.0" in caplog.records[-1].getMessage()

    clock.seconds += 60.0
    log.event("round_failed", loop="pump", error="away again")
    assert "store_away" == events(caplog)[-1]


def test_text_of_users_stays_on_one_line(log: EventLog, caplog: pytest.LogCaptureFixture) -> None:
    """An id cannot forge a line, whichever handler writes it."""
    log.event("result_held", action="a\nERROR forged\x1b[31m")
    assert caplog.records[0].getMessage().isprintable()
