"""What each surface calls its concepts: Python, REST, gRPC, CLI, TOML, SQL. Read from the code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from google.protobuf.descriptor import ServiceDescriptor

from gnomon.cli.root import whole_tree
from gnomon.config import SECTIONS
from gnomon.contracts.store.actions import Selection
from gnomon.contracts.store.entities import ChangeNote, Entity
from gnomon.contracts.store.limits import LimitUse
from gnomon.contracts.store.register import StageRecord
from gnomon.contracts.task_rows import TaskDetail, TaskDraft, TaskRows
from gnomon.gateways.rest.routes import openapi_document
from gnomon.model.action import Attempt, Meta, Status
from gnomon.model.limits import Limit
from gnomon.model.spec import CatchUp, Cron, Effect, Periodic, Policy, Retry, Spec
from gnomon.scheduler.options import Options
from gnomon.scheduler.reports import Reports
from gnomon.scheduler.scheduler import Scheduler
from gnomon.stages.entities import Entities
from gnomon.stages.explain import Explanation, StageExplanation
from gnomon.stages.stage import EntityView, Quarantine, RetryLater, SavedVersion, Stage, Update
from gnomon.v1 import action_pb2, entity_pb2, scheduler_pb2, stage_pb2

SOURCE = Path(__file__).parents[1] / "src" / "gnomon"
SURFACES = ("Python", "REST", "gRPC", "CLI", "TOML", "SQL")
Names = list[tuple[str, str]]  # (concept, the name as it is shown)

# Settings that have an option of their own, in `gnomon up`, `worker`, `server`, `tasks`.
OPTION_OF = {
    "database.url": "--database",
    "database.schema": "--schema",
    "server.host": "--host",
    "server.port": "--port",
    "server.grpc_port": "--grpc-port",
    "tasks.dsn": "--dsn",
    "tasks.conf": "--conf",
    "tasks.conf_file": "--conf-file",
}

PAGING = frozenset({"limit", "after"})
SQL_FUNCTIONS = ("schedule", "schedule_many", "cancel")


PG_TASK = "the words of pg_task, which its users know"


@dataclass(frozen=True)
class Section:
    """A table of the page: what each surface calls its concepts."""

    key: str
    title: str
    text: str
    names: Mapping[str, Iterable[tuple[str, str]]]


# -- what each surface has ------------------------------------------------------------------------


def struct_names(struct: Any, prefix: str = "", owner: str = "") -> Names:
    """The fields of a msgspec struct; `owner` is shown before them."""
    shown = f"{owner}." if owner else ""
    return [(f"{prefix}{name}", f"{shown}{name}") for name in struct.__struct_fields__]


def message_names(message: Any, prefix: str = "") -> Names:
    """The fields of a protobuf message, or of its descriptor."""
    described = getattr(message, "DESCRIPTOR", message)
    return [(f"{prefix}{item.name}", f"{described.name}.{item.name}") for item in described.fields]


def rpc_names(service: ServiceDescriptor, noun: str = "") -> Names:
    """`PutEntity` is put; the noun is the service's own."""
    named = ((snake(method.name), method.name) for method in service.methods)
    return [(concept.removesuffix(noun), f"{service.name}.{name}") for concept, name in named]


def method_names(owner: type[Any], shown: str, leave_out: Iterable[str] = ()) -> Names:
    return [
        (name, f"{shown}.{name}")
        for part in owner.__mro__
        if part.__module__.startswith("gnomon.")
        for name, value in vars(part).items()
        if callable(value) and not name.startswith("_") and name not in leave_out
    ]


def route_names(pattern: str, noun: str = "") -> Names:
    """Routes whose path matches, by operation id, without the noun in it."""
    return [
        (operation["operationId"].removesuffix(noun), f"{method.upper()} {path}")
        for path, operations in openapi_document()["paths"].items()
        for method, operation in operations.items()
        if method != "parameters" and re.search(pattern, path)
    ]


def query_names(path: str) -> Names:
    given = openapi_document()["paths"][path]["get"]["parameters"]
    return [(item["name"], item["name"]) for item in given if item["name"] not in PAGING]


def json_names(schema: str, prefix: str = "") -> Names:
    properties = openapi_document()["components"]["schemas"][schema]["properties"]
    return [(f"{prefix}{name}", f"{prefix}{name}") for name in properties if name != "type"]


def commands() -> Iterator[tuple[str, Any]]:
    for noun, group in whole_tree().commands.items():
        for verb, command in getattr(group, "commands", {}).items():
            yield f"{noun} {verb}", command


def command_names(noun: str, renamed: str = "") -> Names:
    names = [name for name, _ in commands() if name.startswith(f"{noun} ")]
    return [(snake(name.partition(" ")[2]) + renamed, f"gnomon {name}") for name in names]


def option_names(name: str, wanted: Iterable[str]) -> Names:
    command = dict(commands())[name]
    options = [item.opts[0] for item in command.params if item.opts[0].startswith("--")]
    named = ((snake(option.removeprefix("--")), option) for option in options)
    return [(concept, option) for concept, option in named if concept in wanted]


def setting_names(section: str, wanted: Iterable[str]) -> Names:
    return [
        (item.name, f"{section}.{item.name}")
        for item in fields(SECTIONS[section])
        if item.name in wanted
    ]


def function_names() -> Names:
    """The SQL functions that a role may be granted, with their arguments."""
    text = (SOURCE / "stores/postgres/schema.sql").read_text()
    return [(name, f"{name}({', '.join(arguments(text, name))})") for name in SQL_FUNCTIONS]


def arguments(schema: str, function: str) -> list[str]:
    signature = re.search(rf"CREATE FUNCTION gnomon\.{function}\((.*?)\) RETURNS", schema)
    assert signature, f"there is no SQL function {function} any more"
    without_types = re.sub(r"\([^)]*\)", "", signature[1])
    return [part.split()[0] for part in without_types.split(",")]


def option_fields_of_sql() -> list[str]:
    """What `options` of `schedule` may have, as the function itself checks it."""
    text = (SOURCE / "stores/postgres/schema.sql").read_text()
    body = text[text.index("CREATE FUNCTION gnomon.options_of") :]
    checks = re.findall(r"check_fields\(field(.*?), \w+, '(\{.*?\})'\)", body, re.DOTALL)[:2]
    return [
        f"{'retry.' if 'retry' in place else ''}{name}"
        for place, kinds in checks
        for name in re.findall(r'"(\w+)":', kinds)
    ]


def view_columns() -> list[str]:
    text = (SOURCE / "stores/postgres/schema.sql").read_text()
    body = text[text.index("CREATE VIEW gnomon.tasks") :].partition("FROM")[0]
    return re.findall(r"(?:AS |\ba\.)(\w+),?$", body, re.MULTILINE)


def task_columns() -> list[str]:
    text = (SOURCE / "tasks/postgres/queries/schema.sql").read_text()
    return re.findall(r'ADD COLUMN IF NOT EXISTS "?(\w+)"? ', text)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace("-", "_").lower()


# -- the tables -----------------------------------------------------------------------------------


def sections() -> list[Section]:
    return [
        Section("verbs", "Actions: verbs", "", action_verbs()),
        Section("list", "Actions: what to list", "", action_filters()),
        Section("spec", "Actions: the spec", "", spec_fields()),
        Section("effects", "Actions: effects", "", effect_fields()),
        Section("action", "Actions: what is shown", "", shown_fields()),
        Section("limit", "Limits", "", limit_fields()),
        Section("report verbs", "Reports: verbs", "", report_verbs()),
        Section("task verbs", "SQL tasks: verbs", "", task_verbs()),
        Section("task", "SQL tasks: columns", f"These are {PG_TASK}.", task_fields()),
        Section("entity verbs", "Entities and stages: verbs", "", entity_verbs()),
        Section("entity", "Entities: what is shown", "", entity_fields()),
        Section("stage", "Stages: options", "", stage_options()),
        Section("answer", "Stages: what a stage gets and answers", "", stage_answers()),
        Section("setting", "Settings that are options too", "", settings()),
    ]


def action_verbs() -> dict[str, Names]:
    limits = [(f"{verb}_limit", shown) for verb, shown in command_names("limit")]
    return {
        "Python": method_names(Scheduler, "scheduler"),
        "REST": route_names("^/v1/(actions|limits)"),
        "gRPC": rpc_names(scheduler_pb2.DESCRIPTOR.services_by_name["SchedulerService"]),
        "CLI": command_names("action") + limits,
        "SQL": function_names(),
    }


def action_filters() -> dict[str, Names]:
    names = [name for name, _ in struct_names(Selection)]
    grpc = message_names(scheduler_pb2.ListRequest)
    wanted = {*names, "state", "label", "argument"}
    return {
        "Python": [
            item for item in struct_names(Selection, owner="Selection") if item[0] != "places"
        ],  # that is found out, not asked for
        "REST": query_names("/v1/actions"),
        "gRPC": [item for item in grpc if item[0] not in PAGING],
        "CLI": option_names("action list", wanted),
    }


def spec_fields() -> dict[str, Names]:
    parts = [("retry.", Retry), ("policy.", Periodic), ("policy.", Cron), ("catch_up.", CatchUp)]
    python = struct_names(Spec, owner="Spec")
    python += [(f"a {policy.__name__.lower()}", policy.__name__) for policy in get_args(Policy)]
    for prefix, struct in parts:
        python += struct_names(struct, prefix, struct.__name__)
    python.append(("idempotency_key", "Request.key"))
    python += [(name, f"schedule({name}=)") for name in Options.__annotations__ if name != "id"]
    rest = json_names("Spec")
    rest += [(f"a {kind}", f'policy.type = "{kind}"') for kind in ("once", "periodic", "cron")]
    for prefix, struct in parts:
        rest += json_names(struct.__name__, prefix)
    messages = [
        ("", action_pb2.Spec),
        ("start_policy.", action_pb2.StartPolicy),
        ("send_policy.", action_pb2.SendPolicy),
        ("send_once_policy.", action_pb2.SendOncePolicy),
        ("send_periodically_policy.", action_pb2.SendPeriodicallyPolicy),
        ("send_cron_policy.", action_pb2.SendCronPolicy),
        ("retry_policy.", action_pb2.RetryPolicy),
        ("catch_up.", action_pb2.CatchUp),
    ]
    grpc = [item for prefix, part in messages for item in message_names(part, prefix)]
    grpc.append(("idempotency_key", "CreateRequest.idempotency_key"))
    schema = (SOURCE / "stores/postgres/schema.sql").read_text()
    given = [
        name for name in arguments(schema, "schedule") if name in {"execute_at", "max_attempts"}
    ]
    return {
        "Python": python,
        "REST": [*rest, ("Idempotency-Key", "Idempotency-Key")],
        "gRPC": grpc,
        "CLI": option_names("action create", SPEC_OPTIONS),
        "TOML": setting_names("scheduler", ["retention"]),
        "SQL": [(name, name) for name in given]
        + [(name, f"options.{name}") for name in option_fields_of_sql()],
    }


SPEC_OPTIONS = frozenset(
    ["key", "at", "in", "every", "cron", "timezone", "retry_max", "retry_delay", "timeout",
     "deadline", "queue", "priority", "label"]
)  # fmt: skip


def effect_fields() -> dict[str, Names]:
    python: Names = [("action", "Spec.action"), ("payload", "")]
    rest: Names = [("action", "action.type")]
    for effect in get_args(Effect):
        kind = effect.__struct_config__.tag
        python += [(str(kind), effect.__name__)]
        python += struct_names(effect, f"{kind}.", effect.__name__)
        rest += [(str(kind), f'action.type = "{kind}"'), *json_names(effect.__name__, f"{kind}.")]
    grpc: Names = []
    for item in action_pb2.Action.DESCRIPTOR.fields:
        kind = "push" if item.name == "send_technical_push" else item.name
        grpc += [(item.name, f"Action.{item.name}"), *message_names(item.message_type, f"{kind}.")]
    return {
        "Python": [item for item in python if item[1]],
        "REST": rest,
        "gRPC": grpc,
        "CLI": option_names("action create", EFFECT_OPTIONS),
        "SQL": [("task_type", "task_type")],
    }


EFFECT_OPTIONS = frozenset(
    ["http", "header", "body", "json_body", "python", "args", "mock", "mock_fail"]
)


def shown_fields() -> dict[str, Names]:
    parts = [("", Meta), ("", Status), ("attempt.", Attempt)]
    messages = [
        ("", action_pb2.Meta),
        ("", action_pb2.Status),
        ("attempt.", action_pb2.AttemptStatus),
    ]
    return {
        "Python": [
            item for prefix, part in parts for item in struct_names(part, prefix, part.__name__)
        ],
        "REST": [
            (concept, f"{part.__name__.lower()}.{name.rpartition('.')[2]}")
            for prefix, part in parts
            for concept, name in json_names(part.__name__, prefix)
        ],
        "gRPC": [i for prefix, part in messages for i in message_names(part, prefix)],
        "SQL": [(name, f"tasks.{name}") for name in view_columns() if name not in AS_GIVEN],
    }


AS_GIVEN = frozenset({"task_type", "payload", "max_attempts"})  # in the tables above


def limit_fields() -> dict[str, Names]:
    use = [item for item in struct_names(LimitUse, owner="LimitUse") if item[0] != "limit"]
    messages = (scheduler_pb2.Limit, scheduler_pb2.LimitUse)
    grpc = [item for part in messages for item in message_names(part)]
    return {
        "Python": struct_names(Limit, owner="Limit") + use,
        "REST": json_names("LimitAnswer"),
        "gRPC": [item for item in grpc if item[0] != "limit"],
        "CLI": option_names("limit set", ["parallel", "rate", "burst"]),
    }


def task_verbs() -> dict[str, Names]:
    return {
        "Python": method_names(TaskRows, "TaskRows", ["close", "live_count"]),
        "REST": route_names("^/v1/task-tables/", "_task"),
    }


def task_fields() -> dict[str, Names]:
    return {
        "Python": struct_names(TaskDetail, owner="TaskDetail")
        + struct_names(TaskDraft, owner="TaskDraft"),
        "REST": json_names("TaskDetail") + json_names("TaskDraft"),
        "SQL": [("id", "id"), *((name, name) for name in task_columns())],
    }


def report_verbs() -> dict[str, Names]:
    return {
        "Python": method_names(Reports, "scheduler.reports"),
        "REST": route_names("^/v1/(figures|failures|history|load)$"),
    }


def entity_verbs() -> dict[str, Names]:
    services = entity_pb2.DESCRIPTOR.services_by_name
    return {
        "Python": method_names(Entities, "entities", ["is_of", "registered"]),
        "REST": route_names("^/v1/(entities|parked|stages)", "_entity"),
        "gRPC": rpc_names(services["EntityService"], "_entity")
        + rpc_names(services["StateService"]),
        "CLI": command_names("entity") + command_names("stage", "_stage"),
    }


def entity_fields() -> dict[str, Names]:
    parts = [
        ("", Entity),
        ("explain.", Explanation),
        ("explain.stages.", StageExplanation),
        ("explain.changes.", ChangeNote),
    ]
    messages = [
        ("", stage_pb2.Entity),
        ("explain.", entity_pb2.Explanation),
        ("explain.stages.", entity_pb2.StageExplanation),
        ("explain.changes.", entity_pb2.ChangeNote),
    ]
    return {
        "Python": [("kind", "Entity.kind"), ("id", "Entity.id")]  # properties: both are in `key`
        + [i for prefix, part in parts for i in struct_names(part, prefix, part.__name__)],
        "REST": json_names("EntityAnswer")
        + [i for prefix, part in parts[1:] for i in json_names(part.__name__, prefix)],
        "gRPC": [i for prefix, part in messages for i in message_names(part, prefix)],
    }


def stage_options() -> dict[str, Names]:
    own = [(name, f"Stage.{name}") for name in Stage.__annotations__]
    return {
        "Python": own + struct_names(StageRecord, owner="StageRecord"),
        "REST": json_names("StageRecord"),
        "gRPC": message_names(stage_pb2.DescribeResponse) + message_names(entity_pb2.StageRecord),
        "TOML": setting_names("stages", ["call_timeout"]),
    }


def stage_answers() -> dict[str, Names]:
    """The methods of a stage, and the values that they take and return."""
    structs = [("it", EntityView), ("update", Update), ("saved", SavedVersion)]
    python = method_names(Stage, "Stage", ["process_many", "migrate", "reach"])
    for value, struct in structs:
        names = [item for item in struct.__annotations__ if item[0] != "_"]
        python += [(snake(struct.__name__), struct.__name__)]
        python += [(f"{value}.{name}", f"{struct.__name__}.{name}") for name in names]
    python += [("a retry", RetryLater.__name__), ("a quarantine", Quarantine.__name__)]
    grpc = rpc_names(stage_pb2.DESCRIPTOR.services_by_name["StageService"])
    messages = [
        ("it", stage_pb2.EntityView),
        ("update", stage_pb2.Update),
        ("saved", stage_pb2.SavedVersion),
    ]
    for value, message in messages:
        grpc += [(snake(message.__name__), message.__name__), *message_names(message, f"{value}.")]
    kinds = [
        kind for kind in dict(stage_pb2.FailureKind.items()) if not kind.endswith("UNSPECIFIED")
    ]
    grpc += [(f"a {kind.rpartition('_')[2].lower()}", kind) for kind in kinds]
    return {"Python": python, "gRPC": grpc}


def settings() -> dict[str, Names]:
    """Options of commands that set a setting, by what the setting is called."""
    python = [
        (f"{section}.{item.name}", f"{owner.__name__}.{item.name}")
        for section, owner in SECTIONS.items()
        for item in fields(owner)
        if f"{section}.{item.name}" in OPTION_OF
    ]
    return {
        "Python": python,
        "CLI": list(OPTION_OF.items()),
        "TOML": [(name, name) for name, _ in python],
    }
