"""`gnomon doctor`: is what is stored sound, and is this the database that was installed?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Literal

import typer

from gnomon.cli import options
from gnomon.cli.connection import open_database
from gnomon.cli.output import print_json, print_table, say
from gnomon.cli.process import run
from gnomon.config import Settings
from gnomon.contracts.store import Finding, SinkBacklog
from gnomon.contracts.store.register import StageRecord
from gnomon.gateways.errors import EXIT_FINDINGS
from gnomon.model.errors import InvalidRequest
from gnomon.stages.attendance import UNSERVED_AFTER

EPILOG = options.examples(
    "gnomon doctor --database sqlite:///gnomon.db",
    "gnomon doctor --adopt --past-due skip    # after a restore: nothing that came due meanwhile",
)
IDENTITY_RULE = "identity"
OUTBOX_RULE = "outbox_age"
UNSERVED_RULE = "stage_unserved"


def register(root: typer.Typer) -> None:
    """Add the command."""

    @root.command("doctor", epilog=EPILOG)
    def doctor(
        adopt: Annotated[
            bool, typer.Option("--adopt", help="Accept a copy or a restore as the installation.")
        ] = False,
        past_due: Annotated[
            Literal["run", "skip"] | None,
            typer.Option("--past-due", help="With --adopt: what came due meanwhile."),
        ] = None,
        database: options.Database = None,
        schema: options.Schema = None,
        config: options.ConfigFile = None,
        json: options.Json = False,
    ) -> None:
        """Check the invariants of what is stored; read-only unless told to adopt."""
        if adopt != (past_due is not None):
            raise InvalidRequest(
                "--adopt needs --past-due run or skip, and --past-due needs --adopt"
            )
        settings = options.settings_of(config, database=database, schema=schema)
        if past_due is not None:
            skipped = run(_adopt(settings, past_due))
            print_json({"skipped": skipped}) if json else say(f"adopted; {skipped} skipped")
            return
        _report(run(_look(settings)), as_json=json)


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


async def _look(settings: Settings) -> Sequence[Finding]:
    async with open_database(settings) as app:
        installation = app.store.installation
        difference = await installation.verify_identity()
        findings = list(await installation.doctor())
        backlog, now = await app.store.outbox.backlog(), await installation.now()
        register = await app.store.entities.stages()
    findings += late_sinks(backlog, now=now, alarm=settings.stages.outbox_alarm)
    findings += unserved(register, now=now)
    if difference is not None:
        findings.insert(0, Finding(rule=IDENTITY_RULE, subject="database", detail=difference))
    return findings


def late_sinks(backlog: Sequence[SinkBacklog], *, now: datetime, alarm: timedelta) -> list[Finding]:
    """Where saved versions wait longer than they should."""
    found = []
    for each in backlog:
        age = now - each.oldest_at
        if age > alarm:
            waits = timedelta(seconds=int(age.total_seconds()))
            why = "" if each.error is None else f"; {each.error}"
            held = f", quarantined: {each.quarantined}" if each.quarantined else ""
            detail = f"saves that wait: {each.count}{held}, the oldest for {waits}{why}"
            found.append(Finding(rule=OUTBOX_RULE, subject=each.sink or "relay", detail=detail))
    return found


def unserved(register: Sequence[StageRecord], *, now: datetime) -> list[Finding]:
    """Stages that nobody serves, though something waits for them."""
    found = []
    for each in register:
        waiting = each.waiting + each.background
        if not waiting + each.sleeping or now - each.last_seen_at <= UNSERVED_AFTER:
            continue
        span = timedelta(seconds=int((now - each.last_seen_at).total_seconds()))
        detail = (
            f"no worker has served it for {span}: entities that wait: {waiting}, timers: "
            f"{each.sleeping}; start one that does, or `gnomon stage forget {each.name}`"
        )
        found.append(Finding(rule=UNSERVED_RULE, subject=each.name, detail=detail))
    return found


async def _adopt(settings: Settings, past_due: str) -> int:
    async with open_database(settings) as app:
        return await app.store.installation.adopt(past_due=past_due)
