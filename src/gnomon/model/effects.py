"""Which effects are acceptable: the rules for each kind, checked at admission.

Pure. Where a request may go (forbidden addresses, ports, https only) is policy and is decided
where the connection is made; here is what no installation wants. No message shows a URL, a header
value, a body or an argument: they may hold secrets.
"""

from __future__ import annotations

import ipaddress
import math
import re
from datetime import timedelta
from typing import assert_never
from urllib.parse import SplitResult, urlsplit

import msgspec

from gnomon.model.errors import InvalidSpec, short
from gnomon.model.ids import check_name
from gnomon.model.secret import secret_name
from gnomon.model.spec import (
    COUNT_MAX,
    Effect,
    Grpc,
    Http,
    Kafka,
    Mock,
    Push,
    Python,
    Rabbitmq,
    Sql,
    Unreadable,
)

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
METHODS_WITHOUT_BODY = frozenset({"GET", "HEAD"})
URL_CHARS_MAX = 2048
HEADERS_MAX = 32
HEADER_CHARS_MAX = 1024
PAYLOAD_BYTES_MAX = 64 * 1024
PARAMETERS_MAX = 1_000
CODES_MAX = 32
JSON_DEPTH_MAX = 32
JSON_INT_MAX = 10**18 - 1  # 18 digits, as in `codec.parse_json`
HANG_MAX = timedelta(days=1)
ADDRESSEE_CHARS_MAX = 200
TTL_MIN = timedelta(seconds=1)
TTL_MAX = timedelta(days=28)  # what push services keep at most
ANSWER_CHARS_MAX = 2048
AMQP_NAME_BYTES_MAX = 255  # a short string of the protocol
AMQP_HEADER_NAME_CHARS_MAX = 128  # longer ones are cut on the way
KAFKA_KEY_BYTES_MAX = 1024

_URL_TEXT = re.compile(r"[!-\[\]-~]+", re.ASCII)  # visible ASCII but the backslash
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?", re.ASCII)
_IPV6_NETLOC = re.compile(r"\[[0-9A-Fa-f:.]+\](:[0-9]+)?", re.ASCII)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)  # RFC 9110, token
_HEADER_VALUE = re.compile(r"[ -~]*", re.ASCII)
_HEADERS_DENIED = frozenset({
    "host", "content-length", "transfer-encoding", "expect", "cookie", "traceparent",
    "connection", "keep-alive", "te", "trailer", "upgrade",  # hop-by-hop
})  # fmt: skip
_HEADERS_DENIED_PREFIXES = ("proxy-", "webhook-", "gnomon-")
# CC and BCC make RabbitMQ route copies, the others are what it says itself of a message's past.
_AMQP_HEADERS_DENIED = frozenset({"cc", "bcc", "x-death", "x-received-from"})
_AMQP_HEADERS_DENIED_PREFIXES = ("gnomon-", "x-first-death-", "x-last-death-")
_KAFKA_HEADERS_DENIED_PREFIXES = ("gnomon-",)
_KAFKA_TOPIC = re.compile(r"(?!__)(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}", re.ASCII)


def validate_effect(effect: Effect) -> None:
    """Refuse an effect that breaks a rule; the error names the field and the rule."""
    match effect:
        case Http():
            validate_http(effect)
        case Python():
            validate_python(effect)
        case Mock():
            validate_mock(effect)
        case Rabbitmq():
            validate_rabbitmq(effect)
        case Kafka():
            validate_kafka(effect)
        case Grpc():
            validate_grpc(effect)
        case Push():
            validate_push(effect)
        case Sql():
            validate_sql(effect)
        case _:
            assert_never(effect)


def ends_with_process(effect: Effect | Unreadable) -> bool:
    """Whether an attempt is surely over when the process that performs it is.

    A call goes on at whoever received it, a statement at its server; what runs in the process
    itself ends with it, and so does a publication: a broker has a message whole, or not at all.
    """
    match effect:
        case Python() | Mock() | Rabbitmq() | Kafka() | Unreadable():
            return True
        case Http() | Grpc() | Push() | Sql():
            return False
        case _:
            assert_never(effect)


# -- http -----------------------------------------------------------------------------------------


def validate_http(effect: Http) -> None:
    """Method, URL, headers, body and success codes of a call."""
    validate_url(effect.url)
    validate_call(effect)
    _validate_payload(effect)
    if len(effect.success) > CODES_MAX:
        raise InvalidSpec("spec.action.success", f"must have at most {CODES_MAX} codes")
    for code in effect.success:
        if not 100 <= code <= 599:
            raise InvalidSpec("spec.action.success", "must be codes from 100 to 599", got=code)


def validate_call(effect: Http) -> None:
    """Method and headers. Like the URL, asked again before the call: a spec may have come into the
    store by another way than admission."""
    if effect.method not in METHODS:
        known = ", ".join(sorted(METHODS))
        raise InvalidSpec("spec.action.method", f"must be one of {known}", got=effect.method)
    if not effect.headers:
        return
    _validate_headers(effect.headers, _HEADERS_DENIED, _HEADERS_DENIED_PREFIXES)
    for name, value in effect.headers.items():
        try:
            secret_name(value)
        except ValueError as exc:
            raise InvalidSpec(f"spec.action.headers.{name}", str(exc)) from None


def validate_url(url: str) -> None:
    """Scheme, host, port and spelling: nothing that two parsers might read differently."""
    path = "spec.action.url"
    if not 1 <= len(url) <= URL_CHARS_MAX:
        raise InvalidSpec(path, f"must have 1 to {URL_CHARS_MAX} characters")
    if not _URL_TEXT.fullmatch(url):
        raise InvalidSpec(
            path,
            "must be visible ASCII without backslashes: percent-encode the rest, write the host "
            "in punycode",
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidSpec(path, "must be a URL with a valid host and port") from None
    if parts.scheme not in ("http", "https"):
        raise InvalidSpec(path, "must begin with http:// or https://")
    if "@" in parts.netloc:
        raise InvalidSpec(path, "must not hold a user name or password; use a header")
    if "#" in url:
        raise InvalidSpec(path, "must not have a fragment")
    if port == 0 or parts.netloc.endswith(":"):
        raise InvalidSpec(path, "must have a port from 1 to 65535, or none")
    _validate_host(parts)


def _validate_host(parts: SplitResult) -> None:
    # Only forms that every URL parser reads alike: what is checked must be what is connected to.
    host = parts.hostname or ""
    if _IPV6_NETLOC.fullmatch(parts.netloc):
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise InvalidSpec("spec.action.url", "must have a valid IPv6 address") from None
    elif "[" in parts.netloc or not _HOST.fullmatch(host):
        raise InvalidSpec("spec.action.url", "must have a host out of A-Z a-z 0-9 . _ -, or [IPv6]")


def _validate_headers(
    headers: dict[str, str], denied: frozenset[str], denied_prefixes: tuple[str, ...]
) -> None:
    path = "spec.action.headers"
    if len(headers) > HEADERS_MAX:
        raise InvalidSpec(path, f"must be at most {HEADERS_MAX}", got=len(headers))
    names = set()
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or len(name) > HEADER_CHARS_MAX:
            raise InvalidSpec(path, "a name must be a token of RFC 9110", got=name)
        folded = name.lower()
        if folded in names:
            raise InvalidSpec(path, "a name must not stand twice", got=name)
        names.add(folded)
        if folded in denied or folded.startswith(denied_prefixes):
            raise InvalidSpec(f"{path}.{name}", "must not be set: it is not the caller's to say")
        if len(value) > HEADER_CHARS_MAX or not _HEADER_VALUE.fullmatch(value):
            raise InvalidSpec(
                f"{path}.{name}", f"must be visible ASCII, up to {HEADER_CHARS_MAX} characters"
            )


def _validate_payload(effect: Http) -> None:
    if effect.body is None and effect.json is None:
        return
    if effect.body is not None and effect.json is not None:
        raise InvalidSpec("spec.action.body", "must not be given together with json")
    path = "spec.action.json" if effect.body is None else "spec.action.body"
    if effect.method in METHODS_WITHOUT_BODY:
        raise InvalidSpec(path, f"must not be sent with {effect.method}")
    _validate_json(path, effect.json if effect.body is None else effect.body)


# -- python, mock ---------------------------------------------------------------------------------


def validate_python(effect: Python) -> None:
    """The function's name and its arguments; whether it exists is known to the workers only."""
    check_name("spec.action.function", effect.function)
    _validate_json("spec.action.args", effect.args)
    _validate_json("spec.action.kwargs", effect.kwargs)
    if len(msgspec.json.encode((effect.args, effect.kwargs))) > PAYLOAD_BYTES_MAX:
        raise InvalidSpec("spec.action.args", f"must be at most {PAYLOAD_BYTES_MAX} bytes as JSON")


def validate_mock(effect: Mock) -> None:
    """The counts and the time of a mock."""
    for name, count in (("fail", effect.fail), ("kill", effect.kill)):
        if not 0 <= count <= COUNT_MAX:
            raise InvalidSpec(
                f"spec.action.{name}", f"must be between 0 and {COUNT_MAX}", got=count
            )
    if not timedelta(0) <= effect.hang <= HANG_MAX:
        raise InvalidSpec("spec.action.hang", "must be between 0 and 1 day", got=effect.hang)
    if effect.answer is not None and len(effect.answer) > ANSWER_CHARS_MAX:
        raise InvalidSpec("spec.action.answer", f"must be at most {ANSWER_CHARS_MAX} characters")
    _validate_json("spec.action.answer", effect.answer)


# -- rabbitmq, kafka ------------------------------------------------------------------------------


def validate_rabbitmq(effect: Rabbitmq) -> None:
    """The names, the headers and the body; whether the exchange exists is known to the broker."""
    validate_target(effect.target)
    validate_message(effect)
    _validate_text_or_json("body", effect.body, effect.json)


def validate_message(effect: Rabbitmq) -> None:
    """Names and headers. Asked again before it is sent, as for a call: see `validate_call`."""
    _validate_amqp_name("spec.action.exchange", effect.exchange)
    _validate_amqp_name("spec.action.routing_key", effect.routing_key)
    if not effect.exchange and not effect.routing_key:
        raise InvalidSpec(
            "spec.action.routing_key", "must name a queue when the exchange is the default one"
        )
    _validate_headers(effect.headers, _AMQP_HEADERS_DENIED, _AMQP_HEADERS_DENIED_PREFIXES)
    if any(len(name) > AMQP_HEADER_NAME_CHARS_MAX for name in effect.headers):
        raise InvalidSpec(
            "spec.action.headers", f"a name must be at most {AMQP_HEADER_NAME_CHARS_MAX} characters"
        )
    if effect.content_type is not None and (
        not 1 <= len(effect.content_type) <= AMQP_NAME_BYTES_MAX
        or not _HEADER_VALUE.fullmatch(effect.content_type)
    ):
        raise InvalidSpec(
            "spec.action.content_type",
            f"must be visible ASCII, 1 to {AMQP_NAME_BYTES_MAX} characters",
        )


def validate_kafka(effect: Kafka) -> None:
    """The names, the headers, the key and the value."""
    validate_target(effect.target)
    validate_record(effect)
    _validate_text_or_json("value", effect.value, effect.json)
    if effect.value is None and effect.json is None and effect.key is None:
        raise InvalidSpec("spec.action.value", "must be given, or json, or at least a key")


def validate_record(effect: Kafka) -> None:
    """Topic, headers and key. Asked again before it is sent, as for a call: see `validate_call`."""
    if not _KAFKA_TOPIC.fullmatch(effect.topic):
        raise InvalidSpec(
            "spec.action.topic",
            "must be 1 to 249 characters out of A-Z a-z 0-9 . _ -, not beginning with __",
            got=effect.topic,
        )
    _validate_headers(effect.headers, frozenset(), _KAFKA_HEADERS_DENIED_PREFIXES)
    if effect.key is not None:
        _validate_json("spec.action.key", effect.key)
        if len(effect.key.encode()) > KAFKA_KEY_BYTES_MAX:
            raise InvalidSpec("spec.action.key", f"must be at most {KAFKA_KEY_BYTES_MAX} bytes")


# -- grpc, push, sql -------------------------------------------------------------------------------


def validate_grpc(effect: Grpc) -> None:
    """The target's and the handler's names, and the payload."""
    validate_target(effect.target)
    check_name("spec.action.handler", effect.handler)
    _validate_json("spec.action.payload", effect.payload)


def validate_push(effect: Push) -> None:
    """Whom it is for, how long it is worth sending, and the payload."""
    validate_target(effect.target)
    if effect.user is None and effect.device is None:
        raise InvalidSpec("spec.action.user", "must be given, or device, or both")
    for name, addressee in (("user", effect.user), ("device", effect.device)):
        if addressee is not None and (
            not 1 <= len(addressee) <= ADDRESSEE_CHARS_MAX or not addressee.isprintable()
        ):
            raise InvalidSpec(
                f"spec.action.{name}",
                f"must be 1 to {ADDRESSEE_CHARS_MAX} printable characters",
                got=addressee,
            )
    if not TTL_MIN <= effect.ttl <= TTL_MAX:
        raise InvalidSpec("spec.action.ttl", "must be between 1 second and 28 days", got=effect.ttl)
    _validate_json("spec.action.payload", effect.payload)


def validate_sql(effect: Sql) -> None:
    """The statement's text and its parameters; what it means is known to the database only."""
    validate_target(effect.target)
    if not effect.statement.strip():
        raise InvalidSpec("spec.action.statement", "must not be empty")
    _validate_json("spec.action.statement", effect.statement)
    if len(effect.parameters) > PARAMETERS_MAX:
        raise InvalidSpec("spec.action.parameters", f"must be at most {PARAMETERS_MAX}")
    _validate_json("spec.action.parameters", effect.parameters)


def validate_target(target: str) -> None:
    """The name of a target; whether it exists is known to the workers only."""
    check_name("spec.action.target", target)


def _validate_amqp_name(path: str, name: str) -> None:
    if _text_problem(name) or not name.isprintable():
        raise InvalidSpec(path, "must be printable")
    if len(name.encode()) > AMQP_NAME_BYTES_MAX:
        raise InvalidSpec(path, f"must be at most {AMQP_NAME_BYTES_MAX} bytes in UTF-8")


def _validate_text_or_json(field: str, text: str | None, json: object) -> None:
    if text is not None and json is not None:
        raise InvalidSpec(f"spec.action.{field}", "must not be given together with json")
    if text is not None:
        _validate_json(f"spec.action.{field}", text)
    elif json is not None:
        _validate_json("spec.action.json", json)


# -- JSON values ----------------------------------------------------------------------------------


def _validate_json(path: str, value: object) -> None:
    problem = json_problem(value)
    if problem is not None:
        raise InvalidSpec(path, problem)
    size = len(value.encode() if isinstance(value, str) else msgspec.json.encode(value))
    if size > PAYLOAD_BYTES_MAX:
        raise InvalidSpec(path, f"must be at most {PAYLOAD_BYTES_MAX} bytes", got=size)


def json_problem(value: object, depth_max: int = JSON_DEPTH_MAX) -> str | None:
    """Why a value would not come back from JSON as it is; None if it would.

    Tuples are refused, for they would come back as lists.
    """
    match value:
        case None | bool():
            return None
        case int():
            return None if abs(value) <= JSON_INT_MAX else "holds an integer of over 18 digits"
        case float():
            return None if math.isfinite(value) else "holds a number that is not finite"
        case str():
            return _text_problem(value)
        case list():
            return _parts_problem(value, depth_max)
        case dict():
            if not all(isinstance(key, str) for key in value):
                return "holds an object with a key that is no string"
            return _parts_problem([*value, *value.values()], depth_max)
        case _:
            kind = short(type(value).__name__)
            return f"holds a {kind}; JSON has null, bool, int, float, str, list and dict only"


def _parts_problem(parts: list[object], depth_max: int) -> str | None:
    if depth_max == 0:
        return f"is nested deeper than {JSON_DEPTH_MAX} levels"
    for part in parts:
        problem = json_problem(part, depth_max - 1)
        if problem is not None:
            return problem
    return None


def _text_problem(text: str) -> str | None:
    if text.isascii():
        return "holds NUL" if "\x00" in text else None
    if "\x00" in text or any("\ud800" <= char <= "\udfff" for char in text):
        return "holds NUL or half of a surrogate pair"
    return None
