"""Our reader of intervals against the one that it stands in for."""

from __future__ import annotations

import psycopg

from gnomon.model.task.interval import read_interval
from tests.fixtures.postgres import ExternalPostgres, PostgresServer
from tests.unit.tasks.test_interval import READ

PARTS = """
SELECT (extract(year FROM i) * 12 + extract(month FROM i))::int AS months,
    extract(day FROM i)::int AS days,
    round(extract(hour FROM i) * 3600000000 + extract(minute FROM i) * 60000000
        + extract(microsecond FROM i))::bigint AS micros
FROM (SELECT %s::interval AS i) AS given
"""


def test_postgresql_reads_the_same_intervals(postgres: PostgresServer | ExternalPostgres) -> None:
    """Month by month, day by day, microsecond by microsecond."""
    texts = [text for text in READ if isinstance(text, str)]
    differing = {}
    with psycopg.connect(postgres.dsn) as connection:
        for text in texts:
            theirs = connection.execute(PARTS, [text]).fetchone()
            found = read_interval(text)
            if theirs != (found.months, found.days, found.micros):
                differing[text] = (theirs, found)
    assert {} == differing
