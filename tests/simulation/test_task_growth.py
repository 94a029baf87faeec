"""SQL tasks: no collection of an owner, a session or an engine grows without end.

As `test_growth`, for the face that has tables of its own. The collections of the core are measured
in virtual time; those of the engines are found in their source, so that none is forgotten.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator

from tests.architecture.sources import Module, source_modules
from tests.simulation.growing import Sizes, sizes_of
from tests.unit.tasks.fake_table import World, virtually

MINUTES = 10
TASKS_A_SECOND = 4
FEW = 100  # what is under way, and groups of the last seconds
PACKAGES = ("gnomon.tasks.", "gnomon.model.task.")
KINDS = ("dict", "list", "set", "deque", "defaultdict", "Counter")

# By what bounds them.
COLLECTIONS: dict[str, tuple[str, ...]] = {
    "tables that the configuration names": ("TaskService._ending", "TaskService._parts"),
    "sessions that are open": (
        "Sessions._open", "SqliteTaskTable._sessions", "TableAccess.pids",
    ),
    "a number in the source": (
        "Finder._wanted",  # WANTED_MAX
        "GroupForecast._inputs",  # INPUTS_MAX
        "TableAccess.looks",  # LOOKS_MAX
        "Rescuer._records",  # KNOWN_MAX
        "RowUpkeep._aside",  # ASIDE_MAX
        "Sessions._aside",  # ASIDE_KNOWN_MAX
        "SpareSessions._ready",  # SPARES_MAX
        "TableAccess.suspects",  # SUSPECTS_MAX
        "_Open.words",  # the first ones of a statement
    ),
    "groups that have due rows or sessions, and at most WINDOW_ROWS of each": (
        "Admission._groups", "Admission._turns", "Finder._refills", "_Group.busy", "_Group.lanes",
        "_Group.touched",
        "_Window.awaited", "_Window.foreseen", "_Window.ready",  # while it is read
    ),
    "groups of the last FULL_EVERY_MAX_S": ("Finder._loads",),
    "rows of sessions that broke": ("Rescuer._losses",),
    "statements of ours": ("TableMaker._done", "Wire._pending", "Wire._prepared"),
    "settings of one task": ("TaskRunner._settings",),
}  # fmt: skip
NOT_OURS = ("FakeTable", "VirtualLoop")
KNOWN = {place for places in COLLECTIONS.values() for place in places}


def collections_of(module: Module) -> Iterator[str]:
    """What the objects of a module keep in collections: `self.x: dict[…] = …` in its classes."""
    for kind in ast.walk(module.tree):
        if not isinstance(kind, ast.ClassDef):
            continue
        for node in ast.walk(kind):
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target).startswith("self."):
                name = ast.unparse(node.annotation).partition("[")[0]
                if name in KINDS:
                    yield f"{kind.name}.{ast.unparse(node.target).removeprefix('self.')}"


def test_every_collection_has_a_bound() -> None:
    """Whoever adds one says here what bounds it."""
    found = {
        place
        for module in source_modules()
        if module.name.startswith(PACKAGES)
        for place in collections_of(module)
    }

    assert [] == sorted(found ^ KNOWN)


def test_the_look_at_the_source_can_fail() -> None:
    text = "class A:\n    def __init__(self) -> None:\n        self._b: dict[int, int] = {}\n"
    assert ["A._b"] == list(collections_of(Module.of_text("gnomon.tasks.a", text)))


async def _use(world: World, looks: list[Sizes]) -> None:
    """New groups all the time; every tenth task breaks its session once, every twentieth fails.
    Rows that have ended go, as their user has them."""
    for second in range(MINUTES * 60):
        for number in range(TASKS_A_SECOND):
            count = second * TASKS_A_SECOND + number
            error = "ERROR:  no" if count % 20 == 0 else None
            world.table.insert(f"group {count}", error=error, kills=int(count % 10 == 0))
        await asyncio.sleep(1.0)
        for row in [row for row in world.table.rows.values() if row.state in ("DONE", "FAIL")]:
            row.state = "STOP"
        looks.append(sizes_of(*world.owners))


def test_no_collection_of_an_owner_grows_beyond_its_bound() -> None:
    """However many groups came by."""
    looks: list[Sizes] = []
    virtually(lambda world: _use(world, looks))
    largest = {name: max(look.get(name, 0) for look in looks) for name in looks[-1]}

    core = {name for name in largest if name.partition(".")[0] not in NOT_OURS}
    assert {"Finder._loads", "Rescuer._records", "Sessions._open", "Admission._groups"} <= core
    assert [] == sorted(core - KNOWN), "name the bound of a new collection in this file"
    assert {} == {name: size for name, size in largest.items() if name in core and size > FEW}
