-- The register of stages: which there are, who serves them, and where a backfill begins.

-- name: declare_parked
SELECT json_group_array(json_array(
    entity_key, stage, shard_id, lane, status, ready_at, timer_at, first_at, seq, attempts, reasons,
    hex(root), depth, error, note
))
FROM stage_queue INDEXED BY stage_queue_parked_idx
WHERE status IN ('quarantined', 'looping') AND stage = :stage;

-- name: declare_known
SELECT revision, kind FROM stage WHERE name = :stage;

-- name: declare
INSERT INTO stage (name, kind, revision, first_seen_at, last_seen_at, debounce, watch, writes)
VALUES (:stage, :kind, :revision, :now, :now, :debounce, :watch, :writes)
ON CONFLICT (name) DO UPDATE SET
    revision = max(stage.revision, :revision), last_seen_at = :now, debounce = :debounce,
    watch = iif(:revision < stage.revision, stage.watch, :watch),
    writes = iif(:revision < stage.revision, stage.writes, :writes);

-- name: registered
SELECT
    s.name, s.kind, s.revision, s.first_seen_at, s.last_seen_at, s.debounce, s.watch, s.writes,
    0, 0, 0, 0
FROM stage AS s
ORDER BY s.name;

-- name: attend_serve
INSERT INTO stage_server (worker_id, stage, seen_at) VALUES (:worker, :stage, :now)
ON CONFLICT (worker_id, stage) DO UPDATE SET seen_at = :now;

-- name: attend_drop_servers
-- What the worker does not serve any more, and workers of which nothing was heard for long.
DELETE FROM stage_server
WHERE (worker_id = :worker AND stage NOT IN (SELECT s.value FROM json_each(:stages) AS s))
    OR seen_at < :long_ago;

-- name: attend_own
INSERT INTO stage_owner (shard_id, lease_guid, worker_id) VALUES (:shard, :lease_guid, :worker)
ON CONFLICT (shard_id) DO UPDATE SET lease_guid = :lease_guid, worker_id = :worker
WHERE lease_guid <> :lease_guid;

-- name: attend_servers
SELECT stage, worker_id FROM stage_server WHERE seen_at > :since;

-- name: attend_openings
SELECT s.value, l.shard_id, l.lease_guid
FROM json_each(:stages) AS s
CROSS JOIN stage_owner AS o
CROSS JOIN shard_lock AS l
WHERE l.shard_id = o.shard_id AND l.lease_guid = o.lease_guid
    AND NOT EXISTS (
        SELECT 1 FROM stage_server AS v WHERE v.worker_id = o.worker_id AND v.stage = s.value
    )
ORDER BY s.value, l.shard_id;

-- name: forget_servers
DELETE FROM stage_server WHERE stage = :stage;

-- name: declare_rename_stage
UPDATE stage SET name = :stage WHERE name = :old;

-- name: declare_rename_queue
UPDATE OR REPLACE stage_queue SET stage = :stage WHERE stage = :old;

-- name: declare_rename_states
UPDATE OR REPLACE stage_state SET stage = :stage WHERE stage = :old;

-- name: declare_rename_backfill
UPDATE OR REPLACE stage_backfill SET stage = :stage WHERE stage = :old;

-- name: declare_rename_outbox
UPDATE OR REPLACE stage_outbox SET sink = :stage WHERE sink = :old;

-- name: stages
SELECT
    s.name, s.kind, s.revision, s.first_seen_at, s.last_seen_at, s.debounce, s.watch, s.writes,
    coalesce(q.waiting, 0), coalesce(q.background, 0),
    coalesce(q.parked, 0) + coalesce(o.undelivered, 0), coalesce(q.sleeping, 0)
FROM stage AS s
LEFT JOIN (
    SELECT
        stage,
        count(*) FILTER (WHERE status = 'ready' AND lane = 0) AS waiting,
        count(*) FILTER (WHERE status = 'ready' AND lane = 1) AS background,
        count(*) FILTER (WHERE status IN ('quarantined', 'looping')) AS parked,
        count(*) FILTER (WHERE status = 'sleeping') AS sleeping
    FROM stage_queue
    GROUP BY stage
) AS q ON q.stage = s.name
LEFT JOIN (
    SELECT sink, count(DISTINCT entity_key) AS undelivered
    FROM stage_outbox INDEXED BY stage_outbox_parked_idx
    WHERE ready_at IS NULL
    GROUP BY sink
) AS o ON o.sink = s.name
ORDER BY s.name;

-- name: forget
DELETE FROM stage WHERE name = :stage;

-- name: forget_queue
DELETE FROM stage_queue WHERE stage = :stage;

-- name: forget_states
DELETE FROM stage_state WHERE stage = :stage;

-- name: forget_backfill
DELETE FROM stage_backfill WHERE stage = :stage;

-- name: forget_outbox
DELETE FROM stage_outbox WHERE sink = :stage;

-- name: begin_backfill
-- No two backfills of a stage begin at the same time, even if the clock stands still.
INSERT INTO stage_backfill (shard_id, stage, started_at, ended, cursor, reason)
SELECT l.shard_id, :stage, :now, 0, '', :reason FROM shard_lock AS l WHERE true
ON CONFLICT (shard_id, stage) DO UPDATE SET
    started_at = max(:now, stage_backfill.started_at + 1), ended = 0, cursor = '', reason = :reason;

-- name: begin_backfill_last
SELECT max(started_at) FROM stage_backfill WHERE stage = :stage;

-- name: declare_free_saves
UPDATE stage_outbox SET ready_at = :now, attempts = 0 WHERE ready_at IS NULL AND sink = :stage;
