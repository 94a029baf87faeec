"""What the command line shows of an action."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from gnomon.cli.view import due_text
from gnomon.model.action import Action, Attempt, Meta, Status
from gnomon.model.spec import Mock, Spec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
META = Meta(id="a", guid=UUID(int=1), shard=0, created_at=NOW, updated_at=NOW)
RUNNING = Attempt(attempt_id=UUID(int=2), attempt_no=1, occurrence_no=1, began_at=NOW)


def test_what_waits_is_due() -> None:
    """Its time, and how long until then."""
    status = Status(occurrence_at=NOW, scheduled_at=NOW)
    assert due_text(Action(meta=META, spec=Spec(action=Mock()), status=status)).startswith(
        "2026-01-01 00:00:00"
    )


def test_what_runs_is_not_due() -> None:
    """Its time is that at which others may take it over: nobody wants to read it as the next."""
    status = Status(occurrence_at=NOW, scheduled_at=NOW, current_attempt=RUNNING)
    assert "" == due_text(Action(meta=META, spec=Spec(action=Mock()), status=status))
