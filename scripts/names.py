"""docs/reference/names.md: every public name side by side, taken from the code.

A row is a concept; Python leads. A name of another surface joins the row that has the same name
there. Where it has another name on purpose, `DIFFERENT` says which row it belongs to, and why; what
exists on one surface only is in `ALONE`, with its reason. Any other name is a finding: one concept
would have two names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scripts.surfaces import SURFACES, Section, sections

SEED = "gRPC keeps the names of the seed's protocol"
SQL_SEED = "SQL keeps the names of the seed's outbox"
SHORT = "short for people who type it"
HTTP = "HTTP has a method or a header for it"

# Named differently on purpose: (section, surface, concept as the surface names it) -> (row, why).
DIFFERENT: dict[tuple[str, str, str], tuple[str, str]] = {
    ("verbs", "REST", "events"): ("watch", HTTP),
    ("verbs", "CLI", "list_limit"): ("list_limits", "the command names the noun first"),
    ("verbs", "CLI", "run"): ("run_now", SHORT),
    ("verbs", "SQL", "schedule"): ("create", SQL_SEED),
    ("verbs", "SQL", "schedule_many"): ("create_many", SQL_SEED),
    ("verbs", "SQL", "cancel"): ("delete", SQL_SEED),
    ("verbs", "CLI", "cancel"): ("delete", "the word of `app.cancel` and of SQL"),
    ("spec", "gRPC", "start_policy.start_at"): ("start_at", SEED),
    ("spec", "gRPC", "send_policy.deadline"): ("deadline", SEED),
    ("spec", "gRPC", "send_policy"): ("policy", SEED),
    ("spec", "gRPC", "send_periodically_policy.period"): ("policy.period", SEED),
    ("spec", "gRPC", "send_cron_policy.expression"): ("policy.expression", SEED),
    ("spec", "gRPC", "send_cron_policy.timezone"): ("policy.timezone", SEED),
    ("spec", "gRPC", "start_policy"): ("start_at", SEED),
    ("spec", "gRPC", "send_policy.send_once_policy"): ("a once", SEED),
    ("spec", "gRPC", "send_policy.send_periodically_policy"): ("a periodic", SEED),
    ("spec", "gRPC", "send_policy.send_cron_policy"): ("a cron", SEED),
    ("spec", "gRPC", "send_once_policy.retry_policy"): ("retry", SEED),
    ("spec", "gRPC", "send_periodically_policy.retry_policy"): ("retry", SEED),
    ("spec", "gRPC", "send_cron_policy.retry_policy"): ("retry", SEED),
    ("spec", "gRPC", "retry_policy.max_retries"): ("retry.max", SEED),
    ("spec", "gRPC", "retry_policy.restart_period_scale"): ("retry.scale", SEED),
    ("spec", "gRPC", "retry_policy.restart_period_back_off"): ("retry.back_off", SEED),
    ("spec", "gRPC", "retry_policy.min_restart_period"): ("retry.min_period", SEED),
    ("spec", "gRPC", "retry_policy.max_restart_period"): ("retry.max_period", SEED),
    ("spec", "gRPC", "retry_policy.restart_period_jitter"): ("retry.jitter", SEED),
    ("spec", "Python", "at"): ("start_at", SHORT),
    ("spec", "Python", "every"): ("policy.period", SHORT),
    ("spec", "Python", "cron"): ("policy.expression", SHORT),
    ("spec", "Python", "timezone"): ("policy.timezone", SHORT),
    ("spec", "Python", "key"): ("idempotency_key", SHORT),
    ("spec", "CLI", "at"): ("start_at", SHORT),
    ("spec", "CLI", "in"): ("start_at", SHORT),
    ("spec", "CLI", "every"): ("policy.period", SHORT),
    ("spec", "CLI", "cron"): ("policy.expression", SHORT),
    ("spec", "CLI", "timezone"): ("policy.timezone", SHORT),
    ("spec", "CLI", "retry_max"): ("retry.max", SHORT),
    ("spec", "CLI", "retry_delay"): ("retry.min_period", "one delay for all retries"),
    ("spec", "CLI", "label"): ("labels", "given once for each label"),
    ("spec", "CLI", "key"): ("idempotency_key", SHORT),
    ("spec", "REST", "Idempotency-Key"): ("idempotency_key", HTTP),
    ("spec", "SQL", "execute_at"): ("start_at", SQL_SEED),
    ("spec", "SQL", "max_attempts"): ("retry.max", SQL_SEED + "; one more than `retry.max`"),
    ("effects", "gRPC", "send_technical_push"): ("push", SEED),
    ("effects", "CLI", "header"): ("http.headers", "given once for each header"),
    ("effects", "CLI", "body"): ("http.body", SHORT),
    ("effects", "CLI", "json_body"): ("http.json", "`--json` asks for JSON output"),
    ("effects", "CLI", "args"): ("python.args", SHORT),
    ("effects", "CLI", "mock_fail"): ("mock.fail", SHORT),
    ("effects", "SQL", "task_type"): ("action", SQL_SEED),
    ("action", "gRPC", "attempts_counter"): ("attempts", SEED),
    ("action", "gRPC", "successful_attempts_counter"): ("succeeded", SEED),
    ("action", "gRPC", "failed_attempts_counter"): ("failed", SEED),
    ("action", "gRPC", "interrupted_attempts_counter"): ("interrupted", SEED),
    ("action", "gRPC", "consecutive_failures_counter"): ("consecutive_failures", SEED),
    ("action", "gRPC", "consecutive_interruptions_counter"): ("consecutive_interruptions", SEED),
    ("action", "gRPC", "occurrence_failures_counter"): ("occurrence_failures", SEED),
    ("action", "gRPC", "current_attempt_status"): ("current_attempt", SEED),
    ("action", "gRPC", "last_attempt_status"): ("last_attempt", SEED),
    ("action", "SQL", "execute_at"): ("occurrence_at", SQL_SEED),
    ("action", "SQL", "status"): ("state", SQL_SEED + ", with its states"),
    ("action", "SQL", "error_message"): ("attempt.error", SQL_SEED),
    ("action", "SQL", "completed_at"): ("finished_at", SQL_SEED),
    ("list", "REST", "state"): ("states", "given once for each state"),
    ("list", "REST", "label"): ("labels", "given once for each label"),
    ("list", "REST", "argument"): ("arguments", "given once for each argument"),
    ("list", "CLI", "state"): ("states", "given once for each state"),
    ("list", "CLI", "label"): ("labels", "given once for each label"),
    ("list", "CLI", "argument"): ("arguments", "given once for each argument"),
    ("task verbs", "REST", "list_tasks"): ("page", HTTP),
    ("entity verbs", "REST", "list_entities"): ("list", "the name carries its noun"),
    ("entity verbs", "REST", "list_parked"): ("parked", "the name carries its noun"),
    ("entity verbs", "REST", "list_stages"): ("stages", "the name carries its noun"),
    ("entity verbs", "REST", "get_state"): ("state", HTTP),
    ("entity verbs", "REST", "put_state"): ("swap_state", HTTP),
    ("entity verbs", "REST", "put_entities"): ("put_many", "the name carries its noun"),
    ("entity verbs", "gRPC", "put_entities"): ("put_many", "the name carries its noun"),
    ("entity verbs", "gRPC", "list_entities"): ("list", "the name carries its noun"),
    ("entity verbs", "gRPC", "list_parked"): ("parked", "the name carries its noun"),
    ("entity verbs", "gRPC", "list_stages"): ("stages", "the name carries its noun"),
    ("entity verbs", "gRPC", "read"): ("state", "a service of its own: `StateService`"),
    ("entity verbs", "gRPC", "compare_and_set"): ("swap_state", "a service of its own"),
    ("entity verbs", "CLI", "list_stage"): ("stages", "the command names the noun first"),
    ("entity", "Python", "doc"): ("document", "the stored text; surfaces show the JSON"),
    ("stage", "gRPC", "max_batch"): ("batch", "the service's own bound"),
    ("answer", "gRPC", "update.merge_patch"): ("update.patch", "a type for each kind of patch"),
    ("answer", "gRPC", "update.json_patch"): ("update.patch", "a type for each kind of patch"),
    ("answer", "gRPC", "update.cancel_timer"): ("update.wake", "protobuf has no None"),
    ("answer", "gRPC", "saved.deleted"): ("saved.entity", "protobuf has no None"),
    ("stage", "TOML", "call_timeout"): ("deadline", "for all stages of a worker"),
}

# On one surface only: nothing there to be called the same.
ALONE: dict[tuple[str, str], tuple[str, ...]] = {
    ("task", "SQL"): ("since",),
    ("task verbs", "REST"): ("why",),  # Python has it in the row: `TaskDetail.why`
    ("answer", "gRPC"): ("describe",),
    ("stage", "gRPC"): ("deadline", "capabilities"),  # a remote stage says what it can do
}


@dataclass
class Row:
    """One concept on every surface, and why its names differ."""

    names: dict[str, list[str]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def add(self, surface: str, name: str, reason: str | None = None) -> None:
        cell = self.names.setdefault(surface, [])
        if name not in cell:
            cell.append(name)
        if reason and reason not in self.reasons:
            self.reasons.append(reason)


def rows_of(section: Section) -> tuple[dict[str, Row], list[str]]:
    """The rows of a table, and the names that belong to none."""
    rows: dict[str, Row] = {}
    findings = []
    for surface in SURFACES:
        for concept, name in section.names.get(surface, ()):
            key, reason = DIFFERENT.get((section.key, surface, concept), (concept, None))
            is_known = surface == "Python" or key in rows
            if not is_known and concept not in ALONE.get((section.key, surface), ()):
                findings.append(f"{section.title}: {surface} has {name!r}, Python has no {key!r}")
            rows.setdefault(key, Row()).add(surface, name, reason)
    return rows, findings


def findings() -> list[str]:
    """Names that belong to no row: the concept has another name in Python, without a reason."""
    every = sections()
    used = {
        (section.key, surface, concept)
        for section in every
        for surface, names in section.names.items()
        for concept, _ in names
    }
    stale = [f"{key}: no such name any more, remove it" for key in DIFFERENT.keys() - used]
    return [finding for section in every for finding in rows_of(section)[1]] + stale


HEAD = """# Names, side by side

<!-- Generated by scripts/names.py; see `make docs`. -->

One concept has one name everywhere. Where a surface has another one on purpose, the last column
says why. An empty cell: the surface does not have it. All settings are in
[configuration](configuration.md), all options of commands in [the command line](cli.md).
"""


def names_page() -> str:
    """The whole page."""
    return HEAD + "".join(_table(section) for section in sections())


def _table(section: Section) -> str:
    shown = [surface for surface in SURFACES if section.names.get(surface)]
    lines = ["", f"## {section.title}", "", *([section.text, ""] if section.text else [])]
    lines += [
        "| " + " | ".join([*shown, "why they differ"]) + " |",
        "|---" * (len(shown) + 1) + "|",
    ]
    for row in rows_of(section)[0].values():
        cells = [", ".join(f"`{name}`" for name in row.names.get(surface, ())) for surface in shown]
        lines.append("| " + " | ".join([*cells, "; ".join(row.reasons)]) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print("\n".join(findings()) or names_page())
