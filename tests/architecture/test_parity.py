"""The same verb all the way down: a method of the contract, the engine's method, its queries.

A query belongs to a verb of its role if its name is the verb or begins with `verb_`. What several
verbs use belongs to a shared family, named here with its reason.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Mapping

import pytest

from gnomon.contracts import store as contract
from tests.architecture.sources import SOURCE

STORES = SOURCE / "gnomon" / "stores"
ENGINES = {"sqlite": "Sqlite", "postgres": "Postgres"}

# Role -> its protocol and its files; the engine's class is `<Engine><Role>`.
ROLES: Mapping[str, tuple[type, tuple[str, ...]]] = {
    "actions": (contract.ActionStore, ("actions",)),
    "work": (contract.WorkStore, ("work", "results")),
    "leases": (contract.LeaseStore, ("leases",)),
    "installation": (contract.InstallationStore, ("installation", "figures")),
    "tokens": (contract.TokenStore, ("tokens",)),
    "limits": (contract.LimitStore, ("limits",)),
    "programs": (contract.ProgramStore, ("programs",)),
    "progress": (contract.ProgressStore, ("progress",)),
    "entities": (contract.EntityStore, ("entities",)),
    "queues": (contract.QueueStore, ("queues",)),
    "register": (contract.StageRegister, ("register",)),
    "outbox": (contract.OutboxStore, ("outbox",)),
    "reports": (contract.ReportStore, ("reports", "history")),
}
# Files that belong to no role above, and why.
OTHER_FILES: Mapping[str, frozenset[str]] = {
    "sqlite": frozenset({"connection"}),  # what connections themselves need
    "postgres": frozenset({"connection", "cluster"}),  # and what several machines need
}
# What several verbs of a role use.
SHARED = {
    "actions": {
        "append": "appends a generation to the incoming queue",
        "change": "steps of replace, delete, pause, resume and run_now",
        "repeat": "answers a change whose idempotency key was applied before",
    },
    "work": {
        "lock": "locks what a result is written to",
        "end": "moves an action to the finished ones: finish, settle",
        "continue": "counts a result and lets the action go on: finish, settle",
        "log": "writes the attempt log: finish, settle, and changes of actions",
    },
    "tokens": {"change": "steps of create, rotate and revoke"},
    "limits": {"change": "steps of set and delete"},
    "programs": {"note": "what is known of a declared action: declare_action, remove_declared"},
    "entities": {
        "save": "writes an entity and what follows from it: put, swap_state, commit",
        "holds": "the fence of every write by the owner of a shard",
    },
    "queues": {
        "load": "reads what claimed rows are about",
        "row": "writes a row of a stage's queue",
        "enqueue": "merges a row into a stage's queue",
    },
}
# Verbs that need no query of their own: they are made of other verbs, or of no SQL at all.
SERVED = {
    "actions.count_selected": "list_query.py puts the statement together",
    "actions.get_many": "get",
    "actions.pause": "change",
    "actions.resume": "change",
    "actions.run_now": "change",
    "programs.remove_declared": "change",
    "work.move_silent": "move",
    "entities.swap_state": "save",
    "queues.claim": "load",
    "queues.commit": "save, row, enqueue",
    "queues.give_back": "row",
    "installation.placement": "cluster.py asks the catalogue of Citus; SQLite is one file",
    "leases.end_frozen_sessions": "SQLite has no sessions",
    "installation.now": "SQLite shares the process's clock",
    "installation.verify_identity": "open",
}
# What does not fit yet. May only shrink: an entry that fits by now fails the test.
UNSORTED: Mapping[str, frozenset[str]] = {"sqlite": frozenset(), "postgres": frozenset()}

_NAME = re.compile(r"^-- name: (\w+)", re.MULTILINE)


def verbs_of(role: str) -> list[str]:
    protocol, _ = ROLES[role]
    parts = [part for part in protocol.__mro__ if part.__module__.startswith("gnomon.")]
    return [name for part in parts for name in vars(part) if not name.startswith("_")]


def query_names(engine: str, role: str) -> list[str]:
    _, files = ROLES[role]
    folder = STORES / engine / "queries"
    return [name for file in files for name in _NAME.findall((folder / f"{file}.sql").read_text())]


def owner_of(query: str, words: Iterable[str]) -> str | None:
    """The longest of these words that the query is named after."""
    owners = [word for word in words if query == word or query.startswith(f"{word}_")]
    return max(owners, key=len, default=None)


def homeless(queries: Iterable[str], words: Iterable[str]) -> list[str]:
    """Queries that belong neither to a verb nor to a shared family."""
    known = list(words)
    return [query for query in queries if owner_of(query, known) is None]


def unserved(queries: Iterable[str], words: Iterable[str]) -> list[str]:
    """Verbs and families without a query that bears their name."""
    known = list(words)
    served = {owner_of(query, known) for query in queries}
    return [word for word in known if word not in served]


def findings(engine: str) -> Iterator[str]:
    for role in ROLES:
        verbs, queries = verbs_of(role), query_names(engine, role)
        for query in homeless(queries, [*verbs, *SHARED.get(role, ())]):
            yield f"{role}: query {query}"
        for verb in unserved(queries, verbs):
            if f"{role}.{verb}" not in SERVED:
                yield f"{role}: verb {verb}"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_query_bears_the_name_of_its_verb(engine: str) -> None:
    """Every verb has its queries, every query its verb or its shared family."""
    assert UNSORTED[engine] == frozenset(findings(engine))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("role", ROLES)
def test_an_engine_has_the_methods_of_the_contract(engine: str, role: str) -> None:
    """Under the same names, in the class named after the role."""
    module = importlib.import_module(f"gnomon.stores.{engine}")
    implementation = getattr(module, ENGINES[engine] + role.capitalize())
    assert [] == [verb for verb in verbs_of(role) if not hasattr(implementation, verb)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_role_has_the_same_files_in_both_engines(engine: str) -> None:
    """Nobody has to look for a role's SQL."""
    expected = {file for _, files in ROLES.values() for file in files} | OTHER_FILES[engine]
    assert expected == {path.stem for path in (STORES / engine / "queries").glob("*.sql")}


def test_no_exception_outlives_its_reason() -> None:
    """What is said to be served otherwise has no query in one engine at least; every shared family
    has one."""
    for name in SERVED:
        role, _, verb = name.partition(".")
        assert any(verb in unserved(query_names(each, role), verbs_of(role)) for each in ENGINES)
    for role, families in SHARED.items():
        queries = [query for engine in ENGINES for query in query_names(engine, role)]
        assert [] == unserved(queries, list(families)), role


def test_parity_rules_can_fail() -> None:
    """A query of nobody, a verb without one, and a name that only begins alike."""
    assert ["beginning", "seek"] == homeless(["begin_lane", "beginning", "seek"], ["begin"])
    assert [] == homeless(["end_archive"], ["begin", "end"])
    assert ["begin"] == unserved(["beginning"], ["begin"])
    assert ["list"] == unserved(["list_lanes_after"], ["list", "list_lanes"])
