"""Technical pushes as effects, through a notificator: one JSON POST each.

The notificator delivers; what reaches a device is its business. The body says whom it is for, until
when it is worth delivering, and the key by which the notificator knows a repetition. A push whose
time to live is over is not sent. Addresses are the operator's: they come from configuration only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

import aiohttp
import msgspec

from gnomon import __version__
from gnomon.contracts.clock import Clock
from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.executors._target import Target, no_target, serves_target
from gnomon.executors.http.answer import patience_of, read_beginning
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.outcome import TEXT_CHARS_MAX, Failed, Outcome, Succeeded, cut
from gnomon.model.secret import Secret, hide
from gnomon.model.spec import Push
from gnomon.model.timestamp import rfc3339

CONNECTIONS_MAX = 100
KEEP_ALIVE_S = 4.0  # below the five seconds after which common servers hang up
ANSWER_TIMEOUT_S = 5.0  # for the body, once the status is known
DETAIL_CHARS_MAX = 200
# The push itself is wrong, or whom it is for is not there: another attempt gets the same answer.
_FINAL = frozenset({400, 404, 410, 413, 422})


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTarget(Target):
    """A notificator."""

    url: str  # where pushes are posted
    token: Secret | None = None  # sent as `Authorization: Bearer …`
    connect_timeout: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        Target.__post_init__(self)
        self._check_url()
        if self.token is not None and not re.fullmatch(r"[!-~]{1,4096}", self.token.reveal()):
            self.refuse("token", "must be visible ASCII")
        self.check_durations(connect_timeout=self.connect_timeout)

    def _check_url(self) -> None:
        try:
            parts = urlsplit(self.url)
            is_good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            has_user = "@" in parts.netloc
        except ValueError:
            is_good = has_user = False
        if has_user:
            self.refuse("url", "must not hold a user name or password; use token")
        if not is_good or not re.fullmatch(r"[!-~]{1,2048}", self.url):
            self.refuse("url", "must be a URL such as https://notificator.example/v1/push")


class PushExecutor:
    """Posts pushes."""

    def __init__(
        self, targets: Mapping[str, PushTarget], *, clock: Clock, observer: Observer | None = None
    ) -> None:
        self._targets = targets
        self._clock = clock
        self._observer = observer or SilentObserver()
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"PushExecutor({', '.join(sorted(self._targets))})"

    def serves(self, need: str) -> bool:
        return serves_target("push", self._targets, need)

    async def execute(self, order: AttemptRequest) -> Outcome:
        effect = order.effect
        assert isinstance(effect, Push)
        target = self._targets.get(effect.target)
        if target is None:
            return no_target("push", effect.target)
        if self._clock.now() >= order.scheduled_at + effect.ttl:
            return Failed(error="expired before it could be sent", retryable=False)
        with AttemptBoundary(Exception) as attempt:
            async with asyncio.timeout(order.timeout_s) as limit:
                return await self._send(order, effect, target, limit)
        error = attempt.failure
        if isinstance(error, aiohttp.ServerTimeoutError):  # a TimeoutError, but not the attempt's
            return self._failed(order, "connection timed out", error)
        if isinstance(error, TimeoutError):
            return self._failed(order, f"timed out after {order.timeout_s:g} s", error)
        return self._failed(order, _error_of(error), error)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _send(
        self, order: AttemptRequest, effect: Push, target: PushTarget, limit: asyncio.Timeout
    ) -> Outcome:
        async with self._opened().post(
            target.url,
            data=body_of(order, effect),
            headers=headers_of(order, target),
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=target.connect_timeout.total_seconds()
            ),
        ) as response:
            body = await read_beginning(
                response, limit, bytes_max=TEXT_CHARS_MAX, patience_s=ANSWER_TIMEOUT_S
            )
            answer = body.decode("utf-8", "replace")
            if target.token is not None:
                answer = hide(answer, target.token)
            return self._outcome(response, cut(answer) or None)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=CONNECTIONS_MAX, keepalive_timeout=KEEP_ALIVE_S
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    def _outcome(self, response: aiohttp.ClientResponse, answer: str | None) -> Outcome:
        status = response.status
        if 200 <= status <= 299:
            return Succeeded(answer=answer)
        return Failed(
            error=f"answered {status}",
            retryable=status not in _FINAL,
            retry_after=patience_of(response, self._clock.now()),
            answer=answer,
        )

    def _failed(self, order: AttemptRequest, error: str, exc: Exception) -> Failed:
        """The same few words for everybody; the detail goes to the operator only."""
        os_error = getattr(exc, "os_error", None)
        self._observer.event(
            "push.call_failed",
            id=order.id,
            attempt_id=str(order.attempt_id),
            error=error,
            kind=type(exc).__name__,
            detail=cut(str(os_error), DETAIL_CHARS_MAX) if os_error else "",
        )
        return Failed(error=error)


def body_of(order: AttemptRequest, effect: Push) -> bytes:
    """What the notificator is told; who is not named is left out."""
    body: dict[str, object] = {"key": order.key}
    if effect.user is not None:
        body["user"] = effect.user
    if effect.device is not None:
        body["device"] = effect.device
    body["payload"] = effect.payload
    body["expires_at"] = rfc3339(order.scheduled_at + effect.ttl)
    return msgspec.json.encode(body)


def headers_of(order: AttemptRequest, target: PushTarget) -> dict[str, str]:
    """What stands around it."""
    headers = {
        **order.carrier,
        "User-Agent": f"gnomon/{__version__}",
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
        "Idempotency-Key": order.key,
        "Gnomon-Attempt-Id": str(order.attempt_id),
        "Gnomon-Attempt": str(order.attempt_no),
    }
    if target.token is not None:
        headers["Authorization"] = f"Bearer {target.token.reveal()}"
    return headers


def _error_of(exc: Exception) -> str:
    match exc:
        case aiohttp.ClientConnectorDNSError():
            return "name not resolved"
        case aiohttp.ClientSSLError() | aiohttp.ClientConnectorCertificateError():
            return "TLS failed"
        case aiohttp.ClientConnectorError():
            return "connection failed"
        case aiohttp.ClientOSError() | aiohttp.ServerDisconnectedError():
            return "connection broke before an answer"
        case aiohttp.ClientResponseError():
            return "answer is not HTTP"
        case _:
            return "the push could not be sent"
