"""Who sees payloads whole, and how the others see them: the same for every gateway."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gnomon.contracts.store import Selection
from gnomon.gateways.auth import ADMIN, Principal
from gnomon.model.action import Action, Attempt
from gnomon.model.arguments import read_path
from gnomon.model.errors import Forbidden
from gnomon.model.function import FunctionRecord
from gnomon.model.redaction import (
    MARKER,
    Places,
    Redaction,
    hide_text,
    places_of,
    without_words,
)
from gnomon.model.why import Why
from gnomon.scheduler.failure_groups import FailureReport
from gnomon.scheduler.reports import Reports


class Sight:
    """How one caller sees actions."""

    def __init__(self, redaction: Redaction | None, places: Places) -> None:
        self._redaction = redaction
        self._places = places

    def see(self, action: Action) -> Action:
        return action if self._redaction is None else self._redaction.hide(action, self._places)

    def see_attempts(self, attempts: Sequence[Attempt], action: Action | None) -> list[Attempt]:
        """`action`: whose they are. If it is gone, nobody knows what their words must not hold."""
        if self._redaction is None:
            return list(attempts)
        if action is None:
            return [without_words(attempt) for attempt in attempts]
        return self._redaction.hide_attempts(attempts, action, self._places)

    def see_functions(self, functions: Sequence[FunctionRecord]) -> list[FunctionRecord]:
        if self._redaction is None:
            return list(functions)
        return [self._redaction.hide_defaults(function) for function in functions]

    def see_failures(
        self, report: FailureReport, examples: Sequence[Action | None]
    ) -> FailureReport:
        """`examples`: the newest action of each group, whose error it shows."""
        redaction = self._redaction
        if redaction is None:
            return report
        groups = []
        for group, action in zip(report.groups, examples, strict=True):
            texts = [] if action is None else redaction.hidden_texts(action, self._places)
            words = {
                name: MARKER if action is None else hide_text(getattr(group, name), texts)
                for name in ("error", "fingerprint")
            }
            groups.append(msgspec.structs.replace(group, **words))
        return msgspec.structs.replace(report, groups=groups)

    def see_why(self, why: Why, action: Action | None) -> Why:
        """Its sentence may repeat an error."""
        if self._redaction is None:
            return why
        texts = [] if action is None else self._redaction.hidden_texts(action, self._places)
        sentence = why.sentence if action is not None else MARKER
        return msgspec.structs.replace(why, sentence=hide_text(sentence, texts))

    @property
    def is_whole(self) -> bool:
        return self._redaction is None

    def check(self, selection: Selection) -> Selection:
        """A filter must not tell what is hidden, letter by letter. Errors: Forbidden."""
        if self._redaction is None:
            return selection
        if selection.error_contains:
            raise _hidden("error_contains", "errors may repeat values that are hidden")
        for path in selection.arguments:
            if self._redaction.hides_argument(read_path(path, "arguments")):
                raise _hidden(f"argument {path}", "its values are hidden")
        return selection


def _hidden(field: str, why: str) -> Forbidden:
    return Forbidden(f"{field}: {why}; this needs a token with the scope {ADMIN}", scope=ADMIN)


WHOLE = Sight(None, {})


async def sight_of(principal: Principal, redaction: Redaction, reports: Reports) -> Sight:
    """What a caller sees: below the scope `admin`, not what is hidden."""
    if not redaction or ADMIN in principal.scopes:
        return WHOLE
    return Sight(redaction, places_of(await reports.functions()))
