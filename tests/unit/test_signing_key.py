"""Signatures with ed25519 (`v1a`), beside those with HMAC."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gnomon.executors.http import HttpTarget
from gnomon.model.errors import ConfigurationError
from gnomon.model.secret import Secret
from gnomon.model.signature import SignatureError, signature_headers, verify
from gnomon.model.signing_key import (
    Ed25519VerifyingKey,
    VerifyingKey,
    read_key,
    read_verifying_key,
)

# The pair and the signature of the standard's first implementation (Svix, its own tests).
SECRET_BYTES = "6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc="
SECRET = (
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
)
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
KNOWN = (
    "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
)
HMAC = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER_PUBLIC = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="  # RFC 8032, 7.1, test 1

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "http.md"
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ID, BODY = "act_aaaaaaaaaaaaaaaaaaaaaaaaaa", b'{"n":1}'


def signed(*keys: str) -> dict[str, str]:
    sent = int(NOW.timestamp())
    signatures = signature_headers(
        [read_key(key) for key in keys],
        id=ID, attempt_no=2, expires=sent + 30, timestamp=sent, body=BODY,
    )  # fmt: skip
    return {
        "webhook-id": ID, "webhook-timestamp": str(sent), "gnomon-attempt": "2",
        "gnomon-expires": str(sent + 30), **signatures,
    }  # fmt: skip


@pytest.mark.parametrize("key", [SECRET, f"whsk_{SECRET_BYTES}", f" {SECRET}\n"])
def test_a_known_signature(key: str) -> None:
    """With the public half behind the secret one, or without it."""
    headers = signature_headers(
        [read_key(key)],
        id="msg_p5jXN8AQM9LWM0D4loKWxJek", attempt_no=1, expires=1614265360, timestamp=1614265330,
        body=b'{"test": 2432232314}',
    )  # fmt: skip
    assert KNOWN == headers["Webhook-Signature"]


@pytest.mark.parametrize(
    ("seed", "public", "content", "signature"),
    [  # RFC 8032, 7.1: tests 1 to 3
        ("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
         "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
         ("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701c"
         "f9b46bd25bf5f0595bbe24655141438e7a100b")),
        ("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
         "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
         ("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0"
         "f11d8c387b2eaeb4302aeeb00d291612bb0c00")),
        ("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
         "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
         ("6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f76098"
         "4dc6594a7c15e9716ed28dc027beceea1ec40a")),
    ],
)  # fmt: skip
def test_the_vectors_of_the_standard(seed: str, public: str, content: str, signature: str) -> None:
    """Signed and verified, byte for byte."""
    wanted = "v1a," + base64.b64encode(bytes.fromhex(signature)).decode()
    key = read_key("whsk_" + base64.b64encode(bytes.fromhex(seed)).decode())
    half = read_verifying_key("whpk_" + base64.b64encode(bytes.fromhex(public)).decode())
    assert wanted == key.sign(bytes.fromhex(content))
    assert half.fits(bytes.fromhex(content), [wanted])
    assert not half.fits(bytes.fromhex(content) + b"x", [wanted])


def test_the_receiver_needs_no_secret() -> None:
    """The public half verifies what the secret half signed; another one does not."""
    assert (ID, 2) == verify(signed(SECRET), BODY, [PUBLIC], now=NOW)[:2]
    with pytest.raises(SignatureError, match="fits"):
        verify(signed(SECRET), BODY, [OTHER_PUBLIC], now=NOW)
    with pytest.raises(SignatureError, match="fits"):
        verify(signed(SECRET), BODY + b" ", [PUBLIC], now=NOW)


def test_a_receiver_changes_from_one_kind_to_the_other_without_a_gap() -> None:
    """While both are configured, receivers with either one are content."""
    headers = signed(HMAC, SECRET)
    versions = [part.partition(",")[0] for part in headers["Webhook-Signature"].split(" ")]
    assert ["v1", "v1a"] == versions
    for keys in ([HMAC], [PUBLIC], [OTHER_PUBLIC, HMAC], [HMAC, PUBLIC]):
        assert (ID, 2) == verify(headers, BODY, keys, now=NOW)[:2]
    assert verify(signed(HMAC), BODY, [PUBLIC, HMAC], now=NOW)
    with pytest.raises(SignatureError, match="fits"):
        verify(signed(HMAC), BODY, [PUBLIC], now=NOW)


@pytest.mark.parametrize(
    "forged",
    [
        "", "v1a,", "v1a", "v1a,AAAA", "v1a," + "A" * 88, "v1a,é", KNOWN,
        KNOWN.replace("v1a", "v1"), "v1,AAAA", " ".join([KNOWN] * 1000),
    ],
)  # fmt: skip
def test_a_forged_signature_is_noticed(forged: str) -> None:
    """One that is none, one of another request, and a thousand of them."""
    with pytest.raises(SignatureError, match="fits"):
        verify({**signed(SECRET), "Gnomon-Signature": forged}, BODY, [PUBLIC], now=NOW)


def test_the_work_of_a_long_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each signature costs a multiplication on the curve: no more than sixteen are looked at."""
    seen: list[int] = []
    fits: Callable[..., bool] = Ed25519VerifyingKey.fits

    def counted(self: VerifyingKey, content: bytes, signatures: Sequence[str]) -> bool:
        seen.append(len(signatures))
        return fits(self, content, signatures)

    monkeypatch.setattr(Ed25519VerifyingKey, "fits", counted)
    with pytest.raises(SignatureError):
        verify(
            {**signed(SECRET), "Gnomon-Signature": " ".join([KNOWN] * 1000)},
            BODY, [PUBLIC], now=NOW,
        )  # fmt: skip
    assert [16] == seen


@pytest.mark.parametrize(
    ("read", "text", "words"),
    [
        (read_key, "whsk_", "32 bytes"),
        (read_key, "whsk_canary", "32 bytes"),
        (read_key, "whsk_" + base64.b64encode(b"canary" * 8).decode(), "32 bytes"),
        (read_key, SECRET[:-8] + "AAAAAA==", "do not belong together"),
        (read_key, PUBLIC, "whsk_ is what signs"),
        (read_verifying_key, SECRET, "whpk_ is what verifies"),
        (read_verifying_key, "whpk_", "32 bytes"),
        (read_verifying_key, PUBLIC + "AAAA", "32 bytes"),
        (read_verifying_key, "", "24 to 64"),
        (read_verifying_key, "whsec_", "24 to 64"),
    ],
)
def test_a_bad_key_is_refused_and_not_shown(read: Any, text: str, words: str) -> None:
    with pytest.raises(ValueError, match="key") as caught:
        read(text)
    assert words in str(caught.value)
    assert not any(part in str(caught.value) for part in ("canary", SECRET[5:20], "Y2FuYXJ5"))


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the keys are configured, and for a receiver; HMAC does without it."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(ConfigurationError, match=r"pip install .gnomon-scheduler\[ed25519\]"):
        HttpTarget(name="hooks", url_prefix="https://a.example", signing_keys=(Secret(SECRET),))
    with pytest.raises(ValueError, match="ed25519"):
        verify(signed(HMAC), BODY, [PUBLIC], now=NOW)
    assert verify(signed(HMAC), BODY, [HMAC], now=NOW)


def test_openssl_makes_a_pair(tmp_path: Path) -> None:
    """As docs/howto/http.md says: both halves out of one file."""
    block = re.search(r"```sh\n(openssl genpkey.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    made = subprocess.run(
        ["sh", "-ec", block[1]], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    secret, public = made.stdout.split()
    assert verify(signed(secret), BODY, [public], now=NOW)
