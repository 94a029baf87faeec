"""Who may start next, without a table: the rules of `max`, `live` and `count`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.task import DueTask, GroupKey, Task
from gnomon.model.task.admission import TURN_S, Admission, Slot

A, B = GroupKey("a"), GroupKey("b")


def ids(found: list[tuple[Slot, DueTask]]) -> list[int]:
    return [row.id for _, row in found]


def ended(row: DueTask, key: GroupKey = A) -> Task:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Task(
        id=row.id, key=key, input="", plan=now, start=now, max=row.max, count=row.count,
        live_s=row.live_s, timeout=timedelta(0), save=False, header=True, string=True,
        delimiter="\t", quote="", escape="", null="",
    )  # fmt: skip


def filled(*rows: DueTask, run: int = 50) -> Admission:
    admission = Admission(run)
    admission.fill(A, rows, has_more=False)
    return admission


def test_sessions_of_a_former_owner_count() -> None:
    """A row starts beside at most `max` sessions, whoever opened them."""
    admission = filled(DueTask(1, 1), DueTask(2, 1))
    admission.set_others({A: 2})
    assert [] == ids(list(admission.starts(0)))
    admission.set_others({A: 1})
    assert [1] == ids(list(admission.starts(0)))
    admission.set_others({})
    assert [2] == ids(list(admission.starts(0)))


def test_reuse_does_not_exceed_max() -> None:
    """An overtaker counts against a session that would go on."""
    admission = filled(DueTask(1, 0, count=9), DueTask(2, 0, count=9))
    [(slot, row)] = admission.starts(0)
    admission.fill(A, [DueTask(3, 1), DueTask(2, 0, count=9)], has_more=False)
    [(other, _)] = admission.starts(0)
    assert admission.reuse(slot, ended(row), 0) is None
    admission.end(other)
    found = admission.reuse(slot, ended(row), 0)
    assert found is not None
    assert 2 == found.id


def test_reuse_keeps_to_the_max_of_the_first_task() -> None:
    """3.7: a session that began with max 2 takes no row with a lower one."""
    admission = filled(DueTask(1, 2, count=9), DueTask(2, 2, count=9), DueTask(3, 1, count=9))
    slot, row = next(admission.starts(0))
    found = admission.reuse(slot, ended(row), 0)
    assert found is not None
    assert 2 == found.id
    assert admission.reuse(slot, ended(row), 0) is None


def test_what_was_taken_while_rows_were_read_does_not_come_back() -> None:
    """The answer is older than what happened since the question."""
    rows = [DueTask(1, 5), DueTask(2, 5)]
    admission = filled(*rows)
    admission.asking(A)
    [(slot, _), _] = admission.starts(0)
    admission.release(A, 1)
    admission.end(slot)
    admission.fill(A, [*rows, DueTask(3, 5)], has_more=False)
    assert [3] == ids(list(admission.starts(0)))


def test_group_that_is_over_is_forgotten() -> None:
    """Groups come and go; memory does not grow with them."""
    admission = Admission(50)
    for number in range(100):
        key = GroupKey(f"g{number}")
        admission.fill(key, [DueTask(number, 0)], has_more=False)
        [(slot, row)] = admission.starts(0)
        admission.release(key, row.id)
        admission.end(slot)
    assert 0 == admission.waiting_count
    assert {} == admission._groups
    assert {} == admission._turns


def test_group_that_cannot_start_does_not_end_reuse() -> None:
    """Only a group that could use the slot gets it."""
    admission = Admission(2)
    admission.fill(B, [DueTask(9, 0), DueTask(10, 0)], has_more=False)
    admission.fill(A, [DueTask(1, 0, count=9), DueTask(2, 0, count=9)], has_more=False)
    [_, (slot, row)] = admission.starts(0)
    found = admission.reuse(slot, ended(row), TURN_S)
    assert found is not None
    assert 2 == found.id


rows_of = st.lists(
    st.builds(
        DueTask,
        id=st.integers(1, 10_000),
        max=st.integers(-2, 3),
        count=st.integers(0, 3),
        live_s=st.sampled_from([0.0, 2.0]),
    ),
    max_size=20,
    unique_by=lambda row: row.id,
)


@given(rows=rows_of, others=rows_of, run=st.integers(1, 6), choices=st.data())
def test_no_rule_is_ever_broken(
    rows: list[DueTask], others: list[DueTask], run: int, choices: st.DataObject
) -> None:
    """Whatever ends when: never more than `max` beside, never more than `run`, each row once."""
    admission = Admission(run)
    for key, waiting in ((A, rows), (B, others)):
        ordered = sorted(waiting, key=lambda row: (-row.allowed_beside, row.id))
        admission.fill(key, ordered, has_more=False)
    running: list[tuple[Slot, DueTask]] = []
    seen: list[tuple[GroupKey, int]] = []
    now = 0.0
    while True:
        for slot, row in admission.starts(now):
            beside = sum(other.key == slot.key for other, _ in running)
            assert beside <= row.allowed_beside
            running.append((slot, row))
            seen.append((slot.key, row.id))
        assert len(running) <= run
        if not running:
            break
        now += choices.draw(st.sampled_from([0.1, 1.5]))
        slot, row = running.pop(choices.draw(st.integers(0, len(running) - 1)))
        slot.done += 1
        following = admission.reuse(slot, ended(row, slot.key), now)
        admission.release(slot.key, row.id)
        if following is None:
            admission.end(slot)
            continue
        assert sum(other.key == slot.key for other, _ in running) <= following.allowed_beside
        running.append((slot, following))
        seen.append((slot.key, following.id))
    expected = [(A, row.id) for row in rows] + [(B, row.id) for row in others]
    assert sorted(expected) == sorted(seen)
