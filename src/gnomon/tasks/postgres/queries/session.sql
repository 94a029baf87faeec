-- name: begin
BEGIN

-- name: commit
COMMIT

-- name: commit_and_begin
COMMIT AND CHAIN

-- name: rollback
ROLLBACK

-- name: discard
DISCARD ALL

-- name: reset
RESET ALL

-- name: reset_role
-- RESET ALL leaves the role alone.
RESET ROLE

-- name: reset_login
-- Before all else, where an input has become another: what it set is then not its own.
RESET SESSION AUTHORIZATION

-- name: own_role
-- For a session that keeps what its task has set.
SET LOCAL ROLE NONE

-- name: own_path
SET LOCAL search_path = pg_catalog

-- name: constraints
-- Deferred constraints are checked while the settings are still the task's.
SET CONSTRAINTS ALL IMMEDIATE

-- name: discard_plans
-- A plan that was made for a small table is a bad one when it has grown.
DISCARD PLANS

-- name: discard_sequences
-- What a task drew from a sequence, or our own repeat did, is not for `lastval()` of the next.
DISCARD SEQUENCES

-- name: tidy
-- Locks of the session go; whether it has anything that only DISCARD ALL removes.
SELECT pg_advisory_unlock_all() AS unlocked, /*include dirty*/true AS is_dirty

-- name: dirty fragment
(
    pg_my_temp_schema() <> 0
    OR EXISTS (SELECT FROM pg_listening_channels())
    OR EXISTS (SELECT FROM pg_prepared_statements AS p WHERE NOT p.name LIKE 'gnomon %')
    OR EXISTS (SELECT FROM pg_cursors AS c WHERE c.is_holdable)
)

-- name: unlisten
-- Where nothing listens this costs next to nothing; what was asked for in this transaction goes, too.
UNLISTEN *

-- name: look_behind
-- Notes what a task has left behind, for `go_ahead`, while the one who waits for its result reads it.
-- Session locks are not looked for: they are held until the task is committed. A login that it took is
-- given up with this, and its role is none of that login's.
SELECT num_nonnulls(
    set_config('session_authorization', $1::text, false),
    CASE WHEN /*include dirty*/true THEN set_config('gnomon.left', 'something', false) END
)

-- name: go_ahead
-- Before an input that is already on its way: it is not performed unless the session has its task, with
-- this very input, and has nothing left of the task before.
SELECT num_nonnulls(
    pg_advisory_unlock_all()::text,
    CASE
        WHEN current_setting('pg_task.id', true) IS DISTINCT FROM $1::text
            OR current_setting('gnomon.left', true) <> ''
        THEN ('do not go ahead from ' || coalesce(current_setting('pg_task.id', true), ''))::integer
    END
)

-- name: settings
-- What role and database set for every session that begins.
SELECT n.entry FROM pg_db_role_setting AS s, unnest(s.setconfig) AS n (entry)
WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
    AND s.setrole IN (0, (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = session_user))

-- name: set_id
SELECT set_config('pg_task.id', $1::text, false), set_config('pg_task.group', $2::text, false),
    set_config('application_name', $3::text, false)
