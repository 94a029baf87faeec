"""`gnomon doctor`: is what is stored sound, and is this the database that was installed?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Literal

import typer

from gnomon.app import App
from gnomon.cli import options
from gnomon.cli.output import print_json, print_table, say
from gnomon.contracts.store import Finding, SinkBacklog
from gnomon.contracts.store.register import StageRecord
from gnomon.gateways.errors import EXIT_FINDINGS
from gnomon.model.errors import InvalidRequest, Unavailable
from gnomon.worker.unserved import UnservedActions, find_unserved

EPILOG = options.examples(
    "gnomon doctor --database sqlite:///gnomon.db",
    "gnomon doctor --adopt --past-due skip    # after a restore: nothing that came due meanwhile",
)
IDENTITY_RULE = "identity"
UNASKED_RULE = "not_looked_at"
OUTBOX_RULE = "outbox_age"
UNSERVED_RULE = "stage_unserved"
UNSERVED_ACTIONS_RULE = "action_unserved"
RELAY_RULE = "relay_differs"


@options.on_database
def doctor(
    shared: options.DatabaseOptions,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Accept a copy or a restore as the installation.")
    ] = False,
    past_due: Annotated[
        Literal["run", "skip"] | None,
        typer.Option("--past-due", help="With --adopt: run or skip what came due meanwhile."),
    ] = None,
) -> None:
    """Check what is stored. Changes nothing, unless told to adopt."""
    if adopt != (past_due is not None):
        raise InvalidRequest("--adopt needs --past-due run or skip, and --past-due needs --adopt")
    if past_due is not None:
        skipped = shared.work(lambda app: app.store.installation.adopt(past_due=past_due))
        shared.tell({"skipped": skipped}, f"adopted; {skipped} skipped")
        return
    _report(shared.work(look), as_json=shared.json)


def _report(findings: Sequence[Finding], *, as_json: bool) -> None:
    if as_json:
        print_json({"findings": findings})
    elif findings:
        rows = [(finding.rule, finding.subject, finding.detail) for finding in findings]
        print_table(("rule", "subject", "detail"), rows)
    else:
        say("all is well")
    if findings:
        raise typer.Exit(EXIT_FINDINGS)


async def look(app: App) -> Sequence[Finding]:
    """All that is wrong, or what keeps the rest from being looked at."""
    installation = app.store.installation
    difference = await installation.verify_identity()
    findings = list(await installation.doctor())
    if difference is not None:
        findings.insert(0, Finding(rule=IDENTITY_RULE, subject="database", detail=difference))
    try:
        findings += await _look_around(app)
    except Unavailable as exc:
        if not findings:
            raise
        # What was found says why: a node of a cluster is away.
        said = f"what waits, and who serves it, was not looked at: {exc}"
        findings.append(Finding(rule=UNASKED_RULE, subject="database", detail=said))
    return findings


async def _look_around(app: App) -> Sequence[Finding]:
    """At what waits, and who serves it."""
    backlog, now = await app.store.outbox.backlog(), await app.store.installation.now()
    register = await app.store.register.stages()
    shards = range(app.installation.shard_count)
    return [
        *late_sinks(backlog, now=now, alarm=app.settings.stages.outbox_alarm),
        *unserved(register, now=now),
        *unserved_actions(await find_unserved(app.store, shards), now=now),
        *relay_differs(register, configured=app.settings.stages.relay, now=now),
    ]


def late_sinks(backlog: Sequence[SinkBacklog], *, now: datetime, alarm: timedelta) -> list[Finding]:
    """Where saved versions wait longer than they should."""
    findings = []
    for sink in backlog:
        age = now - sink.oldest_at
        if age > alarm:
            waits = timedelta(seconds=int(age.total_seconds()))
            why = "" if sink.error is None else f"; {sink.error}"
            held = f", quarantined: {sink.quarantined}" if sink.quarantined else ""
            detail = f"saves that wait: {sink.count}{held}, the oldest for {waits}{why}"
            findings.append(Finding(rule=OUTBOX_RULE, subject=sink.sink or "relay", detail=detail))
    return findings


def unserved_actions(actions: Sequence[UnservedActions], *, now: datetime) -> list[Finding]:
    """Actions that are due, and that no worker serves."""
    findings = []
    for one in actions:
        span = timedelta(seconds=int((now - one.since).total_seconds()))
        detail = (
            f"no worker serves it: actions that wait: {one.count_text}, the first for {span}; "
            "start a worker that does, or cancel or replace them"
        )
        findings.append(Finding(rule=UNSERVED_ACTIONS_RULE, subject=one.need, detail=detail))
    return findings


def relay_differs(
    register: Sequence[StageRecord], *, configured: str | None, now: datetime
) -> list[Finding]:
    """Where saves go is in the register; a process that is configured otherwise does not know."""
    from gnomon.contracts.store.outbox import RELAY_SINK
    from gnomon.stages.attendance import UNSERVED_AFTER

    relays = [record for record in register if record.name == RELAY_SINK]
    if configured is not None and not relays:
        detail = (
            f"stages.relay is {configured} here, and no save goes there: start a worker with it"
        )
    elif configured is None and relays and now - relays[0].last_seen_at > UNSERVED_AFTER:
        detail = "every save waits for a relay, and none is configured here: set stages.relay"
    else:
        return []
    return [Finding(rule=RELAY_RULE, subject="relay", detail=detail)]


def unserved(register: Sequence[StageRecord], *, now: datetime) -> list[Finding]:
    """Stages that nobody serves, though something waits for them."""
    from gnomon.stages.attendance import UNSERVED_AFTER

    findings = []
    for stage in register:
        waiting = stage.waiting + stage.background
        if not waiting + stage.sleeping or now - stage.last_seen_at <= UNSERVED_AFTER:
            continue
        span = timedelta(seconds=int((now - stage.last_seen_at).total_seconds()))
        detail = (
            f"no worker has served it for {span}: entities that wait: {waiting}, timers: "
            f"{stage.sleeping}; start one that does, or `gnomon stage forget {stage.name}`"
        )
        findings.append(Finding(rule=UNSERVED_RULE, subject=stage.name, detail=detail))
    return findings
