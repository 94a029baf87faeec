"""No request leaves the machine for a forbidden address: seen on the wire."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

# security.md, 7.4: "URLs". Both schemes where the scheme is not the point.
HOSTS = [
    "2130706433", "0x7f000001", "0X7F.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1",
    "0", "00", "127.0.0.1", "127.0.0.1.", "127.255.255.254", "0.0.0.0", "①②⑦.0.0.1", "127。0。0。1",
    "localhost", "localhost.", "LOCALHOST", "ip6-localhost", "x.localhost",
    "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a9fe:a9fe]", "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::]", "[2001:0:a9fe:a9fe::]", "[fe80::1%25eth0]", "[fe80::1%eth0]", "[fe80::1]",
    "[fec0::1]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[100::1]", "[2001:db8::1]",
    "[5f00::1]",
    "169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16",
    "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "198.18.0.1", "224.0.0.1",
    "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.51.100.1", "203.0.113.1", "192.88.99.1",
    "metadata.google.internal", "metadata", "instance-data", "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local", "db.internal", "printer.local", "router.lan",
    "mixed.example", "mixed6.example", "inner.example", "mapped.example", "cname.example",
    "nat64.example", "zone.example", "xn--" + "a" * 300, "nowhere.example",
    "ok@169.254.169.254", "user:pw@10.0.0.1", "ok%40169.254.169.254",
    "169.254.169.254#@ok", "93.184.216.34\\@10.0.0.1", "93.184.216.34\t.10.0.0.1", "10.0.0.1\n",
    "10.0.0.1%2f@93.184.216.34", "93.184.216.34%00.10.0.0.1", "\u0430pple.example", "a..example",
]  # fmt: skip
OTHERS = [
    "file:///etc/passwd", "gopher://127.0.0.1:6379/_INFO", "ftp://10.0.0.1/",
    "unix:/run/docker.sock", "http+unix://%2Frun%2Fdocker.sock/x", "dict://127.0.0.1:11211/",
    "//169.254.169.254/", "javascript:1", "https:169.254.169.254",
    "https:/169.254.169.254/", "https:\\\\169.254.169.254\\", "", " ",
    "https://169.254.169.254/" + "a" * 65536, "https://169.254.169.254?@ok/", "https://[::1",
]  # fmt: skip
# Public addresses, but what is not allowed by default: plain http, and every port but 443.
PORTS = [f"https://93.184.216.34:{port}/" for port in (0, 22, 25, 80, 5432, 6379, 8443, 65536)]
PLAIN = ["http://93.184.216.34/", "http://public.example/", "HTTP://93.184.216.34/"]
NAMES: dict[str, list[list[str]]] = {
    "public.example": [["93.184.216.34", "2606:2800:220:1::1"]],
    "mixed.example": [["93.184.216.34", "10.0.0.1"]],
    "mixed6.example": [["2606:2800:220:1::1", "::1"]],
    "inner.example": [["169.254.169.254"]],
    "mapped.example": [["::ffff:169.254.169.254"]],
    "nat64.example": [["64:ff9b::a9fe:a9fe"]],
    "zone.example": [["fe80::1%eth0"]],
    "cname.example": [["127.0.0.1", "::1"]],  # what the resolver says of a CNAME to localhost
    "localhost": [["127.0.0.1", "::1"]],
    "kubernetes.default.svc": [["10.96.0.1"]],
    "db.internal": [["10.0.0.7"]],
    "rebind.example": [["93.184.216.34"], ["127.0.0.1"]],
    "rebound.example": [["127.0.0.1"], ["93.184.216.34"]],
    "nowhere.example": [[]],
}
FORBIDDEN = [
    *(f"{scheme}://{host}/latest/" for host in HOSTS for scheme in ("https", "http")),
    *OTHERS,
    *PORTS,
    *PLAIN,
]
# With plain http and port 80 allowed by policy, addresses are as forbidden as ever.
LENIENT: dict[str, Any] = {"allow_http": True, "ports": [80, 443]}
FORBIDDEN_ALWAYS = [f"http://{host}/latest/" for host in HOSTS]


def wire(
    mode: str,
    urls: list[str],
    prefix: tuple[str, ...] = (),
    certificate: Path | None = None,
    **settings: Any,
) -> list[Any]:
    wanted = {"settings": settings, "names": NAMES, "urls": urls}
    environ = dict(os.environ)
    if certificate is not None:
        wanted["certificate"] = environ["SSL_CERT_FILE"] = str(certificate)
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"  # not its output: whoever warns writes there, too
        done = subprocess.run(
            [*prefix, sys.executable, "-m", "tests.integration.http.wire", mode, str(answer)],
            cwd=ROOT, env=environ, input=json.dumps(wanted), capture_output=True, text=True,
            timeout=200, check=False,
        )  # fmt: skip
        assert 0 == done.returncode, done.stderr
        found: list[Any] = json.loads(answer.read_text())
    return found


@functools.cache
def namespace() -> tuple[str, ...] | None:
    """How to get a network namespace with all rights in it; None if the machine does not let us."""
    wanted = ("unshare", "-n") if os.geteuid() == 0 else ("unshare", "-rn")
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return None
    done = subprocess.run([*wanted, "ip", "link", "set", "lo", "up"], check=False)
    return wanted if done.returncode == 0 else None


def packets(urls: list[str], certificate: Path | None = None, **settings: Any) -> list[Any]:
    prefix = namespace()
    if prefix is None:
        pytest.skip("needs root, or user namespaces, and iproute2: see scripts/test-setup")
    return wire("packets", urls, prefix, certificate, **settings)


@pytest.mark.slow
def test_no_packet_leaves_for_a_forbidden_address() -> None:
    """The whole list, on a machine where every address of the world would answer."""
    found = packets(FORBIDDEN)
    assert [] == [call for call in found if call["seen"] or call["reached"]]
    assert [] == [call for call in found if call["outcome"] == "succeeded"]


def test_no_packet_leaves_when_plain_http_is_allowed() -> None:
    """A lenient policy about schemes and ports is none about addresses."""
    found = packets(FORBIDDEN_ALWAYS, **LENIENT)
    assert [] == [call for call in found if call["seen"] or call["reached"]]


def test_the_counter_counts() -> None:
    """Calls that are allowed are seen on the wire and reach the address they name."""
    urls = ["http://93.184.216.34/a", "http://[2606:2800:220:1::1]/b", "http://public.example/c"]
    found = packets(urls, **LENIENT)
    assert ["succeeded"] * 3 == [call["outcome"] for call in found]
    assert all(call["seen"] > 3 for call in found)
    assert ["93.184.216.34/a"] == found[0]["reached"]
    assert ["2606:2800:220:1::1/b"] == found[1]["reached"]
    assert found[2]["reached"][0] in ("93.184.216.34/c", "2606:2800:220:1::1/c")


def test_a_rebinding_name_is_pinned() -> None:
    """It is asked for once, and what was checked is what is connected to."""
    first, second = packets(["http://rebind.example/a", "http://rebound.example/b"], **LENIENT)
    assert ["rebind.example."] == first["asked"]
    assert ["93.184.216.34/a"] == first["reached"]
    assert ["rebound.example."] == second["asked"]
    assert (0, []) == (second["seen"], second["reached"])


def test_tls_is_for_the_name_and_not_for_the_address(tmp_path: Path) -> None:
    """The pinned address is connected to; name, certificate and Host are those of the URL."""
    certificate = tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=test",
         "-addext", "subjectAltName=DNS:public.example",
         "-keyout", tmp_path / "key.pem", "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    certificate.write_text(certificate.read_text() + (tmp_path / "key.pem").read_text())
    good, bad = packets(["https://public.example/a", "https://rebind.example/b"], certificate)
    assert "succeeded" == good["outcome"]
    assert "public.example public.example" == good["names"][0]
    assert "TLS failed" == bad["outcome"]
    assert [] == bad["reached"]


@pytest.mark.parametrize("path", ["moved", "bare", "relative", "file"])
def test_no_redirect_is_followed(path: str) -> None:
    """A 307 to an inner address is an answer, and the body goes nowhere else."""
    (found,) = packets([f"http://93.184.216.34/{path}"], **LENIENT)
    assert "answered 307" == found["outcome"]
    assert [f"93.184.216.34/{path}"] == found["reached"]


def test_what_an_operator_allows_is_reached() -> None:
    """Networks and hosts by the lists, and nothing beside them."""
    urls = [
        "http://10.0.0.7/",
        "http://10.0.1.7/",
        "http://db.internal/",
        "http://169.254.169.254/",
    ]
    found = packets(urls, **LENIENT, allow_networks=["10.0.0.0/24"])
    assert [True, False, True, False] == [bool(call["reached"]) for call in found]
    found = packets(urls, allow_hosts=["http://db.internal:80"])
    assert [False, False, True, False] == [bool(call["reached"]) for call in found]


@pytest.mark.slow
def test_no_socket_connects_to_a_forbidden_address() -> None:
    """The same without a namespace: connect() is not even called."""
    found = wire("connects", FORBIDDEN)
    assert [] == [call for call in found if call["seen"]]


def test_the_trace_traces() -> None:
    """A call that is allowed is seen by the hook, though nobody answers it."""
    found = wire("connects", ["http://127.0.0.1:9/"], allow_loopback=True)
    assert found[0]["seen"]


@pytest.mark.parametrize(
    "url", ["https://169.254.169.254/", "https://db.internal/", "https://0x7f.1/"]
)
def test_users_hear_one_sentence(url: str) -> None:
    """Whatever the reason, and whether or not anything is there."""
    (found,) = wire("connects", [url])
    assert "the address is not allowed" == found["outcome"]
