"""HTTP calls as effects.

Redirects are answers like any other, never followed. Nothing is sent a second time by itself:
aiohttp would repeat a GET, PUT or DELETE on a broken connection, which nobody would have counted.

Where a request may go is decided by `policy`, and enforced where connections are made:
`connector`. The secrets of a request are known here only while it is made.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from gnomon.clock import SystemClock
from gnomon.contracts.clock import Clock
from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.observer import Observer
from gnomon.executors.http.answer import patience_of, read_beginning
from gnomon.executors.http.caller import HttpCaller, HttpResponse
from gnomon.executors.http.config import HttpConfig, host_of
from gnomon.executors.http.connector import CheckedConnector, Lookup
from gnomon.executors.http.dns import DnsLookups
from gnomon.executors.http.policy import REFUSAL, NotAllowedError, Policy
from gnomon.executors.http.proxy import EgressProxy
from gnomon.executors.http.rates import HostRates
from gnomon.executors.http.request import (
    Destination,
    HeaderSecret,
    RequestBuilder,
    SecretRefusedError,
)
from gnomon.executors.http.targets import HttpTarget, SigningKeys
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.effects import validate_call, validate_url
from gnomon.model.errors import InvalidSpec
from gnomon.model.need import kind_need
from gnomon.model.outcome import Failed, Outcome, Succeeded, cut
from gnomon.model.secret import Secret, hide
from gnomon.model.spec import Http

ANSWER_BYTES_MAX = 64 * 1024  # read
ANSWER_STORED_BYTES_MAX = 2048
DESTINATIONS_MAX = 4096
_GONE = 410


class HttpExecutor:
    """Calls URLs."""

    def __init__(
        self,
        config: HttpConfig,
        observer: Observer,
        clock: Clock | None = None,
        *,
        targets: Mapping[str, HttpTarget] | None = None,
        secrets: Mapping[str, HeaderSecret] | None = None,
        lookup: Lookup | None = None,
    ) -> None:
        self._config = config
        self._observer = observer
        self._clock: Clock = clock or SystemClock()
        self._policy = Policy(config)
        self._proxy = EgressProxy.read(config)
        self._login = self._proxy.login if self._proxy else None
        self._keys = SigningKeys((targets or {}).values())
        self._destination = lru_cache(DESTINATIONS_MAX)(self._admitted)
        self._preparer = RequestBuilder(secrets or {}, self._policy, login=self._login)
        self._rates = HostRates(config.rate_per_host_max)
        self._own_lookups = DnsLookups()
        self._lookup = lookup or self._own_lookups
        self._caller: HttpCaller | None = None

    def serves(self, need: str) -> bool:
        return need == kind_need("http")

    async def execute(self, order: AttemptRequest) -> Outcome:
        effect = order.effect
        assert isinstance(effect, Http)
        with AttemptBoundary(Exception) as attempt:
            async with asyncio.timeout(order.timeout_s) as limit:
                return await self._call(order, effect, limit)
        error = attempt.failure
        if isinstance(error, _TooManyError):
            return Failed(error="too many calls to this host", retry_after=error.wait)
        # aiohttp's is a TimeoutError too, but not the attempt's.
        if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ServerTimeoutError):
            return self._failed(order, f"timed out after {order.timeout_s:g} s", error)
        return self._failed(order, _error_of(error), error)

    async def close(self) -> None:
        caller, self._caller = self._caller, None
        if caller is not None:
            await caller.close()
        await self._own_lookups.close()

    async def _call(self, order: AttemptRequest, effect: Http, limit: asyncio.Timeout) -> Outcome:
        validate_call(effect)
        there = self._destination(effect.url)
        if self._config.rate_per_host_max:
            await self._take_turn(there.url, limit)
        message, revealed = self._preparer.prepare(order, effect, there, self._clock.now())
        with await self._opened().send(there, effect.method, message) as response:
            answer = await read_beginning(
                response,
                limit,
                bytes_max=ANSWER_BYTES_MAX,
                patience_s=self._config.answer_timeout.total_seconds(),
            )
            self._observer.observe("http_answer_bytes", len(answer))
            return self._outcome(effect, response, _text_of(answer, revealed))

    def _admitted(self, text: str) -> Destination:
        """A URL that may be called. Most are called again and again, so they are remembered."""
        validate_url(text)
        url = _plain_host(URL(text, encoded=True))  # what is percent-encoded stays as it is
        self._policy.admit(url)
        # `localhost` said to the proxy would be the proxy's own machine.
        is_local = self._policy.is_local(host_of(url.raw_host or ""))
        proxy = self._proxy.url if self._proxy and not is_local else None
        return Destination.of(url, self._keys.of(url), proxy)

    async def _take_turn(self, url: URL, limit: asyncio.Timeout) -> None:
        """Wait for the host's next turn, if it comes while the attempt has time."""
        loop = asyncio.get_running_loop()
        now, host = loop.time(), url.raw_host or ""
        wait_s = self._rates.take(host, now, (limit.when() or now) - now)
        if wait_s is None:
            raise _TooManyError(timedelta(seconds=self._rates.wait_s(host, now)))
        if wait_s:
            await asyncio.sleep(wait_s)

    def _opened(self) -> HttpCaller:
        if self._caller is None:
            connector = CheckedConnector(
                self._policy,
                lookup=self._lookup,
                limit=self._config.connections_max,
                limit_per_host=self._config.connections_per_host_max,
                keepalive_timeout=self._config.keep_alive.total_seconds(),
                proxy=self._proxy,
                proxy_resolves=self._config.proxy_resolves,
            )
            connect_s = self._config.connect_timeout.total_seconds()
            self._caller = HttpCaller(connector, connect_timeout_s=connect_s, login=self._login)
        return self._caller

    def _outcome(self, effect: Http, response: HttpResponse, answer: str | None) -> Outcome:
        status = response.status
        if status in effect.success or (not effect.success and 200 <= status <= 299):
            return Succeeded(answer=answer)
        return Failed(
            error=f"answered {status}",
            retryable=status != _GONE,
            retry_after=patience_of(response, self._clock.now()),
            answer=answer,
        )

    def _failed(self, order: AttemptRequest, error: str, exc: Exception) -> Failed:
        """The same few words for everybody; the detail, which may tell about the inner network,
        goes to the operator only."""
        self._observer.event(
            "http.call_failed",
            id=order.id,
            attempt_id=str(order.attempt_id),
            error=error,
            kind=type(exc).__name__,
            detail=_detail_of(exc),
        )
        return Failed(error=error)


# -- the answer -----------------------------------------------------------------------------------


def _text_of(answer: bytes, revealed: tuple[Secret, ...]) -> str | None:
    """What was said, cut, and without the secrets that we told the receiver."""
    if not revealed:
        return cut(answer[:ANSWER_STORED_BYTES_MAX].decode("utf-8", "replace")) or None
    return cut(hide(answer.decode("utf-8", "replace"), *revealed)) or None


# -- errors ---------------------------------------------------------------------------------------


def _plain_host(url: URL) -> URL:
    """One way to write a host: `A.Example.` has no limits of its own beside `a.example`."""
    raw = url.raw_host or ""
    plain = raw.lower().removesuffix(".")
    return url if raw == plain or ":" in raw else url.with_host(plain)


class _TooManyError(Exception):
    """The host's turns are taken for longer than this attempt can wait."""

    def __init__(self, wait: timedelta) -> None:
        super().__init__()
        self.wait = wait


_TOO_LARGE = ("Got more than", "Too many headers", "Too many trailers")  # aiohttp's words
_ERRNO_TEXTS = {
    errno.ECONNREFUSED: "connection refused",
    errno.EHOSTUNREACH: "host not reachable",
    errno.ENETUNREACH: "host not reachable",
    errno.ECONNRESET: "connection reset",
    errno.ETIMEDOUT: "connection timed out",
}


def _detail_of(exc: Exception) -> str:
    """What the operator is told beyond the user's few words; never a part of the request."""
    if isinstance(exc, aiohttp.ClientConnectorError):
        return str(exc.os_error)
    if isinstance(exc, aiohttp.ClientHttpProxyError):
        return f"the proxy answered {exc.status}"
    return str(exc) if isinstance(exc, NotAllowedError | SecretRefusedError) else ""


def _error_of(exc: Exception) -> str:  # noqa: C901, PLR0911, PLR0912 - a table
    match exc:
        case NotAllowedError():
            return REFUSAL
        case SecretRefusedError():
            return "a header names no secret that this host may get"
        case aiohttp.ConnectionTimeoutError():
            return "connection timed out"
        case aiohttp.ClientProxyConnectionError():
            return "the proxy cannot be reached"
        case aiohttp.ClientHttpProxyError():
            return "the proxy refused the call"
        case aiohttp.ClientConnectorDNSError():
            return "name not resolved"
        case aiohttp.ClientSSLError() | aiohttp.ServerFingerprintMismatch():
            return "TLS failed"
        case aiohttp.ClientConnectorCertificateError():
            return "TLS failed"
        case aiohttp.ClientConnectorError():
            return _ERRNO_TEXTS.get(exc.os_error.errno or 0, "connection failed")
        case aiohttp.ServerDisconnectedError():
            return "connection closed before an answer"
        case aiohttp.ClientOSError():
            return "connection reset before an answer"
        case HttpProcessingError(message=text) if any(map(text.__contains__, _TOO_LARGE)):
            return "answer too large"
        case HttpProcessingError():
            return "answer is not HTTP"
        case aiohttp.InvalidURL() | InvalidSpec() | ValueError() | TypeError():
            return "request not valid"
        case _:
            return "call failed"
