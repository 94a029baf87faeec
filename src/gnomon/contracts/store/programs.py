"""Programs, and the actions that they declare: see `model.declaration`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from gnomon.contracts.store.actions import ActionDraft
from gnomon.contracts.store.value import Value
from gnomon.model.action import Action
from gnomon.model.declaration import (
    DeclarationSet,
    DeclaredAction,
    DeclareResult,
    Removal,
    Revision,
)
from gnomon.model.function import FunctionSet

SETS_MAX = 200  # releases of programs


class ActionDeclaration(Value, frozen=True):
    """What a program says of an action, ready to be stored."""

    program: str
    set_no: int
    fingerprint: str
    draft: ActionDraft  # if it has to be created; its guid is that of the next generation, too


# Of a live action, the present, and whether it goes on after a pause. It is pure.
DecideRevision = Callable[[Action, datetime, bool], Revision]


class ProgramStore(Protocol):
    """Knows which program declares what, and lets the stored actions follow."""

    async def declare_set(
        self, program: str, fingerprint: str, *, alive_for: timedelta
    ) -> DeclarationSet | None:
        """Say that a living worker declares this set of the program's actions; which is the
        program's current one, by `model.declaration.next_set`. One at a time for each program. None
        if nothing was ever declared, nor is now."""
        ...

    async def list_declared(self, program: str) -> Sequence[DeclaredAction]:
        """What is known of the actions that a program declared, in order of id; those that it does
        not declare any more are among them."""
        ...

    async def declare_action(
        self, declaration: ActionDeclaration, *, decide: DecideRevision, alive_for: timedelta
    ) -> DeclareResult:
        """Let one action follow its declaration, by `model.declaration.decide_declare`: create it;
        or give it a new generation with the spec and the times that `decide` says, whose counters
        go on; or leave it as it is. Notes set and fingerprint in the same transaction, unless the
        result is LATE, TAKEN or RUNNING: then nothing is written. Ordered against begin and finish
        as replace is. What a removal paused goes on; what somebody else paused stays so. The audit
        has it as `declare`. A repeat changes nothing."""
        ...

    async def remove_declared(
        self, id: str, guid: UUID, *, program: str, set_no: int, removal: Removal
    ) -> DeclareResult:
        """The program's set `set_no` does not declare this action any more. By
        `model.declaration.decide_removal`: pause it under the new `guid`, with a reason; or delete
        it, and what is noted of it; or only note it. What is noted as removed already, or was
        paused before, is left as it is. The audit has it as `remove_declared`."""
        ...

    async def serve_functions(
        self, program: str, fingerprint: str, functions: str, *, kept_for: timedelta
    ) -> None:
        """Say that a living worker of this program serves these functions, as
        `model.function.encode_functions` writes them. Each release, by its `fingerprint`, has a row
        of its own; those that nobody has said for `kept_for` are removed."""
        ...

    async def list_functions(self, *, alive_for: timedelta) -> Sequence[FunctionSet]:
        """What living programs serve: what was said within `alive_for`, at most `SETS_MAX`, the
        latest said first."""
        ...
