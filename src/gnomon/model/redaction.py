"""What people may not see of payloads: values at configured paths, in whatever effect, entity or
SQL task.

    args.password           a function's argument, by name or (with a number) by place
    headers.authorization   of a request or a message; upper and lower case are the same
    body.card.*             in the JSON of a request or a message, the payload of a call or a push
    parameters.0            of a statement
    document.card.*         in the document of an entity
    state.token             in what a stage remembers of an entity
    task.input              a column of an SQL task: input, output, error or data

`*` stands for any one name or place. A path hides all that is below it. Execution is not touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from gnomon.model.action import Action, Attempt
from gnomon.model.arguments import read_path
from gnomon.model.errors import ConfigurationError, InvalidSpec
from gnomon.model.function import FunctionRecord
from gnomon.model.spec import Effect, Python, Spec, Unreadable

MARKER = "[redacted]"
ROOTS = ("args", "headers", "body", "parameters", "document", "state", "task")
TASK_TEXTS = ("input", "output", "error", "data")  # columns of an SQL task
PATHS_MAX = 100
ANY = "*"
HIDDEN_CHARS_MIN = 4  # shorter values are not looked for in texts: they would be found everywhere
WHERE = "server.redact"

# Which field of an effect is below which root.
FIELDS = {
    "kwargs": "args", "headers": "headers", "json": "body", "payload": "body", "body": "body",
    "value": "body", "parameters": "parameters",
}  # fmt: skip
TEXTS = ("body", "value")  # fields that are texts, of JSON perhaps

Parts = tuple[str, ...]
Places = Mapping[str, Sequence[str]]  # of a function: the names of what it takes by place


class Redaction:
    """Hides what is at some paths."""

    def __init__(self, paths: Iterable[str]) -> None:
        """Errors: ConfigurationError."""
        texts = list(paths)
        if len(texts) > PATHS_MAX:
            raise ConfigurationError(WHERE, f"has {len(texts)} paths; at most {PATHS_MAX}")
        hidden: dict[str, list[Parts]] = {}
        for text in texts:
            root, parts = _read(text)
            hidden.setdefault(root, []).append(parts)
        self._paths: Mapping[str, Sequence[Parts]] = MappingProxyType(hidden)

    def __bool__(self) -> bool:
        return bool(self._paths)

    def hide(self, action: Action, places: Places) -> Action:
        """The action as people may see it."""
        effect, hidden = self._hidden(action.spec.action, places)
        if not hidden:
            return action
        status, texts = action.status, _texts_of(hidden)
        shown = msgspec.structs.replace(
            status,
            last_attempt=status.last_attempt and hide_in(status.last_attempt, texts),
            current_attempt=status.current_attempt and hide_in(status.current_attempt, texts),
            reason=None if status.reason is None else hide_text(status.reason, texts),
        )
        spec = msgspec.structs.replace(action.spec, action=effect)
        return msgspec.structs.replace(action, spec=spec, status=shown)

    def hide_attempts(
        self, attempts: Sequence[Attempt], action: Action, places: Places
    ) -> list[Attempt]:
        """The attempts of an action, without the values that are hidden in it."""
        texts = self.hidden_texts(action, places)
        return [hide_in(attempt, texts) for attempt in attempts]

    def hidden_texts(self, action: Action, places: Places) -> list[str]:
        """What texts about the action must not hold."""
        return _texts_of(self._hidden(action.spec.action, places)[1])

    def hide_in_text(self, text: str, effect: Effect | Unreadable) -> str:
        """A text about an effect, for a log. What the effect has by place is all hidden in it:
        there nobody knows the names."""
        if not self._paths:
            return text
        return hide_text(text, _texts_of(self._hidden(effect, {})[1]))

    def hide_defaults(self, function: FunctionRecord) -> FunctionRecord:
        """A function without the defaults of arguments that are hidden."""
        parameters = tuple(
            msgspec.structs.replace(one, default=msgspec.UNSET)
            if self.hides_argument((one.name,)) else one
            for one in function.parameters
        )  # fmt: skip
        return msgspec.structs.replace(function, parameters=parameters)

    def hides_argument(self, path: tuple[str | int, ...]) -> bool:
        """Whether a filter by this path would tell what is hidden, in some effect. By place it may
        be any argument."""
        parts = tuple(map(str, path))
        if isinstance(path[0], int) and "args" in self._paths:
            return True
        return any(
            _meets(hidden, parts)
            for root in ("args", "body", "parameters")
            for hidden in self._paths.get(root, ())
        )

    @property
    def hides_entities(self) -> bool:
        """Whether something of entities is hidden: then it may stand in the words of stages."""
        return "document" in self._paths or "state" in self._paths

    def hide_json(self, root: str, text: str | bytes) -> bytes | None:
        """JSON of an entity (`document`) or of a stage about it (`state`) as people may see it;
        None if nothing of it may be hidden. What cannot be read is hidden whole."""
        paths = self._paths.get(root)
        if not paths:
            return None
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            value = MARKER
        if () in paths and isinstance(value, dict | list):
            return msgspec.json.encode(_each_marked(value))
        return msgspec.json.encode(_hide(value, paths, []))

    def hidden_columns(self) -> frozenset[str]:
        """Of an SQL task. An error quotes the statement, so it is hidden with it."""
        paths = self._paths.get("task", ())
        named = {part for path in paths for part in (path or TASK_TEXTS)}
        return frozenset(named | {"error"} if "input" in named else named)

    def hides_part(self, root: str, parts: Sequence[str]) -> bool:
        """Whether something is hidden at this place of a document or a state, above it or below."""
        return any(_meets(hidden, tuple(parts)) for hidden in self._paths.get(root, ()))

    def check_json(self, root: str, value: object) -> None:
        """The same as `check`, for a document or a state. Errors: InvalidSpec."""
        for parts in self._paths.get(root, ()):
            # What cannot be read is shown as the marker alone, whatever the path is.
            if value == MARKER or (
                isinstance(value, dict | list) and MARKER in _leaves(value, parts)
            ):
                raise InvalidSpec(
                    ".".join((root, *parts)),
                    f"is {MARKER}, which stands for a value that is not shown: write the value",
                )

    def check(self, spec: Spec) -> None:
        """Nobody may store the marker where a value is hidden: it would overwrite the value, and
        who may not see it must not send it elsewhere either. Errors: InvalidSpec."""
        effect = spec.action
        for field, root in FIELDS.items():
            value = getattr(effect, field, None)
            for parts in self._paths.get(root, ()):
                if value and MARKER in _leaves(value, parts):
                    shown = ".".join((field, *parts))
                    raise InvalidSpec(
                        f"spec.action.{shown}",
                        f"is {MARKER}, which stands for a value that is not shown: write the value",
                    )
        if isinstance(effect, Python) and "args" in self._paths and MARKER in effect.args:
            raise InvalidSpec(
                "spec.action.args",
                f"has {MARKER}, which stands for a value that is not shown: write the value",
            )

    def _hidden(
        self, effect: Effect | Unreadable, places: Places
    ) -> tuple[Effect | Unreadable, list[object]]:
        """The effect without what is hidden, and what that was."""
        hidden: list[object] = []
        changed: dict[str, Any] = {}
        for field, root in FIELDS.items():
            value, paths = getattr(effect, field, None), self._paths.get(root)
            if not value or not paths:
                continue
            if field in TEXTS and isinstance(value, str):
                changed[field] = _hide_in_json(value, paths, hidden)
            else:
                lowered = root == "headers"
                changed[field] = _hide(value, paths, hidden, lowered=lowered)
                if () in paths and isinstance(value, dict | list):
                    changed[field] = _each_marked(value)
        if isinstance(effect, Python) and effect.args and "args" in self._paths:
            changed["args"] = self._hidden_places(effect, places, hidden)
        return (msgspec.structs.replace(effect, **changed), hidden) if hidden else (effect, [])

    def _hidden_places(self, effect: Python, places: Places, hidden: list[object]) -> list[Any]:
        """Arguments by place. Of a function that nobody describes all are hidden: which of them has
        the name is not known."""
        paths = self._paths["args"]
        names = places.get(effect.function)
        shown: list[Any] = []
        for place, value in enumerate(effect.args):
            name = None if names is None or place >= len(names) else names[place]
            by_place = [path for path in paths if not path or path[0] in (ANY, str(place), name)]
            if name is None and not by_place:
                by_place = [()]
            rest = [path[1:] for path in by_place]
            shown.append(_hide(value, rest, hidden) if by_place else value)
        return shown


def places_of(functions: Iterable[FunctionRecord]) -> dict[str, list[str]]:
    """The names of what each takes by place."""
    return {
        function.name: [one.name for one in function.parameters if one.place is not None]
        for function in functions
    }


def hide_in(attempt: Attempt, texts: Sequence[str]) -> Attempt:
    """An attempt whose own words hold none of these."""
    if not texts:
        return attempt
    words = {
        name: value and hide_text(value, texts)
        for name in ("error", "answer", "progress_text")
        if (value := getattr(attempt, name)) is not None
    }
    return msgspec.structs.replace(attempt, **words)


def without_words(attempt: Attempt) -> Attempt:
    """An attempt that says nothing of its own."""
    names = ("error", "answer", "progress_text")
    words = {name: MARKER for name in names if getattr(attempt, name) is not None}
    return msgspec.structs.replace(attempt, **words)


def hide_text(text: str, texts: Sequence[str]) -> str:
    for hidden in texts:
        text = text.replace(hidden, MARKER)
    return text


def _read(text: str) -> tuple[str, Parts]:
    root, dot, rest = text.partition(".")
    if root not in ROOTS:
        known = ", ".join(ROOTS)
        raise ConfigurationError(WHERE, f"{text!r} must begin with one of {known}: args.password")
    if not dot:
        return root, ()
    parts = rest.split(".")
    if root == "task" and (len(parts) > 1 or parts[0] not in TASK_TEXTS):
        known = ", ".join(f"task.{name}" for name in TASK_TEXTS)
        raise ConfigurationError(WHERE, f"{text!r} must be one of {known}")
    try:
        read_path(".".join("x" if part == ANY else part for part in parts), WHERE)
    except InvalidSpec:
        problem = f"{text!r} is no path: names with dots between them, or * for any one"
        raise ConfigurationError(WHERE, problem) from None
    return root, tuple(part.lower() if root == "headers" else part for part in parts)


def _meets(hidden: Parts, asked: Parts) -> bool:
    """Whether one path is within the other."""
    return all(one in (ANY, other) for one, other in zip(hidden, asked, strict=False))


def _hide(
    value: Any, paths: Sequence[Parts], hidden: list[object], *, lowered: bool = False
) -> Any:
    """The value with the marker at the ends of the paths."""
    if any(not path for path in paths):
        hidden.append(value)
        return MARKER
    match value:
        case dict():
            items: Iterable[tuple[Any, Any]] = value.items()
        case list():
            items = enumerate(value)
        case _:
            return value
    shown = {}
    for key, part in items:
        name = str(key).lower() if lowered else str(key)
        rest = [path[1:] for path in paths if path[0] in (ANY, name)]
        shown[key] = _hide(part, rest, hidden) if rest else part
    return shown if isinstance(value, dict) else list(shown.values())


def _each_marked(value: dict[str, Any] | list[Any]) -> dict[str, str] | list[str]:
    """All of it hidden; it keeps the form that its field must have."""
    return dict.fromkeys(value, MARKER) if isinstance(value, dict) else [MARKER] * len(value)


def _hide_in_json(text: str, paths: Sequence[Parts], hidden: list[object]) -> str:
    """A text that is JSON is looked into; another one has no parts, and only as a whole a path."""
    if () in paths:
        hidden.append(text)
        return MARKER
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    before = len(hidden)
    shown = _hide(value, paths, hidden)
    return text if len(hidden) == before else msgspec.json.encode(shown).decode()


def _leaves(value: Any, parts: Parts) -> list[Any]:
    """What is at a path, and below it."""
    if isinstance(value, str) and parts:
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return []
    if not parts:
        inner = value.values() if isinstance(value, dict) else value
        return [value] if not isinstance(value, dict | list) else list(inner)
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(
        value, list) else ()  # fmt: skip
    return [
        leaf
        for key, part in items
        if parts[0] in (ANY, str(key), str(key).lower())
        for leaf in _leaves(part, parts[1:])
    ]


def _texts_of(hidden: Iterable[object]) -> list[str]:
    """Hidden values as they may stand in texts, the longest first."""
    texts: set[str] = set()
    stack = list(hidden)
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
        elif not isinstance(value, bool) and value is not None:
            texts.add(str(value))
    return sorted((text for text in texts if len(text) >= HIDDEN_CHARS_MIN), key=len, reverse=True)
