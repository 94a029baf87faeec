-- The register of stages, and their backfills.

-- name: declare_known global
-- $1 names
SELECT s.name FROM /*schema*/stage AS s WHERE s.name = ANY ($1::text[]);

-- name: declare global
-- Stages are served; the row of each is locked by it. Gives what was known, or that it is new.
-- $1 names, $2 kinds, $3 revisions, $4 debounce, $5 what they watch, $6 what they write, $7 the present
INSERT INTO /*schema*/stage AS s
    (name, kind, revision, debounce, watch, writes, first_seen_at, last_seen_at)
SELECT u.name, u.kind, u.revision, u.debounce, u.watch, u.writes, $7::timestamptz, $7::timestamptz
FROM unnest($1::text[], $2::text[], $3::int[], $4::interval[], $5::text[], $6::text[])
    AS u (name, kind, revision, debounce, watch, writes)
ON CONFLICT (name) DO UPDATE
SET last_seen_at = excluded.last_seen_at, debounce = excluded.debounce,
    watch = CASE WHEN excluded.revision < s.revision THEN s.watch ELSE excluded.watch END,
    writes = CASE WHEN excluded.revision < s.revision THEN s.writes ELSE excluded.writes END
RETURNING s.name, s.kind, s.revision, s.xmax = 0 AS is_new;

-- name: declare_raise global
-- $1 name, $2 revision
UPDATE /*schema*/stage AS s SET revision = $2::int WHERE s.name = $1::text;

-- name: declare_rename_stage global
-- $1 old name, $2 new name
UPDATE /*schema*/stage AS s SET name = $2::text WHERE s.name = $1::text RETURNING s.revision;

-- name: declare_rename_queue shard-local
-- $1 shard, $2 old name, $3 new name
UPDATE /*schema*/stage_queue AS q SET stage = $3::text
WHERE q.shard_id = $1::int AND q.stage = $2::text;

-- name: declare_rename_states shard-local
-- $1 shard, $2 old name, $3 new name
UPDATE /*schema*/stage_state AS s SET stage = $3::text
WHERE s.shard_id = $1::int AND s.stage = $2::text;

-- name: declare_rename_outbox shard-local
-- $1 shard, $2 old name, $3 new name
UPDATE /*schema*/stage_outbox AS o SET sink = $3::text
WHERE o.shard_id = $1::int AND o.sink = $2::text;

-- name: declare_rename_backfill shard-local
-- $1 shard, $2 old name, $3 new name
UPDATE /*schema*/stage_backfill AS w SET stage = $3::text
WHERE w.shard_id = $1::int AND w.stage = $2::text;

-- name: forget_queue shard-local
-- $1 shard, $2 stage
DELETE FROM /*schema*/stage_queue AS q
WHERE q.shard_id = $1::int AND q.stage = $2::text
RETURNING q.shard_id;

-- name: forget_states shard-local
-- $1 shard, $2 stage
DELETE FROM /*schema*/stage_state AS s
WHERE s.shard_id = $1::int AND s.stage = $2::text
RETURNING s.shard_id;

-- name: forget_outbox shard-local
-- $1 shard, $2 stage
DELETE FROM /*schema*/stage_outbox AS o WHERE o.shard_id = $1::int AND o.sink = $2::text;

-- name: forget_backfill shard-local
-- $1 shard, $2 stage
DELETE FROM /*schema*/stage_backfill AS w WHERE w.shard_id = $1::int AND w.stage = $2::text;

-- name: forget_servers global
-- $1 name
DELETE FROM /*schema*/stage_server AS v WHERE v.stage = $1::text;

-- name: forget global
-- $1 name
DELETE FROM /*schema*/stage AS s WHERE s.name = $1::text;

-- name: registered global
SELECT s.name, s.kind, s.revision, s.first_seen_at, s.last_seen_at, s.debounce, s.watch, s.writes,
       statement_timestamp() AS now
FROM /*schema*/stage AS s
ORDER BY s.name;

-- name: attend_serve global
-- A worker serves these stages.
-- $1 worker, $2 stages
INSERT INTO /*schema*/stage_server AS v (worker_id, stage, seen_at)
SELECT $1::uuid, u.stage, statement_timestamp()
FROM unnest($2::text[]) AS u (stage)
ON CONFLICT (worker_id, stage) DO UPDATE SET seen_at = excluded.seen_at;

-- name: attend_drop_servers global
-- What the worker does not serve any more, and workers of which nothing was heard for long.
-- $1 worker, $2 stages, $3 for how long
DELETE FROM /*schema*/stage_server AS v
WHERE (v.worker_id = $1::uuid AND v.stage <> ALL ($2::text[]))
   OR v.seen_at < statement_timestamp() - $3::interval;

-- name: attend_owners global
-- $1 worker
SELECT o.shard_id, o.lease_guid FROM /*schema*/stage_owner AS o WHERE o.worker_id = $1::uuid;

-- name: attend_own global
-- The leases are those of a worker, as far as they are held.
-- $1 worker, $2 shards, $3 lease guids
INSERT INTO /*schema*/stage_owner AS o (shard_id, lease_guid, worker_id)
SELECT u.shard_id, u.lease_guid, $1::uuid
FROM unnest($2::int[], $3::uuid[]) AS u (shard_id, lease_guid)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id AND l.lease_guid = u.lease_guid
ORDER BY u.shard_id
ON CONFLICT (shard_id) DO UPDATE
SET lease_guid = excluded.lease_guid, worker_id = excluded.worker_id;

-- name: attend_servers global
-- The living servers of stages.
-- $1 alive for
SELECT v.stage, v.worker_id
FROM /*schema*/stage_server AS v
WHERE v.seen_at > statement_timestamp() - $1::interval;

-- name: attend_openings global
-- Shards whose owner does not serve some of these stages: first which owner lacks which, for owners
-- are few; then their shards, as far as the lease is the one that they have noted.
-- $1 stages
WITH lacking AS MATERIALIZED (
    SELECT w.worker_id, u.stage
    FROM (SELECT DISTINCT o.worker_id FROM /*schema*/stage_owner AS o) AS w
    CROSS JOIN unnest($1::text[]) AS u (stage)
    WHERE NOT EXISTS (
        SELECT 1 FROM /*schema*/stage_server AS v
        WHERE v.worker_id = w.worker_id AND v.stage = u.stage
    )
)
SELECT k.stage, l.shard_id, l.lease_guid
FROM lacking AS k
JOIN /*schema*/stage_owner AS o ON o.worker_id = k.worker_id
JOIN /*schema*/shard_lock AS l ON l.shard_id = o.shard_id AND l.lease_guid = o.lease_guid
ORDER BY k.stage, l.shard_id;

-- name: stages global
-- What is in the queues, and how many entities have undelivered saves.
SELECT q.stage, q.status, q.lane, count(*) AS count
FROM /*schema*/stage_queue AS q
GROUP BY q.stage, q.status, q.lane
UNION ALL
SELECT o.sink, 'undelivered', 0, count(DISTINCT o.entity_key)
FROM /*schema*/stage_outbox AS o
WHERE o.ready_at IS NULL
GROUP BY o.sink;

-- name: begin_backfill global
-- Backfill all shards from the beginning, unless a backfill began a short while ago. No two of a
-- stage begin at the same time.
-- $1 stage, $2 reason, $3 unless within (NULL: in any case)
INSERT INTO /*schema*/stage_backfill AS w (shard_id, stage, reason, cursor, started_at, ended)
SELECT l.shard_id, $1::text, $2::text, NULL, statement_timestamp(), false
FROM /*schema*/shard_lock AS l
WHERE true
ON CONFLICT (shard_id, stage) DO UPDATE
SET reason = excluded.reason, cursor = NULL, ended = false,
    started_at = greatest(
        excluded.started_at,
        (w.started_at AT TIME ZONE 'UTC' + interval '1 microsecond') AT TIME ZONE 'UTC'
    )
WHERE $3::interval IS NULL
   OR w.started_at AT TIME ZONE 'UTC' <= excluded.started_at AT TIME ZONE 'UTC' - $3::interval
RETURNING w.shard_id;

-- name: declare_free_rows global
-- The parked rows of a stage, for a new revision of it.
-- $1 stage, $2 reason, $3 seed of the new roots, $4 reasons kept
UPDATE /*schema*/stage_queue AS q
SET status = 'ready', lane = 1, ready_at = statement_timestamp(), first_at = statement_timestamp(),
    seq = q.seq + 1, attempts = 0, depth = 0,
    root = md5($3::uuid::text || q.entity_key || '/' || q.stage)::uuid,
    reasons = coalesce((array_remove(q.reasons, $2::text) || $2::text)[
        greatest(cardinality(array_remove(q.reasons, $2::text)) + 2 - $4::int, 1):], '{}')
WHERE q.stage = $1::text AND q.status IN ('quarantined', 'looping');

-- name: declare_undelivered global
-- The entities with undelivered saves of some stages, in the order of locking.
-- $1 stages
SELECT DISTINCT o.shard_id, o.entity_key
FROM /*schema*/stage_outbox AS o
WHERE o.ready_at IS NULL AND o.sink = ANY ($1::text[])
ORDER BY o.shard_id, o.entity_key;
