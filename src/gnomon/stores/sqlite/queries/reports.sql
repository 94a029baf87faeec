-- What people look at. Nothing here looks at more rows than it is told, however many there are.

-- name: why_lock
SELECT shard_id, lease_guid, owner, beat, heartbeat_at, last_processing_start_at
FROM shard_lock
WHERE shard_id = :shard;

-- name: why_behind
-- How many due rows of one priority of a queue there are before a moment.
SELECT count(*) AS behind
FROM (
    SELECT 1 FROM processing_queue INDEXED BY processing_queue_lane_idx
    WHERE shard_id = :shard AND queue = :queue AND priority = :priority AND need = :need
        AND scheduled_at < :before AND running = 0
    LIMIT :limit
);

-- name: failures_queue_after
-- Queues with dead actions one by one, each found by one step in the index.
SELECT queue FROM finished_action INDEXED BY finished_action_dead_idx
WHERE state = 'dead' AND queue > :queue
ORDER BY queue
LIMIT 1;

-- name: failures_dead
-- The dead of a queue that are kept the longest: most often the newest.
-- `is_replaced`: it is not the last generation of its id, which lives again or ended once more.
SELECT f.id, f.queue, f.finished_at AS at, f.reason, f.last_attempt,
    CASE WHEN json_valid(f.spec) THEN json_array(
        substr(json_extract(f.spec, '$.action.type'), 1, 200),
        substr(json_extract(f.spec, '$.action.function'), 1, 200),
        substr(json_extract(f.spec, '$.action.target'), 1, 200)
    ) END AS effect,
    EXISTS (SELECT 1 FROM scheduled_action AS s WHERE s.id = f.id) OR EXISTS (
        SELECT 1 FROM finished_action AS g
        WHERE g.id = f.id AND (g.finished_at, g.guid) > (f.finished_at, f.guid)
            AND g.purge_at > :now
    ) AS is_replaced
FROM finished_action AS f INDEXED BY finished_action_dead_idx
WHERE f.state = 'dead' AND f.queue = :queue AND f.purge_at > :now
ORDER BY f.purge_at DESC
LIMIT :limit;

-- name: failures_retrying
-- Live actions whose last attempt failed.
SELECT id, queue, updated_at AS at, NULL AS reason, last_attempt,
    CASE WHEN json_valid(spec) THEN json_array(
        substr(json_extract(spec, '$.action.type'), 1, 200),
        substr(json_extract(spec, '$.action.function'), 1, 200),
        substr(json_extract(spec, '$.action.target'), 1, 200)
    ) END AS effect
FROM scheduled_action INDEXED BY scheduled_action_failing_idx
WHERE occurrence_failures > 0
ORDER BY id
LIMIT :limit;

-- name: load_few
-- The first rows of a lane within a time, by second.
SELECT second * 1000000 AS at, count(*) AS count
FROM (
    SELECT scheduled_at / 1000000 AS second FROM processing_queue INDEXED BY processing_queue_lane_idx
    WHERE shard_id = :shard AND queue = :queue AND priority = :priority AND need = :need
        AND scheduled_at >= :since AND scheduled_at < :until AND running = 0
    ORDER BY scheduled_at
    LIMIT :limit
)
GROUP BY second;

-- name: load_due
-- How many these are, up to when, and their fullest second.
SELECT sum(count) OVER () AS seen, max(last_at) OVER () AS last_at, at AS herd_at, count AS herd
FROM (
    SELECT scheduled_at / 1000000 * 1000000 AS at, count(*) AS count, max(scheduled_at) AS last_at
    FROM (
        SELECT scheduled_at FROM processing_queue INDEXED BY processing_queue_lane_idx
        WHERE shard_id = :shard AND queue = :queue AND priority = :priority AND need = :need
            AND scheduled_at >= :since AND scheduled_at < :until AND running = 0
        ORDER BY scheduled_at
        LIMIT :limit
    )
    GROUP BY 1
)
ORDER BY count DESC, herd_at
LIMIT 1;

-- name: load_arrived
-- What stands in the incoming queue, by the second in which it is due: the oldest rows of a shard.
SELECT second * 1000000 AS at, count(*) AS count
FROM (
    SELECT scheduled_at / 1000000 AS second FROM incoming_queue
    WHERE shard_id = :shard
    ORDER BY created_at, guid
    LIMIT :limit
)
GROUP BY second;

-- name: herd_ids
SELECT a.id
FROM (
    SELECT guid FROM processing_queue INDEXED BY processing_queue_lane_idx
    WHERE shard_id = :shard AND queue = :queue AND priority = :priority AND need = :need
        AND scheduled_at >= :since AND scheduled_at < :until AND running = 0
    ORDER BY scheduled_at
    LIMIT :limit
) AS d
JOIN scheduled_action AS a ON a.guid = d.guid;

-- name: list_recurring
-- Active actions that come again, and when their next occurrence is planned.
SELECT id, spec, occurrence_at FROM scheduled_action INDEXED BY scheduled_action_recurring_idx
WHERE instr(spec, '"policy":{') > 0 AND state = 'active'
ORDER BY id
LIMIT :limit;
