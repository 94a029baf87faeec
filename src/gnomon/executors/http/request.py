"""The request of an attempt: the user's headers and body, then what the user cannot change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgspec
from multidict import CIMultiDict
from yarl import URL

from gnomon import __version__
from gnomon.contracts.executor import AttemptRequest
from gnomon.executors.http.config import host_of
from gnomon.executors.http.policy import Policy
from gnomon.executors.http.targets import Keys
from gnomon.model.secret import SECRET_PREFIX, Secret, secret_name
from gnomon.model.signature import signature_headers
from gnomon.model.spec import Http
from gnomon.model.timestamp import rfc3339


class SecretRefusedError(Exception):
    """A header names a secret that is not there, or not for this host; users hear no difference."""


@dataclass(frozen=True, slots=True)
class HeaderSecret:
    """A secret that may be sent in headers, to these hosts."""

    value: Secret
    hosts: frozenset[str]


class Destination(NamedTuple):
    """A URL that may be called, the keys to sign for it, and the proxy on the way, if any."""

    url: URL
    keys: Keys
    proxy: URL | None


class PreparedRequest(NamedTuple):
    """A request, ready to be sent; `revealed` are the secrets in its headers."""

    headers: CIMultiDict[str]
    body: bytes | None
    revealed: tuple[Secret, ...]


class RequestBuilder:
    """Makes requests out of orders."""

    def __init__(self, secrets: Mapping[str, HeaderSecret], policy: Policy) -> None:
        self._secrets = secrets
        self._policy = policy

    def prepare(
        self, order: AttemptRequest, effect: Http, there: Destination, now: datetime
    ) -> PreparedRequest:
        """The request of an attempt, signed if its target has keys. Errors: SecretRefusedError."""
        headers: CIMultiDict[str] = CIMultiDict({"User-Agent": f"gnomon/{__version__}"})
        body = _body_of(effect, headers)
        revealed = self._add_headers(headers, effect, there.url) if effect.headers else ()
        timestamp, expires = int(now.timestamp()), int(order.deadline.timestamp())
        headers.update({
            "Accept-Encoding": "identity",
            "Webhook-Id": order.key,
            "Webhook-Timestamp": str(timestamp),
            "Gnomon-Attempt": str(order.attempt_no),
            "Gnomon-Expires": str(expires),
            "Gnomon-Attempt-Id": str(order.attempt_id),
            "Gnomon-Scheduled-At": rfc3339(order.scheduled_at),
        })  # fmt: skip
        if there.keys:
            headers.update(
                signature_headers(
                    there.keys,
                    id=order.key,
                    attempt_no=order.attempt_no,
                    expires=expires,
                    timestamp=timestamp,
                    body=body or b"",
                )
            )
        return PreparedRequest(headers, body, revealed)

    def _add_headers(self, headers: CIMultiDict[str], effect: Http, url: URL) -> tuple[Secret, ...]:
        revealed = []
        for name, value in effect.headers.items():
            if value.startswith(SECRET_PREFIX):
                secret = self._secret(value, url)
                headers[name] = secret.reveal()
                # `Bearer …`, or what follows it: a receiver may repeat either.
                revealed += [secret, *map(Secret, secret.reveal().split(" ", 1)[1:])]
            else:
                headers[name] = value
        return tuple(revealed)

    def _secret(self, value: str, url: URL) -> Secret:
        """Only to hosts it is meant for, and by https unless the operator named the host."""
        secret = self._secrets.get(secret_name(value) or "")
        raw, port = url.raw_host or "", url.port or 0
        if secret is None or host_of(raw) not in secret.hosts:
            raise SecretRefusedError("no such secret, or its headers_for does not name the host")
        if url.scheme != "https" and not self._policy.is_named(raw, port):
            raise SecretRefusedError("a secret is sent by https only")
        return secret.value


def _body_of(effect: Http, headers: CIMultiDict[str]) -> bytes | None:
    if effect.json is not None:
        headers["Content-Type"] = "application/json"
        return msgspec.json.encode(effect.json)
    if effect.body is not None:
        headers["Content-Type"] = "text/plain; charset=utf-8"
        return effect.body.encode()
    return None
