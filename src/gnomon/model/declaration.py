"""Actions that a program declares in its code, and how what is stored follows the code.

A *program* (`shop`) declares a set of actions; the fingerprint of the set tells it from others. One
set of each program is the current one, and its number grows with every change. A set that nobody
has seen before becomes the current one at once: that is a new release. A known one does only when
no living worker declares the current one any more: that is a roll-back, and not the restart of an
old worker in the middle of a rolling deploy. So two releases side by side do not take turns.

What is stored about an action bears the number of the set that wrote it; who comes with a lower
one is late and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Literal
from uuid import UUID

import msgspec

from gnomon.model.action import Action, State
from gnomon.model.spec import Spec

FINGERPRINT_CHARS = 16
KNOWN_MAX = 100  # so many former sets of a program are remembered
SEEN_PART = 4  # a living set says so this often within the time for which it counts as living

Removal = Literal["pause", "delete", "keep"]


def fingerprint_of(*texts: str) -> str:
    """Tells what is declared from what was declared before."""
    digest = sha256()
    for text in texts:
        digest.update(f"{len(text)}:{text}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:FINGERPRINT_CHARS]


class DeclarationSet(msgspec.Struct, frozen=True, kw_only=True):
    """The current set of a program."""

    set_no: int
    fingerprint: str  # empty: it declares nothing any more
    seen_at: datetime  # when a living worker said last that it declares it
    known: tuple[str, ...] = ()  # fingerprints of the program's sets, the latest last

    def is_alive(self, now: datetime, alive_for: timedelta) -> bool:
        """Whether somebody declares it. An empty set keeps nobody from declaring something."""
        return bool(self.fingerprint) and self.seen_at > now - alive_for


def next_set(
    before: DeclarationSet | None, fingerprint: str, *, now: datetime, alive_for: timedelta
) -> DeclarationSet | None:
    """A living worker declares this set: which is the program's current one now? The same value if
    there is nothing to write; None if there never was one, and nothing is declared."""
    if before is None:
        if not fingerprint:
            return None
        return DeclarationSet(set_no=1, fingerprint=fingerprint, seen_at=now, known=(fingerprint,))
    if fingerprint == before.fingerprint:
        is_fresh = before.is_alive(now, alive_for / SEEN_PART)
        return before if is_fresh else msgspec.structs.replace(before, seen_at=now)
    is_new = bool(fingerprint) and fingerprint not in before.known
    if before.is_alive(now, alive_for) and not is_new:
        return before
    known = (*(one for one in before.known if one != fingerprint), fingerprint)[-KNOWN_MAX:]
    return DeclarationSet(
        set_no=before.set_no + 1, fingerprint=fingerprint, seen_at=now, known=known
    )


# -- one action -----------------------------------------------------------------------------------


class DeclaredAction(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an action that a program declared."""

    id: str
    program: str
    set_no: int  # of the set that wrote this
    fingerprint: str  # of the declaration that the action follows
    is_removed: bool = False  # that set does not declare it any more
    paused_as: UUID | None = None  # the generation that the removal paused


class DeclareResult(StrEnum):
    """What became of a declaration, or of its removal."""

    CREATED = "created"
    CHANGED = "changed"
    KEPT = "kept"  # as it is, or as it ended
    LATE = "late"  # the program declares another set by now
    TAKEN = "taken"  # the id belongs to somebody else
    RUNNING = "running"  # an attempt is under way: try again when it has ended


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """What a declaration makes of a live action: all but its counters."""

    spec: Spec
    state: State
    occurrence_no: int
    occurrence_at: datetime
    scheduled_at: datetime | None  # None: paused
    expires_at: datetime | None
    occurrence_failures: int = 0


def decide_declare(
    program: str,
    set_no: int,
    fingerprint: str,
    *,
    note: DeclaredAction | None,
    live: Action | None,
    others_alive: bool,
) -> DeclareResult:
    """What is to be done for a declared action, by what is stored of it. `others_alive`: the
    program that the note names has living workers."""
    if note is None:
        return DeclareResult.CREATED if live is None else DeclareResult.TAKEN
    if note.program != program:
        if others_alive:
            return DeclareResult.TAKEN
    elif note.set_no > set_no:
        return DeclareResult.LATE
    is_changed = note.fingerprint != fingerprint
    if live is None:  # it ended, or somebody cancelled it: that is not undone by a restart
        return DeclareResult.CREATED if is_changed else DeclareResult.KEPT
    if not is_changed and not is_paused_by_removal(note, live):
        return DeclareResult.KEPT
    if live.status.current_attempt is not None:
        return DeclareResult.RUNNING
    return DeclareResult.CHANGED


def decide_removal(
    program: str,
    set_no: int,
    removal: Removal,
    *,
    note: DeclaredAction | None,
    live: Action | None,
) -> DeclareResult:
    """The same for one that its program does not declare any more."""
    if note is None or note.program != program or note.set_no >= set_no:
        return DeclareResult.LATE
    is_idle = live is None or (removal == "pause" and _is_paused_for_good(live))
    if note.is_removed or removal == "keep" or is_idle:
        return DeclareResult.KEPT
    assert live is not None
    if live.status.current_attempt is not None:
        return DeclareResult.RUNNING
    return DeclareResult.CHANGED


def _is_paused_for_good(live: Action) -> bool:
    """A pause that ends by itself would bring back what is not declared any more."""
    return live.status.state is State.PAUSED and live.status.paused_until is None


def is_paused_by_removal(note: DeclaredAction, live: Action) -> bool:
    """Whether it is paused because it was removed, and nobody has changed it since."""
    return live.status.state is State.PAUSED and note.paused_as == live.meta.guid


def removal_reason(program: str) -> str:
    """What a paused action says of it."""
    return f"the program {program} does not declare it any more"


def set_fingerprint(declarations: Sequence[tuple[str, str]]) -> str:
    """Of ids and the fingerprints of their declarations, in any order; empty if there are none."""
    if not declarations:
        return ""
    return fingerprint_of(*(text for pair in sorted(declarations) for text in pair))
