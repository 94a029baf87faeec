"""The JSON list of tables: what is left out, what is refused, and what is never shown."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gnomon.model.errors import ConfigurationError
from gnomon.model.task.conf import TaskEntry, read_entries


def read(text: str) -> tuple[TaskEntry, ...]:
    return read_entries(text, data="maindb", user="mainuser")


def test_everything_may_be_left_out() -> None:
    """The connection's own database and user, and pg_task's defaults."""
    [entry] = read("[{}]")
    assert ("maindb", "mainuser", "public", "task") == entry.identity
    assert (timedelta(seconds=1), timedelta(hours=1), 50) == (entry.sleep, entry.reset, entry.run)
    assert ("off", False) == (entry.remote, entry.superuser)


@pytest.mark.parametrize(
    ("text", "data", "user"),
    [
        ('[{"data": "shop"}]', "shop", "shop"),
        ('[{"user": "shop"}]', "shop", "shop"),
        ('[{"data": "shop", "user": "billing"}]', "shop", "billing"),
    ],
)
def test_database_and_user_stand_in_for_each_other(text: str, data: str, user: str) -> None:
    [entry] = read(text)
    assert (data, user) == (entry.data, entry.user)


def test_sleep_is_in_milliseconds_and_reset_an_interval() -> None:
    [entry] = read('[{"sleep": 1, "reset": "90 min", "run": 3}]')
    assert (timedelta(milliseconds=1), timedelta(minutes=90), 3) == (
        entry.sleep,
        entry.reset,
        entry.run,
    )


def test_entries_that_are_alike_collapse() -> None:
    """The last one's settings count."""
    [entry] = read('[{"data": "shop", "sleep": 5}, {"data": "shop", "sleep": 9}]')
    assert timedelta(milliseconds=9) == entry.sleep


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[{", "is not a JSON list"),
        ("{}", "Expected `array`, got `object`"),
        ('[{"dta": "shop"}]', "unknown field `dta`"),
        ('[{"sleep": 0}]', r"conf\[0\].sleep: must be between 1"),
        ('[{}, {"reset": "soon"}]', r"conf\[1\].reset: "),
        ('[{"reset": "0"}]', "must be above 0"),
        ('[{"run": 0}]', "run: must be between 1"),
        ('[{"spi": true}]', "spi: is not there"),
        ('[{"schema": ""}]', "schema: must be 1 to 63 bytes"),
        ('[{"name": "a b"}]', "name: must match"),
        ('[{"remote": "on"}]', 'must be "off", "free" or a list'),
        ('[{"remote": ["db:5432/x", "a b"]}]', "remote: 'a b' is no host or host:port"),
        ('[{"data": "a", "user": "b"}, {"data": "a", "user": "c"}]', "two users, b and c"),
        ('[{"data": "a", "name": "x"}, {"data": "b", "name": "x"}]', "two tables are called 'x'"),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read(text)


def test_password_is_not_shown() -> None:
    [entry] = read('[{"password": "hunter2"}]')
    assert entry.password is not None
    assert "hunter2" == entry.password.reveal()
    assert "hunter2" not in repr(entry)
