"""Why a SQL task waits, in a sentence: from its row and what the view `task_waiting` says of it."""

from __future__ import annotations

from datetime import datetime

from gnomon.contracts.task_rows import TaskDetail
from gnomon.model.why import WaitReason, Why

_BEHIND = "behind "
# What the view says, as a code and a sentence.
_WORDS = {
    "stopped": (WaitReason.ENDED, "It is stopped: `plan` lets it be performed after all."),
    "paused": (WaitReason.PAUSED, "It is paused until {plan} after the one before it (max < 0)."),
    "tried again later": (
        WaitReason.RETRYING,
        "It failed {retried} of {retry} times that it may be tried again; next at {plan}.",
    ),
    "planned later": (WaitReason.NOT_DUE, "It is planned for {plan}."),
    "nobody owns the table": (
        WaitReason.UNOWNED,
        "Nobody owns its table: start `gnomon tasks`, or look why it does not beat.",
    ),
    "being connected": (WaitReason.SOON, "It was taken, and its session is being connected."),
    "about to start": (WaitReason.SOON, "Nothing holds it up: it is about to start."),
}
_STATES = {
    "WORK": (WaitReason.RUNNING, "It does not wait: session {pid} has been at it since {start}."),
    "TAKE": _WORDS["being connected"],
    "DONE": (WaitReason.ENDED, "It is done since {stop}."),
    "FAIL": (WaitReason.ENDED, "It failed at {stop}: see its error."),
    "GONE": (WaitReason.ENDED, "Its time to be active was over before it could start."),
    "STOP": _WORDS["stopped"],
}
_UNKNOWN = (WaitReason.SOON, "Its table does not say why it waits.")


def explain_task(task: TaskDetail, *, at: datetime) -> Why:
    """The reason by its state, else by what its table says."""
    if task.why is not None and task.why.startswith(_BEHIND):
        code, words = WaitReason.GROUP, "It comes {why} {group!r}, which lets {most} work at once."
    elif task.why is not None:
        code, words = _WORDS.get(task.why, (WaitReason.SOON, task.why))
    else:
        code, words = _STATES.get(task.state, _UNKNOWN)
    facts = {"state": task.state, "group": task.group, "max": task.max, "plan": task.plan}
    return Why(
        id=str(task.id),
        code=code,
        sentence=_told(words, task),
        at=at,
        until=task.until,
        facts=facts if task.why is None else {**facts, "why": task.why},
    )


def _told(words: str, task: TaskDetail) -> str:
    if "{" not in words or words == task.why:
        return words
    return words.format(
        why=task.why,
        group=task.group,
        most=max(task.max, 0) + 1,
        plan=_moment(task.plan),
        start=_moment(task.start),
        stop=_moment(task.stop),
        pid=task.pid,
        retried=task.retried,
        retry=task.retry,
    )


def _moment(at: datetime | None) -> str:
    return "an unknown time" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"
