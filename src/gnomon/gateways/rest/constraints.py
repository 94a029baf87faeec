"""Bounds that the model's rules set, as JSON Schema: for readers and programs; the rules decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.model.effects import METHODS
from gnomon.model.ids import ID_PATTERN, KIND_PATTERN, NAME_PATTERN
from gnomon.model.limits import BURST_MAX, PARALLEL_MAX, RATE_MAX, RATE_MIN, LimitKind
from gnomon.model.pause import REASON_CHARS_MAX
from gnomon.model.spec import (
    CATCH_UP_MAX,
    COUNT_MAX,
    LABEL_CHARS_MAX,
    LABELS_MAX,
    PRIORITY_MAX,
    RETRIES_MAX,
    TRACEPARENT_PATTERN,
)
from gnomon.scheduler.admission import KEY_CHARS_MAX

Json = dict[str, Any]

# `.` and `..` are refused: HTTP clients resolve them away.
ID: Json = {"type": "string", "pattern": rf"^(?!\.{{1,2}}$){ID_PATTERN.pattern}$"}
ENTITY_KIND: Json = {"type": "string", "pattern": f"^{KIND_PATTERN.pattern}$"}
KEY: Json = {"type": "string", "pattern": f"^[ -~]{{1,{KEY_CHARS_MAX}}}$"}
DURATION: Json = {
    "description": "Seconds, or text such as 30s, 1h30m, PT5M. Answers are in ISO 8601.",
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "examples": ["30s", "5m", "PT5M"]},
    ],
}
MOMENT_NAMES = frozenset(
    {
        "start_at", "deadline", "created_at", "updated_at", "scheduled_at", "occurrence_at",
        "expires_at", "finished_at", "began_at", "ended_at", "plan", "start", "stop", "until",
        "changed_at", "since", "next_try_at", "timer_at", "at", "first_seen_at", "last_seen_at",
        "cleaned_at", "last_ended_at", "paused_until",
    }
)  # fmt: skip


def _range(least: float, most: float) -> Json:
    return {"minimum": least, "maximum": most}


_COUNT = {"anyOf": [{"type": "integer", **_range(1, COUNT_MAX)}, {"type": "null"}]}
_LABELS: Json = {
    "maxProperties": LABELS_MAX,
    "propertyNames": {"pattern": f"^{NAME_PATTERN.pattern}$"},
    "additionalProperties": {"type": "string", "maxLength": LABEL_CHARS_MAX},
}
TEXT: Json = {"type": "string"}
REASON: Json = {"type": "string", "minLength": 1, "maxLength": REASON_CHARS_MAX}
TASK_ID: Json = {"type": "string", "pattern": "^[0-9]{1,18}$"}
LIMIT_KIND: Json = {"enum": [str(kind) for kind in LimitKind]}
# `.` and `..` as for ids.
NAME: Json = {"type": "string", "pattern": rf"^(?!\.{{1,2}}$){NAME_PATTERN.pattern}$"}
LIMIT_FIELDS: Json = {
    "parallel": _range(0, PARALLEL_MAX),
    "rate": _range(RATE_MIN, RATE_MAX),
    "burst": _range(1, BURST_MAX),
}
# Variables of paths by name.
VARIABLES: Mapping[str, Json] = {
    "id": ID,
    "kind": ENTITY_KIND,
    "name": NAME,
    "stage": NAME,
    "table": TEXT,
    "task_id": TASK_ID,
    "limit_kind": LIMIT_KIND,
}

# Schema -> field -> what is added to what its type says.
CONSTRAINTS: Mapping[str, Mapping[str, Json]] = {
    "Spec": {
        "queue": {"pattern": f"^{NAME_PATTERN.pattern}$"},
        "priority": _range(0, PRIORITY_MAX),
        "labels": _LABELS,
        "traceparent": {
            "anyOf": [
                {"type": "string", "pattern": f"^{TRACEPARENT_PATTERN.pattern}$"},
                {"type": "null"},
            ]
        },
        "interruptions_max": _range(0, COUNT_MAX),
        "occurrences_max": _COUNT,
        "successes_max": _COUNT,
        "consecutive_failures_max": _COUNT,
    },
    "Retry": {
        "max": _range(0, RETRIES_MAX),
        "scale": {"minimum": 0},
        "back_off": {"minimum": 0},
        "jitter": {"minimum": 0, "maximum": 1},
    },
    "CatchUp": {"max": _range(1, CATCH_UP_MAX)},
    "Http": {"method": {"enum": sorted(METHODS)}},
    "EntityAnswer": {"document": {"type": "object"}},
    "BulkResult": {"problem": {"$ref": "#/components/schemas/Problem"}},
}
# Schema -> what must be there.
NEEDS: Mapping[str, Json] = {
    "BulkResult": {"oneOf": [{"required": ["action"]}, {"required": ["problem"]}]},
    "LimitBody": {"anyOf": [{"required": ["parallel"]}, {"required": ["rate"]}]},
    "StateBody": {"oneOf": [{"required": ["state"]}, {"required": ["type", "message"]}]},
    "TaskDraft": {"additionalProperties": False},
}
