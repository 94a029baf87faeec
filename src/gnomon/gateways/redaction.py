"""Who sees payloads whole, and how the others see them: the same for every gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from gnomon.contracts.store import Selection
from gnomon.contracts.store.entities import StageState
from gnomon.contracts.task_rows import TaskDetail, TaskDraft, TaskSummary
from gnomon.gateways.auth import ADMIN, Principal
from gnomon.gateways.entities import EntityAnswer
from gnomon.model.action import Action, Attempt
from gnomon.model.arguments import read_path
from gnomon.model.errors import Forbidden, InvalidRequest, InvalidSpec
from gnomon.model.function import FunctionRecord
from gnomon.model.redaction import (
    MARKER,
    Places,
    Redaction,
    hide_text,
    places_of,
    without_words,
)
from gnomon.model.stage.json_patch import steps_of
from gnomon.model.stage.patch import Patch
from gnomon.model.why import Why
from gnomon.scheduler.failure_groups import FailureReport
from gnomon.scheduler.reports import Reports
from gnomon.stages.explain import Explanation, ParkedRow

T = TypeVar("T", TaskSummary, TaskDetail)
V = TypeVar("V", bound=msgspec.Struct)
TELLING = ("test", "copy", "move")  # operations of a JSON Patch that read what is there


class Sight:
    """How one caller sees actions, entities and SQL tasks. `stored`: what is hidden from somebody;
    nobody may store its marker."""

    def __init__(
        self, redaction: Redaction | None, places: Places, stored: Redaction | None = None
    ) -> None:
        self._redaction = redaction
        self._places = places
        self._stored = stored or redaction

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

    def see_entity(self, entity: EntityAnswer) -> EntityAnswer:
        if self._redaction is None:
            return entity
        shown = self._redaction.hide_json("document", bytes(entity.document))
        if shown is None:
            return entity
        return msgspec.structs.replace(entity, document=msgspec.Raw(shown))

    def see_state(self, state: StageState | None) -> StageState | None:
        """A message is hidden whole: nobody here can look into it."""
        if state is None or self._redaction is None:
            return state
        shown = self._redaction.hide_json("state", state.body if state.type is None else b"")
        return state if shown is None else msgspec.structs.replace(state, body=shown, type=None)

    def see_explanation(self, explanation: Explanation) -> Explanation:
        """Errors and notes of stages may repeat what is hidden in the document."""
        if self._redaction is None or not self._redaction.hides_entities:
            return explanation
        stages = tuple(_without(stage, "last_error", "last_note") for stage in explanation.stages)
        return msgspec.structs.replace(explanation, stages=stages)

    def see_parked(self, rows: Sequence[ParkedRow]) -> Sequence[ParkedRow]:
        if self._redaction is None or not self._redaction.hides_entities:
            return rows
        return [_without(row, "error") for row in rows]

    def check_document(self, document: object) -> None:
        """Errors: InvalidSpec."""
        if self._stored is not None:
            self._stored.check_json("document", document)

    def check_patch(self, patch: Patch) -> None:
        """A patch must not store the marker, nor tell what is hidden: by a test of it, or by a copy
        to a place that is shown. Errors: InvalidSpec, Forbidden."""
        if isinstance(patch, Mapping):
            self.check_document(patch)
            return
        for operation in patch:
            steps = _steps(operation.get("path"))
            self.check_document(_nested(steps, operation.get("value")))
            if self._redaction is None or operation.get("op") not in TELLING:
                continue
            read = steps if operation["op"] == "test" else _steps(operation.get("from"))
            if self._redaction.hides_part("document", read):
                raise _hidden(f"{operation['op']} of /{'/'.join(read)}", "its values are hidden")

    def check_state(self, body: bytes) -> None:
        """Errors: InvalidSpec."""
        if self._stored is not None:
            with suppress(msgspec.DecodeError):
                self._stored.check_json("state", msgspec.json.decode(body))

    def see_task(self, task: T) -> T:
        if self._redaction is None:
            return task
        return _without(task, *self._redaction.hidden_columns())

    def check_task(self, draft: TaskDraft) -> None:
        """Errors: InvalidSpec."""
        hidden = frozenset() if self._stored is None else self._stored.hidden_columns()
        for name in hidden & {"input", "data"}:
            if getattr(draft, name) == MARKER:
                raise InvalidSpec(name, f"is {MARKER}, which stands for a value that is not shown")

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


def _without(value: V, *names: str) -> V:
    """With the marker for these texts, where there are any."""
    given = [name for name in names if getattr(value, name, None) is not None]
    return msgspec.structs.replace(value, **dict.fromkeys(given, MARKER))


def _steps(pointer: object) -> list[str]:
    """Of a JSON pointer; what is none is told when the patch is applied."""
    try:
        return steps_of(pointer) if isinstance(pointer, str) else []
    except InvalidRequest:
        return []


def _nested(steps: Sequence[str], value: object) -> object:
    for step in reversed(steps):
        value = {step: value}
    return value


WHOLE = Sight(None, {})


async def sight_of(principal: Principal, redaction: Redaction, reports: Reports) -> Sight:
    """What a caller sees: below the scope `admin`, not what is hidden."""
    if not redaction:
        return WHOLE
    if ADMIN in principal.scopes:
        return Sight(None, {}, redaction)
    return Sight(redaction, places_of(await reports.functions()))
