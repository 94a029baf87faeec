"""Lanes in doubt are looked at again after a growing moment."""

from __future__ import annotations

import pytest

from gnomon.contracts.store import Lane
from gnomon.worker.lane_rechecks import SPELL_FIRST_S, SPELL_MAX_S, LaneRechecks
from gnomon.worker.timeline import Timeline
from tests.unit.worker.surroundings import EPOCH
from tests.unit.worker.test_timeline import MAIL, OTHER, URGENT, at


def next_s(doubts: LaneRechecks) -> float | None:
    return doubts.next_s(closed=frozenset(), shards={1, 2})


def test_each_look_in_vain_doubles_the_wait_up_to_its_limit() -> None:
    """However long a row is held, it is found within a second, and asked for once a second."""
    doubts, now_s, waits = LaneRechecks(), 0.0, []
    for _ in range(8):
        doubts.put(MAIL, EPOCH, now_s)
        look_s = next_s(doubts)
        assert look_s is not None
        waits.append(look_s - now_s)
        now_s = look_s
    assert [SPELL_FIRST_S * 2**turn for turn in range(5)] == pytest.approx(waits[:5])
    assert [SPELL_MAX_S] * 3 == pytest.approx(waits[5:])


def test_what_is_passed_over_before_the_look_neither_hastens_nor_delays_it() -> None:
    """The earliest row counts, and the look comes when it was to come."""
    doubts = LaneRechecks()
    doubts.put(MAIL, EPOCH + at(2), 0.0)
    doubts.put(MAIL, EPOCH, SPELL_FIRST_S / 2)
    doubts.put(MAIL, EPOCH + at(5), SPELL_FIRST_S / 2)
    assert EPOCH == doubts.place(MAIL)
    assert SPELL_FIRST_S == next_s(doubts)


def test_a_look_at_a_part_goes_on_soon_and_then_begins_at_the_floor() -> None:
    """However many rows cannot be begun, those between them are come to, and none is forgotten."""
    doubts = LaneRechecks()
    doubts.put(MAIL, EPOCH, 0.0, reached=EPOCH + at(1))
    assert EPOCH + at(1) == doubts.place(MAIL)
    doubts.put(MAIL, EPOCH + at(1), 1.0, reached=EPOCH + at(2))
    assert (EPOCH + at(2), 1.0 + SPELL_FIRST_S) == (doubts.place(MAIL), next_s(doubts))
    doubts.put(MAIL, EPOCH + at(2), 2.0)
    assert (EPOCH, 2.0 + 2 * SPELL_FIRST_S) == (doubts.place(MAIL), next_s(doubts))
    assert doubts.covers(MAIL, EPOCH)


def test_a_look_that_ends_in_the_open_begins_at_the_floor_again() -> None:
    """What it found clear was a part: the rows before it are still in question."""
    doubts = LaneRechecks()
    doubts.put(MAIL, EPOCH, 0.0, reached=EPOCH + at(1))
    doubts.end(MAIL, 1.0)
    assert EPOCH == doubts.place(MAIL)
    doubts.end(MAIL, 9.0)
    assert MAIL not in doubts


def test_a_lane_that_is_cleared_begins_anew() -> None:
    """Success ends the waiting: the next locked row is looked at soon again."""
    doubts = LaneRechecks()
    doubts.put(MAIL, EPOCH, 0.0)
    doubts.put(MAIL, EPOCH, 1.0)
    doubts.clear(MAIL)
    assert next_s(doubts) is None
    doubts.put(MAIL, EPOCH, 2.0)
    assert 2.0 + SPELL_FIRST_S == next_s(doubts)


def test_what_was_done_in_a_shard_hastens_its_lanes_only() -> None:
    """After a settlement its rows may begin at once."""
    doubts = LaneRechecks()
    doubts.put(MAIL, EPOCH, 0.0)
    doubts.put(OTHER, EPOCH, 0.0)
    doubts.hurry({OTHER.shard}, 0.01)
    assert doubts.is_due(OTHER, 0.01)
    assert not doubts.is_due(MAIL, 0.01)


def test_full_queues_and_foreign_shards_are_not_waited_for() -> None:
    """The pump does not wake for what it could not begin."""
    doubts = LaneRechecks()
    doubts.put(MAIL, EPOCH, 0.0)
    assert doubts.next_s(closed=frozenset({"mail"}), shards={1}) is None
    assert doubts.next_s(closed=frozenset(), shards={2}) is None


def test_a_lane_in_doubt_is_due_when_its_look_is() -> None:
    """In its priority's place, whether or not it has other rows."""
    timeline = Timeline()
    timeline.note(MAIL, EPOCH)
    timeline.doubts.put(URGENT, EPOCH - at(9), 0.0)
    assert [MAIL] == timeline.due(EPOCH, 0.0)
    assert [URGENT, MAIL] == timeline.due(EPOCH, SPELL_FIRST_S)


def test_a_survey_that_sees_a_row_passed_over_does_not_make_its_lane_due() -> None:
    """Otherwise every survey would ask for the locked row again."""
    timeline = Timeline()
    timeline.settle(MAIL, EPOCH + at(60))
    timeline.doubts.put(MAIL, EPOCH, 0.0)
    timeline.replace([1], {MAIL: EPOCH})
    assert [] == timeline.due(EPOCH + at(1), 0.0)
    assert EPOCH + at(60) == timeline.since(MAIL)


@pytest.mark.parametrize("found", [{}, {MAIL: EPOCH + at(60)}])
def test_a_survey_that_sees_none_ends_the_doubt(found: dict[Lane, object]) -> None:
    """The row is gone, or was begun by another."""
    timeline = Timeline()
    timeline.settle(MAIL, EPOCH + at(60))
    timeline.doubts.put(MAIL, EPOCH, 0.0)
    timeline.replace([1], found)  # type: ignore[arg-type]
    assert MAIL not in timeline.doubts


def test_a_lost_shard_is_not_looked_at() -> None:
    """Nothing is asked about a shard that is not held."""
    timeline = Timeline()
    timeline.doubts.put(MAIL, EPOCH, 0.0)
    timeline.doubts.put(OTHER, EPOCH, 0.0)
    timeline.forget(MAIL.shard)
    assert [OTHER] == list(timeline.lanes())


LOW = Lane(1, "mail", 9)


def test_a_look_leaves_room_for_the_next_priority() -> None:
    """However slow the store is, lower priorities are begun beside the looks at a locked row."""
    doubts = LaneRechecks()
    doubts.put(URGENT, EPOCH, 0.0)
    assert [URGENT, MAIL] == doubts.first([URGENT, MAIL, LOW], 10, 1.0)
    assert [URGENT] == doubts.first([URGENT], 10, 1.0)


def test_what_is_sure_to_be_due_comes_before_lower_priorities() -> None:
    """A lane of the first priority that is not in doubt keeps its rank."""
    doubts, other = LaneRechecks(), Lane(2, "mail", 0)
    doubts.put(URGENT, EPOCH, 0.0)
    assert [URGENT, other] == doubts.first([URGENT, other, MAIL], 10, 1.0)


def test_a_lane_that_is_looked_at_does_not_wait_for_the_look_at_another() -> None:
    """It may have due rows beside the one that is held: seed 953 of the simulation."""
    doubts = LaneRechecks()
    doubts.put(URGENT, EPOCH, 0.0)
    doubts.put(MAIL, EPOCH, 0.0)
    assert [URGENT, MAIL] == doubts.first([URGENT, MAIL], 10, 1.0)
    assert [URGENT, MAIL, LOW] == doubts.first([URGENT, MAIL, LOW], 10, 1.0)


def test_a_look_begins_no_later_than_what_is_known_to_be_due() -> None:
    """Its answer replaces what was known of the lane: seed 3330 of the simulation."""
    timeline = Timeline()
    timeline.doubts.put(MAIL, EPOCH + at(5), 0.0)
    timeline.note(MAIL, EPOCH + at(1))
    assert EPOCH + at(1) == timeline.doubts.place(MAIL)
