"""Which inputs share a transaction with their result."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.tasks.postgres import statement
from gnomon.tasks.postgres.statement import shares_transaction


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "select 1;",
        "  -- a comment\n/* and /* another */ one */ SELECT 1 ; ; ",
        "(SELECT 1) UNION SELECT 2",
        "INSERT INTO t VALUES (';')",
        "UPDATE t SET a = 'it''s; fine' WHERE b = \"odd;name\"",
        "DELETE FROM t",
        "MERGE INTO t USING v ON true WHEN MATCHED THEN DELETE",
        "WITH u AS (UPDATE t SET a = 1 RETURNING a) SELECT * FROM u",
        "VALUES (1)",
        "TABLE t",
        "SELECT $$;$$, $tag$ ; $$ ; $tag$",
        "SELECT E'\\';', U&'\\0041;'",
        "SELECT a$1 FROM t",  # a name
        "SELECT 'ä', \"ü\", 日本 FROM t",
        "SELECT '\\'",
    ],
)
def test_one_statement_on_rows_shares(text: str) -> None:
    assert shares_transaction(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "-- nothing",
        "SELECT 1; SELECT 2",
        "SELECT 1; -- two\n COMMIT",
        "CALL p()",
        "DO $$ BEGIN COMMIT; END $$",
        "CREATE TABLE t (a int)",
        "VACUUM",
        "BEGIN",
        "COPY t TO STDOUT",
        "EXPLAIN ANALYZE SELECT 1",
        "SET work_mem = '1MB'",
        "SELECT $1",  # the server says what is wrong with it
        "SELECT 'open",
        'SELECT "open',
        "SELECT $$open",
        "SELECT 1 /* open",
        "SELECT 1 /* a /* b */",
        "SELECT E'\\'; COMMIT; --'; COMMIT",
        "SELECT $a$ $b$; $a$; COMMIT",
        "selecting 1",
    ],
)
def test_all_else_is_sent_as_it_is(text: str) -> None:
    assert not shares_transaction(text)


def test_strings_with_a_backslash_are_doubtful_where_it_escapes() -> None:
    """`standard_conforming_strings = off`: the quote may be escaped, and the string go on."""
    assert shares_transaction("SELECT '\\'")
    assert not shares_transaction("SELECT '\\'; COMMIT --'", plain_strings=False)
    assert not shares_transaction("SELECT '\\'", plain_strings=False)
    assert shares_transaction("SELECT 'plain'", plain_strings=False)


@given(st.text(max_size=30))
def test_what_follows_a_statement_ends_the_sharing(text: str) -> None:
    """Whatever is between: a second statement behind a closed one is always seen."""
    quoted = text.replace("'", "''").replace("\x00", "")
    assert shares_transaction(f"SELECT '{quoted}'")
    assert not shares_transaction(f"SELECT '{quoted}'; COMMIT")


def test_a_long_input_takes_no_long_time() -> None:
    """The scanner does not go back and forth."""
    assert shares_transaction("SELECT '" + "x''" * 300_000 + "'")
    assert not shares_transaction("SELECT '" + "x''" * 300_000)
    assert not shares_transaction("SELECT " + "/*" * 100_000)


def test_a_very_long_input_is_a_case_of_doubt() -> None:
    """Its reading would keep everybody waiting; one long string is read at once."""
    assert not shares_transaction("SELECT " + "1," * 100_000 + "1")
    assert not shares_transaction("SELECT 1 " + "/*" * 20_000 + "*/" * 20_000)
    assert not shares_transaction("SELECT '" + "x" * statement.CHARS_MAX + "'")
    assert shares_transaction("SELECT '" + "1," * 100_000 + "'")
