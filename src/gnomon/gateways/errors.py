"""The one table from error codes to what the outside sees: HTTP, gRPC, exit codes, titles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from gnomon.model.errors import GnomonError, short

EXIT_USAGE = 2
EXIT_FINDINGS = 14  # `gnomon doctor` found something
EXIT_INTERRUPTED = 130
TYPE_PREFIX = "https://gnomon.invalid/errors/"  # an identifier, not an address
GOT_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """What a code is outside. `shown` names the error's fields that the caller may see."""

    code: str
    http: int
    grpc: str
    exit: int
    title: str
    shown: tuple[str, ...] = ()

    @property
    def hides_detail(self) -> bool:
        """Our own slips are logged, not told."""
        return self.http == 500


_ROWS = (
    ErrorRow(
        "invalid_request", 400, "INVALID_ARGUMENT", EXIT_USAGE, "The request is not understood"
    ),
    ErrorRow(
        "invalid_spec", 400, "INVALID_ARGUMENT", EXIT_USAGE, "A field breaks a rule",
        ("path", "problem", "got"),
    ),
    ErrorRow(
        "unknown_field", 400, "INVALID_ARGUMENT", EXIT_USAGE, "There is no such field",
        ("path", "suggestion"),
    ),
    ErrorRow("unauthenticated", 401, "UNAUTHENTICATED", 15, "A valid token is needed"),
    ErrorRow("forbidden", 403, "PERMISSION_DENIED", 13, "This caller may not do this", ("scope",)),
    ErrorRow("not_found", 404, "NOT_FOUND", 3, "It does not exist", ("kind", "name")),
    ErrorRow("already_exists", 409, "ALREADY_EXISTS", 4, "It exists already", ("kind", "name")),
    ErrorRow(
        "conflict", 412, "ABORTED", 5, "Somebody else changed it first",
        ("name", "expected", "found"),
    ),
    ErrorRow(
        "failed_precondition", 409, "FAILED_PRECONDITION", 6, "Its state forbids it",
        ("name", "state", "wanted"),
    ),
    ErrorRow(
        "exhausted", 429, "RESOURCE_EXHAUSTED", 7, "A limit is reached",
        ("limit", "value", "retry_after_s"),
    ),
    ErrorRow(
        "unavailable", 503, "UNAVAILABLE", 8, "Not available at the moment", ("retry_after_s",)
    ),
    ErrorRow(
        "store_unavailable", 503, "UNAVAILABLE", 8, "The database does not answer",
        ("retry_after_s",),
    ),
    ErrorRow(
        "not_supported", 501, "UNIMPLEMENTED", 9, "The engine cannot do this",
        ("capability", "engine"),
    ),
    ErrorRow(
        "schema_mismatch", 503, "FAILED_PRECONDITION", 10, "The schema has another version",
        ("found", "expected"),
    ),
    ErrorRow(
        "identity_mismatch", 503, "FAILED_PRECONDITION", 11, "The database is a copy or a restore"
    ),
    ErrorRow("configuration", 500, "INTERNAL", 12, "A setting is wrong"),
    ErrorRow("internal", 500, "INTERNAL", 1, "Something went wrong on our side"),
    ErrorRow("bug", 500, "INTERNAL", 1, "An invariant did not hold"),
    # What only HTTP can get wrong.
    ErrorRow("route_not_found", 404, "UNIMPLEMENTED", EXIT_USAGE, "There is no such path"),
    ErrorRow("method_not_allowed", 405, "UNIMPLEMENTED", EXIT_USAGE, "The path has no such method"),
    ErrorRow("request_timeout", 408, "DEADLINE_EXCEEDED", 8, "The body did not arrive in time"),
    ErrorRow("body_too_large", 413, "RESOURCE_EXHAUSTED", EXIT_USAGE, "The body is too large"),
    ErrorRow(
        "unsupported_media_type", 415, "INVALID_ARGUMENT", EXIT_USAGE,
        "The body has another type than is read here",
    ),
)  # fmt: skip

TABLE: Mapping[str, ErrorRow] = MappingProxyType({row.code: row for row in _ROWS})


class HttpError(GnomonError):
    """A fault that only HTTP can have; `code` names its row in the table."""

    def __init__(self, code: str, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.headers = dict(headers or {})


def row_of(error: BaseException) -> ErrorRow:
    """How an error is told to callers: its row of the table. What is no error of ours is
    internal."""
    return TABLE[error.code if isinstance(error, GnomonError) else "internal"]


def exit_code_of(error: BaseException) -> int:
    """What a command ends with."""
    return row_of(error).exit


def problem_of(error: BaseException) -> dict[str, object]:
    """The RFC 9457 problem document of an error."""
    row = row_of(error)
    document: dict[str, object] = {
        "type": TYPE_PREFIX + row.code,
        "title": row.title,
        "status": row.http,
        "detail": (not row.hides_detail and str(error)) or row.title,
        "code": row.code,
    }
    for name in row.shown:
        value = getattr(error, name, None)
        if value is not None:
            document[name] = _plain(value) if name == "got" else value
    return document


def _plain(value: object) -> object:
    """A refused value as JSON can show it, cut so that no answer is flooded."""
    if isinstance(value, bool | int | float):
        return value
    if not isinstance(value, str):
        try:
            value = msgspec.to_builtins(value)
        except (TypeError, ValueError):
            return short(value)
    if isinstance(value, str):
        text = value.encode("utf-8", "backslashreplace").decode()
        return text if len(text) <= GOT_CHARS_MAX else text[: GOT_CHARS_MAX - 1] + "…"
    return short(value)


def errors_page() -> str:
    """docs/reference/errors.md."""
    lines = [
        "# Errors",
        "",
        "<!-- Generated by gnomon.gateways.errors.errors_page; see `make docs`. -->",
        "",
        "Every error has a stable `code`. Over HTTP it is a problem document (RFC 9457,",
        "`application/problem+json`) with `type`, `title`, `status`, `detail`, `code` and the",
        "fields named below; on the command line it is one line on standard error and an exit",
        "code. Errors with status 500 carry no detail: it is in the log, under the `request_id`",
        "of the answer.",
        "",
        "| code | HTTP | gRPC | exit | title | fields |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{row.code}` | {row.http} | {row.grpc} | {row.exit} | {row.title} | "
        f"{', '.join(f'`{name}`' for name in row.shown)} |"
        for row in TABLE.values()
    ]
    lines += [
        "",
        "Other exit codes: 0 success;",
        f"{EXIT_FINDINGS} `gnomon doctor` found faults; {EXIT_INTERRUPTED} stopped by hand.",
    ]
    return "\n".join(lines) + "\n"
