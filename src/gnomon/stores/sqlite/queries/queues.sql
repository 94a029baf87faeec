-- Queues of stages: what people see of them, and what the owner of a shard does. `row_…` write rows of the
-- queue, `load_…` read entities with all that belongs to them.

-- name: rows
-- All rows come as one JSON text, here and below: see `begin_due`.
SELECT json_group_array(json_array(
    entity_key, stage, shard_id, lane, status, ready_at, timer_at, first_at, seq, attempts, reasons,
    hex(root), depth, error, note
))
FROM stage_queue
WHERE shard_id = :shard AND entity_key = :entity_key;

-- name: rows_of_stage
SELECT json_group_array(json_array(
    entity_key, stage, shard_id, lane, status, ready_at, timer_at, first_at, seq, attempts, reasons,
    hex(root), depth, error, note
))
FROM stage_queue
WHERE shard_id = :shard AND entity_key = :entity_key AND stage = :stage;

-- name: row_insert
-- This one and the next two have the columns of `StoredRow` by position: many rows, and names cost.
INSERT INTO stage_queue (
    entity_key, stage, shard_id, lane, status, ready_at, timer_at, first_at, seq, attempts, reasons,
    root, depth, error, note
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: row_update
-- The key comes last.
UPDATE stage_queue SET
    lane = ?, status = ?, ready_at = ?, timer_at = ?, first_at = ?, seq = ?, attempts = ?,
    reasons = ?, root = ?, depth = ?, error = ?, note = ?
WHERE entity_key = ? AND stage = ? AND shard_id = ?;

-- name: row_remove
DELETE FROM stage_queue WHERE entity_key = ? AND stage = ? AND shard_id = ?;

-- name: parked
SELECT json_group_array(json_array(
    entity_key, stage, shard_id, lane, status, ready_at, timer_at, first_at, seq, attempts, reasons,
    hex(root), depth, error, note
))
FROM (
    SELECT * FROM stage_queue INDEXED BY stage_queue_parked_idx
    WHERE status IN ('quarantined', 'looping')
        AND (entity_key, stage) > (:after_entity, :after_stage) AND entity_key < :below
        AND (:stage IS NULL OR stage = :stage)
    ORDER BY entity_key, stage
    LIMIT :limit
);

-- name: next_work_lane
-- Lanes of stages one by one, each found by one step in the index, with its earliest time.
SELECT stage, lane, ready_at
FROM stage_queue INDEXED BY stage_queue_ready_idx
WHERE shard_id = :shard AND status = 'ready'
    AND (stage, lane, ready_at) > (:stage, :lane, 9223372036854775807)
ORDER BY stage, lane, ready_at
LIMIT 1;

-- name: next_work_times
SELECT
    (
        SELECT q.timer_at FROM stage_queue AS q INDEXED BY stage_queue_timer_idx
        WHERE q.shard_id = s.value AND q.timer_at IS NOT NULL
            AND q.status IN ('sleeping', 'ready')
        ORDER BY q.timer_at
        LIMIT 1
    ),
    EXISTS (SELECT 1 FROM changed_entity AS f WHERE f.shard_id = s.value)
FROM json_each(:shards) AS s;

-- name: next_work_backfills
SELECT w.stage, w.shard_id
FROM json_each(:shards) AS s
CROSS JOIN stage_backfill AS w
WHERE w.shard_id = s.value AND w.ended = 0
ORDER BY w.stage, w.shard_id;

-- name: fire_timers
SELECT timer_at, entity_key, stage, shard_id
FROM stage_queue INDEXED BY stage_queue_timer_idx
WHERE shard_id = :shard AND timer_at IS NOT NULL AND status IN ('sleeping', 'ready')
    AND timer_at <= :now
ORDER BY timer_at;

-- name: changed_entities
SELECT first_at, entity_key, epoch, since, seq, shard_id
FROM changed_entity
WHERE shard_id = :shard
ORDER BY first_at;

-- name: route_done
DELETE FROM changed_entity WHERE entity_key = :entity_key AND seq = :seq;

-- name: route_since
UPDATE changed_entity SET since = max(since, :version) WHERE entity_key = :entity_key AND epoch = :epoch;

-- name: lane_head
SELECT ready_at, entity_key, shard_id
FROM stage_queue INDEXED BY stage_queue_ready_idx
WHERE shard_id = :shard AND stage = :stage AND lane = :lane AND status = 'ready'
ORDER BY ready_at;

-- name: load_entities
-- This and the next one give rows in the order of the keys, and are read no further than wanted.
SELECT i.key, e.entity_key, e.shard_id, e.epoch, e.version, e.changed_at, e.doc
FROM json_each(:entity_keys) AS i
CROSS JOIN entity AS e
WHERE e.entity_key = i.value AND e.doc IS NOT NULL;

-- name: load_states
SELECT i.key, s.entity_key, s.stage, s.version, s.revision, s.body, s.type
FROM json_each(:entity_keys) AS i
CROSS JOIN entity AS e
CROSS JOIN stage_state AS s
WHERE e.entity_key = i.value AND e.doc IS NOT NULL AND s.entity_key = i.value;

-- name: load_rows
SELECT json_group_array(json_array(
    q.entity_key, q.stage, q.shard_id, q.lane, q.status, q.ready_at, q.timer_at, q.first_at, q.seq,
    q.attempts, q.reasons, hex(q.root), q.depth, q.error, q.note
))
FROM json_each(:entity_keys) AS i
CROSS JOIN stage_queue AS q
WHERE q.shard_id = (SELECT e.shard_id FROM entity AS e WHERE e.entity_key = i.value)
    AND q.entity_key = i.value;

-- name: load_versions
SELECT json_group_array(json_array(e.entity_key, e.epoch, e.version, e.saves))
FROM json_each(:entity_keys) AS i
CROSS JOIN entity AS e
WHERE e.entity_key = i.value AND e.doc IS NOT NULL;

-- name: load_states_of
SELECT s.entity_key, s.stage, s.version, s.revision, s.body, s.type
FROM json_each(:keys) AS k
CROSS JOIN stage_state AS s
WHERE s.entity_key = json_extract(k.value, '$[0]') AND s.stage = json_extract(k.value, '$[1]');

-- name: backfill_page
-- Between which keys it goes on, besides: `0` follows `/`.
SELECT w.started_at, max(w.cursor, s.kind || '/'), s.kind || '0', w.reason
FROM stage_backfill AS w
CROSS JOIN stage AS s
WHERE w.shard_id = :shard AND w.stage = :stage AND w.ended = 0 AND s.name = w.stage;

-- name: backfill_page_backlog
-- No further than it matters.
SELECT count(*) FROM (
    SELECT 1 FROM stage_queue INDEXED BY stage_queue_ready_idx
    WHERE shard_id = :shard AND stage = :stage AND lane = 1 AND status = 'ready'
    LIMIT :backlog_max + 1
);

-- name: backfill_page_keys
SELECT entity_key FROM entity
WHERE shard_id = :shard AND entity_key > :after AND entity_key < :below AND doc IS NOT NULL
ORDER BY entity_key
LIMIT :limit;

-- name: advance_backfill
UPDATE stage_backfill SET cursor = coalesce(:cursor, cursor), ended = :cursor IS NULL
WHERE shard_id = :shard AND stage = :stage AND started_at = :started_at AND ended = 0;

-- name: rows_undelivered
-- The first save of each sink that is quarantined, as a row of the queue: see `rows`. What stands
-- beside min() is of the row that has it.
SELECT json_group_array(json_array(
    entity_key, sink, shard_id, 0, 'undelivered', NULL, NULL, at, n, attempts,
    '["save v' || version || '"]', hex(root), 0, error, NULL
))
FROM (
    SELECT *, min(n) FROM stage_outbox INDEXED BY stage_outbox_parked_idx
    WHERE ready_at IS NULL AND entity_key = :entity_key
    GROUP BY entity_key, sink
    ORDER BY sink
);

-- name: parked_undelivered
-- The same of all entities: see `parked`.
SELECT json_group_array(json_array(
    entity_key, sink, shard_id, 0, 'undelivered', NULL, NULL, at, n, attempts,
    '["save v' || version || '"]', hex(root), 0, error, NULL
))
FROM (
    SELECT *, min(n) FROM stage_outbox INDEXED BY stage_outbox_parked_idx
    WHERE ready_at IS NULL AND (entity_key, sink) > (:after_entity, :after_stage)
        AND entity_key < :below AND (:stage IS NULL OR sink = :stage)
    GROUP BY entity_key, sink
    ORDER BY entity_key, sink
    LIMIT :limit
);

-- name: release_saves
UPDATE stage_outbox SET ready_at = :now, attempts = 0
WHERE ready_at IS NULL AND entity_key = :entity_key AND sink = :stage;
