"""Effects: what may be called, with which URL, headers, body and arguments."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.effects import json_problem, validate_effect, validate_http
from gnomon.model.errors import InvalidSpec
from gnomon.model.spec import Effect, Grpc, Http, Kafka, Mock, Push, Python, Rabbitmq, Sql

URL = "https://a.example/hook"
DEEP: list[Any] = []
for _ in range(40):
    DEEP = [DEEP]


def refusal_of(effect: Effect) -> str | None:
    try:
        validate_effect(effect)
    except InvalidSpec as exc:
        return str(exc)
    return None


BAD_URLS = [
    "", "a.example", "//a.example/", "/hook", "http:", "http:/a", "http:a", "http://", "http:///x",
    "https://?q", "file:///etc/passwd", "gopher://a/", "ftp://a/", "unix:/run/x", "javascript:1",
    "http+unix://a/", "https://ok@169.254.169.254/", "https://u:p@a.example/", "https://@a.example/",
    "https://169.254.169.254#@ok/", "https://a.example/#frag", "https://a.example#",
    "https://a.example\\@b/", "https:\\\\a.example", "https://a.example/a\\b",
    "https://a .example/",
    "https://a.example/a b", " https://a.example/", "https://a.example/\t", "https://a.example/\n",
    "https://a.ex\nample/", "https://a.example/\r\nX: y", "https://a.example/\x00",
    "https://a.example/\x7f", "https://a.example/\x85", "https://a.example/é",
    "https://\u2460\u2461\u2466.0.0.1/", "https://\u0430.example/", "https://a.example:0/",
    "https://a.example:65536/", "https://a.example:-1/", "https://a.example:x/", "https://a.example:/",
    "https://a.example:80:90/", "https://[::1", "https://::1/", "https://[::1]x/",
    "https://[::1]a.example:80/", "https://x[::1]/", "https://[fe80::1%25eth0]/", "https://[v1.x]/",
    "https://[1.2.3.4]/", "https://a..example/", "https://.a.example/", "https://a%2eexample/",
    "https://" + "a" * 64 + ".example/", "https://" + "a." * 200 + "example/",
    "https://a.example/" + "x" * 2048, "https://a,b/", "https://a;b/", "https://$a/", "https://'a'/",
]  # fmt: skip


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_bad_url_is_refused(url: str) -> None:
    """Only http and https, a host that all parsers read alike, nothing hidden in it."""
    with pytest.raises(InvalidSpec) as caught:
        validate_http(Http("GET", url))
    assert "spec.action.url" == caught.value.path
    assert not url or url not in str(caught.value)  # it may hold a secret


@pytest.mark.parametrize(
    "url",
    [
        URL, "http://localhost:8080", "HTTPS://A.EXAMPLE/", "https://a.example./", "http://a_b-c/",
        "https://[2001:db8::1]:8443/x", "https://192.0.2.1:65535/", "https://a.example/%00?q=a@b:c",
        "https://a.example?x=1", "https://a.example/" + "x" * 2030, "https://xn--e1afmkfd.example/",
    ],
)  # fmt: skip
def test_a_plain_url_is_accepted(url: str) -> None:
    """What is syntactically clean passes; where it leads is another module's business."""
    assert refusal_of(Http("GET", url)) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"": "x"}, {"a b": "x"}, {"a:": "x"}, {"é": "x"}, {"a\r\n": "x"}, {"a\x00": "x"},
        {"(a)": "x"}, {"x" * 1025: "x"}, {"A": "1", "a": "2"}, {"a": "x\r\nb: c"}, {"a": "x\n"},
        {"a": "\r"}, {"a": "x\x00"}, {"a": "\x85"}, {"a": "\u2028"}, {"a": "é"}, {"a": "\t"},
        {"a": "x\r\n y"}, {"a": "\x7f"}, {"a": "x" * 1025}, {"a": "x" * 1_000_000},
        {f"h{n}": "x" for n in range(33)},
    ],
)  # fmt: skip
def test_bad_headers_are_refused(headers: dict[str, str]) -> None:
    """Token names, visible ASCII, 32 of them, 1 KiB each; values are never repeated."""
    with pytest.raises(InvalidSpec, match=r"^spec\.action\.headers") as caught:
        validate_http(Http("GET", URL, headers=headers))
    assert len(str(caught.value)) < 1300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "Host", "HOST", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE",
        "Trailer", "Upgrade", "Expect", "Cookie", "Proxy-Authorization", "proxy-x", "Webhook-Id",
        "webhook-signature", "Gnomon-Attempt-Id", "traceparent", "Traceparent",
    ],
)  # fmt: skip
def test_headers_that_are_not_the_users_are_refused(name: str) -> None:
    """Framing, identity and our own names."""
    with pytest.raises(InvalidSpec, match=f"spec.action.headers.{name}"):
        validate_http(Http("GET", URL, headers={name: "x"}))


BAD_EFFECTS: list[tuple[Effect, str]] = [
    (Http("get", URL), "method"),
    (Http("TRACE", URL), "method"),
    (Http("CONNECT", URL), "method"),
    (Http("", URL), "method"),
    (Http("GET\r\n", URL), "method"),
    (Http("GET", URL, body="x"), "body"),
    (Http("HEAD", URL, json={}), "json"),
    (Http("POST", URL, body="x", json=1), "body"),
    (Http("POST", URL, body="x" * 65537), "body"),
    (Http("POST", URL, body="é" * 32769), "body"),
    (Http("POST", URL, body="\x00"), "body"),
    (Http("POST", URL, body="\ud800"), "body"),
    (Http("POST", URL, json=["x" * 65536]), "json"),
    (Http("POST", URL, json=[float("nan")]), "json"),
    (Http("POST", URL, json={"a": float("inf")}), "json"),
    (Http("POST", URL, json={"a": 10**18}), "json"),
    (Http("POST", URL, json={"a\x00": 1}), "json"),
    (Http("POST", URL, json={"a": "\udfff"}), "json"),
    (Http("POST", URL, json={1: 2}), "json"),
    (Http("POST", URL, json=(1, 2)), "json"),
    (Http("POST", URL, json={"a": timedelta(1)}), "json"),
    (Http("POST", URL, json=DEEP), "json"),
    (Http("GET", URL, success=(99,)), "success"),
    (Http("GET", URL, success=(200, 600)), "success"),
    (Http("GET", URL, success=tuple(range(200, 233))), "success"),
    (Python(function=""), "function"),
    (Python(function="os.system('x')"), "function"),
    (Python(function="x" * 65), "function"),
    (Python(function="a\n"), "function"),
    (Python(function="f", args=[object()]), "args"),
    (Python(function="f", args=["x" * 65536]), "args"),
    (Python(function="f", args=["x" * 40000], kwargs={"a": "x" * 40000}), "args"),
    (Python(function="f", kwargs={"a": float("nan")}), "kwargs"),
    (Python(function="f", kwargs={1: 2}), "kwargs"),  # type: ignore[dict-item]
    (Mock(fail=-1), "fail"),
    (Mock(kill=-1), "kill"),
    (Mock(fail=2**31), "fail"),
    (Mock(hang=timedelta(days=1, microseconds=1)), "hang"),
    (Mock(hang=timedelta(seconds=-1)), "hang"),
    (Mock(answer="x" * 2049), "answer"),
    (Mock(answer="\ud800"), "answer"),
    (Rabbitmq(target="", routing_key="q"), "target"),
    (Rabbitmq(target="amqp://u:p@host/", routing_key="q"), "target"),
    (Rabbitmq(target="t", routing_key=""), "routing_key"),
    (Rabbitmq(target="t", routing_key="é" * 128), "routing_key"),
    (Rabbitmq(target="t", routing_key="a\nb"), "routing_key"),
    (Rabbitmq(target="t", routing_key="\ud800"), "routing_key"),
    (Rabbitmq(target="t", exchange="x" * 256, routing_key="q"), "exchange"),
    (Rabbitmq(target="t", exchange="a\x00", routing_key="q"), "exchange"),
    (Rabbitmq(target="t", routing_key="q", body="x", json=1), "body"),
    (Rabbitmq(target="t", routing_key="q", body="x" * 65537), "body"),
    (Rabbitmq(target="t", routing_key="q", body="\x00"), "body"),
    (Rabbitmq(target="t", routing_key="q", json=[float("nan")]), "json"),
    (Rabbitmq(target="t", routing_key="q", content_type=""), "content_type"),
    (Rabbitmq(target="t", routing_key="q", content_type="a/b\r\n"), "content_type"),
    (Rabbitmq(target="t", routing_key="q", content_type="x" * 256), "content_type"),
    (Rabbitmq(target="t", routing_key="q", headers={"x" * 129: "a"}), "headers"),
    (Rabbitmq(target="t", routing_key="q", headers={"a b": "x"}), "headers"),
    (Rabbitmq(target="t", routing_key="q", headers={"a": "x\r\n"}), "headers.a"),
    (Rabbitmq(target="t", routing_key="q", headers={"CC": "other"}), "headers.CC"),
    (Rabbitmq(target="t", routing_key="q", headers={"BCC": "other"}), "headers.BCC"),
    (
        Rabbitmq(target="t", routing_key="q", headers={"Gnomon-Attempt": "1"}),
        "headers.Gnomon-Attempt",
    ),
    (Kafka(target="a b", topic="t", value="x"), "target"),
    (Kafka(target="t", topic="", value="x"), "topic"),
    (Kafka(target="t", topic="..", value="x"), "topic"),
    (Kafka(target="t", topic="a/b", value="x"), "topic"),
    (Kafka(target="t", topic="a\n", value="x"), "topic"),
    (Kafka(target="t", topic="x" * 250, value="x"), "topic"),
    (Kafka(target="t", topic="__consumer_offsets", value="x"), "topic"),
    (Kafka(target="t", topic="t"), "value"),
    (Kafka(target="t", topic="t", value="x", json=1), "value"),
    (Kafka(target="t", topic="t", value="é" * 32769), "value"),
    (Kafka(target="t", topic="t", value="\ud800"), "value"),
    (Kafka(target="t", topic="t", json={1: 2}), "json"),
    (Kafka(target="t", topic="t", key="x" * 1025), "key"),
    (Kafka(target="t", topic="t", key="\x00"), "key"),
    (Kafka(target="t", topic="t", value="x", headers={"gnomon-key": "1"}), "headers.gnomon-key"),
    (Kafka(target="t", topic="t", value="x", headers={"a": "\x00"}), "headers.a"),
]


@pytest.mark.parametrize(("effect", "field"), BAD_EFFECTS)
def test_a_bad_effect_is_refused_by_its_field(effect: Effect, field: str) -> None:
    """The error names the field and does not repeat a payload."""
    with pytest.raises(InvalidSpec) as caught:
        validate_effect(effect)
    assert f"spec.action.{field}" == caught.value.path
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "effect",
    [
        Http("POST", URL, headers={"Authorization": "Bearer x y", "Content-Type": "a/b"}, json=[]),
        Http("DELETE", URL, body="x" * 65536, success=(100, 404, 599)),
        Http("PATCH", URL, json={"ä": [1.5, None, True, "é😀"]}),
        Http("POST", URL, json=0),
        Python(function="mail.send_2-x", args=[1, "a"], kwargs={"b": {"c": []}}),
        Mock(fail=3, kill=1, hang=timedelta(days=1), answer="ok"),
        Rabbitmq(target="main", routing_key="mail"),
        Rabbitmq(target="main", exchange="events", routing_key="", json={"ä": 1}),
        Rabbitmq(
            target="m", routing_key="é" * 127, body="", headers={"X-A": "b"}, content_type="a/b"
        ),
        Kafka(target="main", topic="orders.v1", value=""),
        Kafka(target="main", topic="a" * 249, key="é" * 512),
        Kafka(target="main", topic="_t", json=0, headers={"CC": "x", "Cookie": "y"}),
    ],
)
def test_a_good_effect_is_accepted(effect: Effect) -> None:
    """What obeys the rules passes without a word."""
    assert refusal_of(effect) is None


@given(st.text(max_size=60), st.text(max_size=20), st.text(max_size=20))
def test_only_our_error_leaves_the_validation(url: str, name: str, value: str) -> None:
    """Whatever is written, the answer is yes or InvalidSpec; a yes is plain ASCII."""
    try:
        validate_http(Http("GET", "https://" + url, headers={name: value}))
    except InvalidSpec:
        return
    assert (url + name + value).isascii()
    assert "\n" not in name + value


def test_json_problems_are_none_for_json() -> None:
    """The check agrees with what JSON has."""
    assert json_problem({"a": [None, True, 1, 1.5, "x", {}]}) is None
    assert "holds a 'set'" in str(json_problem([{1}]))
    assert "nested" in str(json_problem(DEEP))


# -- grpc, push -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "path"),
    [
        (Grpc(target="", handler="a"), "target"),
        (Grpc(target="a b", handler="a"), "target"),
        (Grpc(target="a", handler=""), "handler"),
        (Grpc(target="a", handler="a/b"), "handler"),
        (Grpc(target="a", handler="a" * 65), "handler"),
        (Grpc(target="a", handler="a\r\nb"), "handler"),
        (Grpc(target="a", handler="a", payload=object()), "payload"),
        (Grpc(target="a", handler="a", payload=DEEP), "payload"),
        (Grpc(target="a", handler="a", payload="\x00"), "payload"),
        (Grpc(target="a", handler="a", payload=["x" * 70_000]), "payload"),
        (Sql(target="a b", statement="SELECT 1"), "target"),
        (Sql(target="a", statement=" "), "statement"),
        (Sql(target="a", statement="SELECT '\x00'"), "statement"),
        (Sql(target="a", statement="x" * 70_000), "statement"),
        (Sql(target="a", statement="SELECT $1", parameters=[float("inf")]), "parameters"),
        (Sql(target="a", statement="SELECT $1", parameters=[1] * 1_001), "parameters"),
        (Push(target="", ttl=timedelta(minutes=1), user="ann"), "target"),
        (Push(target="a", ttl=timedelta(minutes=1)), "user"),
        (Push(target="a", ttl=timedelta(minutes=1), user=""), "user"),
        (Push(target="a", ttl=timedelta(minutes=1), user="a\nb"), "user"),
        (Push(target="a", ttl=timedelta(minutes=1), device="a" * 201), "device"),
        (Push(target="a", ttl=timedelta(minutes=1), user="a", device="\u202e"), "device"),
        (Push(target="a", ttl=timedelta(milliseconds=999), user="ann"), "ttl"),
        (Push(target="a", ttl=-timedelta(days=1), user="ann"), "ttl"),
        (Push(target="a", ttl=timedelta(days=29), user="ann"), "ttl"),
        (Push(target="a", ttl=timedelta(minutes=1), user="ann", payload=float("nan")), "payload"),
    ],
)
def test_a_bad_call_of_a_handler_or_push_is_refused(effect: Effect, path: str) -> None:
    """The error names the field, and shows no payload."""
    with pytest.raises(InvalidSpec) as caught:
        validate_effect(effect)
    assert f"spec.action.{path}" == caught.value.path


@pytest.mark.parametrize(
    "effect",
    [
        Grpc(target="a", handler="remind.basket"),
        Grpc(target="a", handler="a", payload={"deep": [1, None, "ü"]}),
        Push(target="a", ttl=timedelta(seconds=1), user="ann"),
        Sql(target="a", statement="SELECT $1", parameters=[{"a": None}], autocommit=True),
        Push(target="a", ttl=timedelta(days=28), device="phone-7", payload=[]),
        Push(target="a", ttl=timedelta(hours=1), user="ann", device="phone"),
    ],
)
def test_a_good_call_of_a_handler_or_push_is_accepted(effect: Effect) -> None:
    """Nothing to say against it."""
    assert refusal_of(effect) is None
