"""sql_tasks.md 6.3 on a real server: what users do to rows, and what happens to backends."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from psycopg import conninfo, sql

from tests.integration.tasks.stand import HOLD, USER, Stand


async def test_empty_result_is_deleted_if_the_row_says_so(stand: Stand) -> None:
    """D1, D2."""
    gone = stand.insert("SELECT 1 WHERE false")
    kept = stand.insert("SELECT 1 WHERE false", delete=False)
    full = stand.insert("SELECT 1")
    rows = await stand.ended([gone, kept, full])
    assert [kept, full] == [row["id"] for row in rows]
    assert [(None, None), ("1", None)] == [(row["output"], row["error"]) for row in rows]


async def test_stopped_row_is_not_performed_until_it_is_planned(stand: Stand) -> None:
    """S1, S2."""
    stopped, done = stand.insert("SELECT 1", state="STOP"), stand.insert("SELECT 2", state="DONE")
    await stand.ended([stand.insert("SELECT 3")])
    assert [None, None] == [stand.row(task_id)["start"] for task_id in (stopped, done)]
    stand.execute("UPDATE task SET state = 'PLAN' WHERE id = ANY (%s)", [stopped, done])
    await stand.until(
        lambda: ["1", "2"] == [stand.row(task_id)["output"] for task_id in (stopped, done)],
        "planned rows",
    )


async def test_stuck_row_goes_back_after_reset(stand: Stand) -> None:
    """S1b."""
    stand.change(reset=timedelta(milliseconds=300))
    row = stand.row(stand.insert("SELECT 1", state="TAKE"))
    await stand.until(lambda: stand.state(row["id"]) == "DONE", "reset")


async def test_stop_while_it_runs_is_respected_and_its_effects_stay(stand: Stand) -> None:
    """S3: the state is the user's."""
    stand.execute(f"CREATE TABLE effect (n int); GRANT ALL ON effect TO {USER}")
    task_id = stand.insert("INSERT INTO effect SELECT 1 FROM pg_sleep(0.5)")
    await stand.working(task_id)
    stand.execute("UPDATE task SET state = 'STOP' WHERE id = %s", task_id)
    await stand.until(lambda: stand.execute("SELECT * FROM effect"), "effect")
    assert "STOP" == stand.state(task_id)


async def test_row_deleted_while_it_runs_stays_deleted(stand: Stand) -> None:
    """S5, S6."""
    stand.execute(f"CREATE TABLE effect (n int); GRANT ALL ON effect TO {USER}")
    task_id = stand.insert("INSERT INTO effect SELECT 1 FROM pg_sleep(0.5)")
    itself = stand.insert("DELETE FROM task WHERE id = current_setting('pg_task.id')::bigint",
                          group="b")  # fmt: skip
    await stand.working(task_id)
    stand.execute("DELETE FROM task WHERE id = %s", task_id)
    await stand.until(lambda: stand.execute("SELECT * FROM effect"), "effect")
    await stand.until(lambda: stand.state(itself) is None, "end of the other")
    assert [] == stand.rows()


async def test_task_that_a_task_inserts_is_its_child(stand: Stand) -> None:
    """S7: parent and group are inherited."""
    task_id = stand.insert("INSERT INTO task (input) VALUES ('SELECT 1')", group="family")
    await stand.until(lambda: len(stand.rows("family")) == 2, "child")
    child = stand.rows("family")[1]
    assert task_id == child["parent"]
    await stand.ended([task_id, child["id"]])


async def test_terminated_backend_is_noticed_at_once(stand: Stand) -> None:
    """K2: it runs again in no time, and the repeat follows."""
    task_id = stand.insert("SELECT pg_sleep(0.7)", repeat="1 hour")
    row = await stand.working(task_id)
    stand.execute("SELECT pg_terminate_backend(%s)", row["pid"])
    [again] = await stand.ended([task_id])
    assert "DONE" == again["state"]
    assert row["pid"] != again["pid"]
    assert 2 == len(stand.rows())


async def test_task_that_ends_its_own_backend_fails_in_the_end(stand: Stand) -> None:
    """With the server's words, after three times; others are not disturbed."""
    killer = stand.insert("SELECT pg_terminate_backend(pg_backend_pid())")
    other = stand.insert("SELECT 1", group="other")
    rows = await stand.ended([killer, other])
    assert ["FAIL", "DONE"] == [row["state"] for row in rows]
    assert "connection" in rows[0]["error"]
    assert rows[0]["error"].endswith("STATEMENT:  SELECT pg_terminate_backend(pg_backend_pid())")


async def test_cancelled_task_fails(stand: Stand) -> None:
    """K3."""
    task_id = stand.insert("SELECT pg_sleep(9)")
    row = await stand.sleeping(task_id)
    stand.execute("SELECT pg_cancel_backend(%s)", row["pid"])
    [row] = await stand.ended([task_id])
    assert ("FAIL", "") == (row["state"], row["output"])
    expected = "ERROR:  canceling statement due to user request\nSTATEMENT:  SELECT pg_sleep(9)"
    assert expected == row["error"]


async def test_owner_whose_connection_is_terminated_goes_on(stand: Stand) -> None:
    """K5: at once, and what runs is not disturbed."""
    task_id = stand.insert("SELECT pg_sleep(0.7)")
    before = await stand.working(task_id)
    stand.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name LIKE 'gnomon tasks%%' AND pid <> %s",
        stand.users[-1].info.backend_pid,
    )
    later = stand.insert("SELECT 1", group="later")
    rows = await stand.ended([task_id, later])
    assert ["DONE", "DONE"] == [row["state"] for row in rows]
    assert before["start"] == rows[0]["start"]


async def test_table_locked_for_a_while_loses_nothing(stand: Stand) -> None:
    """An ALTER TABLE or a long lock only delays."""
    ids = stand.insert_many(5, "SELECT 1", count=100)
    with stand.users[-1].transaction():
        stand.execute("LOCK TABLE task IN ACCESS EXCLUSIVE MODE")
        await asyncio.sleep(0.3)
    assert {"DONE"} == {row["state"] for row in await stand.ended(ids)}


# -- remote ---------------------------------------------------------------------------------------


async def test_remote_is_off_unless_it_is_allowed(stand: Stand) -> None:
    """The row says so; start and pid stay empty."""
    place = conninfo.make_conninfo(stand.dsn, dbname=stand.database)
    [row] = await stand.ended([stand.insert("SELECT 1", remote=place)])
    assert ("FAIL", "", None, None) == (row["state"], row["output"], row["start"], row["pid"])
    assert row["error"].startswith("ERROR:  ")


async def test_remote_and_local_of_a_name_are_two_groups(stand: Stand) -> None:
    """B16b, R2b."""
    place = conninfo.make_conninfo(stand.dsn, dbname=stand.database)
    port = conninfo.conninfo_to_dict(stand.dsn)["port"]
    stand.change(remote=(f"127.0.0.1:{port}",), superuser=True)  # this server asks no password
    await stand.until(lambda: stand.told_count("task_table_owned") == 2, "new owner")
    with stand.held():
        local = stand.insert(HOLD)
        await stand.working(local)
        remote = stand.insert_many(4, "SELECT pg_sleep(0.1)", remote=f"{place} password=x", max=1)
        await stand.ended(remote)
    rows = await stand.ended([local, *remote])
    assert [None] * 5 == [row["error"] for row in rows]
    assert all(rows[0]["start"] < row["start"] < rows[0]["stop"] for row in rows[1:])


async def test_remote_that_is_not_there_fails_the_task_and_its_repeat_comes(stand: Stand) -> None:
    """R1.2."""
    stand.change(remote=("127.0.0.1:1",))
    await stand.until(lambda: stand.told_count("task_table_owned") == 2, "new owner")
    place = "host=127.0.0.1 port=1 dbname=x user=x password=x"
    task_id = stand.insert("SELECT 1", remote=place, repeat="1 hour")
    [row] = await stand.ended([task_id])
    assert ("FAIL", "", None, None) == (row["state"], row["output"], row["start"], row["pid"])
    assert row["error"].startswith("ERROR:  PQconnectPoll failed\nDETAIL:  ")
    assert 2 == len(stand.rows())


# -- who performs ---------------------------------------------------------------------------------


async def test_anyone_who_may_insert_can(stand: Stand) -> None:
    """P1: no rights beyond the table's; the input runs as the configured user."""
    role = sql.Identifier(f"{stand.database}_guest")
    user = stand.users[-1]
    user.execute(sql.SQL("CREATE ROLE {}").format(role))
    try:
        user.execute(sql.SQL("GRANT INSERT ON task TO {}").format(role))
        user.execute(sql.SQL("GRANT USAGE ON SEQUENCE task_id_seq TO {}").format(role))
        user.execute(sql.SQL("SET ROLE {}").format(role))
        user.execute("INSERT INTO task (input) VALUES ('SELECT session_user')")
        user.execute("RESET ROLE")
        [row] = await stand.ended([row["id"] for row in stand.rows()])
        assert USER == row["output"]
    finally:
        user.execute("RESET ROLE")
        user.execute(sql.SQL("DROP OWNED BY {}").format(role))
        user.execute(sql.SQL("DROP ROLE {}").format(role))


async def test_large_input_can_be_inserted(stand: Stand) -> None:
    """P2."""
    text = "x" * 1_000_000
    [row] = await stand.ended([stand.insert(f"SELECT length('{text}')")])
    assert "1000000" == row["output"]


async def test_why_a_task_waits_can_be_asked(stand: Stand) -> None:
    """The view names what is in the way."""
    with stand.held():
        first = stand.insert(HOLD)
        behind = stand.insert("SELECT 1")
        later = stand.insert("SELECT 1", plan=sql.SQL("now() + interval '1 hour'"))
        stopped = stand.insert("SELECT 1", state="STOP")
        await stand.working(first)
        found = {row["id"]: row["why"] for row in stand.execute("SELECT * FROM task_waiting")}
    assert f"behind {first} in its group" == found[behind]
    assert "planned later" == found[later]
    assert "stopped" == found[stopped]
    assert first not in found


async def test_user_that_may_only_read_fails_tasks_and_says_why(stand: Stand) -> None:
    """Once each: no session is opened again and again for them."""
    stand.execute(
        f"ALTER ROLE {USER} IN DATABASE {stand.database} SET default_transaction_read_only = on"
    )
    rows = await stand.ended([stand.insert("SELECT 1"), stand.insert("SELECT 2", group="other")])
    words = "ERROR:  cannot execute UPDATE in a read-only transaction"
    assert [("FAIL", words)] * 2 == [(row["state"], row["error"]) for row in rows]
    assert (2, 0) == (stand.told_count("task_row_refused"), stand.told_count("task_session_lost"))


async def test_row_that_waits_may_be_let_in_beside_another(stand: Stand) -> None:
    """Its `max` is raised while the one before it goes on."""
    with stand.held():
        first, second = stand.insert(HOLD), stand.insert(HOLD)
        await stand.working(first)
        stand.execute("UPDATE task SET max = 1 WHERE id = %s", second)
        await stand.working(second)
    await stand.ended([first, second])
