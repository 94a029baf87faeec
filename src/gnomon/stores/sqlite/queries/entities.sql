-- name: holds_lease
SELECT 1 FROM shard_lock WHERE shard_id = :shard AND lease_guid = :lease_guid;

-- name: get_entity
SELECT id, shard_id, epoch, version, changed_at, doc FROM entity WHERE id = :id;

-- name: get_entities
SELECT i.key, e.id, e.shard_id, e.epoch, e.version, e.changed_at, e.doc
FROM json_each(:ids) AS i
CROSS JOIN entity AS e
WHERE e.id = i.value;

-- name: list_entities
SELECT id, shard_id, epoch, version, changed_at, doc
FROM entity
WHERE id >= :since AND id < :prefix_end AND id <> :after AND doc IS NOT NULL
ORDER BY id
LIMIT :limit;

-- name: create_entity
-- Into a tombstone's place with the next epoch; its states are not the new one's.
INSERT INTO entity (id, shard_id, epoch, version, changed_at, saves, doc)
VALUES (:id, :shard, 1, 1, :now, :saves, :doc)
ON CONFLICT (id) DO UPDATE SET
    epoch = entity.epoch + 1, version = 1, changed_at = :now, saves = entity.saves + :saves,
    keeps_states = 0, doc = :doc
WHERE entity.doc IS NULL
RETURNING epoch, version, saves;

-- name: change_entity
-- Compare-and-set. Without a document: a tombstone, which remembers whether it has states.
UPDATE entity SET
    version = version + 1, changed_at = :now, saves = saves + :saves, doc = :doc,
    keeps_states = :doc IS NULL AND EXISTS (SELECT 1 FROM stage_state WHERE entity_id = :id)
WHERE id = :id AND epoch = :epoch AND version = :version AND doc IS NOT NULL
RETURNING epoch, version, saves;

-- name: note_change
-- By position.
INSERT INTO entity_change (shard_id, id, epoch, version, depth, at, root, author, paths)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: changes
SELECT version, paths, author, root, depth, at
FROM entity_change
WHERE id = :id
ORDER BY epoch DESC, version DESC
LIMIT :limit;

-- name: changes_since
SELECT version, paths, author, root, depth, at
FROM entity_change
WHERE id = :id AND epoch = :epoch AND version > :since
ORDER BY version;

-- name: feed_entity
-- What was fed already stays so since the change that it was fed for first.
INSERT INTO stage_feed (shard_id, entity_id, epoch, since, seq, first_at)
VALUES (:shard, :id, :epoch, :version - 1, :seq, :now)
ON CONFLICT (entity_id) DO UPDATE SET seq = stage_feed.seq + 1;

-- name: clear_queue
DELETE FROM stage_queue WHERE shard_id = :shard AND entity_id = :id;

-- name: clear_feed
DELETE FROM stage_feed WHERE entity_id = :id;

-- name: clear_states
DELETE FROM stage_state WHERE entity_id = :id;

-- name: states_of
SELECT stage, version, revision, body, type FROM stage_state WHERE entity_id = :id;

-- name: get_state
SELECT version, revision, body, type FROM stage_state WHERE entity_id = :id AND stage = :stage;

-- name: put_state
INSERT INTO stage_state (shard_id, entity_id, stage, version, revision, type, body)
VALUES (:shard, :id, :stage, :version, :revision, :type, :body)
ON CONFLICT (entity_id, stage) DO UPDATE SET
    version = :version, revision = :revision, type = :type, body = :body;

-- name: rows
-- All rows come as one JSON text, here and below: see `begin_due`.
SELECT json_group_array(json_array(
    entity_id, stage, shard_id, lane, status, ready_at, timer_at, first_at, seq, attempts, reasons,
    hex(root), depth, error, note
))
FROM stage_queue
WHERE shard_id = :shard AND entity_id = :id;

-- name: get_row
SELECT json_group_array(json_array(
    entity_id, stage, shard_id, lane, status, ready_at, timer_at, first_at, seq, attempts, reasons,
    hex(root), depth, error, note
))
FROM stage_queue
WHERE shard_id = :shard AND entity_id = :id AND stage = :stage;

-- name: new_row
-- This one and the next two have the columns of `StoredRow` by position: many rows, and names cost.
INSERT INTO stage_queue (
    entity_id, stage, shard_id, lane, status, ready_at, timer_at, first_at, seq, attempts, reasons,
    root, depth, error, note
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: put_row
-- The key comes last.
UPDATE stage_queue SET
    lane = ?, status = ?, ready_at = ?, timer_at = ?, first_at = ?, seq = ?, attempts = ?,
    reasons = ?, root = ?, depth = ?, error = ?, note = ?
WHERE entity_id = ? AND stage = ? AND shard_id = ?;

-- name: drop_row
DELETE FROM stage_queue WHERE entity_id = ? AND stage = ? AND shard_id = ?;

-- name: parked
SELECT json_group_array(json_array(
    entity_id, stage, shard_id, lane, status, ready_at, timer_at, first_at, seq, attempts, reasons,
    hex(root), depth, error, note
))
FROM (
    SELECT * FROM stage_queue INDEXED BY stage_queue_parked_idx
    WHERE status IN ('quarantined', 'looping')
        AND (entity_id, stage) > (:after_entity, :after_stage)
        AND (:stage IS NULL OR stage = :stage)
    ORDER BY entity_id, stage
    LIMIT :limit
);

-- name: parked_of_stage
SELECT json_group_array(json_array(
    entity_id, stage, shard_id, lane, status, ready_at, timer_at, first_at, seq, attempts, reasons,
    hex(root), depth, error, note
))
FROM stage_queue INDEXED BY stage_queue_parked_idx
WHERE status IN ('quarantined', 'looping') AND stage = :stage;

-- name: doctor_entity_rows
SELECT 'entity_row', q.entity_id, q.status || ' for ' || q.stage || ', but it does not live'
FROM stage_queue AS q
LEFT JOIN entity AS e ON e.id = q.entity_id
WHERE e.doc IS NULL
UNION ALL
SELECT 'entity_row', f.entity_id, 'to be asked about, but it does not live'
FROM stage_feed AS f
LEFT JOIN entity AS e ON e.id = f.entity_id
WHERE e.doc IS NULL OR e.epoch <> f.epoch;

-- name: doctor_entity_times
SELECT 'entity_time', entity_id, status || ' for ' || stage || ' without a time'
FROM stage_queue
WHERE (status = 'ready' AND ready_at IS NULL) OR (status = 'sleeping' AND timer_at IS NULL);

-- name: purge_changes
-- What nobody was asked about yet stays, however old it is.
DELETE FROM entity_change
WHERE (id, epoch, version) IN (
    SELECT c.id, c.epoch, c.version
    FROM entity_change AS c
    WHERE c.at < :changed_before
        AND NOT EXISTS (
            SELECT 1 FROM stage_feed AS f
            WHERE f.entity_id = c.id AND f.epoch = c.epoch AND f.since < c.version
        )
    ORDER BY c.at
    LIMIT :limit
);

-- name: purge_kept
SELECT id FROM entity
WHERE keeps_states = 1 AND changed_at < :deleted_before
ORDER BY changed_at
LIMIT :limit;

-- name: keep_no_states
UPDATE entity SET keeps_states = 0 WHERE id = :id;
