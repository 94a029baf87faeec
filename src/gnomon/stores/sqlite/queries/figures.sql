-- The figures of the installation: nothing here looks at more rows than it is told.

-- name: figures_locks
SELECT count(*) AS shards, total(lease_guid IS NULL OR heartbeat_at < :alive_since) AS unowned
FROM shard_lock;

-- name: figures_overdue
SELECT count(*) AS count, min(scheduled_at) AS since
FROM (
    SELECT scheduled_at FROM processing_queue
    WHERE shard_id = :shard AND queue = :queue AND priority = :priority AND need = :need
        AND scheduled_at <= :now AND running = 0
    ORDER BY scheduled_at
    LIMIT :limit
);

-- name: figures_waiting
SELECT count(*) AS count
FROM (
    SELECT 1 FROM processing_queue
    WHERE shard_id = :shard AND queue = :queue AND priority = :priority AND need = :need
        AND scheduled_at > :now AND running = 0
    LIMIT :limit
);

-- name: figures_arrived
-- The oldest rows of a shard.
SELECT queue, count(*) AS count, total(scheduled_at <= :now) AS overdue,
    min(CASE WHEN scheduled_at <= :now THEN scheduled_at END) AS since
FROM (
    SELECT queue, scheduled_at FROM incoming_queue
    WHERE shard_id = :shard
    ORDER BY created_at, guid
    LIMIT :limit
)
GROUP BY queue;

-- name: figures_running
SELECT queue, count(*) AS count
FROM (
    SELECT queue FROM processing_queue INDEXED BY processing_queue_running_idx
    WHERE shard_id = :shard AND running = 1
    ORDER BY scheduled_at
    LIMIT :limit
)
GROUP BY queue;

-- name: figures_dead_after
-- Queues with dead actions one by one, each found by one step in the index.
SELECT queue FROM finished_action INDEXED BY finished_action_dead_idx
WHERE state = 'dead' AND queue > :queue
ORDER BY queue
LIMIT 1;

-- name: figures_dead
SELECT count(*) AS count
FROM (
    SELECT 1 FROM finished_action INDEXED BY finished_action_dead_idx
    WHERE state = 'dead' AND queue = :queue AND purge_at > :now
    LIMIT :limit
);

-- name: figures_stages_after
-- Lanes of stages one by one, each found by one step in the index.
SELECT stage, lane FROM stage_queue INDEXED BY stage_queue_ready_idx
WHERE shard_id = :shard AND status = 'ready'
    AND (stage, lane, ready_at) > (:stage, :lane, 9223372036854775807)
ORDER BY stage, lane
LIMIT 1;

-- name: figures_ready
SELECT count(*) AS count, min(ready_at) AS since
FROM (
    SELECT ready_at FROM stage_queue INDEXED BY stage_queue_ready_idx
    WHERE shard_id = :shard AND stage = :stage AND lane = :lane AND status = 'ready'
        AND ready_at <= :now
    ORDER BY ready_at
    LIMIT :limit
);

-- name: figures_parked
SELECT stage, count(*) AS count
FROM (
    SELECT stage FROM stage_queue INDEXED BY stage_queue_parked_idx
    WHERE status IN ('quarantined', 'looping')
    ORDER BY entity_key, stage
    LIMIT :limit
)
GROUP BY stage;
