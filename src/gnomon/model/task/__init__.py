"""SQL tasks: the rules of a `task` table, without a database."""

from gnomon.model.task.row import (
    DueTask,
    GroupKey,
    Outcome,
    RemoteRefused,
    RowRefused,
    SessionLost,
    Task,
)

__all__ = ["DueTask", "GroupKey", "Outcome", "RemoteRefused", "RowRefused", "SessionLost", "Task"]
