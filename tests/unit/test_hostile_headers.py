"""Headers made to hurt (design/security.md 7.4), in every effect that carries some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_args

import pytest

from gnomon.model.effects import validate_effect
from gnomon.model.errors import InvalidSpec
from gnomon.model.spec import Effect, Grpc, Http, Kafka, Push, Rabbitmq

CARRIERS: Mapping[str, Callable[[dict[str, str]], Effect]] = {
    "http": lambda headers: Http("POST", "https://a.example/", headers=headers),
    "rabbitmq": lambda headers: Rabbitmq(target="t", routing_key="q", headers=headers),
    "kafka": lambda headers: Kafka(target="t", topic="t", value="x", headers=headers),
}
HOSTILE: Mapping[str, dict[str, str]] = {
    "CR": {"a": "x\ry"},
    "LF": {"a": "x\ny"},
    "CRLF": {"a": "x\r\nb: y"},
    "CRLF at the end": {"a": "x\r\n"},
    "NUL": {"a": "x\x00y"},
    "NEL": {"a": "x\x85y"},
    "line separator": {"a": "x\u2028y"},
    "obs-fold": {"a": "x\r\n y"},
    "obs-fold by LF and tab": {"a": "x\n\ty"},
    "escape": {"a": "\x1b[31m"},
    "DEL": {"a": "\x7f"},
    "other letters": {"a": "é"},
    "half a surrogate pair": {"a": "\ud800"},
    "no name": {"": "x"},
    "a name with a space": {"a b": "x"},
    "a name with a colon": {"a:": "x"},
    "a name with CRLF": {"a\r\nb": "x"},
    "a name with NUL": {"a\x00": "x"},
    "a name of other letters": {"é": "x"},
    "a name twice": {"Aa": "x", "aA": "y"},
    "a name of ours": {"gnomon-attempt": "7"},
    "a name of ours in capitals": {"GNOMON-Key": "x"},
    "10,000 of them": {f"h{number}": "x" for number in range(10_000)},
    "a value of 1 MB": {"a": "x" * 1_000_000},
    "a name of 1 MB": {"a" * 1_000_000: "x"},
}
FRAMING = ("Host", "host", "Transfer-Encoding", "Content-Length", "Connection", "Expect", "Cookie")


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_hostile_header_is_refused(carrier: str, name: str) -> None:
    """With the path, and in one short line: a value is not repeated."""
    with pytest.raises(InvalidSpec) as caught:
        validate_effect(CARRIERS[carrier](HOSTILE[name]))
    assert caught.value.path.startswith("spec.action.headers")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", FRAMING)
def test_framing_is_not_the_users(name: str) -> None:
    """`Content-Length: 0`, `Transfer-Encoding: chunked`, a second Host."""
    for value in ("0", "chunked", "inner.example"):
        with pytest.raises(InvalidSpec, match=f"headers.{name}"):
            validate_effect(CARRIERS["http"]({name: value}))


def test_other_effects_carry_none() -> None:
    """gRPC metadata and the headers of a push are ours alone."""
    for kind in (Grpc, Push):
        fields: tuple[str, ...] = kind.__struct_fields__
        assert not {"headers", "metadata"} & set(fields)


def test_the_table_is_of_every_effect_that_has_headers() -> None:
    carriers = get_args(Effect)
    named = {kind.__struct_config__.tag for kind in carriers if "headers" in kind.__struct_fields__}
    assert named == set(CARRIERS)
