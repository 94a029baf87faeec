"""What both engines keep of programs, and what a declaration makes of a stored action."""

from __future__ import annotations

from gnomon.contracts.store import ActionDeclaration, ActionDraft
from gnomon.model.declaration import DeclarationSet, DeclaredAction, DeclareResult, Revision

NOTHING_SEEN = ""  # in place of a fingerprint: the row was only made to be locked
# The action follows its declaration, which is noted then.
WRITTEN = (DeclareResult.CREATED, DeclareResult.CHANGED, DeclareResult.KEPT)


def known_text(current: DeclarationSet) -> str:
    """The fingerprints as they are stored."""
    return " ".join(current.known)


def known_of(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def note_of(declaration: ActionDeclaration) -> DeclaredAction:
    """What is noted when an action follows its declaration."""
    return DeclaredAction(
        id=declaration.draft.id,
        program=declaration.program,
        set_no=declaration.set_no,
        fingerprint=declaration.fingerprint,
    )


def revised_draft(draft: ActionDraft, revision: Revision) -> ActionDraft:
    """A draft with the spec and the times of a revision; that of a paused one is due when it was
    planned, for a draft has to be due sometime."""
    return ActionDraft(
        id=draft.id,
        guid=draft.guid,
        shard=draft.shard,
        spec=revision.spec,
        scheduled_at=revision.scheduled_at or revision.occurrence_at,
        occurrence_at=revision.occurrence_at,
        expires_at=revision.expires_at,
        retention=draft.retention,
    )
