"""One attempt of a SQL effect: its order, its target, and how far it came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.observer import Observer
from gnomon.executors._sql_target import SqlTarget
from gnomon.executors._sqlite import UNKNOWN_COMMIT
from gnomon.model.outcome import Failed, Interrupted, Outcome, cut
from gnomon.model.spec import Sql

if TYPE_CHECKING:
    import asyncpg  # an extra, which is loaded with the targets that need it

DETAIL_CHARS_MAX = 200
STALE_STATE = "GN001"
TIMED_OUT_STATE = "57014"

_RETRYABLE_CLASSES = ("08", "53", "57")
_RETRYABLE = frozenset({"40001", "40P01", "55P03"})


class SqlAttempt:
    """One order on its target, and how far it came."""

    def __init__(self, order: AttemptRequest, effect: Sql, target: SqlTarget) -> None:
        self.order = order
        self.effect = effect
        self.target = target
        self.is_committing = False

    def ended(self, failed: Failed) -> Outcome:
        """Cut short while committing, the effect is unknown: the next attempt will see it."""
        if self.is_committing and self.target.is_once:
            return Interrupted(reason=UNKNOWN_COMMIT)
        return failed

    def refused(self, exc: asyncpg.PostgresError) -> Outcome:
        state = exc.sqlstate or ""
        if state == STALE_STATE:
            return Interrupted(reason="another attempt has begun meanwhile")
        if state == TIMED_OUT_STATE:
            return self.ended(Failed(error=f"timed out after {self._patience_s:g} s"))
        is_passing = state in _RETRYABLE or state.startswith(_RETRYABLE_CLASSES)
        failed = Failed(
            error=f"refused with SQLSTATE {state}" if state else "the parameters do not fit",
            retryable=is_passing,
            answer=cut(self.target.hidden(str(exc.args[0]) if exc.args else "")) or None,
        )
        return self.ended(failed) if state.startswith(("08", "57")) else failed

    @property
    def _patience_s(self) -> float:
        return min(self.order.timeout_s, self.target.statement_timeout.total_seconds())

    def settings(self) -> dict[str, str]:
        """The limits of the session."""
        timeout = str(max(1, int(self._patience_s * 1000)))
        return {
            "application_name": f"gnomon sql {self.target.name}",
            "statement_timeout": timeout,
            "lock_timeout": str(int(self.target.lock_timeout.total_seconds() * 1000)),
            "idle_in_transaction_session_timeout": timeout,
            "search_path": f"{self.target.search_path}, pg_temp",
        }

    def tell(self, observer: Observer, error: str, detail: str) -> None:
        """The log hears what the caller may not see."""
        observer.event(
            "sql.statement_failed",
            id=self.order.id,
            attempt_id=str(self.order.attempt_id),
            error=error,
            detail=cut(self.target.hidden(detail), DETAIL_CHARS_MAX),
        )
