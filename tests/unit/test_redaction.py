"""What people may not see of payloads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from gnomon.contracts.store.entities import StageState
from gnomon.gateways.config import ServerConfig
from gnomon.gateways.redaction import WHOLE, Sight
from gnomon.model.action import Action, Attempt, Meta, Status
from gnomon.model.errors import ConfigurationError, InvalidSpec
from gnomon.model.function import FunctionParameter, FunctionRecord
from gnomon.model.redaction import MARKER, Redaction, places_of
from gnomon.model.spec import Grpc, Http, Kafka, Mock, Push, Python, Rabbitmq, Spec, Sql
from gnomon.model.why import WaitReason, Why
from gnomon.scheduler.failure_groups import FailureGroup, FailureReport

AT = datetime(2030, 1, 1, tzinfo=UTC)
GUID = UUID(int=1)
LOGIN = FunctionRecord(
    name="login",
    parameters=(
        FunctionParameter(name="user", place=0),
        FunctionParameter(name="password", place=1, default="12345"),
        FunctionParameter(name="mode"),
    ),
)
PLACES = places_of([LOGIN])


def action_of(effect: Any, **attempt: Any) -> Action:
    last = Attempt(attempt_id=GUID, attempt_no=1, occurrence_no=1, began_at=AT, **attempt)
    meta = Meta(id="a", guid=GUID, shard=0, created_at=AT, updated_at=AT)
    return Action(meta=meta, spec=Spec(action=effect), status=Status(last_attempt=last))


@pytest.mark.parametrize(
    ("path", "effect", "shown"),
    [
        ("args.password", Python(function="f", kwargs={"password": "x", "a": 1}),
         Python(function="f", kwargs={"password": MARKER, "a": 1})),
        ("args.password", Python(function="login", args=["ann", "s3cret"]),
         Python(function="login", args=["ann", MARKER])),
        ("args.password", Python(function="unknown", args=["ann", "s3cret"]),
         Python(function="unknown", args=[MARKER, MARKER])),
        ("args.1", Python(function="login", args=["ann", "s3cret"]),
         Python(function="login", args=["ann", MARKER])),
        ("args", Python(function="f", args=[1], kwargs={"a": 1}),
         Python(function="f", args=[MARKER], kwargs={"a": MARKER})),
        ("args.card.*.no", Python(function="f", kwargs={"card": [{"no": 1, "b": 2}]}),
         Python(function="f", kwargs={"card": [{"no": MARKER, "b": 2}]})),
        ("headers.X-Key", Http("GET", "https://x/", headers={"X-KEY": "B", "x": "y"}),
         Http("GET", "https://x/", headers={"X-KEY": MARKER, "x": "y"})),
        ("headers", Rabbitmq(target="t", routing_key="k", headers={"a": "b"}),
         Rabbitmq(target="t", routing_key="k", headers={"a": MARKER})),
        ("body.card.*", Http("POST", "https://x/", json={"card": {"no": 1, "cvc": 2}, "a": 3}),
         Http("POST", "https://x/", json={"card": {"no": MARKER, "cvc": MARKER}, "a": 3})),
        ("body.a", Http("POST", "https://x/", body='{"a": 1, "b": 2}'),
         Http("POST", "https://x/", body='{"a":"[redacted]","b":2}')),
        ("body", Kafka(target="t", topic="k", value="text"),
         Kafka(target="t", topic="k", value=MARKER)),
        ("body.a", Grpc(target="t", handler="h", payload={"a": {"b": 1}}),
         Grpc(target="t", handler="h", payload={"a": MARKER})),
        ("body.*.b", Push(target="t", ttl=timedelta(1), payload={"a": {"b": 1}}),
         Push(target="t", ttl=timedelta(1), payload={"a": {"b": MARKER}})),
        ("parameters.0", Sql(target="t", statement="SELECT $1", parameters=["a", "b"]),
         Sql(target="t", statement="SELECT $1", parameters=[MARKER, "b"])),
    ],
)  # fmt: skip
def test_a_path_hides_what_is_there(path: str, effect: Any, shown: Any) -> None:
    """Whatever the effect; the stored action is as it was."""
    action = action_of(effect)
    assert shown == Redaction([path]).hide(action, PLACES).spec.action
    assert effect == action.spec.action
    with pytest.raises(InvalidSpec, match="stands for a value that is not shown"):
        Redaction([path]).check(Spec(action=shown))
    Redaction([path]).check(Spec(action=effect))


@pytest.mark.parametrize(
    "effect",
    [
        Mock(),
        Python(function="f", kwargs={"pass": 1}),
        Http("GET", "https://x/", body="password=1"),
    ],
)
def test_what_has_nothing_hidden_is_shown_as_it_is(effect: Any) -> None:
    """The very same object."""
    action = action_of(effect)
    redaction = Redaction(["args.password", "body.password", "headers.x"])
    assert action is redaction.hide(action, PLACES)


def test_hidden_values_are_not_told_by_texts() -> None:
    """Errors and answers repeat what a function was called with."""
    effect = Python(function="f", kwargs={"password": {"old": "s3cret", "no": 123456}, "a": "ok"})
    action = action_of(effect, error="ok: 's3cret' is wrong", answer='"123456"')
    redaction = Redaction(["args.password"])
    last = redaction.hide(action, {}).status.last_attempt
    assert last is not None
    assert ("ok: '[redacted]' is wrong", '"[redacted]"') == (last.error, last.answer)
    assert action.status.last_attempt is not None
    (attempt,) = redaction.hide_attempts([action.status.last_attempt], action, {})
    assert last.error == attempt.error


def test_a_filter_must_not_tell_it() -> None:
    """By name, by a path above or below, or by place."""
    redaction = Redaction(["args.password", "body.card.*"])
    for path in (("password",), ("password", "x"), ("card",), ("card", "no"), (0,)):
        assert redaction.hides_argument(path), path
    assert not redaction.hides_argument(("user",))
    assert not Redaction(["headers.x"]).hides_argument((0,))
    shown = redaction.hide_defaults(LOGIN)
    assert "12345" not in str(shown)


@pytest.mark.parametrize(
    "path", ["", "password", "arg.x", "args.", "args..x", "args.a b", "args.$"]
)
def test_a_path_that_is_none_is_an_error_at_the_start(path: str) -> None:
    """Who mistypes it must not believe that something is hidden."""
    with pytest.raises(ConfigurationError, match=r"^server\.redact: "):
        ServerConfig(redact=(path,))


def test_groups_of_failures_do_not_tell_it() -> None:
    """Of an action that is gone, nothing is known that its error must not hold."""
    group = FailureGroup(
        fingerprint="s3cret is wrong", error="s3cret is wrong", count=1, dead=1, queues=(),
        functions=(), first_at=AT, last_at=AT, ids=("a",),
    )  # fmt: skip
    report = FailureReport(at=AT, groups=(group, group), looked_at=2, partial=False)
    action = action_of(Python(function="f", kwargs={"password": "s3cret"}))
    seen = Sight(Redaction(["args.password"]), {}).see_failures(report, [action, None])
    assert ["[redacted] is wrong", MARKER] == [one.error for one in seen.groups]
    assert "s3cret" not in str(seen)
    assert report is WHOLE.see_failures(report, [action, None])


def test_why_it_ended_does_not_tell_it() -> None:
    """The sentence repeats the reason, which may repeat an error."""
    why = Why(id="a", code=WaitReason.ENDED, sentence="It ended as dead: s3cret.", at=AT)
    action = action_of(Python(function="f", kwargs={"password": "s3cret"}))
    sight = Sight(Redaction(["args.password"]), {})
    assert "It ended as dead: [redacted]." == sight.see_why(why, action).sentence
    assert MARKER == sight.see_why(why, None).sentence
    assert why is WHOLE.see_why(why, action)


@pytest.mark.parametrize(
    ("path", "body", "kind", "shown"),
    [
        ("state.card", b'{"card":"4111","n":1}', None, f'{{"card":"{MARKER}","n":1}}'),
        ("state", b'{"card":"4111"}', None, f'{{"card":"{MARKER}"}}'),
        ("state", b"4111", None, f'"{MARKER}"'),
        ("state.card", b"not JSON 4111", None, f'"{MARKER}"'),
        ("state.card", b"\x0a\x044111", "shop.Card", f'"{MARKER}"'),
        ("document.card", b'{"card":"4111"}', None, '{"card":"4111"}'),
    ],
)
def test_a_state_is_hidden_as_its_path_says(
    path: str, body: bytes, kind: str | None, shown: str
) -> None:
    """By path where it is JSON. What nobody here can look into, a message or what is no JSON, is
    hidden whole."""
    state = StageState(version=1, revision=1, body=body, type=kind)
    seen = Sight(Redaction([path]), places_of([])).see_state(state)
    assert seen is not None
    assert shown == seen.body.decode()
    assert None is seen.type
    assert state is WHOLE.see_state(state)
