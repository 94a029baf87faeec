"""A program: what it declares in its code, and how its workers let the stored actions follow.

    program = Program("shop")
    program.declare(Request(id="nightly", spec=…))   # when its modules are imported

    await ProgramKeeper(scheduler, program, env).keep_working()   # in each of its workers

A keeper looks every few seconds which set of its program is the current one. If it is its own, it
goes over what is noted under a lower number, once; after that nothing is left to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, get_args

from gnomon.boundary import Round
from gnomon.contracts.env import Env
from gnomon.contracts.store import LOCAL, ActionDeclaration
from gnomon.model.declaration import (
    DeclarationSet,
    DeclareResult,
    Removal,
    fingerprint_of,
    set_fingerprint,
)
from gnomon.model.errors import ConfigurationError
from gnomon.model.function import FunctionRecord, encode_functions
from gnomon.model.ids import NAME_PATTERN, NAME_RULE
from gnomon.model.spec import CatchUp
from gnomon.scheduler.admission import Request, check_request, decide_revision, request_text
from gnomon.scheduler.options import FunctionOptions
from gnomon.scheduler.scheduler import Scheduler

LOOK_EVERY_S = 5.0
ALIVE_FOR = timedelta(seconds=30)  # several looks: one may come late
SERVE_EVERY_S = 15.0
FUNCTIONS_KEPT_FOR = timedelta(minutes=10)
NO_FUNCTIONS = "[]"


class DeclaredOptions(FunctionOptions, total=False):
    """What may be said about a recurring action where it is declared."""

    id: str  # the function's name, unless it is said
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    drift: bool
    catch_up: CatchUp
    occurrences_max: int
    successes_max: int
    consecutive_failures_max: int


class Declaration(NamedTuple):
    """One recurring action as the code has it."""

    request: Request
    fingerprint: str


class Program:
    """A named program and the actions that it declares. Filled at import, before it works."""

    def __init__(self, name: str, removal: Removal = "pause") -> None:
        if not NAME_PATTERN.fullmatch(name):
            raise ConfigurationError("program", f"{NAME_RULE} (got {name!r})")
        if removal not in get_args(Removal):
            wanted = " or ".join(map(repr, get_args(Removal)))
            raise ConfigurationError("removed", f"must be {wanted} (got {removal!r})")
        self.name = name
        self.removal: Removal = removal
        self.declarations: dict[str, Declaration] = {}

    def __repr__(self) -> str:
        return f"Program({self.name!r}, {len(self.declarations)} declared)"

    def declare(self, request: Request) -> None:
        """Errors: InvalidSpec and its kin; ConfigurationError if the id is declared already."""
        check_request(request)
        assert request.id is not None
        if request.id in self.declarations:
            raise ConfigurationError(
                f"action {request.id}", "is declared twice: give one of them another id="
            )
        fingerprint = fingerprint_of(request_text(request))
        self.declarations[request.id] = Declaration(request, fingerprint)

    @property
    def fingerprint(self) -> str:
        """Of the whole set; empty if it declares nothing."""
        return set_fingerprint([(name, one.fingerprint) for name, one in self.declarations.items()])


class ProgramKeeper:
    """Lets the stored actions of a program follow its code. A service of its workers."""

    def __init__(
        self,
        scheduler: Scheduler,
        program: Program,
        env: Env,
        functions: Sequence[FunctionRecord] = (),
    ) -> None:
        self._scheduler = scheduler
        self._store = scheduler.store.programs
        self._program = program
        self._entropy, self._observer, self._clock = env.entropy, env.observer, env.clock
        self._functions, self._left_out = encode_functions(functions)
        self._served_at: float | None = None
        self._told: set[tuple[str, str]] = set()

    def hint(self, shards: Collection[int]) -> None:
        """Arrivals are nothing to it."""

    async def drain(self, within: timedelta) -> None:
        """Each of its steps is a transaction: nothing is left on its way."""

    async def keep_working(self) -> None:
        """Look until cancelled; an unavailable store is waited for."""
        while True:
            with Round(self._observer, "program"):
                await self.bring_in_step()
                await self.serve_functions()
            await asyncio.sleep(LOOK_EVERY_S)

    async def serve_functions(self) -> None:
        """Publish what this program serves, every now and then."""
        now = self._clock.monotonic()
        is_due = self._served_at is None or now - self._served_at >= SERVE_EVERY_S
        if self._functions == NO_FUNCTIONS or not is_due:
            return
        if self._left_out:
            text = f"{self._left_out} of its functions are too many to be offered in forms"
            self._tell_once("functions_left_out", self._program.name, text)
        name, fingerprint = self._program.name, fingerprint_of(self._functions)
        await self._store.serve_functions(
            name, fingerprint, self._functions, kept_for=FUNCTIONS_KEPT_FOR
        )
        self._served_at = now

    async def bring_in_step(self, *, alive_for: timedelta = ALIVE_FOR) -> int:
        """Let all actions of the program follow, if its present set is this one; how many were
        created, changed or removed."""
        fingerprint = self._program.fingerprint
        current = await self._store.declare_set(
            self._program.name, fingerprint, alive_for=alive_for
        )
        if current is None:
            return 0
        if current.fingerprint != fingerprint:
            text = "other workers of the program, of a newer release, declare another set"
            self._tell_once("declarations_wait", self._program.name, text)
            return 0
        self._told.discard(("declarations_wait", self._program.name))
        return await self._follow(current, alive_for)

    async def _follow(self, current: DeclarationSet, alive_for: timedelta) -> int:
        noted = {note.id: note for note in await self._store.list_declared(self._program.name)}
        count = 0
        for name, declaration in self._program.declarations.items():
            note = noted.get(name)
            if note is None or note.set_no < current.set_no:
                result = await self._declare(declaration, current, alive_for)
                count += self._changed("action_declared", name, result)
        for name, note in noted.items():
            if name not in self._program.declarations and note.set_no < current.set_no:
                result = await self._store.remove_declared(
                    name,
                    self._entropy.guid(),
                    program=self._program.name,
                    set_no=current.set_no,
                    removal=self._program.removal,
                )
                count += self._changed("declared_action_removed", name, result)
        return count

    async def _declare(
        self, declaration: Declaration, current: DeclarationSet, alive_for: timedelta
    ) -> DeclareResult:
        draft = await self._scheduler._admit(declaration.request, LOCAL)  # noqa: SLF001 - of this package
        result = await self._store.declare_action(
            ActionDeclaration(
                program=self._program.name,
                set_no=current.set_no,
                fingerprint=declaration.fingerprint,
                draft=draft,
            ),
            decide=partial(decide_revision, draft),
            alive_for=alive_for,
        )
        if result in (DeclareResult.CREATED, DeclareResult.CHANGED):
            self._scheduler.store.wakeups.hint({draft.shard})
        return result

    def _changed(self, event: str, name: str, result: DeclareResult) -> bool:
        if result is DeclareResult.TAKEN:
            text = "its id belongs to an action that others made: give it another with id="
            self._tell_once("declaration_refused", name, text)
        if result not in (DeclareResult.CREATED, DeclareResult.CHANGED):
            return False
        self._observer.event(event, action=name, program=self._program.name, result=str(result))
        return True

    def _tell_once(self, event: str, subject: str, reason: str) -> None:
        if (event, subject) not in self._told:
            self._told.add((event, subject))
            self._observer.event(event, action=subject, program=self._program.name, reason=reason)
