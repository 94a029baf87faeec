"""SQL tasks: the rules of a `task` table, without a database."""

from gnomon.model.task.row import (
    GroupKey,
    Outcome,
    RemoteRefused,
    RowRefused,
    SessionLost,
    Task,
    Waiting,
)

__all__ = ["GroupKey", "Outcome", "RemoteRefused", "RowRefused", "SessionLost", "Task", "Waiting"]
