"""Signatures of callbacks, as receivers verify them."""

from __future__ import annotations

import base64
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from standardwebhooks import Webhook

from gnomon.model.signature import SignatureError, signature_headers, verify
from gnomon.model.signing_key import read_key

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
KEY = "whsec_" + base64.b64encode(b"k" * 24).decode()
OLD_KEY = base64.b64encode(b"o" * 64).decode()
BODY = '{"name":"änn"}'.encode()
ID = "act_aaaaaaaaaaaaaaaaaaaaaaaaaa"


def signed(
    *keys: str, now: datetime = NOW, body: bytes = BODY, attempt_no: int = 2, **changed: str
) -> dict[str, str]:
    """The headers of a request, as the executor sends them; some changed on the way."""
    timestamp, expires = int(now.timestamp()), int(now.timestamp()) + 30
    signatures = signature_headers(
        [read_key(key) for key in keys or (KEY,)],
        id=ID, attempt_no=attempt_no, expires=expires, timestamp=timestamp, body=body,
    )  # fmt: skip
    headers = {
        "webhook-id": ID, "webhook-timestamp": str(timestamp), "gnomon-attempt": str(attempt_no),
        "gnomon-expires": str(expires), **signatures,
    }  # fmt: skip
    return {**headers, **{name.replace("_", "-"): value for name, value in changed.items()}}


def test_a_genuine_request_tells_about_itself() -> None:
    """The key, the attempt and when it expires; names of headers in any case."""
    delivery = verify({k.upper(): v for k, v in signed().items()}, BODY, [KEY], now=NOW)
    assert (ID, 2, NOW + timedelta(seconds=30)) == delivery


def test_standard_webhooks_verifies_it() -> None:
    """By the standard's own library, which compares with the present."""
    now = datetime.now(UTC)
    headers = {name.lower(): value for name, value in signed(OLD_KEY, KEY, now=now).items()}
    assert {"name": "änn"} == Webhook(KEY).verify(BODY, headers)


def test_a_known_signature() -> None:
    """The example of the specification's libraries: the bytes that are signed never change."""
    headers = signature_headers(
        [read_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")],
        id="msg_p5jXN8AQM9LWM0D4loKWxJek", attempt_no=1, expires=1614265360, timestamp=1614265330,
        body=b'{"test": 2432232314}',
    )  # fmt: skip
    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == headers["Webhook-Signature"]


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook_id": "act_b"},
        {"gnomon_attempt": "1"},
        {"gnomon_expires": "1999999999"},
        {"webhook_timestamp": str(int(NOW.timestamp()) + 1)},
        {"Gnomon_Signature": ""},
        {"Gnomon_Signature": "v1,"},
        {"Gnomon_Signature": " ".join(["v1,AAAA"] * 1000)},
        {"gnomon_attempt": "two"},
        {"gnomon_expires": "9" * 30},
    ],
)
def test_a_changed_header_is_noticed(changed: dict[str, Any]) -> None:
    """Number and expiry of the attempt are signed like the rest."""
    with pytest.raises(SignatureError):
        verify(signed(**changed), BODY, [KEY], now=NOW)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "Gnomon-Signature"])
def test_a_missing_header_is_noticed(name: str) -> None:
    headers = signed()
    del headers[name]
    with pytest.raises(SignatureError, match="missing"):
        verify(headers, BODY, [KEY], now=NOW)


def test_a_changed_body_or_another_key_is_noticed() -> None:
    for body, keys in ((BODY + b" ", [KEY]), (BODY, [OLD_KEY]), (BODY, [])):
        with pytest.raises(SignatureError, match="fits"):
            verify(signed(), body, keys, now=NOW)


def test_one_signature_is_not_the_other() -> None:
    """A standard signature over a body made to look like ours is not taken for ours."""
    timestamp = int(NOW.timestamp())
    forged = f"{timestamp + 30}.{timestamp}.".encode() + BODY
    standard = signature_headers(
        [read_key(KEY)], id=ID, attempt_no=1, expires=0, timestamp=2, body=forged
    )
    with pytest.raises(SignatureError, match="fits"):
        verify(signed(Gnomon_Signature=standard["Webhook-Signature"]), BODY, [KEY], now=NOW)


@pytest.mark.parametrize("late", [timedelta(minutes=10), timedelta(minutes=-10)])
def test_old_and_future_requests_are_refused(late: timedelta) -> None:
    """A request that was caught and is sent again later."""
    with pytest.raises(SignatureError, match="too old"):
        verify(signed(), BODY, [KEY], now=NOW + late)


def test_keys_are_exchanged_without_a_gap() -> None:
    """While two are configured, receivers with either one are content."""
    headers = signed(OLD_KEY, KEY)
    assert 2 == len(headers["Webhook-Signature"].split(" "))
    assert verify(headers, BODY, [KEY], now=NOW) == verify(headers, BODY, [OLD_KEY], now=NOW)
    assert verify(signed(KEY), BODY, [OLD_KEY, KEY], now=NOW)


@pytest.mark.parametrize(
    "text", ["", "whsec_", "canary", base64.b64encode(b"k" * 23).decode(), "whsec_canary canary!"]
)
def test_a_bad_key_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="signing key") as caught:
        read_key(text)
    assert "canary" not in str(caught.value)


def test_a_replayed_request_has_the_key_it_had() -> None:
    """While it is fresh it verifies again, so the key is what a receiver refuses it by; a replay
    cannot have another one, and ends with the tolerance."""
    caught = signed()
    first, again = (verify(caught, BODY, [KEY], now=NOW + timedelta(seconds=s)) for s in (0, 299))
    assert first.key == again.key == ID
    with pytest.raises(SignatureError, match="fits"):
        verify({**caught, "webhook-id": "act_b"}, BODY, [KEY], now=NOW)
    with pytest.raises(SignatureError, match="fits"):
        verify({**caught, "webhook-timestamp": str(int(NOW.timestamp()) + 600)}, BODY, [KEY],
               now=NOW + timedelta(minutes=10))  # fmt: skip
    with pytest.raises(SignatureError, match="too old"):
        verify(caught, BODY, [KEY], now=NOW + timedelta(minutes=5, microseconds=1))


def test_time_does_not_tell_which_signature_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one that is offered is compared with every key, in constant time, also after a fit."""
    compared: list[bool] = []
    compare = hmac.compare_digest

    def counted(wanted: bytes, given: bytes) -> bool:
        compared.append(compare(wanted, given))
        return compared[-1]

    monkeypatch.setattr(hmac, "compare_digest", counted)
    right = signed()["Gnomon-Signature"]
    for offered in (f"{right} v1,AAAA v1,BBBB", f"v1,AAAA v1,BBBB {right}"):
        compared.clear()
        verify(signed(Gnomon_Signature=offered), BODY, [OLD_KEY, KEY], now=NOW)
        assert (6, 1) == (len(compared), sum(compared))
