-- Programs and the actions they declare.

-- name: declare_set global
-- The row of a program, locked; made if it is missing.
-- $1 program
INSERT INTO /*schema*/program AS p (name, set_no, fingerprint, known, seen_at)
VALUES ($1::text, 0, '', '', statement_timestamp())
ON CONFLICT (name) DO UPDATE SET name = excluded.name
RETURNING p.set_no, p.fingerprint, p.known, p.seen_at;

-- name: declare_set_known global
-- $1 program
SELECT p.set_no, p.fingerprint, p.known, p.seen_at
FROM /*schema*/program AS p
WHERE p.name = $1::text;

-- name: declare_set_put global
-- $1 program, $2 set_no, $3 fingerprint, $4 known, $5 seen_at
UPDATE /*schema*/program AS p
SET set_no = $2::bigint, fingerprint = $3::text, known = $4::text, seen_at = $5::timestamptz
WHERE p.name = $1::text;

-- name: list_declared shard-local
-- $1 program
SELECT d.id, d.program, d.set_no, d.fingerprint, d.is_removed, d.paused_as
FROM /*schema*/declared_action AS d
WHERE d.program = $1::text /*one-shard: AND d.shard_id = $2*/
ORDER BY d.id;

-- name: note_lock shard-local
-- One process at a time for each action, also if nothing is known of it yet: then the row is made, and
-- its empty fingerprint says so.
-- $1 shard, $2 id, $3 program
INSERT INTO /*schema*/declared_action AS d
    (shard_id, id, program, set_no, fingerprint, is_removed)
VALUES ($1::int, $2::text, $3::text, 0, '', false)
ON CONFLICT (shard_id, id) DO UPDATE SET id = excluded.id
RETURNING d.id, d.program, d.set_no, d.fingerprint, d.is_removed, d.paused_as;

-- name: note_put shard-local
-- $1 shard, $2 id, $3 program, $4 set_no, $5 fingerprint, $6 is_removed, $7 paused_as
UPDATE /*schema*/declared_action AS d
SET program = $3::text, set_no = $4::bigint, fingerprint = $5::text, is_removed = $6::boolean,
    paused_as = $7::uuid
WHERE d.shard_id = $1::int AND d.id = $2::text;

-- name: note_drop shard-local
-- $1 shard, $2 id
DELETE FROM /*schema*/declared_action AS d WHERE d.shard_id = $1::int AND d.id = $2::text;

-- name: declare_action_revise shard-local
-- A new generation whose counters go on.
-- $1 shard, $2 id, $3 guid, $4 spec, $5 queue, $6 priority, $7 timeout in µs, $8 retention in µs,
-- $9 scheduled_at, $10 occurrence_at, $11 expires_at, $12 state, $13 occurrence_no,
-- $14 occurrence_failures; without a time it is not due. What stays paused keeps its terms.
UPDATE /*schema*/scheduled_action AS a
SET guid = $3::uuid, spec = $4::text, queue = $5::text, priority = $6::smallint,
    timeout_us = $7::bigint, retention_us = $8::bigint, scheduled_at = $9::timestamptz,
    occurrence_at = $10::timestamptz, expires_at = $11::timestamptz, state = $12::text,
    occurrence_no = $13::bigint, occurrence_failures = $14::int, keyed = false,
    updated_at = statement_timestamp(), series = coalesce(a.series, a.guid),
    reason = CASE WHEN $12::text = 'paused' THEN a.reason END,
    paused_until = CASE WHEN $12::text = 'paused' THEN a.paused_until END
WHERE a.shard_id = $1::int AND a.id = $2::text
RETURNING a.updated_at;

-- name: serve_functions global
-- Many workers of a release say the same: there is one row for all of them.
-- $1 program, $2 fingerprint, $3 functions
INSERT INTO /*schema*/function_set (program, fingerprint, functions, began_at, seen_at)
VALUES ($1::text, $2::text, $3::text, statement_timestamp(), statement_timestamp())
ON CONFLICT (program, fingerprint) DO UPDATE SET seen_at = excluded.seen_at;

-- name: serve_functions_forget global
-- $1 kept for
DELETE FROM /*schema*/function_set AS f WHERE f.seen_at < statement_timestamp() - $1::interval;

-- name: list_functions global
-- $1 alive for, $2 limit
SELECT f.program, f.functions, f.began_at
FROM /*schema*/function_set AS f
WHERE f.seen_at > statement_timestamp() - $1::interval
ORDER BY f.seen_at DESC, f.program, f.fingerprint
LIMIT $2::int;
