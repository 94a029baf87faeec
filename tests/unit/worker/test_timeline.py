"""The timeline knows when each lane is due next."""

from __future__ import annotations

from datetime import timedelta

from gnomon.contracts.store import Lane
from gnomon.worker.timeline import Timeline
from tests.unit.worker.surroundings import EPOCH

MAIL = Lane(1, "mail", 5)
URGENT = Lane(1, "mail", 0)
OTHER = Lane(2, "other", 5)


def at(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def test_a_lane_that_is_not_served_is_not_known() -> None:
    """However much is due in it, nobody wakes for it."""
    needed = MAIL._replace(need="function welcome")
    timeline = Timeline(lambda lane: not lane.need)
    timeline.note(needed, EPOCH)
    timeline.replace([1, 2], {needed: EPOCH, OTHER: EPOCH + at(5)})
    assert EPOCH + at(5) == timeline.earliest()
    assert [] == timeline.due(EPOCH + at(1), 0.0)
    assert {OTHER} == set(timeline.lanes())


def test_note_keeps_the_earliest_time() -> None:
    """A later row does not hide an earlier one."""
    timeline = Timeline()
    timeline.note(MAIL, EPOCH + at(5))
    timeline.note(MAIL, EPOCH + at(9))
    assert EPOCH + at(5) == timeline.earliest()
    timeline.note(MAIL, EPOCH + at(2))
    assert EPOCH + at(2) == timeline.earliest()


def test_due_gives_first_priorities_first_then_the_oldest() -> None:
    """Order of begin: priority, then time."""
    timeline = Timeline()
    timeline.note(MAIL, EPOCH)
    timeline.note(OTHER, EPOCH - at(1))
    timeline.note(URGENT, EPOCH + at(1))
    assert [URGENT, OTHER, MAIL] == timeline.due(EPOCH + at(1), 0.0)
    assert [OTHER, MAIL] == timeline.due(EPOCH, 0.0)


def test_settle_with_none_removes_the_lane() -> None:
    """A lane without rows is never due."""
    timeline = Timeline()
    timeline.note(MAIL, EPOCH)
    timeline.settle(MAIL, None)
    assert timeline.earliest() is None
    assert [] == list(timeline.lanes())


def test_a_row_noted_before_the_mark_lowers_the_mark() -> None:
    """`since` never hides a row that is known to be there."""
    timeline = Timeline()
    timeline.settle(MAIL, EPOCH + at(10))
    assert EPOCH + at(10) == timeline.since(MAIL)
    timeline.note(MAIL, EPOCH + at(3))
    assert EPOCH + at(3) == timeline.since(MAIL)


def test_replace_forgets_what_the_survey_does_not_name_in_its_shards_only() -> None:
    """A survey of a shard says everything about that shard and nothing about others."""
    timeline = Timeline()
    timeline.note(MAIL, EPOCH)
    timeline.note(OTHER, EPOCH)
    timeline.replace([1], {URGENT: EPOCH + at(4)})
    assert {URGENT, OTHER} == set(timeline.lanes())


def test_forget_drops_a_lost_shard() -> None:
    """Nothing is begun in a shard that is not held."""
    timeline = Timeline()
    timeline.note(MAIL, EPOCH)
    timeline.note(OTHER, EPOCH)
    timeline.forget(1)
    assert {OTHER} == set(timeline.lanes())


def test_earliest_leaves_out_full_queues() -> None:
    """The pump does not wake for rows it has no slot for."""
    timeline = Timeline()
    timeline.note(MAIL, EPOCH)
    timeline.note(OTHER, EPOCH + at(7))
    assert EPOCH + at(7) == timeline.earliest(closed=frozenset({"mail"}))


def test_answer_does_not_hide_a_row_noted_after_the_question() -> None:
    """A finish recorded while a begin is under way is not forgotten when the begin is answered."""
    timeline = Timeline()
    timeline.note(MAIL, EPOCH)
    asked = timeline.asked()
    timeline.note(MAIL, EPOCH + at(2))
    timeline.settle(MAIL, EPOCH + at(20), asked=asked)
    assert EPOCH + at(2) == timeline.earliest()
    assert EPOCH + at(2) == timeline.since(MAIL)


def test_answer_without_rows_does_not_hide_a_row_noted_after_the_question() -> None:
    """The same for a survey that found the lane empty."""
    timeline = Timeline()
    timeline.note(OTHER, EPOCH + at(1))
    asked = timeline.asked()
    timeline.note(MAIL, EPOCH + at(2))
    timeline.replace([1, 2], {}, asked=asked)
    assert [MAIL] == list(timeline.lanes())


def test_answer_settles_what_was_noted_before_the_question() -> None:
    """What the store was asked about afterwards it knows better."""
    timeline = Timeline()
    timeline.note(MAIL, EPOCH)
    timeline.settle(MAIL, EPOCH + at(20), asked=timeline.asked())
    assert EPOCH + at(20) == timeline.earliest()


def test_many_notes_during_a_question_keep_the_earliest() -> None:
    """However many results come in meanwhile, none is late because of it."""
    timeline = Timeline()
    asked = timeline.asked()
    for second in range(200, 1, -1):
        timeline.note(MAIL, EPOCH + at(second))
    timeline.settle(MAIL, None, asked=asked)
    assert EPOCH + at(2) == timeline.earliest()
