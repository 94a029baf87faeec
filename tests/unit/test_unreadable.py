"""A stored spec that cannot be read is shown everywhere and spoils no listing."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from gnomon.cli.view import effect_text
from gnomon.gateways.grpc.conversion import write_action
from gnomon.model.action import Action, Meta, Status
from gnomon.model.codec import read_spec

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def unreadable() -> Action:
    meta = Meta(id="a", guid=UUID(int=1), shard=0, created_at=NOW, updated_at=NOW)
    return Action(meta=meta, spec=read_spec('{"action": 5}'), status=Status(occurrence_at=NOW))


def test_the_command_line_says_that_it_cannot_be_read() -> None:
    """A word instead of an effect."""
    assert "unreadable" == effect_text(unreadable().spec)


def test_grpc_shows_it_without_an_effect() -> None:
    """The oneof is not set; id and status are."""
    message = write_action(unreadable())
    assert "a" == message.meta.id
    assert message.spec.action.WhichOneof("action") is None
