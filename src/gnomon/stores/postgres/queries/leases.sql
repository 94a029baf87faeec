-- Who owns which shard. See actions.sql about `one-shard:`.

-- name: list_locks global
-- All locks, the longest untouched shard first. $1 silent; NULL: whatever their owners do
SELECT l.shard_id, l.lease_guid, l.owner, l.beat, statement_timestamp() - l.heartbeat_at AS silent_for,
       l.last_processing_start_at
FROM /*schema*/shard_lock AS l
WHERE $1::interval IS NULL OR l.lease_guid IS NULL OR l.heartbeat_at < statement_timestamp() - $1::interval
ORDER BY l.last_processing_start_at NULLS FIRST, l.shard_id;

-- name: acquire shard-local
-- Compare-and-set on locks as seen. `beat` only grows, so a lock never looks again as it did. Who is
-- just changing one has it: nobody waits for him, in whatever order others take theirs.
-- $1 shards, $2 new lease guids, $3 lease guids seen, $4 beats seen, $5 owner, $6 lease_for
WITH free AS (
    SELECT l.shard_id, u.lease_guid
    FROM unnest($1::int[], $2::uuid[], $3::uuid[], $4::bigint[])
        AS u (shard_id, lease_guid, seen_guid, seen_beat)
    JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id /*one-shard: AND l.shard_id = $7*/
    WHERE l.lease_guid = u.lease_guid
        OR (
            l.lease_guid IS NOT DISTINCT FROM u.seen_guid AND l.beat = u.seen_beat
            AND (l.lease_guid IS NULL OR l.heartbeat_at < statement_timestamp() - $6::interval)
        )
    FOR UPDATE OF l SKIP LOCKED
)
UPDATE /*schema*/shard_lock AS l
SET lease_guid = f.lease_guid, owner = $5::text, beat = l.beat + 1,
    heartbeat_at = statement_timestamp(), last_processing_start_at = statement_timestamp()
FROM free AS f
WHERE l.shard_id = f.shard_id /*one-shard: AND l.shard_id = $7*/
RETURNING l.shard_id, l.lease_guid, l.incoming_mark;

-- name: heartbeat shard-local
-- Prolong what is still held, and save how far the incoming queue has been read.
-- $1 shards, $2 lease guids, $3 incoming marks
UPDATE /*schema*/shard_lock AS l
SET beat = l.beat + 1, heartbeat_at = statement_timestamp(),
    incoming_mark = greatest(l.incoming_mark, u.mark)
FROM unnest($1::int[], $2::uuid[], $3::timestamptz[]) AS u (shard_id, lease_guid, mark)
WHERE l.shard_id = u.shard_id AND l.lease_guid = u.lease_guid /*one-shard: AND l.shard_id = $4*/
RETURNING l.shard_id;

-- name: heartbeat_whole many-shards
-- The same, the worker's own row, and what is known of all workers, in one statement.
-- $1 shards, $2 lease guids, $3 incoming marks, $4 worker, $5 owner, $6 its process,
-- $7 what it serves, $8 alive_for, $9 silent
WITH prolonged AS (
    UPDATE /*schema*/shard_lock AS l
    SET beat = l.beat + 1, heartbeat_at = statement_timestamp(),
        incoming_mark = greatest(l.incoming_mark, u.mark)
    FROM unnest($1::int[], $2::uuid[], $3::timestamptz[]) AS u (shard_id, lease_guid, mark)
    WHERE l.shard_id = u.shard_id AND l.lease_guid = u.lease_guid
    RETURNING l.shard_id
), held AS (
    SELECT coalesce(array_agg(p.shard_id), '{}') AS shards, count(*)::int AS count
    FROM prolonged AS p
), told AS (
    INSERT INTO /*schema*/worker (
        worker_id, owner, started_at, heartbeat_at, shards, process, offer
    )
    SELECT $4::uuid, $5::text, statement_timestamp(), statement_timestamp(), h.count, $6::text,
           $7::text
    FROM held AS h
    ON CONFLICT (worker_id) DO UPDATE
    SET heartbeat_at = excluded.heartbeat_at, owner = excluded.owner, shards = excluded.shards,
        process = excluded.process, offer = excluded.offer
), others AS (
    SELECT count(*) AS workers, coalesce(sum(w.shards), 0)::int AS shards,
           coalesce(sum(w.shards) FILTER (
               WHERE $9::interval IS NULL
                   OR w.heartbeat_at >= statement_timestamp() - $9::interval
           ), 0)::int AS shards_fresh
    FROM /*schema*/worker AS w
    WHERE w.heartbeat_at > statement_timestamp() - $8::interval AND w.worker_id <> $4::uuid
)
SELECT h.shards AS held, statement_timestamp() AS now, o.workers + 1 AS workers,
       o.shards + h.count AS shards, o.shards_fresh + h.count AS shards_fresh,
       (SELECT i.limits_version FROM /*schema*/installation AS i) AS limits_version
FROM held AS h CROSS JOIN others AS o;

-- name: release shard-local
-- $1 shards, $2 lease guids, $3 incoming marks
UPDATE /*schema*/shard_lock AS l
SET lease_guid = NULL, owner = NULL, heartbeat_at = NULL, beat = l.beat + 1,
    incoming_mark = greatest(l.incoming_mark, u.mark)
FROM unnest($1::int[], $2::uuid[], $3::timestamptz[]) AS u (shard_id, lease_guid, mark)
WHERE l.shard_id = u.shard_id AND l.lease_guid = u.lease_guid /*one-shard: AND l.shard_id = $4*/;

-- name: heartbeat_worker global
-- $1 worker, $2 owner, $3 its process, $4 what it serves, $5 the present, $6 how many shards it holds
INSERT INTO /*schema*/worker (worker_id, owner, process, offer, started_at, heartbeat_at, shards)
VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::timestamptz, $5::timestamptz, $6::int)
ON CONFLICT (worker_id) DO UPDATE
SET heartbeat_at = excluded.heartbeat_at, owner = excluded.owner, shards = excluded.shards,
    process = excluded.process, offer = excluded.offer;

-- name: heartbeat_alive global
-- $1 alive_for, $2 silent
SELECT count(*) AS workers, coalesce(sum(w.shards), 0)::int AS shards,
       coalesce(sum(w.shards) FILTER (
           WHERE $2::interval IS NULL OR w.heartbeat_at >= statement_timestamp() - $2::interval
       ), 0)::int AS shards_fresh,
       (SELECT i.limits_version FROM /*schema*/installation AS i) AS limits_version
FROM /*schema*/worker AS w
WHERE w.heartbeat_at > statement_timestamp() - $1::interval;

-- name: list_workers global
SELECT w.worker_id, w.owner, w.process, statement_timestamp() - w.heartbeat_at AS silent_for,
       w.offer
FROM /*schema*/worker AS w
ORDER BY w.worker_id;

-- name: remove_worker global
-- $1 worker
DELETE FROM /*schema*/worker AS w WHERE w.worker_id = $1::uuid;

-- name: end_frozen_sessions global
-- $1 after. Between the preparation of a statement and its performance the driver waits for an answer.
-- A session that waits for its client there counts as active, so that idle_in_transaction_session_timeout
-- passes it by, and it reads, so that statement_timeout does. Sessions of roles that we may not act for
-- are left to whoever may.
WITH frozen AS MATERIALIZED (
    SELECT a.pid
    FROM pg_stat_activity AS a
    WHERE a.datname = current_database()
      AND a.application_name = 'gnomon'
      AND a.state = 'active' AND a.wait_event = 'ClientRead'
      AND a.query_start <= statement_timestamp() - $1::interval
      AND pg_has_role(a.usesysid, 'USAGE')
)
SELECT count(*) FILTER (WHERE pg_terminate_backend(f.pid))::int AS ended
FROM frozen AS f;
