"""Which addresses an effect may go to: explicit lists, not what a library takes for public.

`ipaddress.is_global` changes between versions of Python and calls too much public. An IPv6 address
that carries an IPv4 address is as forbidden as the address it carries; the ways of carrying it are
refused as well, but for `::ffff:…`, which is only another spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

FORBIDDEN_IPV4: tuple[IPv4Network, ...] = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network; Linux connects 0.0.0.0 to itself
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; the metadata service of Alibaba
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # the platform address of Azure, on every machine of theirs
        "169.254.0.0/16",  # link-local; metadata services
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; the metadata service of Oracle
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # multicast tunnels
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
FORBIDDEN_IPV6: tuple[IPv6Network, ...] = tuple(
    IPv6Network(text)
    for text in (
        # All but 2000::/3, in which alone addresses are given out. Among these: unspecified and
        # loopback, IPv4-compatible ::/96, NAT64 64:ff9b::/96 and 64:ff9b:1::/48, discard 100::/64,
        # SRv6 5f00::/16, unique local fc00::/7, link-local fe80::/10, site-local fec0::/10,
        # multicast ff00::/8.
        "::/3",
        "4000::/2",
        "8000::/1",
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarking
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
LOOPBACK: tuple[Network, ...] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))

_MAPPED = IPv6Network("::ffff:0:0/96")
_CARRIERS_LOW = (  # the IPv4 address is in the last 32 bits
    IPv6Network("::/96"),
    IPv6Network("::ffff:0:0:0/96"),
    IPv6Network("64:ff9b::/96"),
)
_6TO4 = IPv6Network("2002::/16")
_LIKE_A_NUMBER = re.compile(r"(?:[0-9]+|0[xX][0-9A-Fa-f]*)", re.ASCII)


def is_forbidden(address: Address, allowed: Iterable[Network] = ()) -> bool:
    """Whether nothing may be sent there; `allowed` networks are exempt."""
    if isinstance(address, IPv4Address):
        return _is_in(address, FORBIDDEN_IPV4) and not _is_in(address, allowed)
    carried = carried_by(address)
    if carried is not None and is_forbidden(carried, allowed):
        return True
    if address in _MAPPED:
        return False
    return _is_in(address, FORBIDDEN_IPV6) and not _is_in(address, allowed)


def is_loopback(address: Address) -> bool:
    """Whether the address can only be this machine."""
    if isinstance(address, IPv6Address) and address in _MAPPED:
        return is_loopback(IPv4Address(int(address) & 0xFFFFFFFF))
    return _is_in(address, LOOPBACK)


def carried_by(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for or leads to."""
    if int(address) <= 1:  # :: and ::1 carry nothing, though they look like 0.0.0.0 and 0.0.0.1
        return None
    if address in _MAPPED or _is_in(address, _CARRIERS_LOW):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _6TO4:
        return IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    return None


def literal_of(host: str) -> Address | None:
    """The address that a host of a URL is written as; None if it is a name.

    Errors: ValueError, for a number in any other form than `127.0.0.1` and IPv6: the resolver of
    the system takes `2130706433`, `0x7f.1`, `0177.0.0.1` and `0` for addresses, too.
    """
    if ":" in host:
        return IPv6Address(host)
    last = host.removesuffix(".").rpartition(".")[2]
    return IPv4Address(host) if _LIKE_A_NUMBER.fullmatch(last) else None


def address_of(text: str) -> Address:
    """An address as the resolver or a socket writes it; a zone (`%eth0`) says nothing to us."""
    return ip_address(text.partition("%")[0])


def network_of(text: str) -> Network:
    """A network as it is configured. Errors: ValueError."""
    return ip_network(text.strip())


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)
