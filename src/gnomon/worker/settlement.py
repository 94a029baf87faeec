"""What follows for a due row that cannot be begun: its attempt broke off, or it was missed."""

from __future__ import annotations

from gnomon.contracts.store import LapsedRow, SettleRequest
from gnomon.model.outcome import Interrupted
from gnomon.model.transition import MissedOccurrences, decide


def settlement_of(lapsed: LapsedRow) -> SettleRequest:
    """Decide it by the rules of the model, on the row as it was read."""
    event = Interrupted() if lapsed.running else MissedOccurrences()
    verdict = decide(lapsed.spec, lapsed.status, event, guid=lapsed.guid, now=lapsed.now)
    reason = "the worker disappeared" if lapsed.running else "not begun in time"
    return SettleRequest(lapsed=lapsed, verdict=verdict, reason=reason)
