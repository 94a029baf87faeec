"""Where `remote` leads to: read by libpq, let through by the operator's list only."""

from __future__ import annotations

import pytest

from gnomon.model.errors import InvalidRequest
from gnomon.model.task.remote import RemoteTarget, admit_remote
from gnomon.tasks.postgres.conninfo import ConninfoRefused, conninfo_shown, read_conninfo

GOOD = "host=db.example dbname=shop user=ann password=canary"
URI = "postgresql://ann:canary@db.example/shop"
LIST = ("DB.example", "10.0.0.5:6432", "reports:5433/daily")


def admit(text: str) -> dict[str, str]:
    options = read_conninfo(text)
    admit_remote(options, [RemoteTarget.read(entry) for entry in LIST])
    return options


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (r"password='it\'s \\' user=a\ b", {"password": "it's \\", "user": "a b"}),
        ("postgresql://u:p%40@h:1/d", {"user": "u", "password": "p@", "host": "h", "port": "1",
                                       "dbname": "d"}),
        ("host=a host=b", {"host": "b"}),
    ],
)  # fmt: skip
def test_it_is_libpq_that_reads(text: str, expected: dict[str, str]) -> None:
    """What was judged is what is connected to, so that its last word may count."""
    assert expected == read_conninfo(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("application_name", 'missing "=" after "application_name" in connection info string'),
        ("host=a nonsense=1", 'invalid connection option "nonsense"'),
        ("host='a", "unterminated quoted string in connection info string"),
        ("host=\x00", "the connection string is not plain text"),
        ("postgresql://h%ff/d", "the connection string is not plain text"),
        ("host=" + "a" * 5_000, "the connection string is longer than 4096"),
    ],
)
def test_what_cannot_be_read_is_refused_in_libpqs_words(text: str, said: str) -> None:
    with pytest.raises(ConninfoRefused) as caught:
        read_conninfo(text)
    assert said == str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "password=a b-canary",
        'password=a can"ary" host',
        "postgresql://u:canary%zz@h/d",
        "postgresql://u:canary%00@h/d",
        "postgresql://u:canary@[::1/d",
        "postgresql://u:canary@[::1]x/d",
        "postgresql://h/d?password=canary=",
        "postgresql://h/d?canary-x=1",
    ],
)
def test_what_libpq_says_shows_no_value(text: str) -> None:
    """It quotes the place where it stopped, and that may be in a password."""
    with pytest.raises(ConninfoRefused) as caught:
        read_conninfo(text)
    assert "canary" not in str(caught.value)
    assert "can" not in str(caught.value).partition("in connection info")[0]


def test_a_remote_is_shown_without_its_password() -> None:
    assert "user=ann password=*** dbname=shop host=db.example" == conninfo_shown(URI)
    assert "***" == conninfo_shown("password=a b-canary")


# -- the list -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        URI,
        f"{GOOD} sslmode=disable port=5432",
        GOOD.replace("db.example", "DB.Example."),
        "host=10.0.0.5 port=6432 dbname=a user=b password=c",
        "host=reports port=5433 dbname=daily user=b password=c",
    ],
)
def test_a_listed_server_gets_through(text: str) -> None:
    """Wherever it is: the operator named it."""
    admit(text)


REFUSED = [
    "host=/var/run/postgresql", "host=@x", "host=''", "host=db.example,evil", "host=evil",
    "host=-a", "host=127.0.0.1", "host=10.0.0.5", "host=reports", "port=5433", "port=0",
    "port=5432,5433", "port=' 5432'", "port=05432", "service=prod", "passfile=/root/.pgpass",
    "sslkey=/x", "sslcert=/x", "sslrootcert=/x", "sslcrl=/x", "sslpassword=x",
    "options='-c statement_timeout=0'", "replication=database", "hostaddr=8.8.8.8",
    "krbsrvname=x", "gsslib=gssapi", "requirepeer=postgres", "require_auth=none",
    "target_session_attrs=any", "fallback_application_name=x", "client_encoding=auto",
    "connect_timeout=0", "password=''", "user=''", "user=" + "a" * 64, "user='a\nb'",
    "dbname='host=/tmp'", "dbname=postgresql://evil/x", "dbname=''",
]  # fmt: skip


@pytest.mark.parametrize("option", REFUSED)
def test_everything_else_is_refused(option: str) -> None:
    """Sockets, files, services, settings, other places."""
    name = option.partition("=")[0]
    rest = [part for part in GOOD.split() if part.partition("=")[0] != name]
    with pytest.raises(InvalidRequest) as caught:
        admit(" ".join([*rest, option]))
    assert "canary" not in str(caught.value)


def test_an_entry_with_a_database_is_for_that_only() -> None:
    with pytest.raises(InvalidRequest, match="not on the list"):
        admit("host=reports port=5433 dbname=other user=b password=c")


@pytest.mark.parametrize("left_out", ["host", "dbname", "user", "password"])
def test_nothing_is_filled_in(left_out: str) -> None:
    """Without a password libpq would send the worker's own; without a host ask its socket."""
    rest = [part for part in GOOD.split() if part.partition("=")[0] != left_out]
    with pytest.raises(InvalidRequest, match=f"{left_out} is required"):
        admit(" ".join(rest))


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://ann:canary@%2Fvar%2Frun/shop",
        "postgresql://ann:canary@%40x/shop",
        "postgresql://ann:canary@/shop",
        "postgresql://ann@db.example/shop",
        "postgresql://ann:canary@db.example,evil.example/shop",
        "postgresql://ann:canary@db.example:1,2/shop",
        "postgresql://ann:canary@db.example/shop?options=-c%20role%3Dx",
        "postgresql://ann:canary@db.example/shop?passfile=/x",
        "postgresql://ann:canary@db.example/host%3D%2Ftmp",
        "postgresql://ann:canary@evil@/shop",
        "postgresql://ann:canary@db.example/",
    ],
)
def test_uris_have_no_other_way(uri: str) -> None:
    """Percents and queries lead to the same checks."""
    with pytest.raises((InvalidRequest, ConninfoRefused)) as caught:
        admit(uri)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("entry", ["", "/tmp", "a b", "a:b", "a,b", "host:5432:1", "-a"])
def test_the_list_itself_is_checked(entry: str) -> None:
    with pytest.raises(ValueError, match="is no host or host:port"):
        RemoteTarget.read(entry)
