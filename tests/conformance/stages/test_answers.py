"""A wrong answer of a stage costs its own entity, once, and is told (S9, S10, S16)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from gnomon.model.errors import ConfigurationError
from gnomon.stages import RetryLater, Stage, Update, Wake
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import It, settled, stage

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - the mistake under test
FAR = datetime.max.replace(tzinfo=UTC)
WRONG_DONE: list[tuple[str, Callable[[It], Any], str]] = [
    ("a text as patch", lambda _: Update("closed"), "Update.patch"),  # type: ignore[arg-type]
    ("no patch", lambda _: Update(None), "Update.patch"),  # type: ignore[arg-type]
    ("a list of numbers", lambda _: Update([1]), "Update.patch"),  # type: ignore[list-item]
    ("a span as wake", lambda _: Update(wake=timedelta(days=1)), "Update.wake"),  # type: ignore[arg-type]
    ("a text as wake", lambda _: Update(wake="2030-01-01"), "Update.wake"),  # type: ignore[arg-type]
    ("a time without zone", lambda _: Update(wake=NAIVE), "needs a time zone"),
    ("the end of time", lambda _: Update(wake=FAR), "before the year"),
    ("a number as note", lambda _: Update(note=5), "Update.note"),  # type: ignore[arg-type]
    ("a dict", lambda _: {"a": 1}, "write Update({…})"),
    ("a coroutine", lambda _: asyncio.sleep(0), "async by mistake"),
    ("a stage that yields True", lambda _: True, "process must return Update"),
    ("not a number", lambda _: Update({"n": float("nan")}), "not a finite number"),
    ("infinity as state", lambda _: Update(state=float("inf")), "not a finite number"),
]
WRONG_ASK: list[tuple[str, Callable[[It], Any], str]] = [
    ("a span", lambda _: Wake(timedelta(days=1)), "Wake must be a datetime"),  # type: ignore[arg-type]
    ("a text", lambda _: Wake("2030-01-01"), "Wake must be a datetime"),  # type: ignore[arg-type]
    ("a time without zone", lambda _: Wake(NAIVE), "needs a time zone"),
    ("the end of time", lambda _: Wake(FAR), "before the year"),
    ("nothing", lambda _: None, "should_process must return"),
    ("a coroutine", lambda _: asyncio.sleep(0), "async by mistake"),
]


@pytest.mark.parametrize(("answer", "told"), [(f, t) for _, f, t in WRONG_DONE],
                         ids=[name for name, _, _ in WRONG_DONE])  # fmt: skip
async def test_a_wrong_answer_is_quarantined_with_its_reason(
    answer: Callable[[It], Any], told: str
) -> None:
    """Called once, not in a hot loop; other entities and other stages go on."""
    wrong = stage("wrong", watch="bad", writes="n", process=answer, ask=lambda it: it.entity["bad"])
    right = stage("right", writes="seen", process=lambda _: Update({"seen": True}))
    bench = await settled(wrong, right, entities={"bad": {"bad": True}, "good": {"bad": False}})
    await bench.advance(minutes=10)

    assert 1 == len(wrong.given)
    [row] = await bench.parked()
    assert ("bad", "wrong", "quarantined", 1) == (
        row.entity_id,
        row.stage,
        row.status,
        row.attempts,
    )
    assert told in (row.error or "")
    assert (True, True) == (bench["bad"]["seen"], bench["good"]["seen"])


@pytest.mark.parametrize(("answer", "told"), [(f, t) for _, f, t in WRONG_ASK],
                         ids=[name for name, _, _ in WRONG_ASK])  # fmt: skip
async def test_who_fails_to_say_no_gets_the_entity(answer: Callable[[It], Any], told: str) -> None:
    """A wrong answer of `should_process` is a failed ask: queued anyway, and it says why."""
    wrong = stage("wrong", watch="a", ask=answer)
    other = stage("other", watch="a")
    await settled(wrong, other, entities={"e": {"a": 1}})

    assert (1, 1) == (len(wrong.given), len(other.given))
    [reason] = wrong.given[0].reasons
    assert told in reason


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError(), OverflowError("too far"), RecursionError()],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_backs_off_and_counts(error: BaseException) -> None:
    """Whatever a stage raises: a second, two, four, …; then a person is asked."""

    def fail(_: It) -> None:
        raise error

    bad = stage("bad", process=fail)
    bench = await settled(bad, entities={"e": {}})
    await bench.advance(seconds=10)

    assert 3 <= len(bad.given) <= 5
    [row] = (await bench.explain("e")).stages
    assert (len(bad.given), "ready") == (row.attempts, row.status)
    assert row.last_error


async def test_a_retry_that_is_no_span_is_a_failure_like_others() -> None:
    """`RetryLater(after=5)` says what to write, and backs off."""

    def retry(_: It) -> None:
        raise RetryLater("busy", after=5)  # type: ignore[arg-type]

    bad = stage("bad", process=retry)
    bench = await settled(bad, entities={"e": {}})
    [row] = (await bench.explain("e")).stages
    assert "must be a timedelta" in (row.last_error or "")
    assert 1 == len(bad.given)


async def test_a_retry_after_ages_comes_within_a_month() -> None:
    """No span is too long to be stored."""

    def retry(_: It) -> None:
        raise RetryLater("later", after=timedelta.max)

    bench = await settled(stage("patient", process=retry), entities={"e": {}})
    [row] = (await bench.explain("e")).stages
    assert row.next_try_at is not None
    assert row.next_try_at <= bench.now + timedelta(days=30)


async def test_a_time_of_another_zone_and_one_long_past_are_fine() -> None:
    """Any zone; what is past is due at once."""
    zone = timezone(timedelta(hours=-9))
    stages = {
        "east": stage("east", ask=lambda it: Wake(it.now.astimezone(zone) + timedelta(hours=1))),
        "past": stage("past", ask=lambda _: Wake(datetime.min.replace(tzinfo=UTC))),
    }
    bench = await settled(*stages.values(), entities={"e": {}})
    assert (0, 1) == (len(stages["east"].given), len(stages["past"].given))
    await bench.advance(hours=1, seconds=1)
    assert 1 == len(stages["east"].given)


class Plain(Stage[dict[str, Any], None]):
    name = "plain"

    async def process(self, it: It) -> None: ...


def declared(**options: Any) -> Any:
    return type("Declared", (Plain,), options)()


async def slow(*_: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (Plain, "write Plain\\(\\)"),
        (object(), "must be a gnomon.stages.Stage"),
        (declared(rate=50), "must be like 50/s"),
        (declared(process=lambda self, it: None), "process: must be `async def`"),
        (declared(should_process=slow), "must be a plain `def`"),
        (declared(after_save=lambda self, saved: None), "after_save: must be `async def`"),
        (declared(parallel="16"), "parallel: must be a whole number"),
        (declared(batch=True), "batch: must be a whole number"),
        (declared(fuse="yes"), "fuse: must be True or False"),
        (declared(spread=5), "spread: must be a timedelta"),
        (declared(backfill_every=3600), "backfill_every: must be a timedelta"),
        (declared(watch="status"), "watch: must be a tuple"),
        (declared(writes=("a", 1)), "writes: must be a tuple"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_declaration_says_what_to_write(made: Any, told: str) -> None:
    """When the program starts, not when the first entity comes."""
    with pytest.raises(ConfigurationError, match=told):
        StageBench("ad", made)
