"""The gRPC protocol: well-formed, in step with the code made from it, and never changed under a
client's feet.

Like the other rules, these are functions to a list of findings, and are fed bad examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from scripts.proto import BASELINE, describe, generate
from tests.architecture.sources import GENERATED

PACKAGE = re.compile(r"gnomon\.v[0-9]+")
MESSAGE = re.compile(r"[A-Z][A-Za-z0-9]*")
FIELD = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
VALUE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
# Types that let in what our own parsers would refuse, and into which json_format may be led.
FORBIDDEN_TYPES = (".google.protobuf.Any", ".google.protobuf.Struct", ".google.protobuf.Value")
CARRIED = {"StageState.message"}  # stored and given back as it is, never unpacked

Described = dict[str, tuple[Any, ...]]


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> FileDescriptorSet:
    file = tmp_path_factory.mktemp("proto") / "current.binpb"
    describe(file)
    return FileDescriptorSet.FromString(file.read_bytes())


@pytest.fixture(scope="module")
def baseline() -> FileDescriptorSet:
    return FileDescriptorSet.FromString(BASELINE.read_bytes())


def ours(files: FileDescriptorSet) -> list[FileDescriptorProto]:
    return [file for file in files.file if not file.name.startswith("google/")]


# -- form -----------------------------------------------------------------------------------------


def lint_findings(file: FileDescriptorProto) -> list[str]:
    findings = []
    if not PACKAGE.fullmatch(file.package):
        findings.append(f"{file.name}: package {file.package} has no version at its end")
    elif not file.name.startswith(file.package.replace(".", "/") + "/"):
        findings.append(f"{file.name}: is not in the folder of package {file.package}")
    for message in file.message_type:
        findings += message_findings(message)
    for enum in file.enum_type:
        findings += enum_findings(enum)
    for service in file.service:
        for method in service.method:
            wanted = (
                f".{file.package}.{method.name}Request",
                f".{file.package}.{method.name}Response",
            )
            if (method.input_type, method.output_type) != wanted:
                findings.append(f"{service.name}.{method.name}: has not its own request and answer")
    return findings


def message_findings(message: DescriptorProto) -> Iterator[str]:
    if not MESSAGE.fullmatch(message.name):
        yield f"{message.name}: a message is named LikeThis"
    for field in message.field:
        if not FIELD.fullmatch(field.name):
            yield f"{message.name}.{field.name}: a field is named like_this"
        is_carried = f"{message.name}.{field.name}" in CARRIED
        if field.type_name in FORBIDDEN_TYPES and not is_carried:
            yield f"{message.name}.{field.name}: {field.type_name} is not for us"
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            yield f"{message.name}.{field.name}: is a group"


def enum_findings(enum: EnumDescriptorProto) -> Iterator[str]:
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
    if (0, f"{prefix}UNSPECIFIED") != (enum.value[0].number, enum.value[0].name):
        yield f"{enum.name}: the first value is {prefix}UNSPECIFIED = 0"
    for value in enum.value:
        if not VALUE.fullmatch(value.name) or not value.name.startswith(prefix):
            yield f"{enum.name}.{value.name}: begins with {prefix}"


def test_the_protocol_is_well_formed(current: FileDescriptorSet) -> None:
    """Versioned package, its folder, names, enums, one request and one answer for each rpc."""
    assert [] == [finding for file in ours(current) for finding in lint_findings(file)]
    assert 5 == len(ours(current))


def test_lint_can_fail() -> None:
    """Each rule, with a bad example."""
    bad = FileDescriptorProto(name="gnomon/v1/a.proto", package="gnomon")
    message = bad.message_type.add(name="bad_name")
    message.field.add(name="BadName", number=1)
    message.field.add(name="any", number=2, type_name=".google.protobuf.Any")
    enum = bad.enum_type.add(name="SomeState")
    enum.value.add(name="SOME_STATE_ONE", number=0)
    enum.value.add(name="two", number=1)
    bad.service.add(name="S").method.add(name="Do", input_type=".gnomon.X", output_type=".gnomon.Y")
    assert 7 == len(lint_findings(bad))


# -- promise --------------------------------------------------------------------------------------


def described(files: FileDescriptorSet) -> Described:
    """Everything that a client may rely upon, by name."""
    found: Described = {}
    for file in ours(files):
        for message in file.message_type:
            found |= described_message(f"{file.package}.{message.name}", message)
        for enum in file.enum_type:
            for value in enum.value:
                found[f"{file.package}.{enum.name} {value.number}"] = (value.name,)
        for service in file.service:
            for method in service.method:
                found[f"{file.package}.{service.name}/{method.name}"] = (
                    method.input_type,
                    method.output_type,
                    method.client_streaming,
                    method.server_streaming,
                )
    return found


def described_message(name: str, message: DescriptorProto) -> Described:
    found: Described = {name: ()}
    for field in message.field:
        alternative = None
        if field.HasField("oneof_index") and not field.proto3_optional:
            alternative = message.oneof_decl[field.oneof_index].name
        found[f"{name} {field.number}"] = (
            field.name,
            field.type,
            field.type_name,
            field.label,
            field.proto3_optional,
            alternative,
        )
    for nested in message.nested_type:
        found |= described_message(f"{name}.{nested.name}", nested)
    return found


def broken_promises(before: Described, now: Described) -> list[str]:
    """What was there and is gone or different. What is new breaks nothing."""
    return [
        f"{name}: was {was}, is {now.get(name, 'gone')}"
        for name, was in before.items()
        if now.get(name) != was
    ]


def test_no_promise_is_broken(baseline: FileDescriptorSet, current: FileDescriptorSet) -> None:
    """No message, field, value or rpc was removed, renamed, renumbered or given another type."""
    assert [] == broken_promises(described(baseline), described(current))
    assert described(baseline)


@pytest.mark.parametrize(
    ("change", "count"),
    [
        (lambda file: file.message_type[0].field.add(name="more", number=99), 0),
        (lambda file: file.message_type.add(name="More"), 0),
        (lambda file: file.message_type[0].field.pop(), 1),
        (lambda file: setattr(file.message_type[0].field[0], "number", 98), 1),
        (lambda file: setattr(file.message_type[0].field[0], "name", "renamed"), 1),
        (lambda file: setattr(file.message_type[1].field[0], "type", 3), 1),
        (lambda file: setattr(file.message_type[0].field[0], "label", 3), 1),
        (lambda file: setattr(file.enum_type[0].value[1], "name", "RENAMED"), 1),
        (lambda file: file.enum_type[0].value.pop(), 1),
    ],
)
def test_promise_rule_can_fail(baseline: FileDescriptorSet, change: Any, count: int) -> None:
    """Additions pass; each other change is found."""
    changed = FileDescriptorSet.FromString(baseline.SerializeToString())
    change(next(file for file in changed.file if file.name == "gnomon/v1/action.proto"))
    assert count == len(broken_promises(described(baseline), described(changed)))


# -- code -----------------------------------------------------------------------------------------


def test_generated_code_is_in_step(tmp_path: Path) -> None:
    """src/gnomon/v1 is what `make proto` writes."""
    generate(tmp_path)
    made = {path.name: path.read_text() for path in (tmp_path / "gnomon" / "v1").iterdir()}
    kept = {
        path.name: path.read_text()
        for path in GENERATED.iterdir()
        if path.is_file() and path.name != "__init__.py"
    }
    assert set(made) == set(kept)
    assert made == kept, "run `make proto`"
