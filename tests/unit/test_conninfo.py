"""Connection strings of users: read as libpq reads them, and let through by policy only."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from gnomon.model.conninfo import (
    ConninfoPolicy,
    ConninfoRefused,
    admit_conninfo,
    parse_conninfo,
)
from gnomon.model.errors import ConfigurationError

FREE = ConninfoPolicy(mode="free")
GOOD = "host=db.example dbname=shop user=ann password=canary"
URI = "postgresql://ann:canary@db.example/shop"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("  ", {}),
        ("host=a", {"host": "a"}),
        ("host = a\tport= 1 ", {"host": "a", "port": "1"}),
        ("host='a b' user=''", {"host": "a b", "user": ""}),
        (r"password='it\'s \\' user=a\ b", {"password": "it's \\", "user": "a b"}),
        ("host=a'b", {"host": "a'b"}),
        ("host= port=1", {"host": "port=1"}),
        ("postgresql://", {}),
        ("postgres://h", {"host": "h"}),
        ("postgresql://u:p%40@h:1/d", {"user": "u", "password": "p@", "host": "h", "port": "1",
                                       "dbname": "d"}),
        ("postgresql://[::1]:5/d", {"host": "::1", "port": "5", "dbname": "d"}),
        ("postgresql:///d?host=h&port=2", {"dbname": "d", "host": "h", "port": "2"}),
        ("postgresql://%2Ftmp/d", {"host": "/tmp", "dbname": "d"}),
        ("postgresql://u@a,b/d", {"user": "u", "host": "a,b", "dbname": "d"}),
    ],
)  # fmt: skip
def test_it_is_read_as_libpq_does(text: str, expected: dict[str, str]) -> None:
    """Quotes, backslashes, blanks and percents."""
    assert expected == parse_conninfo(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("application_name", 'missing "=" after "application_name" in connection info string'),
        ("host a", 'missing "=" after "host" in connection info string'),
        ("host='a", "unterminated quoted string in connection info string"),
        (r"host='a\'", "unterminated quoted string in connection info string"),
        ("host=a host=b", 'the connection option "host" is given twice'),
        ("postgresql://h/d?host=x", 'the connection option "host" is given twice'),
        ("postgresql://h%zz/d", "invalid percent-encoded token in connection info string"),
        ("postgresql://h%00/d", "forbidden value %00 in percent-encoded value"),
        ("postgresql://h%ff/d", "the connection string is not UTF-8"),
        ("postgresql://[::1/d", "the connection string has a broken IPv6 address"),
        ("postgresql://[::1]x/d", "the connection string has a broken IPv6 address"),
        ("postgresql://h/d?x", "the connection string has a query that is no option=value"),
        ("postgresql://h/d?x=1=2", "the connection string has a query that is no option=value"),
        ("postgresql://h/d#x", "the connection string has a fragment"),
        ("host=\x00", "the connection string holds NUL"),
        ("host=" + "a" * 5_000, "the connection string is longer than 4096"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, said: str) -> None:
    """In libpq's words, where it has some."""
    with pytest.raises(ConninfoRefused) as caught:
        parse_conninfo(text)
    assert said == str(caught.value)


@pytest.mark.parametrize("text", [GOOD, URI, f"{GOOD} sslmode=verify-full port=5432"])
def test_a_plain_server_and_login_get_through(text: str) -> None:
    """With TLS that is verified, whether it was asked for or not."""
    found = admit_conninfo(text, FREE)
    assert {
        "host": "db.example", "port": "5432", "dbname": "shop", "user": "ann",
        "password": "canary", "sslmode": "verify-full",
    } == found.settings()  # fmt: skip
    assert "canary" not in repr(found)


REFUSED = [
    "host=/var/run/postgresql",
    "host=@x",
    "host=''",
    "host=a,b",
    "host=a/b",
    "host=a..b@c",
    "host=-a",
    "host=" + "a" * 254,
    "host=127.0.0.1",
    "host=10.0.0.1",
    "host=169.254.169.254",
    "host=100.100.100.200",
    "host=::1",
    "host=::",
    "host=::ffff:127.0.0.1",
    "host=64:ff9b::a9fe:a9fe",
    "host=fd00:ec2::254",
    "host=fe80::1%eth0",
    "host=2130706433",
    "host=0x7f000001",
    "host=0177.0.0.1",
    "host=127.1",
    "host=0",
    "host=①②⑦.0.0.1",
    "service=prod",
    "servicefile=/x",
    "passfile=/root/.pgpass",
    "sslkey=/x",
    "sslcert=/x",
    "sslrootcert=/x",
    "sslcrl=/x",
    "sslpassword=x",
    "options='-c statement_timeout=0'",
    "replication=database",
    "hostaddr=169.254.169.254",
    "hostaddr=8.8.8.8",
    "krbsrvname=x",
    "gsslib=gssapi",
    "requirepeer=postgres",
    "require_auth=none",
    "target_session_attrs=any",
    "load_balance_hosts=random",
    "fallback_application_name=x",
    "client_encoding=auto",
    "connect_timeout=0",
    "HOST=x",
    "sslmode=disable",
    "sslmode=prefer",
    "sslmode=require",
    "sslmode=verify-ca",
    "sslmode=VERIFY-FULL",
    "sslmode=nonsense",
    "password=''",
    "user=''",
    "user=" + "a" * 64,
    "user='a\nb'",
    "dbname='host=/tmp'",
    "dbname=postgresql://evil/x",
    "dbname=''",
    "port=0",
    "port=65536",
    "port=1,2",
    "port=-1",
    "port=٣",
    "port=' 1'",
]


@pytest.mark.parametrize("option", REFUSED)
def test_everything_else_is_refused(option: str) -> None:
    """Sockets, files, services, settings, private addresses in every spelling, weak TLS."""
    name = option.partition("=")[0]
    rest = [part for part in GOOD.split() if part.partition("=")[0] != name]
    with pytest.raises(ConninfoRefused) as caught:
        admit_conninfo(" ".join([*rest, option]), FREE)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("left_out", ["host", "dbname", "user", "password"])
def test_nothing_is_filled_in(left_out: str) -> None:
    """Without a password libpq would send the worker's own; without a host ask its socket."""
    rest = [part for part in GOOD.split() if part.partition("=")[0] != left_out]
    with pytest.raises(ConninfoRefused, match=f"{left_out} is required"):
        admit_conninfo(" ".join(rest), FREE)


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://ann:canary@%2Fvar%2Frun/shop",
        "postgresql://ann:canary@%40x/shop",
        "postgresql://ann:canary@/shop",
        "postgresql://ann@db.example/shop",
        "postgresql://ann:canary@db.example,evil.example/shop",
        "postgresql://ann:canary@db.example:1,2/shop",
        "postgresql://ann:canary@[::1]/shop",
        "postgresql://ann:canary@db.example/shop?sslmode=disable",
        "postgresql://ann:canary@db.example/shop?ssl=true",
        "postgresql://ann:canary@db.example/shop?options=-c%20role%3Dx",
        "postgresql://ann:canary@db.example/shop?passfile=/x",
        "postgresql://ann:canary@db.example/host%3D%2Ftmp",
        "postgresql://ann:canary@evil@/shop",
        "postgresql://ann:canary@db.example/",
    ],
)
def test_uris_have_no_other_way(uri: str) -> None:
    """Percents and queries lead to the same checks."""
    with pytest.raises(ConninfoRefused) as caught:
        admit_conninfo(uri, FREE)
    assert "canary" not in str(caught.value)


def test_off_is_off() -> None:
    """Nothing gets through unless the operator said so."""
    with pytest.raises(ConninfoRefused, match="switched off"):
        admit_conninfo(GOOD, ConninfoPolicy())


def test_a_list_lets_its_hosts_through_and_no_others() -> None:
    """Wherever they are: the operator named them. Weaker TLS is for them only."""
    policy = ConninfoPolicy(
        mode="listed", hosts=("DB.example", "10.0.0.5:6432"), sslmode_min="disable"
    )
    assert "disable" == admit_conninfo(GOOD, policy).sslmode
    near = "host=10.0.0.5 port=6432 dbname=a user=b password=c sslmode=require"
    assert 6432 == admit_conninfo(near, policy).port
    for text in (f"{GOOD} port=6432", near.replace("6432", "5432"), near.replace(".5", ".6")):
        with pytest.raises(ConninfoRefused, match="not on the list"):
            admit_conninfo(text, policy)
    assert policy.is_allowed_address(ip_address("10.0.0.9"), host="db.example", port=5432)
    assert not policy.is_allowed_address(ip_address("10.0.0.9"), host="db.example", port=1)


def test_addresses_are_judged_after_they_were_looked_up() -> None:
    """A public name that leads to a private address is refused, unless its network is allowed."""
    public, private = ip_address("93.184.216.34"), ip_address("10.1.2.3")
    place = {"host": "db.example", "port": 5432}
    assert FREE.is_allowed_address(public, **place)  # type: ignore[arg-type]
    assert not FREE.is_allowed_address(private, **place)  # type: ignore[arg-type]
    near = ConninfoPolicy(mode="free", networks=(ip_network("10.0.0.0/8"),))
    assert near.is_allowed_address(private, **place)  # type: ignore[arg-type]
    assert "10.1.2.3" == admit_conninfo(GOOD.replace("db.example", "10.1.2.3"), near).host


def test_a_policy_is_checked_itself() -> None:
    """Users who choose their server must verify it."""
    with pytest.raises(ConfigurationError, match=r"conninfo\.sslmode_min"):
        ConninfoPolicy(mode="free", sslmode_min="require")
    with pytest.raises(ConfigurationError, match=r"conninfo\.sslmode_min"):
        ConninfoPolicy(mode="listed", sslmode_min="nonsense")
    with pytest.raises(ConfigurationError, match=r"conninfo\.mode"):
        ConninfoPolicy(mode="anything")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"conninfo\.hosts"):
        ConninfoPolicy(mode="listed", hosts=("/tmp",))
