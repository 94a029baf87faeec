"""What the documents name is there: modules, files, classes and their methods."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

from tests.architecture.sources import PACKAGE, ROOT, SOURCE, source_modules

PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[a-z_][\w./-]*(?:\.(?:py|sql|proto)|/)")  # or a folder
DOTTED = re.compile(rf"(?:{PACKAGE}|model|contracts)(?:\.\w+)+")
METHOD = re.compile(r"((?:[A-Z][a-z]+)+(?:Store|Table|Session|Register|Rows))\.(\w+)")
# Folders that a page may leave out of a path, for all of a page is about them.
BASES = ("", "src/gnomon", "tests", "docs", "proto/gnomon/v1")
OF_READERS = frozenset({"gnomon.toml", "gnomon.service", "gnomon.db"})  # files of the reader's own


def pages() -> list[Path]:
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def file_exists(name: str) -> bool:
    """A path from one of the folders above, or the bare name of a file or folder in src."""
    if any((ROOT / base / name).exists() for base in BASES):
        return True
    name = name.removesuffix("/")
    return "/" not in name and any(SOURCE.rglob(name))


def resolves(dotted: str) -> bool:
    """Whether it is a module, something in a module, a protobuf name or an SQL name of ours."""
    dotted = dotted if dotted.startswith(f"{PACKAGE}.") else f"{PACKAGE}.{dotted}"
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        module = module_named(".".join(parts[:count]))
        if module is not None and has_path(module, parts[count:]):
            return True
    return is_message(dotted) or dotted in sql_names()


def module_named(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def has_path(owner: object, names: list[str]) -> bool:
    for name in names:
        fields = getattr(owner, "__annotations__", {})
        if not hasattr(owner, name) and name not in fields:
            return False
        owner = getattr(owner, name, None)
    return True


def is_message(name: str) -> bool:
    importlib.import_module("gnomon.v1.entity_pb2")
    importlib.import_module("gnomon.v1.scheduler_pb2")
    importlib.import_module("gnomon.v1.handler_pb2")
    pool = descriptor_pool.Default()
    for symbol in (name, name.rpartition(".")[0]):  # of a method its service is found
        with suppress(KeyError):
            found = pool.FindFileContainingSymbol(symbol).services_by_name
            service = found.get(symbol.rpartition(".")[2])
            return symbol == name or (service is not None and name in _methods_of(service))
    return False


def _methods_of(service: ServiceDescriptor) -> set[str]:
    return {method.full_name for method in service.methods}


@cache
def sql_names() -> frozenset[str]:
    schema = (SOURCE / PACKAGE / "stores/postgres/schema.sql").read_text()
    return frozenset(re.findall(r"CREATE \w+ (gnomon\.\w+)", schema))


@cache
def methods() -> frozenset[str]:
    return frozenset(
        f"{node.name}.{item.name}"
        for module in source_modules()
        if module.is_in("contracts")
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def page_findings(text: str) -> Iterator[str]:
    """What is named in code marks, and imported in examples, and is not there."""
    for code in CODE.findall(FENCE.sub("", text)):
        if FILE.fullmatch(code) and "NNNN" not in code and not file_exists(code):
            yield f"there is no file {code}"
        elif DOTTED.fullmatch(code) and code not in OF_READERS and not resolves(code):
            yield f"there is no module or name {code}"
        elif (named := METHOD.fullmatch(code)) and named[0] not in methods():
            yield f"no contract has {code}"
    for language, example in FENCE.findall(text):
        if language == "python":
            yield from import_findings(example)


def import_findings(example: str) -> Iterator[str]:
    for module, names in re.findall(
        rf"^from ({PACKAGE}[\w.]*) import (.+)$", example, re.MULTILINE
    ):
        for name in re.findall(r"\w+", names.partition(" as ")[0]):
            if not resolves(f"{module}.{name}"):
                yield f"an example imports {name} from {module}"


def test_pages_name_what_is_there() -> None:
    """A module that moved, or a verb that was renamed, takes its pages along."""
    found = [
        f"{path.relative_to(ROOT)}: {finding}"
        for path in pages()
        for finding in page_findings(path.read_text())
    ]
    assert [] == found, "\n".join(["name it as it is called now:", *found])


def test_links_lead_somewhere() -> None:
    """Every link to a file of ours."""
    broken = [
        f"{path.relative_to(ROOT)}: {link}"
        for path in pages()
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
        if not (path.parent / link).exists()
    ]
    assert [] == broken


def test_rule_can_fail() -> None:
    """Names that are not there are found, one by one."""
    text = (
        "`worker/pumps.py` `worker/pump.py` `model.transitions` `model.transition` `gnomon.App` "
        "`gnomon.Apps` `WorkStore.begin` `WorkStore.start` `gnomon.v1.EntityService`\n"
        "```python\nfrom gnomon.stages import Stage, Stages, Stagehand\n```\n"
    )
    assert [
        "there is no file worker/pumps.py",
        "there is no module or name model.transitions",
        "there is no module or name gnomon.Apps",
        "no contract has WorkStore.start",
        "an example imports Stagehand from gnomon.stages",
    ] == list(page_findings(text))
