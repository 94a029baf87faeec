"""Addresses: which are forbidden, in every disguise."""

from __future__ import annotations

import pytest

from gnomon.model.addresses import (
    address_of,
    carried_by,
    is_forbidden,
    is_loopback,
    literal_of,
    network_of,
)

FORBIDDEN = [
    # first, last and a middle address of each range
    "0.0.0.0", "0.255.255.255", "10.0.0.0", "10.1.2.3", "10.255.255.255", "100.64.0.0",
    "100.100.100.200", "100.127.255.255", "127.0.0.1", "127.255.255.255", "168.63.129.16",
    "169.254.0.1", "169.254.169.254", "169.254.170.2", "172.16.0.0", "172.31.255.255", "192.0.0.1",
    "192.0.0.192", "192.0.2.1", "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.168.0.1",
    "192.168.255.255", "192.175.48.1", "198.18.0.1", "198.19.255.255", "198.51.100.1",
    "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::7f00:1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:7f00:1",
    "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8",
    "64:ff9b::a9fe:a9fe", "64:ff9b::8.8.8.8", "64:ff9b:1::1", "100::1", "100:0:0:1::1",
    "2001::1", "2001:0:53aa:64c::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:1ff::1",
    "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:808:808::1", "2620:4f:8000::1",
    "3fff::1", "3fff:fff::1", "4000::1", "5f00::1", "7fff::1", "8000::1", "fbff::1", "fc00::1",
    "fd00:ec2::254", "fdff::1", "fe80::1", "febf::1", "fec0::1", "feff::1", "ff02::1", "ffff::1",
]  # fmt: skip

ALLOWED = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
    "126.255.255.255", "128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255",
    "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.1", "192.0.3.0", "192.167.255.255",
    "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "::ffff:8.8.8.8",
    "2000::1", "2001:200::1", "2001:db7::1", "2001:db9::1", "2003::1", "2606:4700::1111",
    "2620:4f:7fff::1", "2a00:1450:4001::1", "3ffe::1", "3fff:1000::1",
]  # fmt: skip


@pytest.mark.parametrize("text", FORBIDDEN)
def test_inner_and_special_addresses_are_forbidden(text: str) -> None:
    """Each range at its edges, and each way to carry one address in another."""
    assert is_forbidden(address_of(text))


@pytest.mark.parametrize("text", ALLOWED)
def test_public_addresses_are_allowed(text: str) -> None:
    """Directly beside the ranges, and where services are."""
    assert not is_forbidden(address_of(text))


@pytest.mark.parametrize(
    ("text", "network", "forbidden"),
    [
        ("10.1.2.3", "10.1.0.0/16", False),
        ("10.2.2.3", "10.1.0.0/16", True),
        ("::ffff:10.1.2.3", "10.1.0.0/16", False),
        ("::ffff:10.2.2.3", "10.1.0.0/16", True),
        ("fd00::5", "fd00::/64", False),
        ("64:ff9b::8.8.8.8", "64:ff9b::/96", False),
        ("64:ff9b::10.2.2.3", "64:ff9b::/96", True),  # the way is allowed, its end is not
        ("2002:a9fe:a9fe::1", "2002::/16", True),
    ],
)
def test_allowed_networks_are_exempt(text: str, network: str, forbidden: bool) -> None:
    """An operator's network is exempt; what it carries is looked at all the same."""
    assert forbidden == is_forbidden(address_of(text), [network_of(network)])


@pytest.mark.parametrize(
    "host",
    [
        "2130706433", "0x7f000001", "0X7F000001", "017700000001", "0177.0.0.1", "0x7f.0.0.1",
        "127.1", "127.0.1", "0", "00", "1", "127.0.0.1.", "127.0.0.01", "256.0.0.1", "1.2.3.4.5",
        "4294967295", "4294967296", "0x", "a.0x7f", "example.1", "127.0.0.0x1",
    ],
)  # fmt: skip
def test_numbers_in_place_of_hosts_are_refused(host: str) -> None:
    """The resolver of the system would read most of them as addresses."""
    with pytest.raises(ValueError, match=r"."):
        literal_of(host)


def test_names_are_no_literals() -> None:
    """A name may have digits and may look like hexadecimal."""
    for host in (
        "a.example",
        "1.2.3.4.example",
        "0x7f.example",
        "deadbeef",
        "xn--e1afmkfd.example",
    ):
        assert literal_of(host) is None
    assert "127.0.0.1" == str(literal_of("127.0.0.1"))
    assert "::1" == str(literal_of("0:0::1"))


def test_loopback_in_its_spellings() -> None:
    assert all(is_loopback(address_of(text)) for text in ("127.9.9.9", "::1", "::ffff:127.0.0.1"))
    assert not any(is_loopback(address_of(text)) for text in ("128.0.0.1", "::", "::2", "0.0.0.0"))


def test_carried_addresses_are_found() -> None:
    carried = {text: str(carried_by(address_of(text))) for text in (  # type: ignore[arg-type]
        "::ffff:10.0.0.1", "2002:a00:1::", "64:ff9b::a00:1", "::10.0.0.1", "2606::1", "::1",
    )}  # fmt: skip
    assert [*["10.0.0.1"] * 4, "None", "None"] == [*carried.values()]


def test_zones_are_ignored() -> None:
    """A link-local address comes with its interface."""
    assert is_forbidden(address_of("fe80::1%eth0"))
