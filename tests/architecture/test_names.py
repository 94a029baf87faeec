"""One word per concept, and no file whose name says nothing."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import GENERATED, ROOT, SOURCE, Module, source_modules

# The words of other systems; ours are action, attempt and occurrence.
BANNED_WORDS = frozenset({"job", "jobs"})
BANNED_FILE_NAMES = frozenset(
    {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}
)
# They say that something was looked for, or that there are several; not what it is.
EMPTY_NAMES = frozenset({"found", "each"})
# `found` is a field of the errors that callers see, beside `expected`.
FOUND_IS_A_FIELD = "gnomon.model.errors"
PYTHON_FOLDERS = ("src", "tests", "benchmarks", "examples")
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md")
QUERIES = ("src/**/*.sql", "proto/**/*.proto")

# `job` in code marks quotes another system's word, in a comparison or the glossary.
QUOTED = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL)
RAISED = re.compile(r"Errors: ((?:[A-Z]\w+(?:, )?)+)")  # in a docstring
WORD_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def words_of(identifier: str) -> set[str]:
    """`claimJobs_now` is claim, jobs, now."""
    return {part.lower() for part in WORD_PARTS.findall(identifier)}


def identifiers_of(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """Every name that the module itself gives: defined, assigned, taken as a parameter."""
    for node in module.nodes:
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name, node
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node
            case ast.alias(asname=str(name)) | ast.MatchAs(name=str(name)):
                yield name, node


def identifier_findings(module: Module) -> list[str]:
    return [
        f"{module.where(node)}: {name}"
        for name, node in identifiers_of(module)
        if words_of(name) & BANNED_WORDS
    ]


def empty_name_findings(module: Module) -> list[str]:
    return [
        f"{module.where(node)}: {name}"
        for name, node in identifiers_of(module)
        if name in EMPTY_NAMES and module.name != FOUND_IS_A_FIELD
    ]


def prose_findings(name: str, text: str) -> list[str]:
    blanked = QUOTED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return [
        f"{name}:{number}: {word}"
        for number, line in enumerate(blanked.splitlines(), start=1)
        for word in re.findall(r"[A-Za-z]+", line)
        if word.lower() in BANNED_WORDS
    ]


def file_name_findings(path: Path) -> list[str]:
    parts = [*path.parts[:-1], path.stem]
    return [
        f"{path}: {part}"
        for part in parts
        if part.strip("_") in BANNED_FILE_NAMES or words_of(part) & BANNED_WORDS
    ]


def files(*patterns: str) -> list[Path]:
    found = {path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}
    return sorted(path for path in found if GENERATED not in path.parents)


def test_identifiers_use_our_words() -> None:
    """No name in the source carries another system's word."""
    assert [] == [finding for module in source_modules() for finding in identifier_findings(module)]


def test_locals_say_what_they_hold() -> None:
    """A row is `row` and a stage is `stage`, not what was found nor each of some."""
    modules = source_modules()
    assert [] == [finding for module in modules for finding in empty_name_findings(module)]


def test_pages_and_queries_use_our_words() -> None:
    """Nor do the documents, the SQL and the protocol, unless they quote it."""
    findings = [
        finding
        for path in files(*PAGES, *QUERIES)
        for finding in prose_findings(str(path.relative_to(ROOT)), path.read_text())
    ]
    assert [] == findings


def test_file_names_say_what_is_inside() -> None:
    """No `utils` and its kin: what has no better name has no clear purpose."""
    paths = files(*(f"{folder}/**/*.py" for folder in PYTHON_FOLDERS))
    findings = [f for path in paths for f in file_name_findings(path.relative_to(ROOT))]
    assert [] == findings


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("def fetch_jobs(): ...", 1),
        ("class JobStore: ...", 1),
        ("def f(job): ...", 1),
        ("x.job_id = 1", 1),
        ("import action as job", 1),
        ("jobless_count = 1", 0),
        ("action_count = 1", 0),
    ],
)
def test_identifier_rule_can_fail(text: str, count: int) -> None:
    assert count == len(identifier_findings(Module.of_text("gnomon.worker.leases", text)))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("def f():\n    found = g()", 1),
        ("x = [each.id for each in rows]", 1),
        ("x = sorted(rows, key=lambda each: each.id)", 1),
        ("def f(found): ...", 1),
        ("match x:\n    case [found]: ...", 1),
        ("x = found(each.id)", 0),
        ("founder = [row.id for row in rows]", 0),
    ],
)
def test_empty_name_rule_can_fail(text: str, count: int) -> None:
    assert count == len(empty_name_findings(Module.of_text("gnomon.worker.leases", text)))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("A job waits.\nJobs wait.", 2),
        ("River calls it `job`.", 0),
        ("```\nclass Job: ...\n```\na job", 1),
        ("an action waits", 0),
    ],
)
def test_prose_rule_can_fail(text: str, count: int) -> None:
    assert count == len(prose_findings("page.md", text))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("src/gnomon/worker/utils.py", 1),
        ("src/gnomon/worker/_base.py", 1),
        ("src/gnomon/common/leases.py", 1),
        ("src/gnomon/worker/job_leases.py", 1),
        ("src/gnomon/worker/leases.py", 0),
        ("tests/unit/test_database.py", 0),
    ],
)
def test_file_name_rule_can_fail(name: str, count: int) -> None:
    assert count == len(file_name_findings(Path(name)))


def test_source_is_where_we_look() -> None:
    """The rules above would pass on an empty folder; this one would not."""
    assert (SOURCE / "gnomon" / "__init__.py").exists()
    assert source_modules()


def twin_findings(modules: Iterable[Module]) -> list[str]:
    """Classes that share their name with another one."""
    homes: dict[str, set[str]] = {}
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, set()).add(module.name)
    return [
        f"{name}: {', '.join(sorted(names))}"
        for name, names in sorted(homes.items())
        if len(names) > 1
    ]


def gerund_findings(module: Module) -> list[str]:
    """A file is named by what is in it, not by what goes on there. A package may be: `testing`."""
    last = module.name.rpartition(".")[2]
    is_package = module.path.name == "__init__.py"
    return [module.name] if last.endswith("ing") and not is_package else []


def test_a_class_name_stands_for_one_thing() -> None:
    """No class of ours shares its name with another one: one search finds one class."""
    assert [] == twin_findings(source_modules())


def test_modules_are_nouns() -> None:
    """No module of ours is named by a gerund."""
    assert [] == [finding for module in source_modules() for finding in gerund_findings(module)]


def test_twin_rule_can_fail() -> None:
    first = Module.of_text("gnomon.worker.leases", "class Claim: ...")
    second = Module.of_text("gnomon.stages.claims", "def f():\n    class Claim: ...")
    assert ["Claim: gnomon.stages.claims, gnomon.worker.leases"] == twin_findings([first, second])
    assert [] == twin_findings([first])


def test_noun_rule_can_fail() -> None:
    assert ["gnomon.worker.leasing"] == gerund_findings(
        Module.of_text("gnomon.worker.leasing", "x = 1")
    )
    assert [] == gerund_findings(Module.of_text("gnomon.worker.leases", "x = 1"))


def error_findings(module: Module, known: frozenset[str]) -> list[str]:
    """Errors that a docstring promises and that are no class of ours or of Python's."""
    return [
        f"{module.where(node)}: {name}"
        for node in module.nodes
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for names in RAISED.findall(" ".join((ast.get_docstring(node) or "").split()))
        for name in names.strip(", ").split(", ")
        if name not in known
    ]


def test_docstrings_name_errors_that_there_are() -> None:
    """A class that was renamed is renamed where its raising is promised, too."""
    modules = source_modules()
    nodes = [node for module in modules for node in module.nodes]
    ours = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    known = frozenset(ours | set(dir(builtins)))
    assert [] == [finding for module in modules for finding in error_findings(module, known)]


def test_error_rule_can_fail() -> None:
    text = 'def f():\n    """Errors: ValueError,\n    Gone, for a bad one."""\n'
    module = Module.of_text("gnomon.worker.leases", text)
    assert ["src/gnomon/worker/leases.py:1: Gone"] == error_findings(
        module, frozenset({"ValueError"})
    )
