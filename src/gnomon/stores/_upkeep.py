"""The schema's steps and the rules of upkeep: the same in every engine."""

from __future__ import annotations

import re
from datetime import timedelta
from importlib import resources
from typing import NamedTuple

import msgspec

from gnomon.contracts.store import LapsedRow, SettleRequest
from gnomon.model.errors import InvalidRequest
from gnomon.model.spec import TIMEOUT_MAX
from gnomon.model.transition import MissedOccurrences, decide

OVERRUN = timedelta(seconds=60)  # this long after its deadline nobody can still be at an attempt
PROGRESS_KEPT_FOR = 2 * TIMEOUT_MAX  # of attempts: no attempt lasts so long
WORKERS_KEPT_FOR = timedelta(minutes=5)  # of silence: its attempts are settled by then
SKIPPED = "skipped when the database was adopted"

_FILE = re.compile(r"(?P<version>\d{4})_\w+\.sql")


class Migration(NamedTuple):
    """One step of the schema."""

    version: int
    name: str
    script: str


def load_migrations(package: str) -> list[Migration]:
    """All steps in a package, oldest first."""
    files = [(_FILE.fullmatch(file.name), file) for file in resources.files(package).iterdir()]
    return sorted(
        Migration(
            int(match["version"]), file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")
        )
        for match, file in files
        if match is not None
    )


def check_past_due(past_due: str) -> None:
    """What `adopt` may be told. Errors: InvalidRequest."""
    if past_due not in ("run", "skip"):
        raise InvalidRequest("past_due must be `run` or `skip`")


def skip_of(lapsed: LapsedRow) -> SettleRequest:
    """As if its time had passed unseen; an attempt that ran elsewhere counts as interrupted."""
    verdict = decide(
        lapsed.spec, lapsed.status, MissedOccurrences(), guid=lapsed.guid, now=lapsed.now
    )
    if lapsed.running:
        verdict = msgspec.structs.replace(verdict, interrupted=1)
    return SettleRequest(lapsed=lapsed, verdict=verdict, reason=SKIPPED)
