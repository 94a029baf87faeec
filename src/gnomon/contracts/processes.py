"""Processes of other workers: whether one has ended, where that can be known for certain."""

from __future__ import annotations

from typing import Protocol


class Processes(Protocol):
    """What this machine knows of processes. No error comes out of it: what cannot be read is not
    known."""

    @property
    def own(self) -> str | None:
        """Names this process so that others can tell whether it lives; None: nobody could."""
        ...

    def has_ended(self, process: str) -> bool:
        """Whether the process so named has ended, beyond doubt: all of its threads are gone.

        False if it lives, and whenever it cannot be known: it is of another machine, container or
        boot, or its name is not one that this version understands.
        """
        ...


class NoProcesses:
    """Knows of no process, and so never says that one has ended."""

    own = None

    def has_ended(self, process: str) -> bool:  # noqa: ARG002 - the answer is the same for all
        return False
