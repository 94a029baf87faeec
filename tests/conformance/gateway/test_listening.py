"""Where the server listens, and what it demands for it."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from gnomon.client import Client
from gnomon.gateways.config import ServerConfig
from gnomon.gateways.rest import server as server_module
from gnomon.gateways.rest.app import create_rest
from gnomon.gateways.rest.server import bind, serve
from gnomon.model.errors import ConfigurationError, Unavailable
from tests.conformance.gateway.conftest import Gateway
from tests.conformance.gateway.guarded import guarded_server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Certificate and key for 127.0.0.1, signed by nobody."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out",
         str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return str(cert), str(key)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", ""])
def test_without_authentication_only_loopback_is_served(host: str) -> None:
    """Any other host is refused, with the reason and the way out."""
    with pytest.raises(ConfigurationError, match=r"no authentication.*server.auth"):
        ServerConfig(host=host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.5.5.5", "::1", "localhost"])
def test_loopback_is_served(host: str) -> None:
    assert host == ServerConfig(host=host).host


def test_others_are_served_with_tokens_and_tls_only() -> None:
    """In clear text only where the operator says that a proxy speaks TLS."""
    with pytest.raises(ConfigurationError, match=r"clear text.*allow_plain"):
        ServerConfig(host="0.0.0.0", auth="token")
    safe = ServerConfig(host="0.0.0.0", auth="token", tls_cert="c", tls_key="k", grpc_port=1)
    assert "https://0.0.0.0:8321" == safe.url
    assert "http://0.0.0.0:8321" == ServerConfig(host="0.0.0.0", auth="token", allow_plain=True).url


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"tls_cert": "c"}, "server.tls_cert"),
        ({"tls_key": "k"}, "server.tls_cert"),
        ({"grpc_tls_cert": "c"}, "server.grpc_tls_cert"),
        ({"grpc_tls_client_ca": "c"}, "server.grpc_tls_client_ca"),
        ({"auth": "none"}, "server.auth"),
    ],
)
def test_half_of_it_is_refused(settings: dict[str, str], path: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        ServerConfig(**settings)  # type: ignore[arg-type]
    assert path == refused.value.path


async def test_tls_is_served(tmp_path: Path, certificate: tuple[str, str]) -> None:
    """Who trusts the certificate gets an answer; who does not, and plain HTTP, gets none."""
    cert, key = certificate
    config = ServerConfig(port=0, tls_cert=cert, tls_key=key)
    async with guarded_server(tmp_path, config=config) as guarded:
        token = await guarded.token("shop")
        trusting = ssl.create_default_context(cafile=cert)
        async with Client(guarded.url, token=token, tls=trusting) as client:
            assert "ok" == (await client.health())["status"]
        for url in (guarded.url, guarded.url.replace("https:", "http:")):
            async with Client(url, token=token) as client:
                with pytest.raises(Unavailable):
                    await client.health()


async def test_a_bad_certificate_is_said_at_the_start(tmp_path: Path) -> None:
    """A setting is wrong: not a traceback out of the depths."""
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    config = ServerConfig(port=0, tls_cert=str(bad), tls_key=str(tmp_path / "nowhere.pem"))
    with bind(config) as listener, pytest.raises(ConfigurationError, match=r"server\.tls_cert"):
        await serve(create_rest(MagicMock()), listener, stop=asyncio.Event(), config=config)


async def test_a_server_ends_when_it_is_told(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not sleep until it would look around the next time."""
    monkeypatch.setattr(server_module, "TICK_S", 3_600.0)
    stop, listener = asyncio.Event(), bind(ServerConfig(port=0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    serving = asyncio.create_task(serve(create_rest(gateway.app.scheduler), listener, stop=stop))
    async with Client(url) as client:
        await client.health()
    stop.set()
    async with asyncio.timeout(20):
        await serving
