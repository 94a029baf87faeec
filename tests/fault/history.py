"""What happened, as two witnesses tell it, and the rules by which their stories must agree.

The *receiver* wrote down every start and end of an attempt, in the process that executed it; the
*store* has the actions and the recorded attempts. Nothing here looks at how Gnomon works: the
rules are the promise, restated so that a program can check it. Each violation names its rule.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from gnomon.contracts.store import Finding
from gnomon.model.action import Action, Attempt, State

# A result that did not make the action go on: another attempt had to follow.
EXPLAINS_ANOTHER = frozenset(
    {"failed", "interrupted", "superseded", "late_succeeded", "late_failed", "late_interrupted"}
)
NOTHING_SENT = frozenset({"abandoned", "late_abandoned"})
CLOCK_STEP = timedelta(microseconds=1)


class Violation(NamedTuple):
    """A rule that did not hold, and for which action."""

    rule: str
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt as the receiver saw it; without an end its process died in it."""

    id: str
    key: str
    attempt_id: str
    attempt_no: int
    occurrence_no: int
    n: int
    pid: int
    started_at: datetime
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Everything the checker looks at."""

    acknowledged: Collection[str]  # ids whose creation was answered with success
    runs: Sequence[Run]
    actions: Mapping[str, Action]
    attempts: Mapping[str, Sequence[Attempt]]
    unknown: Collection[str] = ()  # ids whose creation was never answered: may exist or not
    findings: Sequence[Finding] = ()  # of the doctor
    reservation: timedelta = timedelta(0)  # min(time-out, window) + grace of every attempt
    deaths: Mapping[int, datetime] = field(default_factory=dict)  # of processes, by their numbers
    changed: Collection[str] = ()  # ids with several generations: counters begin anew
    wanted: State = State.DONE

    def numbers(self) -> str:
        """The dose, for people to read."""
        outcomes = Counter(a.outcome for log in self.attempts.values() for a in log)
        duplicates = len(self.runs) - len({run.key for run in self.runs})
        shown = ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items()))
        return (
            f"{len(self.acknowledged)} acknowledged, {len(self.runs)} starts in "
            f"{len({run.pid for run in self.runs})} processes, {duplicates} duplicates; {shown}"
        )


def read_runs(*paths: Path) -> list[Run]:
    """The receiver's log; a line cut short by a kill cannot be, for lines are written whole."""
    starts: dict[tuple[str, int, int], dict[str, object]] = {}
    ends: dict[tuple[str, int, int], float] = {}
    seen: Counter[tuple[str, str, int]] = Counter()
    for path in paths:
        for line in path.read_text().splitlines() if path.exists() else ():
            entry = json.loads(line)
            place = (entry["event"], entry["attempt_id"], entry["pid"])
            key = (entry["attempt_id"], entry["pid"], seen[place])
            seen[place] += 1
            if entry["event"] == "start":
                starts[key] = entry
            else:
                ends[key] = entry["t"]
    return [_run(entry, ends.get(key)) for key, entry in starts.items()]


def _run(entry: dict[str, object], ended: float | None) -> Run:
    fields = {name: entry[name] for name in entry if name not in ("event", "t")}
    return Run(
        **fields,  # type: ignore[arg-type]  # out of JSON
        started_at=_moment(entry["t"]),
        ended_at=None if ended is None else _moment(ended),
    )


def _moment(seconds: object) -> datetime:
    assert isinstance(seconds, float)
    return datetime.fromtimestamp(seconds, UTC)


@dataclass(slots=True)
class _Story:
    """All that is known of one id."""

    id: str
    action: Action | None
    attempts: Sequence[Attempt]
    runs: list[Run] = field(default_factory=list)

    def attempt(self, run: Run) -> Attempt | None:
        found = [a for a in self.attempts if str(a.attempt_id) == run.attempt_id]
        return found[0] if found else None


def check(history: History) -> list[Violation]:
    """Every rule that does not hold; empty when the history keeps the promise."""
    stories = _stories(history)
    violations = [Violation("doctor", f.subject, f"{f.rule}: {f.detail}") for f in history.findings]
    violations += _lost(history, stories)
    violations += _keys(history.runs)
    for story in stories.values():
        violations += _phantom(history, story)
        violations += _duplicates(story)
        violations += _overlaps(history, story)
        if story.id not in history.changed:
            violations += _counters(story)
            violations += _numbering(story)
    return violations


def _stories(history: History) -> dict[str, _Story]:
    stories = {
        name: _Story(name, history.actions.get(name), history.attempts.get(name, ()))
        for name in {*history.acknowledged, *history.actions, *(run.id for run in history.runs)}
    }
    for run in sorted(history.runs, key=lambda run: run.started_at):
        stories[run.id].runs.append(run)
    return stories


def _lost(history: History, stories: Mapping[str, _Story]) -> Iterator[Violation]:
    """C1: what was acknowledged was executed, and ended as it should."""
    for name in history.acknowledged:
        story = stories[name]
        if story.action is None:
            yield Violation("lost", name, "acknowledged, but there is no such action")
        elif story.action.status.state is not history.wanted:
            yield Violation("lost", name, f"ended or stayed {story.action.status.state}")
        elif not story.runs and history.wanted is State.DONE:
            yield Violation("lost", name, "done, but the receiver never saw it")


def _phantom(history: History, story: _Story) -> Iterator[Violation]:
    """C2: nothing is executed that was not asked for, nor an attempt that was not recorded."""
    if story.id not in history.acknowledged and story.id not in history.unknown:
        yield Violation("phantom", story.id, "nobody created it")
    for run in story.runs:
        attempt = story.attempt(run)
        if attempt is None:
            yield Violation("unrecorded", story.id, f"attempt {run.attempt_id} is in no record")
        elif attempt.outcome in NOTHING_SENT:
            yield Violation("abandoned_was_sent", story.id, f"attempt {run.attempt_no} was started")


def _duplicates(story: _Story) -> Iterator[Violation]:
    """C12: an occurrence is started again only if an earlier attempt had begun and did not end
    well, and no attempt is ever started twice."""
    for attempt_id, count in Counter(run.attempt_id for run in story.runs).items():
        if count > 1:
            yield Violation("started_twice", story.id, f"attempt {attempt_id}, {count} times")
    by_key: dict[str, list[Run]] = defaultdict(list)
    for run in story.runs:
        by_key[run.key].append(run)
    for same in by_key.values():
        outcomes = {run.attempt_id: story.attempt(run) for run in same}
        unexplained = [
            a for a in outcomes.values() if a is not None and a.outcome not in EXPLAINS_ANOTHER
        ]
        if len(unexplained) > 1:
            shown = ", ".join(f"{a.attempt_no} {a.outcome}" for a in unexplained)
            yield Violation("duplicate", story.id, f"attempts without a cause: {shown}")


def _keys(runs: Iterable[Run]) -> Iterator[Violation]:
    """C5: one occurrence of one generation has one key, and no other has it."""
    keys: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    owners: dict[str, set[tuple[str, int, int]]] = defaultdict(set)
    for run in runs:
        occurrence = (run.id, run.n, run.occurrence_no)
        keys[occurrence].add(run.key)
        owners[run.key].add(occurrence)
    for (name, _, number), found in keys.items():
        if len(found) > 1:
            yield Violation("key", name, f"occurrence {number} had {len(found)} keys")
    for key, sharers in owners.items():
        if len(sharers) > 1:
            names = ", ".join(sorted({name for name, _, _ in sharers}))
            yield Violation("key", names, f"{len(sharers)} occurrences share {key}")


def _counters(story: _Story) -> Iterator[Violation]:
    """C8: attempts = succeeded + failed + interrupted, and the record has as many."""
    if story.action is None:
        return
    status = story.action.status
    running = int(status.current_attempt is not None)
    ended = status.succeeded + status.failed + status.interrupted
    if status.attempts != ended + running:
        yield Violation("counters", story.id, f"{status.attempts} attempts, {ended} ended")
    if len(story.attempts) + running != status.attempts:
        detail = f"{status.attempts} attempts, {len(story.attempts)} in the record"
        yield Violation("record", story.id, detail)
    succeeded = sum(a.outcome in ("succeeded", "cancelled") for a in story.attempts)
    if succeeded != status.succeeded:
        detail = f"{status.succeeded} counted, {succeeded} in the record"
        yield Violation("record", story.id, f"succeeded: {detail}")


def _numbering(story: _Story) -> Iterator[Violation]:
    """C6: attempt numbers are 1, 2, 3 … in the order in which the attempts began."""
    began = sorted(story.attempts, key=lambda a: (a.began_at, a.attempt_no))
    numbers = [attempt.attempt_no for attempt in began]
    if numbers != list(range(1, len(numbers) + 1)):
        yield Violation("numbering", story.id, f"attempts were numbered {numbers}")


def _overlaps(history: History, story: _Story) -> Iterator[Violation]:
    """C7: a run that begins while another one has not ended needs that one's reservation to be
    over, or its process dead. The database's clock says when attempts began."""
    for index, later in enumerate(story.runs):
        for earlier in story.runs[:index]:
            ended_at = earlier.ended_at or history.deaths.get(earlier.pid)
            if ended_at is not None and ended_at <= later.started_at:
                continue
            first, second = story.attempt(earlier), story.attempt(later)
            if first is None or second is None or first is second:
                continue  # another rule's business
            if first.outcome == "superseded" or story.id in history.changed:
                continue  # the answer to the change named it as in flight
            gap = second.began_at - first.began_at
            if gap + CLOCK_STEP < history.reservation:
                detail = f"attempt {later.attempt_no} began {gap} after {earlier.attempt_no}"
                yield Violation("overlap", story.id, f"{detail}, which had not ended")
