"""Where the statements of an input end, and what each is called when it is done."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.tasks.sqlite.statements import split

TRIGGER = "CREATE TEMP TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; UPDATE a SET b = 2; END"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ; ;; -- nothing\n /* at all; */", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';' ; SELECT \"a;b\", [c;d], `e;f`", ["SELECT ';'", 'SELECT "a;b", [c;d], `e;f`']),
        ("SELECT 'it''s; ok'; SELECT 2", ["SELECT 'it''s; ok'", "SELECT 2"]),
        ("SELECT 1 -- ; no end\n; SELECT /* ; */ 2", ["SELECT 1 -- ; no end", "SELECT /* ; */ 2"]),
        (f"{TRIGGER}; SELECT 3", [TRIGGER, "SELECT 3"]),
        ("SELECT 'open; SELECT 2", ["SELECT 'open; SELECT 2"]),
    ],
)
def test_an_input_is_cut_where_its_statements_end(text: str, expected: list[str]) -> None:
    """Quotes, comments and the bodies of triggers hide semicolons."""
    assert expected == [statement.text for statement in split(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("insert into a values (1)", "INSERT 0 2"),
        ("REPLACE INTO a VALUES (1)", "INSERT 0 2"),
        ("UPDATE a SET b = 1", "UPDATE 2"),
        ("/* why */ DELETE FROM a", "DELETE 2"),
        ("WITH c AS (SELECT 1) INSERT INTO a SELECT * FROM c", "INSERT 0 2"),
        ("WITH RECURSIVE c(n) AS (SELECT 1) DELETE FROM a", "DELETE 2"),
        ("CREATE TABLE IF NOT EXISTS a (b)", "CREATE TABLE"),
        ("create unique index a on b (c)", "CREATE INDEX"),
        ("CREATE TEMPORARY VIEW a AS SELECT 1", "CREATE VIEW"),
        (TRIGGER, "CREATE TRIGGER"),
        ("DROP TABLE a", "DROP TABLE"),
        ("ALTER TABLE a ADD COLUMN b", "ALTER TABLE"),
        ("BEGIN IMMEDIATE", "BEGIN"),
        ("END", "COMMIT"),
        ("SAVEPOINT a", "SAVEPOINT"),
        ("REINDEX", "REINDEX"),
    ],
)
def test_tags_are_postgresqls(text: str, expected: str) -> None:
    """SQLite has none of its own."""
    [statement] = split(text)
    assert expected == statement.tag(2)


def test_a_rollback_to_a_savepoint_is_told_from_a_rollback() -> None:
    """Only the whole one ends the transaction."""
    assert ["", "TO", "TO"] == [
        statement.object
        for statement in split("ROLLBACK; ROLLBACK TO a; ROLLBACK TRANSACTION TO SAVEPOINT a")
    ]


@given(st.text(alphabet="SELECT 1;'\"`[]-/*\n()aBEGINTRIGGERCREATEND", max_size=60))
def test_sqlite_agrees_where_statements_end(text: str) -> None:
    """What SQLite calls complete is cut there, and nothing else is."""
    pieces = [statement.text for statement in split(text)]
    for piece in pieces[:-1]:
        assert sqlite3.complete_statement(piece + ";")


def test_a_long_open_trigger_is_read_in_one_pass() -> None:
    """Every semicolon of it is looked at once: this would take minutes otherwise."""
    text = "CREATE TRIGGER t AFTER INSERT ON a BEGIN " + "SELECT 1; " * 50_000
    assert 1 == len(list(split(text)))
