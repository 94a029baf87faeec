"""Actions and attempts as they are listed, among a thousand others: `get` shows results whole."""

from __future__ import annotations

import msgspec

from gnomon.model.action import Action, Attempt
from gnomon.model.outcome import TEXT_CHARS_MAX, cut


def shortened(action: Action) -> Action:
    """The action, with as much of its last answer as a list shows."""
    last = action.status.last_attempt
    if last is None or last.answer is None or len(last.answer) <= TEXT_CHARS_MAX:
        return action
    status = msgspec.structs.replace(action.status, last_attempt=cut_attempt(last))
    return msgspec.structs.replace(action, status=status)


def cut_attempt(attempt: Attempt) -> Attempt:
    """The attempt, with as much of its answer as a list shows."""
    if attempt.answer is None or len(attempt.answer) <= TEXT_CHARS_MAX:
        return attempt
    return msgspec.structs.replace(attempt, answer=cut(attempt.answer))
