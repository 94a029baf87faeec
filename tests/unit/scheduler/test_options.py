"""The options of `App.schedule` and `App.action`: what is wrong is told in words to act on."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import gnomon
from gnomon.model import errors
from gnomon.model.errors import ConfigurationError, InvalidSpec
from gnomon.model.spec import Mock, Retry
from gnomon.scheduler.options import check_effect, request_of, retry_of

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def requested(**options: Any) -> gnomon.Request:
    return request_of(Mock(), options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("misspelled", "meant"),
    [
        ("retires", "retry"),
        ("delay", "in_"),
        ("countdown", "in_"),
        ("tiemout", "timeout"),
        ("labels_", "labels"),
        ("max_retries", "retry"),
        ("run_at", "at"),
    ],
)
def test_a_misspelled_option_is_refused_with_the_nearest_name(misspelled: str, meant: str) -> None:
    """Also with the name that another scheduler has for it."""
    with pytest.raises(TypeError, match=f"has no option '{misspelled}'; did you mean '{meant}'"):
        requested(**{misspelled: 1})


def test_an_option_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(TypeError, match=r"^schedule\(\) has no option 'zzz'$"):
        requested(zzz=1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"at": timedelta(minutes=5)}, "at: must be a time; for a time from now write in_"),
        ({"at": 5}, "at: must be a datetime, or a text such as 2026-12-24T18:00Z"),
        ({"at": "tomorrow"}, "at: must be a time such as"),
        ({"at": datetime(2030, 1, 1)}, "at: must have a time zone"),  # noqa: DTZ001 - the mistake
        ({"at": NOON, "in_": "5m"}, "in_: cannot be combined with at"),
        ({"in_": "soon"}, "in_: must be a duration"),
        ({"in_": -1}, "in_: must not be negative"),
        ({"every": "5m", "cron": "* * * * *"}, "every: cannot be combined with cron"),
        ({"timezone": "Europe/Berlin"}, "timezone: is for cron only"),
        ({"every": "5m", "catch_up": "none"}, "catch_up: must be a gnomon.CatchUp, such as"),
        ({"retry": "3"}, "retry: must be a number of retries or a gnomon.Retry"),
        ({"retry": True}, "retry: must be a number of retries or a gnomon.Retry"),
        ({"retry": Retry(max=3, back_off=2.0)}, "retry.back_off: does nothing without scale"),
        ({"retry": Retry(max=3, scale=1.0, back_off=2.0)}, "retry.scale: does nothing unless"),
        ({"labels": ["urgent"]}, "labels: must be a mapping"),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_write(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSpec, match=re.escape(told)):
        requested(**options)


def test_a_number_of_retries_means_growing_distances_with_chance() -> None:
    """From a second to an hour; a `Retry` is taken as it is."""
    grown = Retry(max=5, max_period=timedelta(hours=1), scale=1.0, back_off=2.0, jitter=0.5)
    assert grown == requested(retry=5).spec.retry
    plain = Retry(max=2)
    assert plain is retry_of(plain)


def test_a_delay_is_for_admission_which_knows_the_present_of_the_database() -> None:
    request = requested(in_="5m")
    assert (timedelta(minutes=5), None) == (request.delay, request.spec.start_at)


class TestWhat:
    """The first argument of `schedule`."""

    app = gnomon.App("sqlite:///:memory:")

    def test_a_function_that_is_not_called_is_told_how(self) -> None:
        @gnomon.App().action
        def greet(_ctx: gnomon.Attempt, _name: str) -> None: ...

        with pytest.raises(TypeError, match=r"write greet\(…\), not greet"):
            check_effect(greet)

    def test_a_function_that_nobody_declared_is_told_so(self) -> None:
        def greet(_name: str) -> None: ...

        with pytest.raises(TypeError, match=r"declare greet with @app\.action"):
            check_effect(greet)

    def test_anything_else_is_told_what_there_is(self) -> None:
        with pytest.raises(TypeError, match=r"one of Http, Python, .*; not str"):
            check_effect("greet")


class TestDeclaring:
    """`@app.action(…)`."""

    def test_its_options_count_where_none_are_given(self) -> None:
        app = gnomon.App("sqlite:///:memory:")

        @app.action(retry=3, queue="mail", timeout="2s")
        def greet(_ctx: gnomon.Attempt, _name: str) -> None: ...

        declared = app.request(greet("ann")).spec
        given = app.request(greet("ann"), queue="slow").spec

        assert ("mail", 3, timedelta(seconds=2)) == (
            declared.queue,
            declared.retry.max,
            declared.timeout,
        )
        assert ("slow", 3) == (given.queue, given.retry.max)

    def test_a_wrong_option_is_told_at_once(self) -> None:
        """Not when the first action is scheduled, at night."""
        app = gnomon.App("sqlite:///:memory:")
        with pytest.raises(TypeError, match=r"action\(\) has no option 'retires'.*'retry'"):
            app.action(retires=3)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=r"a name is given by name=: @app.action\(name='mail'"):
            app.action("mail")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=r"action\(\) has no option 'cron'"):
            app.action(cron="* * * * *")  # type: ignore[call-overload]
        with pytest.raises(InvalidSpec, match="timeout"):
            app.action(timeout="soon")

    def test_a_function_without_an_attempt_is_refused(self) -> None:
        """It would be called with one more argument than it takes."""

        def nothing() -> None: ...
        def typed(_name: str) -> None: ...
        def named(*, _name: str) -> None: ...
        def defaulted(_name: object = None) -> None: ...
        def fine(_ctx: object, _name: str) -> None: ...
        def any_number(*_args: object) -> None: ...

        app = gnomon.App("sqlite:///:memory:")
        for function in (nothing, typed, named, defaulted):
            with pytest.raises(ConfigurationError, match="must take its attempt first"):
                app.action(function)  # type: ignore[arg-type]
        assert ["fine", "any_number"] == [app.action(one).name for one in (fine, any_number)]


def test_all_errors_are_names_of_the_package() -> None:
    """Who catches one need not know where it is defined."""
    own = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert set() == own - set(gnomon.__all__)
