"""Errors: one class for each *reaction of the caller*, not for each cause.

Every error has a stable `code`, the fields a program needs, and a message that
says what is wrong, with which thing, and what to do next.

How an attempt ends, being late, and having nothing due are results, not errors.
"""

from __future__ import annotations

from datetime import datetime, timedelta


class GnomonError(Exception):
    """Root of everything Gnomon raises on purpose."""

    code = "internal"

    @property
    def message(self) -> str:
        return str(self)


class InvalidRequest(GnomonError):
    """The caller must change the request; sending it again as it is cannot help."""

    code = "invalid_request"


class InvalidSpec(InvalidRequest):
    """A field breaks a rule: `path` names the field, `problem` the rule, `got` the value."""

    code = "invalid_spec"

    def __init__(self, path: str, problem: str, *, got: object = None) -> None:
        shown = "" if got is None else f" (got {short(got)})"
        super().__init__(f"{path}: {problem}{shown}")
        self.path = path
        self.problem = problem
        self.got = got


class UnknownField(InvalidRequest):
    """The request has a field that does not exist."""

    code = "unknown_field"

    def __init__(self, path: str, *, suggestion: str | None = None) -> None:
        hint = f"; did you mean {suggestion!r}?" if suggestion else ""
        super().__init__(f"{path}: there is no such field{hint}")
        self.path = path
        self.suggestion = suggestion


class NotFound(GnomonError):
    """The named thing does not exist (any more)."""

    code = "not_found"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {short(name)} does not exist")
        self.kind = kind
        self.name = name


class AlreadyExists(GnomonError):
    """An action with this id lives already; replace it, or choose another id."""

    code = "already_exists"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {short(name)} exists already: replace it or choose another id")
        self.kind = kind
        self.name = name


class Conflict(GnomonError):
    """Somebody else changed it first: read it again and decide again."""

    code = "conflict"

    def __init__(self, name: str, *, expected: str, found: str) -> None:
        super().__init__(
            f"action {short(name)} is at generation {found}, not {expected}: read it again"
        )
        self.name = name
        self.expected = expected
        self.found = found


class VersionConflict(Conflict):
    """Likewise for an entity, whose changes are counted."""

    def __init__(
        self, name: str, *, expected: int | str, found: int | str, kind: str = "entity"
    ) -> None:
        GnomonError.__init__(
            self, f"{kind} {short(name)} is at version {found}, not {expected}: read it again"
        )
        self.name = name
        self.expected = str(expected)
        self.found = str(found)


class FailedPrecondition(GnomonError):
    """The thing's state forbids the request: `state` is what it is, `wanted` what it must be."""

    code = "failed_precondition"

    def __init__(self, name: str, *, state: str, wanted: str, kind: str = "action") -> None:
        super().__init__(f"{kind} {short(name)} is {state}; this needs it to be {wanted}")
        self.name = name
        self.state = state
        self.wanted = wanted


class NoResult(FailedPrecondition):
    """The action has no result and will have none: it did not succeed, or its result is not kept.
    `reason` says which."""

    def __init__(self, name: str, *, state: str, reason: str) -> None:
        GnomonError.__init__(self, f"action {short(name)} is {state} and has no result: {reason}")
        self.name = name
        self.state = state
        self.wanted = "done"
        self.reason = reason


class Unauthenticated(GnomonError):
    """Nobody knows who asks: a valid token is needed."""

    code = "unauthenticated"


class Forbidden(GnomonError):
    """It is known who asks, but he may not do this; `scope` is what he lacks."""

    code = "forbidden"

    def __init__(self, detail: str, *, scope: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.scope = scope


class Exhausted(GnomonError):
    """A limit was reached; try again later, or ask for a higher limit."""

    code = "exhausted"

    def __init__(self, limit: str, *, value: float, retry_after_s: float | None = None) -> None:
        super().__init__(f"the limit {limit} of {value} is reached")
        self.limit = limit
        self.value = value
        self.retry_after_s = retry_after_s


class Unavailable(GnomonError):
    """Nothing is wrong with the request; trying it again later is safe."""

    code = "unavailable"
    retry_after_s: float | None = 1.0


class StoreUnavailable(Unavailable):
    """The database did not answer. Whether the change was made is unknown; repeating is safe."""

    code = "store_unavailable"


class NotSupported(GnomonError):
    """The engine in use lacks a capability."""

    code = "not_supported"

    def __init__(self, capability: str, *, engine: str, remedy: str = "") -> None:
        hint = f": {remedy}" if remedy else ""
        super().__init__(f"the {engine} engine does not support {capability}{hint}")
        self.capability = capability
        self.engine = engine


class SchemaMismatch(GnomonError):
    """The database has another schema version than this program needs."""

    code = "schema_mismatch"

    def __init__(self, *, found: int, expected: int) -> None:
        remedy = "run `gnomon migrate`" if found < expected else "upgrade this program"
        there = f"the schema is at {found}" if found else "there is no schema"
        super().__init__(f"{there}, this program needs {expected}: {remedy}")
        self.found = found
        self.expected = expected


class IdentityMismatch(GnomonError):
    """The database is a copy or a restore of the one that was installed: nothing is begun."""

    code = "identity_mismatch"

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"this database is not the one Gnomon was installed in ({detail}). No action is begun "
            "until you say `gnomon doctor --adopt --past-due=run|skip`"
        )
        self.detail = detail


class ConfigurationError(GnomonError):
    """A setting is wrong: `path` names it, `problem` says why."""

    code = "configuration"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class MissingExtra(ConfigurationError):
    """A part of the distribution is wanted that is not installed here."""

    def __init__(self, extra: str, need: str) -> None:
        command = f"pip install 'gnomon-scheduler[{extra}]'"
        GnomonError.__init__(self, f"{need}: {command}")
        self.path = extra
        self.problem = need


class BugError(GnomonError):
    """An invariant did not hold. Never caught to go on."""

    code = "bug"


SHOWN_CHARS_MAX = 80


def short(value: object) -> str:
    """A value for a message: escaped, and cut so that no message can be flooded."""
    text = _shown(value)
    return text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + "…"


def _shown(value: object) -> str:
    """As a user wrote it: he knows no Python."""
    match value:
        case timedelta():
            return f"{value.total_seconds():g} s"
        case datetime():
            return value.isoformat()
    return repr(value)


def check(condition: object, problem: str, **facts: object) -> None:
    """Guard stored data: unlike `assert`, this stays on under `python -O`."""
    if not condition:
        shown = ", ".join(f"{key}={short(value)}" for key, value in facts.items())
        raise BugError(f"{problem} ({shown})" if shown else problem)
