"""Pages of actions: which halves of the store a selection is about, and where a page goes on."""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

from gnomon.contracts.store import Selection
from gnomon.model.action import State
from gnomon.model.arguments import ArgumentFilter, check_count, filter_of
from gnomon.model.errors import InvalidRequest
from gnomon.model.ids import ID_PATTERN, NAME_PATTERN

LOOKED_AT_MAX = 3_000  # rows for one page, where no index knows which are wanted, or for a count
DUE_MAX = 1_000  # actions that are found by their due time; more are looked for by their ids
DUE_LANES_MAX = 5_000  # looked at for it
RECURRING_POLICIES = ("cron", "periodic")
NONE: frozenset[State] = frozenset()
PAUSED = frozenset({State.PAUSED})
LIVE = frozenset(state for state in State if not state.is_terminal)
FINISHED = frozenset(State) - LIVE
TROUBLE = FINISHED - {State.DONE}
_PLAIN = re.compile(r"[\w .,:;=+*-]+", re.ASCII)
LAST_CHAR = "\U0010ffff"  # behind all that begins with a prefix


class ListPart(NamedTuple):
    """One half of a listing: a template of SQL, what else is said in it, and its table."""

    template: str
    extra: str
    table: str


def wants_live(selection: Selection) -> bool:
    """Whether active or paused actions may be selected."""
    return any(not state.is_terminal for state in selection.states or State)


def wants_finished(selection: Selection) -> bool:
    """Whether finished actions may be selected; none of them is due, or comes again."""
    is_wanted = any(state.is_terminal for state in selection.states or State)
    return (
        is_wanted
        and selection.due_before is None
        and selection.paused_for is None
        and not selection.recurring
    )


def is_sought(selection: Selection) -> bool:
    """Whether there are conditions that no index answers: the rows have to be looked at."""
    return bool(
        selection.queue is not None
        or selection.due_before is not None
        or selection.function is not None
        or selection.error_contains
        or selection.labels
        or selection.arguments
        or selection.search
        or selection.recurring
        or selection.paused_for is not None
        or not _has_index(selection)
    )


def filters_of(selection: Selection) -> list[ArgumentFilter]:
    """What its arguments ask for. Errors: InvalidSpec."""
    check_count(len(selection.arguments), "arguments")
    return [
        filter_of(path, value)._replace(places=_places_of(selection, path))
        for path, value in selection.arguments.items()
    ]


def _places_of(selection: Selection, path: str) -> tuple[tuple[str, int], ...]:
    places = selection.places.get(path.partition(".")[0], {})
    return tuple((name, place) for name, place in places.items() if NAME_PATTERN.fullmatch(name))


def _has_index(selection: Selection) -> bool:
    """Whether all that an index knows together is wanted, in both halves."""
    wanted = frozenset(selection.states or State)
    return wanted & LIVE in (NONE, PAUSED, LIVE) and wanted - LIVE in (NONE, TROUBLE, FINISHED)


def wants_paused(selection: Selection) -> bool:
    """Whether paused ones are all that is wanted of live ones: an index knows them."""
    is_asked = frozenset(selection.states or State) & LIVE == PAUSED
    return is_asked or selection.paused_for is not None


def wants_trouble(selection: Selection) -> bool:
    """Whether no finished one is wanted that ended well: an index knows the others."""
    return State.DONE not in (selection.states or State)


def plain_text(text: str) -> str | None:
    """The text, if it stands in JSON as it is: rows without it need not be read as JSON."""
    return text if _PLAIN.fullmatch(text) else None


def nearest(*ends: str | None) -> str | None:
    """The first id at which somebody stops looking; None if nobody does."""
    return min((end for end in ends if end is not None), default=None)


def write_cursor(name: str) -> str:
    """The `next` of a page that ends with this id."""
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def read_cursor(cursor: str | None) -> str:
    """The id after which a page begins; nothing sorts before the empty text."""
    if cursor is None:
        return ""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        name = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        name = ""
    if not ID_PATTERN.fullmatch(name):
        raise InvalidRequest("`after` must be the `next` of a former page, unchanged")
    return name
