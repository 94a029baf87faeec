"""The floor of SQL tasks: what their rows alone cost, and nothing that makes them safe.

One blocking connection, one round trip a task: one plain UPDATE that ends a row and begins the next
one, a commit that does not wait for the disk, and the next input. No fence, no lease, no repeat,
nothing tidied up between two inputs, no other connection, and nobody who may change anything.
"""

from __future__ import annotations

import time
from itertools import pairwise

import psycopg
from psycopg import pq

UPDATE = b"""
UPDATE task AS t
SET state = CASE WHEN t.id = $1::bigint THEN 'DONE'::state ELSE 'WORK' END,
    start = CASE WHEN t.id = $1::bigint THEN t.start ELSE statement_timestamp() END,
    stop = CASE WHEN t.id = $1::bigint THEN statement_timestamp() END,
    pid = $3::integer,
    output = CASE WHEN t.id = $1::bigint THEN $4::text ELSE t.output END
WHERE t.id IN ($1::bigint, $2::bigint)
"""
INPUT_AT = 2  # in the results of a round trip
GROUP = "floor"


def floor_loop(url: str, count: int) -> float:
    """Tasks a second."""
    with psycopg.connect(url, autocommit=True) as user:
        rows = user.execute(
            'INSERT INTO task (state, "group", input) '
            "SELECT 'STOP', %s, 'SELECT 1' FROM generate_series(1, %s) RETURNING id",
            [GROUP, count],
        ).fetchall()
        ids = [int(row[0]) for row in rows]
        # In the indexes of what waits, and never due: nobody else takes them.
        user.execute("UPDATE task SET state = 'PLAN', plan = 'infinity' WHERE id = ANY (%s)", [ids])
        rate = _rate(url, ids)
        user.execute("UPDATE task SET state = 'DONE' WHERE id = ANY (%s)", [ids])
        return rate


def _rate(url: str, ids: list[int]) -> float:
    connection = pq.PGconn.connect(url.encode())
    try:
        connection.enter_pipeline_mode()
        connection.send_prepare(b"update", UPDATE)
        connection.send_prepare(b"commit", b"COMMIT AND CHAIN")
        connection.send_query_params(b"SET synchronous_commit = off", None)
        connection.send_query_params(b"BEGIN", None)
        _answers(connection)
        pid, output = b"%d" % connection.backend_pid, b"1"
        began = time.perf_counter()
        for one, two in pairwise(ids):
            params = (b"%d" % one, b"%d" % two, pid, output)
            connection.send_query_prepared(b"update", params)
            connection.send_query_prepared(b"commit", None)
            connection.send_query_params(b"SELECT 1", None)
            output = _answers(connection)[INPUT_AT].get_value(0, 0) or b""
        return (len(ids) - 1) / (time.perf_counter() - began)
    finally:
        connection.finish()


def _answers(connection: pq.abc.PGconn) -> list[pq.abc.PGresult]:
    """The results of a round trip, in order."""
    connection.pipeline_sync()
    connection.flush()
    results = list[pq.abc.PGresult]()
    while True:
        result = connection.get_result()
        if result is None:
            continue  # the end of one statement's
        if result.status == pq.ExecStatus.PIPELINE_SYNC:
            return results
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            raise RuntimeError((result.error_message or b"").decode())
        results.append(result)
