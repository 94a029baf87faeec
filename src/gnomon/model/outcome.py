"""How an attempt ended. Values, not exceptions: the worker decides what follows from them."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

TEXT_CHARS_MAX = 2048  # of an answer or an error message: enough to see what happened


RESULT_BYTES_MAX = 64 * 1024  # of what a function returned, as JSON
# In place of a result that is not kept: no JSON begins so.
NOT_KEPT = "("


class Succeeded(msgspec.Struct, frozen=True, tag="succeeded"):
    """The effect is known to have happened; `answer` is what the receiver said, cut short, or what
    a function returned, as JSON."""

    answer: str | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed", kw_only=True):
    """The attempt is known or assumed to have failed; another one may follow."""

    error: str
    retryable: bool = True
    retry_after: timedelta | None = None  # the receiver asked for at least this much patience
    answer: str | None = None


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled", kw_only=True):
    """The called function asked that the action never be attempted again."""

    reason: str


class Interrupted(msgspec.Struct, frozen=True, tag="interrupted", kw_only=True):
    """The attempt was cut short by a crash, a freeze or a shutdown: its effect is unknown."""

    reason: str = "the worker disappeared"
    planned: bool = False  # a shutdown: the action is not suspected of being the cause
    reserved_until: datetime | None = None  # found out before its reservation was over


class Abandoned(msgspec.Struct, frozen=True, tag="abandoned", kw_only=True):
    """Begun, but nothing was sent: the worker was too late to dare it, or the target is at its
    limit. Tried again at once, or after a while; no failure."""

    reason: str = "too late to send"
    retry_after: timedelta = timedelta(0)


class Unserved(msgspec.Struct, frozen=True, tag="unserved"):
    """Begun, but nothing was sent: this worker does not serve what the effect needs. As if it had
    not been begun: it is due as before, for a worker that serves the need; see `model.need`."""

    need: str


Outcome = Succeeded | Failed | Cancelled | Interrupted | Abandoned | Unserved


def cut(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Keep the beginning of a long text; NUL is what PostgreSQL cannot store."""
    if len(text) <= chars_max and text.isascii() and "\x00" not in text:
        return text
    text = text.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


# What a Python function may raise to say how its attempt ended.


class Fail(Exception):  # noqa: N818 - a statement in user code: `raise Fail("no such user")`
    """Raise it in a function to fail the attempt; `retryable=False` gives the occurrence up."""

    def __init__(
        self, reason: str, *, retryable: bool = True, retry_after: timedelta | None = None
    ):
        if retry_after is not None and not isinstance(retry_after, timedelta):
            raise TypeError("Fail: retry_after must be a timedelta")
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable
        self.retry_after = retry_after


class Cancel(Exception):  # noqa: N818 - see Fail
    """Raise it in a function to end its action for good, as `cancelled`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
