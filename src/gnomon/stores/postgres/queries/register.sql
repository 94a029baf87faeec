-- The register of stages, and their walks over all entities.

-- name: stages_known global
-- $1 names
SELECT s.name FROM /*schema*/stage AS s WHERE s.name = ANY ($1::text[]);

-- name: stages_declare global
-- Stages are served; the row of each is locked by it. Gives what was known, or that it is new.
-- $1 names, $2 revisions, $3 settle, $4 whether they write what they watch, $5 the present
INSERT INTO /*schema*/stage AS s (name, revision, settle, own_echo, first_seen_at, last_seen_at)
SELECT u.name, u.revision, u.settle, u.own_echo, $5::timestamptz, $5::timestamptz
FROM unnest($1::text[], $2::int[], $3::interval[], $4::boolean[])
    AS u (name, revision, settle, own_echo)
ON CONFLICT (name) DO UPDATE
SET last_seen_at = excluded.last_seen_at, settle = excluded.settle, own_echo = excluded.own_echo
RETURNING s.name, s.revision, s.xmax = 0;

-- name: stage_raise global
-- $1 name, $2 revision
UPDATE /*schema*/stage AS s SET revision = $2::int WHERE s.name = $1::text;

-- name: stage_rename global
-- $1 old name, $2 new name
UPDATE /*schema*/stage AS s SET name = $2::text WHERE s.name = $1::text RETURNING s.revision;

-- name: queue_rename shard-local
-- $1 shard, $2 old name, $3 new name
UPDATE /*schema*/stage_queue AS q SET stage = $3::text
WHERE q.shard_id = $1::int AND q.stage = $2::text;

-- name: states_rename shard-local
-- $1 shard, $2 old name, $3 new name
UPDATE /*schema*/stage_state AS s SET stage = $3::text
WHERE s.shard_id = $1::int AND s.stage = $2::text;

-- name: outbox_rename shard-local
-- $1 shard, $2 old name, $3 new name
UPDATE /*schema*/stage_outbox AS o SET sink = $3::text
WHERE o.shard_id = $1::int AND o.sink = $2::text;

-- name: sweep_rename shard-local
-- $1 shard, $2 old name, $3 new name
UPDATE /*schema*/stage_sweep AS w SET stage = $3::text
WHERE w.shard_id = $1::int AND w.stage = $2::text;

-- name: queue_forget shard-local
-- $1 shard, $2 stage
DELETE FROM /*schema*/stage_queue AS q
WHERE q.shard_id = $1::int AND q.stage = $2::text
RETURNING q.shard_id;

-- name: states_forget shard-local
-- $1 shard, $2 stage
DELETE FROM /*schema*/stage_state AS s
WHERE s.shard_id = $1::int AND s.stage = $2::text
RETURNING s.shard_id;

-- name: outbox_forget shard-local
-- $1 shard, $2 stage
DELETE FROM /*schema*/stage_outbox AS o WHERE o.shard_id = $1::int AND o.sink = $2::text;

-- name: sweep_forget shard-local
-- $1 shard, $2 stage
DELETE FROM /*schema*/stage_sweep AS w WHERE w.shard_id = $1::int AND w.stage = $2::text;

-- name: stage_forget global
-- $1 name
DELETE FROM /*schema*/stage AS s WHERE s.name = $1::text;

-- name: stages_list global
SELECT s.name, s.revision, s.first_seen_at, s.last_seen_at, s.settle, s.own_echo
FROM /*schema*/stage AS s
ORDER BY s.name;

-- name: stages_count global
-- What is in the queues, and how many entities have undelivered saves.
SELECT q.stage, q.status, q.lane, count(*)
FROM /*schema*/stage_queue AS q
GROUP BY q.stage, q.status, q.lane
UNION ALL
SELECT o.sink, 'undelivered', 0, count(DISTINCT o.entity_id)
FROM /*schema*/stage_outbox AS o
WHERE o.ready_at IS NULL
GROUP BY o.sink;

-- name: sweep_begin global
-- Walk over all shards from the beginning, unless a walk began a short while ago. No two walks of a
-- stage begin at the same time.
-- $1 stage, $2 reason, $3 unless within (NULL: in any case)
INSERT INTO /*schema*/stage_sweep AS w (shard_id, stage, reason, cursor, started_at, ended)
SELECT l.shard_id, $1::text, $2::text, NULL, statement_timestamp(), false
FROM /*schema*/shard_lock AS l
WHERE true
ON CONFLICT (shard_id, stage) DO UPDATE
SET reason = excluded.reason, cursor = NULL, ended = false,
    started_at = greatest(excluded.started_at, w.started_at + interval '1 microsecond')
WHERE $3::interval IS NULL OR w.started_at <= excluded.started_at - $3::interval
RETURNING w.shard_id;

-- name: stage_free global
-- The parked rows of a stage, for a new revision of it.
-- $1 stage, $2 reason, $3 seed of the new roots
UPDATE /*schema*/stage_queue AS q
SET status = 'ready', lane = 1, ready_at = statement_timestamp(), first_at = statement_timestamp(),
    seq = q.seq + 1, attempts = 0, depth = 0,
    root = md5($3::uuid::text || q.entity_id || '/' || q.stage)::uuid,
    reasons = (array_remove(q.reasons, $2::text) || $2::text)[
        greatest(cardinality(array_remove(q.reasons, $2::text)) - 6, 1):]
WHERE q.stage = $1::text AND q.status IN ('quarantined', 'looping');
