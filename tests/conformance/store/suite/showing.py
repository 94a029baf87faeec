"""Part of the suite: get, list, attempts, count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.contracts.store import Selection, Store
from gnomon.model.action import State
from gnomon.model.errors import InvalidRequest, InvalidSpec
from gnomon.model.outcome import Failed, Succeeded
from gnomon.model.pause import PauseTerms
from gnomon.model.spec import Effect, Grpc, Http, Mock, Push, Python, Sql
from tests.conformance.store.suite.given import HOUR, Given, every, refusal, retrying


async def counted(store: Store, selection: Selection, *, limit: int = 100) -> int:
    """All of it in one step: there is little."""
    found = await store.actions.count_selected(selection, limit=limit)
    assert None is found.next
    return found.count


class TestGet:
    """`get` and `get_many`."""

    async def test_an_unknown_id_is_none(self, store: Store) -> None:
        """Nothing is not an error."""
        assert None is await store.actions.get("nobody")

    async def test_the_running_attempt_is_shown(self, given: Given) -> None:
        """attempts counts it, current_attempt names it."""
        begun = await given.begun("busy")

        status = (await given.action("busy")).status

        assert 1 == status.attempts
        assert status.current_attempt is not None
        assert begun.attempt_id == status.current_attempt.attempt_id
        assert begun.deadline == status.current_attempt.deadline

    async def test_the_retry_is_shown_with_its_time(self, store: Store, given: Given) -> None:
        """scheduled_at is when the next attempt is due; the last one is told."""
        begun = await given.begun("again", retry=retrying(1))
        finish = await given.finish_of(begun, Failed(error="no such host"))
        await store.work.finish([finish], owner="w")

        status = (await given.action("again")).status

        assert finish.verdict.scheduled_at == status.scheduled_at
        assert None is status.current_attempt
        assert status.last_attempt is not None
        assert "failed" == status.last_attempt.outcome
        assert "no such host" == status.last_attempt.error

    async def test_a_plain_success_tells_its_attempt(self, given: Given) -> None:
        """The last attempt of a one-shot is shown though no log was written."""
        begun = await given.begun("done")
        await given.recorded(begun)

        status = (await given.action("done")).status

        assert State.DONE is status.state
        assert None is status.scheduled_at
        assert status.last_attempt is not None
        assert begun.attempt_id == status.last_attempt.attempt_id
        assert "succeeded" == status.last_attempt.outcome
        assert status.finished_at == status.last_attempt.ended_at

    async def test_the_latest_finished_generation_is_shown(self, given: Given) -> None:
        """Of several ends of one id, the last."""
        await given.finished("often", queue="first")
        last = await given.finished("often", queue="second")

        shown = await given.action("often")

        assert last.meta.guid == shown.meta.guid
        assert "second" == shown.spec.queue

    async def test_many_are_answered_in_order(self, store: Store, given: Given) -> None:
        """One element per id, None for the unknown."""
        live = await given.created("live", due_in=HOUR)
        done = await given.finished("done")

        found = await store.actions.get_many(["done", "nobody", "live", "done"])

        assert [done, None, live, done] == list(found)


class TestList:
    """`list`: order, pages, conditions."""

    async def test_pages_are_in_order_of_the_id_and_complete(
        self, store: Store, given: Given
    ) -> None:
        """Live and finished ones, each once, over as many pages as it takes."""
        for name in ("d", "a", "g"):
            await given.finished(name)
        for name in ("f", "b", "c", "e"):
            await given.created(name)

        names: list[str] = []
        after = None
        while True:
            page = await store.actions.list(Selection(), after=after, limit=2)
            assert 2 >= len(page.actions)
            names += [action.meta.id for action in page.actions]
            after = page.next
            if after is None:
                break

        assert list("abcdefg") == names

    async def test_a_page_that_is_just_full_has_no_next(self, store: Store, given: Given) -> None:
        """`next` is given only where something follows."""
        await given.created("a")
        await given.created("b")

        assert None is (await store.actions.list(Selection(), after=None, limit=2)).next
        assert None is not (await store.actions.list(Selection(), after=None, limit=1)).next

    async def test_each_condition_selects(self, store: Store, given: Given) -> None:
        """States, queue, prefix, labels and due time, alone and together."""
        await given.finished("mail-done", queue="mail")
        await given.paused("mail-paused", queue="mail", labels={"team.a": "x", "b": "y"})
        await given.created("mail-soon", queue="mail", labels={"team.a": "x"})
        await given.created("mail-later", queue="mail", due_in=HOUR)
        await given.created("other", labels={"team.a": "z"})
        now = await given.now()

        async def names(**conditions: Any) -> list[str]:
            page = await store.actions.list(Selection(**conditions), after=None, limit=100)
            return [action.meta.id for action in page.actions]

        expected: Mapping[str, tuple[dict[str, Any], list[str]]] = {
            "finished": ({"states": (State.DONE,)}, ["mail-done"]),
            "two states": (
                {"states": (State.DONE, State.PAUSED)},
                ["mail-done", "mail-paused"],
            ),
            "queue": (
                {"queue": "mail"},
                ["mail-done", "mail-later", "mail-paused", "mail-soon"],
            ),
            "prefix": ({"id_prefix": "mail-p"}, ["mail-paused"]),
            "one label": ({"labels": {"team.a": "x"}}, ["mail-paused", "mail-soon"]),
            "two labels": ({"labels": {"team.a": "x", "b": "y"}}, ["mail-paused"]),
            "due": ({"due_before": now}, ["mail-soon", "other"]),
            "due later": (
                {"due_before": now + 2 * HOUR},
                ["mail-later", "mail-soon", "other"],
            ),
            "together": ({"queue": "mail", "labels": {"team.a": "x"}, "due_before": now},
                         ["mail-soon"]),
            "none": ({"queue": "nobody"}, []),
        }  # fmt: skip
        for conditions, found in expected.values():
            assert found == await names(**conditions)
            selection = Selection(**conditions)
            assert len(found) == await counted(store, selection)
            assert min(1, len(found)) == await counted(store, selection, limit=1)

    async def test_functions_and_errors_select(self, store: Store, given: Given) -> None:
        """By the function that is called, and by the error of the last attempt, live or dead; a
        row that others spoilt has neither."""
        refused = Failed(error="connection refused: 10% of 'x'")
        await given.created("ann", action=Python(function="welcome"))
        for name, retries in (("bob", 0), ("cid", 3)):
            begun = await given.begun(
                name, action=Python(function="farewell"), retry=retrying(retries)
            )
            await given.recorded(begun, refused)
        await given.finished("dora")

        async def names(**conditions: Any) -> list[str]:
            selection = Selection(**conditions)
            page = await store.actions.list(selection, after=None, limit=100)
            found = [action.meta.id for action in page.actions]
            assert len(found) == await counted(store, selection)
            return found

        assert ["ann"] == await names(function="welcome")
        assert ["bob", "cid"] == await names(function="farewell")
        assert ["bob", "cid"] == await names(error_contains="10% of 'x'")
        assert ["bob"] == await names(error_contains="refused", states=(State.DEAD,))
        assert [] == await names(error_contains="Refused")
        assert [] == await names(function="wel")

    async def test_arguments_select(self, store: Store, given: Given) -> None:
        """By path and value, in whichever effect; a text or the plain value that it spells. What is
        no single value is not found, and a row that others spoilt has none."""
        effects: dict[str, Effect] = {
            "bool": Python(function="f", kwargs={"order": True, "deep": {"a-b": [{"x": None}]}}),
            "by-name": Python(function="f", kwargs={"order": 17, "customer": {"id": "c-1"}}),
            "by-place": Python(function="f", args=["17", 2.5]),
            "grpc": Grpc(target="t", handler="h", payload=[17]),
            "http": Http("POST", "https://example.org/", json={"order": 17.0, "17": {}}),
            "sql": Sql(target="t", statement="SELECT $1", parameters=["17"]),
            "text": Push(target="t", ttl=HOUR, user="u", payload={"order": "17", "customer": "c"}),
            "whole": Http("POST", "https://example.org/", json={"order": [17]}),
        }
        for name, effect in effects.items():
            await given.created(name, action=effect)
        await given.finished("z-done", action=Mock())
        await given.created("z-spoilt", action=effects["by-name"])
        await given.execute_raw("UPDATE scheduled_action SET spec = '{' WHERE id = 'z-spoilt'")

        async def names(**arguments: str) -> list[str]:
            selection = Selection(arguments={path.replace("__", "."): v for path, v in
                                             arguments.items()})  # fmt: skip
            page = await store.actions.list(selection, after=None, limit=100)
            found = [action.meta.id for action in page.actions]
            assert len(found) == await counted(store, selection)
            return found

        assert ["by-name", "http", "text"] == await names(order="17")
        assert ["bool"] == await names(order="true")
        assert ["by-place", "grpc", "sql"] == await names(**{"0": "17"})
        assert ["by-place"] == await names(**{"1": "2.5"})
        assert ["by-name"] == await names(customer__id="c-1")
        assert ["by-name"] == await names(customer__id="c-1", order="17")
        assert ["bool"] == await names(**{"deep.a-b.0.x": "null"})
        assert ["whole"] == await names(order__0="17")
        assert [] == await names(order="[17]")
        assert [] == await names(customer__name="c-1")
        assert [] == await names(order="1" * 400)
        assert [] == await names(order="9" * 25)
        by_name = Selection(arguments={"who": "17"}, places={"who": {"f": 0, "g": 1, "'": 0}})
        page = await store.actions.list(by_name, after=None, limit=100)
        assert ["by-place"] == [action.meta.id for action in page.actions]
        for path in (
            "",
            "a..b",
            "a b",
            'a"b',
            "$",
            "a[0]",
            "a.*",
            "x" * 300,
            ".".join("abcdefghijk"),
        ):
            wrong = Selection(arguments={path: "1"})
            refused = await refusal(store.actions.list(wrong, after=None, limit=1))
            assert isinstance(refused, InvalidSpec), path

    async def test_schedules_and_pauses_select(self, store: Store, given: Given) -> None:
        """What comes again, what has a text in its id, queue or function, and what is paused for a
        reason; also of rows that others spoilt."""
        hourly: dict[str, Any] = {"policy": every(HOUR), "due_in": HOUR}
        await given.created("tick", action=Python(function="Report_sales"), **hourly)
        await given.created("tack", queue="reports", **hourly)
        await given.created("once", action=Python(function="report", args=[{"policy": {"a": 1}}]))
        await given.finished("report-done")
        for name, reason in (("tick", "the move"), ("tack", "the other move")):
            terms = PauseTerms(reason=reason)
            await store.actions.pause(name, given.entropy.guid(), terms=terms, if_match=None)

        async def names(**conditions: Any) -> list[str]:
            selection = Selection(**conditions)
            page = await store.actions.list(selection, after=None, limit=100)
            found = [action.meta.id for action in page.actions]
            assert len(found) == await counted(store, selection)
            return found

        assert ["tack", "tick"] == await names(recurring=True)
        assert ["once", "report-done", "tack", "tick"] == await names(search="rEport")
        assert ["tick"] == await names(search="sales", recurring=True)
        assert ["tick"] == await names(paused_for="the move")
        assert ["tack", "tick"] == await names(states=(State.PAUSED,))
        assert [] == await names(paused_for="move")
        assert [] == await names(paused_for="the move", states=(State.ACTIVE,))
        await given.execute_raw("UPDATE scheduled_action SET spec = '{'")
        assert [] == await names(recurring=True)
        assert ["tick"] == await names(paused_for="the move")

    async def test_an_id_is_counted_once(self, store: Store, given: Given) -> None:
        """As it is listed: live before finished, and the latest of those."""
        for _ in range(2):
            await given.finished("again")
        assert 1 == await counted(store, Selection())
        await given.created("again")
        assert 1 == await counted(store, Selection())

    async def test_a_finished_generation_is_hidden_while_its_id_lives(
        self, store: Store, given: Given
    ) -> None:
        """An id is listed once, live before finished."""
        await given.finished("again")
        await given.created("again")

        everything = await store.actions.list(Selection(), after=None, limit=10)
        finished = await store.actions.list(Selection(states=(State.DONE,)), after=None, limit=10)

        assert [State.ACTIVE] == [action.status.state for action in everything.actions]
        assert [] == finished.actions

    async def test_only_the_latest_finished_generation_is_listed(
        self, store: Store, given: Given
    ) -> None:
        """Of several ends of one id, the last; the former ones match no condition."""
        await given.finished("often", queue="first")
        await given.finished("often", queue="second")

        page = await store.actions.list(Selection(), after=None, limit=10)
        first = await store.actions.list(Selection(queue="first"), after=None, limit=10)

        assert ["second"] == [action.spec.queue for action in page.actions]
        assert [] == first.actions

    async def test_a_foreign_cursor_is_refused(self, store: Store) -> None:
        """`after` is a former `next`, or the request is invalid."""
        for after in ("%%%", "", "no cursor", "\N{SNOWMAN}"):
            call = store.actions.list(Selection(), after=after, limit=10)
            assert isinstance(await refusal(call), InvalidRequest)


class TestAttempts:
    """`attempts`: the history of an id."""

    async def test_nobody_has_no_attempts(self, store: Store) -> None:
        """An unknown id has an empty history."""
        assert [] == list(await store.actions.list_attempts("nobody", limit=10))

    async def test_the_first_success_of_a_one_shot_is_shown(
        self, store: Store, given: Given
    ) -> None:
        """From its own row, as any other attempt."""
        begun = await given.begun("done")
        await given.recorded(begun)

        (attempt,) = await store.actions.list_attempts("done", limit=10)

        assert begun.attempt_id == attempt.attempt_id
        assert 1 == attempt.attempt_no
        assert 1 == attempt.occurrence_no
        assert begun.began_at == attempt.began_at
        assert "succeeded" == attempt.outcome

    async def test_an_answer_is_kept(self, store: Store, given: Given) -> None:
        """Also of a first-time success."""
        await given.recorded(await given.begun("done"), Succeeded(answer="thanks"))

        (attempt,) = await store.actions.list_attempts("done", limit=10)
        shown = (await given.action("done")).status.last_attempt

        assert "thanks" == attempt.answer
        assert shown is not None
        assert "thanks" == shown.answer

    async def test_the_newest_comes_first(self, store: Store, given: Given) -> None:
        """Every attempt of a periodic action has its row; the limit cuts the old ones."""
        begun = await given.begun("beat", policy=every(HOUR))
        await given.recorded(begun, Failed(error="one"))
        await store.actions.run_now("beat", given.entropy.guid(), if_match=None)
        await given.move()
        await given.recorded(await given.begun_once_due("beat"))

        history = await store.actions.list_attempts("beat", limit=10)
        newest = await store.actions.list_attempts("beat", limit=1)

        assert ["succeeded", "failed"] == [attempt.outcome for attempt in history]
        assert [None, "one"] == [attempt.error for attempt in history]
        assert [2, 1] == [attempt.attempt_no for attempt in history]
        assert list(history[:1]) == list(newest)

    async def test_an_interruption_is_logged(self, store: Store, given: Given) -> None:
        """With its reason."""
        begun = await given.swept("cut")

        (attempt,) = await store.actions.list_attempts("cut", limit=10)

        assert begun.attempt_id == attempt.attempt_id
        assert "interrupted" == attempt.outcome
        assert "the worker disappeared" == attempt.error


class TestCount:
    """`count`: how many in each state."""

    async def test_each_state_is_counted(self, store: Store, given: Given) -> None:
        """Live ones exactly."""
        await given.created()
        await given.created()
        await given.paused()

        counted = await store.actions.count()

        assert 2 == counted[State.ACTIVE]
        assert 1 == counted[State.PAUSED]
