"""HTTP calls as effects.

The status decides, the body of the answer is for people to see: once a status has arrived the
receiver's word is known, so a body that is too long, too slow or cut off changes nothing.
Redirects are answers like any other, never followed. Nothing is sent a second time by itself:
aiohttp would repeat a GET, PUT or DELETE on a broken connection, which nobody would have counted.

Where a request may go is not decided here but by the connector's resolver and the installation's
policy.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from gnomon import __version__
from gnomon.clock import SystemClock
from gnomon.contracts.clock import Clock
from gnomon.contracts.executor import Order
from gnomon.contracts.observer import Observer
from gnomon.model.errors import ConfigurationError
from gnomon.model.outcome import Failed, Outcome, Succeeded, cut
from gnomon.model.spec import Http

ANSWER_BYTES_MAX = 64 * 1024  # read
ANSWER_STORED_BYTES_MAX = 2048
RETRY_AFTER_MAX = timedelta(hours=1)
_PATIENCE_CODES = (429, 503)
_GONE = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """How connections are made and kept."""

    connections_max: int = 1_000
    connections_per_host_max: int = 100
    connect_timeout: timedelta = timedelta(seconds=5)
    # For the body, once the status is known; always ends before the attempt's own time does.
    answer_timeout: timedelta = timedelta(seconds=5)
    # Below the five seconds after which common servers hang up: a request sent into a connection
    # that is being closed fails, and is not repeated by itself.
    keep_alive: timedelta = timedelta(seconds=4)

    def __post_init__(self) -> None:
        for name in ("connections_max", "connections_per_host_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"http.{name}", "must be at least 1")
        for name in ("connect_timeout", "answer_timeout", "keep_alive"):
            if getattr(self, name) <= timedelta(0):
                raise ConfigurationError(f"http.{name}", "must be more than 0")


class HttpExecutor:
    """Calls URLs."""

    def __init__(self, config: HttpConfig, observer: Observer, clock: Clock | None = None) -> None:
        self._config = config
        self._observer = observer
        self._clock: Clock = clock or SystemClock()
        self._session: aiohttp.ClientSession | None = None

    async def execute(self, order: Order) -> Outcome:
        effect = order.effect
        assert isinstance(effect, Http)
        try:
            async with asyncio.timeout(order.timeout_s) as limit:
                return await self._call(order, effect, limit)
        except aiohttp.ServerTimeoutError as exc:  # a TimeoutError, but not the attempt's
            return self._failed(order, _error_of(exc), exc)
        except TimeoutError as exc:
            return self._failed(order, f"timed out after {order.timeout_s:g} s", exc)
        except Exception as exc:  # noqa: BLE001 - the attempt boundary
            return self._failed(order, _error_of(exc), exc)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _call(self, order: Order, effect: Http, limit: asyncio.Timeout) -> Outcome:
        headers, body = request_of(order, effect)
        async with self._opened().request(
            effect.method,
            URL(effect.url, encoded=True),  # what was signed or percent-encoded stays as it is
            headers=headers,
            data=body,
            allow_redirects=False,
        ) as response:
            answer = await self._read(response, limit)
            return self._outcome(effect, response, answer)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._config.connections_max,
                    limit_per_host=self._config.connections_per_host_max,
                    keepalive_timeout=self._config.keep_alive.total_seconds(),
                ),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self._config.connect_timeout.total_seconds()
                ),
                cookie_jar=aiohttp.DummyCookieJar(),  # one action's cookies are no other's
                auto_decompress=False,
                trust_env=False,
                middlewares=(_send_once,),
            )
        return self._session

    async def _read(self, response: aiohttp.ClientResponse, limit: asyncio.Timeout) -> bytes:
        """The beginning of the body: as much as comes in time, up to the bound."""
        loop = asyncio.get_running_loop()
        left_s = (limit.when() or loop.time()) - loop.time()
        patience_s = min(self._config.answer_timeout.total_seconds(), left_s * 0.9)
        found = bytearray()
        try:
            async with asyncio.timeout(patience_s):
                while len(found) < ANSWER_BYTES_MAX:
                    chunk = await response.content.read(ANSWER_BYTES_MAX - len(found))
                    if not chunk:
                        break
                    found += chunk
        except (TimeoutError, aiohttp.ClientError, OSError):
            response.close()
        if not response.content.at_eof():
            response.close()  # what is still to come would have to be read before any reuse
        self._observer.observe("http_answer_bytes", len(found))
        return bytes(found[:ANSWER_STORED_BYTES_MAX])

    def _outcome(self, effect: Http, response: aiohttp.ClientResponse, answer: bytes) -> Outcome:
        status = response.status
        text = cut(answer.decode("utf-8", "replace")) or None
        if status in effect.success or (not effect.success and 200 <= status <= 299):
            return Succeeded(answer=text)
        patience = None
        if status in _PATIENCE_CODES:
            date = response.headers.get("Date")
            patience = retry_after(response.headers.get("Retry-After"), date, self._clock.now())
        return Failed(
            error=f"answered {status}",
            retryable=status != _GONE,
            retry_after=patience,
            answer=text,
        )

    def _failed(self, order: Order, error: str, exc: Exception) -> Failed:
        """The same few words for everybody; the detail, which may tell about the inner network,
        goes to the operator only."""
        self._observer.event(
            "http.call_failed",
            id=order.id,
            attempt_id=str(order.attempt_id),
            error=error,
            kind=type(exc).__name__,
            detail=str(exc.os_error) if isinstance(exc, aiohttp.ClientConnectorError) else "",
        )
        return Failed(error=error)


# -- the request ----------------------------------------------------------------------------------


def request_of(order: Order, effect: Http) -> tuple[CIMultiDict[str], bytes | None]:
    """Headers and body of the request: the user's, then what the user cannot change."""
    headers: CIMultiDict[str] = CIMultiDict({"User-Agent": f"gnomon/{__version__}"})
    body: bytes | None = None
    if effect.json is not None:
        headers["Content-Type"] = "application/json"
        body = msgspec.json.encode(effect.json)
    elif effect.body is not None:
        headers["Content-Type"] = "text/plain; charset=utf-8"
        body = effect.body.encode()
    headers.update(effect.headers)
    headers.update({
        "Accept-Encoding": "identity",
        "Webhook-Id": order.key,
        "Webhook-Attempt": str(order.attempt_no),
        "Gnomon-Attempt-Id": str(order.attempt_id),
        "Gnomon-Scheduled-At": _rfc3339(order.scheduled_at),
        "Gnomon-Expires-At": _rfc3339(order.deadline),
    })  # fmt: skip
    return headers, body


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


# -- the answer -----------------------------------------------------------------------------------


def retry_after(value: str | None, date: str | None, now: datetime) -> timedelta | None:
    """How long a receiver wants to be left alone: seconds, or a date by its own clock."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        seconds = int(value.lstrip("0")[:9] or "0")  # nine digits are over the bound anyway
        return min(timedelta(seconds=seconds), RETRY_AFTER_MAX)
    until, since = _http_date(value), _http_date(date) or now
    if until is None or until <= since:
        return None
    return min(until - since, RETRY_AFTER_MAX)


def _http_date(text: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(text) if text else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)


# -- errors ---------------------------------------------------------------------------------------


class _BrokenOffError(aiohttp.ClientError):
    """The connection broke while a request was under way. Unlike its causes, aiohttp does not
    answer it by sending the request again."""


async def _send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    try:
        return await handler(request)
    except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError):
        raise  # nothing was sent
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as exc:
        reset = isinstance(exc, aiohttp.ClientOSError)
        raise _BrokenOffError("connection reset" if reset else "connection closed") from exc


_ERRNO_TEXTS = {
    errno.ECONNREFUSED: "connection refused",
    errno.EHOSTUNREACH: "host not reachable",
    errno.ENETUNREACH: "host not reachable",
    errno.ECONNRESET: "connection reset",
    errno.ETIMEDOUT: "connection timed out",
}


def _error_of(exc: Exception) -> str:  # noqa: PLR0911 - a table
    match exc:
        case aiohttp.ConnectionTimeoutError():
            return "connection timed out"
        case aiohttp.ClientConnectorDNSError():
            return "name not resolved"
        case aiohttp.ClientSSLError() | aiohttp.ServerFingerprintMismatch():
            return "TLS failed"
        case aiohttp.ClientConnectorCertificateError():
            return "TLS failed"
        case aiohttp.ClientConnectorError():
            return _ERRNO_TEXTS.get(exc.os_error.errno or 0, "connection failed")
        case _BrokenOffError():
            return f"{exc} before an answer"
        case aiohttp.ClientResponseError(message=text) if "Got more than" in text:  # its own words
            return "answer too large"
        case aiohttp.ClientResponseError():
            return "answer is not HTTP"
        case aiohttp.InvalidURL() | ValueError() | TypeError():
            return "request not valid"
        case _:
            return "call failed"
