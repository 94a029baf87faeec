"""Signatures of callbacks: made by the HTTP executor, verified by whoever receives them.

Two headers, with the same keys. `webhook-signature` is that of Standard Webhooks: any library of
theirs verifies it. It says nothing about the attempt, so `gnomon-signature` covers the number and
the expiry of the attempt as well; the word in front keeps one from being taken for the other.

    webhook-signature  v1,base64(HMAC-SHA256(key, "{id}.{timestamp}.{body}"))
                       v1a,base64(ed25519(key, the same))
    gnomon-signature   the same of "gnomon.{id}.{attempt}.{expires}.{timestamp}.{body}"

Several keys, of either kind, give several signatures, divided by a space: one that fits is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gnomon.model.signing_key import SigningKey, read_verifying_key

TOLERANCE = timedelta(minutes=5)
SIGNATURES_MAX = 16  # looked at: a header full of guesses costs nothing


class SignatureError(Exception):
    """The request is not what Gnomon sent, or not any more: answer 401 and do nothing."""


class Delivery(NamedTuple):
    """What a verified request says about itself."""

    key: str  # the same in all attempts of one occurrence
    attempt_no: int
    expires_at: datetime


def signature_headers(
    keys: Sequence[SigningKey],
    *,
    id: str,
    attempt_no: int,
    expires: int,
    timestamp: int,
    body: bytes,
) -> dict[str, str]:
    """Both headers."""
    standard = f"{id}.{timestamp}.".encode() + body
    ours = f"gnomon.{id}.{attempt_no}.{expires}.{timestamp}.".encode() + body
    return {"Webhook-Signature": _signed(keys, standard), "Gnomon-Signature": _signed(keys, ours)}


def verify(
    headers: Mapping[str, str],
    body: bytes,
    keys: Iterable[str],
    *,
    now: datetime,
    tolerance: timedelta = TOLERANCE,
) -> Delivery:
    """For receivers: what a request says, if it is genuine, fresh and not expired. Keys are
    `whsec_…` and `whpk_…`.

    Errors: SignatureError; ValueError, for a key that is none.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    try:
        id, given = lowered["webhook-id"], lowered["gnomon-signature"]
        attempt_no, expires, timestamp = (
            int(lowered[name]) for name in ("gnomon-attempt", "gnomon-expires", "webhook-timestamp")
        )
        expires_at, sent_at = (datetime.fromtimestamp(t, UTC) for t in (expires, timestamp))
    except (KeyError, ValueError, OverflowError, OSError):
        raise SignatureError("the headers of Gnomon are missing or not readable") from None
    content = f"gnomon.{id}.{attempt_no}.{expires}.{timestamp}.".encode() + body
    offered = given.split(" ", SIGNATURES_MAX)[:SIGNATURES_MAX]
    if not any([read_verifying_key(key).fits(content, offered) for key in keys]):  # noqa: C419 - all of them: no timing
        raise SignatureError("no signature fits")
    if abs(now - sent_at) > tolerance or now >= expires_at + tolerance:
        raise SignatureError("the request is too old")
    return Delivery(id, attempt_no, expires_at)


def _signed(keys: Sequence[SigningKey], content: bytes) -> str:
    return " ".join([key.sign(content) for key in keys])
