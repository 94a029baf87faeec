"""Lanes in doubt are looked at again after a growing moment."""

from __future__ import annotations

import pytest

from gnomon.contracts.store import Lane
from gnomon.worker.lane_rechecks import SPELL_FIRST_S, SPELL_MAX_S, LaneRechecks
from gnomon.worker.timeline import Timeline
from tests.unit.worker.surroundings import EPOCH
from tests.unit.worker.test_timeline import MAIL, OTHER, URGENT, at


def next_s(rechecks: LaneRechecks) -> float | None:
    return rechecks.next_s(closed=frozenset(), shards={1, 2})


def test_each_look_in_vain_doubles_the_wait_up_to_its_limit() -> None:
    """However long a row is held, it is found within a second, and asked for once a second."""
    rechecks, now_s, waits = LaneRechecks(), 0.0, []
    for _ in range(8):
        rechecks.put(MAIL, EPOCH, now_s)
        look_s = next_s(rechecks)
        assert look_s is not None
        waits.append(look_s - now_s)
        now_s = look_s
    assert [SPELL_FIRST_S * 2**turn for turn in range(5)] == pytest.approx(waits[:5])
    assert [SPELL_MAX_S] * 3 == pytest.approx(waits[5:])


def test_what_is_passed_over_before_the_look_neither_hastens_nor_delays_it() -> None:
    """The earliest row counts, and the look comes when it was to come."""
    rechecks = LaneRechecks()
    rechecks.put(MAIL, EPOCH + at(2), 0.0)
    rechecks.put(MAIL, EPOCH, SPELL_FIRST_S / 2)
    rechecks.put(MAIL, EPOCH + at(5), SPELL_FIRST_S / 2)
    assert EPOCH == rechecks.place(MAIL)
    assert SPELL_FIRST_S == next_s(rechecks)


def test_a_look_at_a_part_goes_on_soon_and_then_begins_at_the_floor() -> None:
    """However many rows cannot be begun, those between them are come to, and none is forgotten."""
    rechecks = LaneRechecks()
    rechecks.put(MAIL, EPOCH, 0.0, reached=EPOCH + at(1))
    assert EPOCH + at(1) == rechecks.place(MAIL)
    rechecks.put(MAIL, EPOCH + at(1), 1.0, reached=EPOCH + at(2))
    assert (EPOCH + at(2), 1.0 + SPELL_FIRST_S) == (rechecks.place(MAIL), next_s(rechecks))
    rechecks.put(MAIL, EPOCH + at(2), 2.0)
    assert (EPOCH, 2.0 + 2 * SPELL_FIRST_S) == (rechecks.place(MAIL), next_s(rechecks))
    assert rechecks.covers(MAIL, EPOCH)


def test_a_look_that_ends_in_the_open_begins_at_the_floor_again() -> None:
    """What it found clear was a part: the rows before it are still in question."""
    rechecks = LaneRechecks()
    rechecks.put(MAIL, EPOCH, 0.0, reached=EPOCH + at(1))
    rechecks.end(MAIL, 1.0)
    assert EPOCH == rechecks.place(MAIL)
    rechecks.end(MAIL, 9.0)
    assert MAIL not in rechecks


def test_a_lane_that_is_cleared_begins_anew() -> None:
    """Success ends the waiting: the next locked row is looked at soon again."""
    rechecks = LaneRechecks()
    rechecks.put(MAIL, EPOCH, 0.0)
    rechecks.put(MAIL, EPOCH, 1.0)
    rechecks.clear(MAIL)
    assert next_s(rechecks) is None
    rechecks.put(MAIL, EPOCH, 2.0)
    assert 2.0 + SPELL_FIRST_S == next_s(rechecks)


def test_what_was_done_in_a_shard_hastens_its_lanes_only() -> None:
    """After a settlement its rows may begin at once."""
    rechecks = LaneRechecks()
    rechecks.put(MAIL, EPOCH, 0.0)
    rechecks.put(OTHER, EPOCH, 0.0)
    rechecks.hurry({OTHER.shard}, 0.01)
    assert rechecks.is_due(OTHER, 0.01)
    assert not rechecks.is_due(MAIL, 0.01)


def test_full_queues_and_foreign_shards_are_not_waited_for() -> None:
    """The pump does not wake for what it could not begin."""
    rechecks = LaneRechecks()
    rechecks.put(MAIL, EPOCH, 0.0)
    assert rechecks.next_s(closed=frozenset({"mail"}), shards={1}) is None
    assert rechecks.next_s(closed=frozenset(), shards={2}) is None


def test_a_lane_in_doubt_is_due_when_its_look_is() -> None:
    """In its priority's place, whether or not it has other rows."""
    timeline = Timeline()
    timeline.note(MAIL, EPOCH)
    timeline.rechecks.put(URGENT, EPOCH - at(9), 0.0)
    assert [MAIL] == timeline.due(EPOCH, 0.0)
    assert [URGENT, MAIL] == timeline.due(EPOCH, SPELL_FIRST_S)


def test_a_survey_that_sees_a_row_passed_over_does_not_make_its_lane_due() -> None:
    """Otherwise every survey would ask for the locked row again."""
    timeline = Timeline()
    timeline.settle(MAIL, EPOCH + at(60))
    timeline.rechecks.put(MAIL, EPOCH, 0.0)
    timeline.replace([1], {MAIL: EPOCH})
    assert [] == timeline.due(EPOCH + at(1), 0.0)
    assert EPOCH + at(60) == timeline.since(MAIL)


@pytest.mark.parametrize("found", [{}, {MAIL: EPOCH + at(60)}])
def test_a_survey_that_sees_none_ends_the_doubt(found: dict[Lane, object]) -> None:
    """The row is gone, or was begun by another."""
    timeline = Timeline()
    timeline.settle(MAIL, EPOCH + at(60))
    timeline.rechecks.put(MAIL, EPOCH, 0.0)
    timeline.replace([1], found)  # type: ignore[arg-type]
    assert MAIL not in timeline.rechecks


def test_a_lost_shard_is_not_looked_at() -> None:
    """Nothing is asked about a shard that is not held."""
    timeline = Timeline()
    timeline.rechecks.put(MAIL, EPOCH, 0.0)
    timeline.rechecks.put(OTHER, EPOCH, 0.0)
    timeline.forget(MAIL.shard)
    assert [OTHER] == list(timeline.lanes())


LOW = Lane(1, "mail", 9)


def test_a_look_leaves_room_for_the_next_priority() -> None:
    """However slow the store is, lower priorities are begun beside the looks at a locked row."""
    rechecks = LaneRechecks()
    rechecks.put(URGENT, EPOCH, 0.0)
    assert [URGENT, MAIL] == rechecks.first([URGENT, MAIL, LOW], 10, 1.0)
    assert [URGENT] == rechecks.first([URGENT], 10, 1.0)


def test_what_is_sure_to_be_due_comes_before_lower_priorities() -> None:
    """A lane of the first priority that is not in doubt keeps its rank."""
    rechecks, other = LaneRechecks(), Lane(2, "mail", 0)
    rechecks.put(URGENT, EPOCH, 0.0)
    assert [URGENT, other] == rechecks.first([URGENT, other, MAIL], 10, 1.0)


def test_a_lane_that_is_looked_at_does_not_wait_for_the_look_at_another() -> None:
    """It may have due rows beside the one that is held: seed 953 of the simulation."""
    rechecks = LaneRechecks()
    rechecks.put(URGENT, EPOCH, 0.0)
    rechecks.put(MAIL, EPOCH, 0.0)
    assert [URGENT, MAIL] == rechecks.first([URGENT, MAIL], 10, 1.0)
    assert [URGENT, MAIL, LOW] == rechecks.first([URGENT, MAIL, LOW], 10, 1.0)


def test_a_look_begins_no_later_than_what_is_known_to_be_due() -> None:
    """Its answer replaces what was known of the lane: seed 3330 of the simulation."""
    timeline = Timeline()
    timeline.rechecks.put(MAIL, EPOCH + at(5), 0.0)
    timeline.note(MAIL, EPOCH + at(1))
    assert EPOCH + at(1) == timeline.rechecks.place(MAIL)
