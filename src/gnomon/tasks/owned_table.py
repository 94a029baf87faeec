"""What the parts of an owner share: the lease, and who watches."""

from __future__ import annotations

from uuid import UUID

from gnomon.contracts.env import Env
from gnomon.contracts.task_table import TaskTable
from gnomon.model.task.admission import Admission
from gnomon.model.task.conf import TaskEntry

NOBODY = UUID(int=0)


class OwnedTable:
    """A table, its settings, what is known of its rows, and whether it is ours at the moment."""

    def __init__(self, table: TaskTable, entry: TaskEntry, *, env: Env) -> None:
        self.table = table
        self.entry = entry
        self.env = env
        self.admission = Admission(entry.run)
        self.lease_guid = NOBODY  # of the latest lease; whether it holds is `is_ours`
        self.is_ours = False
        self.is_closing = False  # nothing is taken any more
        self.connecting_count = 0  # rows that are TAKE while a way to their `remote` is made

    def __repr__(self) -> str:
        return f"OwnedTable({self.entry.title}, {'ours' if self.is_ours else 'not ours'})"

    @property
    def may_take(self) -> bool:
        return self.is_ours and not self.is_closing

    def now(self) -> float:
        """Seconds for durations."""
        return self.env.clock.monotonic()

    def change(self, entry: TaskEntry) -> None:
        """Other settings for the same table; they count from now on."""
        self.entry = entry
        self.admission.run = entry.run

    def event(self, name: str, /, **fields: object) -> None:
        """Tell it, with the table's name."""
        self.env.observer.event(name, table=self.entry.title, **fields)

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        """Count it, by table."""
        self.env.observer.count(name, value, table=self.entry.title, **labels)

    def observe(self, name: str, value: float) -> None:
        """Measure it, by table."""
        self.env.observer.observe(name, value, table=self.entry.title)

    def gauge(self, name: str, value: float) -> None:
        """Show it, by table."""
        self.env.observer.gauge(name, value, table=self.entry.title)
