"""The request of an attempt: the user's headers and body, then what the user cannot change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Self

import msgspec
from yarl import URL

from gnomon import __version__
from gnomon.contracts.executor import AttemptRequest
from gnomon.executors.http.config import host_of
from gnomon.executors.http.policy import Policy
from gnomon.executors.http.targets import Keys
from gnomon.model.effects import METHODS_WITHOUT_BODY
from gnomon.model.secret import SECRET_PREFIX, Secret, secret_name
from gnomon.model.signature import signature_headers
from gnomon.model.spec import Http
from gnomon.model.timestamp import rfc3339

_AGENT = f"gnomon/{__version__}"
_OWN_NAMES = {
    name.lower(): name
    for name in (
        "User-Agent", "Accept", "Accept-Encoding", "Content-Type", "traceparent", "tracestate"
    )
}  # fmt: skip
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


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
    is_relayed: bool  # the proxy gets the request itself, and is not just asked for a tunnel
    place: str  # what stands behind the method: target, version, host

    @classmethod
    def of(cls, url: URL, keys: Keys, proxy: URL | None) -> Self:
        is_relayed = proxy is not None and url.scheme != "https"
        target = str(url) if is_relayed else url.raw_path_qs
        place = f"{target} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"
        return cls(url, keys, proxy, is_relayed, place)


class PreparedRequest(NamedTuple):
    """A request as it is sent; `revealed` are the secrets in its headers."""

    message: bytes
    revealed: tuple[Secret, ...]


class RequestBuilder:
    """Makes requests out of orders."""

    def __init__(
        self,
        secrets: Mapping[str, HeaderSecret],
        policy: Policy,
        *,
        login: Mapping[str, str] | None = None,
    ) -> None:
        self._secrets = secrets
        self._policy = policy
        self._login = login or {}  # for the proxy

    def prepare(
        self, order: AttemptRequest, effect: Http, there: Destination, now: datetime
    ) -> PreparedRequest:
        """The request of an attempt, signed if its target has keys. Errors: SecretRefusedError,
        ValueError."""
        headers = {"User-Agent": _AGENT, "Accept": "*/*", **order.carrier}
        body = _body_of(effect, headers)
        revealed = self._add_headers(headers, effect, there.url) if effect.headers else ()
        key, attempt_no = order.key, order.attempt_no
        timestamp, expires = int(now.timestamp()), int(order.deadline.timestamp())
        headers.update({
            "Accept-Encoding": "identity",
            "Webhook-Id": key,
            "Webhook-Timestamp": str(timestamp),
            "Gnomon-Attempt": str(attempt_no),
            "Gnomon-Expires": str(expires),
            "Gnomon-Attempt-Id": str(order.attempt_id),
            "Gnomon-Scheduled-At": rfc3339(order.scheduled_at),
        })  # fmt: skip
        if there.keys:
            headers.update(
                signature_headers(
                    there.keys,
                    id=key,
                    attempt_no=attempt_no,
                    expires=expires,
                    timestamp=timestamp,
                    body=body,
                )
            )
        if there.is_relayed:
            headers.update(self._login)
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = f"{effect.method} {there.place}{lines}\r\n"
        return PreparedRequest(head.encode() + body, revealed)

    def _add_headers(self, headers: dict[str, str], effect: Http, url: URL) -> tuple[Secret, ...]:
        revealed = []
        for given, value in effect.headers.items():
            name = _OWN_NAMES.get(given.lower(), given)  # it takes the place of ours
            if value.startswith(SECRET_PREFIX):
                secret = self._secret(value, url)
                headers[name] = _one_line(secret)
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


def _body_of(effect: Http, headers: dict[str, str]) -> bytes:
    body = b""
    if effect.json is not None:
        headers["Content-Type"] = "application/json"
        body = msgspec.json.encode(effect.json)
    elif effect.body is not None:
        headers["Content-Type"] = "text/plain; charset=utf-8"
        body = effect.body.encode()
    elif effect.method not in METHODS_WITHOUT_BODY:
        headers["Content-Type"] = "application/octet-stream"
    if body or effect.method not in METHODS_WITHOUT_BODY:
        headers["Content-Length"] = str(len(body))
    return body


def _one_line(secret: Secret) -> str:
    """A secret that would be more than its header is not sent. Errors: ValueError."""
    text = secret.reveal()
    if _CONTROL.search(text):
        raise ValueError("a secret holds a control character")
    return text
