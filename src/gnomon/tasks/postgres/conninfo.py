"""Connection strings, as libpq reads them.

What libpq says of one that it cannot read may show a part of it, and a password may be in any part:
only what looks like the name of an option is passed on.
"""

from __future__ import annotations

import re

from psycopg import Error as PsycopgError
from psycopg import pq

from gnomon.model.errors import ConfigurationError
from gnomon.model.secret import HIDDEN

CHARS_MAX = 4_096
NAME_CHARS_MAX = 40
NOT_PLAIN = "the connection string is not plain text"
SHOWN = ("host", "hostaddr", "port", "dbname", "user", "sslmode", "application_name")
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{NAME_CHARS_MAX - 1}}}", re.ASCII)
_OF_A_NAME = re.compile(
    r'(missing "=" after|invalid connection option|invalid URI query parameter:) "(.*)"'
    r"( in connection info string)?",
    re.DOTALL,
)


class ConninfoRefused(Exception):  # noqa: N818 - an outcome with a name, not a fault
    """A connection string that cannot be read; the text says why, and shows nothing of it."""


def read_conninfo(text: str) -> dict[str, str]:
    """The options of a `key=value …` string or a URI. Errors: ConninfoRefused."""
    if len(text) > CHARS_MAX:
        raise ConninfoRefused(f"the connection string is longer than {CHARS_MAX}")
    if "\x00" in text:  # libpq would stop reading there
        raise ConninfoRefused(NOT_PLAIN)
    try:
        options = pq.Conninfo.parse(text.encode())
        return {
            option.keyword.decode(): option.val.decode()
            for option in options
            if option.val is not None
        }
    except PsycopgError as exc:
        raise ConninfoRefused(_words(str(exc))) from None
    except UnicodeError:
        raise ConninfoRefused(NOT_PLAIN) from None


def _words(said: str) -> str:
    of_a_name = _OF_A_NAME.fullmatch(said.strip())
    if of_a_name is None:
        return said.partition(': "')[0].strip()
    before, name, after = of_a_name.groups("")
    return f'{before} "{name if _NAME.fullmatch(name) else "?"}"{after}'


def conninfo_shown(text: str) -> str:
    """What names the server and the login, and nothing that could be a password."""
    try:
        options = read_conninfo(text)
    except ConninfoRefused:
        return HIDDEN
    return " ".join(
        f"{name}={value if name in SHOWN else HIDDEN}" for name, value in options.items() if value
    )


def read_dsn(dsn: str) -> dict[str, str]:
    """The operator's own connection string. Errors: ConfigurationError, without the string."""
    try:
        return read_conninfo(dsn)
    except ConninfoRefused:
        raise ConfigurationError("tasks.dsn", "is not a connection string") from None


def login_of(dsn: str) -> tuple[str, str]:
    """Database and user of a connection string, with libpq's defaults for what it leaves out.

    Errors: ConfigurationError.
    """
    defaults = {
        option.keyword.decode(): option.val.decode()
        for option in pq.Conninfo.get_defaults()
        if option.val
    }
    given = {**defaults, **read_dsn(dsn)}
    user = given.get("user") or "postgres"
    return given.get("dbname") or user, user
