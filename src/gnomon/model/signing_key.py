"""Keys of callback signatures, as Standard Webhooks writes them.

    whsec_…  (or plain base64)  HMAC-SHA256, one secret for both sides, signs `v1`
    whsk_…                      ed25519, the sender's secret half, signs `v1a`
    whpk_…                      ed25519, the public half: verifies `v1a` and signs nothing

ed25519 needs the package cryptography, which is loaded when the first such key is read.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

HMAC_PREFIX = "whsec_"
SECRET_HALF_PREFIX = "whsk_"  # noqa: S105 - what is in front of a secret
PUBLIC_HALF_PREFIX = "whpk_"
HMAC_BYTES_MIN = 24
HMAC_BYTES_MAX = 64
HALF_BYTES = 32
_MISSING = "ed25519 keys need their library: pip install 'gnomon-scheduler[ed25519]'"


class SigningKey(Protocol):
    """What signs."""

    def sign(self, content: bytes) -> str:
        """One signature, with its version in front."""
        ...


class VerifyingKey(Protocol):
    """What verifies."""

    def fits(self, content: bytes, signatures: Sequence[str]) -> bool:
        """Whether one of the signatures is of this key and this content."""
        ...


class HmacKey:
    """A secret that both sides have."""

    __slots__ = ("_mac",)

    def __init__(self, key: bytes) -> None:
        self._mac = hmac.new(key, digestmod=sha256)

    def sign(self, content: bytes) -> str:
        signing = self._mac.copy()  # several times cheaper than to begin with the key again
        signing.update(content)
        return "v1," + base64.b64encode(signing.digest()).decode()

    def fits(self, content: bytes, signatures: Sequence[str]) -> bool:
        wanted = self.sign(content).encode()
        fitting = [hmac.compare_digest(wanted, given.encode()) for given in signatures]
        return any(fitting)  # after all of them: the time says nothing


class Ed25519SigningKey:
    """The secret half of a pair."""

    __slots__ = ("_key",)

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    def sign(self, content: bytes) -> str:
        return "v1a," + base64.b64encode(self._key.sign(content)).decode()


class Ed25519VerifyingKey:
    """The public half of a pair."""

    __slots__ = ("_key",)

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key

    def fits(self, content: bytes, signatures: Sequence[str]) -> bool:
        return any(self._is_of(content, given) for given in signatures)

    def _is_of(self, content: bytes, given: str) -> bool:
        from cryptography.exceptions import InvalidSignature

        version, _, text = given.partition(",")
        if version != "v1a":
            return False
        try:
            self._key.verify(base64.b64decode(text, validate=True), content)
        except (InvalidSignature, ValueError):
            return False
        return True


def read_key(text: str) -> SigningKey:
    """A key that signs: `whsec_…`, plain base64, or `whsk_…`. Errors: ValueError, which does not
    show it."""
    text = text.strip()
    if text.startswith(SECRET_HALF_PREFIX):
        return _read_secret_half(text)
    if text.startswith(PUBLIC_HALF_PREFIX):
        raise ValueError("whpk_ is the public half of a signing key; whsk_ is what signs")
    return _read_hmac(text)


def read_verifying_key(text: str) -> VerifyingKey:
    """A key that verifies: `whsec_…`, plain base64, or `whpk_…`. Errors: ValueError, which does not
    show it."""
    text = text.strip()
    if text.startswith(PUBLIC_HALF_PREFIX):
        return _read_public_half(text)
    if text.startswith(SECRET_HALF_PREFIX):
        raise ValueError("whsk_ is the sender's half of a signing key; whpk_ is what verifies")
    return _read_hmac(text)


def _read_hmac(text: str) -> HmacKey:
    key = _decoded(text.removeprefix(HMAC_PREFIX))
    if not HMAC_BYTES_MIN <= len(key) <= HMAC_BYTES_MAX:
        raise ValueError(
            f"a signing key must be {HMAC_BYTES_MIN} to {HMAC_BYTES_MAX} random bytes in base64, "
            f"with or without {HMAC_PREFIX} in front"
        )
    return HmacKey(key)


def _read_secret_half(text: str) -> Ed25519SigningKey:
    """32 bytes, or 64 with the public half behind them, as most libraries write it."""
    raw = _decoded(text.removeprefix(SECRET_HALF_PREFIX))
    if len(raw) not in (HALF_BYTES, 2 * HALF_BYTES):
        raise ValueError(
            f"an ed25519 signing key must be {SECRET_HALF_PREFIX} and base64 of 32 bytes, or of 64 "
            "with the public half behind"
        )
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ModuleNotFoundError:
        raise ValueError(_MISSING) from None
    key = Ed25519PrivateKey.from_private_bytes(raw[:HALF_BYTES])
    if raw[HALF_BYTES:] not in (b"", key.public_key().public_bytes_raw()):
        raise ValueError("the two halves of an ed25519 signing key do not belong together")
    return Ed25519SigningKey(key)


def _read_public_half(text: str) -> Ed25519VerifyingKey:
    raw = _decoded(text.removeprefix(PUBLIC_HALF_PREFIX))
    if len(raw) != HALF_BYTES:
        raise ValueError(
            f"the public half of an ed25519 signing key must be {PUBLIC_HALF_PREFIX} and base64 of "
            "32 bytes"
        )
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ModuleNotFoundError:
        raise ValueError(_MISSING) from None
    return Ed25519VerifyingKey(Ed25519PublicKey.from_public_bytes(raw))


def _decoded(text: str) -> bytes:
    """Nothing, if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
