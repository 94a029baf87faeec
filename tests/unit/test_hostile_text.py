"""What users and receivers write does not command a terminal (design/security.md 7.4, text)."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from gnomon.cli.output import show_error
from gnomon.cli.view import show_action, show_page
from gnomon.contracts.store import ActionPage
from gnomon.model.action import Action, Attempt, Meta, Status
from gnomon.model.spec import Http, Spec

NOW = datetime(2026, 3, 1, tzinfo=UTC)
GUID = UUID(int=1)
HOSTILE = [
    "\x1b[31mred", "\x1b]0;title\x07", "\x9b31m", "\u202eevil", "a\r\nstate  done", "\x00", "\x85",
    "[bold red]markup[/]", "[link=https://evil.example]click[/link]", "{0.__class__}", "%s%n",
    "<script>alert(1)</script>", "=cmd()", "\ud800",
]  # fmt: skip


def action_saying(text: str) -> Action:
    attempt = Attempt(
        attempt_id=GUID, attempt_no=1, occurrence_no=1, began_at=NOW, ended_at=NOW,
        outcome="failed", error=text, answer=text, owner=text,
    )  # fmt: skip
    spec = Spec(action=Http("GET", f"https://a.example/{text}"), labels={"a": text})
    meta = Meta(id="a", guid=GUID, shard=0, created_at=NOW, updated_at=NOW)
    return Action(meta=meta, spec=spec, status=Status(last_attempt=attempt, reason=text))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_not_obeyed(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In tables and errors: escaped, and no markup; nothing is swallowed either."""
    action = action_saying(text)
    show_action(action, as_json=False)
    show_page(ActionPage(actions=[action], next=None), as_json=False)
    show_error(text)
    out, err = capsys.readouterr()
    assert (out + err).replace("\n", "").isprintable()
    assert 3 < out.count("\n")
    shown = text.encode("unicode_escape").decode() if not text.isprintable() else text
    assert shown in err.replace("\n", "")
