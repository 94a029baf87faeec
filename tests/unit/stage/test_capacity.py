"""The room of a stage in one process."""

from __future__ import annotations

from gnomon.model.stage.graph import Reach
from gnomon.stages.capacity import Capacity
from gnomon.stages.stage_info import StageInfo


def capacity(parallel: int = 2) -> Capacity:
    return Capacity(StageInfo(name="s", reach=Reach("ad", (), ()), parallel=parallel))


def test_a_full_stage_has_no_room_but_is_open() -> None:
    """Who waits for it will not wait long."""
    full = capacity()
    full.began(1, 0.0)
    full.began(1, 0.0)
    assert (0, True) == (full.free(0.0), full.is_open(0.0))


def test_a_stage_that_is_away_or_may_not_work_is_not_open() -> None:
    """Nobody waits for it."""
    away = capacity()
    pause_s = away.was_away(0.0)
    assert not away.is_open(pause_s / 2)
    assert away.is_open(pause_s)
    denied = capacity()
    denied.granted, denied.granted_until = 0, 10.0
    assert not denied.is_open(0.0)
    expired = capacity()
    expired.granted, expired.granted_until = 2, 10.0
    assert (True, False) == (expired.is_open(9.0), expired.is_open(10.0))


def test_one_call_finds_out_whether_a_stage_is_back() -> None:
    """After an outage its room is one call, until that went well."""
    back = capacity(parallel=8)
    pause_s = back.was_away(0.0)
    assert (0, 1) == (back.free(0.0), back.free(pause_s))
    back.went_well()
    assert 8 == back.free(pause_s)


def test_calls_that_failed_together_are_one_outage() -> None:
    """The pause grows with outages, not with the calls that were on their way."""
    together = capacity()
    first = together.was_away(0.0)
    for _ in range(2_000):
        together.was_away(0.0)
    assert first == together.paused_until
    assert 2 * first == together.was_away(first)


def test_a_rate_set_later_owes_nothing_for_what_ran_without_one() -> None:
    """Else a busy stage would stand still for hours when it gets a limit."""
    busy = capacity()
    for _ in range(1_000):
        busy.began(100, 0.0)
        busy.ended()
    busy.rate_limit = 10.0
    assert 1 == busy.free(100.0)


def test_a_rate_counts_entities_and_says_when_there_is_room_again() -> None:
    """By the part of the installation's shards that this process holds."""
    limited = capacity()
    limited.rate_limit, limited.share = 10.0, 0.5
    assert (1, 100.0) == (limited.free(100.0), limited.next_at(100.0))
    limited.began(1, 0.0)
    assert (0, 100.2) == (limited.free(100.0), limited.next_at(100.0))
    limited.ended()
    assert 1 == limited.free(100.2)
