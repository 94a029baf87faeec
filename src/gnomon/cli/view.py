"""How actions, pages and attempts look on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.cli.output import console, from_now, moment, print_json, print_table, say, state_cell
from gnomon.contracts.store import ActionPage, ChangeResult
from gnomon.model.action import Action, Attempt, State
from gnomon.model.duration import format_duration
from gnomon.model.spec import (
    Cron,
    Grpc,
    Http,
    Kafka,
    Mock,
    Once,
    Periodic,
    Push,
    Python,
    Rabbitmq,
    Spec,
    Sql,
    Unreadable,
)
from gnomon.model.why import Why


def show_action(action: Action, *, as_json: bool) -> None:
    """One action in full."""
    if as_json:
        print_json(action)
        return
    spec, status = action.spec, action.status
    rows: list[tuple[str, object]] = [
        ("id", action.meta.id),
        ("state", state_cell(status.state)),
        ("reason", pause_text(action) or status.reason),
        ("needs", status.need),
        ("does", effect_text(spec)),
        ("when", policy_text(spec)),
        ("due", due_text(action)),
        ("attempts", counts_text(action)),
        ("queue", f"{spec.queue}, priority {spec.priority}"),
        ("labels", ", ".join(f"{name}={value}" for name, value in spec.labels.items())),
        ("last attempt", attempt_text(status.last_attempt)),
        ("under way", attempt_text(status.current_attempt)),
        ("created", moment(action.meta.created_at)),
        ("finished", moment(status.finished_at)),
        ("guid", action.meta.guid),
    ]
    print_table(("", ""), [(name, value) for name, value in rows if value])


def pause_text(action: Action) -> str | None:
    """Of a paused action: why, and until when."""
    status = action.status
    if status.state is not State.PAUSED:
        return None
    until = "" if status.paused_until is None else f"until {moment(status.paused_until)}"
    return ", ".join(part for part in (status.reason, until) if part) or None


def show_changed(changed: ChangeResult, *, as_json: bool, done: str) -> None:
    """What a change made of an action; `done` says it in a word."""
    if as_json:
        print_json(changed.action)
        return
    action = changed.action
    repeated = " (repeated: nothing was changed)" if changed.repeated else ""
    due, paused = due_text(action), pause_text(action)
    more = f", due {due}" if due else f": {paused}" if paused else ""
    say(f"{done} {action.meta.id}: {action.status.state}{more}{repeated}")
    if changed.in_flight is not None:
        asked = ", and was asked to end" if changed.asked else ""
        flight = changed.in_flight.attempt_id
        say(f"an attempt of the generation before is under way{asked}: {flight}")


def show_page(page: ActionPage, *, as_json: bool) -> None:
    """A page of a listing; the narrow facts first, for the terminal may be narrow."""
    if as_json:
        print_json(page)
        return
    rows = [
        (
            action.meta.id,
            state_cell(action.status.state),
            pause_text(action) or from_now(action.status.scheduled_at),
            counts_text(action),
            policy_text(action.spec),
            effect_text(action.spec),
        )
        for action in page.actions
    ]
    print_table(("id", "state", "due", "attempts", "when", "does"), rows)
    if page.next is not None:
        sought = "" if page.looked_at is None else f"looked at {page.looked_at} rows; "
        console().print(f"{sought}more: --after {page.next}", markup=False, soft_wrap=True)


def show_attempts(attempts: Sequence[Attempt], *, as_json: bool) -> None:
    """What was attempted, newest first."""
    if as_json:
        print_json({"attempts": attempts})
        return
    rows = [
        (
            item.occurrence_no,
            item.attempt_no,
            item.outcome,
            moment(item.began_at),
            took_text(item),
            item.error or item.answer or "",
        )
        for item in attempts
    ]
    print_table(("occurrence", "attempt", "outcome", "began", "took", "said"), rows)


def show_why(why: Why, *, as_json: bool) -> None:
    """A sentence; with `--json` also what it was seen by."""
    if as_json:
        print_json(why)
        return
    console().print(why.sentence, markup=False, soft_wrap=True)


def took_text(attempt: Attempt) -> str:
    if attempt.ended_at is None:
        return ""
    return f"{(attempt.ended_at - attempt.began_at).total_seconds():.3f}s"


def due_text(action: Action) -> str:
    """Nothing while an attempt is under way: the time is the end of its reservation then."""
    at = action.status.scheduled_at
    is_waiting = at is not None and action.status.current_attempt is None
    return f"{moment(at)} ({from_now(at)})" if is_waiting else ""


def counts_text(action: Action) -> str:
    """`5: 4 ok, 1 failed`."""
    status = action.status
    parts = [(status.succeeded, "ok"), (status.failed, "failed"), (status.interrupted, "cut")]
    told = ", ".join(f"{count} {word}" for count, word in parts if count)
    return f"{status.attempts}: {told}" if told else str(status.attempts)


def attempt_text(attempt: Attempt | None) -> str:
    if attempt is None:
        return ""
    said = attempt.error or attempt.answer or progress_text(attempt)
    return f"{attempt.outcome} at {moment(attempt.began_at)}" + (f": {said}" if said else "")


def progress_text(attempt: Attempt) -> str:
    """How far it is, if it said so."""
    if attempt.progress is None:
        return ""
    return f"{attempt.progress:.0%} {attempt.progress_text or ''}".rstrip()


def policy_text(spec: Spec) -> str:
    match spec.policy:
        case Once():
            return "once"
        case Periodic(period=period):
            return f"every {format_duration(period)}"
        case Cron(expression=expression, timezone=timezone):
            return f"{expression} {timezone}"


def effect_text(spec: Spec) -> str:
    """What it does, without arguments, headers and queries: they may hold secrets."""
    if isinstance(spec.action, Unreadable):
        return "unreadable"
    match spec.action:
        case Http(method=method, url=url):
            return f"{method} {url.partition('?')[0]}"
        case Python(function=function):
            return f"{function}()"
        case Mock():
            return "mock"
        case Rabbitmq(target=target, exchange=exchange, routing_key=routing_key):
            return f"rabbitmq {target} {exchange}/{routing_key}"
        case Kafka(target=target, topic=topic):
            return f"kafka {target} {topic}"
        case Grpc(target=target, handler=handler):
            return f"grpc {target} {handler}"
        case Push(target=target) | Sql(target=target):
            return f"{type(spec.action).__name__.lower()} {target}"
