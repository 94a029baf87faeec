"""Which transactions may yet bring rows behind the marks, and how far back to look."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from gnomon.contracts.store import HeldShard, MoveResult, OpenTransactions, PollResult
from gnomon.worker.late_commits import EARLIEST, MARGIN, SPANS_MAX, LateCommits, ShardsToRescan
from tests.unit.worker.surroundings import EPOCH
from tests.unit.worker.test_timeline import at


def poll(second: float, *ids: int, start: int = 100, stop: int | None = None) -> PollResult:
    """A snapshot: everything below `start` that is not named has ended."""
    found = OpenTransactions(ids=ids, start=start, stop=start if stop is None else stop)
    return PollResult(shards=(), now=EPOCH + at(second), open=found)


def holding(shard: int, mark_s: float) -> HeldShard:
    return HeldShard(shard=shard, lease_guid=UUID(int=1), incoming_mark=EPOCH + at(mark_s))


def moved(marks: dict[int, datetime], *, more: bool = False) -> MoveResult:
    return MoveResult(count=1, lanes={}, marks=marks, more=more, now=EPOCH)


class TestLateCommits:
    """Transactions, poll by poll."""

    def test_an_open_transaction_is_nobody_to_look_for(self) -> None:
        """What it wrote cannot be seen yet."""
        late_commits = LateCommits()
        late_commits.observe(poll(0))
        polls = [poll(second, 100, start=101) for second in (1, 2, 3)]
        assert [None] * 3 == [late_commits.observe(each) for each in polls]

    def test_one_that_is_over_wrote_nothing_before_its_number_was_given_out(self) -> None:
        """So it is looked for from there on, once."""
        late_commits = LateCommits()
        late_commits.observe(poll(0))
        late_commits.observe(poll(1))
        late_commits.observe(poll(2, 100, start=102))
        late_commits.observe(poll(60, 100, start=102))
        assert EPOCH + at(1) == late_commits.observe(poll(61, start=102))
        assert late_commits.observe(poll(62, start=102)) is None

    def test_one_that_no_snapshot_lists_is_known_by_its_number(self) -> None:
        """Where nothing newer has ended, a snapshot does not list what is open."""
        late_commits = LateCommits()
        late_commits.observe(poll(0))
        for second in range(1, 9):
            assert late_commits.observe(poll(second, start=100, stop=101)) is None
        assert EPOCH == late_commits.observe(poll(9, start=101, stop=101))

    def test_listed_late_it_is_as_old_as_its_number(self) -> None:
        """It was open before the snapshot came to list it."""
        late_commits = LateCommits()
        late_commits.observe(poll(0))
        late_commits.observe(poll(1, start=100, stop=101))
        late_commits.observe(poll(5, 100, start=110))
        assert EPOCH == late_commits.observe(poll(9, start=110))

    def test_of_several_that_are_over_the_oldest_counts(self) -> None:
        """One look finds all of them."""
        late_commits = LateCommits()
        for second, ids in enumerate([(), (100,), (100, 101), (100, 101, 102)]):
            late_commits.observe(poll(second, *ids, start=100 + len(ids)))
        assert EPOCH + at(0) == late_commits.observe(poll(4, 102, start=103))
        assert EPOCH + at(2) == late_commits.observe(poll(5, start=103))

    def test_what_is_older_than_the_first_poll_may_be_of_any_age(self) -> None:
        """A worker that has just started does not know how long others have been writing."""
        for first in (poll(0, 99), poll(0, start=99, stop=100)):
            late_commits = LateCommits()
            assert late_commits.observe(first) is None
            assert EARLIEST == late_commits.observe(poll(1))

    def test_after_the_clock_was_set_back_its_rows_may_be_of_the_new_time(self) -> None:
        """An hour earlier, for a transaction that writes before and after."""
        late_commits = LateCommits()
        late_commits.observe(poll(3600))
        late_commits.observe(poll(3601, 100, start=101))
        late_commits.observe(poll(0, 100, 101, start=102))
        assert EPOCH - MARGIN == late_commits.observe(poll(1, 101, start=102))
        assert EPOCH - MARGIN == late_commits.observe(poll(2, start=102))

    def test_what_was_written_between_the_step_back_and_the_next_poll_is_looked_for(self) -> None:
        """The mark stands between the clock's new time and the poll that first shows it."""
        late_commits, back = LateCommits(), ShardsToRescan()
        late_commits.observe(poll(10))
        late_commits.observe(poll(6, 100, start=101))  # set back to 4.5; it wrote at 4.6
        since = late_commits.observe(poll(20, start=101))
        assert since is not None
        assert [1] == back.ask([holding(1, 5)], since)

    def test_numbers_that_went_back_are_those_of_another_server(self) -> None:
        """After a restore nothing is known of its transactions: everything is looked at."""
        late_commits = LateCommits()
        late_commits.observe(poll(0))
        assert EARLIEST == late_commits.observe(poll(1, start=50))
        assert EPOCH + at(1) == late_commits.observe(poll(2, start=51))

    def test_very_many_numbers_take_little_memory(self) -> None:
        """A loop of a million savepoints gives out a million numbers."""
        late_commits = LateCommits()
        late_commits.observe(poll(0))
        for second in range(1, 1000):
            late_commits.observe(poll(second, start=100, stop=100 + second * 1000))
        assert f"LateCommits(0 open, {SPANS_MAX} spans)" == repr(late_commits)
        assert EPOCH == late_commits.observe(poll(1000, start=2_000_000))

    def test_an_engine_that_cannot_tell_is_left_to_the_full_look(self) -> None:
        """Nothing is made up about it."""
        late_commits = LateCommits()
        unknown = PollResult(shards=(), now=EPOCH, open=None)
        assert [None, None] == [late_commits.observe(unknown), late_commits.observe(unknown)]
        assert EPOCH + at(9) == late_commits.bound(EPOCH + at(9))

    def test_no_mark_passes_the_last_poll(self) -> None:
        """A transaction that came and went since then is known to nobody."""
        late_commits = LateCommits()
        late_commits.observe(poll(5))
        assert EPOCH + at(5) == late_commits.bound(EPOCH + at(9))
        assert EPOCH + at(3) == late_commits.bound(EPOCH + at(3))


class TestLookBack:
    """Shards, look by look."""

    def test_only_marks_that_passed_the_moment_are_lowered(self) -> None:
        """A short transaction costs nothing: no mark has come to it."""
        back = ShardsToRescan()
        held = [holding(1, 10), holding(2, 3), HeldShard(shard=3, lease_guid=UUID(int=1))]
        assert [1] == back.ask(held, EPOCH + at(5))
        lowered = [back.lowered(each).incoming_mark for each in held]
        assert [EPOCH + at(5) - MARGIN, EPOCH + at(3), None] == lowered

    def test_two_reasons_to_look_back_make_one_look_from_the_earlier(self) -> None:
        back = ShardsToRescan()
        for second in (5, 2, 7):
            back.ask([holding(1, 10)], EPOCH + at(second))
        assert EPOCH + at(2) - MARGIN == back.lowered(holding(1, 10)).incoming_mark

    def test_a_look_that_found_everything_is_over(self) -> None:
        """The mark is the move's, as always."""
        back, held = ShardsToRescan(), holding(1, 10)
        back.ask([held], EPOCH)
        assert {1: EPOCH + at(11)} == back.noted([held], moved({1: EPOCH + at(11)}))
        assert held == back.lowered(held)

    def test_a_look_that_found_nothing_is_over_too(self) -> None:
        """Also when other shards have more."""
        back, held = ShardsToRescan(), holding(1, 10)
        back.ask([held], EPOCH)
        assert {} == back.noted([held], moved({}, more=True))
        assert held == back.lowered(held)

    def test_a_look_that_was_full_goes_on_where_it_ended(self) -> None:
        """Not from the beginning, and without the shard's own mark going back."""
        back, held = ShardsToRescan(), holding(1, 10)
        back.ask([held], EPOCH)
        assert {} == back.noted([held], moved({1: EPOCH + at(4)}, more=True))
        assert EPOCH + at(4) == back.lowered(held).incoming_mark
        assert {1: EPOCH + at(12)} == back.noted([held], moved({1: EPOCH + at(12)}, more=True))
        assert held == back.lowered(held)

    def test_a_look_that_fails_is_given_up(self) -> None:
        """The next full look makes up for it; until then the rest goes on."""
        back, held = ShardsToRescan(), [holding(1, 10), holding(2, 10)]
        back.ask(held, EPOCH)
        lost: Collection[int] = [1]
        back.drop(lost)
        assert held[0] == back.lowered(held[0])
        assert held[1] != back.lowered(held[1])
