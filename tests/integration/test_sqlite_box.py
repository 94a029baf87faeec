"""The box around a stranger's statement on SQLite: every way out ends in a refusal."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gnomon.clock import SystemClock
from gnomon.sqlite_box import (
    MISFIT,
    RESULT_TOO_LARGE,
    STOPPED,
    TIMED_OUT,
    BoxRefusal,
    BoxTerms,
    SqliteBox,
)

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
TERMS = BoxTerms(timeout_s=30.0, closed_tables=frozenset({"inbox"}))
SHORT = BoxTerms(timeout_s=0.2)
WAIT_S = 60.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop file?.db"  # a name that a careless URL would take for an option
    with sqlite3.connect(path) as owner:
        owner.execute("CREATE TABLE effect (n INTEGER)")
        owner.execute("CREATE TABLE inbox (key TEXT)")
        owner.execute("INSERT INTO inbox VALUES ('canary')")
    owner.close()
    return path


@pytest.fixture
def box(file: Path) -> Iterator[SqliteBox]:
    with_box = opened(file)
    yield with_box
    with_box.close()


def opened(file: Path, terms: BoxTerms = TERMS) -> SqliteBox:
    found = SqliteBox(file, terms, clock=SystemClock())
    found.open()
    return found


def rows_of(file: Path, query: str) -> list[tuple[Any, ...]]:
    owner = sqlite3.connect(file)
    try:
        return owner.execute(query).fetchall()
    finally:
        owner.close()


ESCAPES = [
    "ATTACH '{elsewhere}' AS x",
    "ATTACH ':memory:' AS x",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO '{elsewhere}'",
    "PRAGMA writable_schema = ON",
    "PRAGMA journal_mode = OFF",
    "PRAGMA hard_heap_limit = 1",
    "PRAGMA temp_store_directory = '{elsewhere}'",
    "PRAGMA user_version",
    "SELECT * FROM pragma_table_info('effect')",
    "SELECT * FROM pragma_database_list",
    "SELECT load_extension('{elsewhere}')",
    "SELECT load_extension('{elsewhere}', 'main')",
    "SELECT writefile('{elsewhere}', 'x')",
    "SELECT readfile('/etc/passwd')",
    "SELECT edit('x', 'sh')",
    "SELECT * FROM fsdir('/')",
    "SELECT fts3_tokenizer('x', x'0102030405060708')",
    "SELECT sqlite_log(1, 'x')",
    "UPDATE sqlite_dbpage SET data = x'00'",
    "UPDATE sqlite_master SET sql = 'x'",
    "DELETE FROM sqlite_schema",
    "CREATE VIRTUAL TABLE v USING csv(filename='/etc/passwd')",
    "CREATE VIRTUAL TABLE v USING fts5(x)",
    "BEGIN",
    "COMMIT",
    "END",
    "ROLLBACK",
    "SAVEPOINT s",
    "RELEASE s",
    "INSERT INTO effect VALUES (1); COMMIT",
    "SELECT 1; SELECT 2",
    "SELECT key FROM inbox",
    "DELETE FROM Inbox",
    "INSERT INTO main.inbox VALUES ('x')",
    'UPDATE "inbox" SET key = 1',
    "DROP TABLE inbox",
    "ALTER TABLE inbox RENAME TO other",
    "ALTER TABLE inbox ADD COLUMN more",
    "CREATE INDEX i ON inbox (key)",
    "CREATE TRIGGER t AFTER INSERT ON inbox BEGIN DELETE FROM effect; END",
    "CREATE TABLE copied AS SELECT * FROM inbox",
    "INSERT INTO effect SELECT count(*) FROM inbox",
    "\x00",
    "SELECT '\ud800'",
    "nonsense",
]


@pytest.mark.parametrize("in_transaction", [True, False])
@pytest.mark.parametrize("statement", ESCAPES)
def test_escapes_are_refused(
    file: Path, box: SqliteBox, tmp_path: Path, statement: str, in_transaction: bool
) -> None:
    """No file appears, nothing changes, and the box works on."""
    elsewhere = tmp_path / "elsewhere"
    before = sorted(tmp_path.iterdir())
    if in_transaction:
        box.begin()
    with pytest.raises(BoxRefusal):
        box.perform(statement.replace("{elsewhere}", str(elsewhere)))
    assert not elsewhere.exists()
    assert [(1,)] == box.perform("SELECT 1").rows
    box.close()
    assert before == sorted(tmp_path.iterdir())
    assert [("canary",)] == rows_of(file, "SELECT key FROM inbox")
    assert [] == rows_of(file, "SELECT * FROM effect")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW seen AS SELECT key FROM inbox",
        "CREATE TRIGGER t AFTER INSERT ON effect BEGIN DELETE FROM inbox; END",
    ],
)
def test_a_detour_to_a_closed_table_leads_nowhere(box: SqliteBox, statement: str) -> None:
    """A view or a trigger over it may be made; using it is refused."""
    box.begin()
    box.perform(statement)
    with pytest.raises(BoxRefusal, match=r"SQLITE_AUTH|SQLITE_ERROR"):
        box.perform(
            "SELECT * FROM seen" if "VIEW" in statement else "INSERT INTO effect VALUES (1)"
        )


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT zeroblob(1000000000)",
        "SELECT randomblob(1000000000)",
        "SELECT printf('%.*c', 1000000000, 'x')",
        "SELECT format('%1000000000d', 1)",
        "SELECT " + " + ".join(["abs(1)"] * 101),
        "SELECT hex(zeroblob(100000000))",
        "SELECT length(zeroblob(1000000000) || 'x')",
        "SELECT replace(hex(zeroblob(100000)), '0', hex(zeroblob(100000)))",
        ENDLESS + "SELECT group_concat(n) FROM (SELECT n FROM r LIMIT 300000)",
        ENDLESS + "SELECT json_group_array(n) FROM (SELECT n FROM r LIMIT 300000)",
        ENDLESS + "INSERT INTO effect SELECT randomblob(1000000) FROM r LIMIT 1000",
        "SELECT " + "(" * 1_000 + "1" + ")" * 1_000,
        " UNION ALL ".join(["SELECT 1"] * 1_000),
        "SELECT 'a' LIKE '" + "%a" * 1_000 + "'",
    ],
)
def test_bombs_end_in_an_error(file: Path, statement: str) -> None:
    """By size, long before any time is over."""
    terms = BoxTerms(timeout_s=60.0, growth_bytes_max=8 * 1024 * 1024)
    box = opened(file, terms)
    box.begin()
    with pytest.raises(BoxRefusal, match=r"SQLITE_(TOOBIG|FULL|ERROR|NOMEM)"):
        box.perform(statement)
    box.close()
    assert file.stat().st_size < 20 * 1024 * 1024


@pytest.mark.parametrize(
    "statement",
    [ENDLESS + "SELECT count(*) FROM r", ENDLESS + "INSERT INTO effect SELECT n FROM r"],
)
def test_an_endless_statement_ends_at_its_time(file: Path, statement: str) -> None:
    """Really: the connection is free for others afterwards."""
    box = opened(file, SHORT)
    box.begin()
    with pytest.raises(BoxRefusal) as caught:
        box.perform(statement)
    assert (TIMED_OUT, True) == (caught.value.name, caught.value.is_passing)
    box.close()
    other = opened(file, BoxTerms(timeout_s=WAIT_S))
    other.begin()
    other.close()


def test_stopping_ends_what_is_under_way(file: Path) -> None:
    """From another thread; and what was stopped cannot be committed any more."""
    box = opened(file)
    box.begin()
    box.perform("INSERT INTO effect VALUES (1)")
    stopper = threading.Timer(0.05, box.stop)
    stopper.start()
    with pytest.raises(BoxRefusal) as caught:
        box.perform(ENDLESS + "SELECT count(*) FROM r")
    stopper.join()
    assert STOPPED == caught.value.name
    noted = []
    with pytest.raises(BoxRefusal, match=STOPPED), box.committing():
        noted.append("committing")
    assert [] == noted
    box.close()
    assert [] == rows_of(file, "SELECT * FROM effect")


def test_nothing_is_committed_after_its_time(file: Path) -> None:
    """A statement that could not be ended while it worked is undone."""
    box = opened(file, SHORT)
    box.begin()
    box.perform("INSERT INTO effect VALUES (1)")
    threading.Event().wait(0.25)
    with pytest.raises(BoxRefusal, match=TIMED_OUT), box.committing():
        pass
    box.close()
    assert [] == rows_of(file, "SELECT * FROM effect")


def test_a_result_is_bounded(box: SqliteBox) -> None:
    """Many rows, or large ones; what is kept are the first."""
    with pytest.raises(BoxRefusal, match=RESULT_TOO_LARGE):
        box.perform(ENDLESS + "SELECT n FROM r")
    with pytest.raises(BoxRefusal, match=RESULT_TOO_LARGE):
        box.perform(ENDLESS + "SELECT zeroblob(900000) FROM r")
    result = box.perform(ENDLESS + "SELECT n FROM r LIMIT 1000")
    assert (("n",), 200, 1000) == (result.columns, len(result.rows), result.row_count)


def test_waiting_for_a_lock_is_bounded(file: Path) -> None:
    """Who cannot write says so, and may try again."""
    holder, waiter = opened(file), opened(file, BoxTerms(timeout_s=30.0, lock_timeout_s=0.05))
    holder.begin()
    with pytest.raises(BoxRefusal) as caught:
        waiter.begin()
    assert ("SQLITE_BUSY", True) == (caught.value.name, caught.value.is_passing)
    holder.close()
    waiter.begin()
    waiter.close()


def test_a_file_is_never_made(tmp_path: Path) -> None:
    """What is not there is refused."""
    with pytest.raises(BoxRefusal, match="SQLITE_CANTOPEN"):
        opened(tmp_path / "missing.db")
    assert [] == list(tmp_path.iterdir())


def test_parameters_are_numbered(box: SqliteBox) -> None:
    """As on PostgreSQL; one too many or too few is refused."""
    assert [(1, "b", 1)] == box.perform("SELECT $1, $2, $1", [1, "b"]).rows
    for parameters in ([], [1], [1, 2, 3], [1, object()], [1, 2**70], [1, "\ud800"]):
        with pytest.raises(BoxRefusal, match=MISFIT):
            box.perform("SELECT $1, $2", parameters)


def test_plain_work_is_done(file: Path) -> None:
    """Reading, changing, defining, and the rows that a change returns."""
    box = opened(file)
    box.begin()
    box.perform("CREATE TABLE item (n INTEGER PRIMARY KEY, name TEXT)")
    box.perform("CREATE INDEX item_name ON item (name)")
    assert 2 == box.perform("INSERT INTO item (name) VALUES ('a'), ('b')").changed
    changed = box.perform("UPDATE item SET name = upper(name) RETURNING n, name")
    assert [(1, "A"), (2, "B")] == changed.rows
    with box.committing():
        pass
    box.close()
    assert [(2,)] == rows_of(file, "SELECT count(*) FROM item")


BOMBS = """
import sys
from pathlib import Path
from gnomon.clock import SystemClock
from gnomon.sqlite_box import BoxRefusal, BoxTerms, SqliteBox

large = "hex(zeroblob(500000))"
bombs = [
    "SELECT " + ",".join([large] * 1900),
    "SELECT " + ",".join(["x || 1"] * 1900) + f" FROM (SELECT {large} AS x)",
    "SELECT max(" + ",".join(["x || 2"] * 99) + f") FROM (SELECT {large} AS x)",
    "SELECT " + ",".join(f"group_concat(x || {n})" for n in range(90))
    + f" FROM (SELECT {large} AS x)",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION SELECT x || randomblob(100) FROM r)"
    " SELECT count(*) FROM r",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 2000000)"
    " SELECT n FROM r ORDER BY n || 'x' DESC LIMIT 1",
]
names = []
for bomb in bombs:
    terms = BoxTerms(timeout_s=2.0, heap_bytes_max=64 * 1024 * 1024)
    box = SqliteBox(Path(sys.argv[1]), terms, clock=SystemClock())
    box.open()
    try:
        box.perform(bomb)
        names.append("fine")
    except BoxRefusal as refusal:
        names.append(refusal.name)
    box.close()
status = Path("/proc/self/status").read_text()
most = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
print(*names, int(most) // 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory is read there")
def test_memory_is_bounded(file: Path) -> None:
    """Whatever is piled up in one statement: refused, with the process far below 256 MiB."""
    done = subprocess.run(
        [sys.executable, "-c", BOMBS, str(file)], capture_output=True, text=True, check=True
    )
    *names, most = done.stdout.split()
    assert ["SQLITE_ERROR", "SQLITE_NOMEM", "SQLITE_NOMEM", "SQLITE_NOMEM"] == names[:4]
    assert int(most) < 200, done.stdout
